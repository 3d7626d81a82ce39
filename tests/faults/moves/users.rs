//! Whoever has the volume is waited for, whoever he is, and named.

use std::time::Duration;

use csi::v1::{
    ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest, VolumeCapability,
    controller_server::Controller as _,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use super::{CLAIM, CLAIMS, DATA, MOVES, Story, at_the_end};
use crate::{
    bench::{SHOP, with_deadline},
    caller::Script,
    people::hold,
    virtual_time,
};

/// More than any pause between two looks.
const SEEN: Duration = Duration::from_secs(15);

/// What the user is told that he waits for.
fn awaited(story: &Story) -> String {
    let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
    text(&of, "/status/conditions/0/message").to_owned()
}

/// A pod of the member's own people on the leaf claim.
pub(super) fn stranger(name: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]);
    json!({"metadata": {"name": name, "namespace": SHOP}, "spec": {"volumes": volumes, "containers": [{"name": "main", "image": "i"}]},
        "status": {"phase": "Running"}})
}

#[test]
fn pods_that_keep_the_claim_are_named_and_it_moves_once_the_last_is_gone() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let source = &story.bench.members[0];
        for name in ["b-theirs", "a-theirs"] {
            source.create("pods", stranger(name)).unwrap();
        }
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        assert_eq!((story.phase().as_str(), story.found()), ("Waiting", Ok((0, DATA.to_owned()))));
        let both = "pods use the volume: pod shop/a-theirs of member m0, pod shop/b-theirs of member m0";
        assert_eq!(awaited(&story), both);
        source.change("pods", SHOP, "a-theirs", |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
        source.delete("pods", SHOP, "b-theirs").unwrap();
        sleep(SEEN).await;
        let ended = "pods use the volume: pod shop/a-theirs of member m0 (it has ended, and keeps the claim until it is deleted)";
        assert_eq!(awaited(&story), ended);
        assert!(source.get("pods", SHOP, "a-theirs").is_some(), "somebody's pod was removed");
        source.delete("pods", SHOP, "a-theirs").unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// They see its claim from when it is placed on, which may be long before the word to switch.
#[test]
fn pods_of_the_other_member_that_have_the_copy_before_the_host_leads_to_it_are_waited_for_and_named() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let other = &story.bench.members[1];
        for name in ["theirs", "done"] {
            other.create("pods", stranger(name)).unwrap();
        }
        sleep(SEEN).await;
        assert_eq!(awaited(&story), "the switch is not approved yet (spec.approved)");
        // It writes nothing any more, and its claim is to stay.
        other.change("pods", SHOP, "done", |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
        sleep(SEEN).await;
        let told = "pods have the copy already: pod shop/theirs of member m1";
        assert_eq!((story.phase().as_str(), awaited(&story).as_str()), ("Ready", told), "{}", story.trace());
        other.delete("pods", SHOP, "theirs").unwrap();
        story.comes_to("Succeeded").await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn pod_that_comes_before_the_claim_is_deleted_is_named() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let is_slow = |asked: &Asked| asked.verb == Verb::Delete && asked.resource == CLAIMS;
        story.bench.guard.set_fate(move |_, at, asked| {
            if at == 1 && is_slow(asked) { Action::Delay(Duration::from_secs(3)) } else { Action::Pass }
        });
        story.asks(1, &json!({}));
        story.comes_to("Isolating").await;
        story.bench.members[0].create("pods", stranger("theirs")).unwrap();
        sleep(SEEN).await;
        let told = "the leaf claim of the source has to go first; the claim that is being deleted is kept by pod shop/theirs of member m0";
        assert_eq!((story.phase().as_str(), awaited(&story).as_str()), ("Isolating", told));
        story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn finalizer_that_keeps_the_claim_on_its_way_out_is_named() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        hold(&story.bench, CLAIM, "example.com/backup", true);
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        let told = "the leaf claim of the source has to go first; the claim that is being deleted is kept by finalizer example.com/backup";
        assert_eq!((story.phase().as_str(), awaited(&story).as_str()), ("Isolating", told));
        // Also where it is called off.
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        sleep(SEEN).await;
        let told = "the source's leaf claim is being made where it was; the claim that is being deleted is kept by finalizer example.com/backup";
        assert_eq!((story.phase().as_str(), awaited(&story).as_str()), ("Cancelling", told));
        hold(&story.bench, CLAIM, "example.com/backup", false);
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

/// Since the first clone of it, in the member.
const CLONED: &str = "provisioner.storage.kubernetes.io/cloning-protection";

pub(super) fn is_cloned(story: &Story, claim: &str) {
    hold(&story.bench, claim, CLONED, true);
    let source = json!({"kind": "PersistentVolumeClaim", "name": claim});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this", "dataSource": source,
        "resources": {"requests": {"storage": "1Gi"}}});
    let clone = json!({"metadata": {"name": format!("clone-of-{claim}"), "namespace": SHOP}, "spec": spec});
    story.bench.members[0].create(CLAIMS, clone).unwrap();
}

/// Once the claim were on its way out, the clone would never be made, and would keep it.
#[test]
fn clone_that_is_not_made_yet_is_waited_for_and_named_and_no_former_one() {
    for phase in ["Closing", "Waiting"] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let member = &story.bench.members[0];
            if phase == "Waiting" {
                member.create("pods", stranger("theirs")).unwrap();
                story.asks(1, &json!({}));
                story.comes_to(phase).await;
                is_cloned(&story, CLAIM);
                member.delete("pods", SHOP, "theirs").unwrap();
            } else {
                is_cloned(&story, CLAIM);
                story.asks(1, &json!({}));
            }
            sleep(SEEN).await;
            let named = "claim shop/clone-of-data of member m0 (a clone of it, which is not made yet)";
            assert_eq!(story.phase(), phase, "{}", story.trace());
            assert!(awaited(&story).ends_with(named), "{phase}: {}", awaited(&story));
            member.delete(CLAIMS, SHOP, "clone-of-data").unwrap();
            story.comes_to("Isolating").await;
            // It goes with the claim.
            hold(&story.bench, CLAIM, CLONED, false);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{phase}");
        });
    }
}

/// Whoever makes claims in that namespace decides how long they are.
#[test]
fn claims_among_which_clones_are_looked_for_close_their_member_to_nobody_however_long_they_are() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let member = &story.bench.members[0];
        is_cloned(&story, CLAIM);
        let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this",
            "resources": {"requests": {"storage": "1Gi"}}});
        for number in 0..9 {
            let (name, notes) = (format!("long-{number}"), json!({"a": "x".repeat(8 << 20)}));
            let metadata = json!({"name": name, "namespace": SHOP, "annotations": notes});
            member.create(CLAIMS, json!({"metadata": metadata, "spec": spec})).unwrap();
        }
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        assert_eq!(story.phase(), "Closing", "{}", story.trace());
        let named = "claim shop/clone-of-data of member m0 (a clone of it, which is not made yet)";
        assert!(awaited(&story).ends_with(named), "{}", awaited(&story));
    });
}

#[test]
fn of_many_pods_that_have_the_volume_some_are_named_and_the_others_counted() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        for number in 0..9 {
            story.bench.members[0].create("pods", stranger(&format!("theirs-{number}"))).unwrap();
        }
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        assert!(awaited(&story).ends_with("pod shop/theirs-4 of member m0 and 4 more"), "{}", awaited(&story));
    });
}

/// They are as long as an API server tells any, as a tenant of the host may make his.
#[test]
fn pods_that_are_longer_together_than_one_answer_may_be_close_their_member_to_nobody() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        for number in 0..9 {
            let mut long = stranger(&format!("long-{number}"));
            long["metadata"]["annotations"] = json!({"a": "x".repeat(8 << 20)});
            long["spec"]["volumes"] = json!([]);
            story.bench.members[0].create("pods", long).unwrap();
        }
        story.bench.members[0].create("pods", stranger("theirs")).unwrap();
        story.asks(1, &json!({}));
        sleep(SEEN / 3).await;
        assert_eq!(awaited(&story), "pods use the volume: pod shop/theirs of member m0");
    });
}

#[test]
fn node_of_the_host_that_has_the_volume_is_named_and_a_record_that_cannot_be_read_is_told() {
    let record = json!({"real/worker": {"access": "ReadWriteOnce"}}).to_string();
    let named = "pods use the volume: node worker of the host";
    let unreadable = "pods use the volume: whoever annotation kosmos.csi.io/published of leaf claim shop/data in member m0 \
                      names, which cannot be read";
    for (record, told) in [(record.as_str(), named), ("worker", unreadable)] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let publish =
                |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/published"] = json!(record);
            story.bench.members[0].change(CLAIMS, SHOP, CLAIM, publish).unwrap();
            story.asks(1, &json!({}));
            sleep(SEEN).await;
            assert_eq!((story.phase().as_str(), awaited(&story).as_str()), ("Waiting", told));
            let leave = |claim: &mut Value| {
                let annotations = claim["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.remove("kosmos.csi.io/published");
            };
            story.bench.members[0].change(CLAIMS, SHOP, CLAIM, leave).unwrap();
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        });
    }
}

/// As external-attacher asks for it. No pod of the member says that the host's pod there has it.
#[test]
fn pod_on_a_real_node_of_the_host_is_waited_for_until_its_volume_is_unpublished() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let driver = json!({"name": "kosmos.csi.io", "nodeID": "real/n1", "topologyKeys": null});
        let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}});
        story.bench.host.create("csinodes.storage.k8s.io", node).unwrap();
        let (volume_id, node_id) = (story.caller.handle().unwrap().to_owned(), "real/n1".to_owned());
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() });
        let request = ControllerPublishVolumeRequest {
            volume_id: volume_id.clone(),
            node_id: node_id.clone(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
                access_mode,
            }),
            volume_context: story.caller.context().clone(),
            ..Default::default()
        };
        let published =
            story.bench.call(|driver| async move { driver.controller_publish_volume(with_deadline(request)).await });
        published.await.unwrap();
        story.asks(1, &json!({}));
        sleep(SEEN).await;
        assert_eq!(
            (story.phase().as_str(), awaited(&story).as_str()),
            ("Waiting", "pods use the volume: node n1 of the host")
        );
        assert_eq!(story.found(), Ok((0, DATA.to_owned())));
        let request = ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
        let unpublished =
            story.bench.call(|driver| async move { driver.controller_unpublish_volume(with_deadline(request)).await });
        unpublished.await.unwrap();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}
