//! Topologies: which members and member nodes a request names, and what an answer says of a volume's place.

use std::collections::HashMap;

use super::super::v1::{Topology, TopologyRequirement};
use domain::{
    error::{Error, Result},
    volume::{MEMBER_KEY, NODE_KEY, spec::MemberNode},
};
use driver::provision::Where;

/// A requirement, by member.
#[derive(Debug, Default)]
pub(super) struct Requirement {
    pub(super) preferred: Vec<String>,
    pub(super) requisite: Vec<String>,
    pub(super) nodes: Vec<MemberNode>,
}

pub(super) fn requirement(asked: Option<TopologyRequirement>) -> Result<Requirement> {
    let asked = asked.unwrap_or_default();
    let (preferred, requisite) = (members(&asked.preferred), members(&asked.requisite));
    let demands = !asked.preferred.is_empty() || !asked.requisite.is_empty();
    if demands && preferred.is_empty() && requisite.is_empty() {
        return Err(Error::NoPlace(format!("no topology of the requirement has the key {MEMBER_KEY}")));
    }
    let nodes = asked.preferred.iter().chain(&asked.requisite).filter_map(node).collect();
    Ok(Requirement { preferred, requisite, nodes })
}

fn members(topologies: &[Topology]) -> Vec<String> {
    topologies.iter().filter_map(|topology| topology.segments.get(MEMBER_KEY)).cloned().collect()
}

fn node(topology: &Topology) -> Option<MemberNode> {
    let segment = |key| topology.segments.get(key).cloned();
    Some(MemberNode { member: segment(MEMBER_KEY)?, node: segment(NODE_KEY)? })
}

/// From where a volume can be reached.
pub(super) fn accessible(member: String, node: Option<String>) -> Topology {
    let segments = [Some((MEMBER_KEY.to_owned(), member)), node.map(|node| (NODE_KEY.to_owned(), node))];
    Topology { segments: segments.into_iter().flatten().collect() }
}

/// The place that a question is about.
pub(super) fn place(asked: Option<Topology>) -> Where {
    let mut segments: HashMap<String, String> = asked.unwrap_or_default().segments;
    match segments.remove(MEMBER_KEY) {
        Some(member) => Where::At { member, node: segments.remove(NODE_KEY) },
        None if segments.is_empty() => Where::Anywhere,
        None => Where::Elsewhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topology(segments: &[(&str, &str)]) -> Topology {
        Topology { segments: segments.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect() }
    }

    #[test]
    fn members_and_their_nodes_are_read_in_order() {
        let at = |member, node| topology(&[(MEMBER_KEY, member), (NODE_KEY, node)]);
        let asked = TopologyRequirement {
            requisite: vec![at("a", "n1"), at("a", "n2"), topology(&[(MEMBER_KEY, "b")]), topology(&[("zone", "z")])],
            preferred: vec![at("a", "n2")],
        };
        let read = requirement(Some(asked)).unwrap();
        assert_eq!((read.preferred.join(" "), read.requisite.join(" ")), ("a".to_owned(), "a a b".to_owned()));
        let nodes: Vec<&str> = read.nodes.iter().map(|place| place.node.as_str()).collect();
        assert_eq!(nodes, ["n2", "n1", "n2"]);
    }

    #[test]
    fn requirement_without_our_key_cannot_be_met() {
        let asked = TopologyRequirement { requisite: vec![topology(&[("zone", "z")])], preferred: Vec::new() };
        assert!(matches!(requirement(Some(asked)), Err(Error::NoPlace(_))));
        assert!(requirement(None).unwrap().preferred.is_empty());
    }

    #[test]
    fn question_without_segments_is_about_all_places() {
        assert_eq!(place(None), Where::Anywhere);
        assert_eq!(place(Some(topology(&[]))), Where::Anywhere);
        assert_eq!(place(Some(topology(&[("zone", "z")]))), Where::Elsewhere);
        let (member, node) = ("a".to_owned(), Some("n".to_owned()));
        assert_eq!(place(Some(topology(&[(MEMBER_KEY, "a"), (NODE_KEY, "n")]))), Where::At { member, node });
    }

    #[test]
    fn volume_on_one_node_says_so() {
        let member = || "a".to_owned();
        assert_eq!(accessible(member(), None), topology(&[(MEMBER_KEY, "a")]));
        let both = topology(&[(MEMBER_KEY, "a"), (NODE_KEY, "n")]);
        assert_eq!(accessible(member(), Some("n".to_owned())), both);
    }
}
