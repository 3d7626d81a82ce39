//! A volume moves again and again, through several members; and members that are silent while it does.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};

use super::{
    CLAIM, CLAIMS, DATA, ENDED, MOVED, MOVES, STEP, Story, VOLUMES, at_the_end, is_slow,
    killed::{PHASES, story_in},
    late::{GONE, is_recreated_late, moved},
    none_is_wrong,
};
use crate::{
    bench::SHOP,
    caller::{Change, Script},
    fixture, virtual_time,
};

/// From the first to the last of them that a member may be silent in.
const ALL_PHASES: [&str; 9] =
    ["Preparing", "Closing", "Waiting", "Isolating", "Copying", "Placing", "Ready", "Switching", "Finishing"];
/// More than any request is waited for, and any pause between two looks.
const SILENT: Duration = Duration::from_mins(2);
/// Much longer.
const AWAY: Duration = Duration::from_mins(20);
/// By which a later move may cost more than the first.
const MORE: u64 = 20;

fn uid(story: &Story) -> String {
    text(&story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap(), "/metadata/uid").to_owned()
}

/// What is written before each is found after it. How many requests each has taken.
pub(super) async fn goes_through(story: &Story, members: impl Iterator<Item = usize>) -> Vec<u64> {
    let mut requests = Vec::new();
    for (round, to) in members.enumerate() {
        let content = format!("round {round}");
        let (at, _) = story.found().unwrap();
        let leaf = story.bench.leaf_behind(text(&story.host_volume(), "/spec/csi/volumeHandle")).unwrap();
        story.play.write(at, text(&leaf, "/spec/volumeName"), &content);
        let sent = story.bench.guard.sent();
        story.asks(to, &json!({}));
        story.comes_to("Succeeded").await;
        requests.push(story.bench.guard.sent() - sent);
        sleep(Duration::from_secs(5)).await;
        assert_eq!(story.found(), Ok((to, content.clone())), "{round}: {}", story.trace());
        assert!(story.kept(at).contains(&content), "{round}: {:?}", story.kept(at));
        assert_eq!(story.left(), [""; 0], "{round}");
        story.bench.host.delete(MOVES, SHOP, "to").unwrap();
        sleep(Duration::from_secs(5)).await;
    }
    requests
}

/// How many claims and volumes of the leaf, and sources that are kept, there are in each member.
fn counted(story: &Story) -> Vec<(usize, usize, usize)> {
    let members = story.bench.members.iter().enumerate();
    members.map(|(at, member)| (member.list(CLAIMS).len(), member.list(VOLUMES).len(), story.kept(at).len())).collect()
}

#[test]
fn volume_that_comes_back_by_a_third_member_has_left_one_source_in_each_and_nothing_else() {
    virtual_time::run(1, async {
        let script = Script { places: vec![0], ..Script::new(CLAIM) };
        let story = Story::in_members(3, &fixture::steady(STEP), script).await;
        let before = uid(&story);
        goes_through(&story, [1, 2, 0].into_iter()).await;
        assert_eq!(uid(&story), before);
        assert_eq!(counted(&story), [(1, 2, 1), (0, 1, 1), (0, 1, 1)], "{}", story.trace());
        let held = [0, 1, 2].map(|at| story.kept(at));
        assert_eq!(held, [["round 0"], ["round 1"], ["round 2"]]);
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

#[test]
fn tenth_move_of_a_volume_is_as_good_as_the_first_and_costs_no_more() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let before = uid(&story);
        let requests = goes_through(&story, (0..10).map(|round| 1 - round % 2)).await;
        assert_eq!(uid(&story), before);
        assert_eq!(counted(&story), [(1, 6, 5), (0, 5, 5)], "{}", story.trace());
        assert!(requests.iter().all(|sent| *sent <= requests[0] + MORE), "{requests:?}");
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

pub(super) fn is_silent(story: &Story, member: usize) {
    story.bench.guard.set_fate(move |_, at, _| if at == member + 1 { Action::Hang } else { Action::Pass });
}

/// What is wrong once the member has been silent for a while.
async fn after_silence(story: &Story, member: usize, may_succeed: &[bool]) -> Vec<String> {
    is_silent(story, member);
    sleep(SILENT).await;
    let is_told = story.is_over() || story.status().contains(&format!("member m{member}: "));
    let untold = (!is_told).then(|| format!("nobody is told that member m{member} is silent: {}", story.status()));
    story.bench.guard.heal();
    untold.into_iter().chain(at_the_end(story, may_succeed).await).collect()
}

fn each_member_in<const N: usize>(phases: [&'static str; N]) -> Vec<(&'static str, usize)> {
    phases.into_iter().flat_map(|phase| [(phase, 0), (phase, 1)]).collect()
}

fn told((phase, member): (&str, usize), wrong: &[String]) -> Option<String> {
    (!wrong.is_empty()).then(|| format!("{phase}, m{member}: {}", wrong.join("\n")))
}

#[test]
fn member_that_is_silent_in_whichever_phase_is_named_and_waited_for() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, each_member_in(ALL_PHASES), |(phase, member)| {
        let wrong = virtual_time::run(1, async {
            let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
            is_slow(&story);
            story.asks(1, &json!({}));
            let end = Instant::now() + MOVED;
            while story.phase() != phase {
                assert!(Instant::now() < end, "{phase} is not seen: {}\n{}", story.status(), story.trace());
                sleep(STEP / 10).await;
            }
            after_silence(&story, member, &[true]).await
        });
        told((phase, member), &wrong)
    }));
}

#[test]
fn member_that_is_silent_while_a_move_is_undone_is_named_and_waited_for() {
    none_is_wrong(&virtual_time::each(virtual_time::THREADS, each_member_in(PHASES), |(phase, member)| {
        let wrong = virtual_time::run(1, async {
            let story = story_in(phase).await;
            story.bench.host.delete(MOVES, SHOP, "to").unwrap();
            after_silence(&story, member, &[false]).await
        });
        told((phase, member), &wrong)
    }));
}

/// Its user's pods need nothing of the member that it came from.
#[test]
fn volume_is_used_from_its_switch_on_though_the_member_of_its_source_is_away() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        story.asks(1, &json!({"cutover": "Manual"}));
        story.comes_to("Ready").await;
        story.bench.host.change(MOVES, SHOP, "to", |of: &mut Value| of["spec"]["approved"] = json!(true)).unwrap();
        while story.phase() != "Switching" {
            sleep(STEP / 10).await;
        }
        is_silent(&story, 0);
        story.comes_to("Finishing").await;
        sleep(SILENT).await;
        let copy = story.bench.members[1].get(CLAIMS, SHOP, CLAIM).unwrap();
        assert!(copy["metadata"]["annotations"]["kosmos.csi.io/move"].is_null(), "{copy}");
        assert_eq!(story.found(), Ok((1, DATA.to_owned())), "{}", story.trace());
        let handle = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
        story.caller.stands_for(&handle);
        for change in [Change::Publish, Change::Expand, Change::Unpublish] {
            let done = timeout(ENDED, story.caller.change(change)).await;
            assert!(done.is_ok(), "{change:?}: {}", story.trace());
        }
        sleep(AWAY).await;
        assert_eq!(story.phase(), "Finishing", "{}", story.trace());
        assert!(story.status().contains("member m0: "), "{}", story.status());
        story.bench.guard.heal();
        assert_eq!(at_the_end(&story, &[true]).await, [""; 0]);
    });
}

/// It has the name at home, and the copy among the movers is what is known of the volume there.
#[test]
fn volume_moves_back_though_the_leaf_claim_of_before_is_recreated_late_meanwhile() {
    virtual_time::run(1, async {
        let story = moved().await;
        story.asks(0, &json!({}));
        story.comes_to("Preparing").await;
        is_recreated_late(&story);
        sleep(AWAY * 2).await;
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
    });
}

/// One that was called off brings the source home with its mark, and another one has succeeded since.
#[test]
fn volume_moves_back_once_the_leaf_claim_has_gone_that_a_former_move_has_recreated_late() {
    virtual_time::run(1, async {
        let (story, marked) = (moved().await, json!(format!("{GONE}/isolated-source")));
        is_recreated_late(&story);
        let mark = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/move"] = marked;
        story.bench.members[0].change(CLAIMS, SHOP, CLAIM, mark).unwrap();
        sleep(AWAY * 2).await;
        assert!(story.bench.members[0].get(CLAIMS, SHOP, CLAIM).is_none(), "{}", story.trace());
        story.asks(0, &json!({}));
        story.comes_to("Succeeded").await;
        assert_eq!(story.found(), Ok((0, DATA.to_owned())), "{}", story.trace());
        assert_eq!(story.left(), [""; 0], "{}", story.trace());
    });
}
