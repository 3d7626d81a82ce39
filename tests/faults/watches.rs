//! Watches end in many ways. Whichever it was: once it is over, what happens in a member is heard at once again.

use std::time::Duration;

use simulate::faults::{Action, Verb};
use tokio::time::{sleep, timeout};

use crate::{
    bench::Bench,
    fixture::{self, Planted},
    invariants::violations,
    prompt, virtual_time,
};

const TROUBLES: [Action; 11] = [
    Action::Cut(0),
    Action::Cut(1),
    Action::Duplicate,
    Action::Refuse,
    Action::ApplyThenLose,
    Action::Hang,
    Action::Answer { code: 500, reason: "InternalError" },
    Action::Answer { code: 503, reason: "ServiceUnavailable" },
    Action::Answer { code: 429, reason: "TooManyRequests" },
    Action::Answer { code: 410, reason: "Expired" },
    Action::Answer { code: 403, reason: "Forbidden" },
];
const LASTS: Duration = Duration::from_secs(20);
const OVER: Duration = Duration::from_mins(1);

/// A volume is made and removed after a member's watches have met a trouble; histories may be forgotten meanwhile.
fn is_heard_again(trouble: &Action, forgotten: bool) -> Vec<String> {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(Duration::from_secs(2))).await;
        let met = trouble.clone();
        bench.guard.set_fate(
            move |_, at, asked| {
                if at == 1 && asked.verb == Verb::Watch { met.clone() } else { Action::Pass }
            },
        );
        bench.start();
        bench.serves().await;
        sleep(LASTS).await;
        if forgotten {
            bench.members[0].compact();
        }
        bench.guard.heal();
        sleep(OVER).await;
        match timeout(OVER, prompt::volume(&bench, 0)).await {
            Ok(story) => violations(&bench, &[story], &Planted::default()),
            Err(_) => bench.guard.trace(),
        }
    })
}

#[test]
fn what_happens_is_heard_again_whatever_ended_the_watch() {
    for trouble in &TROUBLES {
        for forgotten in [false, true] {
            let wrong = is_heard_again(trouble, forgotten);
            assert!(wrong.is_empty(), "after {trouble:?} (forgotten: {forgotten}): {wrong:#?}");
        }
    }
}
