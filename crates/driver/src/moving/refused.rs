//! What a member refuses, in words for who waits: it is tried again, and nothing of it goes by itself.

use domain::error::Error;

/// What came to nothing, and what is to be done about it where somebody has to act in a member.
pub(super) fn told_of(error: &Error) -> String {
    match error {
        Error::Denied(why) => format!("{why}. {}", who_gives_it_back("MEMBER")),
        other => other.to_string(),
    }
}

pub(super) fn who_gives_it_back(member: &str) -> String {
    format!(
        "The administrator of that member gives the right back, or changes what refuses it there: `kosmos-csi member check {member} --moves` \
         names the rights that are missing"
    )
}
