//! What people do once they have read what they are told: they take nodes off records that no node of the host is behind, throw away
//! what the host has forgotten, and in the end everything.

use std::{sync::Arc, time::Duration};

use domain::volume::{VolumeHash, VolumeId};
use futures::future::join_all;
use serde_json::{Value, json};
use simulate::{Cluster, text};
use tokio::time::sleep;

use super::lives::Lives;
use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, set_policy},
    history::{label, made_for},
    schedules::strays,
    snapshotter::{CONTENTS, SNAPSHOTS},
};

/// Between two looks at what removals say.
const LOOK: Duration = Duration::from_mins(1);

/// The message says so: the nodes have gone with the host that there was.
pub fn forget_nodes(bench: &Bench, lives: &Lives) {
    for member in &bench.members {
        for leaf in member.list("persistentvolumeclaims") {
            let is_recorded = leaf["metadata"]["annotations"]["kosmos.csi.io/published"].is_string();
            if !is_recorded || lives.is_on_a_node(made_for(&leaf)) {
                continue;
            }
            let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
            bench.guard.note(|| format!("somebody takes the nodes off leaf claim {name} in {}", member.name()));
            lock(&bench.guard.history).has_no_record(member, &leaf);
            let _ =
                member.change("persistentvolumeclaims", namespace, name, |leaf| remove_annotation(leaf, "published"));
        }
        for kept in member.list("persistentvolumes") {
            forget_kept_nodes(bench, lives, member, &kept);
        }
    }
}

/// The leaf claim has gone, nodes and all, while the host's volume is being removed: what its volume keeps of it is all that names them,
/// and the answer of DeleteVolume says what to take off. One that the host wants is recreated, with its nodes.
fn forget_kept_nodes(bench: &Bench, lives: &Lives, member: &Cluster, kept: &Value) {
    let healing = text(kept, "/metadata/annotations/kosmos.csi.io~1healing");
    let claim: Value = serde_json::from_str(healing).unwrap_or_default();
    let volume = claim["annotations"]["kosmos.csi.io/name"].as_str().unwrap_or_default();
    let is_recorded = claim["annotations"]["kosmos.csi.io/published"].is_string();
    let is_to_go = |volume: &Arc<Value>| {
        let policy = text(volume, "/spec/persistentVolumeReclaimPolicy");
        text(volume, "/status/phase") == "Released" && policy == "Delete"
    };
    let is_removed = bench.host.get("persistentvolumes", "", volume).is_some_and(|volume| is_to_go(&volume));
    let has_gone = text(kept, "/status/phase") == "Released";
    if !is_recorded || !is_removed || !has_gone || lives.is_on_a_node(volume) {
        return;
    }
    let name = text(kept, "/metadata/name");
    bench.guard.note(|| format!("somebody takes the nodes off leaf volume {name} in {}", member.name()));
    lock(&bench.guard.history).has_no_record(member, kept);
    let _ = member.change("persistentvolumes", "", name, |kept| remove_annotation(kept, "healing"));
}

fn remove_annotation(object: &mut Value, key: &str) {
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(&format!("kosmos.csi.io/{key}"));
    }
}

/// By hand, whatever has come of it.
pub fn remove_strays(bench: &Bench) {
    for (at, handle, leaf) in strays::unknown(bench) {
        bench.guard.note(|| format!("a person removes {handle}, which no volume of the host has"));
        let (member, volume) = (&bench.members[at], made_for(&leaf));
        lock(&bench.guard.history).deleted_by_people(text(&leaf, "/metadata/uid"));
        lock(&bench.guard.history).let_go(volume);
        lock(&bench.guard.history).may_go(&handle, volume);
        let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
        let release = |claim: &mut Value| claim["metadata"]["finalizers"] = json!([]);
        let _ = member.change("persistentvolumeclaims", namespace, name, release);
        let _ = member.delete("persistentvolumeclaims", namespace, name);
        throw_away(member, text(&leaf, "/spec/volumeName"));
    }
}

/// Leaf volumes that are kept without a claim, and that no volume of the host was given: `doctor` names them, or a claim that waits for their
/// data says where that is, of which the person wants nothing more.
pub fn remove_kept(bench: &Bench) {
    let volumes = bench.host.list("persistentvolumes");
    for (at, member) in bench.members.iter().enumerate() {
        for kept in member.list("persistentvolumes") {
            let name = text(&kept, "/metadata/name");
            let is_ours = lock(&bench.guard.history).volume_of(&kept).is_some();
            let has = |volume: &Arc<Value>| was_given(volume, member.name(), &kept);
            if !is_ours || text(&kept, "/status/phase") != "Released" || volumes.iter().any(has) {
                continue;
            }
            bench.guard.note(|| format!("a person removes {name} in m{at}, which no volume of the host has"));
            let volume = lock(&bench.guard.history).ledger.is_thrown_away(at, name);
            if let Some(volume) = volume {
                lock(&bench.guard.history).let_go(&volume);
            }
            throw_away(member, name);
        }
    }
}

/// A volume that was given out before its leaf was bound (`deferred`) does not say which leaf volume it has: its handle leads there.
fn was_given(volume: &Value, member: &str, kept: &Value) -> bool {
    let told = text(volume, "/spec/csi/volumeAttributes/leafVolume");
    if !told.is_empty() {
        return told == text(kept, "/metadata/name");
    }
    let id = VolumeId::parse(text(volume, "/spec/csi/volumeHandle")).filter(|id| id.member == member);
    id.zip(VolumeHash::parse(label(kept, "kosmos.csi.io/volume"))).is_some_and(|(id, hash)| id.names(hash))
}

/// The storage removes it, as nobody has it.
fn throw_away(member: &Cluster, volume: &str) {
    let delete = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    let _ = member.change("persistentvolumes", "", volume, delete);
}

/// Everybody deletes what he has, and all of it goes.
pub async fn end_all(bench: &Bench, lives: &Lives) {
    for volume in bench.host.list("persistentvolumes") {
        set_policy(bench, text(&volume, "/metadata/name"), "Delete");
    }
    for claim in bench.host.list("persistentvolumeclaims") {
        let _ = bench.host.delete("persistentvolumeclaims", SHOP, text(&claim, "/metadata/name"));
    }
    let all = async {
        lives.ended().await;
        let volumes = bench.host.list("persistentvolumes").into_iter();
        let left: Vec<Caller> = volumes.filter_map(|volume| lives.caller(text(&volume, "/metadata/name"))).collect();
        join_all(left.into_iter().map(remove)).await;
    };
    tokio::select! {
        biased;
        () = all => {}
        () = forget_all(bench, lives) => unreachable!("it has no end"),
    }
    remove_snapshots(bench, lives).await;
}

async fn forget_all(bench: &Bench, lives: &Lives) {
    loop {
        forget_nodes(bench, lives);
        sleep(LOOK).await;
    }
}

/// For whoever has it now.
async fn remove(mut caller: Caller) {
    caller.learn_again();
    caller.stands_for_its_user();
    caller.set_policy("Delete");
    caller.detach().await;
    caller.reclaim().await;
}

/// Those of the host by its sidecar, and those that it has forgotten by hand.
async fn remove_snapshots(bench: &Bench, lives: &Lives) {
    let ends = lives.snapshots().into_iter().map(|mut snapshot| async move {
        if snapshot.learn_again() {
            snapshot.discard();
            if snapshot.handle().is_some() {
                snapshot.remove().await;
            }
        }
    });
    join_all(ends).await;
    let handed_out = lock(&bench.guard.history).handed_out().clone();
    for member in &bench.members {
        for leaf in member.list(SNAPSHOTS) {
            let Some(name) = handed_out.get(text(&leaf, "/metadata/uid")) else { continue };
            bench.guard.note(|| format!("a person removes {name} in {}, which the host does not know", member.name()));
            lock(&bench.guard.history).let_go_of_snapshot(name);
            let content = text(&leaf, "/status/boundVolumeSnapshotContentName");
            let _ = member.change(CONTENTS, "", content, |one| one["spec"]["deletionPolicy"] = json!("Delete"));
            let _ = member.delete(SNAPSHOTS, text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
        }
    }
}
