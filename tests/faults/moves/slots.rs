//! As many moves copy at the same time as may, here one: the others wait, and their pods go on meanwhile.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::{Instant, sleep};

use super::{
    CLAIM, CLAIMS, MOVED, MOVES, STEP, Story, YARD,
    hands::{QUOTA, copies, delete, fill_quota, is_in_the_yard},
    play::Mood,
    rounds::is_silent,
    users::{is_cloned, stranger},
};
use crate::{
    bench::SHOP,
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

/// Of the second claim and of its move.
const OTHER: &str = "log";
const TOO: &str = "too";
/// So many have a copy prepared at a time.
const PREPARED: usize = 16;

/// With a second volume in the first member.
async fn story() -> (Story, Caller) {
    let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
    let mut second = Caller::new(&story.bench, Script { places: vec![0], ..Script::new(OTHER) });
    assert_eq!(second.provision().await, Ending::Provisioned);
    (story, second)
}

/// With as many more volumes in the first member; the names of their claims.
async fn provision(story: &Story, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("data-{number}")).collect();
    for name in &names {
        let mut caller = Caller::new(&story.bench, Script { places: vec![0], ..Script::new(name) });
        assert_eq!(caller.provision().await, Ending::Provisioned);
    }
    names
}

fn asks_for(story: &Story, claim: &str, name: &str) {
    let spec = json!({"claimName": claim, "to": {"member": "m1"}});
    story.bench.host.create(MOVES, json!({"metadata": {"name": name, "namespace": SHOP}, "spec": spec})).unwrap();
}

fn asks_for_the_other(story: &Story) {
    asks_for(story, OTHER, TOO);
}

fn in_phase(story: &Story, phase: &str) -> usize {
    story.bench.host.list(MOVES).iter().filter(|of| text(of, "/status/phase") == phase).count()
}

fn status(story: &Story, name: &str) -> Value {
    story.bench.host.get(MOVES, SHOP, name).unwrap()["status"].clone()
}

fn phases(story: &Story) -> [String; 2] {
    ["to", TOO].map(|name| text(&status(story, name), "/phase").to_owned())
}

async fn come_to(story: &Story, wanted: [&str; 2]) {
    let end = Instant::now() + MOVED;
    while phases(story) != wanted {
        assert!(Instant::now() < end, "{:?}: {}", phases(story), story.trace());
        sleep(STEP).await;
    }
}

async fn both_succeed(story: &Story) {
    story.play.is(Mood::Well);
    come_to(story, ["Succeeded"; 2]).await;
    assert_eq!(story.bench.guard.wrong(), [""; 0]);
}

/// So many moves at once ask for the same claim, or the same class.
fn wrong_but_at_once(story: &Story) -> Vec<String> {
    story.bench.guard.wrong().into_iter().filter(|wrong| !wrong.starts_with("I11: a hot loop")).collect()
}

fn is_closed(story: &Story, claim: &str) -> bool {
    let leaf = story.bench.members[0].get(CLAIMS, SHOP, claim).unwrap();
    !leaf["metadata"]["annotations"]["kosmos.csi.io/move"].is_null()
}

#[test]
fn move_waits_for_those_that_copy_and_its_pods_go_on_meanwhile() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        copies(&story).await;
        asks_for_the_other(&story);
        sleep(MOVED).await;
        let waits = status(&story, TOO);
        assert!(waits["phase"] == "Closing" && waits.to_string().contains("--moves-at-once"), "{waits}");
        assert!(!is_closed(&story, OTHER));
        let counted = story.bench.metrics();
        for line in ["kosmos_csi_moves{phase=\"Copying\"} 1", "kosmos_csi_moves{phase=\"Closing\"} 1"] {
            assert!(counted.contains(line), "{counted}");
        }
        both_succeed(&story).await;
    });
}

/// For as long as that is silent, which may be for good.
#[test]
fn move_that_waits_for_a_silent_member_keeps_no_other_from_copying() {
    virtual_time::run(1, async {
        let script = Script { places: vec![0], ..Script::new(CLAIM) };
        let story = Story::in_members(3, &fixture::steady(STEP), script).await;
        let mut second = Caller::new(&story.bench, Script { places: vec![0], ..Script::new(OTHER) });
        assert_eq!(second.provision().await, Ending::Provisioned);
        story.play.is(Mood::Linger);
        story.asks(2, &json!({}));
        story.comes_to("Copying").await;
        is_silent(&story, 2);
        asks_for_the_other(&story);
        story.play.is(Mood::Well);
        sleep(MOVED * 3).await;
        assert_eq!(phases(&story), ["Copying", "Succeeded"], "{}", story.trace());
        story.bench.guard.heal();
        sleep(MOVED * 3).await;
        assert_eq!(phases(&story), ["Succeeded"; 2], "{}", story.trace());
    });
}

/// Its movers wait for a line for as long as nobody there acts.
#[test]
fn move_whose_ends_a_member_lets_nobody_join_keeps_no_other_from_copying() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        copies(&story).await;
        story.bench.guard.set_fate(|_, _, asked| {
            let is_denied = asked.subresource == "portforward";
            if is_denied { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        asks_for_the_other(&story);
        come_to(&story, ["Copying"; 2]).await;
        story.bench.guard.heal();
        both_succeed(&story).await;
    });
}

/// Its movers have taken ten minutes to find that, and take as long the next time.
#[test]
fn move_whose_storage_hangs_is_told_of_and_gives_its_slot_to_the_next_one_before_it_tries_again() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        copies(&story).await;
        asks_for_the_other(&story);
        come_to(&story, ["Copying", "Closing"]).await;
        let attempt = |story: &Story| status(story, "to")["attempt"].as_u64().unwrap_or_default();
        let before = attempt(&story);
        story.play.is(Mood::Hang);
        come_to(&story, ["Copying"; 2]).await;
        assert_eq!(attempt(&story), before + 1, "it has tried again first: {}", story.trace());
        sleep(Duration::from_secs(5)).await;
        let now = status(&story, "to");
        let told = ["MoverFailed", "StorageHangs: the storage of the copy has not answered"];
        assert!(told.iter().all(|words| now.to_string().contains(words)), "{now}");
        both_succeed(&story).await;
    });
}

/// As on a node that is dead, or while a quota is used up among the movers: for as long as nobody acts.
#[test]
fn move_whose_movers_do_not_end_or_are_not_begun_again_keeps_no_other_from_copying() {
    for does_not_end in [true, false] {
        virtual_time::run(1, async {
            let (story, _second) = story().await;
            copies(&story).await;
            asks_for_the_other(&story);
            come_to(&story, ["Copying", "Closing"]).await;
            let member = &story.bench.members[1];
            let is_its_own = |pod: &Arc<Value>| {
                let of = text(pod, "/spec/volumes/0/persistentVolumeClaim/claimName");
                is_in_the_yard(pod) && of == story.lent()
            };
            let pod = member.list("pods").into_iter().find(is_its_own).unwrap();
            let name = text(&pod, "/metadata/name");
            let hold = |finalizers: Value| {
                let _ = member.change("pods", YARD, name, |pod| pod["metadata"]["finalizers"] = finalizers.clone());
            };
            if does_not_end {
                hold(json!(["example.com/node"]));
                member.delete("pods", YARD, name).unwrap();
            } else {
                fill_quota(&story, 1, YARD);
                delete(&story, 1, |claim| is_in_the_yard(claim) && text(claim, "/metadata/name") == story.lent());
                member.delete_now("pods", YARD, name).unwrap();
            }
            sleep(MOVED).await;
            come_to(&story, ["Copying"; 2]).await;
            hold(json!([]));
            let _ = member.delete("resourcequotas", YARD, QUOTA);
            story.play.is(Mood::Well);
            sleep(MOVED).await;
            both_succeed(&story).await;
        });
    }
}

#[test]
fn of_moves_that_are_asked_for_at_once_no_more_volumes_are_closed_than_may_copy() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        story.play.is(Mood::Linger);
        story.asks(1, &json!({}));
        asks_for_the_other(&story);
        sleep(MOVED).await;
        let (mut now, closed) = (
            phases(&story),
            [CLAIM, OTHER]
                .map(|claim| story.bench.members[0].get(CLAIMS, SHOP, claim).is_none_or(|_| is_closed(&story, claim))),
        );
        now.sort();
        assert_eq!(
            (now, closed.iter().filter(|closed| **closed).count()),
            (["Closing".to_owned(), "Copying".to_owned()], 1)
        );
        both_succeed(&story).await;
    });
}

#[test]
fn move_that_waits_for_its_users_keeps_no_other_from_copying() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        story.bench.members[0].create("pods", stranger("theirs")).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Waiting").await;
        asks_for_the_other(&story);
        come_to(&story, ["Waiting", "Succeeded"]).await;
        story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
        both_succeed(&story).await;
    });
}

/// So many moves of one claim, of which each reads all that there are, which takes the host two seconds; how often it was asked for them.
fn begin_slowly(story: &Story, count: usize) -> Arc<AtomicU64> {
    let asked_for = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&asked_for);
    let is_all = |asked: &Asked| asked.resource == MOVES && asked.verb == Verb::List;
    story.bench.guard.set_fate(move |_, at, asked| {
        let is_slow = at == 0 && is_all(asked);
        counted.fetch_add(is_slow.into(), Ordering::Relaxed);
        if is_slow { Action::Delay(Duration::from_secs(2)) } else { Action::Pass }
    });
    for number in 0..count {
        asks_for(story, CLAIM, &format!("to-{number}"));
    }
    asked_for
}

/// What each that waits to begin says of those before it.
fn told_of_those_before(story: &Story) -> Vec<String> {
    let all = story.bench.host.list(MOVES).into_iter();
    let told = all.map(|of| text(&of, "/status/conditions/0/message").to_owned());
    told.filter(|told| told.ends_with(" more come before this one")).collect()
}

#[test]
fn moves_that_wait_for_others_to_begin_say_how_many_come_before_them_until_they_begin() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        begin_slowly(&story, 40);
        sleep(Duration::from_millis(5500)).await;
        let told = told_of_those_before(&story);
        let numbers: BTreeSet<&String> = told.iter().collect();
        assert!((8..=24).contains(&told.len()) && numbers.len() == told.len(), "{told:?}");
        story.bench.guard.heal();
        sleep(MOVED * 2).await;
        assert_eq!((in_phase(&story, "Refused"), in_phase(&story, "Succeeded")), (39, 1), "{}", story.trace());
        assert_eq!(told_of_those_before(&story), [""; 0]);
    });
}

/// Whoever ends them sooner has them wait for nothing.
#[test]
fn pods_that_a_move_waits_for_are_said_to_be_free_to_go_on_while_others_copy() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        story.bench.members[0].create("pods", stranger("theirs")).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Waiting").await;
        story.play.is(Mood::Linger);
        asks_for_the_other(&story);
        come_to(&story, ["Waiting", "Copying"]).await;
        sleep(MOVED / 4).await;
        let told = |story: &Story| text(&status(story, "to"), "/conditions/0/message").to_owned();
        let others = "pods use the volume, and may keep it until other moves have copied (the limit of moves that copy at the same time is \
                      reached (--moves-at-once)): pod shop/theirs of member m0";
        assert_eq!(told(&story), others);
        story.play.is(Mood::Well);
        come_to(&story, ["Waiting", "Succeeded"]).await;
        sleep(MOVED / 4).await;
        assert_eq!(told(&story), "pods use the volume: pod shop/theirs of member m0");
        story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
        both_succeed(&story).await;
    });
}

/// As whoever may make one makes them. Each reads all that there are, and the host is to answer others too.
#[test]
fn of_many_moves_of_one_claim_a_few_are_begun_at_a_time_and_all_but_one_are_refused() {
    virtual_time::run(1, async {
        let story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        let asked_for = begin_slowly(&story, 40);
        sleep(Duration::from_secs(1)).await;
        let asked_for = asked_for.load(Ordering::Relaxed);
        assert!((1..=8).contains(&asked_for), "{asked_for} at a time");
        story.bench.guard.heal();
        sleep(MOVED * 2).await;
        assert_eq!((in_phase(&story, "Refused"), in_phase(&story, "Succeeded")), (39, 1), "{}", story.trace());
        assert_eq!(wrong_but_at_once(&story), [""; 0]);
    });
}

/// Moves that do not come to their end.
async fn more_than_may_be_prepared(story: &Story) -> Vec<String> {
    let names = provision(story, PREPARED + 8).await;
    story.play.is(Mood::Linger);
    for name in &names {
        asks_for(story, name, name);
    }
    names
}

/// Each has a pod in its member, also while it waits for a slot.
#[test]
fn of_many_moves_no_more_have_a_copy_made_than_may_before_they_go_on() {
    virtual_time::run(1, async {
        let (story, _) = story().await;
        let names = more_than_may_be_prepared(&story).await;
        let is_told = |name: &String| {
            status(&story, name).to_string().contains("the limit of moves that wait with a prepared copy")
        };
        sleep(MOVED / 4).await;
        assert!(names.iter().any(is_told), "nobody is told for half a minute: {}", story.trace());
        sleep(MOVED).await;
        let pods = story.bench.members[1].list("pods").iter().filter(|pod| is_in_the_yard(pod)).count();
        assert!((1..=PREPARED + in_phase(&story, "Copying")).contains(&pods), "{pods} pods: {}", story.trace());
        assert!(names.iter().any(is_told) && in_phase(&story, "Preparing") > 0, "{}", story.trace());
        story.play.is(Mood::Well);
        let end = Instant::now() + MOVED * 10;
        while in_phase(&story, "Succeeded") < names.len() {
            assert!(Instant::now() < end, "{} are there: {}", in_phase(&story, "Succeeded"), story.trace());
            sleep(STEP).await;
        }
        assert_eq!(wrong_but_at_once(&story), [""; 0]);
    });
}

/// For as long as whoever has asked for these likes.
#[test]
fn moves_that_wait_for_clones_keep_no_other_from_having_its_copy_made() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        for name in provision(&story, PREPARED).await {
            is_cloned(&story, &name);
            asks_for(&story, &name, &name);
        }
        sleep(MOVED).await;
        assert_eq!(in_phase(&story, "Closing"), PREPARED, "{}", story.trace());
        asks_for_the_other(&story);
        sleep(MOVED).await;
        assert_eq!((in_phase(&story, "Closing"), in_phase(&story, "Succeeded")), (PREPARED, 1), "{}", story.trace());
        assert_eq!(wrong_but_at_once(&story), [""; 0]);
    });
}

/// What was prepared and is copied where the one before ended counts.
#[test]
fn driver_that_is_restarted_has_no_more_copies_made_and_closes_no_more_volumes_than_may_be() {
    virtual_time::run(1, async {
        let (story, _) = story().await;
        more_than_may_be_prepared(&story).await;
        sleep(MOVED).await;
        let stands = |story: &Story| ["Preparing", "Closing", "Copying"].map(|phase| in_phase(story, phase));
        assert_eq!(stands(&story), [7, PREPARED, 1], "{}", story.trace());
        for _ in 0..2 {
            story.bench.start();
            sleep(MOVED).await;
            assert_eq!(stands(&story), [7, PREPARED, 1], "{}", story.trace());
        }
        let pods = story.bench.members[1].list("pods").iter().filter(|pod| is_in_the_yard(pod)).count();
        assert!(pods <= PREPARED + 1, "{pods} pods: {}", story.trace());
    });
}

/// The others' pods go on until they have one.
#[test]
fn move_whose_pods_wait_is_given_a_slot_before_those_whose_pods_have_the_volume_still() {
    virtual_time::run(1, async {
        let (story, _second) = story().await;
        story.bench.members[0].create("pods", stranger("theirs")).unwrap();
        story.asks(1, &json!({}));
        story.comes_to("Waiting").await;
        story.play.is(Mood::Linger);
        asks_for_the_other(&story);
        come_to(&story, ["Waiting", "Copying"]).await;
        let names = provision(&story, 6).await;
        for name in &names {
            asks_for(&story, name, name);
        }
        sleep(MOVED / 4).await;
        assert_eq!(in_phase(&story, "Closing"), names.len(), "{}", story.trace());
        story.bench.members[0].delete("pods", SHOP, "theirs").unwrap();
        come_to(&story, ["Copying"; 2]).await;
        sleep(MOVED / 4).await;
        assert!(status(&story, "to").to_string().contains("--moves-at-once"), "{}", story.status());
        story.play.is(Mood::Well);
        story.comes_to("Succeeded").await;
        assert_eq!(in_phase(&story, "Succeeded"), 2, "another one went first: {}", story.trace());
        assert_eq!(wrong_but_at_once(&story), [""; 0]);
    });
}
