//! On which nodes a volume is published, as it is kept on its leaf claim, and whether it may be on one more. Pure.
//!
//! The record decides alone: whoever writes it proves with the claim's version that he has read the newest one, so that
//! of two processes only one can say yes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AccessMode, NodeId};

/// How a volume is published on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    pub access: AccessMode,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub readonly: bool,
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
    pub fn is_nowhere(&self) -> bool {
        self.nodes.is_empty() && !self.spoilt
    }

    pub fn is_spoilt(&self) -> bool {
        self.spoilt
    }

    pub fn is_on(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    pub fn is_on_real_node(&self) -> bool {
        self.nodes().filter_map(NodeId::parse).any(|node| node.is_real())
    }

    pub fn publish(&self, node: &str, wanted: Publication) -> Verdict {
        if self.spoilt {
            return Verdict::Unreadable;
        }
        if let Some(now) = self.nodes.get(node) {
            return if *now == wanted { Verdict::Already } else { Verdict::Differs(difference(*now, wanted)) };
        }
        let alone = |publication: &Publication| publication.access.is_for_one_node();
        let in_the_way = self.nodes.iter().find(|(_, other)| alone(&wanted) || alone(other));
        if let Some((other, _)) = in_the_way {
            return Verdict::Elsewhere(other.clone());
        }
        let mut with = self.clone();
        with.nodes.insert(node.to_owned(), wanted);
        Verdict::Yes(with)
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

fn difference(now: Publication, wanted: Publication) -> String {
    let way = |publication: Publication| {
        format!("{}{}", publication.access.as_str(), if publication.readonly { ", read-only" } else { "" })
    };
    format!("as {}, not as {}", way(now), way(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITER: Publication = Publication { access: AccessMode::ReadWriteOnce, readonly: false };
    const ONE_POD: Publication = Publication { access: AccessMode::ReadWriteOncePod, readonly: false };
    const SHARED: Publication = Publication { access: AccessMode::ReadWriteMany, readonly: false };

    fn on(nodes: &[(&str, Publication)]) -> Published {
        let nodes = nodes.iter().map(|(node, publication)| ((*node).to_owned(), *publication)).collect();
        Published { nodes, spoilt: false }
    }

    #[test]
    fn volume_for_one_node_is_refused_to_a_second_one() {
        for (first, second) in [(WRITER, WRITER), (ONE_POD, ONE_POD), (SHARED, WRITER), (WRITER, SHARED)] {
            let there = on(&[("virtual/a", first)]);
            assert_eq!(there.publish("virtual/b", second), Verdict::Elsewhere("virtual/a".to_owned()));
            assert_eq!(there.publish("virtual/a/n", second), Verdict::Elsewhere("virtual/a".to_owned()));
        }
        let shared = on(&[("virtual/a", SHARED)]).publish("real/b", SHARED);
        assert_eq!(shared, Verdict::Yes(on(&[("virtual/a", SHARED), ("real/b", SHARED)])));
    }

    #[test]
    fn the_same_again_is_said_to_be_so_and_another_way_is_told() {
        let there = on(&[("virtual/a", WRITER)]);
        assert_eq!(there.publish("virtual/a", WRITER), Verdict::Already);
        let readonly = Publication { readonly: true, ..WRITER };
        let told = "as ReadWriteOnce, not as ReadWriteOnce, read-only".to_owned();
        assert_eq!(there.publish("virtual/a", readonly), Verdict::Differs(told));
        assert!(matches!(there.publish("virtual/a", ONE_POD), Verdict::Differs(_)));
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
    fn nothing_is_decided_on_a_record_that_cannot_be_read() {
        let spoilt = Published::spoilt();
        assert_eq!(spoilt.publish("virtual/a", WRITER), Verdict::Unreadable);
        assert!(spoilt.is_spoilt() && !spoilt.is_nowhere());
        assert!(Published::default().is_nowhere());
    }
}
