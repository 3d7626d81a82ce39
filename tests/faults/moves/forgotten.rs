//! Moves that somebody removes by force, and marks of moves that there never were: the leaves are what the host's volume says they are.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked},
    text,
};
use tokio::time::{sleep, timeout};

use tonic::Code;

use super::{
    CLAIM, CLAIMS, DATA, MOMENTS, MOVES, REMOVED, SOME, STEP, Story, VOLUMES, disturbed, gone::approves,
    killed::story_in, none_is_wrong, play::Mood,
};
use crate::{
    ask::{Target, ask},
    bench::{DRIVER_NAMESPACE, SHOP},
    caller::Script,
    extent::drawn,
    fixture,
    rolled_back::{roll_back, roll_back_member},
    virtual_time,
};

/// Longer than it takes to be sure that a move is gone.
pub(super) const SURE: Duration = Duration::from_mins(6);

#[test]
fn move_that_is_removed_by_force_at_any_moment_leaves_one_leaf_and_no_marks() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(MOMENTS, SOME), |moment| {
        disturbed(moment, &[true, false], &async |story: &mut Story| {
            remove_by_force(story);
            sleep(SURE).await;
        })
    }));
}

pub(super) fn remove_by_force(story: &Story) {
    let host = &story.bench.host;
    let _ = host.change(MOVES, SHOP, "to", |of| of["metadata"]["finalizers"] = json!([]));
    let _ = host.delete(MOVES, SHOP, "to");
    // It may have been held once more meanwhile.
    let _ = host.change(MOVES, SHOP, "to", |of| of["metadata"]["finalizers"] = json!([]));
}

/// Whether its data is needed nobody can tell who does not see what the host's volume leads to.
#[test]
fn copy_of_a_move_that_is_gone_stays_while_the_member_of_its_source_is_out_of_sight() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        story.bench.host.delete("secrets", DRIVER_NAMESPACE, "m0").unwrap();
        sleep(Duration::from_secs(5)).await;
        remove_by_force(&story);
        sleep(SURE).await;
        assert_eq!(story.bench.members[1].list(VOLUMES).len(), 1, "{}", story.trace());
    });
}

/// It is all that there is, soon.
#[test]
fn copy_of_a_move_that_is_gone_stays_while_the_volume_of_its_source_is_on_its_way_out() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let (member, source) = (&story.bench.members[0], story.caller.leaf_volume().unwrap());
        member.delete(VOLUMES, "", source).unwrap();
        remove_by_force(&story);
        sleep(SURE).await;
        let leaving = member.get(VOLUMES, "", source).unwrap();
        assert!(!text(&leaving, "/metadata/deletionTimestamp").is_empty(), "{leaving}");
        let copies = story.bench.members[1].list(VOLUMES);
        let policies: Vec<&str> = copies.iter().map(|copy| text(copy, "/spec/persistentVolumeReclaimPolicy")).collect();
        assert_eq!(policies, ["Retain"], "{}", story.trace());
    });
}

/// The host's volume is that of before, from a backup, and the move is in none.
#[test]
fn copy_that_pods_have_written_on_stays_where_a_restored_host_leads_to_its_source() {
    for is_on_a_node in [true, false] {
        virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let before = Value::clone(&story.host_volume());
            story.asks(1, &json!({}));
            let leads = || text(&story.host_volume(), "/spec/csi/volumeHandle").starts_with("m1/");
            while story.bench.host.get(VOLUMES, "", story.caller.volume()).is_none() || !leads() {
                sleep(STEP / 10).await;
            }
            // The move goes no further, and the copy is said to be one.
            let is_move = |asked: &Asked| asked.resource == MOVES && asked.verb.writes();
            let is_copy =
                |asked: &Asked| asked.verb.writes() && asked.name.starts_with("pvc-") && asked.resource == VOLUMES;
            story.bench.guard.set_fate(move |_, at, asked| {
                if is_move(asked) || at == 2 && is_copy(asked) { Action::Hang } else { Action::Pass }
            });
            let volume = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
            let target = Target { member: "m1".to_owned(), volume, ..Target::default() };
            if is_on_a_node {
                let (code, why) = ask(&story.bench, "ControllerPublishVolume", &target).await;
                assert_eq!(code, Code::Ok, "{why}");
            }
            sleep(Duration::from_secs(20)).await;
            story.bench.kill();
            story.bench.guard.heal();
            let give_back = |volume: &mut Value| volume["spec"] = before["spec"].clone();
            story.bench.host.change(VOLUMES, "", story.caller.volume(), give_back).unwrap();
            remove_by_force(&story);
            story.bench.start();
            story.bench.serves().await;
            sleep(SURE).await;
            let copy = story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap_or_else(|| panic!("{}", story.trace()));
            assert!(copy["metadata"].get("deletionTimestamp").is_none(), "{copy}");
            assert_eq!(story.bench.members[1].list(VOLUMES).len(), 1, "{}", story.trace());
            assert!(
                crate::reclaim::events(&story.bench).contains("LeafElsewhere"),
                "{}",
                crate::reclaim::events(&story.bench)
            );
        });
    }
}

/// Whoever may write claims in the member's namespace writes it on his own leaf.
#[test]
fn mark_of_a_move_that_there_never_was_costs_its_writer_a_few_minutes() {
    for part in ["source", "isolated-source", "copy"] {
        virtual_time::run(1, async {
            let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            let mark = format!("shop/none/01234567-89ab-cdef-0123-456789abcdef/{part}");
            let forge = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/move"] = json!(mark);
            story.bench.members[0].change(CLAIMS, SHOP, CLAIM, forge).unwrap();
            sleep(SURE).await;
            assert_eq!(story.left(), [""; 0], "{part}");
            assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{part}");
            story.caller.delete_claim();
            assert!(timeout(REMOVED, story.caller.reclaim()).await.is_ok(), "{part}: {}", story.trace());
            assert_eq!(at_the_end_of_all(&story), 0, "{part}");
        });
    }
}

fn at_the_end_of_all(story: &Story) -> usize {
    story.bench.members.iter().map(|member| member.list(VOLUMES).len()).sum()
}

/// Its handle would be too long, and does not say where its claim was.
#[test]
fn source_of_a_volume_with_a_long_name_comes_home_where_its_move_is_removed_by_force() {
    virtual_time::run(1, async {
        let claim = "a".repeat(120);
        let story = Story::new(Script { places: vec![0], ..Script::new(&claim) }).await;
        assert!(story.caller.handle().unwrap().starts_with("m0///"), "{:?}", story.caller.handle());
        let spec = json!({"claimName": claim, "to": {"member": "m1"}, "cutover": "Manual"});
        story.bench.host.create(MOVES, json!({"metadata": {"name": "to", "namespace": SHOP}, "spec": spec})).unwrap();
        story.comes_to("Ready").await;
        remove_by_force(&story);
        sleep(SURE * 2).await;
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
        let leaf = story.bench.members[0].get(CLAIMS, SHOP, &claim).unwrap_or_else(|| panic!("{}", story.trace()));
        assert_eq!(story.play.read(0, text(&leaf, "/spec/volumeName")), DATA, "{leaf}");
        assert!(story.bench.members[1].list(VOLUMES).is_empty(), "{}", story.trace());
    });
}

/// Two moves on, and the member in between is restored from a backup in which what it has is a copy that nobody had yet.
#[test]
fn source_that_a_later_move_has_kept_goes_with_no_copy_of_an_earlier_one() {
    virtual_time::run(1, async {
        let script = Script { places: vec![0], ..Script::new(CLAIM) };
        let story = Story::in_members(3, &fixture::steady(STEP), script).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        let (member, backup) = (&story.bench.members[1], story.bench.members[1].backup());
        approves(&story);
        story.comes_to("Succeeded").await;
        story.asks_as("on", 2, &json!({}));
        while text(&story.bench.host.get(MOVES, SHOP, "on").unwrap(), "/status/phase") != "Succeeded" {
            sleep(STEP).await;
        }
        roll_back_member(&story.bench, 1, &backup);
        sleep(SURE * 2).await;
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
        assert_eq!(story.found(), Ok((2, DATA.to_owned())));
        let there = member.list(VOLUMES);
        let held = there.iter().filter(|one| one["metadata"]["deletionTimestamp"].is_null());
        let held: Vec<String> = held.map(|one| story.play.read(1, text(one, "/metadata/name"))).collect();
        assert_eq!(held, [DATA], "{there:?}\n{}", story.trace());
    });
}

/// There and back, and the member is restored from a backup in which the first of its leaves is lent: pods would find what was written before.
#[test]
fn source_of_before_takes_no_place_of_what_the_host_has_since() {
    virtual_time::run(1, async {
        let story = story_in("Copying").await;
        let backup = story.bench.members[0].backup();
        story.play.is(Mood::Well);
        approves(&story);
        story.comes_to("Succeeded").await;
        story.asks_as("back", 0, &json!({}));
        while text(&story.bench.host.get(MOVES, SHOP, "back").unwrap(), "/status/phase") != "Succeeded" {
            sleep(STEP).await;
        }
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
        roll_back(&story.bench, &backup);
        sleep(SURE * 2).await;
        assert!(story.found().is_err(), "{:?}\n{}", story.found(), story.trace());
        assert_eq!((story.kept(0), story.left()), (vec![DATA.to_owned()], Vec::new()), "{}", story.trace());
        let told = crate::reclaim::events(&story.bench);
        assert!(told.contains("LeafLost: "), "{told}");
    });
}
