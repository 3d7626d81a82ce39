//! What people and administrators do while all goes wrong, and how it ends.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock},
    caller::{claim_again, set_policy},
    fixture::{self, Planted},
    history::made_for,
    snapshotter::SNAPSHOTS,
};

/// What happens besides: the driver dies and comes back, histories are compacted, members are closed, people make copies.
pub async fn trouble(bench: &Arc<Bench>, planted: &Arc<Mutex<Planted>>, chance: &mut Rng, time: Duration) {
    let taking = tokio::spawn(take_names(Arc::clone(bench), Arc::clone(planted), Rng::with_seed(chance.u64(..))));
    let mut left = time;
    while !left.is_zero() {
        let pause = Duration::from_millis(chance.u64(1000..30_000)).min(left);
        left -= pause;
        sleep(pause).await;
        let member = chance.usize(..bench.members.len());
        match chance.u8(..10) {
            0 | 1 => {
                bench.guard.note(|| "the driver is killed".to_owned());
                bench.kill();
                sleep(Duration::from_millis(chance.u64(..5000))).await;
                bench.start();
            }
            2 => bench.members[member].compact(),
            3 => cordon(bench, member, chance.bool()),
            4 => limit(bench, member),
            5 => {
                bench.guard.note(|| format!("m{member} is full"));
                fixture::fill(bench, member);
            }
            6 => delete_leaf(bench, member),
            7 => retain_later(bench),
            8 => use_again(bench),
            _ => {
                let leaves = bench.members[member].list("persistentvolumeclaims");
                let ours = leaves.iter().find(|leaf| lock(&bench.guard.history).volume_of(leaf).is_some());
                if let Some(leaf) = ours {
                    let into = if chance.bool() { member } else { chance.usize(..bench.members.len()) };
                    lock(planted).copy(bench, into, leaf);
                }
                let snapshots = bench.members[member].list(SNAPSHOTS);
                let ours = snapshots.iter().find(|leaf| lock(&bench.guard.history).volume_of(leaf).is_some());
                if let Some(leaf) = ours {
                    lock(planted).copy_snapshot(bench, member, leaf);
                }
            }
        }
    }
    taking.abort();
}

/// Somebody deletes a leaf claim that the host uses.
/// Somebody in the first member is not done with a claim there, or is.
pub fn hold(bench: &Bench, claim: &str, finalizer: &str, held: bool) {
    let edit = |claim: &mut Value| {
        let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|there| there != finalizer);
        finalizers.extend(held.then(|| json!(finalizer)));
        claim["metadata"]["finalizers"] = json!(finalizers);
    };
    bench.members[0].change("persistentvolumeclaims", SHOP, claim, edit).unwrap();
}

fn delete_leaf(bench: &Bench, member: usize) {
    bench.guard.look();
    let leaves = bench.members[member].list("persistentvolumeclaims");
    let is_used = |leaf: &&std::sync::Arc<serde_json::Value>| {
        let host_volume = bench.host.get("persistentvolumes", "", made_for(leaf));
        let relied_on = lock(&bench.guard.history).is_relied_on(text(leaf, "/metadata/uid"));
        relied_on && host_volume.is_some_and(|volume| text(&volume, "/status/phase") == "Bound")
    };
    if let Some(leaf) = leaves.iter().find(is_used) {
        let (namespace, name) = (text(leaf, "/metadata/namespace"), text(leaf, "/metadata/name"));
        bench.guard.note(|| format!("somebody deletes leaf claim {namespace}/{name} in m{member}"));
        lock(&bench.guard.history).deleted_by_people(text(leaf, "/metadata/uid"));
        bench.members[member].delete("persistentvolumeclaims", namespace, name).unwrap();
    }
}

/// An administrator finds that a volume is worth more than its class says.
fn retain_later(bench: &Bench) {
    let volumes = bench.host.list("persistentvolumes");
    let is_used = |volume: &&Arc<Value>| {
        let claim = text(volume, "/spec/claimRef/name");
        let claim = bench.host.get("persistentvolumeclaims", SHOP, claim);
        let stays = claim.is_some_and(|claim| claim.pointer("/metadata/deletionTimestamp").is_none());
        stays && text(volume, "/status/phase") == "Bound" && policy(volume) == "Delete"
    };
    if let Some(volume) = volumes.iter().find(is_used) {
        set_policy(bench, text(volume, "/metadata/name"), "Retain");
    }
}

/// Somebody takes a volume that was released.
fn use_again(bench: &Bench) {
    let volumes = bench.host.list("persistentvolumes");
    let is_free = |volume: &&Arc<Value>| text(volume, "/status/phase") == "Released" && policy(volume) == "Retain";
    if let Some(volume) = volumes.iter().find(is_free) {
        let claim = format!("again-{}", text(volume, "/metadata/resourceVersion"));
        claim_again(bench, text(volume, "/metadata/name"), SHOP, &claim);
    }
}

fn policy(volume: &Value) -> &str {
    text(volume, "/spec/persistentVolumeReclaimPolicy")
}

fn cordon(bench: &Bench, member: usize, closed: bool) {
    let name = bench.members[member].name();
    bench.guard.note(|| format!("{name} is closed: {closed}"));
    let annotate = |secret: &mut serde_json::Value| {
        secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!(closed.to_string());
    };
    bench.host.change("secrets", DRIVER_NAMESPACE, name, annotate).unwrap();
}

/// A quota that leaves hardly any room.
fn limit(bench: &Bench, member: usize) {
    let quota =
        json!({"metadata": {"name": "tight", "namespace": SHOP}, "spec": {"hard": {"persistentvolumeclaims": "2"}}});
    bench.guard.note(|| format!("m{member} has a quota"));
    let _ = bench.members[member].create("resourcequotas", quota);
}

pub fn heal(bench: &Arc<Bench>, planted: &Mutex<Planted>) {
    bench.guard.note(|| "the faults are over".to_owned());
    bench.guard.heal();
    // A claim that goes while a copy of its leaf is seen waits for a person.
    let mut planted = lock(planted);
    let touched = planted.touched(bench);
    for wrong in touched {
        bench.guard.report(wrong);
    }
    planted.remove_copies(bench);
    drop(planted);
    for (at, member) in bench.members.iter().enumerate() {
        let _ = member.delete("resourcequotas", SHOP, "tight");
        fixture::empty(bench, at);
        cordon(bench, at, false);
    }
}

/// Names that become free in a member are taken by others there, who must not lose what they make.
async fn take_names(bench: Arc<Bench>, planted: Arc<Mutex<Planted>>, mut chance: Rng) {
    loop {
        sleep(Duration::from_millis(200)).await;
        bench.guard.look();
        let freed = std::mem::take(&mut lock(&bench.guard.history).freed);
        for (member, leaf) in freed {
            let name = text(&leaf, "/metadata/name");
            let wanted = bench.host.get("persistentvolumeclaims", SHOP, name).is_some() || name.ends_with('7');
            if wanted || chance.u8(..3) > 0 {
                continue;
            }
            bench.guard.note(|| format!("somebody takes the name {name} in m{member}"));
            if chance.bool() {
                lock(&planted).squatter(&bench, member, name);
            } else {
                lock(&planted).namesake(&bench, member, &leaf);
            }
        }
    }
}
