//! What somebody does to a volume that moves, by hand: he deletes its claims in a member or its volume in the host, takes a name that
//! it needs, or fills a quota. Nothing is lost by that, it ends, and who waits is told what for.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use super::{
    CLAIM, CLAIMS, DATA, MOMENTS, MOVES, SOME, STEP, Story, VOLUMES, YARD, at_the_end, disturbed,
    forgotten::remove_by_force,
    killed::{PHASES, story_in},
    lost::with_a_copy_that_is_not_kept,
    none_is_wrong,
    play::Mood,
};
use crate::{
    bench::{SHOP, lock},
    caller::Script,
    extent::drawn,
    people::hold_in,
    reclaim::events,
    virtual_time,
};

pub(super) const QUOTA: &str = "tight";
/// A finalizer of somebody's.
const THEIRS: &str = "people.example/keep";
/// Longer than a move takes whose requests are slow.
pub(super) const TRIED: Duration = Duration::from_mins(2);
/// More than a move that waits asks in a minute, and all work in the background beside it.
pub(super) const MOST_A_MINUTE: u64 = 600;

async fn story() -> Story {
    Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await
}

/// All that was decided at its beginning, and both movers run and come to no end.
async fn copying() -> Story {
    let story = story().await;
    copies(&story).await;
    story
}

pub(super) async fn copies(story: &Story) {
    story.play.is(Mood::Linger);
    story.asks(1, &json!({}));
    story.comes_to("Copying").await;
    while !(has_mover(story, 0) && has_mover(story, 1)) {
        sleep(STEP).await;
    }
}

/// By their UIDs.
fn movers(story: &Story) -> Vec<String> {
    let pods = story.bench.members.iter().flat_map(|member| member.list("pods"));
    pods.filter(|pod| is_in_the_yard(pod)).map(|pod| text(&pod, "/metadata/uid").to_owned()).collect()
}

/// That runs.
pub(super) fn has_mover(story: &Story, at: usize) -> bool {
    let is_one = |pod: &Value| text(pod, "/metadata/namespace") == YARD && text(pod, "/status/phase") == "Running";
    story.bench.members[at].list("pods").iter().any(|pod| is_one(pod))
}

pub(super) async fn mover_begins(story: &Story, at: usize) {
    while !has_mover(story, at) {
        sleep(STEP).await;
    }
}

async fn has_begun(story: &Story) {
    while story.phase().is_empty() {
        sleep(STEP).await;
    }
}

/// All that its user is told, and whoever administers the host.
fn told(story: &Story) -> String {
    format!("{}\n{}", story.status(), events(&story.bench))
}

pub(super) fn calls_off(story: &Story) {
    let _ = story.bench.host.delete(MOVES, SHOP, "to");
}

/// Somebody deletes claims in a member that are not his.
pub(super) fn delete(story: &Story, at: usize, is_meant: impl Fn(&Value) -> bool) {
    let member = &story.bench.members[at];
    for claim in member.list(CLAIMS).iter().filter(|claim| is_meant(claim)) {
        let (namespace, name) = (text(claim, "/metadata/namespace"), text(claim, "/metadata/name"));
        story.bench.guard.note(|| format!("somebody deletes claim {namespace}/{name} in m{at}"));
        lock(&story.bench.guard.history).deleted_by_people(text(claim, "/metadata/uid"));
        // It may have been on its way out already, and held by nobody.
        let _ = member.delete(CLAIMS, namespace, name);
    }
}

/// What is told of a claim in the yard that somebody's finalizer holds.
fn kept_by(story: &Story, at: usize) -> String {
    let claim = format!("{YARD}/{}", story.lent());
    format!("the claim that is being deleted is kept by finalizer {THEIRS} of claim {claim} in member m{at}")
}

/// The mover is gone, and nobody has said how it ended: its node was taken away.
pub(super) fn loses_mover(story: &Story, at: usize) {
    let member = &story.bench.members[at];
    for pod in member.list("pods").iter().filter(|pod| is_in_the_yard(pod)) {
        member.delete_now("pods", YARD, text(pod, "/metadata/name")).unwrap();
    }
}

fn is_at_home(claim: &Value) -> bool {
    text(claim, "/metadata/namespace") == SHOP
}

pub(super) fn is_in_the_yard(claim: &Value) -> bool {
    text(claim, "/metadata/namespace") == YARD
}

fn is_a_copy(claim: &Value) -> bool {
    text(claim, "/metadata/annotations/kosmos.csi.io~1move").ends_with("/copy")
}

fn it_moves_whenever_they_are_deleted(at: usize, is_meant: fn(&Value) -> bool) {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true], &async |story: &mut Story| {
            has_begun(story).await;
            // From then on a copy is the leaf, and no move's alone.
            if at == 0 || !["Switching", "Finishing", "Succeeded"].contains(&story.phase().as_str()) {
                delete(story, at, is_meant);
            }
        })
    }));
}

#[test]
fn volume_moves_at_whichever_moment_somebody_deletes_its_claim_at_home() {
    it_moves_whenever_they_are_deleted(0, is_at_home);
}

#[test]
fn volume_moves_at_whichever_moment_somebody_deletes_the_claim_by_which_it_is_lent() {
    it_moves_whenever_they_are_deleted(0, is_in_the_yard);
}

#[test]
fn volume_moves_at_whichever_moment_somebody_deletes_the_claim_of_its_copy() {
    it_moves_whenever_they_are_deleted(1, is_a_copy);
}

/// Its mover keeps it, also once that has ended.
#[test]
fn claim_that_somebody_deletes_while_a_mover_has_it_is_recreated_and_the_volume_moves() {
    for at in [0, 1] {
        virtual_time::run(1, async {
            let story = copying().await;
            delete(&story, at, is_in_the_yard);
            sleep(STEP * 50).await;
            story.play.is(Mood::Well);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "m{at}");
        });
    }
}

/// From a backup, with what it said of the leaf: no volume is bound to it.
#[test]
fn claim_that_somebody_restores_where_that_of_the_source_was_ends_no_copy() {
    virtual_time::run(1, async {
        let story = story().await;
        let member = &story.bench.members[0];
        let mut backup = Value::clone(&member.get(CLAIMS, SHOP, CLAIM).unwrap());
        let metadata = backup["metadata"].as_object_mut().unwrap();
        metadata.retain(|key, _| ["name", "namespace", "labels", "annotations"].contains(&key.as_str()));
        let annotations = metadata["annotations"].as_object_mut().unwrap();
        annotations.retain(|key, _| key.starts_with("kosmos.csi.io/"));
        backup["status"] = json!({});
        copies(&story).await;
        let before = movers(&story);
        let restored = member.create(CLAIMS, backup).unwrap();
        lock(&story.bench.guard.history).plant(&restored);
        sleep(TRIED).await;
        assert_eq!(movers(&story), before, "{}", story.trace());
        let told = "in the member of the source, a claim has the name of the source's leaf claim";
        assert!(story.status().contains(told), "{}", story.status());
        member.delete(CLAIMS, SHOP, CLAIM).unwrap();
        story.play.is(Mood::Well);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// Its mover has gone, and another one would be begun and ended again and again.
#[test]
fn copy_whose_claim_stays_on_its_way_out_is_waited_for_in_peace() {
    virtual_time::run(1, async {
        let story = copying().await;
        let (member, lent) = (&story.bench.members[1], story.lent());
        hold_in(member, YARD, &lent, THEIRS, true);
        delete(&story, 1, is_in_the_yard);
        loses_mover(&story, 1);
        sleep(TRIED).await;
        let sent = story.bench.guard.sent();
        sleep(Duration::from_mins(1)).await;
        let sent = story.bench.guard.sent() - sent;
        assert!(sent <= MOST_A_MINUTE, "{sent} requests in a minute: {}", story.trace());
        assert_eq!(story.phase(), "Copying", "{}", story.trace());
        let awaited = format!("the copy's claim is being recreated; {}", kept_by(&story, 1));
        assert!(story.status().contains(&awaited), "{}", story.status());
        hold_in(member, YARD, &lent, THEIRS, false);
        story.play.is(Mood::Well);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

#[test]
fn whoever_keeps_a_claim_of_the_copy_that_is_to_go_is_named_while_its_move_is_undone() {
    virtual_time::run(1, async {
        let story = copying().await;
        hold_in(&story.bench.members[1], YARD, &story.lent(), THEIRS, true);
        calls_off(&story);
        sleep(TRIED).await;
        assert_eq!(story.phase(), "Cancelling", "{}", story.trace());
        let awaited = format!("member m1 removes what was made for the copy; {}", kept_by(&story, 1));
        assert!(story.status().contains(&awaited), "{}", story.status());
        hold_in(&story.bench.members[1], YARD, &story.lent(), THEIRS, false);
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

#[test]
fn whoever_keeps_the_claim_by_which_the_source_was_lent_is_named_once_the_volume_is_switched() {
    virtual_time::run(1, async {
        let story = story_in("Ready").await;
        hold_in(&story.bench.members[0], YARD, &story.lent(), THEIRS, true);
        story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
        sleep(TRIED).await;
        assert_eq!(
            (story.phase().as_str(), story.found()),
            ("Finishing", Ok((1, DATA.to_owned()))),
            "{}",
            story.trace()
        );
        assert!(story.status().contains(&kept_by(&story, 0)), "{}", story.status());
        hold_in(&story.bench.members[0], YARD, &story.lent(), THEIRS, false);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// As on a node that is dead: nobody says that its containers have ended.
#[test]
fn mover_that_does_not_end_is_named_with_its_node() {
    virtual_time::run(1, async {
        let story = copying().await;
        let member = &story.bench.members[1];
        let pod = member.list("pods").into_iter().find(|pod| is_in_the_yard(pod)).unwrap();
        let (name, node) = (text(&pod, "/metadata/name"), text(&pod, "/spec/nodeName"));
        assert!(!node.is_empty(), "{pod}");
        let hold = |finalizers: Value| {
            member.change("pods", YARD, name, |pod| pod["metadata"]["finalizers"] = finalizers.clone()).unwrap();
        };
        hold(json!([THEIRS]));
        calls_off(&story);
        sleep(TRIED).await;
        assert_eq!(story.phase(), "Cancelling", "{}", story.trace());
        let awaited = format!("pod {YARD}/{name} of member m1 on node {node} has not ended");
        assert!(story.status().contains(&awaited), "{}", story.status());
        hold(json!([]));
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

#[test]
fn copy_whose_claim_cannot_be_recreated_among_the_movers_is_waited_for_and_its_user_told_why() {
    virtual_time::run(1, async {
        let story = copying().await;
        fill_quota(&story, 1, YARD);
        delete(&story, 1, is_in_the_yard);
        loses_mover(&story, 1);
        sleep(TRIED).await;
        assert_eq!(story.phase(), "Copying", "{}", story.trace());
        is_said(&story, "exceeded quota: tight", 1, &format!("{YARD}/{}", story.lent()));
        story.bench.members[1].delete("resourcequotas", YARD, QUOTA).unwrap();
        story.play.is(Mood::Well);
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// What was copied is lost, and nothing else is: the source is whole.
#[test]
fn copy_whose_volume_somebody_deletes_is_told_of_until_its_move_is_called_off() {
    for with_its_claim in [false, true] {
        virtual_time::run(1, async {
            let story = copying().await;
            let member = &story.bench.members[1];
            let volume = text(&member.get(CLAIMS, YARD, &story.lent()).unwrap(), "/spec/volumeName").to_owned();
            if with_its_claim {
                delete(&story, 1, is_in_the_yard);
                loses_mover(&story, 1);
            }
            member.change(VOLUMES, "", &volume, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
            member.delete(VOLUMES, "", &volume).unwrap();
            sleep(TRIED).await;
            assert_eq!(story.phase(), "Copying", "{with_its_claim}: {}", story.trace());
            let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
            let condition = &of["status"]["conditions"][0];
            assert_eq!([text(condition, "/status"), text(condition, "/reason")], ["True", "LeafStuck"], "{condition}");
            let message = text(condition, "/message");
            assert!(message.contains("member m1: the leaf volume of the copy is gone"), "{with_its_claim}: {message}");
            calls_off(&story);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{with_its_claim}");
        });
    }
}

/// Its claim is where pods look for it by then, and would keep that name from a later move.
#[test]
fn copy_at_home_whose_volume_somebody_deletes_goes_with_its_move_and_another_can_be_asked_for() {
    for by_force in [false, true] {
        virtual_time::run(1, async {
            let story = story_in("Ready").await;
            let member = &story.bench.members[1];
            let volume = text(&member.get(CLAIMS, SHOP, CLAIM).unwrap(), "/spec/volumeName").to_owned();
            member.change(VOLUMES, "", &volume, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
            member.delete(VOLUMES, "", &volume).unwrap();
            sleep(TRIED).await;
            assert_eq!(story.phase(), "Ready", "{by_force}: {}", story.trace());
            let told = story.status();
            assert!(told.contains("member m1: the leaf volume of the copy is gone"), "{by_force}: {told}");
            if by_force {
                remove_by_force(&story);
            } else {
                calls_off(&story);
            }
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{by_force}");
            assert!(member.get(CLAIMS, SHOP, CLAIM).is_none(), "{by_force}: {}", story.trace());
            story.asks(1, &json!({}));
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{by_force}");
        });
    }
}

/// Nothing is in it then, and nobody but the move would let it go.
#[test]
fn copy_whose_claim_somebody_deletes_before_its_volume_is_kept_is_begun_again_with_another() {
    virtual_time::run(1, async {
        let story = with_a_copy_that_is_not_kept().await;
        let uid = |story: &Story| {
            let there = story.bench.members[1].list(CLAIMS).into_iter().find(|claim| is_in_the_yard(claim));
            there.map(|claim| text(&claim, "/metadata/uid").to_owned())
        };
        let before = uid(&story);
        delete(&story, 1, is_in_the_yard);
        assert_eq!(uid(&story), before, "its mover keeps it");
        sleep(TRIED).await;
        assert_eq!(story.phase(), "Preparing", "{}", story.trace());
        assert!(uid(&story).is_some_and(|uid| Some(uid) != before), "{}", story.trace());
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
        assert_eq!(story.bench.members[1].list(VOLUMES).len(), 1, "{}", story.trace());
    });
}

/// It stays as long as its claim is there, and nothing takes that back.
#[test]
fn move_whose_volume_its_user_deletes_in_the_host_at_any_moment_is_done_or_can_be_called_off() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            // At one moment of the switch there is none.
            let _ = story.bench.host.delete(VOLUMES, "", story.caller.volume());
            sleep(TRIED).await;
            if !story.is_over() {
                let is_stalled =
                    text(&story.bench.host.get(MOVES, SHOP, "to").unwrap(), "/status/conditions/0/status") == "True";
                assert!(is_stalled, "it goes on and on: {}\n{}", story.status(), story.trace());
                calls_off(story);
            }
        })
    }));
}

/// It is called off by itself in that phase, where its volume in the host is what somebody has made of it.
async fn called_off_in(phase: &str, why: &str, loses: impl Fn(&Story)) -> Story {
    let story = story_in(phase).await;
    loses(&story);
    story.bench.host.change(MOVES, SHOP, "to", |of| of["spec"]["approved"] = json!(true)).unwrap();
    sleep(TRIED).await;
    let why = format!("called off, because the host's volume {why}");
    assert!(told(&story).contains(&why), "{phase}: {}\n{}", told(&story), story.trace());
    assert_eq!(story.phase(), "Cancelled", "{phase}: {}", story.trace());
    story
}

#[test]
fn move_whose_volume_its_user_deletes_in_the_host_before_the_switch_is_called_off_and_says_why() {
    for phase in PHASES {
        virtual_time::run(1, async {
            let loses = |story: &Story| story.bench.host.delete(VOLUMES, "", story.caller.volume()).unwrap();
            let story = called_off_in(phase, "is being deleted", loses).await;
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{phase}");
        });
    }
}

/// Its finalizers are taken off, as a claim has it. What it was.
fn deletes_by_force(story: &Story) -> Value {
    let (host, name) = (&story.bench.host, story.caller.volume());
    let volume = host.change(VOLUMES, "", name, |volume| volume["metadata"]["finalizers"] = json!([])).unwrap();
    host.delete(VOLUMES, "", name).unwrap();
    Value::clone(&volume)
}

#[test]
fn move_whose_volume_somebody_makes_again_in_the_host_is_called_off_and_says_why() {
    for phase in PHASES {
        virtual_time::run(1, async {
            let loses = |story: &Story| {
                let mut again = deletes_by_force(story);
                let metadata = again["metadata"].as_object_mut().unwrap();
                metadata.retain(|key, _| ["name", "labels", "annotations"].contains(&key.as_str()));
                story.bench.host.create(VOLUMES, again).unwrap();
            };
            let story = called_off_in(phase, "is gone", loses).await;
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{phase}");
        });
    }
}

/// Nobody knows whether its data is wanted, so it stays.
#[test]
fn move_whose_volume_is_gone_in_the_host_is_called_off_and_its_data_stays_in_the_member_where_it_was() {
    for phase in PHASES {
        virtual_time::run(1, async {
            let loses = |story: &Story| {
                drop(deletes_by_force(story));
                lock(&story.bench.guard.history).let_go(story.caller.volume());
            };
            let story = called_off_in(phase, "is gone", loses).await;
            assert_eq!(story.left(), [""; 0], "{phase}: {}", story.trace());
            let held = |at: usize| {
                let volumes = story.bench.members[at].list(VOLUMES).into_iter();
                volumes.map(|one| story.play.read(at, text(&one, "/metadata/name"))).collect::<Vec<_>>()
            };
            assert_eq!((held(0), held(1)), (vec![DATA.to_owned()], Vec::new()), "{phase}: {}", story.trace());
            assert_eq!(story.bench.guard.wrong(), [""; 0], "{phase}");
        });
    }
}

/// A claim of somebody's where a leaf is to be, or no room in a quota for one; and what is to be said then.
#[derive(Clone, Copy, Debug)]
enum Obstacle {
    Name,
    Quota,
}

const OBSTACLES: [(Obstacle, &str); 2] =
    [(Obstacle::Name, "another claim has its name"), (Obstacle::Quota, "exceeded quota: tight")];

pub(super) fn fill_quota(story: &Story, at: usize, namespace: &str) {
    let spec = json!({"hard": {"persistentvolumeclaims": "0"}});
    let quota = json!({"metadata": {"name": QUOTA, "namespace": namespace}, "spec": spec});
    story.bench.members[at].create("resourcequotas", quota).unwrap();
}

impl Obstacle {
    fn comes(self, story: &Story, at: usize) {
        match self {
            Self::Name => {
                let spec = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this",
                    "resources": {"requests": {"storage": "1Gi"}}});
                let claim = json!({"metadata": {"name": CLAIM, "namespace": SHOP}, "spec": spec});
                story.bench.members[at].create(CLAIMS, claim).unwrap();
            }
            Self::Quota => fill_quota(story, at, SHOP),
        }
    }

    fn goes(self, story: &Story, at: usize) {
        let member = &story.bench.members[at];
        match self {
            Self::Name => {
                let theirs = member.get(CLAIMS, SHOP, CLAIM).unwrap();
                assert!(text(&theirs, "/metadata/deletionTimestamp").is_empty(), "{}", story.trace());
                assert!(theirs["metadata"]["labels"].is_null(), "{theirs}");
                member.delete(CLAIMS, SHOP, CLAIM).unwrap();
            }
            Self::Quota => member.delete("resourcequotas", SHOP, QUOTA).unwrap(),
        }
    }
}

/// Where pods look for a leaf.
const HOME: &str = "shop/data";

/// By the condition of the move itself, and as an event on the claim.
fn is_said(story: &Story, words: &str, at: usize, claim: &str) {
    let of = story.bench.host.get(MOVES, SHOP, "to").unwrap();
    let condition = &of["status"]["conditions"][0];
    let message = text(condition, "/message");
    assert_eq!([text(condition, "/status"), text(condition, "/reason")], ["True", "LeafStuck"], "{condition}");
    assert!(message.contains(words) && message.contains(&format!("member m{at}: leaf claim {claim}")), "{message}");
    let events = story.bench.host.list("events");
    let is_told = |event: &Value| text(event, "/reason") == "MoveStalled" && text(event, "/message").contains(words);
    for kind in ["VolumeMove", "PersistentVolumeClaim"] {
        let told = |event: &Value| text(event, "/involvedObject/kind") == kind && is_told(event);
        assert!(events.iter().any(|event| told(event)), "{kind} {words}: {events:?}");
    }
}

#[test]
fn source_that_cannot_come_home_is_kept_and_its_user_told_why_until_it_can() {
    for (obstacle, words) in OBSTACLES {
        virtual_time::run(1, async {
            let story = copying().await;
            obstacle.comes(&story, 0);
            calls_off(&story);
            sleep(TRIED).await;
            assert_eq!(story.phase(), "Cancelling", "{obstacle:?}: {}", story.trace());
            let told = told(&story);
            assert!(told.contains("LeafStuck: ") && told.contains(words) && told.contains("member m0"), "{told}");
            is_said(&story, words, 0, HOME);
            let source = story.bench.members[0].get(VOLUMES, "", story.caller.leaf_volume().unwrap()).unwrap();
            assert_eq!(text(&source, "/spec/persistentVolumeReclaimPolicy"), "Retain", "{obstacle:?}");
            assert_eq!(story.play.read(0, text(&source, "/metadata/name")), DATA, "{obstacle:?}");
            obstacle.goes(&story, 0);
            assert_eq!(at_the_end(&story, &[false]).await, [""; 0], "{obstacle:?}");
        });
    }
}

#[test]
fn copy_that_cannot_come_home_is_waited_for_and_its_user_told_why_until_it_can() {
    for (obstacle, words) in OBSTACLES {
        virtual_time::run(1, async {
            let story = copying().await;
            obstacle.comes(&story, 1);
            story.play.is(Mood::Well);
            sleep(TRIED).await;
            assert_eq!(story.phase(), "Placing", "{obstacle:?}: {}", story.trace());
            let told = told(&story);
            assert!(told.contains(words) && told.contains("member m1"), "{obstacle:?}: {told}");
            is_said(&story, words, 1, HOME);
            obstacle.goes(&story, 1);
            assert_eq!(at_the_end(&story, &[true]).await, [""; 0], "{obstacle:?}");
        });
    }
}

/// That of the copy, once its move is called off; nobody is to remove somebody's claim for it.
#[test]
fn obstacle_that_is_in_nobodys_way_any_more_is_told_no_more() {
    virtual_time::run(1, async {
        let story = copying().await;
        Obstacle::Name.comes(&story, 1);
        story.play.is(Mood::Well);
        sleep(TRIED).await;
        is_said(&story, OBSTACLES[0].1, 1, HOME);
        hold_in(&story.bench.members[0], YARD, &story.lent(), THEIRS, true);
        calls_off(&story);
        // Until the copy has gone. What was found before is still no older than a minute then.
        sleep(STEP * 100).await;
        for _ in 0..100 {
            assert_eq!(story.phase(), "Cancelling", "{}", story.trace());
            assert!(!story.status().contains("LeafStuck"), "{}\n{}", story.status(), story.trace());
            sleep(STEP * 5).await;
        }
        assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{}", story.trace());
        assert!(story.status().contains(&kept_by(&story, 0)), "{}", story.status());
        hold_in(&story.bench.members[0], YARD, &story.lent(), THEIRS, false);
        Obstacle::Name.goes(&story, 1);
        assert_eq!(at_the_end(&story, &[false]).await, [""; 0]);
    });
}

#[test]
fn move_to_where_a_quota_is_used_up_is_refused_and_says_so() {
    virtual_time::run(1, async {
        let story = story().await;
        Obstacle::Quota.comes(&story, 1);
        story.asks(1, &json!({}));
        story.comes_to("Refused").await;
        assert!(story.status().contains("exceeded quota: tight"), "{}", story.status());
        assert!(story.status().contains("member m1"), "{}", story.status());
        assert_eq!((story.left(), story.found()), (Vec::new(), Ok((0, DATA.to_owned()))));
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}
