//! What people and backup tools make beside a move, labels of the leaf and all: it is nobody's but theirs.

use std::time::Duration;

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{CLAIM, CLAIMS, DATA, MOMENTS, MOVED, MOVES, SOME, Story, VOLUMES, disturbed, none_is_wrong, play::Mood};
use crate::{bench::SHOP, caller::Script, extent::drawn, fixture, virtual_time};

const THEIRS: &str = "a-restored-one";

async fn story() -> Story {
    let script = Script { places: vec![0], leaf_class: fixture::NOW, ..Script::new(CLAIM) };
    Story::new(script).await
}

fn labels(story: &Story) -> Value {
    let hash = VolumeHash::new(&HostId(story.bench.host_id()), story.caller.volume()).to_string();
    json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": story.bench.host_id(), "kosmos.csi.io/volume": hash})
}

/// A volume of before, whose claim has gone; by its name it comes before all others.
fn restore_volume(story: &Story, at: usize) {
    let volume = json!({
        "metadata": {"name": THEIRS, "labels": labels(story), "annotations": {"pv.kubernetes.io/provisioned-by": "storage.simulated"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": fixture::NOW,
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": SHOP, "name": "of-before", "uid": "0"},
            "persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem",
            "csi": {"driver": "storage.simulated", "volumeHandle": THEIRS},
        },
    });
    story.bench.members[at].create(VOLUMES, volume).unwrap();
}

/// What of it is people's: all but what the member itself writes.
fn restored(story: &Story, at: usize) -> [Value; 4] {
    let volume = story.bench.members[at].get(VOLUMES, "", THEIRS).unwrap();
    ["/metadata/labels", "/metadata/annotations", "/spec/persistentVolumeReclaimPolicy", "/spec/claimRef"]
        .map(|path| volume.pointer(path).cloned().unwrap_or_default())
}

#[test]
fn volume_that_was_restored_with_the_labels_of_the_leaf_is_written_by_no_move() {
    for (at, is_called_off) in [(0, false), (0, true), (1, false), (1, true)] {
        virtual_time::run(1, async {
            let story = story().await;
            restore_volume(&story, at);
            sleep(Duration::from_secs(5)).await;
            let before = restored(&story, at);
            story.asks(1, &json!({"cutover": if is_called_off { "Manual" } else { "Automatic" }}));
            if is_called_off {
                story.comes_to("Ready").await;
                story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            } else {
                story.comes_to("Succeeded").await;
            }
            sleep(MOVED).await;
            assert_eq!(restored(&story, at), before, "{at} {is_called_off}: {}", story.trace());
            assert_eq!(story.found(), Ok((usize::from(!is_called_off), DATA.to_owned())), "{at} {is_called_off}");
            assert_eq!(story.left(), [""; 0], "{at} {is_called_off}");
        });
    }
}

/// It comes after the member was asked whether that place is free.
#[test]
fn claim_that_somebody_makes_where_the_copy_is_to_be_is_neither_taken_for_it_nor_removed() {
    for policy in ["Retain", "Delete"] {
        virtual_time::run(1, async {
            let story = story().await;
            story.play.is(Mood::Linger);
            story.asks(1, &json!({}));
            story.comes_to("Copying").await;
            let member = &story.bench.members[1];
            let claim = json!({"metadata": {"name": CLAIM, "namespace": SHOP, "labels": labels(&story)}, "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": fixture::NOW,
                "volumeMode": "Filesystem"}});
            let made = member.create(CLAIMS, claim).unwrap();
            sleep(Duration::from_secs(5)).await;
            let claim = || member.get(CLAIMS, SHOP, CLAIM).unwrap();
            let volume = text(&claim(), "/spec/volumeName").to_owned();
            let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
            member.change(VOLUMES, "", &volume, keep).unwrap();
            story.play.is(Mood::Well);
            sleep(MOVED).await;
            assert_ne!(story.phase(), "Succeeded", "{policy}: {}", story.trace());
            story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            sleep(MOVED).await;
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{policy}: {}", story.trace());
            assert_eq!(claim()["metadata"]["uid"], made["metadata"]["uid"], "{policy}");
            assert!(text(&claim(), "/metadata/deletionTimestamp").is_empty(), "{policy}: {}", story.trace());
            let volume = member.get(VOLUMES, "", &volume).unwrap();
            assert_eq!(text(&volume, "/spec/persistentVolumeReclaimPolicy"), policy);
            assert!(volume.pointer("/metadata/labels/kosmos.csi.io~1volume").is_none(), "{policy}: {volume}");
            assert_eq!(story.left(), [""; 0], "{policy}");
        });
    }
}

const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";

/// The attach controller makes it for a pod that was sent there before the switch, and takes none away that has the handle of before.
fn attach_to_former_member(story: &Story, attached: Option<&str>) {
    let node_id = json!({"csi.alpha.kubernetes.io/node-id": attached});
    let attachment = json!({"metadata": {"name": "csi-before", "annotations": node_id}, "spec": {"attacher": "kosmos.csi.io",
        "nodeName": "kosmos-m0", "source": {"persistentVolumeName": story.caller.volume()}}});
    story.bench.host.create(ATTACHMENTS, attachment).unwrap();
    let attached = json!({"attached": attached.is_some()});
    story.bench.host.change(ATTACHMENTS, "", "csi-before", |one| one["status"] = attached.clone()).unwrap();
}

#[test]
fn attachment_of_before_a_switch_goes_once_no_pod_wants_it() {
    virtual_time::run(1, async {
        let story = story().await;
        let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]);
        let pod = json!({"metadata": {"name": "web", "namespace": SHOP}, "spec": {"nodeName": "kosmos-m0", "volumes": volumes,
            "containers": [{"name": "main", "image": "x"}]}});
        story.bench.host.create("pods", pod).unwrap();
        attach_to_former_member(&story, None);
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        assert!(story.bench.host.list(ATTACHMENTS).is_empty(), "{}", story.trace());
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
        for (attached, is_left) in [(None, false), (Some("virtual/m0"), false), (Some("real/n1"), true)] {
            story.bench.host.change("pods", SHOP, "web", |pod| pod["status"] = json!({"phase": "Pending"})).unwrap();
            attach_to_former_member(&story, attached);
            sleep(MOVED).await;
            assert_eq!(story.bench.host.list(ATTACHMENTS).len(), 1, "{}", story.trace());
            // As the agent of virtual nodes ends it.
            story.bench.host.change("pods", SHOP, "web", |pod| pod["status"] = json!({"phase": "Failed"})).unwrap();
            sleep(MOVED).await;
            assert_eq!(story.bench.host.list(ATTACHMENTS).len(), usize::from(is_left), "{}", story.trace());
        }
        // The volume is another claim's by now.
        story.bench.host.create("namespaces", json!({"metadata": {"name": "elsewhere"}})).unwrap();
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "kosmos", "volumeName": story.caller.volume()});
        let other = json!({"metadata": {"name": CLAIM, "namespace": "elsewhere"}, "spec": spec});
        let other = story.bench.host.create(CLAIMS, other).unwrap();
        let given = |volume: &mut Value| {
            volume["spec"]["claimRef"]["namespace"] = json!("elsewhere");
            volume["spec"]["claimRef"]["uid"] = other["metadata"]["uid"].clone();
        };
        story.bench.host.change(VOLUMES, "", story.caller.volume(), given).unwrap();
        let pod = json!({"metadata": {"name": "web", "namespace": "elsewhere"}, "spec": {"nodeName": "kosmos-m0", "volumes": volumes,
            "containers": [{"name": "main", "image": "x"}]}});
        story.bench.host.create("pods", pod).unwrap();
        story.bench.host.delete(ATTACHMENTS, "", "csi-before").unwrap();
        attach_to_former_member(&story, Some("virtual/m0"));
        sleep(MOVED).await;
        assert_eq!(story.bench.host.list(ATTACHMENTS).len(), 1, "{}", story.trace());
    });
}

#[test]
fn mark_that_somebody_takes_off_the_leaf_at_any_moment_of_a_move_hinders_its_end_in_no_way() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            let unmark = |claim: &mut Value| {
                if let Some(notes) = claim["metadata"]["annotations"].as_object_mut() {
                    notes.remove("kosmos.csi.io/move");
                }
            };
            let _ = story.bench.members[0].change(CLAIMS, SHOP, CLAIM, unmark);
            sleep(Duration::from_mins(2)).await;
            if moment % 2 == 0 {
                let _ = story.bench.host.delete(MOVES, SHOP, "to");
            }
        })
    }));
}
