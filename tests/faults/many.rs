//! Many members at once: they are opened a few at a time, and those that do not answer are in nobody's way.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use simulate::faults::{Action, Verb};
use tokio::time::Instant;

use crate::{
    bench::{Bench, lock},
    fixture,
    reclaim::until,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const MEMBERS: usize = 80;
/// That many of them are opened at the same time.
const AT_ONCE: usize = 32;
/// A member takes so long to say who it is.
const SLOW: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_mins(1);

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
