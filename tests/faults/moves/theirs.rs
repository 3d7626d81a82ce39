//! A copy's claim that the member has bound to a volume of somebody else's: whatever becomes of the move, that volume stays as it was.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{CLAIM, MOVES, Story, VOLUMES, YARD, at_the_end, is_slow};
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

fn calls_off(story: &Story) {
    story.bench.host.delete(MOVES, SHOP, "to").unwrap();
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
