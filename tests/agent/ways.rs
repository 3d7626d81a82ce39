//! Who else keeps nodes for a member, and where the host's API server finds who answers for a kubelet.

use std::time::Duration;

use agent::KubeletAddress;
use serde_json::json;
use tokio::time::sleep;

use super::{CSI_NODES, World, standing, story, until};

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
