//! The ids under which nodes are known to the interface: they say where a node is.

use std::fmt;

use super::id::{is_member_name, is_subdomain};

/// The longest id the interface allows, in bytes.
const LONGEST_ID: usize = 256;

/// A node of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeId {
    /// `virtual/<member>` stands for a whole member, `virtual/<member>/<member node>` for one node of it.
    Virtual { member: String, node: Option<String> },
    /// `real/<host node>`: a machine of the host's own.
    Real(String),
}

impl NodeId {
    /// Nothing is an error here: what is not one of our ids is simply not one of our nodes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > LONGEST_ID {
            return None;
        }
        let parts: Vec<&str> = text.split('/').collect();
        match parts.as_slice() {
            ["real", node] if is_subdomain(node) => Some(Self::Real((*node).to_owned())),
            ["virtual", member] if is_member_name(member) => {
                Some(Self::Virtual { member: (*member).to_owned(), node: None })
            }
            ["virtual", member, node] if is_member_name(member) && is_subdomain(node) => {
                Some(Self::Virtual { member: (*member).to_owned(), node: Some((*node).to_owned()) })
            }
            _ => None,
        }
    }

    pub fn is_real(&self) -> bool {
        matches!(self, Self::Real(_))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Virtual { member, node: None } => write!(out, "virtual/{member}"),
            Self::Virtual { member, node: Some(node) } => write!(out, "virtual/{member}/{node}"),
            Self::Real(node) => write!(out, "real/{node}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn id_says_where_the_node_is() {
        let virtual_node =
            |node: Option<&str>| NodeId::Virtual { member: "cluster38".to_owned(), node: node.map(str::to_owned) };
        for (text, expected) in [
            ("virtual/cluster38", virtual_node(None)),
            ("virtual/cluster38/worker-1.example", virtual_node(Some("worker-1.example"))),
            ("real/worker-1.example", NodeId::Real("worker-1.example".to_owned())),
        ] {
            assert_eq!(NodeId::parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_id_is_no_node() {
        let long = format!("real/{}", "a".repeat(254));
        for text in [
            "",
            "real",
            "real/",
            "real/a/b",
            "real/A",
            "virtual",
            "virtual/",
            "virtual/a/",
            "virtual/a/b/c",
            "a/b",
            "some-fake-node-id",
            "virtual/../b",
            long.as_str(),
        ] {
            assert_eq!(NodeId::parse(text), None, "{text}");
        }
        assert_eq!(NodeId::parse(&format!("virtual/{}", "m".repeat(41))), None);
    }

    proptest! {
        #[test]
        fn id_that_is_parsed_is_printed_as_it_was(text in "(real|virtual)(/[-.a-z0-9A-Z]{0,20}){0,3}") {
            if let Some(id) = NodeId::parse(&text) {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
