//! On which nodes a volume is published, as it is kept on its leaf claim, and whether it may be on one more. Pure.
//!
//! The record decides alone: whoever writes it proves with the claim's version that he has read the newest one, so that
//! of two processes only one can say yes.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{AccessMode, DRIVER, NodeId, VolumeHash};

/// How a volume is published on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub access: AccessMode,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
    /// What is done for it in the member, and is to be undone when nobody else remembers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached: Option<Attachment>,
}

/// To what a volume is attached in its member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attachment {
    /// The member's own node of this name, by a VolumeAttachment.
    MemberNode(String),
    /// The virtual machine of this name, in the leaf claim's namespace.
    VirtualMachine(String),
}

/// The name of the VolumeAttachment for a member node. Whoever sees the name alone cannot take it for one of the member's
/// own, which are `csi-` and 64 digits.
pub fn attachment_name(volume: VolumeHash, member_node: &str) -> String {
    let digest = Sha256::digest(format!("{volume}\n{member_node}"));
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    format!("kosmos-csi-{:032x}", u128::from_be_bytes(first))
}

/// The name of the VolumeAttachment that the host's own attach controller makes for a volume of this driver and a node.
pub fn host_attachment_name(handle: &str, node: &str) -> String {
    format!("csi-{:x}", Sha256::digest(format!("{handle}{DRIVER}{node}")))
}

impl fmt::Display for Attachment {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MemberNode(name) => write!(out, "member node {name}"),
            Self::VirtualMachine(name) => write!(out, "virtual machine {name}"),
        }
    }
}

/// The nodes that have a volume, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    nodes: BTreeMap<String, Publication>,
    /// Somebody has written something else over the record: nothing is decided on it.
    spoilt: bool,
}

/// Whether a volume may be published on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// With this as the record.
    Yes(Published),
    /// It is, in the same way.
    Already,
    /// It is, in another way; in words.
    Differs(String),
    /// It is on another node, and one of the two ways allows one node alone.
    Elsewhere(String),
    Unreadable,
}

impl Published {
    pub fn new(nodes: BTreeMap<String, Publication>) -> Self {
        Self { nodes, spoilt: false }
    }

    pub fn spoilt() -> Self {
        Self { nodes: BTreeMap::new(), spoilt: true }
    }

    /// As it is to be kept; none where it is on no node.
    pub fn record(&self) -> Option<&BTreeMap<String, Publication>> {
        Some(&self.nodes).filter(|nodes| !nodes.is_empty())
    }

    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Nobody has it, and nothing else stands in the record.
    pub fn is_unpublished(&self) -> bool {
        self.nodes.is_empty() && !self.spoilt
    }

    pub fn is_corrupt(&self) -> bool {
        self.spoilt
    }

    pub fn is_on(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    pub fn is_on_real_node(&self) -> bool {
        self.real_nodes().next().is_some()
    }

    /// The host's own, by their names.
    pub fn real_nodes(&self) -> impl Iterator<Item = String> {
        self.nodes().filter_map(|node| match NodeId::parse(node) {
            Some(NodeId::Real(name)) => Some(name),
            Some(NodeId::Virtual { .. }) | None => None,
        })
    }

    pub fn publish(&self, node: &str, wanted: &Publication) -> Verdict {
        if self.spoilt {
            return Verdict::Unreadable;
        }
        if let Some(now) = self.nodes.get(node) {
            return if now == wanted { Verdict::Already } else { Verdict::Differs(difference(now, wanted)) };
        }
        let alone = |publication: &Publication| publication.access.is_for_one_node();
        let in_the_way = self.nodes.iter().find(|(_, other)| alone(wanted) || alone(other));
        if let Some((other, _)) = in_the_way {
            return Verdict::Elsewhere(other.clone());
        }
        let mut with = self.clone();
        with.nodes.insert(node.to_owned(), wanted.clone());
        Verdict::Yes(with)
    }

    /// What is attached for a node, or for all of them.
    pub fn attached(&self, node: Option<&str>) -> impl Iterator<Item = &Attachment> {
        let wanted = move |id: &str| node.is_none_or(|node| node == id);
        self.nodes.iter().filter(move |(id, _)| wanted(id)).filter_map(|(_, publication)| publication.attached.as_ref())
    }

    pub fn is_attached(&self, to: &Attachment) -> bool {
        self.attached(None).any(|attached| attached == to)
    }

    /// The record without a node, or without any; none where nothing changes.
    pub fn without(&self, node: Option<&str>) -> Option<Self> {
        let mut rest = self.clone();
        match node {
            Some(node) => drop(rest.nodes.remove(node)),
            None => rest.nodes.clear(),
        }
        (rest != *self).then_some(rest)
    }
}

fn difference(now: &Publication, wanted: &Publication) -> String {
    let way = |publication: &Publication| {
        let readonly = if publication.readonly { ", read-only" } else { "" };
        let attached = publication.attached.as_ref().map(|to| format!(", by {to}")).unwrap_or_default();
        format!("{}{readonly}{attached}", publication.access.as_str())
    };
    format!("as {}, not as {}", way(now), way(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Publication = Publication { access: AccessMode::ReadWriteOnce, readonly: false, attached: None };
    const ONE_POD: Publication = Publication { access: AccessMode::ReadWriteOncePod, readonly: false, attached: None };
    const SHARED: Publication = Publication { access: AccessMode::ReadWriteMany, readonly: false, attached: None };

    fn on(nodes: &[(&str, Publication)]) -> Published {
        let nodes = nodes.iter().map(|(node, publication)| ((*node).to_owned(), publication.clone())).collect();
        Published { nodes, spoilt: false }
    }

    #[test]
    fn volume_for_one_node_is_refused_to_a_second_one() {
        for (first, second) in [(WRITER, WRITER), (ONE_POD, ONE_POD), (SHARED, WRITER), (WRITER, SHARED)] {
            let there = on(&[("virtual/a", first)]);
            assert_eq!(there.publish("virtual/b", &second), Verdict::Elsewhere("virtual/a".to_owned()));
            assert_eq!(there.publish("virtual/a/n", &second), Verdict::Elsewhere("virtual/a".to_owned()));
        }
        let shared = on(&[("virtual/a", SHARED)]).publish("real/b", &SHARED);
        assert_eq!(shared, Verdict::Yes(on(&[("virtual/a", SHARED), ("real/b", SHARED)])));
    }

    #[test]
    fn the_same_again_is_said_to_be_so_and_another_way_is_told() {
        let there = on(&[("virtual/a", WRITER)]);
        assert_eq!(there.publish("virtual/a", &WRITER), Verdict::Already);
        let readonly = Publication { readonly: true, ..WRITER };
        let told = "as ReadWriteOnce, not as ReadWriteOnce, read-only".to_owned();
        assert_eq!(there.publish("virtual/a", &readonly), Verdict::Differs(told));
        assert!(matches!(there.publish("virtual/a", &ONE_POD), Verdict::Differs(_)));
        let at = |name: &str| Publication { attached: Some(Attachment::MemberNode(name.to_owned())), ..WRITER };
        let told = "as ReadWriteOnce, by member node n1, not as ReadWriteOnce, by member node n2".to_owned();
        assert_eq!(on(&[("real/a", at("n1"))]).publish("real/a", &at("n2")), Verdict::Differs(told));
    }

    #[test]
    fn node_is_taken_away_alone_or_with_all_others() {
        let there = on(&[("virtual/a", SHARED), ("real/b", SHARED)]);
        assert_eq!(there.without(Some("real/b")), Some(on(&[("virtual/a", SHARED)])));
        assert_eq!(there.without(None), Some(Published::default()));
        assert_eq!(there.without(Some("real/c")), None);
        assert!(there.is_on_real_node() && !on(&[("virtual/a", SHARED)]).is_on_real_node());
    }

    #[test]
    fn what_is_attached_is_told_for_a_node_or_for_all() {
        let to = |attached: Attachment| Publication { attached: Some(attached), ..SHARED };
        let (node, machine) = (Attachment::MemberNode("n".to_owned()), Attachment::VirtualMachine("m".to_owned()));
        let there = on(&[("real/a", to(node.clone())), ("real/b", to(machine.clone())), ("virtual/c", SHARED)]);
        assert_eq!(there.attached(Some("real/b")).collect::<Vec<_>>(), [&machine]);
        assert_eq!(there.attached(None).collect::<Vec<_>>(), [&node, &machine]);
        assert_eq!(there.attached(Some("virtual/c")).count(), 0);
    }

    #[test]
    fn attachment_of_the_host_has_the_name_that_its_attach_controller_gives_it() {
        let digest = "c64ec05738d35a85d4d4d85c39f3a9858c3c46303f45299f4152e0265e5f924c";
        assert_eq!(host_attachment_name("m0/shop/data/8da434a88a9b3bbc", "n1"), format!("csi-{digest}"));
    }

    #[test]
    fn nothing_is_decided_on_a_record_that_cannot_be_read() {
        let spoilt = Published::spoilt();
        assert_eq!(spoilt.publish("virtual/a", &WRITER), Verdict::Unreadable);
        assert!(spoilt.is_corrupt() && !spoilt.is_unpublished());
        assert!(Published::default().is_unpublished());
    }
}
