//! A volume that somebody is enlarging, or giving another class, when it is to be closed: its copy has what it had when that was made.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::Action,
    storage::{Growth, Work},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use super::{CLAIM, CLAIMS, MOVES, STEP, Story, at_the_end, gone::approves, users::stranger};
use crate::{
    ask::{Target, ask},
    bench::SHOP,
    caller::Script,
    fixture,
    late::patches,
    virtual_time,
};

/// Longer than a move takes that waits for nothing.
const GROWS: Duration = Duration::from_mins(2);
const CLOSED: &str = "shop/none/01234567-89ab-cdef-0123-456789abcdef/source";

fn script() -> Script {
    Script { places: vec![0], ..Script::new(CLAIM) }
}

/// Of the volume's own member, about the volume.
fn target(story: &Story) -> Target {
    let volume = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
    Target { volume, class: fixture::NOW.to_owned(), ..Target::default() }
}

/// Its user asks for more once the copy is being prepared.
async fn prepares_while_it_grows(story: &Story) {
    story.asks(1, &json!({}));
    story.comes_to("Preparing").await;
    let (code, why) = ask(&story.bench, "ControllerExpandVolume", &target(story)).await;
    assert_eq!(code, Code::Aborted, "{why}");
    story.comes_to("Closing").await;
}

/// Its user would hear that the copy is too small once all was copied.
#[test]
fn volume_that_is_being_enlarged_is_not_closed_to_its_pods() {
    virtual_time::run(1, async {
        let mut storage = fixture::steady(STEP);
        storage.resizing = Work::takes(GROWS..=GROWS);
        let story = Story::in_members(2, &storage, script()).await;
        prepares_while_it_grows(&story).await;
        sleep(GROWS / 2).await;
        assert_eq!(story.phase(), "Closing", "{}\n{}", story.status(), story.trace());
        assert!(story.status().contains("the volume is being enlarged"), "{}", story.status());
        story.comes_to("Succeeded").await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// No pod of it needs to be there when it is moved, and without one that would be waited for without an end.
#[test]
fn volume_whose_filesystem_grows_with_its_next_pod_is_not_closed_and_its_user_is_told_to_start_one() {
    virtual_time::run(1, async {
        let mut storage = fixture::steady(STEP);
        storage.classes.iter_mut().for_each(|class| class.growth = Growth::OnNode);
        let story = Story::in_members(2, &storage, script()).await;
        prepares_while_it_grows(&story).await;
        sleep(GROWS).await;
        let (seen, words) = (story.status(), "is being enlarged: its filesystem grows once a pod uses the volume");
        assert!(story.phase() == "Closing" && seen.contains(words), "{seen}\n{}", story.trace());
        let member = &story.bench.members[0];
        member.create("pods", stranger("theirs")).unwrap();
        sleep(STEP * 50).await;
        member.delete("pods", SHOP, "theirs").unwrap();
        story.comes_to("Succeeded").await;
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// The host is told of that a moment later, and pods may have written more by then than the copy holds.
#[test]
fn volume_that_has_become_larger_for_its_claim_since_its_copy_was_made_is_not_closed() {
    virtual_time::run(1, async {
        let story = Story::new(script()).await;
        story.asks(1, &json!({}));
        story.comes_to("Preparing").await;
        let grow = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!("2Gi");
        story.bench.host.change(CLAIMS, SHOP, CLAIM, grow).unwrap();
        let (code, why) = ask(&story.bench, "ControllerExpandVolume", &target(&story)).await;
        assert_eq!(code, Code::Ok, "{why}");
        story.comes_to("Closing").await;
        sleep(GROWS).await;
        let seen = story.status();
        let is_told = seen.contains("has become larger than its copy");
        assert!(story.phase() == "Closing" && is_told, "{seen}\n{}", story.trace());
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

/// As where people of the member have enlarged the leaf, and its user asks for more later: all of it has been copied by then.
#[test]
fn volume_whose_claim_asks_for_more_once_it_is_copied_is_switched() {
    virtual_time::run(1, async {
        let story = Story::new(script()).await;
        let asks_for = |size: &'static str| {
            move |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!(size)
        };
        story.bench.members[0].change(CLAIMS, SHOP, CLAIM, asks_for("3Gi")).unwrap();
        sleep(GROWS).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        story.bench.host.change(CLAIMS, SHOP, CLAIM, asks_for("2Gi")).unwrap();
        approves(&story);
        story.comes_to("Succeeded").await;
    });
}

/// What was asked for at that moment finds another version of the leaf claim, and is not asked for again.
#[test]
fn volume_that_was_closed_a_moment_ago_is_neither_enlarged_nor_given_another_class() {
    for (rpc, field) in [
        ("ControllerExpandVolume", "/spec/resources/requests/storage"),
        ("ControllerModifyVolume", "/spec/volumeAttributesClassName"),
    ] {
        virtual_time::run(1, async {
            let story = Story::new(script()).await;
            let (member, is_closed) = (story.bench.members[0].clone(), AtomicBool::new(false));
            let spec = || story.bench.members[0].get(CLAIMS, SHOP, CLAIM).unwrap()["spec"].clone();
            let before = spec();
            story.bench.guard.set_fate(move |_, at, asked| {
                if at == 1 && patches(asked, field) && !is_closed.swap(true, Ordering::Relaxed) {
                    let close = |claim: &mut Value| {
                        claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(CLOSED);
                    };
                    member.change(CLAIMS, SHOP, CLAIM, close).unwrap();
                }
                Action::Pass
            });
            let (code, why) = ask(&story.bench, rpc, &target(&story)).await;
            assert_eq!(code, Code::Aborted, "{rpc}: {why}");
            assert!(why.contains("is being moved to another member by VolumeMove shop/none"), "{rpc}: {why}");
            assert_eq!(spec(), before, "{rpc}: {}", story.trace());
        });
    }
}
