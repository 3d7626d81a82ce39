//! A virtual node for each node of a member: what the host's scheduler has chosen holds there.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{NAMESPACE, SHOP, World, condition, story, text, until};

const NODES: [&str; 2] = ["m-n1", "m-n2"];

#[test]
fn copy_runs_on_the_node_that_its_virtual_node_stands_for() {
    story(1, async {
        let world = World::with_nodes(1, Duration::from_millis(300), NODES.len()).await;
        world.start("first");
        let is_ready = |node: &str| {
            let node = world.host.get("nodes", "", &format!("kosmos-m-{node}"));
            node.is_some_and(|node| condition(&node, "Ready") == "True")
        };
        until("both nodes are ready", || NODES.into_iter().all(is_ready)).await;
        let pods: Vec<(String, &str)> = (0..8).map(|number| (format!("web-{number}"), NODES[number % 2])).collect();
        for (name, node) in &pods {
            let spec = json!({"nodeName": format!("kosmos-m-{node}"), "containers": [{"name": "c", "image": "i:1"}]});
            world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap();
        }
        for (name, node) in &pods {
            until("it runs", || world.phase(name) == "Running").await;
            assert_eq!(text(&world.copy(name).unwrap(), "/spec/nodeName"), *node, "{name}");
        }
    });
}

/// As after an upgrade from a version in which whoever came first had the name.
#[test]
fn virtual_node_that_is_there_stays_though_one_of_another_member_might_have_its_name() {
    story(1, async {
        let world = World::with_nodes(1, Duration::from_millis(300), NODES.len()).await;
        world.start("first");
        let nodes = || NODES.map(|node| world.host.get("nodes", "", &format!("kosmos-m-{node}")));
        let are_ready = || nodes().iter().flatten().filter(|node| condition(node, "Ready") == "True").count() == 2;
        until("both nodes are ready", are_ready).await;
        let uids = || nodes().map(|node| node.map(|node| text(&node, "/metadata/uid").to_owned()));
        let before = uids();
        let other = json!({
            "metadata": {"name": "m-m", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": "m-m"}},
            "data": {"kubeconfig": "bm9uZQ=="},
        });
        world.host.create("secrets", other).unwrap();
        sleep(Duration::from_mins(2)).await;
        assert_eq!(uids(), before);
        for node in nodes().into_iter().flatten() {
            assert!(node["spec"]["unschedulable"].is_null() && condition(&node, "Ready") == "True", "{node}");
        }
    });
}
