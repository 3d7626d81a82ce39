//! From which places a volume must be reachable: the requirement that external-provisioner computes from the class, the
//! node the scheduler selected, and what the nodes say of themselves (its mode that is not strict).

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::{
    core::v1::{Node, TopologySelectorTerm},
    storage::v1::{CSINode, StorageClass},
};

use domain::volume::DRIVER;

/// One place: topology keys and their values.
pub(in crate::host) type Place = BTreeMap<String, String>;

/// The places in order of preference; each of them will do.
pub(in crate::host) type Places = Vec<Place>;

/// Why there is no requirement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The scheduler must choose again.
    Reschedule(String),
    /// Nothing changes until a node or class is changed.
    Stuck(String),
}

/// What the nodes say of themselves.
#[derive(Clone, Copy, Debug)]
pub(in crate::host) struct Nodes<'a> {
    pub(in crate::host) nodes: &'a [Node],
    pub(in crate::host) csi_nodes: &'a [CSINode],
}

impl Nodes<'_> {
    /// The keys that this driver registered on a node.
    fn keys(&self, node: &str) -> Result<Vec<String>, Trouble> {
        let found = self.csi_nodes.iter().find(|csi_node| csi_node.metadata.name.as_deref() == Some(node));
        let csi_node = found.ok_or_else(|| Trouble::Reschedule(format!("node {node} has no CSINode")))?;
        let keys = keys_of(csi_node);
        if keys.is_empty() {
            return Err(Trouble::Stuck(format!("the CSINode of {node} holds no topology key of {DRIVER}")));
        }
        Ok(keys)
    }

    fn place_of(&self, name: &str, keys: &[String]) -> Option<Place> {
        let node = self.nodes.iter().find(|node| node.metadata.name.as_deref() == Some(name))?;
        place(node, keys)
    }

    /// The places of all nodes where the driver is registered.
    pub(in crate::host) fn registered(&self) -> BTreeSet<Place> {
        let of = |csi_node: &CSINode| self.place_of(csi_node.metadata.name.as_deref()?, &keys_of(csi_node));
        self.csi_nodes.iter().filter_map(of).filter(|place| !place.is_empty()).collect()
    }

    /// The places of all nodes that have these keys.
    fn places(&self, keys: &[String]) -> BTreeSet<Place> {
        self.nodes.iter().filter_map(|node| place(node, keys)).collect()
    }
}

fn keys_of(csi_node: &CSINode) -> Vec<String> {
    let ours = csi_node.spec.drivers.iter().filter(|driver| driver.name == DRIVER);
    ours.flat_map(|driver| driver.topology_keys.clone().unwrap_or_default()).collect()
}

fn place(node: &Node, keys: &[String]) -> Option<Place> {
    let labels = node.metadata.labels.as_ref()?;
    keys.iter().map(|key| Some((key.clone(), labels.get(key)?.clone()))).collect()
}

/// For a claim with a selected node: that node's place first.
pub(super) fn with_node(class: &StorageClass, node: &str, seen: Nodes<'_>) -> Result<Places, Trouble> {
    let keys = seen.keys(node)?;
    let Some(own) = seen.place_of(node, &keys) else {
        return Err(Trouble::Stuck(format!("node {node} lacks one of the labels {}", keys.join(", "))));
    };
    let allowed = allowed(class);
    if allowed.is_empty() {
        return Ok(from(seen.places(&keys), |place| *place == own));
    }
    let within = |place: &Place| place.iter().all(|(key, value)| own.get(key).is_none_or(|mine| mine == value));
    if !allowed.iter().any(within) {
        return Err(Trouble::Stuck(format!("the class's allowedTopologies leave out node {node}")));
    }
    Ok(from(allowed, within))
}

/// For a claim that is bound at once: spread by the claim's name, those of one StatefulSet in turn.
pub(super) fn without_node(class: &StorageClass, claim: &str, seen: Nodes<'_>) -> Result<Places, Trouble> {
    let mut places = allowed(class);
    if places.is_empty() {
        let sets: BTreeSet<_> = seen.csi_nodes.iter().map(keys_of).filter(|keys| !keys.is_empty()).collect();
        places = sets.iter().flat_map(|keys| seen.places(keys)).collect();
    }
    if places.is_empty() {
        return Err(Trouble::Stuck(format!("no node has a place known to {DRIVER}")));
    }
    let turn = turn(claim) % places.len();
    let first = places.iter().nth(turn).cloned();
    Ok(from(places, |place| Some(place) == first.as_ref()))
}

fn turn(claim: &str) -> usize {
    let (name, ordinal) = match claim.rsplit_once('-') {
        Some((name, last)) if last.bytes().all(|byte| byte.is_ascii_digit()) => (name, last.parse().unwrap_or(0)),
        _ => (claim, 0),
    };
    name.bytes().fold(ordinal, |sum: usize, byte| sum.wrapping_add(usize::from(byte)))
}

/// Every combination of values that a term allows, of all terms.
fn allowed(class: &StorageClass) -> BTreeSet<Place> {
    class.allowed_topologies.iter().flatten().flat_map(combinations).filter(|place| !place.is_empty()).collect()
}

fn combinations(term: &TopologySelectorTerm) -> Places {
    let expressions = term.match_label_expressions.iter().flatten();
    expressions.fold(vec![Place::new()], |places, expression| {
        let with = |place: &Place, value: &String| {
            let mut place = place.clone();
            place.insert(expression.key.clone(), value.clone());
            place
        };
        places.iter().flat_map(|place| expression.values.iter().map(move |value| with(place, value))).collect()
    })
}

/// The places in their order, beginning with the first that is meant.
fn from(places: BTreeSet<Place>, meant: impl Fn(&Place) -> bool) -> Places {
    let mut places: Places = places.into_iter().collect();
    let begin = places.iter().position(meant).unwrap_or_default();
    places.rotate_left(begin);
    places
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;
    use domain::volume::MEMBER_KEY;

    fn node(name: &str, member: &str) -> Node {
        from_value(json!({"metadata": {"name": name, "labels": {MEMBER_KEY: member}}})).unwrap()
    }

    fn csi_node(name: &str, driver: &str) -> CSINode {
        let entry = json!({"name": driver, "nodeID": name, "topologyKeys": [MEMBER_KEY]});
        from_value(json!({"metadata": {"name": name}, "spec": {"drivers": [entry]}})).unwrap()
    }

    fn class(allowed: &Value) -> StorageClass {
        from_value(json!({"metadata": {"name": "c"}, "provisioner": DRIVER, "allowedTopologies": allowed})).unwrap()
    }

    fn members(places: &Result<Places, Trouble>) -> Vec<&str> {
        places.as_ref().unwrap().iter().map(|place| place[MEMBER_KEY].as_str()).collect()
    }

    fn terms(members: &[&str]) -> Value {
        json!([{"matchLabelExpressions": [{"key": MEMBER_KEY, "values": members}]}])
    }

    #[test]
    fn selected_node_comes_first() {
        let nodes = [node("x", "a"), node("y", "b"), node("z", "c"), node("bare", "d")];
        let csi_nodes = ["x", "y", "z"].map(|name| csi_node(name, DRIVER));
        let seen = Nodes { nodes: &nodes, csi_nodes: &csi_nodes };
        assert_eq!(members(&with_node(&class(&Value::Null), "y", seen)), ["b", "c", "d", "a"]);
        assert_eq!(members(&with_node(&class(&terms(&["c", "a", "b"])), "y", seen)), ["b", "c", "a"]);
        let left_out = with_node(&class(&terms(&["a"])), "y", seen);
        assert!(matches!(left_out, Err(Trouble::Stuck(_))), "{left_out:?}");
    }

    #[test]
    fn node_of_which_nothing_is_known_is_given_back_and_one_without_keys_is_stuck() {
        let nodes = [node("x", "a"), from_value(json!({"metadata": {"name": "y"}})).unwrap(), node("z", "c")];
        let csi_nodes = [csi_node("y", DRIVER), csi_node("z", "another.csi")];
        let seen = Nodes { nodes: &nodes, csi_nodes: &csi_nodes };
        let trouble = |node: &str| with_node(&class(&Value::Null), node, seen).unwrap_err();
        assert!(matches!(trouble("x"), Trouble::Reschedule(_)));
        assert!(matches!(trouble("y"), Trouble::Stuck(reason) if reason.contains("lacks")));
        assert!(matches!(trouble("z"), Trouble::Stuck(reason) if reason.contains("no topology key")));
    }

    #[test]
    fn claims_bound_at_once_are_spread() {
        let nodes = [node("x", "a"), node("y", "b")];
        let csi_nodes = ["x", "y"].map(|name| csi_node(name, DRIVER));
        let seen = Nodes { nodes: &nodes, csi_nodes: &csi_nodes };
        let first = |claim: &str| members(&without_node(&class(&Value::Null), claim, seen))[0].to_owned();
        assert_ne!(first("data-db-0"), first("data-db-1"));
        assert_eq!(first("data-db-0"), first("data-db-2"));
        let none = without_node(&class(&Value::Null), "data", Nodes { nodes: &nodes, csi_nodes: &[] });
        assert!(matches!(none, Err(Trouble::Stuck(_))), "{none:?}");
    }

    #[test]
    fn term_with_several_keys_allows_every_combination() {
        let expression = |key: &str, values: &[&str]| json!({"key": key, "values": values});
        let term = json!([{"matchLabelExpressions": [expression("m", &["a", "b"]), expression("z", &["1", "2"])]}]);
        assert_eq!(allowed(&class(&term)).len(), 4);
    }
}
