//! The same at moments that are drawn, with volumes in all states of their lives: who has a volume keeps its data, whose leaf is
//! not in the backup is told so, nothing empty takes its place, and everything can be removed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use fastrand::Rng;
use futures::future::join_all;
use serde_json::Value;
use simulate::text;
use tokio::time::{Instant, sleep, timeout};

use super::roll_back;
use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Change, Ending, Script, set_policy},
    extent::seeds,
    fixture::{self, Planted},
    schedules::strays,
    virtual_time,
    weather::{STORM, Weather},
};

const CLAIMS: usize = 100;
/// One such course of events in ten schedules.
const OPERATIONS: usize = 10 * 2 * CLAIMS;
/// In which claims are made, some are deleted, and the backup is restored.
const TIME: u64 = 10 * 60_000;
/// For all to come to rest.
const SETTLED: Duration = Duration::from_mins(20);
/// And for what nobody has to be found.
const SWEPT: Duration = Duration::from_hours(1);
const PATIENCE: Duration = Duration::from_hours(2);
const CHANGES: [&[Change]; 3] = [&[], &[Change::Publish], &[Change::Publish, Change::Unpublish]];

/// A volume of the host when the member was restored.
struct Known {
    name: String,
    handle: String,
    leaf_volume: String,
    /// Its leaf is in the backup, in whatever state.
    is_kept: bool,
}

fn draw(chance: &mut Rng, number: usize) -> (Duration, Script) {
    let waits = chance.bool();
    let script = Script {
        leaf_class: [fixture::NOW, fixture::LATER, fixture::KEPT][chance.usize(..3)],
        places: vec![usize::from(chance.u8(..4) == 0)],
        node_selected: waits,
        retain: chance.u8(..5) == 0,
        deleted_after: chance.bool().then(|| Duration::from_millis(chance.u64(..TIME))),
        changes: CHANGES[chance.usize(..CHANGES.len())],
        pace: Duration::from_millis(chance.u64(..TIME / 4)),
        told: chance.u8(..6) > 0,
        ..Script::new(&format!("data-{number}"))
    };
    (Duration::from_millis(chance.u64(..TIME * 3 / 4)), script)
}

async fn life(bench: Arc<Bench>, after: Duration, script: Script) -> Caller {
    sleep(after).await;
    let mut caller = Caller::new(&bench, script);
    let user = caller.clone();
    let living = async {
        if caller.provision().await == Ending::Provisioned {
            caller.live().await;
        }
    };
    tokio::join!(living, user.delete_claim_in_time());
    caller
}

fn names(bench: &Bench, kind: &str, field: &str) -> BTreeSet<String> {
    bench.members[0].list(kind).iter().map(|object| text(object, field).to_owned()).collect()
}

/// What the host has in the member that is restored now.
fn known(bench: &Bench, claims: &BTreeSet<String>, volumes: &BTreeSet<String>) -> Vec<Known> {
    let know = |volume: &Arc<Value>| {
        let handle = text(volume, "/spec/csi/volumeHandle");
        let leaf = bench.leaf_behind(handle).ok().filter(|_| handle.starts_with("m0/"))?;
        let leaf_volume = text(&leaf, "/spec/volumeName").to_owned();
        let is_kept = claims.contains(text(&leaf, "/metadata/uid")) || volumes.contains(&leaf_volume);
        let name = text(volume, "/metadata/name").to_owned();
        (!leaf_volume.is_empty()).then(|| Known { name, handle: handle.to_owned(), leaf_volume, is_kept })
    };
    bench.host.list("persistentvolumes").iter().filter_map(know).collect()
}

impl Known {
    /// What is wrong with it, where a claim of the host still has it.
    fn wrong(&self, bench: &Bench) -> Option<String> {
        let volume = bench.host.get("persistentvolumes", "", &self.name)?;
        let retains = text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Retain";
        let claim = bench.host.get("persistentvolumeclaims", SHOP, text(&volume, "/spec/claimRef/name"));
        let is_used = claim.is_some_and(|claim| {
            text(&claim, "/metadata/uid") == text(&volume, "/spec/claimRef/uid")
                && claim.pointer("/metadata/deletionTimestamp").is_none()
        });
        let about = |what: String| Some(format!("{} (leaf volume {}): {what}", self.name, self.leaf_volume));
        if (is_used || retains) && !bench.storages[0].volumes().contains(&self.leaf_volume) {
            return about("its data is gone".to_owned());
        }
        if !is_used {
            return None;
        }
        let leaf = bench.leaf_behind(&self.handle);
        if !self.is_kept {
            return match leaf {
                Ok(leaf) => about(format!("it is not in the backup, and there is {leaf}")),
                Err(_) if !self.is_told_to_be_lost(bench) => {
                    about("it is not in the backup, and nobody is told".to_owned())
                }
                Err(_) => None,
            };
        }
        let leaf = match leaf {
            Ok(leaf) => leaf,
            Err(reason) => return about(reason),
        };
        let leaf_volume = bench.members[0].get("persistentvolumes", "", &self.leaf_volume);
        let policy = leaf_volume.as_ref().map_or("", |volume| text(volume, "/spec/persistentVolumeReclaimPolicy"));
        let is_bound = text(&leaf, "/spec/volumeName") == self.leaf_volume && text(&leaf, "/status/phase") == "Bound";
        if !is_bound || leaf.pointer("/metadata/deletionTimestamp").is_some() {
            return about(format!("its leaf claim is {leaf}"));
        }
        if retains && policy != "Retain" {
            return about(format!("the host retains it, and its leaf volume has {policy:?}"));
        }
        None
    }

    fn is_told_to_be_lost(&self, bench: &Bench) -> bool {
        let says_so = |event: &Arc<Value>| {
            text(event, "/reason") == "LeafLost" && text(event, "/involvedObject/name") == self.name
        };
        bench.host.list("events").iter().any(says_so)
    }
}

/// A person has read what the driver says of nodes that are on record and have no volume any more.
fn forget_nodes(bench: &Bench) {
    for leaf in bench.members[0].list("persistentvolumeclaims") {
        let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
        let forget = |claim: &mut Value| {
            if let Some(annotations) = claim["metadata"]["annotations"].as_object_mut() {
                annotations.remove("kosmos.csi.io/published");
            }
        };
        let _ = bench.members[0].change("persistentvolumeclaims", namespace, name, forget);
    }
}

/// Everybody deletes what he has, and all of it goes.
async fn end_all(bench: &Bench, lives: Vec<tokio::task::JoinHandle<Caller>>) -> Vec<String> {
    for volume in bench.host.list("persistentvolumes") {
        set_policy(bench, text(&volume, "/metadata/name"), "Delete");
    }
    for claim in bench.host.list("persistentvolumeclaims") {
        let _ = bench.host.delete("persistentvolumeclaims", SHOP, text(&claim, "/metadata/name"));
    }
    let ends = lives.into_iter().map(|life| async {
        let mut caller = life.await.unwrap();
        caller.detach().await;
        forget_nodes(bench);
        caller.reclaim().await;
    });
    if timeout(PATIENCE, join_all(ends)).await.is_err() {
        return vec!["I10: some claims come to no end".to_owned()];
    }
    sleep(SWEPT).await;
    let is_nobodys = |leaf: &Arc<Value>| {
        let history = lock(&bench.guard.history);
        history.volume_of(leaf).is_some() && !history.was_planted(leaf)
    };
    let left = bench.members[0].list("persistentvolumeclaims").iter().filter(|leaf| is_nobodys(leaf)).count();
    let told = strays::told(bench, 0);
    if told == Some(left) {
        Vec::new()
    } else {
        vec![format!("I1: {left} leaves are nobody's, and told of are {told:?}")]
    }
}

fn storm(bench: &Bench, seed: u64) {
    let (weather, began) = (Weather::draw(seed, 3), Instant::now());
    bench.guard.set_fate(move |number, at, asked| weather.decide(began.elapsed(), number, at, asked));
}

fn play(seed: u64) -> Vec<String> {
    virtual_time::run(seed, async {
        let mut chance = Rng::with_seed(seed);
        let bench = Bench::new(seed, 2, &fixture::moody()).await;
        let planted = Planted::everywhere(&bench);
        bench.start();
        bench.serves().await;
        let lives: Vec<_> = (0..CLAIMS)
            .map(|number| {
                let (after, script) = draw(&mut chance, number);
                tokio::spawn(life(Arc::clone(&bench), after, script))
            })
            .collect();
        let backed_up = chance.u64(..TIME * 3 / 4);
        sleep(Duration::from_millis(backed_up)).await;
        let backup = bench.members[0].backup();
        let (claims, volumes) = (
            names(&bench, "persistentvolumeclaims", "/metadata/uid"),
            names(&bench, "persistentvolumes", "/metadata/name"),
        );
        let until_restored = chance.u64(1000..TIME);
        sleep(Duration::from_millis(until_restored / 2)).await;
        if chance.u8(..3) == 0 {
            bench.start_beside(chance.bool());
        }
        for volume in bench.host.list("persistentvolumes").iter().filter(|_| chance.u8(..3) == 0) {
            set_policy(&bench, text(volume, "/metadata/name"), "Retain");
        }
        sleep(Duration::from_millis(until_restored / 2)).await;
        let known = known(&bench, &claims, &volumes);
        roll_back(&bench, &backup);
        if chance.bool() {
            storm(&bench, seed);
        }
        if chance.u8(..3) == 0 {
            sleep(Duration::from_millis(chance.u64(..5000))).await;
            bench.start();
        }
        sleep(STORM).await;
        bench.guard.heal();
        bench.end_beside();
        sleep(Duration::from_millis(TIME) + SETTLED).await;
        let mut wrong: Vec<String> = known.iter().filter_map(|known| known.wrong(&bench)).collect();
        if wrong.is_empty() {
            wrong.extend(end_all(&bench, lives).await);
        }
        wrong.extend(planted.touched(&bench));
        // Of leaves, the history knows nothing of backups.
        wrong.extend(
            bench.guard.wrong().into_iter().filter(|wrong| wrong.starts_with("I3") || wrong.starts_with("I11")),
        );
        if !wrong.is_empty() {
            wrong.push(bench.guard.trace().join("\n"));
        }
        wrong
    })
}

#[test]
fn every_promise_holds_when_a_member_was_restored_from_a_backup() {
    let wrong = virtual_time::each(virtual_time::THREADS, seeds(OPERATIONS), |seed| {
        let wrong = play(seed);
        (!wrong.is_empty()).then(|| format!("seed {seed}:\n  {}", wrong.join("\n  ")))
    });
    assert!(wrong.is_empty(), "{} schedules\n{}", wrong.len(), wrong.join("\n"));
}
