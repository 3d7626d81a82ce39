//! Writes that arrive long after their sender gave up, when others have gone on: nothing is undone by them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Script},
    fixture,
    reclaim::{CLAIM, SETTLED, bench, ends_well, leaf, policy, provisioned, released, retained, until, wrong},
    virtual_time,
};

/// Longer than anybody waits for an answer, and than what is done about it takes.
const LATE: Duration = Duration::from_secs(45);
const SOON: Duration = Duration::from_secs(2);

/// It would have the member remove the data with the claim.
fn makes_deletable(asked: &Asked) -> bool {
    let mut changes = asked.body.as_array().into_iter().flatten();
    let policy = |change: &Value| text(change, "/path") == "/spec/persistentVolumeReclaimPolicy";
    asked.verb == Verb::Patch && changes.any(|change| policy(change) && text(change, "/value") == "Delete")
}

/// The next one of these in a member arrives late. Whether it was sent.
fn delay_next(bench: &Bench, is_it: fn(&Asked) -> bool) -> Arc<AtomicBool> {
    let sent = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&sent);
    bench.guard.set_fate(move |_, at, asked| {
        let first = at > 0 && is_it(asked) && !sent.swap(true, Ordering::Relaxed);
        if first { Action::Late(LATE) } else { Action::Pass }
    });
    told
}

async fn was_sent(bench: &Bench, sent: &AtomicBool) {
    until(bench, SETTLED, "the write is on its way", || sent.load(Ordering::Relaxed)).await;
}

/// The administrator wants the data, and it is still there when the write has arrived.
async fn stays(bench: &Bench, caller: Caller) {
    sleep(LATE + SETTLED).await;
    let bad = wrong(bench, &caller, true);
    assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
    assert_eq!((policy(bench, &caller).as_str(), bench.storages[0].volumes().len()), ("Retain", 1));
    ends_well(bench, caller).await;
}

#[test]
fn policy_of_before_that_arrives_late_does_not_undo_a_later_retain() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        let sent = delay_next(&bench, makes_deletable);
        caller.set_policy("Delete");
        was_sent(&bench, &sent).await;
        sleep(SOON).await;
        caller.set_policy("Retain");
        released(&bench, &mut caller).await;
        stays(&bench, caller).await;
    });
}

#[test]
fn removal_that_was_called_off_is_not_made_good_by_a_late_write() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script { leaf_class: fixture::KEPT, ..Script::new(CLAIM) }).await;
        let sent = delay_next(&bench, makes_deletable);
        caller.delete_claim();
        let mut provisioner = caller.clone();
        let mind = async {
            was_sent(&bench, &sent).await;
            caller.set_policy("Retain");
        };
        tokio::join!(provisioner.reclaim(), mind);
        stays(&bench, caller).await;
    });
}

#[test]
fn policy_put_back_after_healing_that_arrives_late_does_not_undo_a_later_retain() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let sent = delay_next(&bench, makes_deletable);
        let uid = text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
        lock(&bench.guard.history).deleted_by_people(&uid);
        bench.members[0].delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
        was_sent(&bench, &sent).await;
        until(&bench, LATE, "the policy is put back by the next one", || policy(&bench, &caller) == "Delete").await;
        caller.set_policy("Retain");
        caller.delete_claim();
        caller.reclaim().await;
        until(&bench, LATE / 2, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        stays(&bench, caller).await;
    });
}
