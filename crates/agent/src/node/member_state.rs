//! What a member has, at one look at its virtual nodes. Nodes and pods are found by what a virtual node stands for: where each stands for one
//! node, all of both would be gone through for each of them. Pure.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use serde_json::Value;

use super::super::{member_pod::PodsOnDemand, object::text, virtual_node::VirtualNodeId};

/// As its watches tell it.
#[derive(Debug)]
pub(crate) struct MemberState<'a> {
    pub(crate) nodes: MemberNodes,
    /// Those that are no copies of this host's.
    pub(crate) foreign_pods: PodsOnDemand<'a>,
    pub(crate) version: String,
    /// Its other names: clustertree may know it by one of them.
    pub(crate) aliases: Vec<String>,
    /// Members whose names begin with its own and a hyphen.
    pub(crate) longer_names: Vec<String>,
    /// Kosmos knows it, and clustertree keeps its nodes or will: whoever makes one runs its pods, so both must not.
    pub(crate) clustertree: bool,
    /// The Secret that names it, where one does.
    pub(crate) secret: Option<String>,
}

#[derive(Debug)]
pub(crate) struct MemberNodes {
    all: Vec<Arc<Value>>,
    /// Found out once somebody asks for one of them.
    by_name: OnceLock<HashMap<String, Arc<Value>>>,
}

impl MemberNodes {
    pub(crate) fn new(all: Vec<Arc<Value>>) -> Self {
        Self { all, by_name: OnceLock::new() }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|node| name_of(node))
    }

    /// Those for which it stands.
    pub(super) fn of(&self, virtual_node: &VirtualNodeId) -> Vec<&Value> {
        match &virtual_node.node {
            None => self.all.iter().map(|node| &**node).collect(),
            Some(name) => self.by_name().get(name).map(|node| &**node).into_iter().collect(),
        }
    }

    fn by_name(&self) -> &HashMap<String, Arc<Value>> {
        let named = || self.all.iter().map(|node| (name_of(node).to_owned(), Arc::clone(node))).collect();
        self.by_name.get_or_init(named)
    }
}

pub(super) fn name_of(node: &Value) -> &str {
    text(node, "/metadata/name")
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use serde_json::json;

    use super::{
        super::super::member_pod::{MemberPod, PodsByNode},
        *,
    };

    const NODES: usize = 100;
    const PODS: usize = 1000;

    fn virtual_node(node: Option<String>) -> VirtualNodeId {
        VirtualNodeId { member: "m".to_owned(), node }
    }

    #[test]
    fn of_a_member_with_many_nodes_each_node_and_each_pod_is_looked_at_once_for_all_its_virtual_nodes() {
        let node = |at: usize| Arc::new(json!({"metadata": {"name": format!("n{at}")}}));
        let nodes = MemberNodes::new((0..NODES).map(node).collect());
        let pod = |at: usize| Arc::new(MemberPod::of(&json!({"spec": {"nodeName": format!("n{}", at % NODES)}})));
        let pods: PodsOnDemand<'_> = LazyLock::new(Box::new(move || (0..PODS).map(pod).collect::<PodsByNode>()));
        let (mut seen, mut counted) = (0, 0);
        for at in 0..NODES {
            let of_one = nodes.of(&virtual_node(Some(format!("n{at}"))));
            assert_eq!(of_one, [&*node(at)]);
            seen += of_one.len();
            counted += of_one.iter().flat_map(|node| pods.of(name_of(node))).count();
        }
        assert_eq!((seen, counted), (NODES, PODS));
        assert_eq!((nodes.of(&virtual_node(None)).len(), nodes.names().count()), (NODES, NODES));
        assert!(nodes.of(&virtual_node(Some("gone".to_owned()))).is_empty() && pods.of("gone").next().is_none());
    }
}
