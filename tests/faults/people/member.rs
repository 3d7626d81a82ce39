//! What people in members do: to leaves, which are not theirs, with copies of them, and with names that become free.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Map, Value, json};
use simulate::{Cluster, text};
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP, lock},
    fixture::{self, BY_HAND, LONG, MEMBERS, Planted},
    history::made_for,
    snapshotter::SNAPSHOTS,
};

/// Of somebody whose work with a leaf claim is not done, and of whoever deletes it while a pod of his uses it. None of them ends
/// the other's.
const HOLD: &str = "example.com/backup";
const USE: &str = "example.com/use";
/// By which a leaf is ours; and on a leaf claim, those that somebody has taken off.
const OURS: [&str; 3] = ["app.kubernetes.io/managed-by", "kosmos.csi.io/host", "kosmos.csi.io/volume"];
const TAKEN_OFF: &str = "example.com/labels";

/// Somebody in a member is not done with a claim there, or is.
pub fn hold_in(member: &Cluster, namespace: &str, claim: &str, finalizer: &str, held: bool) {
    let edit = |claim: &mut Value| {
        let mut finalizers = claim["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|there| there != finalizer);
        finalizers.extend(held.then(|| json!(finalizer)));
        claim["metadata"]["finalizers"] = json!(finalizers);
    };
    let _ = member.change("persistentvolumeclaims", namespace, claim, edit);
}

/// The leaf claims that the host uses. One without a volume cannot be recreated, and its user is told so.
fn all_used(bench: &Bench, member: usize) -> Vec<Arc<Value>> {
    bench.guard.look();
    let is_used = |leaf: &Arc<Value>| {
        let host_volume = bench.host.get("persistentvolumes", "", made_for(leaf));
        let relied_on = lock(&bench.guard.history).is_relied_on(text(leaf, "/metadata/uid"));
        let has_volume = !text(leaf, "/spec/volumeName").is_empty();
        has_volume && relied_on && host_volume.is_some_and(|volume| text(&volume, "/status/phase") == "Bound")
    };
    bench.members[member].list("persistentvolumeclaims").into_iter().filter(is_used).collect()
}

/// One of them, best one that is on a node.
fn used(bench: &Bench, member: usize) -> Option<Arc<Value>> {
    let used = all_used(bench, member);
    used.iter().find(|leaf| is_on_a_node(leaf)).or_else(|| used.first()).cloned()
}

fn is_on_a_node(leaf: &Value) -> bool {
    leaf["metadata"]["annotations"]["kosmos.csi.io/published"].is_string()
}

/// A leaf claim that somebody in a member holds.
pub(super) struct Held {
    member: Cluster,
    namespace: String,
    claim: String,
    leaf_volume: String,
    /// The host's.
    pub(super) volume: String,
}

impl Held {
    /// Every other time one whose volume people have made, in any member: there are few, and what is on them was there before.
    pub(super) fn one(bench: &Bench, member: usize) -> Option<Self> {
        let is_by_hand = |leaf: &Arc<Value>| text(leaf, "/spec/volumeName").starts_with(BY_HAND);
        let by_hand = |at: usize| Some((at, all_used(bench, at).into_iter().find(is_by_hand)?));
        let found = if member.is_multiple_of(2) { (0..MEMBERS).find_map(by_hand) } else { None };
        let (member, leaf) = found.or_else(|| Some((member, used(bench, member)?)))?;
        let (namespace, claim) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
        bench.guard.note(|| format!("somebody holds leaf claim {namespace}/{claim} in m{member}"));
        let member = bench.members[member].clone();
        hold_in(&member, namespace, claim, HOLD, true);
        let (volume, leaf_volume) = (made_for(&leaf).to_owned(), text(&leaf, "/spec/volumeName").to_owned());
        Some(Self { member, namespace: namespace.to_owned(), claim: claim.to_owned(), leaf_volume, volume })
    }

    /// The leaf volume says that it stays, whatever becomes of its claim. One that people have made stays anyway.
    pub(super) fn is_kept(&self) -> bool {
        let volume = self.member.get("persistentvolumes", "", &self.leaf_volume);
        volume.is_some_and(|volume| {
            let says = |key: &str| volume["metadata"]["annotations"][format!("kosmos.csi.io/{key}")].is_string();
            let retained = text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Retain";
            retained && (says("policy-before") || says("healing") || self.leaf_volume.starts_with(BY_HAND))
        })
    }

    pub(super) fn let_go(&self) {
        hold_in(&self.member, &self.namespace, &self.claim, HOLD, false);
    }
}

/// And is done with all.
pub fn let_go(bench: &Bench) {
    for member in &bench.members {
        for claim in member.list("persistentvolumeclaims") {
            for finalizer in [HOLD, USE] {
                if claim["metadata"]["finalizers"].as_array().is_some_and(|held| held.contains(&json!(finalizer))) {
                    let (namespace, name) = (text(&claim, "/metadata/namespace"), text(&claim, "/metadata/name"));
                    hold_in(member, namespace, name, finalizer, false);
                }
            }
        }
    }
}

/// The pod that used a volume has ended in its member: a claim that was deleted meanwhile goes at the moment when its node leaves it.
pub fn pod_ends(bench: &Bench, handle: &str) {
    if let (Some(member), Ok(leaf)) = (bench.member_of(handle), bench.leaf_behind(handle)) {
        hold_in(member, text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"), USE, false);
    }
}

/// Somebody deletes a leaf claim that the host uses, which goes at once, is held for so long, or, where it is on a node, until its pod
/// ends there.
pub async fn delete_leaf(bench: Arc<Bench>, member: usize, held: Option<Duration>) {
    let Some(leaf) = used(&bench, member) else { return };
    let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
    let (time, uid) = (held.filter(|_| !is_on_a_node(&leaf)), text(&leaf, "/metadata/uid"));
    let until = match (held, time) {
        (None, _) => "which nobody holds".to_owned(),
        (Some(_), None) => "which its pod holds".to_owned(),
        (Some(_), Some(time)) => format!("held for {time:?}"),
    };
    bench.guard.note(|| format!("somebody deletes leaf claim {namespace}/{name} in m{member}, {until}"));
    let cluster = &bench.members[member];
    if held.is_some() {
        hold_in(cluster, namespace, name, USE, true);
    }
    lock(&bench.guard.history).deleted_by_people(uid);
    // It may have been on its way out, and held by nobody else.
    let _ = cluster.delete("persistentvolumeclaims", namespace, name);
    let Some(time) = time else { return };
    sleep(time).await;
    let left = cluster.get("persistentvolumeclaims", namespace, name);
    if left.is_some_and(|left| text(&left, "/metadata/uid") == uid) {
        hold_in(cluster, namespace, name, USE, false);
    }
}

/// Somebody takes our labels off a leaf claim that the host uses, as tools do that know better which there are to be, and puts them back some
/// time later, as he is told.
pub(super) async fn strip(bench: Arc<Bench>, member: usize, time: Duration) {
    let Some(leaf) = used(&bench, member) else { return };
    let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
    if leaf["metadata"]["annotations"][TAKEN_OFF].is_string() {
        return;
    }
    bench.guard.note(|| format!("somebody takes the labels off leaf claim {namespace}/{name} in m{member}: {time:?}"));
    lock(&bench.guard.history).is_stripped(&leaf);
    let take_off = |claim: &mut Value| {
        let labels = claim["metadata"]["labels"].as_object_mut().expect("it has some");
        let taken: Map<String, Value> = OURS.iter().filter_map(|key| labels.remove_entry(*key)).collect();
        claim["metadata"]["annotations"][TAKEN_OFF] = json!(json!(taken).to_string());
    };
    let _ = bench.members[member].change("persistentvolumeclaims", namespace, name, take_off);
    sleep(time).await;
    put_labels_back(&bench, member);
}

pub(super) fn put_labels_back(bench: &Bench, member: usize) {
    for claim in bench.members[member].list("persistentvolumeclaims") {
        let taken = claim["metadata"]["annotations"][TAKEN_OFF].as_str();
        let labels = taken.map(serde_json::from_str::<Map<String, Value>>);
        let Some(Ok(labels)) = labels.filter(|_| !lock(&bench.guard.history).was_planted(&claim)) else { continue };
        let (namespace, name) = (text(&claim, "/metadata/namespace"), text(&claim, "/metadata/name"));
        bench.guard.note(|| format!("somebody puts the labels of leaf claim {namespace}/{name} in m{member} back"));
        let put = |claim: &mut Value| {
            // An API server leaves out labels that are empty.
            let mut there = claim["metadata"]["labels"].take().as_object_mut().map(std::mem::take).unwrap_or_default();
            there.extend(labels);
            claim["metadata"]["labels"] = there.into();
            claim["metadata"]["annotations"].as_object_mut().expect("it has some").remove(TAKEN_OFF);
        };
        let _ = bench.members[member].change("persistentvolumeclaims", namespace, name, put);
    }
}

/// Copies of a leaf and of a leaf snapshot, perhaps by their own names. Best of a leaf that was healed: it says in whose place it stands.
pub(super) fn copy(bench: &Bench, planted: &Mutex<Planted>, member: usize, into: usize, restored: bool) {
    let is_ours = |leaf: &Arc<Value>| {
        let history = lock(&bench.guard.history);
        history.volume_of(leaf).is_some() && !history.was_planted(leaf)
    };
    let leaves: Vec<_> =
        bench.members[member].list("persistentvolumeclaims").into_iter().filter(|leaf| is_ours(leaf)).collect();
    let is_healed = |leaf: &&Arc<Value>| leaf["metadata"]["annotations"]["kosmos.csi.io/former"].is_string();
    if let Some(leaf) = leaves.iter().find(is_healed).or_else(|| leaves.first()) {
        let name = text(leaf, "/metadata/name");
        bench.guard.note(|| format!("somebody copies leaf claim {name} into m{into}, by its own name: {restored}"));
        let copy = if restored { Planted::restore } else { Planted::copy };
        copy(&mut lock(planted), bench, into, leaf);
    }
    if let Some(leaf) = bench.members[member].list(SNAPSHOTS).iter().find(|leaf| is_ours(leaf)) {
        let copy = if restored { Planted::restore_snapshot } else { Planted::copy_snapshot };
        copy(&mut lock(planted), bench, member, leaf);
    }
}

/// A controller of theirs writes on every claim and volume that appears, as those of policies and of costs do.
pub(super) async fn write_on_all(bench: Arc<Bench>, member: usize) {
    let cluster = &bench.members[member];
    let note = |object: &mut Value| object["metadata"]["annotations"]["example.com/seen"] = json!("yes");
    loop {
        for kind in ["persistentvolumeclaims", "persistentvolumes"] {
            let is_new = |object: &Arc<Value>| object["metadata"]["annotations"].get("example.com/seen").is_none();
            for object in cluster.list(kind).into_iter().filter(is_new) {
                let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
                let _ = cluster.change(kind, namespace, name, note);
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A quota that leaves hardly any room, for a while.
pub(super) async fn limit(bench: Arc<Bench>, member: usize, time: Duration) {
    let quota =
        json!({"metadata": {"name": "tight", "namespace": SHOP}, "spec": {"hard": {"persistentvolumeclaims": "2"}}});
    bench.guard.note(|| format!("m{member} has a quota for {time:?}"));
    let _ = bench.members[member].create("resourcequotas", quota);
    sleep(time).await;
    bench.guard.note(|| format!("m{member} has no quota"));
    let _ = bench.members[member].delete("resourcequotas", SHOP, "tight");
}

/// Somebody takes all the room that its storage has, and gives it back after a while.
pub(super) async fn fill(bench: Arc<Bench>, member: usize, time: Duration) {
    bench.guard.note(|| format!("m{member} is full for {time:?}"));
    fixture::fill(&bench, member);
    sleep(time).await;
    bench.guard.note(|| format!("m{member} is not full any more"));
    fixture::empty(&bench, member);
}

/// Names that become free in a member are taken by others there, who must not lose what they make.
pub(super) async fn take_names(bench: Arc<Bench>, planted: Arc<Mutex<Planted>>, mut chance: Rng) {
    loop {
        sleep(Duration::from_millis(200)).await;
        bench.guard.look();
        let freed = std::mem::take(&mut lock(&bench.guard.history).freed);
        for (member, leaf) in freed {
            let name = text(&leaf, "/metadata/name");
            let is_in_use = |volume: &Arc<Value>| text(volume, "/spec/csi/volumeHandle").contains(&format!("/{name}/"));
            let wanted = bench.host.get("persistentvolumeclaims", SHOP, name).is_some()
                || bench.host.list("persistentvolumes").iter().any(is_in_use)
                || name.ends_with('7')
                || name.len() > LONG;
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
