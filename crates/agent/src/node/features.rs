//! Which features of a kubelet a virtual node declares: since Kubernetes 1.36 a scheduler gives a pod that needs one to no other node. Pure.

use serde_json::Value;

use super::super::object::items;

pub(super) const DECLARED: &str = "declaredFeatures";
/// What the member's kubelet does for a copy as for any pod, in the order in which an API server takes them. Others are asked of a node where a
/// pod that runs is to have other resources, which its copy is not given: an API server that finds them undeclared says so at once.
const OF_COPIES: [&str; 2] = ["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"];

/// What all of these nodes declare, as the member decides which of them has a copy.
pub(super) fn of_all(nodes: &[&Value]) -> Vec<&'static str> {
    let is_of_all = |feature: &&str| !nodes.is_empty() && nodes.iter().all(|node| declares(node, feature));
    OF_COPIES.into_iter().filter(is_of_all).collect()
}

/// What is kept of a member's node.
pub(super) fn of_node(node: &Value) -> Vec<&'static str> {
    of_all(&[node])
}

fn declares(node: &Value, feature: &str) -> bool {
    items(node, "/status/declaredFeatures").any(|one| one == feature)
}

/// What is new of it for a Node of the host. One that does not keep it, as before Kubernetes 1.36, drops it each time, so it is told with something
/// else, or where some is kept.
pub(super) fn to_tell(node: &Value, features: &[&str], with_others: bool) -> Option<Value> {
    let wanted = if features.is_empty() { Value::Null } else { features.into() };
    let is_due = match node["status"].get(DECLARED) {
        Some(told) => *told != wanted,
        None => with_others && !wanted.is_null(),
    };
    is_due.then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(features: &[&str]) -> Value {
        json!({"status": {DECLARED: features}})
    }

    #[test]
    fn virtual_node_declares_what_all_nodes_of_its_member_do_and_a_copy_is_given() {
        let resize = "InPlacePodLevelResourcesVerticalScaling";
        let (old, new) = (json!({"status": {}}), node(&[resize, OF_COPIES[0], "SomethingOfTomorrow"]));
        let both = node(&[OF_COPIES[1], OF_COPIES[0]]);
        assert_eq!(of_all(&[&new, &both]), [OF_COPIES[0]]);
        assert_eq!(of_all(&[&both]), OF_COPIES);
        assert_eq!((of_all(&[&both, &old]), of_all(&[])), (Vec::new(), Vec::new()));
        assert_eq!((of_node(&new), of_node(&old)), (vec![OF_COPIES[0]], Vec::new()));
        assert!(OF_COPIES.is_sorted(), "no API server takes them otherwise");
    }

    #[test]
    fn feature_is_told_once_and_not_again_and_again_to_a_host_that_drops_it() {
        let (bare, told) = (json!({"status": {}}), node(&OF_COPIES[..1]));
        for (node, features, with_others, expected) in [
            (&bare, &OF_COPIES[..1], true, Some(json!([OF_COPIES[0]]))),
            (&bare, &OF_COPIES[..1], false, None),
            (&bare, &OF_COPIES[..0], true, None),
            (&told, &OF_COPIES[..1], true, None),
            (&told, &OF_COPIES[..], false, Some(json!(OF_COPIES))),
            (&told, &OF_COPIES[..0], false, Some(Value::Null)),
        ] {
            assert_eq!(to_tell(node, features, with_others), expected, "{node} {features:?}");
        }
    }
}
