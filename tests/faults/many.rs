//! Many members at once: they are opened a few at a time, cost the host little, and those that do not answer are in nobody's way.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use simulate::faults::{Action, Verb};
use tokio::time::{Instant, sleep};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, lock},
    caller::{Caller, Script},
    fixture,
    reclaim::until,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const MEMBERS: usize = 80;
/// So many of them are opened at the same time.
const AT_ONCE: usize = 32;
/// A member takes so long to say who it is.
const SLOW: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_mins(1);
const CLASSES: &str = "storageclasses.storage.k8s.io";

fn open(bench: &Bench) -> usize {
    let is_open = |line: &&str| line.starts_with("kosmos_csi_member_state{") && line.contains("state=\"ok\"");
    bench.metrics().lines().filter(is_open).count()
}

#[test]
fn members_are_opened_a_few_at_a_time() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, MEMBERS, &fixture::steady(STEP)).await;
        let asked = Arc::<Mutex<Vec<Instant>>>::default();
        let times = Arc::clone(&asked);
        bench.guard.set_fate(move |_, at, request| {
            if at == 0 || request.verb != Verb::Get || request.name != "kube-system" {
                return Action::Pass;
            }
            lock(&times).push(Instant::now());
            Action::Delay(SLOW)
        });
        bench.start();
        until(&bench, PATIENCE, "all are open", || open(&bench) == MEMBERS).await;
        let asked = lock(&asked).clone();
        assert_eq!(asked.len(), MEMBERS, "each was asked once who it is");
        assert!(asked[AT_ONCE - 1] - asked[0] < SLOW, "the first wait for each other");
        let crowd = asked.windows(AT_ONCE + 1).find(|times| times[AT_ONCE] - times[0] < SLOW);
        assert!(crowd.is_none(), "{crowd:?}");
    });
}

#[test]
fn members_that_do_not_answer_keep_no_others_from_being_opened() {
    const SILENT: usize = 60;
    virtual_time::run(1, async {
        let bench = Bench::new(1, MEMBERS, &fixture::steady(STEP)).await;
        let is_silent = |at: usize| (1..=SILENT).contains(&at);
        bench.guard.set_fate(move |_, at, _| if is_silent(at) { Action::Hang } else { Action::Pass });
        bench.start();
        bench.serves().await;
        // Sooner than it is known of any of them that it does not answer.
        until(&bench, 4 * SLOW, "the others are open", || open(&bench) == MEMBERS - SILENT).await;
        bench.guard.heal();
        until(&bench, PATIENCE, "all are open", || open(&bench) == MEMBERS).await;
    });
}

/// Each is asked again every few seconds.
#[test]
fn hundreds_of_members_that_stay_silent_do_not_hold_up_one_that_joins() {
    const SILENT: usize = 500;
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1 + SILENT, &fixture::steady(STEP)).await;
        bench.host.delete("secrets", DRIVER_NAMESPACE, "m0").unwrap();
        bench.guard.set_fate(|_, at, _| if at > 1 { Action::Hang } else { Action::Pass });
        bench.start();
        bench.serves().await;
        sleep(PATIENCE).await;
        bench.host.create("secrets", fixture::kubeconfig("m0")).unwrap();
        until(&bench, 8 * SLOW, "it is open", || open(&bench) == 1).await;
    });
}

/// The network was away for a moment, just when each was asked for a volume.
#[test]
fn members_that_fail_together_are_asked_again_a_few_at_a_time_and_none_is_begun_again() {
    /// For so long one that does not answer keeps another one waiting.
    const HELD: Duration = Duration::from_millis(250);
    virtual_time::run(1, async {
        let bench = Bench::new(1, MEMBERS, &fixture::steady(STEP)).await;
        bench.start();
        until(&bench, PATIENCE, "all are open", || open(&bench) == MEMBERS).await;
        let (asked, listed) = (Arc::<Mutex<Vec<Instant>>>::default(), Arc::<AtomicUsize>::default());
        let (times, lists) = (Arc::clone(&asked), Arc::clone(&listed));
        bench.guard.set_fate(move |_, at, request| {
            if at > 0 && request.name == "kube-system" {
                lock(&times).push(Instant::now());
                return Action::Delay(SLOW);
            }
            // Nobody else lists classes.
            let begins_again = at > 0 && request.verb == Verb::List && request.resource == CLASSES;
            lists.fetch_add(begins_again.into(), Ordering::Relaxed);
            if at > 0 && request.verb == Verb::Create { Action::Refuse } else { Action::Pass }
        });
        let callers = (0..MEMBERS).map(|member| {
            let script = Script { places: vec![member], ..Script::new(&format!("data-{member}")) };
            let caller = Caller::new(&bench, script);
            async move { drop(caller.create().await) }
        });
        futures::future::join_all(callers).await;
        until(&bench, PATIENCE, "all are open again", || open(&bench) == MEMBERS).await;
        let asked = lock(&asked).clone();
        assert!(asked.len() >= MEMBERS, "{} were asked again", asked.len());
        let crowd = asked.windows(AT_ONCE + 1).find(|times| times[AT_ONCE] - times[0] < HELD);
        assert!(crowd.is_none(), "{crowd:?}");
        assert_eq!(listed.load(Ordering::Relaxed), 0, "one was taken for down: {}", bench.guard.trace().join("\n"));
    });
}

/// Of the record of which member is which cluster.
#[derive(Default)]
struct Asked {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

impl Asked {
    fn take(&self) -> (usize, usize) {
        (self.reads.swap(0, Ordering::Relaxed), self.writes.swap(0, Ordering::Relaxed))
    }
}

#[test]
fn record_of_members_is_read_and_written_for_many_of_them_at_once() {
    /// One for each group that is opened together, and some for who the host is and for the first members.
    const A_FEW: usize = MEMBERS / AT_ONCE + 6;
    virtual_time::run(1, async {
        let bench = Bench::new(1, MEMBERS, &fixture::steady(STEP)).await;
        let asked = Arc::<Asked>::default();
        let counts = Arc::clone(&asked);
        bench.guard.set_fate(move |_, at, request| {
            if at == 0 && request.name == "kosmos-csi-members" {
                let count = if request.verb.writes() { &counts.writes } else { &counts.reads };
                count.fetch_add(1, Ordering::Relaxed);
            }
            Action::Pass
        });
        for is_new in [true, false] {
            bench.start();
            until(&bench, PATIENCE, "all are open", || open(&bench) == MEMBERS).await;
            let (reads, writes) = asked.take();
            assert!((1..=A_FEW).contains(&reads), "{reads} reads");
            assert!(if is_new { (1..=A_FEW).contains(&writes) } else { writes == 0 }, "{writes} writes");
        }
    });
}

#[test]
fn nothing_is_told_any_more_of_a_member_that_has_left() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
        bench.start();
        until(&bench, PATIENCE, "both are open", || open(&bench) == 2).await;
        let is_told_of = |member: &str| bench.metrics().contains(&format!("member=\"{member}\""));
        let requests = |member: &str| format!("kosmos_csi_member_requests_total{{member=\"{member}\"");
        assert!(bench.metrics().contains(&requests("m1")));
        bench.host.delete("secrets", DRIVER_NAMESPACE, "m1").unwrap();
        until(&bench, PATIENCE, "it has left", || !is_told_of("m1")).await;
        for stays in ["m0", "(host)"] {
            assert!(bench.metrics().contains(&requests(stays)), "{stays}");
        }
        bench.host.create("secrets", fixture::kubeconfig("m1")).unwrap();
        until(&bench, PATIENCE, "it is back", || open(&bench) == 2 && bench.metrics().contains(&requests("m1"))).await;
    });
}
