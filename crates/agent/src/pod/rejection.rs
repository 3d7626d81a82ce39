//! Why a pod is not run in a member, in words for its user.

use super::super::object::{Place, short};

/// In bytes; an event takes 1024.
const LONGEST: usize = 800;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRejection {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl PodRejection {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }

    /// What a member answers is as long as it likes, and stands in the host's pod.
    pub(super) fn of_member(member: &str, answer: &str) -> Self {
        Self::new("RefusedByMember", format!("member {member} does not take it: {}", short(answer, LONGEST)))
    }

    /// A copy that is being ended has `what` this pod is to have.
    pub(super) fn of_former(reason: &'static str, former: &Place, member: &str, what: &str) -> Self {
        let message = format!(
            "pod {former} of member {member} has its {what} still, and is the copy of a pod that this host has no more: it is \
             being ended. Where its machine is off for good, who administers the member deletes it there with --force"
        );
        Self::new(reason, message)
    }
}

/// Whose copies are looked at, and in which member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here<'a> {
    pub(super) host: &'a str,
    pub(super) member: &'a str,
    /// Whether the host's administrator lets pods ask there for more than the level `baseline`.
    pub(super) privileged: bool,
}
