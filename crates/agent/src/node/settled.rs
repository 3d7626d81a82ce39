//! What was seen of a virtual node and its member. Where nothing was to be done for it, the same again asks for nothing either, as what is to be
//! done is decided by nothing else. Pure.

use std::sync::Arc;

use serde_json::Value;

use super::{super::virtual_node::VirtualNodeId, Health, ObservedStatus};

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) of: VirtualNodeId,
    /// As the watches told them last.
    pub(super) node: Option<Arc<Value>>,
    pub(super) csi_node: Option<Arc<Value>>,
    pub(super) health: Health,
    pub(super) found: ObservedStatus,
}

impl Seen {
    /// Nothing was told since, and the member is as it was.
    pub(super) fn is(&self, other: &Self) -> bool {
        is_the_same(self.node.as_ref(), other.node.as_ref())
            && is_the_same(self.csi_node.as_ref(), other.csi_node.as_ref())
            && (&self.of, &self.health, &self.found) == (&other.of, &other.health, &other.found)
    }

    pub(super) fn is_of(&self, node: &Arc<Value>) -> bool {
        is_the_same(self.node.as_ref(), Some(node))
    }
}

fn is_the_same(one: Option<&Arc<Value>>, other: Option<&Arc<Value>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told_again_or_is_otherwise_in_the_member_is_looked_at() {
        let object = || Some(Arc::new(json!({"metadata": {"name": "kosmos-m"}})));
        let (node, csi_node) = (object(), object());
        let seen = || Seen {
            of: VirtualNodeId { member: "m".to_owned(), node: None },
            node: node.clone(),
            csi_node: csi_node.clone(),
            health: Health { ready: true, reason: "MemberReady", message: "member m answers".to_owned() },
            found: ObservedStatus {
                room: [("cpu".to_owned(), 4000)].into(),
                version: "v1.36.0".to_owned(),
                architecture: "amd64".to_owned(),
                kubelet_api: None,
                features: Vec::new(),
            },
        };
        assert!(seen().is(&seen()));
        let health = Health { ready: false, ..seen().health };
        let found = ObservedStatus { room: [("cpu".to_owned(), 3000)].into(), ..seen().found };
        let of = VirtualNodeId { member: "m".to_owned(), node: Some("n".to_owned()) };
        for (what, other) in [
            ("the node is told again, and says the same", Seen { node: object(), ..seen() }),
            ("it is gone", Seen { node: None, ..seen() }),
            ("its CSINode is told again", Seen { csi_node: object(), ..seen() }),
            ("its CSINode is gone", Seen { csi_node: None, ..seen() }),
            ("the member's nodes are not ready", Seen { health, ..seen() }),
            ("there is less room", Seen { found, ..seen() }),
            ("it stands for something else", Seen { of, ..seen() }),
        ] {
            assert!(!seen().is(&other) && !other.is(&seen()), "{what}");
        }
        assert!(seen().is_of(&Arc::clone(node.as_ref().unwrap())) && !seen().is_of(&object().unwrap()));
    }
}
