//! Seeded schedules: many claims in twenty members, made and deleted while all kinds of things go wrong, then healing, then
//! every promise. One seed is one schedule, and gives the same again.

use std::{env, sync::Arc, time::Duration};

use fastrand::Rng;
use futures::future::join_all;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock},
    caller::{Caller, Ending, Script},
    fixture::{self, Planted},
    invariants::{Story, violations},
    virtual_time,
    weather::{STORM, Weather},
};

const MEMBERS: usize = 20;
/// Each is made and deleted.
const CLAIMS: usize = 100;
const OPERATIONS: usize = 2 * CLAIMS;
/// Operations in a quick run.
const FEW: usize = 5000;
/// After the faults are over, so long for everybody to come to an end.
const PATIENCE: Duration = Duration::from_hours(2);
/// A watch that was silenced is given up after five minutes.
const SETTLED: Duration = Duration::from_mins(6);

/// One schedule from beginning to end: what was wrong, and the trace.
fn play(seed: u64) -> (Vec<String>, Vec<String>) {
    virtual_time::run(seed, async {
        let mut chance = Rng::with_seed(seed);
        let bench = Bench::new(seed, MEMBERS, &fixture::moody()).await;
        let mut planted = Planted::everywhere(&bench);
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        let tasks = alive();
        let scripts: Vec<(Duration, Script)> = (0..CLAIMS).map(|number| draw(&mut chance, number)).collect();
        let squatted = scripts.iter().map(|(_, script)| script).filter(|script| script.claim.starts_with("squatted"));
        for script in squatted {
            script.places.iter().for_each(|place| planted.squatter(&bench, *place, &script.claim));
        }
        begin_storm(&bench, seed);
        let lives = scripts.into_iter().map(|(after, script)| tokio::spawn(life(Arc::clone(&bench), after, script)));
        let lives: Vec<_> = lives.collect();
        trouble(&bench, &mut planted, &mut chance).await;
        heal(&bench);
        let Ok(stories) = timeout(PATIENCE, join_all(lives)).await else {
            bench.guard.report("I10: the faults are over, and some claims come to no end");
            return (bench.guard.wrong(), bench.guard.trace());
        };
        let mut stories: Vec<Story> = stories.into_iter().flat_map(Result::unwrap).collect();
        sleep(SETTLED).await;
        let mut wrong = violations(&bench, &stories, &planted);
        if wrong.is_empty() {
            stories = end_all(stories).await;
            sleep(SETTLED).await;
            wrong = violations(&bench, &stories, &planted);
        }
        if alive() != tasks {
            wrong.push(format!("I8: {} tasks are alive, and there were {tasks}", alive()));
        }
        (wrong, bench.guard.trace())
    })
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// One claim of the schedule, and when it is made.
fn draw(chance: &mut Rng, number: usize) -> (Duration, Script) {
    let mut places: Vec<usize> = (0..MEMBERS).collect();
    chance.shuffle(&mut places);
    places.truncate(chance.usize(..4));
    let squatted = chance.u8(..20) == 0 && !places.is_empty();
    let early = Duration::from_millis(chance.u64(..20_000));
    let late = Duration::from_secs(chance.u64(30..180));
    let deleted_after = match chance.u8(..10) {
        _ if squatted => Some(late),
        0..4 => Some(early),
        4..8 => Some(late),
        _ => None,
    };
    let script = Script {
        claim: format!("{}-{number}", if squatted { "squatted" } else { "data" }),
        gibibytes: chance.u64(1..4),
        leaf_class: [fixture::NOW, fixture::NOW, fixture::LATER, fixture::LATER, fixture::KEPT][chance.usize(..5)],
        node_selected: !places.is_empty() && chance.bool(),
        told: squatted || chance.u8(..10) > 0,
        retain: chance.u8(..10) == 0,
        at_once: if chance.u8(..10) == 0 { chance.usize(2..4) } else { 1 },
        asks_again: chance.u8(..6) == 0,
        places,
        deleted_after,
    };
    (Duration::from_millis(chance.u64(..60_000)), script)
}

fn begin_storm(bench: &Arc<Bench>, seed: u64) {
    let weather = Weather::draw(seed, MEMBERS + 1);
    for rule in &weather.rules {
        bench.guard.note(|| format!("{rule:?}"));
    }
    let began = tokio::time::Instant::now();
    bench.guard.set_fate(move |number, at, asked| weather.decide(began.elapsed(), number, at, asked));
}

/// What happens besides: the driver dies and comes back, histories are compacted, members are closed, people make copies.
async fn trouble(bench: &Arc<Bench>, planted: &mut Planted, chance: &mut Rng) {
    let mut left = STORM;
    while !left.is_zero() {
        let pause = Duration::from_millis(chance.u64(1000..30_000)).min(left);
        left -= pause;
        sleep(pause).await;
        let member = chance.usize(..MEMBERS);
        match chance.u8(..6) {
            0 | 1 => {
                bench.guard.note(|| "the driver is killed".to_owned());
                bench.kill();
                sleep(Duration::from_millis(chance.u64(..5000))).await;
                bench.start();
            }
            2 => bench.members[member].compact(),
            3 => cordon(bench, member, chance.bool()),
            4 => limit(bench, member),
            _ => {
                let leaves = bench.members[member].list("persistentvolumeclaims");
                let ours = leaves.iter().find(|leaf| lock(&bench.guard.history).volume_of(leaf).is_some());
                if let Some(leaf) = ours {
                    planted.copy(bench, member, leaf);
                }
            }
        }
    }
}

fn cordon(bench: &Bench, member: usize, closed: bool) {
    let name = bench.members[member].name();
    bench.guard.note(|| format!("{name} is closed: {closed}"));
    let annotate = |secret: &mut serde_json::Value| {
        secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!(closed.to_string());
    };
    bench.host.change("secrets", DRIVER_NAMESPACE, name, annotate).unwrap();
}

/// A quota that leaves hardly any room.
fn limit(bench: &Bench, member: usize) {
    let quota =
        json!({"metadata": {"name": "tight", "namespace": SHOP}, "spec": {"hard": {"persistentvolumeclaims": "2"}}});
    bench.guard.note(|| format!("m{member} has a quota"));
    let _ = bench.members[member].create("resourcequotas", quota);
}

fn heal(bench: &Arc<Bench>) {
    bench.guard.note(|| "the faults are over".to_owned());
    bench.guard.heal();
    for (at, member) in bench.members.iter().enumerate() {
        let _ = member.delete("resourcequotas", SHOP, "tight");
        cordon(bench, at, false);
    }
}

/// A claim's life with its user and its provisioner. Some names are used again.
async fn life(bench: Arc<Bench>, after: Duration, script: Script) -> Vec<Story> {
    sleep(after).await;
    let mut stories = Vec::new();
    let again = script.claim.ends_with('7') && script.deleted_after.is_some() && !script.retain;
    for _ in 0..if again { 2 } else { 1 } {
        let mut caller = Caller::new(&bench, script.clone());
        let user = caller.clone();
        let deletion = async {
            if let Some(after) = script.deleted_after {
                sleep(after).await;
                user.delete_claim();
            }
        };
        let (ending, ()) = tokio::join!(caller.provision(), deletion);
        let deleted = caller.claim_was_deleted();
        if deleted {
            caller.reclaim().await;
        }
        stories.push(Story { caller, ending, deleted });
    }
    stories
}

/// Whoever still has a claim deletes it.
async fn end_all(stories: Vec<Story>) -> Vec<Story> {
    let ends = stories.into_iter().map(async |mut story| {
        if !story.deleted && story.ending == Ending::Provisioned {
            story.caller.delete_claim();
            story.caller.reclaim().await;
            story.deleted = true;
        }
        story
    });
    join_all(ends).await
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}: it must be a number")))
}

fn seeds() -> Vec<u64> {
    let first = number("KOSMOS_CSI_SEED").unwrap_or(1);
    let operations = number("KOSMOS_CSI_FAULTED_OPERATIONS").map_or(FEW, |number| usize::try_from(number).unwrap());
    (first..).take(operations.div_ceil(OPERATIONS)).collect()
}

#[test]
fn every_promise_holds_when_the_faults_are_over() {
    let (seeds, began) = (seeds(), std::time::Instant::now());
    let count = seeds.len();
    let wrong = virtual_time::each(seeds, |seed| {
        let (wrong, trace) = play(seed);
        (!wrong.is_empty()).then(|| format!("seed {seed}:\n{}\n  {}", trace.join("\n"), wrong.join("\n  ")))
    });
    println!("{} operations in {:.1} s", count * OPERATIONS, began.elapsed().as_secs_f64());
    assert!(
        wrong.is_empty(),
        "{} of {count} schedules, such as {}\nplay it again: KOSMOS_CSI_SEED=<seed> KOSMOS_CSI_FAULTED_OPERATIONS=1 \
         cargo test --test faults every_promise",
        wrong.len(),
        wrong[0]
    );
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let (_, first) = play(7);
    let (_, second) = play(7);
    let parts = first.iter().zip(&second).position(|(one, other)| one != other);
    assert_eq!(parts.map(|at| (&first[at], &second[at])), None);
    assert_eq!(first.len(), second.len());
}
