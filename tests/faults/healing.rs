//! Somebody in a member deletes leaf claims that the host uses. They come back with their data, wherever the driver is killed
//! meanwhile; and what the host itself removes never comes back.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending, Script},
    crash::{Point, points},
    extent::{ALL, drawn},
    fixture::{self, Planted},
    invariants::{Story, violations},
    people::{delete_leaf_claim, delete_leaf_claim_by_force},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// From the deletion, or the driver's return, to a leaf that is whole again.
const HEALED: Duration = Duration::from_secs(90);
/// From the claim's deletion to the end of its volume.
const REMOVED: Duration = Duration::from_mins(10);
const CLAIM: &str = "data";

async fn bench() -> Arc<Bench> {
    Bench::serving(1, &fixture::steady(STEP)).await
}

async fn provisioned(bench: &Arc<Bench>, script: Script) -> Caller {
    let mut caller = Caller::new(bench, script);
    assert_eq!(caller.provision().await, Ending::Provisioned);
    caller
}

fn leaf(bench: &Bench) -> Option<Arc<Value>> {
    bench.members[0].get("persistentvolumeclaims", SHOP, CLAIM)
}

fn uid(bench: &Bench) -> String {
    text(&leaf(bench).unwrap(), "/metadata/uid").to_owned()
}

fn events(bench: &Bench) -> Vec<String> {
    let told =
        bench.host.list("events").into_iter().filter(|event| text(event, "/source/component") == "kosmos.csi.io");
    told.map(|event| format!("{}: {}", text(&event, "/reason"), text(&event, "/message"))).collect()
}

fn wrong(bench: &Bench, caller: &Caller, deleted: bool) -> Vec<String> {
    let story = Story { caller: caller.clone(), ending: Ending::Provisioned, deleted };
    violations(bench, &[story], &Planted::default())
}

/// Waits until nothing is wrong, and tells what still is at the end.
async fn healed(bench: &Bench, caller: &Caller) -> Vec<String> {
    let began = Instant::now();
    while !wrong(bench, caller, false).is_empty() && began.elapsed() < HEALED {
        sleep(STEP).await;
    }
    wrong(bench, caller, false)
}

/// It is deleted by its user, and nothing is left.
async fn ends_well(bench: &Bench, mut caller: Caller) {
    caller.delete_claim();
    let ended = timeout(REMOVED, caller.reclaim()).await;
    assert!(ended.is_ok(), "it is never removed: {}", bench.guard.trace().join("\n"));
    sleep(HEALED).await;
    let wrong = wrong(bench, &caller, true);
    assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
}

/// The member's controller looks by itself only after a quarter of a minute.
#[test]
fn leaf_that_was_deleted_is_bound_again_within_two_seconds() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let before = uid(&bench);
        delete_leaf_claim(&bench, CLAIM);
        sleep(Duration::from_secs(2)).await;
        let now = leaf(&bench).unwrap();
        assert_ne!(text(&now, "/metadata/uid"), before);
        assert_eq!(text(&now, "/status/phase"), "Bound", "{now}");
        assert_eq!(wrong(&bench, &caller, false), [""; 0]);
    });
}

/// Its volume in the host stays with its claim.
#[test]
fn leaf_that_was_deleted_is_bound_again_also_where_somebody_has_deleted_the_volume_of_the_host() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        sleep(Duration::from_secs(5)).await;
        bench.host.delete("persistentvolumes", "", caller.volume()).unwrap();
        sleep(Duration::from_secs(5)).await;
        let before = delete_leaf_claim(&bench, CLAIM);
        sleep(Duration::from_secs(2)).await;
        let now = leaf(&bench).unwrap();
        assert_ne!(text(&now, "/metadata/uid"), before);
        assert_eq!(text(&now, "/status/phase"), "Bound", "{now}\n{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.storages[0].volumes(), [caller.leaf_volume().unwrap()]);
        lock(&bench.guard.history).let_go(caller.volume());
        caller.delete_claim();
        timeout(REMOVED, caller.reclaim()).await.unwrap();
        sleep(HEALED).await;
        assert!(bench.storages[0].volumes().is_empty(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn deleted_leaf_comes_back_with_its_data_and_is_removed_like_any_other() {
    for leaf_class in [fixture::NOW, fixture::LATER, fixture::KEPT] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
            let policy = |bench: &Bench| {
                let volume = bench.members[0].get("persistentvolumes", "", caller.leaf_volume().unwrap()).unwrap();
                text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned()
            };
            let before = policy(&bench);
            // Twice: what was recreated is as good as what was made first.
            for _ in 0..2 {
                let was = delete_leaf_claim(&bench, CLAIM);
                let wrong = healed(&bench, &caller).await;
                assert!(wrong.is_empty(), "{leaf_class}: {}\n{wrong:#?}", bench.guard.trace().join("\n"));
                assert_ne!(uid(&bench), was);
                assert_eq!(policy(&bench), before, "{leaf_class}");
            }
            let told = events(&bench).join("\n");
            assert!(told.contains("LeafDeleted: ") && told.contains("LeafHealed: "), "{told}");
            ends_well(&bench, caller).await;
        });
    }
}

#[test]
fn leaf_whose_finalizers_were_taken_away_comes_back_where_its_volume_is_retained() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script { leaf_class: fixture::KEPT, ..Script::new(CLAIM) }).await;
        delete_leaf_claim_by_force(&bench, CLAIM);
        let wrong = healed(&bench, &caller).await;
        assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

#[test]
fn user_is_told_of_a_leaf_that_was_deleted_before_it_had_a_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let deferred = Script { leaf_class: fixture::LATER, binding: Some("deferred"), ..Script::new(CLAIM) };
        let caller = provisioned(&bench, deferred).await;
        assert_eq!(text(&leaf(&bench).unwrap(), "/status/phase"), "Pending");
        delete_leaf_claim(&bench, CLAIM);
        let sent = bench.guard.sent_for_work();
        sleep(Duration::from_mins(10)).await;
        assert!(leaf(&bench).is_some(), "nothing would keep what it was");
        assert!(bench.guard.sent_for_work() - sent < 130, "it is looked at ever less often");
        let told = events(&bench).join("\n");
        assert!(told.contains("LeafStuck: ") && told.contains("make it again"), "{told}");
        ends_well(&bench, caller).await;
    });
}

/// Gone with its data: that is told, and no call makes an empty volume of that name.
#[test]
fn nothing_is_made_in_the_place_of_data_that_is_gone() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        delete_leaf_claim_by_force(&bench, CLAIM);
        sleep(HEALED).await;
        assert!(leaf(&bench).is_none() && bench.storages[0].volumes().is_empty());
        let again = caller.create().await.unwrap_err();
        assert_eq!(again.code(), Code::Aborted, "{again}");
        assert!(leaf(&bench).is_none(), "an empty volume has taken its place");
        assert!(events(&bench).iter().any(|told| told.starts_with("LeafLost: ")), "{:?}", events(&bench));
        ends_well(&bench, caller).await;
    });
}

/// People in the member do as is told, and restore it under its names. It has another UID and another volume then.
#[test]
fn leaf_that_was_lost_and_is_restored_under_its_name_is_used_again() {
    for annotated in [true, false] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
            sleep(HEALED).await;
            let was = leaf(&bench).unwrap();
            delete_leaf_claim_by_force(&bench, CLAIM);
            sleep(HEALED).await;
            // Tools leave out what is about the bond of before.
            let mut annotations = was["metadata"]["annotations"].as_object().unwrap().clone();
            annotations.retain(|key, _| annotated && key.starts_with("kosmos.csi.io/"));
            let restored = json!({
                "metadata": {"name": CLAIM, "namespace": SHOP, "labels": was["metadata"]["labels"], "annotations": annotations},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            let restored = bench.members[0].create("persistentvolumeclaims", restored).unwrap();
            lock(&bench.guard.history).plant(&restored);
            sleep(HEALED).await;
            let there = leaf(&bench).unwrap();
            let ends = there.pointer("/metadata/deletionTimestamp").is_some();
            assert!(text(&there, "/status/phase") == "Bound" && !ends, "{annotated}: {there}");
            assert!(!events(&bench).iter().any(|told| told.contains("LeafStuck")), "{:?}", events(&bench));
            caller.publish(&caller.node()).await.unwrap();
        });
    }
}

#[test]
fn pod_that_uses_a_deleted_leaf_is_waited_for() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let pod = json!({
            "metadata": {"name": "web", "namespace": SHOP},
            "spec": {
                "containers": [{"name": "web", "image": "web"}],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}],
            },
        });
        bench.members[0].create("pods", pod).unwrap();
        sleep(STEP * 10).await;
        let was = uid(&bench);
        delete_leaf_claim(&bench, CLAIM);
        sleep(HEALED).await;
        assert_eq!(uid(&bench), was);
        assert!(events(&bench).iter().any(|told| told.starts_with("LeafWaits: ")), "{:?}", events(&bench));
        bench.members[0].delete_now("pods", SHOP, "web").unwrap();
        let wrong = healed(&bench, &caller).await;
        assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// A provisioner that asks again while the leaf is being healed gets no other one.
#[test]
fn creation_is_not_repeated_while_a_leaf_is_healed() {
    virtual_time::run(1, async {
        let bench = bench().await;
        for told in [true, false] {
            let script = Script { told, ..Script::new(if told { CLAIM } else { "untold" }) };
            let caller = provisioned(&bench, script).await;
            let handle = caller.handle().unwrap().to_owned();
            let place: Vec<&str> = handle.split('/').collect();
            let leaf = bench.leaf_behind(&handle).unwrap();
            lock(&bench.guard.history).deleted_by_people(text(&leaf, "/metadata/uid"));
            bench.members[0].delete("persistentvolumeclaims", place[1], place[2]).unwrap();
            let ends = Instant::now() + HEALED;
            while Instant::now() < ends {
                if let Ok(volume) = caller.create().await {
                    assert_eq!(volume.volume_id, handle);
                }
                sleep(STEP * 3).await;
            }
            let wrong = wrong(&bench, &caller, false);
            assert!(wrong.is_empty(), "{}\n{wrong:#?}", bench.guard.trace().join("\n"));
            ends_well(&bench, caller).await;
        }
    });
}

/// How many requests healing takes, and what is wrong, where the driver is killed at a point.
fn killed_at(leaf_class: &'static str, point: Option<Point>) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
        sleep(Duration::from_secs(10)).await;
        let sent = bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&bench))));
        delete_leaf_claim(&bench, CLAIM);
        let mut bad = healed(&bench, &caller).await;
        let requests = bench.guard.sent() - sent;
        bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        if bad.is_empty() {
            caller.delete_claim();
            caller.reclaim().await;
            sleep(HEALED).await;
            bad = wrong(&bench, &caller, true);
        }
        if !bad.is_empty() {
            bad.insert(0, bench.guard.trace().join("\n"));
        }
        (requests, bad)
    })
}

#[test]
fn leaf_is_healed_wherever_the_driver_is_killed() {
    for leaf_class in [fixture::NOW, fixture::KEPT] {
        let (requests, wrong) = killed_at(leaf_class, None);
        assert!(wrong.is_empty() && requests >= 15, "{requests} {wrong:#?}");
        let bad = virtual_time::each(virtual_time::THREADS, drawn(points(requests), ALL), |point| {
            let (_, wrong) = killed_at(leaf_class, Some(point));
            (!wrong.is_empty()).then(|| format!("{point:?}: {}", wrong.join("\n")))
        });
        assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
    }
}

/// The user deletes the claim at every moment of healing, and DeleteVolume comes at once. Requests are slow, so that each
/// of the two meets every state of the other.
#[test]
fn what_the_host_removes_never_comes_back() {
    let bound = Script::new(CLAIM);
    let deferred = Script { leaf_class: fixture::LATER, binding: Some("deferred"), ..Script::new(CLAIM) };
    let cases =
        [bound, deferred].into_iter().flat_map(|script| (0..60_u64).map(move |moment| (moment, script.clone())));
    let bad = virtual_time::each(virtual_time::THREADS, cases.collect(), |(moment, script)| {
        virtual_time::run(moment, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, script).await;
            sleep(Duration::from_secs(10)).await;
            bench.guard.set_fate(|number, _, _| Action::Delay(Duration::from_millis(number * 37 % 300)));
            delete_leaf_claim(&bench, CLAIM);
            sleep(Duration::from_millis(moment * 100)).await;
            caller.delete_claim();
            while bench
                .host
                .get("persistentvolumes", "", caller.volume())
                .is_some_and(|volume| text(&volume, "/status/phase") != "Released")
            {
                sleep(STEP).await;
            }
            caller.insist_on_deletion().await;
            bench.guard.heal();
            sleep(HEALED).await;
            let wrong = wrong(&bench, &caller, true);
            (!wrong.is_empty()).then(|| format!("{moment}: {}\n{}", bench.guard.trace().join("\n"), wrong.join("\n")))
        })
    });
    assert!(bad.is_empty(), "{} of 120, such as {}", bad.len(), bad[0]);
}

/// Who has no volume of it in the host any more goes by the mark, also when the pod has gone within seconds.
#[test]
fn leaf_is_marked_by_the_write_that_records_its_first_node() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.publish(&caller.node()).await.unwrap();
        let mark = leaf(&bench).unwrap()["metadata"]["annotations"]["kosmos.csi.io/had-pv"].clone();
        assert_eq!(mark.as_str(), caller.handle(), "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

#[test]
fn leaf_is_marked_once_its_volume_is_seen() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let mark = |bench: &Bench| leaf(bench).unwrap()["metadata"]["annotations"]["kosmos.csi.io/had-pv"].clone();
        assert!(mark(&bench).is_null(), "nobody waits for it");
        sleep(Duration::from_secs(10)).await;
        assert!(mark(&bench).is_string());
        let version = text(&leaf(&bench).unwrap(), "/metadata/resourceVersion").to_owned();
        bench.start();
        bench.serves().await;
        sleep(HEALED).await;
        assert_eq!(text(&leaf(&bench).unwrap(), "/metadata/resourceVersion"), version, "once is enough");
        ends_well(&bench, caller).await;
    });
}
