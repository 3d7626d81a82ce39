//! What is somebody else's and in the way of a move: a volume to which the member has bound the copy's claim, a claim among the movers, and a
//! volume of the host under the name of the one that makes way. Whatever becomes of the move, it stays as it was.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::{
    CLAIM, CLAIMS, MOVES, STEP, Story, VOLUMES, YARD, at_the_end,
    forgotten::remove_by_force,
    gone::{calls_off, condition, told},
    is_slow,
    killed::story_in,
};
use crate::{
    bench::SHOP,
    caller::Script,
    fixture::{self, OTHER_HOST},
    virtual_time,
};

const THEIRS: &str = "theirs";

/// In the other member there is a volume that waits for the copy's claim.
async fn with_volume(labels: &Value, policy: &str) -> Story {
    let script = Script { places: vec![0], leaf_class: fixture::NOW, ..Script::new(CLAIM) };
    let story = Story::new(script).await;
    is_slow(&story);
    let waits_for = json!({"kind": "PersistentVolumeClaim", "namespace": YARD, "name": story.lent()});
    let volume = json!({"metadata": {"name": THEIRS, "labels": labels}, "spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "4Gi"}, "storageClassName": fixture::NOW, "claimRef": waits_for,
        "persistentVolumeReclaimPolicy": policy, "volumeMode": "Filesystem", "csi": {"driver": "nfs.example", "volumeHandle": "x"}}});
    story.bench.members[1].create(VOLUMES, volume).unwrap();
    story.asks(1, &json!({"cutover": "Manual"}));
    story
}

fn theirs(story: &Story) -> (Value, String) {
    let volume = story.bench.members[1].get(VOLUMES, "", THEIRS).unwrap();
    let labels = volume.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!({}));
    (labels, text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned())
}

#[test]
fn volume_that_people_made_is_as_they_made_it_when_a_move_to_it_is_called_off() {
    for policy in ["Retain", "Delete"] {
        virtual_time::run(1, async {
            let story = with_volume(&json!({}), policy).await;
            story.comes_to("Ready").await;
            calls_off(&story);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{policy}");
            assert_eq!(theirs(&story), (json!({}), policy.to_owned()));
        });
    }
}

#[test]
fn volume_of_another_host_is_never_written_by_a_move() {
    for policy in ["Retain", "Delete"] {
        virtual_time::run(1, async {
            let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": OTHER_HOST,
                "kosmos.csi.io/volume": "0123456789abcdef0123456789abcdef"});
            let story = with_volume(&labels, policy).await;
            sleep(Duration::from_secs(30)).await;
            assert!(story.status().contains("belongs to another host cluster"), "{}", story.status());
            calls_off(&story);
            if policy == "Delete" {
                sleep(Duration::from_mins(1)).await;
                assert!(story.status().contains("give that volume the policy Retain"), "{}", story.status());
                let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
                story.bench.members[1].change(VOLUMES, "", THEIRS, keep).unwrap();
            }
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{policy}");
            assert_eq!(theirs(&story), (labels, "Retain".to_owned()));
        });
    }
}

/// Nobody but movers may be there, and it has the name that the copy's claim is to have. The source's pods go on meanwhile.
#[test]
fn claim_among_the_movers_that_is_none_of_the_moves_is_told_of_and_waited_for() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let (member, name) = (&story.bench.members[1], story.lent());
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this",
            "resources": {"requests": {"storage": "1Gi"}}});
        member.create(CLAIMS, json!({"metadata": {"name": name, "namespace": YARD}, "spec": spec})).unwrap();
        story.asks(1, &json!({}));
        sleep(Duration::from_mins(1)).await;
        let words =
            format!("member m1: claim {YARD}/{name} has the name of this move's claim, and is not its own: remove it");
        assert!(story.phase() == "Preparing" && story.status().contains(&words), "{}", story.status());
        let claim = member.get(CLAIMS, YARD, &name).unwrap();
        assert!(claim["metadata"]["labels"].is_null() && claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
        let source = story.bench.members[0].get(CLAIMS, SHOP, CLAIM).unwrap();
        assert!(source["metadata"]["annotations"]["kosmos.csi.io/move"].is_null(), "{source}");
        member.delete(CLAIMS, YARD, &name).unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// That was removed by force, and goes some minutes later.
#[test]
fn copy_of_another_move_that_is_where_the_copy_has_to_be_is_named_as_a_stall_until_it_has_gone() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let is_tried = |asked: &Asked| asked.resource == VOLUMES && asked.verb == Verb::Create;
        story.bench.guard.set_fate(move |_, at, asked| {
            if at == 0 && is_tried(asked) { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        story.asks(1, &json!({}));
        story.comes_to("Closing").await;
        remove_by_force(&story);
        story.bench.guard.heal();
        sleep(Duration::from_secs(5)).await;
        story.asks(1, &json!({}));
        sleep(Duration::from_secs(20)).await;
        let stalled = condition(&story, "Stalled");
        let (state, message) = told(&stalled);
        assert_eq!(state, ["True", "LeafStuck"], "{message}\n{}", story.trace());
        let words = format!("claim {YARD}/{} there (VolumeMove shop/to", story.lent());
        let why = "has a leaf of another move, where this move needs its own";
        assert!(message.contains(why) && message.contains(&words), "{message}");
        assert!(story.bench.metrics().contains("kosmos_csi_moves_stalled 1"), "{}", story.bench.metrics());
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// Between the end of one and the beginning of the other its name is free for anybody.
async fn takes_the_name(story: &Story, volume: Value) {
    let (host, name) = (&story.bench.host, story.caller.volume());
    let is_made =
        |asked: &Asked| asked.verb == Verb::Create && asked.resource == VOLUMES && !asked.query.contains("dryRun=All");
    story.bench.guard.set_fate(move |_, at, asked| if at == 0 && is_made(asked) { Action::Hang } else { Action::Pass });
    host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
    while host.get(VOLUMES, "", name).is_some() {
        sleep(STEP / 10).await;
    }
    let made = host.create(VOLUMES, volume).unwrap();
    story.bench.guard.heal();
    sleep(Duration::from_mins(1)).await;
    let words = format!("volume {name}: another volume of its name is there");
    assert!(story.phase() == "Switching" && story.status().contains(&words), "{}", story.status());
    let there = host.get(VOLUMES, "", name).unwrap();
    assert_eq!((&there["metadata"]["uid"], &there["spec"]), (&made["metadata"]["uid"], &made["spec"]));
}

/// Its claim is bound to it at once, and protects it.
#[test]
fn volume_of_an_earlier_switch_that_comes_late_makes_way_once_somebody_deletes_it() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let (host, name, before) = (&story.bench.host, story.caller.volume(), story.host_volume());
        let metadata = json!({"name": name, "annotations": before["metadata"]["annotations"]});
        let mut late = json!({"metadata": metadata, "spec": before["spec"]});
        late["metadata"]["annotations"]["kosmos.csi.io/replaces"] = json!("of-an-earlier-switch");
        takes_the_name(&story, late).await;
        host.delete(VOLUMES, "", name).unwrap();
        assert!(host.get(VOLUMES, "", name).is_some(), "it is protected");
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// Its provisioner removes the storage behind it by its finalizer, and all CSI drivers have the same.
#[test]
fn volume_of_other_storage_that_has_the_name_and_the_claim_keeps_its_finalizers_when_somebody_deletes_it() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let (host, name) = (&story.bench.host, story.caller.volume());
        let finalizer = "external-provisioner.volume.kubernetes.io/finalizer";
        let mut spec = story.host_volume()["spec"].clone();
        spec["persistentVolumeReclaimPolicy"] = json!("Delete");
        spec["csi"] = json!({"driver": "nfs.example", "volumeHandle": "x"});
        takes_the_name(&story, json!({"metadata": {"name": name, "finalizers": [finalizer]}, "spec": spec})).await;
        host.delete(VOLUMES, "", name).unwrap();
        sleep(Duration::from_mins(2)).await;
        let there = host.get(VOLUMES, "", name).unwrap();
        assert!(there["metadata"]["finalizers"].to_string().contains(finalizer), "{there}");
        assert!(story.status().contains("it is held by finalizers"), "{}", story.status());
        host.change(VOLUMES, "", name, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn volume_that_somebody_makes_in_the_host_while_its_own_makes_way_is_told_of_and_waited_for() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let (host, name) = (&story.bench.host, story.caller.volume());
        let claim = json!({"kind": "PersistentVolumeClaim", "namespace": "elsewhere", "name": THEIRS, "uid": "0"});
        let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": THEIRS,
            "claimRef": claim, "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
            "csi": {"driver": "nfs.example", "volumeHandle": "x"}});
        takes_the_name(&story, json!({"metadata": {"name": name}, "spec": spec})).await;
        host.change(VOLUMES, "", name, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
        host.delete(VOLUMES, "", name).unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// Kubernetes takes times of the last day of the year 9999, and hardly anybody else does.
fn written_in_9999() -> Value {
    let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    json!({"name": THEIRS, "namespace": SHOP, "managedFields": written})
}

/// Nor is its user told that the member does not answer, and how to say that it is gone for good.
#[test]
fn pod_of_the_member_that_was_written_at_a_time_nobody_reads_holds_up_no_move() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        let pod = json!({"metadata": written_in_9999(), "spec": spec});
        story.bench.members[0].create("pods", pod).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
    });
}

#[test]
fn move_that_was_written_at_a_time_nobody_reads_keeps_no_other_from_going_on() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let metadata = written_in_9999();
        let spec = json!({"claimName": "another", "to": {"member": "m1"}});
        story.bench.host.create(MOVES, json!({"metadata": metadata, "spec": spec})).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        let theirs = story.bench.host.get(MOVES, SHOP, THEIRS).unwrap();
        assert_eq!(text(&theirs, "/status/phase"), "Refused", "{theirs:#}");
    });
}
