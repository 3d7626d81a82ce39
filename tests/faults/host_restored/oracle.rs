//! What must hold where a host went back, once everybody has had time: what it has is there with its data, or its user is told; what it
//! has forgotten is there as well, and is told of; and every claim has its volume, or a word why not. It is looked up in the clusters'
//! stores.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use simulate::text;
use tokio::time::sleep;

use super::lives::Lives;
use crate::{
    bench::{Bench, SHOP, lock},
    caller::Caller,
    history::made_for,
    invariants::{self, LEFT},
    schedules::strays,
    snapshotter::{CONTENTS, SNAPSHOTS},
};

/// Of a claim whose provisioner is asking at the same time.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_secs(15);

/// Whether leaves are there of which the host knows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strays {
    Stay,
    /// A person has removed them.
    AreGone,
}

pub async fn wrong(bench: &Bench, lives: &Lives, strays: Strays) -> Vec<String> {
    if strays == Strays::Stay {
        strays::are_told(bench);
    }
    let volumes = bench.host.list("persistentvolumes");
    let mut wrong: Vec<String> = volumes.iter().filter_map(|volume| of_volume(bench, volume, strays)).collect();
    wrong.extend(forgotten(bench));
    wrong.extend(untold(bench));
    wrong.extend(claims(bench, lives, strays).await);
    rely_on_marked_snapshots(bench);
    wrong.extend(invariants::snapshots(bench));
    wrong.extend(bench.guard.wrong());
    wrong
}

fn name(volume: &Value) -> &str {
    text(volume, "/metadata/name")
}

fn handle(volume: &Value) -> &str {
    text(volume, "/spec/csi/volumeHandle")
}

/// The leaf volume that was given out with a volume of the host; empty where nobody waited for one.
fn leaf_volume(volume: &Value) -> &str {
    text(volume, "/spec/csi/volumeAttributes/leafVolume")
}

fn is_retained(volume: &Value) -> bool {
    text(volume, "/spec/persistentVolumeReclaimPolicy") == "Retain"
}

fn is_leaving(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

/// An event on a volume of the host.
fn says(bench: &Bench, volume: &Value, reason: &str) -> bool {
    let is_it =
        |event: &Arc<Value>| text(event, "/involvedObject/name") == name(volume) && text(event, "/reason") == reason;
    bench.host.list("events").iter().any(is_it)
}

fn of_volume(bench: &Bench, volume: &Value, strays: Strays) -> Option<String> {
    let told = |field: &str| text(volume, &format!("/spec/claimRef/{field}")).to_owned();
    let claim = bench.host.get("persistentvolumeclaims", &told("namespace"), &told("name"));
    let is_used = claim.is_some_and(|claim| text(&claim, "/metadata/uid") == told("uid") && !is_leaving(&claim));
    let found = match (is_used, is_retained(volume)) {
        (true, _) => used(bench, volume, strays),
        (false, true) => kept(bench, volume),
        // It is being removed.
        (false, false) => Ok(()),
    };
    found.err().map(|what| format!("volume {} ({}): {what}", name(volume), handle(volume)))
}

/// A claim of the host has it.
fn used(bench: &Bench, volume: &Value, strays: Strays) -> Result<(), String> {
    let phase = text(volume, "/status/phase");
    if phase != "Bound" {
        return Err(format!("I10: it has a claim, and is {phase:?}"));
    }
    let leaf = match bench.leaf_behind(handle(volume)) {
        Ok(leaf) => leaf,
        Err(reason) => return missing(bench, volume, &reason, strays),
    };
    let (given_out, has) = (leaf_volume(volume), text(&leaf, "/spec/volumeName"));
    let is_its_own = given_out.is_empty() || has == given_out;
    if made_for(&leaf) != name(volume) || !is_its_own {
        return Err(format!("I1: its data is in {given_out:?}, and its leaf claim is {leaf}"));
    }
    if given_out.is_empty() && has.is_empty() {
        return Ok(());
    }
    let member = bench.member_of(handle(volume)).ok_or("I4: its handle names no member")?;
    let behind = member.get("persistentvolumes", "", has).ok_or("I1: its leaf volume is gone")?;
    let is_bound = text(&leaf, "/status/phase") == "Bound" && !is_leaving(&leaf);
    if !is_bound || text(&behind, "/spec/claimRef/uid") != text(&leaf, "/metadata/uid") {
        return Err(format!("I10: its leaf claim is {leaf}, and its leaf volume is {behind}"));
    }
    if behind.pointer("/metadata/annotations/kosmos.csi.io~1healing").is_some() {
        return Err("I10: its leaf is still being recreated".to_owned());
    }
    if is_retained(volume) && !is_retained(&behind) {
        return Err(format!("I6: the host retains it, and its leaf volume is {behind}"));
    }
    Ok(())
}

/// It has no leaf. What was to be removed before the host went back is gone, which its user is told. And another leaf may have its
/// name, of which the host knows nothing, until a person removes that.
fn missing(bench: &Bench, volume: &Value, reason: &str, strays: Strays) -> Result<(), String> {
    let was_to_go = lock(&bench.guard.history).was_to_go(handle(volume), name(volume));
    if was_to_go {
        let is_told = ["LeafLost", "LeafStuck"].iter().any(|reason| says(bench, volume, reason));
        let untold = format!("I1: its leaf was removed before the host went back ({reason}), and its user is not told");
        return if is_told { Ok(()) } else { Err(untold) };
    }
    let member = bench.members.iter().position(|member| handle(volume).split('/').next() == Some(member.name()));
    let has_data = |at: usize| bench.storages[at].volumes().iter().any(|kept| kept == leaf_volume(volume));
    if !leaf_volume(volume).is_empty() && !member.is_some_and(has_data) {
        return Err(format!("I1: {reason}, and its data, which nobody has asked to remove, is gone"));
    }
    if strays == Strays::Stay && says(bench, volume, "LeafStuck") { Ok(()) } else { Err(format!("I1: {reason}")) }
}

/// No claim of the host has it: its leaf claim is let go, and its volume stays.
fn kept(bench: &Bench, volume: &Value) -> Result<(), String> {
    if lock(&bench.guard.history).was_to_go(handle(volume), name(volume)) {
        return Ok(());
    }
    let leaf = bench.leaf_behind(handle(volume)).ok();
    if let Some(leaf) = leaf.filter(|leaf| !text(leaf, "/spec/volumeName").is_empty()) {
        let is_on_a_node = leaf["metadata"]["annotations"]["kosmos.csi.io/published"].is_string();
        let waits = is_on_a_node && says(bench, volume, "LeafWaits");
        let there = format!("I6: the host retains it, and its leaf claim is still there: {leaf}");
        return if waits { Ok(()) } else { Err(there) };
    }
    if leaf_volume(volume).is_empty() {
        return Ok(());
    }
    let member = bench.member_of(handle(volume)).ok_or("I4: its handle names no member")?;
    let behind = member.get("persistentvolumes", "", leaf_volume(volume));
    let behind = behind.ok_or("I6: the host retains it, and its leaf volume is gone")?;
    let is_ours = lock(&bench.guard.history).volume_of(&behind).is_some();
    if is_ours && is_retained(&behind) && !is_leaving(&behind) {
        return Ok(());
    }
    Err(format!("I6: the host retains it, and its leaf volume is {behind}"))
}

/// What was given out is there, whatever the host knows of it, and its claim has it and no other.
fn forgotten(bench: &Bench) -> Vec<String> {
    let history = lock(&bench.guard.history);
    let mut wrong = Vec::new();
    for (at, kept, volume) in history.ledger.kept() {
        let about = |what: String| format!("volume {volume}: leaf volume {kept} in m{at} was given out, and {what}");
        let behind = bench.members[at].get("persistentvolumes", "", kept);
        let is_ours = |behind: &Arc<Value>| history.volume_of(behind).is_some() && !is_leaving(behind);
        if !bench.storages[at].volumes().iter().any(|there| there == kept) || !behind.as_ref().is_some_and(is_ours) {
            wrong.push(about(format!("I1: nobody has asked to remove it, and there is {behind:?}")));
        }
        let has = bench.host.get("persistentvolumes", "", volume);
        let has = has.as_ref().map(|volume| leaf_volume(volume)).filter(|has| !has.is_empty() && *has != kept);
        wrong.extend(has.map(|has| about(format!("I2: its volume in the host has {has}"))));
    }
    wrong
}

/// Leaves of which the host was never told are withdrawn. All others that it does not know are counted; but those without a volume
/// that somebody may have been told of, of which `doctor` tells.
fn untold(bench: &Bench) -> Vec<String> {
    let has_nothing = |leaf: &Value| {
        let request = leaf["metadata"]["annotations"]["kosmos.csi.io/request"].as_str().unwrap_or_default();
        request.contains("deferred") && text(leaf, "/spec/volumeName").is_empty()
    };
    let unknown = strays::unknown(bench).into_iter();
    let left = unknown.filter(|(at, _, leaf)| !strays::may_be_given_out(bench, *at, leaf) && !has_nothing(leaf));
    left.map(|(_, handle, leaf)| format!("{LEFT}{handle}, of which nobody is told: {leaf}")).collect()
}

/// Somebody may have been told of what is marked: the answer came when the host had forgotten that it had asked. It stays.
fn rely_on_marked_snapshots(bench: &Bench) {
    for member in &bench.members {
        let leaves = member.list(SNAPSHOTS);
        for content in member.list(CONTENTS) {
            let mut history = lock(&bench.guard.history);
            let uid = text(&content, "/spec/volumeSnapshotRef/uid");
            let leaf = leaves.iter().find(|leaf| text(leaf, "/metadata/uid") == uid && !is_leaving(leaf));
            let is_marked = history.is_of_this_host(&content) && !history.was_planted(&content);
            if let Some(leaf) = leaf.filter(|_| is_marked) {
                history.rely_on_snapshot(uid, made_for(leaf));
            }
        }
    }
}

async fn claims(bench: &Bench, lives: &Lives, strays: Strays) -> Vec<String> {
    let mut wrong = Vec::new();
    for claim in bench.host.list("persistentvolumeclaims") {
        let phase = text(&claim, "/status/phase");
        if phase == "Bound" || is_leaving(&claim) {
            continue;
        }
        let about = |what: &str| format!("claim {} is {phase:?}: {what}", text(&claim, "/metadata/name"));
        match lives.caller(&format!("pvc-{}", text(&claim, "/metadata/uid"))) {
            Some(caller) => wrong.extend(waits_in_vain(bench, &caller, strays).await.map(|what| about(&what))),
            None => wrong.push(about("I10: nobody provides it with a volume")),
        }
    }
    wrong
}

/// What is wrong with a claim that has no volume. Its user is told what has its name, that its data is kept for another claim, to which it
/// was given since, or, where it is to be a copy, what has become of the source.
async fn waits_in_vain(bench: &Bench, caller: &Caller, strays: Strays) -> Option<String> {
    let is_copy = caller.script().source.is_some();
    let has_its_name =
        ["is there already and", "another claim has its name in the member, and", "`kosmos-csi doctor` names"];
    let may_wait = |said: &str| {
        let is_taken = has_its_name.iter().any(|so| said.contains(so));
        let is_kept = ["with its data, or not at all", "no empty volume is made in its place"];
        let is_anothers = is_kept.iter().any(|so| said.contains(so)) && is_kept_for_another(bench, caller);
        is_copy || strays == Strays::Stay && (is_taken || is_anothers) || is_taken && is_held(bench, caller, said)
    };
    for _ in 0..TRIES {
        let status = match caller.create().await {
            Ok(_) if is_copy => return None,
            Ok(volume) => return Some(format!("I10: it waits, though {} is there", volume.volume_id)),
            Err(status) => status,
        };
        if !status.message().contains("another call for") {
            return (!may_wait(status.message())).then(|| format!("I10: {status}"));
        }
        sleep(PAUSE).await;
    }
    Some("I10: it is asked for all the time".to_owned())
}

/// A volume that the host has, and keeps without its claim or for another one, may keep the name of that: it was given out before its leaf
/// was bound, and has nothing that would outlive the leaf claim; or a node has it, which its user is told. What else would be wrong with it
/// is said of itself.
fn is_held(bench: &Bench, caller: &Caller, said: &str) -> bool {
    let is_free = |volume: &Value| text(volume, "/status/phase") == "Released" && is_retained(volume);
    let is_empty =
        |volume: &Value| bench.leaf_behind(handle(volume)).is_ok_and(|leaf| text(&leaf, "/spec/volumeName").is_empty());
    let is_anothers = |volume: &Value| text(volume, "/spec/claimRef/name") != caller.claim() && is_empty(volume);
    let volumes = bench.host.list("persistentvolumes");
    let mut named = volumes.iter().filter(|volume| said.contains(name(volume)));
    named.any(|volume| is_free(volume) || is_anothers(volume) || says(bench, volume, "LeafWaits"))
}

/// What a leaf volume keeps of its claim says that this was for another claim of the host.
fn is_kept_for_another(bench: &Bench, caller: &Caller) -> bool {
    let made_for = format!("{SHOP}/{}\"", caller.claim());
    let is_it = |kept: &Arc<Value>| {
        let kept = text(kept, "/metadata/annotations/kosmos.csi.io~1healing");
        kept.contains(caller.volume()) && !kept.contains(&made_for)
    };
    bench.members.iter().flat_map(|member| member.list("persistentvolumes")).any(|kept| is_it(&kept))
}
