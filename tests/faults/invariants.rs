//! What must hold once the faults are over and everybody has had time: looked up in the clusters' stores, claim by claim.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::Value;
use simulate::{Cluster, storage::Storage, text};

use crate::{
    attach,
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending},
    fixture::Planted,
    snapshotter::{CONTENTS, GROUP_CONTENTS, GROUPS, SNAPSHOTS},
};

/// Of what is there and nobody has any more.
pub const LEFT: &str = "I1: left behind: ";
/// Of a leaf that is told to wait until another one has gone that has its name.
pub const AWAITS_ITS_NAME: &str = "I10: it is told to await its name: ";

/// Of a process that was killed, and that nobody has started again.
pub const NOT_AT_WORK: &str = "I8: the driver is not at work";

/// One claim's story at the end.
pub struct Story {
    pub caller: Caller,
    pub ending: Ending,
    /// The user has deleted the claim, and all was done that follows from it.
    pub deleted: bool,
}

/// Everything that is not as it must be, in sentences.
pub fn violations(bench: &Bench, stories: &[Story], planted: &Planted) -> Vec<String> {
    let mut wrong = bench.guard.wrong();
    wrong.extend(planted.touched(bench));
    wrong.extend(stories.iter().flat_map(|story| told(bench, story)));
    wrong.extend(leftovers(bench, stories));
    wrong.extend(backing(bench));
    wrong.extend(snapshots(bench));
    wrong.extend(attach::unrecorded(bench).into_iter().map(|left| format!("{LEFT}{left}")));
    wrong.extend(in_flight(bench));
    wrong
}

fn told(bench: &Bench, story: &Story) -> Vec<String> {
    let (caller, volume) = (&story.caller, story.caller.volume());
    let about = |what: String| format!("claim {} (volume {volume}): {what}", caller.claim());
    let host_volume = bench.host.get("persistentvolumes", "", volume);
    if !lives(story) {
        let left = bench.leaf_objects(volume).into_iter().map(|left| about(format!("{LEFT}{left}")));
        let host = host_volume.map(|_| about("I1: it is gone, and the host still has its volume".to_owned()));
        return left.chain(host).collect();
    }
    let mut wrong = Vec::new();
    let phase = host_volume.map(|volume| text(&volume, "/status/phase").to_owned()).unwrap_or_default();
    let is_released = story.deleted && phase == "Released";
    if phase != "Bound" && !is_released {
        wrong.push(about(format!("I10: the host's volume is {phase:?}")));
    }
    if !story.deleted {
        let claim = bench.host.get("persistentvolumeclaims", SHOP, caller.claim());
        if claim.is_none_or(|claim| text(&claim, "/status/phase") != "Bound") {
            wrong.push(about("I10: the host's claim is not bound".to_owned()));
        }
    }
    if let Err(reason) = if is_released { kept(bench, caller) } else { leaf(bench, caller) } {
        wrong.push(about(reason));
    }
    wrong
}

/// No claim of the host has it: the leaf claim is let go, and its volume stays.
fn kept(bench: &Bench, caller: &Caller) -> Result<(), String> {
    let handle = caller.handle().ok_or("I4: it has no handle")?;
    let claim = bench.leaf_behind(handle).ok();
    // Nothing would be kept of one that never had a volume.
    if claim.as_ref().is_some_and(|claim| text(claim, "/spec/volumeName").is_empty()) && caller.is_deferred() {
        return Ok(());
    }
    if let Some(claim) = claim {
        return Err(format!("I6: the host retains it, and its leaf claim is still there: {claim}"));
    }
    let Some(name) = caller.leaf_volume() else { return Ok(()) };
    let member = bench.member_of(handle).ok_or("I4: its handle names no member")?;
    let volume =
        member.get("persistentvolumes", "", name).ok_or("I6: the host retains it, and the leaf volume is gone")?;
    let policy = text(&volume, "/spec/persistentVolumeReclaimPolicy");
    let marked = lock(&bench.guard.history).volume_of(&volume).is_some();
    if policy != "Retain" || !marked || volume.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(format!("I6: the host retains it, and the leaf volume is {volume}"));
    }
    Ok(())
}

/// Whether the host still has the volume.
pub fn lives(story: &Story) -> bool {
    story.ending == Ending::Provisioned && (!story.deleted || story.caller.is_kept())
}

fn leaf(bench: &Bench, caller: &Caller) -> Result<(), String> {
    let handle = caller.handle().ok_or("I4: it has no handle")?;
    let missing = if is_told_to_await_its_name(bench, caller) { AWAITS_ITS_NAME } else { "I1: " };
    let leaf = bench.leaf_behind(handle).map_err(|reason| format!("{missing}{reason}"))?;
    let member = bench.member_of(handle).ok_or("I4: its handle names no member")?;
    let name = text(&leaf, "/spec/volumeName");
    if caller.is_deferred() && name.is_empty() {
        return Ok(());
    }
    let volume = member.get("persistentvolumes", "", name).ok_or("I1: the leaf volume is gone")?;
    if text(&leaf, "/status/phase") != "Bound" || leaf.pointer("/metadata/deletionTimestamp").is_some() {
        return Err(format!("I10: the leaf claim is {}", leaf["status"]));
    }
    if text(&volume, "/spec/claimRef/uid") != text(&leaf, "/metadata/uid") {
        return Err(format!("I4: the leaf volume is bound to {}", volume["spec"]["claimRef"]));
    }
    // A leaf that nobody waited for had none yet.
    if caller.leaf_volume().is_some_and(|before| before != name) {
        return Err(format!("I1: its data is in {:?}, and its leaf volume is {name}", caller.leaf_volume()));
    }
    if volume.pointer("/metadata/annotations/kosmos.csi.io~1healing").is_some() {
        return Err("I10: its leaf is still being recreated".to_owned());
    }
    let marked = lock(&bench.guard.history).volume_of(&volume).is_some();
    if marked || caller.is_deferred() {
        Ok(())
    } else {
        Err("I4: the leaf volume does not carry our labels".to_owned())
    }
}

fn is_told_to_await_its_name(bench: &Bench, caller: &Caller) -> bool {
    let is_it = |event: &Arc<Value>| {
        text(event, "/involvedObject/name") == caller.volume()
            && text(event, "/reason") == "LeafStuck"
            && text(event, "/message").contains("another claim has its name")
    };
    bench.host.list("events").iter().any(is_it)
}

/// Whatever carries our labels belongs to a volume that the host has, and is where its handle says; pods never stay.
fn leftovers(bench: &Bench, stories: &[Story]) -> Vec<String> {
    let living: BTreeSet<String> = stories
        .iter()
        .filter(|story| lives(story))
        .flat_map(|story| {
            let member = story.caller.handle().and_then(|handle| bench.member_of(handle));
            let place = member.map(|member| format!(" in {} ", member.name())).unwrap_or_default();
            bench.leaf_objects(story.caller.volume()).into_iter().filter(move |object| object.contains(&place))
        })
        .collect();
    let (all, late) = (bench.leftovers().into_iter(), bench.late_consumers());
    let may_stay = |left: &String| living.contains(left) && (!left.starts_with("pods ") || late.contains(left));
    all.filter(|left| !may_stay(left)).map(|left| format!("{LEFT}{left}")).collect()
}

/// The storage keeps exactly the volumes that PersistentVolumes tell of.
fn backing(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for (member, storage) in bench.members.iter().zip(&bench.storages) {
        let volumes = member.list("persistentvolumes");
        let told: BTreeSet<&str> = volumes.iter().map(|volume| text(volume, "/metadata/name")).collect();
        let untold = storage.volumes().into_iter().filter(|name| !told.contains(name.as_str()));
        wrong.extend(
            untold.map(|name| format!("I1: {}: the storage keeps {name}, and no object tells of it", member.name())),
        );
    }
    wrong
}

/// Of snapshots and groups there is what was handed out and not let go, and nothing else in any form.
pub fn snapshots(bench: &Bench) -> Vec<String> {
    let handed_out = lock(&bench.guard.history).handed_out().clone();
    let members = bench.members.iter().zip(&bench.storages);
    let mut wrong: Vec<String> =
        members.flat_map(|(member, storage)| left_of_snapshots(bench, member, storage)).collect();
    for (uid, name) in &handed_out {
        let is_it = |object: &Arc<Value>| text(object, "/metadata/uid") == uid;
        let mut all =
            bench.members.iter().flat_map(|member| [SNAPSHOTS, GROUPS].map(|kind| member.list(kind))).flatten();
        match all.find(is_it) {
            None => wrong.push(format!("I1: {name} was handed out and is gone")),
            Some(leaf) if leaf["status"]["readyToUse"] != true => {
                wrong.push(format!("I10: {name} was handed out and cannot be used: {leaf}"));
            }
            Some(_) => {}
        }
    }
    wrong
}

fn left_of_snapshots(bench: &Bench, member: &Cluster, storage: &Storage) -> Vec<String> {
    let history = lock(&bench.guard.history);
    let about = |what: String| format!("{LEFT}in {}: {what}", member.name());
    let mut wrong = Vec::new();
    let uid = |object: Arc<Value>| text(&object, "/metadata/uid").to_owned();
    let made = [SNAPSHOTS, GROUPS].map(|kind| member.list(kind)).into_iter().flatten();
    let mut nobodys: BTreeSet<String> = made.filter(|leaf| history.is_nobodys(member, leaf)).map(uid).collect();
    // A group's snapshots are the member's own doing.
    let is_part = |leaf: &Arc<Value>| nobodys.contains(text(leaf, "/metadata/ownerReferences/0/uid"));
    let parts: Vec<String> = member.list(SNAPSHOTS).into_iter().filter(is_part).map(uid).collect();
    nobodys.extend(parts);
    for (kind, owner) in [
        (SNAPSHOTS, "/metadata/uid"),
        (GROUPS, "/metadata/uid"),
        (CONTENTS, "/spec/volumeSnapshotRef/uid"),
        (GROUP_CONTENTS, "/spec/volumeGroupSnapshotRef/uid"),
    ] {
        let all = member.list(kind).into_iter().filter(|object| !history.was_planted(object));
        let is_kept = |uid: &str| history.handed_out().contains_key(uid) || nobodys.contains(uid);
        let left = all.filter(|object| !is_kept(text(object, owner)));
        wrong.extend(left.map(|object| about(format!("{kind} {object}"))));
    }
    let contents = member.list(CONTENTS);
    let told: BTreeSet<&str> = contents.iter().map(|content| text(content, "/status/snapshotHandle")).collect();
    let untold = storage.snapshots().into_iter().filter(|name| !told.contains(name.as_str()));
    wrong.extend(untold.map(|name| about(format!("the storage keeps {name}"))));
    for claim in member.list("persistentvolumeclaims").iter().filter(|claim| !history.was_planted(claim)) {
        let labels = claim["metadata"]["labels"].as_object().into_iter().flatten();
        let of_groups = labels.filter(|(key, _)| key.starts_with("group.kosmos.csi.io/"));
        wrong.extend(of_groups.map(|(key, _)| about(format!("{key} on claim {}", text(claim, "/metadata/name")))));
    }
    wrong
}

/// No work is still under way.
fn in_flight(bench: &Bench) -> Vec<String> {
    if bench.is_outside() {
        return Vec::new();
    }
    let Some(controller) = bench.controller() else { return vec![NOT_AT_WORK.to_owned()] };
    controller.in_flight.under_way().into_iter().map(|key| format!("I8: the work on {key} still goes on")).collect()
}
