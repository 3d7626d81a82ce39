//! Moves that cannot be.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{CLAIM, CLAIMS, DATA, MOVES, Story, VOLUMES};
use crate::{
    bench::{DRIVER_NAMESPACE, SHOP},
    caller::Script,
    virtual_time,
};

/// What speaks against a move, and what is said then.
const REFUSED: [(&str, &str); 11] = [
    ("another claim", "is not there"),
    ("a claim elsewhere", "is no name of a claim"),
    ("what is no name", "is no name of a claim"),
    ("the same member", "is in member m0 already"),
    ("a member that is none", "no member was ever called m7"),
    ("a cordoned member", "is cordoned"),
    ("the name is taken", "already exists"),
    ("the class names a member", "does not let its volumes be in member m1"),
    ("its volume was another claim's", "is being moved by VolumeMove elsewhere/before"),
    ("another volume leads to its leaf", "remove PersistentVolume beside first"),
    ("a finalizer of somebody's", "finalizer example.com/backup"),
];

#[test]
fn move_that_cannot_be_is_refused_before_anything_is_done_and_says_why() {
    for (case, words) in REFUSED {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let host = &story.bench.host;
            let mut spec = json!({"claimName": CLAIM, "to": {"member": "m1"}});
            match case {
                "another claim" => spec["claimName"] = json!("another"),
                "a claim elsewhere" => spec["claimName"] = json!("../../elsewhere/persistentvolumeclaims/data"),
                // In a request's path it would name that claim.
                "what is no name" => spec["claimName"] = json!(format!("{CLAIM}?of=it")),
                "the same member" => spec["to"]["member"] = json!("m0"),
                "a member that is none" => spec["to"]["member"] = json!("m7"),
                "a cordoned member" => {
                    let cordon = |secret: &mut Value| {
                        secret["metadata"]["annotations"] = json!({"kosmos.csi.io/cordon": "true"});
                    };
                    host.change("secrets", DRIVER_NAMESPACE, "m1", cordon).unwrap();
                }
                "the name is taken" => {
                    let theirs = json!({"metadata": {"name": CLAIM, "namespace": SHOP}, "spec": {
                        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
                    story.bench.members[1].create(CLAIMS, theirs).unwrap();
                }
                "the class names a member" => {
                    host.change("storageclasses.storage.k8s.io", "", "kosmos", |class| {
                        class["parameters"]["member"] = json!("m0");
                    })
                    .unwrap();
                }
                "its volume was another claim's" => {
                    host.create("namespaces", json!({"metadata": {"name": "elsewhere"}})).unwrap();
                    let spec = json!({"claimName": "before", "to": {"member": "m1"}});
                    let before = json!({"metadata": {"name": "before", "namespace": "elsewhere"}, "spec": spec});
                    host.create(MOVES, before).unwrap();
                    let pinned = json!({"name": story.caller.volume(), "uid": "u", "claimUid": "c"});
                    let undoing = json!({"phase": "Cancelling", "volume": pinned});
                    host.change(MOVES, "elsewhere", "before", |of| of["status"] = undoing.clone()).unwrap();
                }
                "another volume leads to its leaf" => {
                    let mut beside = (*host.get(VOLUMES, "", story.caller.volume()).unwrap()).clone();
                    beside["metadata"] = json!({"name": "beside"});
                    beside["spec"].as_object_mut().unwrap().remove("claimRef");
                    host.create(VOLUMES, beside).unwrap();
                }
                _ => {
                    let hold = |volume: &mut Value| volume["metadata"]["finalizers"] = json!(["example.com/backup"]);
                    host.change(VOLUMES, "", story.caller.volume(), hold).unwrap();
                }
            }
            sleep(Duration::from_secs(5)).await;
            host.create(MOVES, json!({"metadata": {"name": "to", "namespace": SHOP}, "spec": spec})).unwrap();
            story.comes_to("Refused").await;
            assert!(story.status().contains(words), "{case}: {}", story.status());
            assert_eq!(story.left(), [""; 0], "{case}");
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{case}");
            host.delete(MOVES, SHOP, "to").unwrap();
            sleep(Duration::from_secs(5)).await;
            assert!(host.get(MOVES, SHOP, "to").is_none(), "{case}: nothing holds it");
        });
    }
}

/// The claim had this name before as well, and the volume of then is kept.
#[test]
fn move_is_not_refused_for_a_kept_volume_whose_leaf_had_the_same_place() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let mut kept = (*story.host_volume()).clone();
        kept["metadata"] = json!({"name": "kept"});
        kept["spec"].as_object_mut().unwrap().remove("claimRef");
        kept["spec"]["csi"]["volumeHandle"] = json!(format!("m0/{SHOP}/{CLAIM}/0123456789abcdef"));
        story.bench.host.create(VOLUMES, kept).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
    });
}
