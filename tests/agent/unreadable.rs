//! Whoever may write an object may have it say that it was written at a time that nobody here can read, or very much. He hides no other one by
//! that.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{SHOP, World, give_secrets, run_with_secret, standing, story, until};

const ATTIC: &str = "attic";

/// Kubernetes takes times of the last day of the year 9999, and hardly anybody else does.
fn written_in_9999(name: &str) -> Value {
    let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {}}}]);
    json!({"namespace": ATTIC, "name": name, "managedFields": written})
}

#[test]
fn pod_that_was_written_at_a_time_nobody_reads_hides_no_other_in_host_or_member() {
    for in_host in [true, false] {
        story(1, async {
            let world = World::new(1).await;
            let cluster = if in_host { &world.host } else { &world.member };
            cluster.create("namespaces", json!({"metadata": {"name": ATTIC}})).unwrap();
            let mut spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
            if in_host {
                spec["nodeName"] = json!("worker");
            }
            cluster.create("pods", json!({"metadata": written_in_9999("theirs"), "spec": spec})).unwrap();
            world.start("first");
            until("the node is ready", || world.is_ready()).await;
            world.run_pod("web", None);
            until("it runs", || world.phase("web") == "Running").await;
        });
    }
}

async fn with_a_secret_in_the_member() -> World {
    let world = standing(1).await;
    give_secrets(&world, "true");
    run_with_secret(&world);
    until("it runs", || world.phase("web") == "Running").await;
    world
}

fn our_labels(world: &World) -> Value {
    json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": world.host_id()})
}

/// Else whoever may write ConfigMaps in any namespace of a member keeps there what the host gives no more.
#[test]
fn config_map_that_was_written_at_a_time_nobody_reads_keeps_no_secret_in_a_member() {
    story(1, async {
        let world = with_a_secret_in_the_member().await;
        world.member.create("namespaces", json!({"metadata": {"name": ATTIC}})).unwrap();
        let mut metadata = written_in_9999("theirs");
        metadata["labels"] = our_labels(&world);
        world.member.create("configmaps", json!({"metadata": metadata})).unwrap();
        sleep(Duration::from_mins(2)).await;
        give_secrets(&world, "false");
        until("nothing is left of it", || world.member.get("secrets", SHOP, "keys").is_none()).await;
    });
}

/// An API server takes such a time and tells it by a year of five digits: nobody who lists the host's pods could read that list.
#[test]
fn time_that_would_hide_all_pods_of_the_host_is_not_told_of_one() {
    story(1, async {
        let world = standing(1).await;
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
        let never = "9999-12-31T23:59:59-12:00";
        let say = |pod: &mut Value| {
            let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": never, "lastProbeTime": never});
            let state = json!({"running": {"startedAt": never}});
            let last = json!({"terminated": {"exitCode": 1, "startedAt": never, "finishedAt": never}});
            let container = json!({"name": "c", "ready": true, "state": state, "lastState": last});
            pod["status"] = json!({"phase": "Running", "message": "told", "startTime": never, "conditions": [ready],
                "containerStatuses": [container]});
        };
        world.member.change("pods", SHOP, "web", say).unwrap();
        until("the rest is told", || world.pod("web").unwrap()["status"]["message"] == "told").await;
        let told = world.pod("web").unwrap()["status"].to_string();
        assert!(told.contains("exitCode") && !told.contains("9999"), "{told}");
    });
}

/// Where tenants may write the namespaces that are theirs.
#[test]
fn namespace_that_was_written_at_a_time_nobody_reads_keeps_no_secret_of_another_in_a_member() {
    story(1, async {
        let world = with_a_secret_in_the_member().await;
        let mut metadata = written_in_9999(ATTIC);
        metadata["labels"] = json!({"kosmos.csi.io/secrets": "true"});
        metadata.as_object_mut().unwrap().remove("namespace");
        world.host.create("namespaces", json!({"metadata": metadata})).unwrap();
        sleep(Duration::from_mins(2)).await;
        give_secrets(&world, "false");
        until("nothing is left of it", || world.member.get("secrets", SHOP, "keys").is_none()).await;
    });
}

/// Whoever may write claims there can have them carry the labels of leaves.
#[test]
fn claim_that_was_written_at_a_time_nobody_reads_keeps_no_pod_of_its_namespace_away() {
    story(1, async {
        let world = standing(1).await;
        world.claim("data");
        world.attach();
        let mut metadata = written_in_9999("theirs");
        (metadata["namespace"], metadata["labels"]) = (json!(SHOP), our_labels(&world));
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        world.member.create("persistentvolumeclaims", json!({"metadata": metadata, "spec": spec})).unwrap();
        world.run_pod("web", Some("data"));
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// They are listed with all that there is of this host.
#[test]
fn config_maps_of_great_length_close_no_member_and_keep_no_secret_in_it() {
    story(1, async {
        let world = with_a_secret_in_the_member().await;
        world.member.create("namespaces", json!({"metadata": {"name": ATTIC}})).unwrap();
        for number in 0..40 {
            let notes = json!({"kosmos.csi.io/version": "x", "theirs": "<".repeat(2 << 20)});
            let name = format!("theirs-{number}");
            let metadata =
                json!({"namespace": ATTIC, "name": name, "labels": our_labels(&world), "annotations": notes});
            world.member.create("configmaps", json!({"metadata": metadata})).unwrap();
        }
        give_secrets(&world, "false");
        until("nothing is left of it", || {
            assert!(world.is_ready(), "the member is closed");
            world.member.get("secrets", SHOP, "keys").is_none()
        })
        .await;
    });
}
