//! What a member refuses, in words for who waits: it is tried again, and nothing of it goes by itself.

use domain::error::Error;
use leaf::denied_by;

/// What came to nothing, and what is to be done about it where somebody has to act in a member.
pub(super) fn told_of(error: &Error) -> String {
    match denied_by(error) {
        Some(member) => format!("{error}. {}", who_gives_it_back(member)),
        None => error.to_string(),
    }
}

pub(super) fn who_gives_it_back(member: &str) -> String {
    format!(
        "That member's administrator has to give the right back, or change what refuses it there: `kosmos-csi member \
         check {member} --moves` names the rights that are missing"
    )
}
