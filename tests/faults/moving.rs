//! A leaf that is moved: taken out of reach, into the yard of its member, and brought home again; a second one in another member;
//! and what nobody gets done with either meanwhile. Whoever moves them is played here, by the marks that he writes.

mod copy;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::{
    ask::{Target, ask},
    bench::{Bench, SHOP, lock},
    caller::{Caller, Change, Ending, Script},
    crash::{Point, points},
    extent::drawn,
    fixture::{self, Planted},
    invariants::{Story, violations},
    snapshotter::have_kinds,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// For a leaf to go where it belongs.
const SETTLED: Duration = Duration::from_secs(90);
const REMOVED: Duration = Duration::from_mins(10);
/// Of those at which the driver is killed.
const POINTS: usize = 60;
const CLAIM: &str = "data";
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const YARD: &str = "kosmos-csi-movers";
const HOME: (&str, &str) = (SHOP, CLAIM);
const LENT: (&str, &str) = (YARD, "m1");
const MOVE: &str = "kosmos.csi.io/move";
const PLACE: &str = "kosmos.csi.io/place";
const BY: &str = "shop/to-m1/01234567-89ab-cdef-0123-456789abcdef";

/// Who moves it.
#[derive(Clone)]
struct Mover {
    bench: Arc<Bench>,
    caller: Caller,
}

impl Mover {
    async fn of(script: Script) -> Self {
        let bench = Bench::serving(2, &fixture::steady(STEP)).await;
        let mut caller = Caller::new(&bench, script);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        // The leaf is marked as one that the host has.
        sleep(Duration::from_secs(10)).await;
        Self { bench, caller }
    }

    async fn new() -> Self {
        Self::of(Script { places: vec![0], ..Script::new(CLAIM) }).await
    }

    fn claim_at(&self, place: (&str, &str)) -> Option<Arc<Value>> {
        self.bench.members[0].get(CLAIMS, place.0, place.1)
    }

    fn volume(&self) -> Arc<Value> {
        self.bench.members[0].get(VOLUMES, "", self.caller.leaf_volume().unwrap()).unwrap()
    }

    /// Writes what the claim says of the move.
    fn mark(&self, place: (&str, &str), part: Option<&str>) {
        let mark = part.map(|part| format!("{BY}/{part}"));
        let change = |claim: &mut Value| note(claim, MOVE, mark.as_deref());
        self.bench.members[0].change(CLAIMS, place.0, place.1, change).unwrap();
        self.bench.guard.note(|| format!("{place:?} is marked {part:?}"));
    }

    /// Writes where the claim belongs.
    fn place(&self, place: Option<(&str, &str)>) {
        let told = place.map(|(namespace, name)| format!("{namespace}/{name}"));
        let change = |volume: &mut Value| {
            note(volume, PLACE, told.as_deref());
            if told.is_some() {
                keep(volume);
            }
        };
        self.bench.members[0].change(VOLUMES, "", self.caller.leaf_volume().unwrap(), change).unwrap();
        self.bench.guard.note(|| format!("belongs {place:?}"));
    }

    /// Whether the claim is at one place, with its data, and at no other.
    fn is_at(&self, place: (&str, &str)) -> bool {
        let other = if place == HOME { LENT } else { HOME };
        let Some(claim) = self.claim_at(place).filter(|_| self.claim_at(other).is_none()) else { return false };
        let volume = self.volume();
        text(&claim, "/status/phase") == "Bound"
            && text(&claim, "/spec/volumeName") == text(&volume, "/metadata/name")
            && text(&volume, "/spec/claimRef/uid") == text(&claim, "/metadata/uid")
            && text(&volume, "/metadata/annotations/kosmos.csi.io~1healing").is_empty()
    }

    async fn settles_at(&self, place: (&str, &str)) -> bool {
        let end = Instant::now() + SETTLED;
        while !self.is_at(place) && Instant::now() < end {
            sleep(STEP).await;
        }
        self.is_at(place)
    }

    async fn lends(&self) -> bool {
        self.mark(HOME, Some("isolated-source"));
        self.place(Some(LENT));
        self.settles_at(LENT).await
    }

    async fn returns(&self) -> bool {
        self.place(Some(HOME));
        let is_home = self.settles_at(HOME).await;
        self.place(None);
        if is_home {
            self.mark(HOME, None);
        }
        is_home
    }

    fn wrong(&self, deleted: bool) -> Vec<String> {
        let story = Story { caller: self.caller.clone(), ending: Ending::Provisioned, deleted };
        violations(&self.bench, &[story], &Planted::default())
    }

    async fn ends_well(mut self) {
        self.caller.delete_claim();
        let ended = timeout(REMOVED, self.caller.reclaim()).await;
        assert!(ended.is_ok(), "it is never removed: {}", self.trace());
        sleep(SETTLED).await;
        assert_eq!(self.wrong(true), [""; 0], "{}", self.trace());
    }

    fn trace(&self) -> String {
        self.bench.guard.trace().join("\n")
    }

    /// What is asked of the volume.
    fn target(&self) -> Target {
        let volume = self.caller.handle().unwrap().to_owned();
        let member = self.bench.members[0].name().to_owned();
        Target {
            member,
            volume,
            class: fixture::NOW.to_owned(),
            claim: CLAIM.to_owned(),
            name: self.caller.volume().to_owned(),
            ..Target::default()
        }
    }
}

#[test]
fn leaf_goes_to_the_yard_and_comes_home_with_its_data_and_is_removed_like_any_other() {
    for leaf_class in [fixture::NOW, fixture::LATER, fixture::KEPT] {
        virtual_time::run(1, async {
            let mover = Mover::of(Script { places: vec![0], leaf_class, ..Script::new(CLAIM) }).await;
            let policy = |mover: &Mover| text(&mover.volume(), "/spec/persistentVolumeReclaimPolicy").to_owned();
            let before = policy(&mover);
            for _ in 0..2 {
                assert!(mover.lends().await, "{leaf_class}: {}", mover.trace());
                assert_eq!(policy(&mover), "Retain");
                // The handle leads there.
                let (code, why) = ask(&mover.bench, "ControllerGetVolume", &mover.target()).await;
                assert_eq!(code, Code::Ok, "{why}");
                assert!(mover.returns().await, "{leaf_class}: {}", mover.trace());
                sleep(SETTLED).await;
                assert_eq!(policy(&mover), before, "{leaf_class}");
                assert_eq!(mover.wrong(false), [""; 0], "{}", mover.trace());
            }
            mover.ends_well().await;
        });
    }
}

#[test]
fn leaf_that_is_moved_stays_whatever_the_host_does_meanwhile() {
    for (is_lent, policy) in [(false, "Delete"), (true, "Delete"), (false, "Retain"), (true, "Retain")] {
        virtual_time::run(1, async {
            let mut mover = Mover::new().await;
            mover.mark(HOME, Some("source"));
            if is_lent {
                assert!(mover.lends().await, "{}", mover.trace());
            }
            mover.caller.set_policy(policy);
            sleep(STEP * 30).await;
            mover.caller.delete_claim();
            let reclaiming = timeout(REMOVED, mover.caller.reclaim()).await;
            assert_eq!(reclaiming.is_ok(), policy == "Retain", "{is_lent} {policy}");
            sleep(SETTLED).await;
            assert!(mover.is_at(if is_lent { LENT } else { HOME }), "{is_lent} {policy}: {}", mover.trace());
            assert_eq!(text(&mover.volume(), "/spec/persistentVolumeReclaimPolicy"), "Retain");
            if is_lent {
                assert!(mover.returns().await, "{policy}: {}", mover.trace());
            } else {
                mover.mark(HOME, None);
            }
            assert!(timeout(REMOVED, mover.caller.reclaim()).await.is_ok(), "{is_lent} {policy}: {}", mover.trace());
            sleep(SETTLED).await;
            assert_eq!(mover.wrong(true), [""; 0], "{is_lent} {policy}: {}", mover.trace());
        });
    }
}

#[test]
fn nothing_but_unpublishing_is_done_with_a_leaf_that_is_moved_and_who_asks_is_told_of_the_move() {
    virtual_time::run(1, async {
        let mover = Mover::new().await;
        have_kinds(&mover.bench);
        for part in ["source", "isolated-source", "copy"] {
            mover.mark(HOME, Some(part));
            sleep(STEP * 20).await;
            for rpc in [
                "ControllerExpandVolume",
                "ControllerModifyVolume",
                "CreateSnapshot",
                "CreateVolumeGroupSnapshot",
                "DeleteVolume",
            ] {
                let (code, why) = ask(&mover.bench, rpc, &mover.target()).await;
                assert_eq!(code, Code::Aborted, "{part}: {rpc}: {why}");
                assert!(why.contains("VolumeMove shop/to-m1"), "{part}: {rpc}: {why}");
            }
            let (code, why) = ask(&mover.bench, "ControllerPublishVolume", &mover.target()).await;
            // A copy is the volume's leaf from the moment when the host leads to it, as it does here.
            assert_eq!(code, if part == "copy" { Code::Ok } else { Code::Aborted }, "{part}: {why}");
            let (code, why) = ask(&mover.bench, "ControllerUnpublishVolume", &mover.target()).await;
            assert_eq!(code, Code::Ok, "{why}");
        }
        // What is not a mark is nothing.
        mover.mark(HOME, Some("source/of/something"));
        sleep(STEP * 20).await;
        let (code, why) = ask(&mover.bench, "ControllerPublishVolume", &mover.target()).await;
        assert_eq!(code, Code::Ok, "{why}");
    });
}

/// Its claim is at no place for a moment, and its volume says then that it belongs to another one than the moment before.
#[test]
fn leaf_on_its_way_home_is_never_said_to_be_gone() {
    let bad = virtual_time::each(virtual_time::THREADS, drawn(0..80, POINTS), |moment| {
        let told = virtual_time::run(moment, async {
            let mover = Mover::new().await;
            assert!(mover.lends().await, "{}", mover.trace());
            mover.caller.delete_claim();
            let slow = move |number: u64| Action::Delay(Duration::from_millis((number + moment) * 37 % 300));
            mover.bench.guard.set_fate(move |number, _, _| slow(number));
            mover.place(Some(HOME));
            sleep(STEP / 2 * u32::try_from(moment).unwrap()).await;
            let (code, why) = ask(&mover.bench, "DeleteVolume", &mover.target()).await;
            (code != Code::Aborted).then(|| format!("{code} {why}\n{}", mover.trace()))
        });
        told.map(|told| format!("moment {moment}: {told}"))
    });
    assert!(bad.is_empty(), "{} of them, such as {}", bad.len(), bad[0]);
}

/// A pod that waits for its volume is on a virtual node already, and so is the volume.
#[test]
fn record_of_virtual_nodes_goes_along_and_comes_back_where_nobody_uses_the_leaf() {
    virtual_time::run(1, async {
        let mut mover = Mover::new().await;
        mover.caller.change(Change::Publish).await;
        let record = |claim: Option<Arc<Value>>| {
            text(&claim.unwrap(), "/metadata/annotations/kosmos.csi.io~1published").to_owned()
        };
        let before = record(mover.claim_at(HOME));
        mover.mark(HOME, Some("source"));
        mover.place(Some(LENT));
        sleep(SETTLED).await;
        assert!(mover.is_at(HOME), "it is on record, and nobody has said that no pod uses it: {}", mover.trace());
        assert!(mover.lends().await, "{}", mover.trace());
        assert_eq!(record(mover.claim_at(LENT)), before);
        assert!(mover.returns().await, "{}", mover.trace());
        assert_eq!(record(mover.claim_at(HOME)), before);
        // Its node leaves it on the way.
        assert!(mover.lends().await, "{}", mover.trace());
        mover.caller.unpublish().await.unwrap();
        assert_eq!(record(mover.claim_at(LENT)), "");
        assert!(mover.returns().await, "{}", mover.trace());
        mover.ends_well().await;
    });
}

#[test]
fn leaf_on_a_real_node_goes_nowhere_even_if_it_is_said_to_be_free() {
    virtual_time::run(1, async {
        let mover = Mover::new().await;
        let record = json!({"real/n1": {"access": "ReadWriteOnce"}}).to_string();
        let publish = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/published"] = json!(record);
        mover.bench.members[0].change(CLAIMS, SHOP, CLAIM, publish).unwrap();
        mover.mark(HOME, Some("isolated-source"));
        mover.place(Some(LENT));
        sleep(SETTLED).await;
        assert!(mover.is_at(HOME), "{}", mover.trace());
    });
}

#[test]
fn claim_in_the_yard_that_somebody_deletes_comes_back_there() {
    virtual_time::run(1, async {
        let mover = Mover::new().await;
        assert!(mover.lends().await, "{}", mover.trace());
        for by_force in [false, true] {
            let was = text(&mover.claim_at(LENT).unwrap(), "/metadata/uid").to_owned();
            lock(&mover.bench.guard.history).deleted_by_people(&was);
            mover.bench.members[0].delete(CLAIMS, LENT.0, LENT.1).unwrap();
            if by_force {
                let unheld = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
                drop(mover.bench.members[0].change(CLAIMS, LENT.0, LENT.1, unheld));
            }
            sleep(SETTLED).await;
            assert!(mover.is_at(LENT), "{by_force}: {}", mover.trace());
            assert_ne!(text(&mover.claim_at(LENT).unwrap(), "/metadata/uid"), was);
        }
        assert!(mover.returns().await, "{}", mover.trace());
        mover.ends_well().await;
    });
}

fn note(object: &mut Value, key: &str, value: Option<&str>) {
    let notes = object["metadata"]["annotations"].as_object_mut().unwrap();
    match value {
        Some(value) => drop(notes.insert(key.to_owned(), json!(value))),
        None => drop(notes.remove(key)),
    }
}

/// It stays, and says what its policy was.
fn keep(volume: &mut Value) {
    let before = volume["spec"]["persistentVolumeReclaimPolicy"].take();
    let notes = volume["metadata"]["annotations"].as_object_mut().unwrap();
    notes.entry("kosmos.csi.io/policy-before").or_insert(before);
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
}

/// How many requests a leaf's way to the yard and back takes, and what is wrong, where the driver is killed at a point.
fn killed_at(point: Option<Point>) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let mover = Mover::new().await;
        let sent = mover.bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&mover.bench))));
        let is_lent = mover.lends().await;
        let is_home = is_lent && mover.returns().await;
        let requests = mover.bench.guard.sent() - sent;
        let began = Instant::now();
        while !mover.wrong(false).is_empty() && began.elapsed() < SETTLED {
            sleep(STEP).await;
        }
        mover.bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        let mut bad = mover.wrong(false);
        if !is_home || !bad.is_empty() {
            bad.insert(0, format!("lent {is_lent} home {is_home}: {}", mover.trace()));
        }
        (requests, bad)
    })
}

#[test]
fn leaf_goes_and_comes_home_wherever_the_driver_is_killed() {
    let (requests, wrong) = killed_at(None);
    assert!(wrong.is_empty() && requests >= 30, "{requests} {wrong:#?}");
    let bad = virtual_time::each(virtual_time::THREADS, drawn(points(requests), POINTS), |point| {
        let (_, wrong) = killed_at(Some(point));
        (!wrong.is_empty()).then(|| format!("{point:?}: {}", wrong.join("\n")))
    });
    assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
}
