//! Seeded schedules: many claims in twenty members, made and deleted while all kinds of things go wrong, then healing, then
//! every promise. One seed is one schedule, and gives the same again.

mod photos;

use std::{
    env,
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use tokio::time::{sleep, timeout};

use self::photos::{Album, Photo};
use crate::{
    bench::{Bench, lock},
    caller::{Caller, Change, Ending, Script},
    fixture::{self, Planted},
    invariants::{Story, violations},
    people, prompt,
    snapshotter::{self, Snapshotter},
    virtual_time,
    weather::{STORM, Weather},
};

const MEMBERS: usize = 20;
/// What happens to volumes while they live.
const CHANGES: [&[Change]; 6] = [
    &[],
    &[],
    &[Change::Publish, Change::Unpublish],
    &[Change::Publish, Change::Expand],
    &[Change::Modify, Change::Publish, Change::Expand, Change::Unpublish],
    &[Change::Expand, Change::Modify],
];
/// Each is made and deleted.
const CLAIMS: usize = 100;
const OPERATIONS: usize = 2 * CLAIMS;
/// Operations in a quick run; `make test` asks for more.
const FEW: usize = 1000;
/// After the faults are over, so long for everybody to come to an end.
const PATIENCE: Duration = Duration::from_hours(2);
/// A watch that was silenced is given up after five minutes.
const SETTLED: Duration = Duration::from_mins(6);

/// One schedule from beginning to end: what was wrong, and the trace.
fn play(seed: u64) -> (Vec<String>, Vec<String>) {
    virtual_time::run(seed, async {
        let mut chance = Rng::with_seed(seed);
        let bench = Bench::new(seed, MEMBERS, &fixture::moody()).await;
        snapshotter::have_kinds(&bench);
        let planted = Arc::new(Mutex::new(Planted::everywhere(&bench)));
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        let tasks = alive();
        let scripts: Vec<(Duration, Script, Option<Photo>)> =
            (0..CLAIMS).map(|number| draw(&mut chance, number)).collect();
        let squatted =
            scripts.iter().map(|(_, script, _)| script).filter(|script| script.claim.starts_with("squatted"));
        for script in squatted {
            script.places.iter().for_each(|place| lock(&planted).squatter(&bench, *place, &script.claim));
        }
        begin_storm(&bench, seed);
        let lives = scripts
            .into_iter()
            .map(|(after, script, photo)| tokio::spawn(life(Arc::clone(&bench), after, script, photo)));
        let lives: Vec<_> = lives.collect();
        people::trouble(&bench, &planted, &mut chance, STORM).await;
        people::heal(&bench, &planted);
        let Ok(stories_of_all) = timeout(PATIENCE, join_all(lives)).await else {
            bench.guard.report("I10: the faults are over, and some claims come to no end");
            return (bench.guard.wrong(), bench.guard.trace());
        };
        let (mut stories, mut kept) = (Vec::new(), Vec::new());
        for album in stories_of_all.into_iter().map(Result::unwrap) {
            stories.extend(album.stories);
            kept.extend(album.kept);
        }
        sleep(SETTLED).await;
        let planted = lock(&planted).clone();
        let mut wrong = violations(&bench, &stories, &planted);
        if wrong.is_empty() {
            let fresh = (0..MEMBERS).map(|member| prompt::volume(&bench, member));
            match timeout(PATIENCE, join_all(fresh)).await {
                Ok(fresh) => stories.extend(fresh),
                Err(_) => bench.guard.report("I10: all is well, and a new volume cannot be made and removed"),
            }
            snapshotter::are_listed(&bench, &kept).await;
            (stories, ()) = tokio::join!(end_all(stories), remove_all(kept));
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
fn draw(chance: &mut Rng, number: usize) -> (Duration, Script, Option<Photo>) {
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
        changes: CHANGES[chance.usize(..CHANGES.len())],
        binding: [None, None, None, Some("consumer"), Some("deferred"), Some("selected-node")][chance.usize(..6)],
        on_node: chance.u8(..3) == 0,
        places,
        deleted_after,
        source: None,
        parameters: &[],
    };
    let after = Duration::from_millis(chance.u64(..60_000));
    // Nothing can be cut of a volume that waits for a pod, and none comes.
    let photo = (chance.bool() && script.binding != Some("deferred")).then(|| Photo::draw(chance));
    (after, script, photo)
}

fn begin_storm(bench: &Arc<Bench>, seed: u64) {
    let weather = Weather::draw(seed, MEMBERS + 1);
    for rule in &weather.rules {
        bench.guard.note(|| format!("{rule:?}"));
    }
    let began = tokio::time::Instant::now();
    bench.guard.set_fate(move |number, at, asked| weather.decide(began.elapsed(), number, at, asked));
}

/// A claim's life with its user and its provisioner. Some names are used again.
async fn life(bench: Arc<Bench>, after: Duration, script: Script, photo: Option<Photo>) -> Album {
    sleep(after).await;
    let mut album = Album::default();
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
        let living = async {
            let ending = caller.provision().await;
            let photo = photo.clone().filter(|_| ending == Ending::Provisioned);
            let photo = photo.map(|photo| tokio::spawn(photo.live(Arc::clone(&bench), caller.clone())));
            if ending == Ending::Provisioned {
                caller.live().await;
            }
            (ending, photo)
        };
        let ((ending, photo), ()) = tokio::join!(living, deletion);
        let deleted = caller.claim_was_deleted();
        if deleted {
            caller.reclaim().await;
        }
        album.stories.push(Story { caller, ending, deleted });
        if let Some(photo) = photo {
            let more = photo.await.unwrap();
            album.stories.extend(more.stories);
            album.kept.extend(more.kept);
        }
    }
    album
}

/// Whoever still has a snapshot deletes it, some before their volumes.
async fn remove_all(kept: Vec<Snapshotter>) {
    let ends = kept.into_iter().map(|mut snapshot| async move {
        snapshot.discard();
        snapshot.remove().await;
    });
    join_all(ends).await;
}

/// Whoever still has a claim deletes it.
async fn end_all(stories: Vec<Story>) -> Vec<Story> {
    let ends = stories.into_iter().map(|mut story| async move {
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
    let wrong = virtual_time::each(virtual_time::THREADS, seeds, |seed| {
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
