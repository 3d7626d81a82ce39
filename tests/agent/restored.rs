//! Clusters whose etcd is restored from a backup. What was seen lies in their future then, and watches that were begun before are told
//! of nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    Backup, Cluster,
    faults::{Action, Asked, Verb},
};
use tokio::time::sleep;

use super::{NAMESPACE, NODE, SHOP, World, standing, story, text, until, with_pod};

/// A while later, in which other people have work done.
async fn restore(cluster: &Cluster, backup: &Backup) {
    for number in 0..50 {
        let name = format!("since-{number}");
        cluster.create("configmaps", json!({"metadata": {"namespace": "default", "name": name}})).unwrap();
    }
    sleep(Duration::from_secs(20)).await;
    cluster.restore_from(backup);
}

async fn end_pod(world: &World) {
    world.host.delete("pods", SHOP, "web").unwrap();
    until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
}

/// A copy of another host's pod, and a pod of somebody there.
fn plant(world: &World) -> [(&'static str, Value); 2] {
    let another = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "another"});
    [("of-another-host", another), ("strangers", json!({}))].map(|(name, labels)| {
        let metadata = json!({"namespace": SHOP, "name": name, "labels": labels,
            "annotations": {"kosmos.csi.io/pod-uid": "u"}});
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        let made = world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        (name, made["metadata"]["uid"].clone())
    })
}

#[test]
fn copy_that_is_back_with_its_restored_member_is_removed_again_and_nobody_elses_is() {
    story(1, async {
        let world = with_pod().await;
        let planted = plant(&world);
        sleep(Duration::from_secs(5)).await;
        let backup = world.member.backup();
        end_pod(&world).await;
        restore(&world.member, &backup).await;
        assert!(world.copy("web").is_some());
        until("it is removed again", || {
            assert!(world.is_ready(), "its node says that the member does not answer");
            world.copy("web").is_none()
        })
        .await;
        sleep(Duration::from_mins(2)).await;
        for (name, uid) in planted {
            let there = world.copy(name).unwrap();
            assert_eq!(there["metadata"]["uid"], uid, "{name}");
            assert!(there["metadata"].get("deletionTimestamp").is_none(), "{name}");
        }
    });
}

/// What ran there is not there any more, as where somebody has deleted it. Whoever made the pod makes another one.
#[test]
fn pod_whose_copy_is_not_in_the_backup_of_its_member_has_failed_and_the_next_one_runs() {
    story(1, async {
        let world = standing(1).await;
        let backup = world.member.backup();
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
        restore(&world.member, &backup).await;
        assert!(world.copy("web").is_none());
        until("it has failed", || world.phase("web") == "Failed").await;
        assert_eq!(text(&world.pod("web").unwrap(), "/status/reason"), "DeletedInMember");
        end_pod(&world).await;
        world.run_pod("web", None);
        until("the next one runs", || world.phase("web") == "Running").await;
    });
}

/// What happens there after that is heard.
#[test]
fn copy_that_runs_on_in_its_restored_member_is_told_of_as_before() {
    story(1, async {
        let world = with_pod().await;
        let backup = world.member.backup();
        restore(&world.member, &backup).await;
        let fail = |copy: &mut Value| copy["status"]["phase"] = json!("Failed");
        world.member.change("pods", SHOP, "web", fail).unwrap();
        until("it is told", || world.phase("web") == "Failed").await;
        assert_ne!(text(&world.pod("web").unwrap(), "/status/reason"), "DeletedInMember");
        assert!(world.copy("web").is_some());
    });
}

/// In the backup it is bound to its node, and nobody has copied it yet.
#[test]
fn pod_that_is_back_with_a_restored_host_gets_its_copy_again() {
    story(1, async {
        let world = standing(1).await;
        world.run_pod("web", None);
        let backup = world.host.backup();
        until("it runs", || world.phase("web") == "Running").await;
        end_pod(&world).await;
        restore(&world.host, &backup).await;
        assert!(world.pod("web").is_some() && world.copy("web").is_none());
        until("it runs again", || world.phase("web") == "Running" && world.copy("web").is_some()).await;
    });
}

/// In the backup it had one, which has ended since: what it has done then is not done twice.
#[test]
fn pod_that_is_back_with_a_restored_host_after_its_copy_has_ended_has_failed() {
    story(1, async {
        let world = with_pod().await;
        let backup = world.host.backup();
        end_pod(&world).await;
        restore(&world.host, &backup).await;
        until("it has failed", || world.phase("web") == "Failed").await;
        assert_eq!(text(&world.pod("web").unwrap(), "/status/reason"), "DeletedInMember");
        assert!(world.copy("web").is_none());
    });
}

#[test]
fn copy_whose_pod_is_not_in_the_backup_of_the_host_is_removed_and_nobody_elses_is() {
    story(1, async {
        let world = standing(1).await;
        let backup = world.host.backup();
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
        let planted = plant(&world);
        restore(&world.host, &backup).await;
        assert!(world.pod("web").is_none());
        until("it is removed", || world.copy("web").is_none()).await;
        sleep(Duration::from_mins(2)).await;
        for (name, uid) in planted {
            assert_eq!(world.copy(name).unwrap()["metadata"]["uid"], uid, "{name}");
        }
    });
}

/// The record says that this cluster is the member `other`.
fn pin_other(world: &World, cluster: &str) {
    let pin = |record: &mut Value| record["data"]["other"] = json!(cluster);
    world.host.change("configmaps", NAMESPACE, "kosmos-csi-members", pin).unwrap();
}

/// A node of the host that stands for another member, which is this cluster where the record says so; a finalizer keeps it there.
fn add_node_of_another_member(world: &World, cluster: Option<&str>) {
    if let Some(cluster) = cluster {
        pin_other(world, cluster);
    }
    let metadata = json!({"name": "kosmos-other", "labels": {"kosmos.io/node": "true"}, "finalizers": ["example.com/stays"],
        "annotations": {"kosmos.csi.io/node-id": "virtual/other"}});
    world.host.create("nodes", json!({"metadata": metadata})).unwrap();
}

/// The pod `web`, back in its restored host as it was before it was bound, while its copy runs.
async fn with_unbound_pod() -> World {
    let world = standing(1).await;
    let container = json!({"name": "c", "image": "i:1"});
    let spec = json!({"terminationGracePeriodSeconds": 5, "containers": [container]});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
    sleep(Duration::from_secs(1)).await;
    let backup = world.host.backup();
    bind(&world, NODE);
    until("it runs", || world.phase("web") == "Running").await;
    restore(&world.host, &backup).await;
    assert_eq!(text(&world.pod("web").unwrap(), "/spec/nodeName"), "");
    world
}

fn bind(world: &World, node: &str) {
    world.host.change("pods", SHOP, "web", |pod| pod["spec"]["nodeName"] = json!(node)).unwrap();
}

/// Else it would run twice for ever, and nobody would end the former one.
#[test]
fn copy_of_a_pod_that_its_restored_host_sends_to_another_cluster_is_removed() {
    for node in ["worker-1", "kosmos-other"] {
        story(1, async {
            let world = with_unbound_pod().await;
            add_node_of_another_member(&world, Some("another"));
            sleep(Duration::from_secs(5)).await;
            bind(&world, node);
            until("it is removed", || world.copy("web").is_none()).await;
            assert_eq!(text(&world.pod("web").unwrap(), "/metadata/deletionTimestamp"), "", "{node}");
        });
    }
}

/// A member may have had another name when the pod was bound.
#[test]
fn copy_of_a_pod_that_is_bound_to_no_node_yet_or_to_one_that_may_stand_for_its_member_runs_on() {
    for node in ["", NODE, "kosmos-other", "kosmos-missing"] {
        story(1, async {
            let world = with_unbound_pod().await;
            let copy = world.copy("web").unwrap();
            add_node_of_another_member(&world, None);
            sleep(Duration::from_secs(5)).await;
            bind(&world, node);
            sleep(Duration::from_mins(3)).await;
            let now = world.copy("web").unwrap();
            assert_eq!(now["metadata"]["uid"], copy["metadata"]["uid"], "{node}");
            assert_eq!(text(&now, "/metadata/deletionTimestamp"), "", "{node}");
            assert_eq!(world.phase("web") == "Running", node == NODE, "{node}");
        });
    }
}

#[test]
fn copy_of_a_pod_that_has_ended_is_ended_also_where_its_node_may_stand_for_its_member_by_another_name() {
    story(1, async {
        let world = with_unbound_pod().await;
        add_node_of_another_member(&world, None);
        sleep(Duration::from_secs(5)).await;
        bind(&world, "kosmos-other");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(text(&world.copy("web").unwrap(), "/metadata/deletionTimestamp"), "");
        world.host.change("pods", SHOP, "web", |pod| pod["status"]["phase"] = json!("Failed")).unwrap();
        until("it is ended", || world.copy("web").is_none()).await;
    });
}

#[test]
fn copy_runs_on_where_somebody_has_written_on_its_node_what_another_one_stands_for() {
    story(1, async {
        let world = with_pod().await;
        let copy = world.copy("web").unwrap();
        pin_other(&world, "another");
        let says = |node: &mut Value| node["metadata"]["annotations"]["kosmos.csi.io/node-id"] = json!("virtual/other");
        world.host.change("nodes", "", NODE, says).unwrap();
        sleep(Duration::from_mins(1)).await;
        let now = world.copy("web").unwrap();
        assert_eq!(now["metadata"]["uid"], copy["metadata"]["uid"]);
        assert_eq!(text(&now, "/metadata/deletionTimestamp"), "");
    });
}

#[test]
fn member_that_was_removed_since_the_backup_of_the_host_runs_pods_again() {
    story(1, async {
        let world = standing(1).await;
        let backup = world.host.backup();
        world.host.delete("secrets", NAMESPACE, "m").unwrap();
        until("its node is gone", || world.node().is_none()).await;
        restore(&world.host, &backup).await;
        world.run_pod("web", None);
        until("it runs", || world.phase("web") == "Running").await;
    });
}

/// It is the answer to the question whether the member answers at all.
#[test]
fn question_whether_a_member_was_restored_is_no_request_of_its_own() {
    story(1, async {
        let world = standing(1).await;
        sleep(Duration::from_secs(10)).await;
        world.member.faults().record(true);
        sleep(Duration::from_mins(1)).await;
        let asked = world.member.faults().log();
        let asked: Vec<_> = asked.iter().filter(|asked| asked.verb != Verb::Watch).collect();
        let questions = asked.iter().filter(|asked| asked.verb == Verb::List && asked.resource == "nodes").count();
        assert!((11..=12).contains(&questions), "{asked:#?}");
        // What pods name there is looked at twice.
        assert!(asked.len() <= questions + 4, "{asked:#?}");
    });
}

fn asks_for_the_newest_version(asked: &Asked) -> bool {
    asked.verb == Verb::List && asked.resource == "nodes" && asked.query.contains("kosmos.csi.io")
}

/// It may be one that lies: it is to take no more of the agent's time, nor of the host's.
#[test]
fn member_that_says_again_and_again_that_it_was_restored_is_listed_less_and_less() {
    story(1, async {
        let world = standing(1).await;
        let questions = AtomicU64::new(0);
        world.member.faults().set(move |asked| {
            let lies =
                asks_for_the_newest_version(asked) && questions.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            if lies { Action::Stale(u64::MAX) } else { Action::Pass }
        });
        world.host.faults().record(true);
        world.member.faults().record(true);
        sleep(Duration::from_mins(10)).await;
        let lists = world.member.faults().log();
        let lists = lists.iter().filter(|asked| asked.verb == Verb::List && asked.resource == "nodes");
        let lists = lists.filter(|asked| !asks_for_the_newest_version(asked)).count();
        assert!((10..=30).contains(&lists), "{lists}");
        let reads = world.host.faults().log();
        let reads = reads.iter().filter(|asked| asked.verb == Verb::Get && asked.name == "kosmos-csi-members").count();
        assert!(reads <= lists + 2, "{reads} for {lists} lists");
        assert!(world.is_ready(), "its node says that the member does not answer");
    });
}
