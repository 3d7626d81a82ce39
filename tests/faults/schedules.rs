//! Seeded schedules: many claims in twenty members, made and deleted while all kinds of things go wrong, then healing, then
//! every promise. One seed is one schedule, and gives the same again. In every fifth people do little but change their minds.

pub mod photos;
pub mod strays;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use futures::future::join_all;
use simulate::faults::Action;
use tokio::time::{sleep, timeout};

use self::photos::{Album, Photo};
use crate::{
    attach,
    bench::{Bench, DRIVER_NAMESPACE, lock},
    caller::{Caller, Change, Ending, Script},
    extent,
    fixture::{self, LONG, MEMBERS, Planted},
    invariants::{AWAITS_ITS_NAME, LEFT, Story, violations},
    people::{self, Mood},
    prompt,
    snapshotter::{self, Snapshotter},
    virtual_time,
    weather::{STORM, Weather},
};

/// After all the others comes one that nobody has reached since before the first claim.
const LOST: usize = MEMBERS;
/// What happens to volumes while they live.
const CHANGES: [&[Change]; 7] = [
    &[],
    &[],
    &[Change::Publish, Change::Unpublish],
    &[Change::Publish, Change::Unpublish, Change::Publish, Change::Unpublish],
    &[Change::Publish, Change::Expand],
    &[Change::Modify, Change::Publish, Change::Expand, Change::Unpublish],
    &[Change::Expand, Change::Modify],
];
/// The first of them ask nothing of the driver that the volume is of.
const FOR_ALL: usize = 4;
/// Each is made and deleted.
const CLAIMS: usize = 100;
const OPERATIONS: usize = 2 * CLAIMS;
/// How many schedules are played from one line of progress to the next.
const TOLD: usize = 50;
/// After the faults are over, so long for everybody to come to an end.
const PATIENCE: Duration = Duration::from_hours(2);
/// A watch that was silenced is given up after five minutes.
const SETTLED: Duration = Duration::from_mins(6);
/// The driver is sure that nobody asks any more for what the host was never told of. What no watch shows is looked for every
/// quarter of an hour.
const SWEPT: Duration = Duration::from_mins(40);
/// The first words of claims whose names others have in the members, and of those that people have made volumes for.
const SQUATTED: &str = "squatted";
const BY_HAND: &str = "byhand";
/// And of those that real nodes of the host use, all in the first member.
const ATTACHED: &str = "attached";
const ATTACH_MODE: &[(&str, &str)] = &[("attachMode", "volume-attachment")];

/// One schedule from beginning to end: what was wrong, and the trace if it is wanted.
#[expect(clippy::too_many_lines, reason = "the course of one schedule, from its beginning to its end")]
fn play(seed: u64, traced: bool) -> (Vec<String>, Vec<String>) {
    virtual_time::run(seed, async {
        let (mut chance, mood) = (Rng::with_seed(seed), Mood::of(seed));
        let bench = Bench::new(seed, LOST + 1, &fixture::moody()).await;
        bench.guard.keeps_trace(traced);
        snapshotter::have_kinds(&bench);
        attach::prepare(&bench, ATTACH_MODE);
        let planted = Arc::new(Mutex::new(Planted::everywhere(&bench)));
        let lost = bench.members[LOST].name();
        bench.host.delete("secrets", DRIVER_NAMESPACE, lost).unwrap();
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        let tasks = alive();
        bench.guard.set_fate(|_, at, _| one_is_lost(at, || Action::Pass));
        bench.host.create("secrets", fixture::kubeconfig(lost)).unwrap();
        let freed = chance.bool();
        let scripts: Vec<(Duration, Script, Option<Photo>)> =
            (0..CLAIMS).map(|number| draw(&mut chance, number, freed, mood)).collect();
        for (_, script, _) in &scripts {
            lock(&planted).in_the_way_of(&bench, script);
        }
        begin_storm(&bench, seed, mood);
        let lives = scripts
            .into_iter()
            .map(|(after, script, photo)| tokio::spawn(life(Arc::clone(&bench), after, script, photo)));
        let lives: Vec<_> = lives.collect();
        people::trouble(&bench, &planted, &mut chance, STORM, freed, mood).await;
        people::heal(&bench, &planted);
        let undoing = tokio::spawn(people::put_all_back(Arc::clone(&bench)));
        bench.guard.set_fate(|_, at, _| one_is_lost(at, || Action::Pass));
        sleep(SETTLED).await;
        people::let_go(&bench);
        let all = async {
            tokio::select! {
                biased;
                all = join_all(lives) => all,
                () = strays::are_removed_when_told(&bench, SWEPT) => unreachable!("it has no end"),
            }
        };
        let Ok(stories_of_all) = timeout(PATIENCE, all).await else {
            bench.guard.report("I10: the faults are over, and some claims come to no end");
            return (bench.guard.wrong(), bench.guard.trace());
        };
        let (mut stories, mut kept) = (Vec::new(), Vec::new());
        for album in stories_of_all.into_iter().map(Result::unwrap) {
            stories.extend(album.stories);
            kept.extend(album.kept);
        }
        let mut stories = end_all(stories, Caller::claim_was_deleted).await;
        let planted = lock(&planted).clone();
        let mut wrong = settled(&bench, &stories, &planted).await;
        if wrong.is_empty() {
            let fresh = (0..MEMBERS).map(|member| prompt::volume(&bench, member));
            match timeout(PATIENCE, join_all(fresh)).await {
                Ok(fresh) => stories.extend(fresh),
                Err(_) => bench.guard.report("I10: all is well, and a new volume cannot be made and removed"),
            }
            // Nobody counts on the member that is lost any more.
            bench.host.delete("secrets", DRIVER_NAMESPACE, lost).unwrap();
            sleep(Duration::from_secs(5)).await;
            photos::are_listed(&bench, &kept).await;
            (stories, ()) = tokio::join!(end_all(stories, |_| true), remove_all(kept));
            wrong = settled(&bench, &stories, &planted).await;
        }
        undoing.abort();
        let _ = undoing.await;
        if alive() != tasks {
            wrong.push(format!("I8: {} tasks are alive, and there were {tasks}", alive()));
        }
        (wrong, bench.guard.trace())
    })
}

impl Planted {
    /// Where a claim's name says that somebody was there before.
    fn in_the_way_of(&mut self, bench: &Bench, script: &Script) {
        for place in &script.places {
            match script.claim.split('-').next() {
                Some(SQUATTED) if place % 2 == 0 => self.leaf_of_another_host(bench, *place, &script.claim),
                Some(SQUATTED) => self.squatter(bench, *place, &script.claim),
                Some(BY_HAND) => self.volume_by_hand(bench, *place, &script.claim),
                _ => {}
            }
        }
    }
}

/// What is wrong once everybody has had time. What a provisioner has forgotten, and what came late, is left for longer.
async fn settled(bench: &Bench, stories: &[Story], planted: &Planted) -> Vec<String> {
    sleep(SETTLED).await;
    let wrong = violations(bench, stories, planted);
    let may_pass = |wrong: &String| wrong.contains(LEFT) || wrong.contains(AWAITS_ITS_NAME);
    if wrong.is_empty() || !wrong.iter().all(may_pass) {
        return wrong;
    }
    sleep(SWEPT).await;
    strays::are_told_and_removed(bench).await;
    violations(bench, stories, planted)
}

fn one_is_lost(at: usize, otherwise: impl FnOnce() -> Action) -> Action {
    if at == LOST + 1 { Action::Refuse } else { otherwise() }
}

fn alive() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

/// One claim of the schedule, and when it is made. Where people of the members make volumes `freed`, leaves may be bound to those: who
/// waits for one is told so, and deletes his claim.
fn draw(chance: &mut Rng, number: usize, freed: bool, mood: Mood) -> (Duration, Script, Option<Photo>) {
    let mut places: Vec<usize> = (0..MEMBERS).collect();
    chance.shuffle(&mut places);
    places.truncate(chance.usize(..4));
    let kind = match chance.u8(..20) {
        0 if !places.is_empty() => SQUATTED,
        1 if !places.is_empty() => BY_HAND,
        2 | 3 => ATTACHED,
        _ => "data",
    };
    let (squatted, by_hand, attached) = (kind == SQUATTED, kind == BY_HAND, kind == ATTACHED);
    let is_long = number % 5 == 2 && !squatted && !by_hand && !attached;
    if attached {
        places = vec![0];
    }
    let early = Duration::from_millis(chance.u64(..20_000));
    let late = Duration::from_secs(chance.u64(30..180));
    let deleted_after = match chance.u8(..10) {
        _ if squatted => Some(late),
        0..4 => Some(early),
        4..8 => Some(late),
        _ => None,
    };
    let classes = [fixture::NOW, fixture::NOW, fixture::LATER, fixture::LATER, fixture::KEPT];
    let changes = match kind {
        BY_HAND => &CHANGES[..FOR_ALL],
        ATTACHED => &CHANGES[2..],
        _ => &CHANGES,
    };
    let script = Script {
        claim: if is_long { format!("{kind}-{}-{number}", "x".repeat(LONG)) } else { format!("{kind}-{number}") },
        gibibytes: chance.u64(1..4),
        leaf_class: if by_hand { fixture::NOW } else { classes[chance.usize(..classes.len())] },
        node_selected: !places.is_empty() && chance.bool(),
        told: squatted || chance.u8(..10) > 0 || freed,
        retain: chance.u8(..10) == 0,
        at_once: if chance.u8(..10) == 0 { chance.usize(2..4) } else { 1 },
        asks_again: chance.u8(..6) == 0,
        stands_still: (chance.u8(..6) == 0).then(|| Duration::from_secs(chance.u64(40..120))),
        changes: changes[chance.usize(..changes.len())],
        pace: Duration::from_millis([0, 0, chance.u64(..40_000)][chance.usize(..3)]),
        was_in: [None, None, None, Some(chance.usize(..MEMBERS)), Some(LOST)][chance.usize(..5)],
        binding: [None, None, None, Some("consumer"), Some("selected-node"), Some("deferred")]
            [chance.usize(..if attached || freed { 5 } else { 6 })],
        on_node: chance.u8(..3) == 0,
        places,
        deleted_after,
        source: None,
        parameters: if attached { ATTACH_MODE } else { &[] },
    };
    let after = Duration::from_millis(chance.u64(..60_000));
    // Nothing can be cut of a volume that waits for a pod, and none comes.
    // Nor of one that no driver knows of.
    let photo = (chance.bool() && !by_hand && script.binding != Some("deferred")).then(|| Photo::draw(chance));
    (after, mood.changes(after, script), photo)
}

fn begin_storm(bench: &Arc<Bench>, seed: u64, mood: Mood) {
    let mut weather = Weather::draw(seed, MEMBERS + 1);
    if mood == Mood::Wavering {
        weather.holds_volumes_up();
    }
    for rule in &weather.rules {
        bench.guard.note(|| format!("{rule:?}"));
    }
    let began = tokio::time::Instant::now();
    bench
        .guard
        .set_fate(move |number, at, asked| one_is_lost(at, || weather.decide(began.elapsed(), number, at, asked)));
}

/// A claim's life with its user and its provisioner. Some names are used again.
async fn life(bench: Arc<Bench>, after: Duration, script: Script, photo: Option<Photo>) -> Album {
    sleep(after).await;
    let mut album = Album::default();
    let again = script.claim.ends_with('7') && script.deleted_after.is_some() && !script.retain;
    for _ in 0..if again { 2 } else { 1 } {
        let mut caller = Caller::new(&bench, script.clone());
        let user = caller.clone();
        let living = async {
            let ending = caller.provision().await;
            let photo = photo.clone().filter(|_| ending == Ending::Provisioned);
            let photo = photo.map(|photo| tokio::spawn(photo.live(Arc::clone(&bench), caller.clone())));
            if ending == Ending::Provisioned {
                caller.live().await;
            }
            (ending, photo)
        };
        let ((ending, photo), ()) = tokio::join!(living, user.delete_claim_in_time());
        let deleted = caller.claim_was_deleted();
        if deleted {
            let former = caller.clone();
            tokio::join!(caller.reclaim(), former.is_asked_for_once_more());
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

/// Whoever still has a claim deletes it, or some of them do, or it was deleted by others.
async fn end_all(stories: Vec<Story>, who: fn(&Caller) -> bool) -> Vec<Story> {
    let ends = stories.into_iter().map(|mut story| async move {
        if !story.deleted && story.ending == Ending::Provisioned && who(&story.caller) {
            story.caller.delete_claim();
            story.caller.reclaim().await;
            story.deleted = true;
        }
        story
    });
    join_all(ends).await
}

#[test]
fn every_promise_holds_when_the_faults_are_over() {
    let (seeds, began) = (extent::seeds(OPERATIONS), std::time::Instant::now());
    let (count, played) = (seeds.len(), AtomicUsize::new(0));
    let wrong = virtual_time::each(virtual_time::THREADS, seeds, |seed| {
        let (wrong, _) = play(seed, false);
        let played = played.fetch_add(1, Ordering::Relaxed) + 1;
        if played.is_multiple_of(TOLD) {
            println!(
                "{} of {} operations, {:.0} s",
                played * OPERATIONS,
                count * OPERATIONS,
                began.elapsed().as_secs_f64()
            );
        }
        extent::found(&wrong, seed).inspect(|_| println!("seed {seed} found something"))
    });
    println!("{} operations in {:.1} s", count * OPERATIONS, began.elapsed().as_secs_f64());
    extent::nothing_is_found(&wrong, count, "every_promise", |seed| play(seed, true).1);
}

#[test]
fn one_seed_gives_one_course_of_events() {
    let (_, first) = play(7, true);
    let (_, second) = play(7, true);
    let parts = first.iter().zip(&second).position(|(one, other)| one != other);
    assert_eq!(parts.map(|at| (&first[at], &second[at])), None);
    assert_eq!(first.len(), second.len());
}
