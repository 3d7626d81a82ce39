//! Where members are named. Every source tells all its members again whenever one of them changed.

pub mod clusters;
pub mod directory;
pub mod objects;
pub mod secrets;

use std::collections::BTreeMap;

use super::{kubeconfig::KubeconfigSource, policy::Policy};

/// What a source says of one member.
#[derive(Clone, PartialEq, Eq)]
pub struct MemberDefinition {
    pub kubeconfig: String,
    pub source: KubeconfigSource,
    pub policy: Policy,
    /// A Kosmos `Cluster` object is behind it: clustertree copies the host's pods there, and claims that are not ours.
    pub clustertree: bool,
    /// The Secret that it is, in the namespace of who uses it.
    pub secret: Option<String>,
    /// Where it was found, for messages.
    pub origin: String,
}

impl std::fmt::Debug for MemberDefinition {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("MemberDefinition").field("origin", &self.origin).finish_non_exhaustive()
    }
}

/// Whose credentials are wanted: each part of this program may have an account of its own in a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    Driver,
    /// Who runs pods there; the driver's account where it has none of its own.
    VirtualNode,
}

pub type MemberDefinitions = BTreeMap<String, MemberDefinition>;

/// Nothing yet: the source has not been read once.
pub type MemberUpdates = tokio::sync::watch::Receiver<Option<MemberDefinitions>>;
