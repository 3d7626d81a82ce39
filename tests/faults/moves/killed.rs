//! The driver is killed while a move is called off, at every request of that; and twice in one move, also while it is called off.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use fastrand::Rng;
use serde_json::json;
use simulate::faults::Action;

use super::{CLAIM, MOVES, SOME, STEP, Story, at_the_end, none_is_wrong, play::Mood, users::stranger};
use crate::{
    bench::SHOP,
    caller::Script,
    crash::{Point, after_writes, before_requests, is_a_write, kill, points},
    extent::{drawn, is_thorough, tenth},
    fixture, virtual_time,
};

/// How far a move has come when it is called off.
pub(super) const PHASES: [&str; 5] = ["Preparing", "Waiting", "Copying", "Placing", "Ready"];
/// Of the first points at which the driver is killed, of a whole move or one that is called off.
const SOME_FIRST: usize = 4;
/// The same where reads are counted too.
const FEW_FIRST: usize = 2;
/// Of the second points for each of these, where all first ones are played.
const SOME_SECOND: usize = 6;

/// What is under way while the driver dies.
#[derive(Clone, Copy, Debug)]
enum Scenario {
    Whole,
    CalledOff(&'static str),
}

/// Where the driver is killed.
#[derive(Debug)]
enum Kills {
    None,
    /// One after the other.
    AtRequests(Vec<Point>),
    /// The same, where nothing but writes is counted.
    AtWrites(Vec<Point>),
}

/// What a run has shown.
struct Shown {
    requests: u64,
    /// From the last time that the driver was started.
    since: u64,
    /// Likewise.
    writes: u64,
    wrong: Vec<String>,
}

/// A move that has come there, and stays or is about to go on.
pub(super) async fn story_in(phase: &str) -> Story {
    story_among(2, phase).await
}

/// The same between the first two of so many members.
pub(super) async fn story_among(members: usize, phase: &str) -> Story {
    let script = Script { places: vec![0], ..Script::new(CLAIM) };
    let story = Story::in_members(members, &fixture::steady(STEP), script).await;
    match phase {
        "Waiting" => drop(story.bench.members[0].create("pods", stranger("theirs")).unwrap()),
        "Copying" => story.play.is(Mood::Linger),
        _ => {}
    }
    story.asks(1, &json!({"cutover": "Manual"}));
    story.comes_to(phase).await;
    story
}

impl Scenario {
    /// All that comes before.
    async fn story(self) -> Story {
        match self {
            Self::Whole => Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await,
            Self::CalledOff(phase) => story_in(phase).await,
        }
    }

    /// It ends as it has to, whoever dies.
    async fn ends(self, story: &Story) -> Vec<String> {
        match self {
            Self::Whole => {
                story.asks(1, &json!({}));
                at_the_end(story, &[true]).await
            }
            Self::CalledOff(_) => {
                story.bench.host.delete(MOVES, SHOP, "to").unwrap();
                at_the_end(story, &[false]).await
            }
        }
    }
}

fn play(scenario: Scenario, kills: Kills) -> Shown {
    virtual_time::run(1, async {
        let story = scenario.story().await;
        let (bench, writes) = (Arc::clone(&story.bench), Arc::new(AtomicU64::new(0)));
        let (sent, counted) = (bench.guard.sent(), Arc::clone(&writes));
        let killer = tokio::spawn(async move {
            match kills {
                Kills::None => {}
                Kills::AtRequests(points) => return kill(bench, points, || {}).await,
                Kills::AtWrites(points) => {
                    for point in points {
                        point.strike_at_a_write(Arc::clone(&bench)).await;
                    }
                }
            }
            bench.guard.set_fate(move |_, at, asked| {
                counted.fetch_add(is_a_write(at, asked).into(), Ordering::Relaxed);
                Action::Pass
            });
        });
        let wrong = scenario.ends(&story).await;
        let all = story.bench.guard.sent();
        story.bench.guard.heal();
        killer.abort();
        let (requests, since) = (all - sent, all - story.bench.sent_before_start());
        Shown { requests, since, writes: writes.load(Ordering::Relaxed), wrong }
    })
}

fn complaint(scenario: Scenario, kills: Kills) -> Option<String> {
    let told = format!("{scenario:?} {kills:?}");
    let wrong = play(scenario, kills).wrong;
    (!wrong.is_empty()).then(|| format!("{told}: {}", wrong.join("\n")))
}

#[test]
fn move_that_is_called_off_is_undone_wherever_the_driver_is_killed() {
    for phase in PHASES {
        let scenario = Scenario::CalledOff(phase);
        let shown = play(scenario, Kills::None);
        assert!(shown.wrong.is_empty() && shown.requests >= 10, "{phase} {} {:#?}", shown.requests, shown.wrong);
        none_is_wrong(&virtual_time::each(virtual_time::THREADS, drawn(points(shown.requests), SOME), |point| {
            complaint(scenario, Kills::AtRequests(vec![point]))
        }));
    }
}

/// The second one may also strike while the driver starts. All pairs where the environment asks for them; else some, each with
/// another first point.
fn ends_wherever_the_driver_is_killed_twice(scenario: Scenario) {
    let shown = play(scenario, Kills::None);
    assert!(shown.wrong.is_empty() && shown.writes >= 5, "{scenario:?} {} {:#?}", shown.writes, shown.wrong);
    let mut chance = Rng::with_seed(1);
    let firsts =
        drawn(after_writes(shown.writes), SOME_FIRST).into_iter().map(|first| (first, chance.fork())).collect();
    let bad = virtual_time::each(virtual_time::THREADS, firsts, |(first, mut chance)| {
        let after = play(scenario, Kills::AtWrites(vec![first])).writes;
        let seconds: Vec<Point> = after_writes(after).collect();
        let seconds = if is_thorough() { seconds } else { chance.choice(seconds).into_iter().collect() };
        seconds.into_iter().find_map(|second| complaint(scenario, Kills::AtWrites(vec![first, second])))
    });
    none_is_wrong(&bad);
}

#[test]
fn volume_moves_wherever_the_driver_is_killed_twice() {
    ends_wherever_the_driver_is_killed_twice(Scenario::Whole);
}

#[test]
fn move_that_is_called_off_is_undone_wherever_the_driver_is_killed_twice() {
    for phase in PHASES {
        ends_wherever_the_driver_is_killed_twice(Scenario::CalledOff(phase));
    }
}

/// At reads as well: they find what others have done since the last write, as movers and the member's own controllers. Each first point
/// where the environment asks for them, with some second ones, or a tenth of the first points with all second ones; else a few pairs.
fn ends_wherever_the_driver_is_killed_twice_before_any_request(scenario: Scenario) {
    let shown = play(scenario, Kills::None);
    assert!(shown.wrong.is_empty() && shown.requests >= 10, "{scenario:?} {} {:#?}", shown.requests, shown.wrong);
    let (all, mut chance) = (before_requests(shown.requests), Rng::with_seed(2));
    let firsts: Vec<Point> = match tenth() {
        Some(tenth) => all.skip(tenth).step_by(10).collect(),
        None => drawn(all, FEW_FIRST),
    };
    let firsts = firsts.into_iter().map(|first| (first, chance.fork())).collect();
    let played = AtomicU64::new(0);
    let bad = virtual_time::each(virtual_time::THREADS, firsts, |(first, mut chance)| {
        let mut seconds: Vec<Point> = before_requests(play(scenario, Kills::AtRequests(vec![first])).since).collect();
        if tenth().is_none() {
            chance.shuffle(&mut seconds);
            seconds.truncate(if is_thorough() { SOME_SECOND } else { 1 });
        }
        played.fetch_add(seconds.len() as u64, Ordering::Relaxed);
        seconds.into_iter().find_map(|second| complaint(scenario, Kills::AtRequests(vec![first, second])))
    });
    none_is_wrong(&bad);
    eprintln!("figure: {} pairs of kills before requests, {scenario:?}", played.into_inner());
}

#[test]
fn volume_moves_wherever_the_driver_is_killed_twice_before_any_request() {
    ends_wherever_the_driver_is_killed_twice_before_any_request(Scenario::Whole);
}

#[test]
fn move_that_is_called_off_is_undone_wherever_the_driver_is_killed_twice_before_any_request() {
    for phase in PHASES {
        ends_wherever_the_driver_is_killed_twice_before_any_request(Scenario::CalledOff(phase));
    }
}
