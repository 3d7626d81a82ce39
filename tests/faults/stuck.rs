//! Nothing waits for ever without a word on the object that its user looks at.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::{Settings, Work},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Change, Script, claim_again},
    fixture,
    people::delete_leaf_claim,
    reclaim::{CLAIM, SETTLED, bench, ends_well, events, leaf, phase, policy, provisioned, released, retained, until},
    shared::release,
    virtual_time,
};

const QUOTA: &str = "tight";
const BANK: &str = "bank";

fn is_bound(bench: &Bench) -> bool {
    phase(leaf(bench, CLAIM)) == "Bound"
}

/// As where the provisioner is about to call DeleteVolume. Its handle.
async fn may_be_deleted<'caller>(bench: &Bench, caller: &'caller Caller) -> &'caller str {
    release(bench, caller).await;
    let handle = caller.handle().unwrap();
    lock(&bench.guard.history).let_go(caller.volume());
    lock(&bench.guard.history).may_go(handle, caller.volume());
    handle
}

async fn deleted_in_the_member(bench: &Arc<Bench>) -> Caller {
    let caller = provisioned(bench, Script::new(CLAIM)).await;
    let quota =
        json!({"metadata": {"name": QUOTA, "namespace": SHOP}, "spec": {"hard": {"persistentvolumeclaims": "0"}}});
    bench.members[0].create("resourcequotas", quota).unwrap();
    delete_leaf_claim(bench, CLAIM);
    caller
}

#[test]
fn leaf_that_a_quota_keeps_from_coming_back_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let _caller = deleted_in_the_member(&bench).await;
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            told.contains("LeafStuck: ") && told.contains("exceeded quota") && told.contains("member m0")
        })
        .await;
        bench.members[0].delete("resourcequotas", SHOP, QUOTA).unwrap();
        until(&bench, SETTLED, "it is there again", || is_bound(&bench)).await;
    });
}

#[test]
fn leaf_that_a_dead_node_holds_back_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        caller.change(Change::Publish).await;
        caller.delete_claim();
        sleep(Duration::from_secs(20)).await;
        assert!(!events(&bench).contains("LeafWaits"), "a node may take a moment: {}", events(&bench));
        until(&bench, SETTLED, "it is told", || events(&bench).contains("LeafWaits: ")).await;
        let told = events(&bench);
        assert!(told.contains("virtual/m0") && told.contains("kosmos.csi.io/published"), "{told}");
        assert!(is_bound(&bench), "it is kept");
    });
}

/// Its claimRef is as it was, and pods go on: but nothing would be done with it any more.
#[test]
fn leaf_whose_labels_somebody_takes_off_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let (caller, member) = (provisioned(&bench, Script::new(CLAIM)).await, &bench.members[0]);
        let labels = leaf(&bench, CLAIM).unwrap()["metadata"]["labels"].clone();
        let label = |labels: &Value| {
            let change = |leaf: &mut Value| leaf["metadata"]["labels"] = labels.clone();
            member.change("persistentvolumeclaims", SHOP, CLAIM, change).unwrap();
        };
        label(&json!({}));
        let volume = format!("kosmos.csi.io/volume={}", text(&labels, "/kosmos.csi.io~1volume"));
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            told.contains("LeafStuck: ") && told.contains("put back") && told.contains(&volume)
        })
        .await;
        assert!(!events(&bench).contains("claimRef"), "{}", events(&bench));
        label(&labels);
        ends_well(&bench, caller).await;
    });
}

/// Something in it, which is none of ours, holds it.
#[test]
fn leaf_whose_namespace_does_not_come_to_its_end_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let (caller, member) = (provisioned(&bench, Script::new(CLAIM)).await, &bench.members[0]);
        let theirs = json!({"metadata": {"name": "theirs", "namespace": SHOP, "finalizers": ["example.com/theirs"]}});
        member.create("configmaps", theirs).unwrap();
        member.delete("namespaces", "", SHOP).unwrap();
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            told.contains("LeafStuck: ") && told.contains("being terminated")
        })
        .await;
        member.change("configmaps", SHOP, "theirs", |theirs| theirs["metadata"]["finalizers"] = json!([])).unwrap();
        until(&bench, SETTLED, "it is there again", || is_bound(&bench)).await;
        assert_eq!(bench.storages[0].volumes(), [caller.leaf_volume().unwrap()], "with its data");
    });
}

/// A webhook that says no code refuses with 400, and a policy of the API server's own with 422, as what is wrong in itself.
#[test]
fn leaf_volume_that_a_policy_of_the_member_keeps_from_being_retained_says_so_on_the_volume() {
    for (code, reason) in [(400, "BadRequest"), (422, "Invalid")] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            bench.guard.set_fate(move |_, at, asked| {
                let is_refused = at == 1 && asked.verb == Verb::Patch && asked.resource == "persistentvolumes";
                if is_refused { Action::Answer { code, reason } } else { Action::Pass }
            });
            caller.set_policy("Retain");
            until(&bench, SETTLED, "it is told", || {
                let told = events(&bench);
                told.contains("LeafStuck: ") && told.contains("the member refuses the change")
            })
            .await;
            bench.guard.heal();
            until(&bench, SETTLED, "it is retained", || policy(&bench, &caller) == "Retain").await;
            ends_well(&bench, caller).await;
        });
    }
}

/// It writes on each volume, whoever has asked for what.
#[test]
fn removal_that_a_webhook_of_the_member_undoes_says_so_and_does_not_go_in_circles() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script { leaf_class: fixture::KEPT, ..Script::new(CLAIM) }).await;
        bench.guard.set_fate(|_, at, asked| {
            let is_rewritten = at == 1 && asked.verb == Verb::Patch && asked.resource == "persistentvolumes";
            let retains = Action::Rewrite { at: "/spec/persistentVolumeReclaimPolicy", value: "Retain" };
            if is_rewritten { retains } else { Action::Pass }
        });
        let (driver, handle) = (bench.driver_name().unwrap(), may_be_deleted(&bench, &caller).await);
        sleep(Duration::from_secs(1)).await;
        let sent = bench.guard.sent_by(&driver);
        let refused = caller.delete(handle).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("A webhook there"), "{refused}");
        let sent = bench.guard.sent_by(&driver) - sent;
        assert!(sent < 10, "{sent}: {}", bench.guard.trace().join("\n"));
        assert!(is_bound(&bench) && leaf(&bench, CLAIM).unwrap()["metadata"]["deletionTimestamp"].is_null());
        bench.guard.heal();
        ends_well(&bench, caller).await;
    });
}

/// It has each claim ask for what its people think is enough.
#[test]
fn leaf_that_a_webhook_of_the_member_makes_smaller_than_it_was_asked_for_says_so() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = Caller::new(&bench, Script::new(CLAIM));
        bench.guard.set_fate(|_, at, asked| {
            let is_rewritten = at == 1 && asked.verb == Verb::Create && asked.resource == "persistentvolumeclaims";
            let asks_for_less = Action::Rewrite { at: "/spec/resources/requests/storage", value: "512Mi" };
            if is_rewritten { asks_for_less } else { Action::Pass }
        });
        let waits = caller.create().await.unwrap_err();
        assert_eq!(waits.code(), Code::Aborted, "{waits}");
        assert!(waits.message().contains("has 512Mi, and 1Gi was asked for"), "{waits}");
        assert!(is_bound(&bench) && bench.guard.wrong().is_empty(), "{:?}", bench.guard.wrong());
    });
}

/// The host's volume says no more than what DeleteVolume answers.
#[test]
fn leaf_volume_that_the_members_storage_does_not_remove_is_answered_with_its_words() {
    virtual_time::run(1, async {
        let step = Duration::from_millis(100);
        let deleting = Work { fails_per_mille: 1000, ..Work::takes(step..=step) };
        let bench = Bench::serving(1, &Settings { deleting, ..fixture::steady(step) }).await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let handle = may_be_deleted(&bench, &caller).await;
        let late = timeout(SETTLED, caller.delete(handle)).await.unwrap().unwrap_err();
        assert_eq!(late.code(), Code::Aborted, "{late}");
        assert!(late.message().contains("its leaf volume is still being deleted: "), "{late}");
        assert!(late.message().contains("VolumeFailedDelete: the storage failed"), "{late}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// As a controller there that has all volumes stay, or a webhook.
#[test]
fn removal_that_something_in_the_member_undoes_says_so_and_is_not_tried_as_fast_as_it_is_undone() {
    virtual_time::run(1, async {
        let step = Duration::from_millis(100);
        let deleting = Work { fails_per_mille: 1000, ..Work::takes(step..=step) };
        let bench = Bench::serving(1, &Settings { deleting, ..fixture::steady(step) }).await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let (there, of) = (Arc::clone(&bench), caller.clone());
        let undoes = tokio::spawn(async move {
            let stays = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
            loop {
                if policy(&there, &of) == "Delete" {
                    there.members[0].change("persistentvolumes", "", of.leaf_volume().unwrap(), stays).unwrap();
                }
                sleep(step / 10).await;
            }
        });
        sleep(step * 10).await;
        let handle = may_be_deleted(&bench, &caller).await;
        let late = timeout(SETTLED, caller.delete(handle)).await.unwrap().unwrap_err();
        assert!(late.message().contains("something in the member undoes it"), "{late}");
        let written = || bench.guard.trace().iter().filter(|line| line.contains("Patch persistentvolumes ")).count();
        let before = written();
        sleep(Duration::from_mins(5)).await;
        assert!(written() - before < 200, "{} times in five minutes", written() - before);
        undoes.abort();
    });
}

/// A namespace of the member in which the host's account has no rights.
#[test]
fn leaf_that_belongs_where_the_member_gives_no_rights_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        released(&bench, &mut caller).await;
        bench.guard.set_fate(|_, at, asked| {
            let is_closed = at == 1 && asked.namespace == BANK;
            if is_closed { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        bench.host.create("namespaces", json!({"metadata": {"name": BANK}})).unwrap();
        claim_again(&bench, caller.volume(), BANK, "again");
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            ["LeafStuck: ", "bank/again", "the member refuses to show it"].iter().all(|words| told.contains(words))
        })
        .await;
        bench.guard.heal();
        let is_there = || phase(bench.members[0].get("persistentvolumeclaims", BANK, "again")) == "Bound";
        until(&bench, SETTLED, "it is there", is_there).await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Its class names leaf claims by a template, and the name of the claim that the volume is given to is too long for that.
#[test]
fn leaf_that_cannot_have_the_name_that_its_class_gives_it_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let parameters = &[("leafClaimName", "leaf-of-${pvc.metadata.name}")];
        let mut caller = provisioned(&bench, Script { parameters, ..retained() }).await;
        caller.delete_claim();
        timeout(SETTLED, caller.reclaim()).await.unwrap();
        until(&bench, SETTLED, "it is let go", || leaf(&bench, "leaf-of-data").is_none()).await;
        caller.claim_again(&"x".repeat(250));
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            told.contains("LeafStuck: ") && told.contains("which is not the name of a claim")
        })
        .await;
        assert_eq!(bench.storages[0].volumes(), [caller.leaf_volume().unwrap()], "its data is kept");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The member binds a claim that has been deleted, as long as something holds it.
#[test]
fn leaf_that_is_bound_after_somebody_deleted_it_is_taken_back_and_recreated() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let is_held = Arc::new(AtomicBool::new(true));
        let held = Arc::clone(&is_held);
        bench.guard.set_fate(move |_, at, asked| {
            let mut changes = asked.body.as_array().into_iter().flatten();
            let lets_go = at == 1 && changes.any(|change| change["value"] == "kosmos.csi.io/protect");
            if lets_go && held.load(Ordering::Relaxed) {
                Action::Answer { code: 503, reason: "ServiceUnavailable" }
            } else {
                Action::Pass
            }
        });
        let mut caller = Caller::new(&bench, Script::new(CLAIM));
        let meddles = async {
            until(&bench, SETTLED, "it waits", || leaf(&bench, CLAIM).is_some()).await;
            delete_leaf_claim(&bench, CLAIM);
            until(&bench, SETTLED, "it is bound all the same", || phase(leaf(&bench, CLAIM)) == "Bound").await;
            is_held.store(false, Ordering::Relaxed);
        };
        let made = timeout(SETTLED * 8, caller.insist_on_creation());
        let (made, ()) = tokio::join!(made, meddles);
        made.unwrap();
        let leaf = leaf(&bench, CLAIM).unwrap();
        assert_eq!(text(&leaf, "/metadata/deletionTimestamp"), "");
        assert_eq!(bench.storages[0].volumes().len(), 1, "the volume of before is gone");
        ends_well(&bench, caller).await;
    });
}
