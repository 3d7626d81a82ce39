//! Seeded schedules of leaves that have two volumes of the host each, under both names of their member, while the second name
//! leads nowhere now and then: a leaf stays for as long as one of its volumes is wanted, and goes with the last one.

use std::{convert::Infallible, sync::Arc, time::Duration};

use csi::v1::DeleteVolumeRequest;
use fastrand::Rng;
use futures::future::join_all;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::Storage,
};
use tokio::time::{sleep, timeout};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Ending, Script, claim_again, set_policy},
    extent, fixture,
    reclaim::SETTLED,
    shared::{alias, has_alias},
    virtual_time,
};

/// Each is made and deleted. There are as many of these schedules as of the large ones.
const CLAIMS: usize = 10;
const OPERATIONS: usize = 10 * 2 * CLAIMS;
const CLAIM_KIND: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const ALIAS: &str = "alias";
/// For the host's controllers.
const MOMENT: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_hours(2);

/// From a twin to the first removal. The replica that leads believes a watch of the host's volumes for ten seconds that has died
/// unnoticed.
fn heard(chance: &mut Rng) -> Duration {
    Duration::from_secs(chance.u64(30..120))
}

/// The kubeconfig of the second name is of no use, is gone, and is there again.
async fn comes_and_goes(bench: Arc<Bench>, mut chance: Rng) -> Infallible {
    loop {
        sleep(Duration::from_millis(chance.u64(2000..60_000))).await;
        match chance.u8(..3) {
            0 => {
                bench.guard.note(|| "the second name has left".to_owned());
                let _ = bench.host.delete("secrets", DRIVER_NAMESPACE, ALIAS);
            }
            1 => {
                bench.guard.note(|| "the second name leads nowhere".to_owned());
                let garble = |secret: &mut Value| secret["data"]["kubeconfig"] = json!("bm90aGluZw==");
                let _ = bench.host.change("secrets", DRIVER_NAMESPACE, ALIAS, garble);
            }
            _ => {
                bench.guard.note(|| "the second name is there again".to_owned());
                let _ = bench.host.delete("secrets", DRIVER_NAMESPACE, ALIAS);
                let _ = bench.host.create("secrets", alias());
            }
        }
    }
}

/// An administrator makes another volume of one, for another claim, and writes the second name. The handle.
fn make_twin(bench: &Bench, of: &Caller, name: &str, policy: &str) -> String {
    let handle = of.handle().unwrap().replacen("m0/", "alias/", 1);
    let mut twin = Value::clone(&bench.host.get(VOLUMES, "", of.volume()).unwrap());
    twin["metadata"] = json!({"name": name});
    twin.as_object_mut().unwrap().remove("status");
    twin["spec"].as_object_mut().unwrap().remove("claimRef");
    twin["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
    twin["spec"]["csi"]["volumeHandle"] = json!(handle);
    bench.host.create(VOLUMES, twin).unwrap();
    claim_again(bench, name, SHOP, name);
    handle
}

/// As the event `LeafShared` says: the twin goes, and removes nothing.
async fn give_up(bench: &Bench, twin: &str, leaf_volume: &str) {
    if !bench.storages[0].volumes().iter().any(|volume| volume == leaf_volume) {
        bench.guard.report(format!("I1: volume {twin} of the host has leaf volume {leaf_volume}, whose data is gone"));
    }
    set_policy(bench, twin, "Retain");
    let _ = bench.host.delete(CLAIM_KIND, SHOP, twin);
    sleep(MOMENT).await;
    bench.host.delete(VOLUMES, "", twin).unwrap();
}

/// Its claim is deleted, and a provisioner has it removed, as often as it likes.
async fn remove_twin(bench: &Bench, twin: &str, handle: &str, chance: &mut Rng) {
    set_policy(bench, twin, "Delete");
    bench.host.delete(CLAIM_KIND, SHOP, twin).unwrap();
    sleep(MOMENT).await;
    for _ in 0..chance.u8(1..6) {
        let request = DeleteVolumeRequest { volume_id: handle.to_owned(), ..DeleteVolumeRequest::default() };
        match bench.delete(request).await {
            Ok(()) => bench.guard.report(format!("I6: {handle} is removed, and another volume has its leaf")),
            Err(status) => bench.guard.note(|| format!("DeleteVolume {handle}: {status}")),
        }
        sleep(Duration::from_millis(chance.u64(..60_000))).await;
    }
}

/// One leaf with both of its volumes, of which either goes first.
async fn life(bench: Arc<Bench>, number: usize, mut chance: Rng) {
    sleep(Duration::from_millis(chance.u64(..60_000))).await;
    let classes = [fixture::NOW, fixture::LATER, fixture::KEPT];
    let leaf_class = classes[chance.usize(..classes.len())];
    let script = Script { places: vec![0], leaf_class, ..Script::new(&format!("data-{number}")) };
    let mut caller = Caller::new(&bench, script);
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(MOMENT).await;
    let (twin, leaf_volume) = (format!("twin-{number}"), caller.leaf_volume().unwrap().to_owned());
    let handle = make_twin(&bench, &caller, &twin, if chance.bool() { "Retain" } else { "Delete" });
    sleep(heard(&mut chance)).await;
    if chance.u8(..3) == 0 {
        remove_twin(&bench, &twin, &handle, &mut chance).await;
        give_up(&bench, &twin, &leaf_volume).await;
        caller.delete_claim();
        caller.reclaim().await;
        return;
    }
    caller.delete_claim();
    let gives_up = async {
        sleep(heard(&mut chance)).await;
        give_up(&bench, &twin, &leaf_volume).await;
    };
    tokio::join!(caller.reclaim(), gives_up);
}

/// Of the host's volumes, in every other schedule.
fn watch(chance: &mut Rng) -> Action {
    match chance.u8(..4) {
        0 => Action::Silence(chance.u64(..30)),
        1 => Action::Lag(Duration::from_millis(chance.u64(500..30_000))),
        _ => Action::Pass,
    }
}

/// What was wrong, and the course of it.
fn play(seed: u64, traced: bool) -> (Vec<String>, Vec<String>) {
    virtual_time::run(seed, async {
        let mut chance = Rng::with_seed(seed);
        let bench = Bench::new(seed, 2, &fixture::moody()).await;
        bench.guard.keeps_trace(traced);
        let fate = watch(&mut chance);
        bench.guard.set_fate(move |_, at, asked| {
            let is_it = at == 0 && asked.verb == Verb::Watch && asked.resource == VOLUMES;
            if is_it { fate.clone() } else { Action::Pass }
        });
        if chance.bool() {
            bench.start_second("second");
            sleep(MOMENT).await;
        }
        bench.start();
        bench.serves().await;
        has_alias(&bench).await;
        let name = tokio::spawn(comes_and_goes(Arc::clone(&bench), Rng::with_seed(chance.u64(..))));
        let lives: Vec<_> = (0..CLAIMS)
            .map(|number| tokio::spawn(life(Arc::clone(&bench), number, Rng::with_seed(chance.u64(..)))))
            .collect();
        for _ in 0..chance.u8(..3) {
            sleep(Duration::from_secs(chance.u64(..120))).await;
            bench.start();
        }
        match timeout(PATIENCE, join_all(lives)).await {
            Ok(ended) => ended.into_iter().for_each(Result::unwrap),
            Err(_) => bench.guard.report("I10: some claims come to no end"),
        }
        name.abort();
        sleep(SETTLED).await;
        let mut wrong = bench.guard.wrong();
        wrong.extend(bench.leftovers().into_iter().map(|left| format!("I1: left behind: {left}")));
        let kept = bench.storages.iter().flat_map(Storage::volumes);
        wrong.extend(kept.map(|volume| format!("I1: the storage keeps {volume}")));
        (wrong, bench.guard.trace())
    })
}

#[test]
fn every_promise_holds_when_a_member_has_a_second_name_that_leads_nowhere_now_and_then() {
    let seeds = extent::seeds(OPERATIONS);
    let count = seeds.len();
    let wrong = virtual_time::each(virtual_time::THREADS, seeds, |seed| extent::found(&play(seed, false).0, seed));
    let course = |seed| play(seed, true).1;
    extent::nothing_is_found(&wrong, count, "every_promise_holds_when_a_member_has_a_second_name", course);
}
