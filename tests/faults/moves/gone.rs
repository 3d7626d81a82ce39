//! A member that is gone for good while a volume moves from it or to it: whoever administers the host says so, and the move ends with what
//! there is. Nobody says so by being silent.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{
    CLAIM, CLAIMS, DATA, MOVES, STEP, Story, VOLUMES, YARD, at_the_end, forgotten::SURE, killed::story_in,
    rounds::is_silent,
};
use crate::{
    bench::{DRIVER_NAMESPACE, SHOP, lock},
    caller::Script,
    fixture,
    gone::forget,
    reclaim::events,
    rolled_back::roll_back,
    virtual_time,
};

/// More than it takes to be sure that a member is silent, and to do all that needs no answer of it.
pub(super) const SEEN: Duration = Duration::from_mins(5);
/// Less than that.
const MOMENT: Duration = Duration::from_secs(30);
const AWAY: Duration = Duration::from_mins(20);

pub(super) fn of(story: &Story) -> Value {
    story.bench.host.get(MOVES, SHOP, "to").map(|of| Value::clone(&of)).unwrap_or_default()
}

pub(super) fn condition(story: &Story, kind: &str) -> Value {
    let of = of(story);
    let mut conditions = of["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|one| one["type"] == kind).cloned().unwrap_or_default()
}

/// Its status and reason, and what it says.
pub(super) fn told(condition: &Value) -> ([&str; 2], &str) {
    (["/status", "/reason"].map(|path| text(condition, path)), text(condition, "/message"))
}

/// What it says of what keeps it from going on, for this reason.
fn stalls(story: &Story, reason: &str) -> String {
    let stalled = condition(story, "Stalled");
    let (state, message) = told(&stalled);
    assert_eq!(state, ["True", reason], "{message}\n{}", story.trace());
    message.to_owned()
}

pub(super) fn approves(story: &Story) {
    story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
}

pub(super) fn calls_off(story: &Story) {
    story.bench.host.delete(MOVES, SHOP, "to").unwrap();
}

/// Nothing of it is forgotten yet.
fn leaves(story: &Story, member: usize) {
    story.bench.host.delete("secrets", DRIVER_NAMESPACE, story.bench.members[member].name()).unwrap();
}

fn is_forgotten(story: &Story, member: usize) {
    forget(&story.bench, story.bench.members[member].name());
}

fn comes_back(story: &Story, member: usize) {
    story.bench.guard.heal();
    story.bench.host.create("secrets", fixture::kubeconfig(story.bench.members[member].name())).unwrap();
}

/// What the source or the copy holds, where it stays as it is.
fn held(story: &Story, member: usize, volume: &str) -> Option<String> {
    let there = story.bench.members[member].get(VOLUMES, "", volume)?;
    let stays = there["metadata"]["deletionTimestamp"].is_null()
        && text(&there, "/spec/persistentVolumeReclaimPolicy") == "Retain";
    stays.then(|| story.play.read(member, volume))
}

/// Where the pods of the host's claim would look for it.
fn held_by_copy(story: &Story) -> Option<String> {
    let claim = story.bench.members[1].get(CLAIMS, SHOP, CLAIM)?;
    held(story, 1, text(&claim, "/spec/volumeName"))
}

fn is_called_off_and_keeps_its_copy(story: &Story) {
    let seen = (story.phase(), held_by_copy(story));
    assert_eq!(seen, ("Cancelling".to_owned(), Some(DATA.to_owned())), "{}\n{}", story.status(), story.trace());
}

async fn ends_once_it_is_called_off(story: &Story) {
    calls_off(story);
    sleep(SEEN).await;
    assert!(of(story).is_null(), "{}\n{}", story.status(), story.trace());
}

async fn ends_with_its_copy(story: &Story) {
    approves(story);
    story.comes_to("Succeeded").await;
    assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
}

/// And the name of the leaf volume that was its source.
async fn moved() -> (Story, String) {
    let story = story_in("Ready").await;
    ends_with_its_copy(&story).await;
    let source = text(&of(&story), "/status/source/name").to_owned();
    (story, source)
}

/// The copy holds all when the member of its source is forgotten.
async fn whose_source_is_forgotten(is_called_off: bool) -> Story {
    let story = story_in("Ready").await;
    is_silent(&story, 0);
    if is_called_off {
        calls_off(&story);
    }
    sleep(SEEN).await;
    leaves(&story, 0);
    is_forgotten(&story, 0);
    story
}

/// It comes back, and is not what it was.
async fn whose_source_comes_back(is_called_off: bool, changed: fn(&Story)) -> Story {
    let story = whose_source_is_forgotten(is_called_off).await;
    changed(&story);
    sleep(SEEN).await;
    comes_back(&story, 0);
    sleep(AWAY).await;
    assert_eq!(held_by_copy(&story).as_deref(), Some(DATA), "{}\n{}", story.status(), story.trace());
    story
}

#[test]
fn move_ends_once_the_member_of_its_source_is_forgotten_and_says_what_stays_there() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let source = text(&of(&story), "/status/source/name").to_owned();
        approves(&story);
        while story.phase() != "Switching" {
            sleep(STEP / 10).await;
        }
        is_silent(&story, 0);
        story.comes_to("Finishing").await;
        sleep(SEEN).await;
        let stalled = condition(&story, "Stalled");
        let (state, message) = told(&stalled);
        assert_eq!(state, ["True", "MemberUnreachable"], "{message}\n{}", story.trace());
        let what = format!("volume {source} of member m0");
        let how = "`kosmos-csi member forget m0 --force`";
        for words in ["member m0: ", "(since 20", &what, how] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert!(events(&story.bench).contains(how), "{}", events(&story.bench));
        leaves(&story, 0);
        sleep(AWAY).await;
        let later = condition(&story, "Stalled");
        assert!(told(&later).1.contains("the host has no kubeconfig of it any more"), "{later}");
        assert_eq!(
            (story.phase().as_str(), &later["lastTransitionTime"]),
            ("Finishing", &stalled["lastTransitionTime"])
        );
        is_forgotten(&story, 0);
        story.comes_to("Succeeded").await;
        sleep(SEEN).await;
        let stays = format!("stays as it is, in a member that the host has forgotten: {what}");
        let kept = condition(&story, "SourceDeleted");
        assert_eq!(told(&kept), (["False", "MemberForgotten"], format!("the source {stays}").as_str()));
        assert!(events(&story.bench).contains(&stays), "{}", events(&story.bench));
        assert!(of(&story)["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{}", of(&story));
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
        assert_eq!(held(&story, 0, &source).as_deref(), Some(DATA), "{}", story.trace());
        // It was not gone after all.
        comes_back(&story, 0);
        sleep(SURE).await;
        assert_eq!((story.left(), story.kept(0)), (Vec::new(), vec![DATA.to_owned()]), "{}", story.trace());
        assert_eq!(story.found(), Ok((1, DATA.to_owned())));
        let kept = condition(&story, "SourceDeleted");
        let again = format!("the source is kept, in a member that the host knows again: member m0: volume {source}");
        assert_eq!(told(&kept), (["False", "Kept"], again.as_str()));
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["deleteSourceAfter"] = json!("0s")).unwrap();
        sleep(AWAY).await;
        assert_eq!(
            (held(&story, 0, &source), told(&condition(&story, "SourceDeleted")).0),
            (None, ["True", "Deleted"])
        );
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// Of either side, whether it was called off or not; but nobody is told to remove a member that was silent for a moment.
#[test]
fn move_that_waits_for_a_member_for_more_than_a_minute_says_since_when_and_what_ends_that() {
    for (phase, silent, is_called_off, then) in [
        ("Copying", 0, false, "the driver removes what was copied so far once you call the move off"),
        ("Copying", 1, false, "has to be called off"),
        ("Copying", 1, true, "the move ends, and what was made for the copy stays there"),
        ("Ready", 0, false, "the move goes on with the copy"),
        ("Ready", 0, true, "the copy stays then too"),
    ] {
        virtual_time::run(1, async {
            let story = story_in(phase).await;
            is_silent(&story, silent);
            if is_called_off {
                calls_off(&story);
            }
            sleep(MOMENT).await;
            assert_ne!(told(&condition(&story, "Stalled")).0[1], "MemberUnreachable", "{phase} {silent}");
            sleep(SEEN).await;
            let message = stalls(&story, "MemberUnreachable");
            let how = format!("`kosmos-csi member forget m{silent} --force`");
            for words in [format!("member m{silent}: ").as_str(), "(since 20", &how, then] {
                assert!(message.contains(words), "{phase} {silent}: {words}: {message}");
            }
            story.bench.guard.heal();
            if !is_called_off {
                calls_off(&story);
            }
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{phase} {silent}");
        });
    }
}

/// Else whoever administers the host would do it because the move waits.
#[test]
fn nobody_is_told_that_a_member_can_be_forgotten_which_alone_may_hold_the_data() {
    let words = "so do not type this while that member may come back";
    for (forgotten, is_called_off) in [(1, true), (0, true), (0, false)] {
        virtual_time::run(1, async {
            let story = story_in("Ready").await;
            is_silent(&story, 1 - forgotten);
            leaves(&story, forgotten);
            is_forgotten(&story, forgotten);
            if is_called_off {
                calls_off(&story);
            }
            sleep(SEEN).await;
            let message = stalls(&story, "MemberUnreachable");
            let silent = format!("member m{}: ", 1 - forgotten);
            assert!(message.contains(&silent) && message.contains(words), "{forgotten} {is_called_off}: {message}");
        });
    }
}

#[test]
fn copy_whose_volume_is_gone_is_not_said_to_hold_all_while_the_member_of_its_source_is_silent() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        is_silent(&story, 0);
        let member = &story.bench.members[1];
        let claim = member.get(CLAIMS, SHOP, CLAIM).unwrap();
        let volume = text(&claim, "/spec/volumeName");
        member.change(VOLUMES, "", volume, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
        member.delete(VOLUMES, "", volume).unwrap();
        sleep(SEEN).await;
        let message = stalls(&story, "LeafStuck");
        assert!(message.contains("member m1: ") && message.contains("Do not forget that member"), "{message}");
    });
}

#[test]
fn move_that_is_called_off_ends_once_the_member_of_its_copy_is_forgotten_and_not_before() {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        is_silent(&story, 1);
        calls_off(&story);
        sleep(SEEN).await;
        // Its user has it again.
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
        leaves(&story, 1);
        sleep(SEEN).await;
        assert_eq!(story.phase(), "Cancelling", "{}", story.trace());
        is_forgotten(&story, 1);
        sleep(SEEN).await;
        assert!(of(&story).is_null(), "{}\n{}", story.status(), story.trace());
        assert_eq!(story.found(), Ok((0, DATA.to_owned())));
        // What nobody asked for in there goes, if it was not gone after all.
        comes_back(&story, 1);
        sleep(SURE).await;
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
        assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{}", story.trace());
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// That may be gone for good, and the copy all that there is.
#[test]
fn copy_that_holds_all_stays_while_the_member_of_its_source_does_not_answer_although_its_move_is_called_off() {
    for is_gone in [false, true] {
        virtual_time::run(1, async {
            let story = story_in("Ready").await;
            is_silent(&story, 0);
            calls_off(&story);
            sleep(SEEN).await;
            is_called_off_and_keeps_its_copy(&story);
            assert!(story.status().contains("member m0: "), "{}", story.status());
            if !is_gone {
                story.bench.guard.heal();
                assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
                return;
            }
            leaves(&story, 0);
            is_forgotten(&story, 0);
            sleep(AWAY).await;
            is_called_off_and_keeps_its_copy(&story);
            let message = stalls(&story, "LeafStuck");
            assert!(message.contains("member m1: the copy holds all that was in the source"), "{message}");
            assert_eq!(story.bench.guard.wrong(), [""; 0]);
        });
    }
}

/// As where its member was restored from a backup of before it, or somebody there has removed it.
fn loses_source(story: &Story) {
    let member = &story.bench.members[0];
    let claim = member.get(CLAIMS, YARD, &story.lent()).unwrap();
    let volume = text(&of(story), "/status/source/name").to_owned();
    lock(&story.bench.guard.history).deleted_by_people(text(&claim, "/metadata/uid"));
    for (kind, namespace, name) in [(CLAIMS, YARD, text(&claim, "/metadata/name")), (VOLUMES, "", volume.as_str())] {
        member.change(kind, namespace, name, |one| one["metadata"]["finalizers"] = json!([])).unwrap();
        let _ = member.delete(kind, namespace, name);
    }
}

/// Its user would wait for ever, and hear nothing of it.
#[test]
fn move_whose_source_is_removed_in_its_member_while_it_is_copied_says_so_and_can_be_called_off() {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        loses_source(&story);
        sleep(SEEN).await;
        let message = stalls(&story, "LeafStuck");
        assert!(message.contains("member m0: leaf claim and leaf volume of the source are gone"), "{message}");
        ends_once_it_is_called_off(&story).await;
        assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{}", story.trace());
    });
}

/// Under the name of one that was forgotten.
fn is_another_cluster(story: &Story) {
    let other = |namespace: &mut Value| namespace["metadata"]["uid"] = json!("5e0f2b7c-0d4a-4b8e-9c51-7a1d2e3f4a5b");
    story.bench.members[0].change("namespaces", "", "kube-system", other).unwrap();
}

/// Whatever it has: the source is in the cluster of before, where nobody looks for it any more.
#[test]
fn another_cluster_under_the_name_of_one_that_is_forgotten_says_nothing_of_a_move() {
    for is_called_off in [true, false] {
        virtual_time::run(1, async {
            let story = whose_source_comes_back(is_called_off, is_another_cluster).await;
            if is_called_off {
                let stalled = condition(&story, "Stalled");
                assert!(told(&stalled).1.contains("the host has forgotten the member of the source"), "{stalled}");
            } else {
                ends_with_its_copy(&story).await;
                assert_eq!(told(&condition(&story, "SourceDeleted")).0, ["False", "MemberForgotten"]);
            }
        });
    }
}

/// Volumes of the host may be in that by now.
#[test]
fn another_cluster_that_has_the_name_of_one_that_is_forgotten_and_is_silent_is_not_named_as_one_to_forget() {
    for is_called_off in [true, false] {
        virtual_time::run(1, async {
            let story = whose_source_is_forgotten(is_called_off).await;
            is_another_cluster(&story);
            sleep(SEEN).await;
            comes_back(&story, 0);
            sleep(SEEN).await;
            is_silent(&story, 0);
            sleep(AWAY).await;
            let stalled = condition(&story, "Stalled");
            assert_ne!(told(&stalled).0[1], "MemberUnreachable", "{stalled}\n{}", story.trace());
            assert_eq!(held_by_copy(&story).as_deref(), Some(DATA), "{stalled}");
            if !is_called_off {
                ends_with_its_copy(&story).await;
            }
        });
    }
}

#[test]
fn source_is_not_said_to_be_gone_by_another_cluster_that_has_the_name_of_its_member() {
    virtual_time::run(1, async {
        let (story, source) = moved().await;
        leaves(&story, 0);
        is_forgotten(&story, 0);
        is_another_cluster(&story);
        story.bench.members[0].delete(VOLUMES, "", &source).unwrap();
        sleep(SEEN).await;
        comes_back(&story, 0);
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["deleteSourceAfter"] = json!("0s")).unwrap();
        sleep(AWAY).await;
        let kept = condition(&story, "SourceDeleted");
        assert_eq!(told(&kept).0, ["False", "MemberForgotten"], "{kept}");
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// It may be another one, that has the name since.
#[test]
fn source_is_not_said_to_be_gone_by_a_cluster_of_which_the_move_does_not_know_that_it_had_it() {
    virtual_time::run(1, async {
        let (story, source) = moved().await;
        let as_before = |of: &mut Value| {
            of["status"]["from"]["cluster"] = json!("");
            of["spec"]["deleteSourceAfter"] = json!("0s");
        };
        story.bench.members[0].delete(VOLUMES, "", &source).unwrap();
        while story.bench.members[0].get(VOLUMES, "", &source).is_some() {
            sleep(STEP).await;
        }
        story.bench.host.change(MOVES, SHOP, "to", as_before).unwrap();
        sleep(AWAY).await;
        let kept = condition(&story, "SourceDeleted");
        let (state, message) = told(&kept);
        assert_eq!(state, ["False", "Kept"], "{message}");
        assert!(message.contains("which cluster that member was then is not on record"), "{message}");
    });
}

/// Its member answers, and says what is there.
#[test]
fn source_that_was_made_again_in_a_member_that_is_known_again_is_not_said_to_be_forgotten() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        let source = text(&of(&story), "/status/source/name").to_owned();
        is_silent(&story, 0);
        leaves(&story, 0);
        approves(&story);
        sleep(SEEN).await;
        is_forgotten(&story, 0);
        story.comes_to("Succeeded").await;
        assert_eq!(told(&condition(&story, "SourceDeleted")).0, ["False", "MemberForgotten"]);
        let other = |volume: &mut Value| volume["metadata"]["uid"] = json!("7a1d2e3f-0d4a-4b8e-9c51-5e0f2b7c4a5b");
        story.bench.members[0].change(VOLUMES, "", &source, other).unwrap();
        comes_back(&story, 0);
        sleep(AWAY).await;
        let kept = condition(&story, "SourceDeleted");
        let (state, message) = told(&kept);
        assert_eq!(state, ["False", "Kept"], "{message}");
        assert!(message.contains("was made again by somebody"), "{message}");
    });
}

#[test]
fn copy_that_holds_all_stays_or_is_switched_to_where_the_member_of_its_source_comes_back_without_it() {
    for is_called_off in [true, false] {
        virtual_time::run(1, async {
            let story = whose_source_comes_back(is_called_off, loses_source).await;
            if is_called_off {
                is_called_off_and_keeps_its_copy(&story);
                let message = stalls(&story, "LeafStuck");
                assert!(message.contains("the leaf volume of the source is gone from its member"), "{message}");
            } else {
                ends_with_its_copy(&story).await;
            }
            assert_eq!(story.bench.guard.wrong(), [""; 0]);
        });
    }
}

/// It may be older than the copy, and pods may have it.
#[test]
fn copy_that_holds_all_stays_where_the_member_of_its_source_is_restored_from_a_backup_of_before_the_move() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let backup = story.bench.members[0].backup();
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        is_silent(&story, 0);
        leaves(&story, 0);
        sleep(SEEN).await;
        roll_back(&story.bench, &backup);
        comes_back(&story, 0);
        approves(&story);
        sleep(AWAY).await;
        let back = condition(&story, "Stalled");
        assert_eq!((story.phase().as_str(), told(&back).0), ("Ready", ["True", "LeafStuck"]), "{back}");
        assert!(told(&back).1.contains("member m0: pods may use the source"), "{back}");
        calls_off(&story);
        sleep(AWAY).await;
        let older = condition(&story, "Stalled");
        assert!(told(&older).1.contains("member m1: the copy holds all that was in the source"), "{older}");
        is_called_off_and_keeps_its_copy(&story);
    });
}

/// As where somebody has made the host's volume lead to the copy while its move was called off, and the source's member is there after all.
#[test]
fn copy_that_pods_had_stays_although_the_member_of_its_source_comes_back_as_it_was() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        is_silent(&story, 0);
        calls_off(&story);
        leaves(&story, 0);
        is_forgotten(&story, 0);
        sleep(SEEN).await;
        let handle = text(&of(&story), "/status/to/handle").to_owned();
        let is_had = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/had-pv"] = json!(handle);
        story.bench.members[1].change(CLAIMS, SHOP, CLAIM, is_had).unwrap();
        sleep(SEEN).await;
        comes_back(&story, 0);
        sleep(AWAY).await;
        let stalled = condition(&story, "Stalled");
        assert!(told(&stalled).1.contains("pods may have written on it since"), "{stalled}\n{}", story.trace());
        is_called_off_and_keeps_its_copy(&story);
    });
}

/// The source was out of everybody's reach from before it was copied.
#[test]
fn copy_that_holds_all_is_switched_to_once_the_member_of_its_source_is_forgotten() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        is_silent(&story, 0);
        leaves(&story, 0);
        approves(&story);
        sleep(SEEN).await;
        assert_eq!(story.phase(), "Ready", "{}", story.trace());
        is_forgotten(&story, 0);
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
        assert_eq!(told(&condition(&story, "SourceDeleted")).0, ["False", "MemberForgotten"]);
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// Else pods would end for nothing.
#[test]
fn move_whose_copy_is_in_a_member_that_is_forgotten_says_so_while_pods_are_waited_for() {
    virtual_time::run(1, async {
        let story = story_in("Waiting").await;
        leaves(&story, 1);
        sleep(SEEN).await;
        assert_ne!(told(&condition(&story, "Stalled")).0[1], "MemberUnreachable", "{}", story.status());
        is_forgotten(&story, 1);
        sleep(SEEN).await;
        let message = stalls(&story, "MemberUnreachable");
        assert_eq!(story.phase(), "Waiting", "{message}");
        assert!(message.contains("member m1: the host has forgotten the member of the copy"), "{message}");
        ends_once_it_is_called_off(&story).await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// What was copied is no more than half, perhaps.
#[test]
fn move_whose_source_is_in_a_member_that_is_forgotten_says_so_and_can_be_called_off() {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        is_silent(&story, 0);
        leaves(&story, 0);
        is_forgotten(&story, 0);
        sleep(SEEN).await;
        let message = stalls(&story, "MemberUnreachable");
        let lost = "the driver then removes what was copied so far";
        for words in ["member m0: the host has forgotten the member of the source", lost] {
            assert!(message.contains(words), "{words}: {}: {message}", story.phase());
        }
        ends_once_it_is_called_off(&story).await;
        assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{}", story.trace());
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}
