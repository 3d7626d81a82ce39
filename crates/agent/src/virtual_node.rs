//! What a virtual node stands for, and for which member a Node is kept. Pure.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{LABEL, LABEL_VALUE, PREFIX, object::mark};
use domain::volume::{MEMBER_KEY, NODE_KEY, NodeId};

/// On a Node of ours: what it stands for, in the words of CSI. The Node is ours by this alone.
pub(super) const ID: &str = "kosmos.csi.io/node-id";
/// On a node of Kosmos clustertree: the member it stands for.
const OWNED_BY_CLUSTER: &str = "kosmos-io/owned-by-cluster";
/// A label's value, and so the name of a node that has one.
const LONGEST: usize = 63;

/// What a virtual node stands for: a member, or one node of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct VirtualNodeId {
    pub(super) member: String,
    pub(super) node: Option<String>,
}

impl VirtualNodeId {
    pub(super) fn name(&self) -> String {
        let name = match &self.node {
            None => format!("{PREFIX}{}", self.member),
            Some(node) => format!("{PREFIX}{}-{node}", self.member),
        };
        if name.len() <= LONGEST {
            return name;
        }
        let mut first = [0; 4];
        first.copy_from_slice(&Sha256::digest(&name)[..4]);
        let kept = name.get(..LONGEST - 9).unwrap_or_default().trim_end_matches(['-', '.']);
        format!("{kept}-{:08x}", u32::from_be_bytes(first))
    }

    pub(super) fn id(&self) -> String {
        NodeId::Virtual { member: self.member.clone(), node: self.node.clone() }.to_string()
    }

    pub(super) fn topology(&self) -> Vec<(&'static str, &str)> {
        let node = self.node.as_deref().map(|node| (NODE_KEY, node));
        std::iter::once((MEMBER_KEY, self.member.as_str())).chain(node).collect()
    }
}

/// Whether a virtual node of this member could be called so: of a member `a` that of its node `b-c`, and of a member `a-b` that of its `c`.
pub fn may_be_called(member: &str, node: &str) -> bool {
    let rest = node.strip_prefix(PREFIX).and_then(|name| name.strip_prefix(member));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// What a Node of ours stands for.
pub(super) fn virtual_node_of(node: &Value) -> Option<VirtualNodeId> {
    match NodeId::parse(mark(node, "annotations", ID))? {
        NodeId::Virtual { member, node } => Some(VirtualNodeId { member, node }),
        NodeId::Real(_) => None,
    }
}

/// Whether Kosmos clustertree keeps this node for the member.
pub(super) fn is_of_clustertree(node: &Value, member: &str) -> bool {
    virtual_node_of(node).is_none()
        && mark(node, "labels", LABEL) == LABEL_VALUE
        && mark(node, "annotations", OWNED_BY_CLUSTER) == member
}

/// The member that a Node stands for, whoever keeps it.
pub(super) fn member_of(node: &Value) -> Option<String> {
    let clustertree = || Some(mark(node, "annotations", OWNED_BY_CLUSTER).to_owned()).filter(|name| !name.is_empty());
    virtual_node_of(node).map(|virtual_node| virtual_node.member).or_else(clustertree)
}
