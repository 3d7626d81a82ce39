//! A member that is restored in place while a volume moves, and a copy whose volume somebody makes again or deletes: nobody is given what is
//! older than what was copied, and who waits is told.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{Backup, text};
use tokio::time::{sleep, timeout};
use tonic::Code;

use super::{
    CLAIM, CLAIMS, DATA, MOVES, REMOVED, STEP, Story, VOLUMES, at_the_end,
    forgotten::SURE,
    gone::{SEEN, approves, condition, told},
    hands::{TRIED, calls_off, copies, mover_begins},
    killed::story_in,
    lost::with_a_copy_that_is_not_kept,
    play::Mood,
    rounds::goes_through,
};
use crate::{
    bench::SHOP,
    caller::Script,
    rolled_back::{roll_back, roll_back_member},
    shared::release,
    virtual_time,
};

const OF_BEFORE: &str = "what was there before";
const TOLD: &str = "member m1: the leaf volume of the copy is not as this move left it";

/// The one that the copy has.
fn volume(story: &Story) -> String {
    let volumes = story.bench.members[1].list(VOLUMES);
    assert_eq!(volumes.len(), 1, "{volumes:?}");
    text(&volumes[0], "/metadata/name").to_owned()
}

/// As by who restores a backup of it: under its name, and with all that it says.
fn is_made_again(story: &Story, name: &str) {
    let member = &story.bench.members[1];
    let unheld = member.change(VOLUMES, "", name, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
    member.delete(VOLUMES, "", name).unwrap();
    let mut again = Value::clone(&unheld);
    let metadata = again["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| ["name", "labels", "annotations"].contains(&key.as_str()));
    member.create(VOLUMES, again).unwrap();
    story.play.write(1, name, OF_BEFORE);
}

/// Whatever its user says.
async fn stays_and_is_told_of(story: &Story, phase: &str) {
    approves(story);
    sleep(TRIED).await;
    let stalled = condition(story, "Stalled");
    let (state, message) = told(&stalled);
    assert_eq!((story.phase().as_str(), state), (phase, ["True", "LeafStuck"]), "{message}\n{}", story.trace());
    assert!(message.contains(TOLD), "{phase}: {message}");
}

/// Its copy holds all, and the backup of the member that has it is of when it was being filled.
async fn ready() -> (Story, Backup) {
    let story = story_in("Copying").await;
    mover_begins(&story, 1).await;
    let backup = story.bench.members[1].backup();
    story.play.is(Mood::Well);
    story.comes_to("Ready").await;
    (story, backup)
}

/// The host leads to the copy, with a backup of the same time.
async fn moved() -> (Story, Backup) {
    let (story, backup) = ready().await;
    approves(&story);
    story.comes_to("Succeeded").await;
    sleep(Duration::from_secs(5)).await;
    (story, backup)
}

async fn comes_home_from(story: &Story, backup: &Backup) {
    roll_back_member(&story.bench, 1, backup);
    sleep(SURE * 3).await;
    assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
    assert_eq!(story.left(), [""; 0], "{}", story.trace());
}

#[test]
fn copy_whose_volume_is_another_one_is_given_to_nobody_and_its_move_can_be_called_off() {
    for phase in ["Waiting", "Copying", "Ready"] {
        virtual_time::run(1, async {
            let story = story_in(phase).await;
            is_made_again(&story, &volume(&story));
            stays_and_is_told_of(&story, phase).await;
            calls_off(&story);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{phase}");
            assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{phase}: {}", story.trace());
        });
    }
}

/// It goes with its claim.
#[test]
fn copy_whose_volume_somebody_deletes_is_given_to_nobody_though_its_claim_holds_it() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let (member, name) = (&story.bench.members[1], volume(&story));
        member.delete(VOLUMES, "", &name).unwrap();
        stays_and_is_told_of(&story, "Ready").await;
        let leaving = member.get(VOLUMES, "", &name).unwrap();
        assert!(!text(&leaving, "/metadata/deletionTimestamp").is_empty(), "{leaving}");
        calls_off(&story);
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

/// What was copied since may not be in it, where its storage was restored too.
#[test]
fn copy_whose_member_is_restored_from_a_backup_of_before_it_was_placed_is_given_to_nobody() {
    virtual_time::run(1, async {
        let (story, backup) = ready().await;
        roll_back_member(&story.bench, 1, &backup);
        sleep(SEEN).await;
        stays_and_is_told_of(&story, "Ready").await;
        calls_off(&story);
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

/// Pods may have it again then.
#[test]
fn source_whose_member_is_restored_from_a_backup_of_before_the_move_is_closed_and_copied_once_more() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let backup = story.bench.members[0].backup();
        copies(&story).await;
        roll_back(&story.bench, &backup);
        sleep(SEEN).await;
        story.comes_to("Copying").await;
        assert!(story.bench.members[0].get(CLAIMS, SHOP, CLAIM).is_none(), "{}", story.trace());
        story.play.is(Mood::Well);
        story.comes_to("Succeeded").await;
        sleep(Duration::from_secs(5)).await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
        assert_eq!((story.kept(0), story.left()), (vec![DATA.to_owned()], Vec::new()), "{}", story.trace());
    });
}

/// Where no pod looks for it.
#[test]
fn copy_that_the_host_leads_to_comes_home_where_its_member_is_restored_from_a_backup_of_before_that() {
    virtual_time::run(1, async {
        let (story, backup) = moved().await;
        comes_home_from(&story, &backup).await;
    });
}

/// Of before it was kept: its volume says nothing of where its claim belongs.
#[test]
fn copy_that_the_host_leads_to_comes_home_also_where_the_backup_does_not_know_it_for_one() {
    virtual_time::run(1, async {
        let story = with_a_copy_that_is_not_kept().await;
        let backup = story.bench.members[1].backup();
        story.bench.guard.heal();
        sleep(SEEN).await;
        story.comes_to("Succeeded").await;
        comes_home_from(&story, &backup).await;
    });
}

/// What was copied since the backup may not be in it, where its storage was restored too.
#[test]
fn source_whose_time_has_passed_is_kept_where_the_copy_is_as_a_backup_of_before_it_was_placed_has_it() {
    virtual_time::run(1, async {
        let (story, backup) = moved().await;
        roll_back_member(&story.bench, 1, &backup);
        story.play.write(1, &volume(&story), OF_BEFORE);
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["deleteSourceAfter"] = json!("0s")).unwrap();
        sleep(SURE * 10).await;
        assert_eq!(story.found(), Ok((1, OF_BEFORE.to_owned())), "{}", story.trace());
        let kept = condition(&story, "SourceDeleted");
        let (state, message) = told(&kept);
        assert_eq!((story.kept(0), state), (vec![DATA.to_owned()], ["False", "Kept"]), "{message}\n{}", story.trace());
        assert!(message.contains("neither the one that the host was given"), "{message}");
    });
}

const HAD: &str = "kosmos.csi.io/had-pv";

/// Its member has the first of its leaves again, which has the handle of now, and says that a volume of the host had it: by the handle,
/// or by its UID. The driver knows of the host's volume what that says.
async fn with_its_leaf_of_before(says_handle: bool) -> Story {
    let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
    let handle = story.caller.handle().unwrap().to_owned();
    let had = if says_handle { handle } else { uid(&story) };
    says_it_had(&story, &had);
    let backup = story.bench.members[0].backup();
    goes_through(&story, [1, 0].into_iter()).await;
    for key in ["leafClaimUID", "leafVolume"] {
        let told = text(&story.host_volume(), &format!("/spec/csi/volumeAttributes/{key}")).to_owned();
        story.caller.garble_context(key, &told);
    }
    roll_back(&story.bench, &backup);
    sleep(SEEN).await;
    assert_eq!(story.found(), Ok((0, "round 0".to_owned())), "what it held is older");
    story
}

fn uid(story: &Story) -> String {
    text(&story.host_volume(), "/metadata/uid").to_owned()
}

fn says_it_had(story: &Story, volume: &str) {
    let say = |claim: &mut Value| claim["metadata"]["annotations"][HAD] = json!(volume);
    story.bench.members[0].change(CLAIMS, SHOP, CLAIM, say).unwrap();
}

#[test]
fn leaf_of_before_its_volume_moved_away_and_back_is_given_to_no_node_until_somebody_says_that_it_is_meant() {
    for says_handle in [true, false] {
        virtual_time::run(1, async {
            let mut story = with_its_leaf_of_before(says_handle).await;
            let node = story.caller.node();
            let refused = story.caller.publish(&node).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let told = format!("{HAD}={}", uid(&story));
            assert!(refused.message().contains("may be from before its volume was moved"), "{refused}");
            assert!(refused.message().contains(&told), "{refused}");
            says_it_had(&story, &uid(&story));
            sleep(STEP).await;
            story.caller.publish(&node).await.unwrap();
            story.caller.unpublish().await.unwrap();
        });
    }
}

/// The host would lead to a copy of what may be older, and give that to every pod.
#[test]
fn leaf_of_before_its_volume_moved_away_and_back_is_not_moved_whoever_says_that_it_is_meant() {
    virtual_time::run(1, async {
        let story = with_its_leaf_of_before(true).await;
        for is_meant in [false, true] {
            if is_meant {
                says_it_had(&story, &uid(&story));
            }
            story.asks(1, &json!({}));
            story.comes_to("Refused").await;
            let words = "the driver does not move what was restored from a backup";
            assert!(story.status().contains(words), "{}", story.status());
            assert_eq!(story.found(), Ok((0, "round 0".to_owned())), "{}", story.trace());
            story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            sleep(Duration::from_secs(5)).await;
        }
    });
}

/// It was to be kept, and may be all there is. Asked at once, the driver goes by its watch of the host, and after a silence by a list.
#[test]
fn leaf_of_before_its_volume_moved_away_and_back_is_not_removed_until_somebody_says_that_it_is_meant() {
    for says_handle in [true, false] {
        virtual_time::run(1, async {
            let mut story = with_its_leaf_of_before(says_handle).await;
            let leaf_volume = volume_of(&story);
            release(&story.bench, &story.caller).await;
            for silence in [Duration::ZERO, SEEN] {
                sleep(silence).await;
                let refused = story.caller.delete(story.caller.handle().unwrap()).await.unwrap_err();
                assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
                let told = format!("{HAD}={}", uid(&story));
                assert!(refused.message().contains("may be from before its volume was moved"), "{refused}");
                assert!(refused.message().contains(&told), "{refused}");
                let there = story.bench.members[0].get(VOLUMES, "", &leaf_volume).unwrap();
                assert!(there["metadata"]["deletionTimestamp"].is_null(), "{there}\n{}", story.trace());
                assert_eq!(volume_of(&story), leaf_volume, "{}", story.trace());
            }
            says_it_had(&story, &uid(&story));
            sleep(STEP).await;
            assert!(timeout(REMOVED, story.caller.reclaim()).await.is_ok(), "{}", story.trace());
            assert!(story.bench.members[0].get(VOLUMES, "", &leaf_volume).is_none(), "{}", story.trace());
            assert_eq!(story.kept(1), ["round 1"], "{}", story.trace());
        });
    }
}

/// The leaf's, in the first member: its claim is not on its way out.
fn volume_of(story: &Story) -> String {
    let claim = story.bench.members[0].get(CLAIMS, SHOP, CLAIM).unwrap();
    assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{claim}");
    text(&claim, "/spec/volumeName").to_owned()
}
