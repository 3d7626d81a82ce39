//! How much a member has for the host's pods: what its nodes have to give, without what others ask for there. Pure.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::object::{items, mark, text};
use domain::volume::quantity;

/// Thousandths, by the resource's name.
pub(super) type Amounts = BTreeMap<String, u128>;

/// Resources of a node that Kubernetes knows, and as many that somebody there has added.
const MOST: usize = 64;
/// Of the name of one: a DNS name, and a word after it.
const LONGEST: usize = 253 + 1 + 63;

/// Ready, and open to new pods.
pub(crate) fn is_open(node: &Value) -> bool {
    let ready = items(node, "/status/conditions").any(|one| one["type"] == "Ready" && one["status"] == "True");
    ready && node["spec"]["unschedulable"] != true
}

/// Of these nodes, without what these pods ask for on them.
pub(super) fn left<'a>(nodes: &[&Value], pods: impl Iterator<Item = &'a Value>) -> Amounts {
    let mut left = Amounts::new();
    for node in nodes {
        add(&mut left, &amounts(&node["status"]["allocatable"]));
    }
    let names: Vec<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    for pod in pods.filter(|pod| names.contains(&text(pod, "/spec/nodeName")) && !has_ended(pod)) {
        let mut asked = asked(pod);
        asked.insert("pods".to_owned(), 1000);
        for (resource, amount) in asked {
            left.entry(resource).and_modify(|left| *left = left.saturating_sub(amount));
        }
    }
    bounded(left)
}

/// What a member calls a resource is written on a Node of the host.
fn bounded(all: Amounts) -> Amounts {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let named = all.into_iter().filter(|(name, _)| name.len() <= LONGEST && name.chars().all(is_letter));
    let (added, known): (Amounts, Amounts) = named.partition(|(name, _)| name.contains('/'));
    known.into_iter().take(MOST).chain(added.into_iter().take(MOST)).collect()
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

fn has_ended(pod: &Value) -> bool {
    ["Succeeded", "Failed"].contains(&text(pod, "/status/phase"))
}

/// What a pod asks for, as the scheduler counts it.
fn asked(pod: &Value) -> Amounts {
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let requests = |container: &Value| amounts(&container["resources"]["requests"]);
    let mut running = Amounts::new();
    items(pod, "/spec/containers").for_each(|container| add(&mut running, &requests(container)));
    // Each of the others begins beside the sidecars that are before it.
    let (mut sidecars, mut beginning) = (Amounts::new(), Amounts::new());
    for container in items(pod, "/spec/initContainers") {
        let mut now = requests(container);
        if is_sidecar(&container) {
            add(&mut sidecars, &now);
            now.clear();
        }
        add(&mut now, &sidecars);
        most(&mut beginning, &now);
    }
    add(&mut running, &sidecars);
    most(&mut running, &beginning);
    // What is asked for the pod as a whole counts instead.
    running.extend(amounts(&pod["spec"]["resources"]["requests"]));
    add(&mut running, &amounts(&pod["spec"]["overhead"]));
    running
}

fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), quantity::thousandths(amount.as_str()?)?))).collect()
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn most(of: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let now = of.entry(resource.clone()).or_default();
        *now = (*now).max(*amount);
    }
}

/// What is kept of a member's node: what it has to give, and to whom.
pub(crate) fn lean(node: &mut Value) -> bool {
    let ready = items(node, "/status/conditions").filter(|one| one["type"] == "Ready");
    let ready: Vec<Value> = ready.map(|one| json!({"type": "Ready", "status": one["status"]})).collect();
    let info = json!({"architecture": node["status"]["nodeInfo"]["architecture"]});
    *node = json!({
        "metadata": {"name": node["metadata"]["name"]},
        "spec": {"unschedulable": node["spec"]["unschedulable"]},
        "status": {"conditions": ready, "allocatable": node["status"]["allocatable"], "nodeInfo": info},
    });
    true
}

/// What is kept of a member's pod: all of what may be a copy, and of others what they ask for, and whether they run.
pub(crate) fn reduce(pod: &mut Value) -> bool {
    if mark(pod, "labels", super::super::MANAGED_BY) == domain::volume::DRIVER {
        return true;
    }
    let fields = |from: &Value, names: &[&str]| -> Value {
        names.iter().filter_map(|name| Some(((*name).to_owned(), from.get(name)?.clone()))).collect()
    };
    let containers = |list: &str| -> Value {
        items(&pod["spec"], list).map(|container| fields(container, &["resources", "restartPolicy"])).collect()
    };
    let (containers, beginning) = (containers("/containers"), containers("/initContainers"));
    let mut spec = fields(&pod["spec"], &["nodeName", "resources", "overhead"]);
    spec["containers"] = containers;
    spec["initContainers"] = beginning;
    *pod = json!({
        "metadata": fields(&pod["metadata"], &["namespace", "name", "uid", "deletionTimestamp"]),
        "spec": spec,
        "status": fields(&pod["status"], &["phase"]),
    });
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

    fn asking(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    #[test]
    fn room_is_what_nodes_have_without_what_others_ask_for_there() {
        let (a, b) = (node("a", "2"), node("b", "1500m"));
        let pod = |node: &str, phase: &str| {
            let memory = json!({"resources": {"requests": {"cpu": "250m", "memory": "1Gi"}}});
            json!({"spec": {"nodeName": node, "containers": [memory]}, "status": {"phase": phase}})
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
        assert_eq!(left.len(), 3 + MOST);
        assert!(["cpu", "memory", "pods", "example.org/r0"].iter().all(|name| left.contains_key(*name)), "{left:?}");
    }

    #[test]
    fn pod_asks_for_what_it_needs_at_once() {
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let containers = json!([asking("1"), asking("500m")]);
        for (init, overhead, cpu) in [
            (json!([]), Value::Null, 1500),
            (json!([asking("4")]), Value::Null, 4000),
            (json!([sidecar, asking("4")]), Value::Null, 5000),
            (json!([sidecar, asking("1")]), json!({"cpu": "10m"}), 2510),
        ] {
            let pod = json!({"spec": {"containers": containers, "initContainers": init, "overhead": overhead}});
            assert_eq!(asked(&pod)["cpu"], cpu, "{pod}");
        }
        let whole = json!({"spec": {"containers": containers, "resources": {"requests": {"cpu": "8"}}}});
        assert_eq!(asked(&whole)["cpu"], 8000);
    }

    #[test]
    fn more_than_there_is_leaves_nothing() {
        let pod = json!({"spec": {"nodeName": "a", "containers": [asking("9")]}});
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
            node
        };
        for unschedulable in [false, true] {
            let (before, mut kept) = (whole(unschedulable), whole(unschedulable));
            assert!(lean(&mut kept));
            assert_eq!(left(&[&kept], std::iter::empty()), left(&[&before], std::iter::empty()));
            assert_eq!((is_open(&kept), is_open(&before)), (!unschedulable, !unschedulable));
            assert_eq!(text(&kept, "/metadata/name"), "a");
            assert_eq!(text(&kept, "/status/nodeInfo/architecture"), "arm64");
            let all = kept.to_string();
            assert!(
                ["rack", "podCIDR", "Pressure", "kernel", "images"].iter().all(|word| !all.contains(word)),
                "{all}"
            );
        }
    }

    #[test]
    fn what_a_strangers_pod_asks_for_and_whether_it_runs_is_all_that_is_kept_of_it() {
        let mut pod = json!({
            "metadata": {"namespace": "x", "name": "p", "uid": "u", "annotations": {"a": "b"}, "deletionTimestamp": "2026-01-02T03:04:05Z"},
            "spec": {"nodeName": "a", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        });
        let before = asked(&pod);
        assert!(reduce(&mut pod));
        assert_eq!(asked(&pod), before);
        assert!(pod["status"]["phase"] == "Running" && !text(&pod, "/metadata/deletionTimestamp").is_empty());
        assert!(!pod.to_string().contains("10.0.0.1") && !pod.to_string().contains("image"));
    }
}
