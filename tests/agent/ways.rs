//! Who else keeps nodes for a member, and where the host's API server finds who answers for a kubelet.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use agent::KubeletAddress;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::{CSI_NODES, NAMESPACE, NODE, World, lock, standing, story, until};

#[test]
fn member_that_kosmos_knows_by_any_name_gets_no_node_but_what_clustertrees_lacks() {
    story(1, async {
        let world = standing(1).await;
        // A second name of the same cluster, by which clustertree will know it.
        world.join_kosmos("alias");
        until("our own node gives way", || world.node().is_none()).await;
        let name = "kosmos-alias";
        sleep(Duration::from_mins(1)).await;
        assert!(world.host.list("nodes").is_empty(), "{:#?}", world.host.list("nodes"));
        let annotations = json!({"kosmos-io/owned-by-cluster": "alias"});
        let metadata = json!({"name": name, "labels": {"kosmos.io/node": "true"}, "annotations": annotations});
        world.host.create("nodes", json!({"metadata": metadata})).unwrap();
        let label = || {
            let node = world.host.get("nodes", "", name).unwrap();
            node["metadata"]["labels"]["topology.kosmos.csi.io/member"].clone()
        };
        until("it leads to the name that serves", || label() == "m").await;
        assert_eq!(world.host.get(CSI_NODES, "", name).unwrap()["spec"]["drivers"][0]["nodeID"], "virtual/m");
        assert!(world.node().is_none());
    });
}

#[test]
fn nodes_tell_where_the_kubelet_endpoint_is() {
    story(1, async {
        let world = World::new(1).await;
        world.start_at("first", Some(KubeletAddress::of_all("10.0.0.7:10250".parse().unwrap())));
        until("the node is ready", || world.is_ready()).await;
        let status = world.node().unwrap()["status"].clone();
        assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
        assert_eq!(status["addresses"][0], json!({"type": "InternalIP", "address": "10.0.0.7"}));
        world.kill();
        world.start_at("second", Some(KubeletAddress::of_all("10.0.0.8:10251".parse().unwrap())));
        until("it tells the address of who leads now", || {
            world.node().unwrap()["status"]["addresses"][0]["address"] == "10.0.0.8"
        })
        .await;
    });
}

/// What the agent has asked about Nodes.
#[derive(Default)]
struct Retiring {
    /// Of members that never were.
    closed: usize,
    removed: usize,
    /// The member's own was closed to new pods.
    own: usize,
}

impl Retiring {
    /// Each write on the Node of another member takes a while.
    fn see(&mut self, asked: &Asked) -> Action {
        if asked.resource != "nodes" || !asked.subresource.is_empty() || !asked.verb.writes() {
            return Action::Pass;
        }
        if asked.name == NODE {
            self.own += usize::from(asked.body["spec"]["unschedulable"] == true);
            return Action::Pass;
        }
        self.closed += usize::from(asked.verb == Verb::Patch);
        self.removed += usize::from(asked.verb == Verb::Delete);
        Action::Delay(Duration::from_secs(2))
    }
}

/// It had left, and its Secret is back while the agent is at the Nodes of others that have left too.
#[test]
fn node_of_a_member_that_has_come_back_is_not_closed_by_the_list_of_before() {
    story(1, async {
        let world = standing(1).await;
        let seen = Arc::new(Mutex::new(Retiring::default()));
        let watching = Arc::clone(&seen);
        world.host.faults().set(move |asked| lock(&watching).see(asked));
        let have_been_members = |record: &mut Value| {
            for number in 0..30 {
                record["data"][format!("gone{number}")] = json!(format!("uid-{number}"));
            }
        };
        world.host.change("configmaps", NAMESPACE, "kosmos-csi-members", have_been_members).unwrap();
        for number in 0..30 {
            let annotations = json!({"kosmos.csi.io/node-id": format!("virtual/gone{number}")});
            let name = format!("kosmos-gone{number}");
            let metadata = json!({"name": name, "labels": {"kosmos.io/node": "true"}, "annotations": annotations});
            world.host.create("nodes", json!({"metadata": metadata})).unwrap();
        }
        until("others are being closed", || lock(&seen).closed > 0).await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("others are being removed", || lock(&seen).removed > 0).await;
        world.join();
        let before = lock(&seen).own;
        let is_other = |node: &Arc<Value>| text(node, "/metadata/name").starts_with("kosmos-gone");
        until("others have gone", || !world.host.list("nodes").iter().any(is_other)).await;
        assert_eq!(lock(&seen).own, before, "it was closed after its member had come back");
        let is_open = || world.node().is_some_and(|node| node["spec"]["unschedulable"].is_null());
        until("it is ready", || world.is_ready() && is_open()).await;
    });
}
