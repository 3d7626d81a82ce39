//! A leaf volume that people of the member took for themselves, or for nobody: its claimRef is what the member goes by.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::storage::{Settings, Work};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Script},
    fixture,
    people::delete_leaf_claim,
    reclaim::{
        CLAIM, SETTLED, bench, events, leaf, leaf_volume, phase, policy, provisioned, released, retained, until,
    },
    shared::release,
    virtual_time,
};

pub const THEIRS: &str = "theirs";
/// From what has to be told to the event.
const SOON: Duration = Duration::from_secs(2);

/// Nobody in the host has it, and its data is kept in the member. `healed`: the leaf claim was deleted there once, so that the
/// leaf volume says whose it was.
pub async fn kept(healed: bool) -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let mut caller = provisioned(&bench, retained()).await;
    if healed {
        heal(&bench).await;
    }
    released(&bench, &mut caller).await;
    (bench, caller)
}

async fn heal(bench: &Bench) {
    delete_leaf_claim(bench, CLAIM);
    let healed = || events(bench).contains("LeafHealed");
    until(bench, SETTLED, "it was recreated", healed).await;
}

/// `kubectl patch pv --type=json -p '[{"op": "remove", "path": "/spec/claimRef"}]'` in the member. What it was.
pub fn take_off(bench: &Bench, caller: &Caller) -> Value {
    let was = leaf_volume(bench, caller).unwrap()["spec"]["claimRef"].clone();
    give(bench, caller, Value::Null);
    was
}

pub fn give(bench: &Bench, caller: &Caller, reference: Value) {
    let change = |volume: &mut Value| volume["spec"]["claimRef"] = reference;
    bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), change).unwrap();
}

/// Somebody there binds it to a claim of his own. What its claimRef was.
pub async fn take(bench: &Bench, caller: &Caller) -> Value {
    let was = take_off(bench, caller);
    let claim = fixture::claim_for(&leaf_volume(bench, caller).unwrap(), THEIRS);
    lock(&bench.guard.history).plant(&bench.members[0].create("persistentvolumeclaims", claim).unwrap());
    until(bench, SETTLED, "their claim is bound", || phase(theirs(bench)) == "Bound").await;
    sleep(SETTLED).await;
    was
}

fn theirs(bench: &Bench) -> Option<Arc<Value>> {
    leaf(bench, THEIRS)
}

#[track_caller]
pub fn is_theirs(bench: &Bench, caller: &Caller) {
    let (claim, volume) = (theirs(bench).unwrap(), leaf_volume(bench, caller).unwrap());
    assert_eq!(volume["spec"]["claimRef"]["uid"], claim["metadata"]["uid"], "{}", bench.guard.trace().join("\n"));
    assert_eq!((phase(Some(claim)).as_str(), policy(bench, caller).as_str()), ("Bound", "Retain"));
}

#[test]
fn volume_that_is_bound_to_a_claim_of_the_members_is_used_again_only_once_that_has_gone() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, mut caller) = kept(healed).await;
            let was = take(&bench, &caller).await;
            caller.claim_again(CLAIM);
            let told = || events(&bench).contains("names claim shop/theirs in its claimRef");
            until(&bench, SOON, "the user is told", told).await;
            sleep(SETTLED * 2).await;
            is_theirs(&bench, &caller);
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
            bench.members[0].delete("persistentvolumeclaims", SHOP, THEIRS).unwrap();
            give(&bench, &caller, was);
            until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        });
    }
}

/// Its handle names another place than its claim had last, so that it is in sight wherever it is.
#[test]
fn volume_that_was_used_under_another_name_is_not_taken_from_a_claim_of_the_members() {
    virtual_time::run(1, async {
        let (bench, mut caller) = kept(false).await;
        caller.claim_again("other");
        until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, "other")) == "Bound").await;
        sleep(SETTLED).await;
        released(&bench, &mut caller).await;
        let was = take(&bench, &caller).await;
        caller.claim_again("third");
        let told = || events(&bench).contains("somebody has changed the claimRef of its leaf volume");
        until(&bench, SOON, "the user is told", told).await;
        sleep(SETTLED * 2).await;
        is_theirs(&bench, &caller);
        bench.members[0].delete("persistentvolumeclaims", SHOP, THEIRS).unwrap();
        give(&bench, &caller, was);
        until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, "third")) == "Bound").await;
    });
}

/// It is the leaf of some host's volume, and holds its data.
#[test]
fn nobody_is_told_to_remove_a_leaf_claim_without_its_labels_for_its_name() {
    virtual_time::run(1, async {
        let (bench, mut caller) = kept(false).await;
        let mut stripped = fixture::claim_for(&leaf_volume(&bench, &caller).unwrap(), "again");
        stripped["metadata"]["finalizers"] = json!(["kosmos.csi.io/protect"]);
        stripped["spec"]["volumeName"] = json!("another");
        lock(&bench.guard.history).plant(&bench.members[0].create("persistentvolumeclaims", stripped).unwrap());
        caller.claim_again("again");
        let told =
            || events(&bench).contains("its labels were removed: put them back. Remove it there only if no host has");
        until(&bench, SETTLED, "the user is told", told).await;
        let all = events(&bench);
        assert_eq!(all.matches("Remove it there").count(), all.matches("Remove it there only").count(), "{all}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn volume_that_is_bound_to_a_claim_of_the_members_is_removed_only_once_that_has_gone() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, caller) = kept(healed).await;
            take(&bench, &caller).await;
            caller.set_policy("Delete");
            sleep(SETTLED).await;
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            assert!(refused.message().contains("names claim shop/theirs in its claimRef"), "{refused}");
            is_theirs(&bench, &caller);
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// It is on its way out there, as somebody has deleted it, and his claim holds it. What it holds stays when that has gone.
#[test]
fn volume_that_is_bound_to_a_claim_of_the_members_is_not_made_deletable_while_somebody_has_deleted_it() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, caller) = kept(healed).await;
            take(&bench, &caller).await;
            bench.members[0].delete("persistentvolumes", "", caller.leaf_volume().unwrap()).unwrap();
            caller.set_policy("Delete");
            sleep(SETTLED).await;
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{healed}: {refused}");
            is_theirs(&bench, &caller);
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// The storage there cannot remove it, and he saves it for himself, under the name that the leaf claim had. Where it is not retained in the
/// host, the removal has seen its leaf claim.
async fn is_his_who_takes_it_while_it_is_being_removed(retain: bool, healed: bool) {
    let forever = Duration::from_hours(10);
    let settings = Settings { deleting: Work::takes(forever..=forever), ..fixture::steady(Duration::from_millis(100)) };
    let bench = Bench::serving(1, &settings).await;
    let mut caller = provisioned(&bench, Script { retain, ..Script::new(CLAIM) }).await;
    if healed {
        heal(&bench).await;
        sleep(SETTLED).await;
    }
    if retain {
        released(&bench, &mut caller).await;
        caller.set_policy("Delete");
    } else {
        release(&bench, &caller).await;
        lock(&bench.guard.history).let_go(caller.volume());
    }
    let takes = async {
        let goes = || leaf(&bench, CLAIM).is_none() && policy(&bench, &caller) == "Delete";
        until(&bench, SETTLED, "it is to go", goes).await;
        let claim = fixture::claim_for(&leaf_volume(&bench, &caller).unwrap(), CLAIM);
        let claim = bench.members[0].create("persistentvolumeclaims", claim).unwrap();
        lock(&bench.guard.history).plant(&claim);
        let take = |volume: &mut Value| {
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
            volume["spec"]["claimRef"]["uid"] = claim["metadata"]["uid"].clone();
        };
        bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), take).unwrap();
        until(&bench, SETTLED, "his claim is bound", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        sleep(SETTLED).await;
    };
    let (refused, ()) = tokio::join!(caller.delete(caller.handle().unwrap()), takes);
    let refused = refused.unwrap_err();
    assert_eq!(policy(&bench, &caller), "Retain", "{}", bench.guard.trace().join("\n"));
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("names claim shop/data in its claimRef"), "{refused}");
    assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{retain} {healed}");
}

#[test]
fn volume_that_somebody_takes_while_it_is_being_removed_is_his_from_then_on() {
    for (retain, healed) in [(true, false), (true, true), (false, false), (false, true)] {
        virtual_time::run(1, is_his_who_takes_it_while_it_is_being_removed(retain, healed));
    }
}

/// The member removes what was bound to a claim that has gone, and nothing else.
#[test]
fn volume_that_belongs_to_no_claim_is_named_to_whoever_removes_it_and_goes_once_it_belongs_to_one() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, mut caller) = kept(healed).await;
            let was = take_off(&bench, &caller);
            caller.set_policy("Delete");
            sleep(SETTLED).await;
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let message = refused.message();
            assert!(
                message.contains(caller.leaf_volume().unwrap()) && message.contains("names no claim in its claimRef"),
                "{message}"
            );
            assert_eq!(policy(&bench, &caller), "Retain", "nothing is begun that cannot be ended");
            give(&bench, &caller, was);
            sleep(SETTLED).await;
            timeout(SETTLED * 4, caller.reclaim()).await.unwrap();
            assert!(leaf_volume(&bench, &caller).is_none() && bench.storages[0].volumes().is_empty());
        });
    }
}

#[test]
fn user_of_a_volume_that_belongs_to_no_claim_is_told_and_has_it_once_it_belongs_to_one() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, mut caller) = kept(healed).await;
            let was = take_off(&bench, &caller);
            caller.claim_again(CLAIM);
            let told = || events(&bench).contains("names no claim in its claimRef");
            until(&bench, SOON, "the user is told", told).await;
            assert!(leaf(&bench, CLAIM).is_none());
            give(&bench, &caller, was);
            until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        });
    }
}
