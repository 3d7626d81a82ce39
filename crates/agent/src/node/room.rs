//! How much a member has for the host's pods: what its nodes have to give, without what others ask for there. Pure.

use std::collections::HashSet;

use serde_json::{Value, json};

pub(super) use super::super::member_pod::Amounts;
use super::{
    super::{
        member_pod::{MemberPod, add, amounts, bounded},
        object::{is_ready, items, text},
    },
    features,
};
use domain::volume::quantity;

/// Ready, and open to new pods.
pub(crate) fn is_open(node: &Value) -> bool {
    is_ready(node) && node["spec"]["unschedulable"] != true
}

/// Of these nodes, without what these pods ask for on them.
pub(super) fn left<'a>(nodes: &[&Value], pods: impl Iterator<Item = &'a MemberPod>) -> Amounts {
    let mut left = Amounts::new();
    for node in nodes {
        add(&mut left, &amounts(&node["status"]["allocatable"]));
    }
    let names: HashSet<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    for (resource, amount) in pods.filter(|pod| names.contains(pod.node())).flat_map(MemberPod::asked) {
        if let Some(left) = left.get_mut(resource) {
            *left = left.saturating_sub(amount);
        }
    }
    // What a member calls a resource is written on a Node of the host.
    bounded(left)
}

/// As a quantity: whole bytes for what is measured in bytes, thousandths only of processors.
pub(super) fn print(resource: &str, thousandths: u128) -> String {
    if resource == "cpu" && !thousandths.is_multiple_of(1000) {
        return format!("{thousandths}m");
    }
    let whole = thousandths / 1000;
    let in_bytes = ["memory", "ephemeral-storage"].contains(&resource) || resource.starts_with("hugepages-");
    match u64::try_from(whole) {
        Ok(bytes) if in_bytes => quantity::print(bytes),
        _ => whole.to_string(),
    }
}

/// Leaves of a member's node what it has to give, to whom, and what its kubelet can.
pub(crate) fn trim(node: &mut Value) -> bool {
    let ready = items(node, "/status/conditions").filter(|one| one["type"] == "Ready");
    let ready: Vec<Value> = ready.map(|one| json!({"type": "Ready", "status": one["status"]})).collect();
    let info = json!({"architecture": node["status"]["nodeInfo"]["architecture"]});
    let features = features::of_node(node);
    *node = json!({
        "metadata": {"name": node["metadata"]["name"]},
        "spec": {"unschedulable": node["spec"]["unschedulable"]},
        "status": {"conditions": ready, "allocatable": node["status"]["allocatable"], "nodeInfo": info},
    });
    if !features.is_empty() {
        node["status"][features::DECLARED] = json!(features);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: &str) -> Value {
        let ready = json!({"type": "Ready", "status": "True"});
        json!({"metadata": {"name": name}, "status": {"conditions": [ready],
            "allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "10"}}})
    }

    #[test]
    fn room_is_what_nodes_have_without_what_others_ask_for_there() {
        let (a, b) = (node("a", "2"), node("b", "1500m"));
        let pod = |node: &str, phase: &str| {
            let memory = json!({"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}});
            MemberPod::of(&json!({"spec": {"nodeName": node, "containers": [memory]}, "status": {"phase": phase}}))
        };
        let pods = [pod("a", "Running"), pod("b", "Succeeded"), pod("elsewhere", "Running"), pod("", "Pending")];
        let left = left(&[&a, &b], pods.iter());
        let printed: Vec<String> =
            left.iter().map(|(name, amount)| format!("{name} {}", print(name, *amount))).collect();
        assert_eq!(printed, ["cpu 3250m", "memory 7Gi", "pods 19"]);
    }

    #[test]
    fn resources_that_a_member_adds_without_end_are_told_up_to_a_number() {
        let mut node = node("a", "2");
        for number in 0..1000 {
            node["status"]["allocatable"][format!("example.org/r{number}")] = json!("1");
        }
        let long = "x".repeat(1 << 20);
        for odd in ["example.org/\u{1b}[2J", long.as_str()] {
            node["status"]["allocatable"][odd] = json!("1");
        }
        let left = left(&[&node], std::iter::empty());
        assert_eq!(left.len(), 3 + 64);
        assert!(["cpu", "memory", "pods", "example.org/r0"].iter().all(|name| left.contains_key(*name)), "{left:?}");
    }

    #[test]
    fn more_than_there_is_leaves_nothing() {
        let container = json!({"resources": {"requests": {"cpu": "9"}}});
        let pod = MemberPod::of(&json!({"spec": {"nodeName": "a", "containers": [container]}}));
        assert_eq!(left(&[&node("a", "2")], [pod].iter())["cpu"], 0);
    }

    #[test]
    fn of_a_members_node_is_kept_what_it_has_to_give_and_to_whom() {
        let whole = |unschedulable: bool| {
            let mut node = node("a", "2");
            node["metadata"]["labels"] = json!({"rack": "7"});
            node["spec"] = json!({"unschedulable": unschedulable, "podCIDR": "10.0.0.0/24"});
            node["status"]["conditions"]
                .as_array_mut()
                .unwrap()
                .push(json!({"type": "DiskPressure", "status": "False"}));
            node["status"]["nodeInfo"] = json!({"architecture": "arm64", "kernelVersion": "6"});
            node["status"]["images"] = json!([{"names": ["i:1"]}]);
            node["status"]["declaredFeatures"] = json!(["OfTomorrow", "RestartAllContainersOnContainerExits"]);
            node
        };
        for unschedulable in [false, true] {
            let (before, mut kept) = (whole(unschedulable), whole(unschedulable));
            assert!(trim(&mut kept));
            assert_eq!(left(&[&kept], std::iter::empty()), left(&[&before], std::iter::empty()));
            assert_eq!((is_open(&kept), is_open(&before)), (!unschedulable, !unschedulable));
            assert_eq!(text(&kept, "/metadata/name"), "a");
            assert_eq!(text(&kept, "/status/nodeInfo/architecture"), "arm64");
            assert_eq!(kept["status"]["declaredFeatures"], json!(["RestartAllContainersOnContainerExits"]));
            let all = kept.to_string();
            assert!(
                ["rack", "podCIDR", "Pressure", "kernel", "images"].iter().all(|word| !all.contains(word)),
                "{all}"
            );
        }
    }
}
