//! A leaf claim that the member has bound to a volume which people made there, with what they have on it.

use std::sync::Arc;

use serde_json::Value;
use simulate::text;
use tokio::time::{sleep, timeout};

use crate::{
    bench::Bench,
    caller::{Caller, Script},
    crash::{Point, points},
    fixture,
    reclaim::{CLAIM, SETTLED, bench, events, leaf, leaf_volume, provisioned},
    virtual_time,
};

/// No provisioner tells of it, and people say what becomes of it.
async fn bound_by_hand(policy: &'static str) -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let caller = provisioned(&bench, Script { leaf_class: fixture::NOW, ..Script::new(CLAIM) }).await;
    let by_hand = |volume: &mut Value| {
        volume["metadata"]["annotations"].as_object_mut().unwrap().remove("pv.kubernetes.io/provisioned-by");
        volume["spec"]["persistentVolumeReclaimPolicy"] = policy.into();
    };
    bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), by_hand).unwrap();
    (bench, caller)
}

/// What is not as it should be once the host has removed its volume.
fn wrong(bench: &Bench, caller: &Caller, policy: &str) -> Option<String> {
    let volume = leaf_volume(bench, caller)?;
    let labels = volume.pointer("/metadata/labels").map(Value::to_string).unwrap_or_default();
    let so = leaf(bench, CLAIM).is_none()
        && text(&volume, "/spec/persistentVolumeReclaimPolicy") == policy
        && !labels.contains("kosmos.csi.io")
        && bench.storages[0].volumes().len() == 1;
    (!so).then(|| volume.to_string())
}

#[test]
fn volume_that_people_made_stays_as_they_made_it_and_the_user_is_told() {
    for policy in ["Retain", "Delete"] {
        virtual_time::run(1, async {
            let (bench, mut caller) = bound_by_hand(policy).await;
            caller.delete_claim();
            timeout(SETTLED, caller.reclaim()).await.unwrap();
            assert_eq!(wrong(&bench, &caller, policy), None, "{policy}");
            assert!(leaf_volume(&bench, &caller).is_some());
            let told = events(&bench);
            assert!(told.contains("LeafKept: member m0: leaf claim shop/data is gone."), "{told}");
            sleep(SETTLED).await;
            assert_eq!(wrong(&bench, &caller, policy), None, "{policy}, later");
        });
    }
}

fn killed_at(point: Option<Point>) -> (u64, Option<String>) {
    virtual_time::run(1, async {
        let (bench, mut caller) = bound_by_hand("Retain").await;
        let sent = bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&bench))));
        caller.delete_claim();
        let removed = timeout(SETTLED * 4, caller.reclaim()).await;
        let requests = bench.guard.sent() - sent;
        bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        sleep(SETTLED).await;
        let stuck = removed.is_err().then(|| bench.guard.trace().join("\n"));
        (requests, stuck.or_else(|| wrong(&bench, &caller, "Retain")))
    })
}

#[test]
fn volume_that_people_made_stays_wherever_the_driver_is_killed() {
    let (requests, wrong) = killed_at(None);
    assert!(wrong.is_none() && requests >= 3, "{requests} {wrong:?}");
    let bad = virtual_time::each(virtual_time::THREADS, points(requests).collect(), |point| {
        killed_at(Some(point)).1.map(|wrong| format!("{point:?}: {wrong}"))
    });
    assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
}
