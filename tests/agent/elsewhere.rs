//! What stands before the member's API servers leads requests to another cluster, which takes the same credentials.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{Cluster, faults::Action};
use tokio::time::sleep;

use super::{SHOP, World, story, text, until, with_pod};

/// It takes pods of hosts. Its versions are newer than the member's: so it is not taken for that as it was in a backup.
fn lead_elsewhere(world: &World) -> Cluster {
    let elsewhere = Cluster::new("elsewhere", 2);
    let labels = json!({"kosmos.csi.io/pods": "baseline"});
    elsewhere.create("namespaces", json!({"metadata": {"name": SHOP, "labels": labels}})).unwrap();
    for number in 0..2000 {
        let metadata = json!({"namespace": "default", "name": format!("since-{number}")});
        elsewhere.create("configmaps", json!({"metadata": metadata})).unwrap();
    }
    world.member.faults().lead_to(&elsewhere);
    world.member.faults().set(|_| Action::Elsewhere);
    elsewhere
}

#[test]
fn pod_neither_runs_in_another_cluster_that_answers_in_its_members_place_nor_ends_by_the_word_of_that() {
    story(1, async {
        let world = with_pod().await;
        let copy = world.copy("web").unwrap();
        let elsewhere = lead_elsewhere(&world);
        // The agent asks every five seconds.
        sleep(Duration::from_secs(10)).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        world.run_pod("next", None);
        sleep(Duration::from_mins(1)).await;
        let there = elsewhere.list("pods");
        assert!(there.is_empty(), "{there:?}");
        let has_to_wait = |pod: &Value| !text(pod, "/metadata/deletionTimestamp").is_empty();
        assert!(world.pod("web").is_some_and(|pod| has_to_wait(&pod)), "its copy runs");
        assert_eq!(world.copy("web").unwrap()["metadata"]["uid"], copy["metadata"]["uid"]);
        world.member.faults().clear();
        until("the one that waits runs", || world.phase("next") == "Running").await;
        until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
        assert!(world.copy("next").is_some() && elsewhere.list("pods").is_empty());
    });
}
