//! What becomes of the node of a member that has left.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{NAMESPACE, NODE, SHOP, STEP, story, until, with_pod};

#[test]
fn node_of_a_member_that_has_left_goes_once_no_pod_is_on_it() {
    story(1, async {
        let world = with_pod().await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("it takes no new pods", || world.node().unwrap()["spec"]["unschedulable"] == true).await;
        sleep(Duration::from_mins(5)).await;
        assert!(world.node().is_some() && world.pod("web").is_some() && world.copy("web").is_some());
        world.join();
        until("it is open again", || world.node().unwrap()["spec"]["unschedulable"].is_null() && world.is_ready())
            .await;
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the pod is gone", || world.pod("web").is_none()).await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("the node is gone", || world.node().is_none()).await;
    });
}

/// As `member remove` leaves it, before the agent has heard of that.
#[test]
fn node_that_is_marked_as_closed_for_its_member_is_not_opened_where_that_has_just_left() {
    story(1, async {
        let world = with_pod().await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        let close = |node: &mut Value| {
            node["spec"]["unschedulable"] = json!(true);
            node["metadata"]["annotations"]["kosmos.csi.io/cordoned"] = json!("true");
        };
        world.host.change("nodes", "", NODE, close).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            assert_eq!(world.node().unwrap()["spec"]["unschedulable"], true, "after {:?}", begun.elapsed());
            sleep(STEP).await;
        }
        world.join();
        until("it is open again", || world.node().unwrap()["spec"]["unschedulable"].is_null()).await;
    });
}

/// As where `virtualNode.namespace` is changed: the new agent's namespace has no Secret, and no record of which members it has had.
#[test]
fn node_of_a_member_that_the_agent_has_never_had_is_left_as_it_is_and_that_is_said() {
    story(1, async {
        let world = with_pod().await;
        world.stop().await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        world.host.delete("configmaps", NAMESPACE, "kosmos-csi-members").unwrap();
        world.start("second");
        let said = || world.host.list("events").iter().filter(|event| event["reason"] == "NotOurs").count();
        until("it is said", || said() == 1).await;
        let renewed = || world.host.get("leases.coordination.k8s.io", "kube-node-lease", NODE).unwrap();
        let before = renewed();
        sleep(Duration::from_mins(10)).await;
        assert!(world.is_ready() && world.node().unwrap()["spec"]["unschedulable"].is_null());
        assert_ne!(renewed()["metadata"]["resourceVersion"], before["metadata"]["resourceVersion"]);
        assert!(world.phase("web") == "Running" && world.copy("web").is_some());
        assert_eq!(said(), 1, "once");
        world.join();
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the agent has it now", || world.pod("web").is_none()).await;
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("the node is gone", || world.node().is_none()).await;
    });
}
