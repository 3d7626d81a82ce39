//! What can become of a request, in the words of the domain.
//!
//! One variant per *outcome*, not per place where something failed: whoever meets a foreign error (an API server's
//! answer, a broken connection) turns it into an outcome at once, in the one function its folder has for that, and
//! keeps the cause in the message. `csi/status.rs` alone turns outcomes into gRPC codes, because there the code decides
//! what the sidecar does next: whether it keeps calling, forgets the volume, or moves the pod to another node.
//!
//! The rule that matters most: an outcome that the sidecar takes as "nothing is left behind" is returned only after a
//! read has proved that no leaf exists.

/// An outcome other than success. The message is for the user who waits: it names the member, the object and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request itself is wrong and will stay wrong.
    #[error("{0}")]
    Invalid(String),
    /// The size asked for cannot be had, anywhere or by this class.
    #[error("{0}")]
    OutOfRange(String),
    /// The volume does not exist.
    #[error("{0}")]
    NotFound(String),
    /// Something else has the name, or the same volume was asked for differently.
    #[error("{0}")]
    Exists(String),
    /// The host claim is gone and so is, or will be, everything made for it.
    #[error("{0}")]
    Gone(String),
    /// Work is under way; calling again finds it further on.
    #[error("{0}")]
    InProgress(String),
    /// No room here; another member may have some.
    #[error("{0}")]
    NoPlace(String),
    /// The state of an object forbids it until a person acts.
    #[error("{0}")]
    Refused(String),
    /// The member refuses our credentials the right to do it.
    #[error("{0}")]
    Denied(String),
    /// The member cannot be asked now.
    #[error("member {member}: {reason}")]
    Unreachable { member: String, reason: String },
    /// The host's own API server cannot be asked now.
    #[error("host cluster: {0}")]
    HostUnreachable(String),
}

impl Error {
    /// The same outcome where a leaf may exist: whatever stands in the way, the sidecar must keep calling.
    #[must_use]
    pub fn while_a_leaf_may_exist(self) -> Self {
        if self.is_final() { Self::InProgress(self.to_string()) } else { self }
    }

    /// Whether the sidecar may be told this only once nothing is left behind.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::InProgress(_) | Self::Unreachable { .. } | Self::HostUnreachable(_))
    }
}

pub type Result<T, E = Error> = std::result::Result<T, E>;
