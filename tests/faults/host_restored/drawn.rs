//! The same at moments that are drawn: claims in all states of their lives, and a host that is restored from a backup of some seconds to
//! some minutes ago, while the network fails, the driver restarts or goes on, and what was asked of it before is under way still.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use futures::future::join_all;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    lives::Lives,
    oracle::{self, Strays},
    person,
    plan::{ATTACH_MODE, Day, MEMBERS, Plan},
};
use crate::{
    attach,
    bench::Bench,
    extent::{found, nothing_is_found, seeds},
    fixture::{self, Planted},
    invariants::violations,
    people, prompt, snapshotter, virtual_time,
    weather::{STORM, Weather},
};

const CLAIMS: usize = 60;
/// Made when the host has gone back.
const MORE: usize = 10;
/// One such course of events in ten schedules.
const OPERATIONS: usize = 2000;
/// In which claims are made, the host is backed up, and it goes back. In milliseconds.
const TIME: u64 = 6 * 60_000;
/// A host that goes back less far than from one renewal of the leader's Lease to the next cannot be told from one that does not; while a
/// real one is restored, the leader loses that Lease.
const LEAST: u64 = 15_000;
const SOON: u64 = 2 * 60_000;
/// Until people have read what waits for a node.
const READ: Duration = Duration::from_mins(10);
/// For all to come to rest, also what is forgotten. What the host does not know is counted every ten minutes, and told at the second time.
const SETTLED: Duration = Duration::from_mins(40);
/// For who waited for what a person has removed: his sidecar tries again, twice at most, after five minutes each, and what he does with his
/// volume ends.
const ONCE_MORE: Duration = Duration::from_mins(13);
/// And what no watch shows.
const SWEPT: Duration = Duration::from_mins(45);
const PATIENCE: Duration = Duration::from_hours(2);

fn play(seed: u64, traced: bool) -> (Vec<String>, Vec<String>) {
    virtual_time::run(seed, async {
        let mut chance = Rng::with_seed(seed);
        let bench = Bench::new(seed, MEMBERS, &fixture::moody()).await;
        bench.guard.keeps_trace(traced);
        snapshotter::have_kinds(&bench);
        attach::prepare(&bench, ATTACH_MODE);
        let planted = Planted::everywhere(&bench);
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        let tasks = alive();
        let (lives, day) = (Lives::new(&bench), Day::draw(&mut chance));
        for number in 0..CLAIMS {
            let after = Duration::from_millis(chance.u64(..TIME));
            lives.begin(after, Plan::draw(&mut chance, number, day.is_calm));
        }
        let mut busy = JoinSet::new();
        busy.spawn(trouble(Arc::clone(&bench), chance.fork()));
        goes_back(&bench, &lives, &mut chance, day, seed).await;
        sleep(STORM).await;
        bench.guard.note(|| "the faults are over".to_owned());
        bench.guard.heal();
        drop(busy);
        people::let_go(&bench);
        let mut wrong = settled(&bench, &lives).await;
        if wrong.is_empty() {
            wrong = ended(&bench, &lives, &planted).await;
        }
        if wrong.is_empty() && alive() != tasks {
            wrong.push(format!("I8: {} tasks are alive, and there were {tasks}", alive()));
        }
        (wrong, bench.guard.trace())
    })
}

/// Up to two minutes after the host has gone back, when claims are made as before.
async fn goes_back(bench: &Arc<Bench>, lives: &Arc<Lives>, chance: &mut Rng, day: Day, seed: u64) {
    sleep(Duration::from_millis(chance.u64(60_000..TIME))).await;
    let then = lives.backup();
    let lost = Duration::from_millis(chance.u64(LEAST..TIME));
    let ahead = Duration::from_millis(chance.u64(..100_000)).min(lost);
    sleep(lost.saturating_sub(ahead)).await;
    if !day.is_calm && chance.u8(..3) > 0 {
        storm(bench, seed);
    }
    sleep(ahead).await;
    let (is_down, begins_again) = match chance.u8(..4) {
        0 => (true, true),
        1 => (false, true),
        _ => (false, false),
    };
    if is_down && !day.is_calm {
        bench.kill();
        sleep(Duration::from_millis(chance.u64(..5000))).await;
    }
    lives.go_back(then, chance, day);
    if begins_again && !day.is_calm {
        sleep(Duration::from_millis(chance.u64(..5000))).await;
        bench.start();
    }
    for number in CLAIMS..CLAIMS + MORE {
        let after = Duration::from_millis(chance.u64(..SOON));
        lives.begin(after, Plan::draw(chance, number, false));
    }
}

fn storm(bench: &Bench, seed: u64) {
    let (weather, began) = (Weather::draw(seed, MEMBERS + 1), Instant::now());
    for rule in &weather.rules {
        bench.guard.note(|| format!("{rule:?}"));
    }
    bench.guard.set_fate(move |number, at, asked| weather.decide(began.elapsed(), number, at, asked));
}

/// People of the members delete leaf claims, and administrators of the host change policies and use volumes again.
async fn trouble(bench: Arc<Bench>, mut chance: Rng) {
    let mut busy = JoinSet::new();
    loop {
        sleep(Duration::from_millis(chance.u64(2000..20_000))).await;
        match chance.u8(..4) {
            0 | 1 => {
                let held = chance.bool().then(|| Duration::from_secs(chance.u64(1..60)));
                busy.spawn(people::delete_leaf(Arc::clone(&bench), chance.usize(..MEMBERS), held));
            }
            2 => {
                let wavers = chance.bool().then(|| Duration::from_millis(chance.u64(..10_000)));
                busy.spawn(people::retain_later(Arc::clone(&bench), wavers, chance.u8(..4) > 0));
            }
            _ => people::use_again(&bench),
        }
    }
}

/// What is wrong while the host has forgotten something, and when a person has done away with that.
async fn settled(bench: &Arc<Bench>, lives: &Arc<Lives>) -> Vec<String> {
    sleep(READ).await;
    person::forget_nodes(bench, lives);
    sleep(SETTLED).await;
    let wrong = oracle::wrong(bench, lives, Strays::Stay).await;
    if !wrong.is_empty() {
        return wrong;
    }
    person::remove_strays(bench);
    person::remove_kept(bench);
    sleep(ONCE_MORE).await;
    oracle::wrong(bench, lives, Strays::AreGone).await
}

/// All that there is can be removed, and a new volume is made at once.
async fn ended(bench: &Arc<Bench>, lives: &Arc<Lives>, planted: &Planted) -> Vec<String> {
    let fresh = (0..MEMBERS).map(|member| prompt::volume(bench, member));
    if timeout(PATIENCE, join_all(fresh)).await.is_err() {
        bench.guard.report("I10: all is well, and a new volume cannot be made and removed");
        return bench.guard.wrong();
    }
    if timeout(PATIENCE, person::end_all(bench, lives)).await.is_err() {
        bench.guard.report("I10: some claims come to no end");
        return bench.guard.wrong();
    }
    sleep(SWEPT).await;
    violations(bench, &[], planted)
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

#[test]
fn every_promise_holds_when_the_host_is_restored() {
    let seeds = seeds(OPERATIONS);
    let count = seeds.len();
    let wrong = virtual_time::each(virtual_time::THREADS, seeds, |seed| {
        found(&play(seed, false).0, seed).inspect(|_| println!("seed {seed} found something"))
    });
    nothing_is_found(&wrong, count, "every_promise_holds_when_the_host", |seed| play(seed, true).1);
}
