//! What a pod of the host and the class of its claim ask of nodes, and on which node of the member the volume is made. The pod's copy asks for nothing of
//! it but nodes that the topology names.

use std::time::Duration;

use csi::v1::{Topology, TopologyRequirement};
use serde_json::{Value, json};
use simulate::{storage::Settings, text};
use tokio::time::{sleep, timeout};

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, MEMBER_KEY, NODE_KEY, Script},
    fixture,
    refusals::node_of_leaf,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);

/// A member with two nodes, which somebody has changed so.
async fn node_of_volume(seed: u64, pod: &Value, change: impl Fn(&mut Value)) -> String {
    let bench = Bench::new(seed, 1, &Settings { nodes: 2, ..fixture::steady(STEP) }).await;
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
    let member = &bench.members[0];
    for node in member.list("nodes") {
        member.change("nodes", "", text(&node, "/metadata/name"), &change).unwrap();
    }
    let mut spec = pod.clone();
    spec["containers"] = json!([{"name": "c", "image": "i"}]);
    spec["volumes"] = json!([{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]);
    bench.host.create("pods", json!({"metadata": {"name": "web", "namespace": SHOP}, "spec": spec})).unwrap();
    let script = Script { places: vec![0], leaf_class: fixture::LATER, node_selected: true, ..Script::new("data") };
    let mut caller = Caller::new(&bench, script);
    let made = timeout(Duration::from_mins(2), caller.provision()).await;
    assert_eq!(made.ok(), Some(Ending::Provisioned), "{pod}: {}", bench.guard.trace().join("\n"));
    node_of_leaf(member, "data")
}

fn has_disk(node: &mut Value) {
    node["metadata"]["labels"]["disk"] = json!("ssd");
}

/// The host's administrator gives virtual nodes labels that mean something there alone.
#[test]
fn volume_is_made_for_a_pod_that_asks_for_labels_which_no_node_of_the_member_has() {
    let rule = json!({"key": "pool", "operator": "In", "values": ["remote"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [rule]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    for pod in [json!({"nodeSelector": {"pool": "remote"}}), json!({"affinity": affinity})] {
        let node = virtual_time::run(1, node_of_volume(1, &pod, |_| ()));
        assert!(["m0-n1", "m0-n2"].contains(&node.as_str()), "{node}");
    }
}

#[test]
fn volume_is_made_on_the_node_that_has_most_of_what_its_pod_asks_for() {
    let pod = json!({"nodeSelector": {"disk": "ssd", "pool": "remote"}});
    for (seed, wanted) in (1..=4).flat_map(|seed| ["m0-n1", "m0-n2"].map(|node| (seed, node))) {
        let label = |node: &mut Value| {
            if text(node, "/metadata/name") == wanted {
                has_disk(node);
            }
        };
        assert_eq!(virtual_time::run(seed, node_of_volume(seed, &pod, label)), wanted, "seed {seed}");
    }
}

#[test]
fn volume_is_made_on_another_node_where_the_one_that_has_what_its_pod_asks_for_takes_no_pods() {
    let close = |node: &mut Value| {
        if text(node, "/metadata/name") == "m0-n1" {
            has_disk(node);
            node["spec"]["unschedulable"] = json!(true);
        }
    };
    let pod = json!({"nodeSelector": {"disk": "ssd"}});
    assert_eq!(virtual_time::run(1, node_of_volume(1, &pod, close)), "m0-n2");
}

/// The pod may be one for a node of the host, which the member does not run.
#[test]
fn volume_is_made_for_a_pod_whose_runtime_class_the_member_lacks() {
    let pod = json!({"runtimeClassName": "kata"});
    let node = virtual_time::run(1, node_of_volume(1, &pod, |_| ()));
    assert!(["m0-n1", "m0-n2"].contains(&node.as_str()), "{node}");
}

/// Nobody has chosen one of them: the host's class does not wait for a pod.
async fn node_of_volume_of_a_class_for(nodes: &[&str], seed: u64) -> String {
    let bench = Bench::new(seed, 1, &Settings { nodes: 3, ..fixture::steady(STEP) }).await;
    bench.start();
    bench.serves().await;
    let script = Script { leaf_class: fixture::LATER, binding: Some("consumer"), ..Script::new("data") };
    let caller = Caller::new(&bench, script);
    let place = |node: &&str| {
        let segments = [(MEMBER_KEY, "m0"), (NODE_KEY, *node)];
        Topology { segments: segments.map(|(key, value)| (key.to_owned(), value.to_owned())).into() }
    };
    let places: Vec<Topology> = nodes.iter().map(place).collect();
    let mut request = caller.request();
    request.accessibility_requirements = Some(TopologyRequirement { requisite: places.clone(), preferred: places });
    let volume = bench.create(request).await.unwrap();
    let node = node_of_leaf(&bench.members[0], "data");
    assert_eq!(volume.accessible_topology[0].segments.get(NODE_KEY), Some(&node));
    node
}

#[test]
fn volume_of_a_class_for_some_nodes_of_a_member_is_made_on_one_of_these() {
    for seed in 1..=8 {
        let node = virtual_time::run(seed, node_of_volume_of_a_class_for(&["m0-n2", "m0-n3"], seed));
        assert!(["m0-n2", "m0-n3"].contains(&node.as_str()), "seed {seed}: {node}");
    }
}
