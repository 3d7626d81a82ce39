//! The lives of all leaf claims, as the members' stores tell them: two at once for one volume, or the end of one that the
//! host still uses, are seen at the moment they happen.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::Value;
use simulate::{
    Change, Changes, Cluster, What,
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::Instant;

use crate::{
    attach::double::ATTACHMENTS,
    ledger::Ledger,
    snapshotter::{CONTENTS, GROUPS, SNAPSHOTS},
};

/// Its member, namespace and name.
type Made = (String, String, String);

/// A label's value; empty where there is none.
pub fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// The name of the volume that a leaf claim was made for.
pub fn made_for(leaf: &Value) -> &str {
    leaf["metadata"]["annotations"]["kosmos.csi.io/name"].as_str().unwrap_or_default()
}

/// The nodes of a volume that may be on one alone, where they are several.
fn on_several_nodes(leaf: &Value) -> Option<String> {
    let record = leaf["metadata"]["annotations"]["kosmos.csi.io/published"].as_str()?;
    let nodes: BTreeMap<String, Value> = serde_json::from_str(record).ok()?;
    let alone = nodes.values().any(|way| way["access"].as_str().is_some_and(|mode| mode.starts_with("ReadWriteOnce")));
    (alone && nodes.len() > 1).then(|| record.to_owned())
}

/// What is there, as what is to be made is known by.
fn found(member: &Cluster, object: &Value) -> Made {
    let name = |path| text(object, path).to_owned();
    (member.name().to_owned(), name("/metadata/namespace"), name("/metadata/name"))
}

fn policy(cluster: &Cluster, volume: &str) -> String {
    let volume = cluster.get("persistentvolumes", "", volume);
    volume.map(|volume| text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned()).unwrap_or_default()
}

pub struct History {
    host_id: String,
    host: Cluster,
    members: Vec<Cluster>,
    changes: Vec<Changes>,
    /// Leaf claims that are there, by the volume's hash: member and UID.
    living: BTreeMap<String, Vec<(usize, String)>>,
    /// Every UID that a leaf claim of ours ever had.
    uids: BTreeSet<String>,
    /// UIDs of leaf claims that were planted, and are nobody's business.
    foreign: BTreeSet<String>,
    /// Leaf claims that people have taken our labels off once: their volume's hash by their UID.
    stripped: BTreeMap<String, String>,
    /// Leaf claims that the host relies on: UID to volume name.
    relied_on: BTreeMap<String, String>,
    /// UIDs of leaf claims that people have deleted, and volumes whose leaf has gone for that: the leaf volume must come
    /// back.
    deleted: BTreeSet<String>,
    bereaved: BTreeMap<String, String>,
    /// UIDs of leaf claims whose end began when the host had let them go.
    leaving: BTreeSet<String>,
    /// Leaf snapshots and groups that were handed out, and must stay: UID to the name they were asked for by.
    handed_out: BTreeMap<String, String>,
    /// UIDs of leaf snapshots and groups that are there, by that name.
    cut: BTreeMap<String, BTreeSet<String>>,
    /// What may come long after its sender gave up, and when the last of it arrives.
    late: BTreeMap<Made, Instant>,
    /// Attachments that are held up on their way: who made them, and when they arrive.
    held_up: Vec<(String, Instant, Made)>,
    /// Moves that have closed their source, as its mark names them.
    closed: BTreeSet<String>,
    /// Leaf claims that have gone since somebody looked for a name to take, and their members.
    pub freed: Vec<(usize, Arc<Value>)>,
    /// The host has been restored from a backup, and may have forgotten what was made since.
    host_was_restored: bool,
    /// Sidecars call two replicas: what is held up of the one, the other one does not wait for.
    pub two_are_called: bool,
    pub ledger: Ledger,
}

impl History {
    pub fn new(host_id: &str, host: &Cluster, members: &[Cluster]) -> Self {
        let watched = ["persistentvolumeclaims", SNAPSHOTS, CONTENTS, GROUPS];
        Self {
            host_id: host_id.to_owned(),
            host: host.clone(),
            members: members.to_vec(),
            changes: members.iter().map(|member| simulate::follow::follow(member, &watched)).collect(),
            living: BTreeMap::new(),
            uids: BTreeSet::new(),
            foreign: BTreeSet::new(),
            stripped: BTreeMap::new(),
            relied_on: BTreeMap::new(),
            deleted: BTreeSet::new(),
            bereaved: BTreeMap::new(),
            leaving: BTreeSet::new(),
            handed_out: BTreeMap::new(),
            cut: BTreeMap::new(),
            late: BTreeMap::new(),
            held_up: Vec::new(),
            closed: BTreeSet::new(),
            freed: Vec::new(),
            host_was_restored: false,
            two_are_called: false,
            ledger: Ledger::default(),
        }
    }

    pub fn host_is_restored(&mut self) {
        self.host_was_restored = true;
    }

    pub fn host_was_restored(&self) -> bool {
        self.host_was_restored
    }

    /// The member that a handle names.
    fn member_of(&self, handle: &str) -> Option<usize> {
        self.members.iter().position(|member| handle.split('/').next() == Some(member.name()))
    }

    /// The host has been told of a leaf with this volume.
    pub fn give_out(&mut self, handle: &str, leaf_volume: &str, volume: &str) {
        if let Some(member) = self.member_of(handle) {
            self.ledger.give_out(member, leaf_volume, volume);
        }
    }

    /// Its removal is asked for by who may ask.
    pub fn may_go(&mut self, handle: &str, volume: &str) {
        if let Some(member) = self.member_of(handle) {
            self.ledger.may_go(member, volume);
        }
    }

    /// The host still has, from a backup, what was to be removed.
    pub fn was_to_go(&self, handle: &str, volume: &str) -> bool {
        let asked = self.member_of(handle).is_some_and(|member| self.ledger.was_asked_to_go(member, volume));
        self.host_was_restored && asked
    }

    /// The volume an object belongs to, where it carries our labels, or people have taken them off.
    pub fn volume_of<'a>(&'a self, object: &'a Value) -> Option<&'a str> {
        let says = self.is_of_this_host(object).then(|| label(object, "kosmos.csi.io/volume"));
        let said = || self.stripped.get(text(object, "/metadata/uid")).map(String::as_str);
        says.filter(|hash| !hash.is_empty()).or_else(said)
    }

    /// Somebody takes our labels off a leaf claim.
    pub fn is_stripped(&mut self, leaf: &Value) {
        let hash = self.volume_of(leaf).map(str::to_owned);
        self.stripped.extend(hash.map(|hash| (text(leaf, "/metadata/uid").to_owned(), hash)));
    }

    /// Whether this was so of any leaf of a volume, whose hash may be as short as in handles.
    pub fn was_stripped(&self, hash: &str) -> bool {
        self.stripped.values().any(|stripped| stripped.starts_with(hash))
    }

    /// Whether an object says that it was made for this host.
    pub fn is_of_this_host(&self, object: &Value) -> bool {
        let host = label(object, "kosmos.csi.io/host");
        label(object, "app.kubernetes.io/managed-by") == "kosmos.csi.io" && host == self.host_id
    }

    /// Takes note of a planted object.
    pub fn plant(&mut self, object: &Value) {
        self.foreign.insert(text(object, "/metadata/uid").to_owned());
    }

    pub fn was_planted(&self, object: &Value) -> bool {
        self.foreign.contains(text(object, "/metadata/uid"))
    }

    pub fn was_ours(&self, uid: &str) -> bool {
        self.uids.contains(uid)
    }

    /// Something is on its way to a member, for a moment or for longer than its sender waits for it. Whoever has a leaf claim deleted
    /// that was let go cannot keep it when another claim takes the volume meanwhile: it is recreated with its data.
    pub fn is_on_its_way(&mut self, member: usize, asked: &Asked, action: &Action) {
        let cluster = self.members[member].clone();
        let made = self.made(member, asked);
        let is_there = cluster.get(&asked.resource, &made.1, &made.2).is_some();
        match (asked.verb, action) {
            (Verb::Create, Action::Late(time)) => self.comes_late(made, Instant::now() + *time),
            (Verb::Create, Action::Delay(time)) if self.two_are_called && !is_there => {
                self.comes_late(made, Instant::now() + *time);
            }
            (Verb::Create, Action::Delay(time)) if asked.resource == ATTACHMENTS && !is_there => {
                self.held_up.retain(|(_, arrives, _)| *arrives > Instant::now());
                self.held_up.push((asked.client.clone(), Instant::now() + *time, made));
            }
            (Verb::Delete, _) => {
                let is_meant =
                    |leaf: &Arc<Value>| text(leaf, "/metadata/uid") == text(&asked.body, "/preconditions/uid");
                let leaf = cluster.get(&asked.resource, &asked.namespace, &asked.name).filter(is_meant);
                let relied_on =
                    leaf.and_then(|leaf| Some((self.relied_on.get(text(&leaf, "/metadata/uid"))?.clone(), leaf)));
                if let Some((_, leaf)) = relied_on.filter(|(volume, leaf)| self.is_let_go(member, volume, leaf)) {
                    self.leaving.insert(text(&leaf, "/metadata/uid").to_owned());
                }
            }
            _ => {}
        }
    }

    /// Whoever makes it knows of it, unless more of it is on its way.
    pub fn is_asked_for(&mut self, member: usize, asked: &Asked) {
        if (asked.verb, asked.resource.as_str()) == (Verb::Create, ATTACHMENTS) {
            let made = self.made(member, asked);
            if self.late.get(&made).is_some_and(|arrives| *arrives <= Instant::now()) {
                self.late.remove(&made);
            }
        }
    }

    fn comes_late(&mut self, made: Made, arrives: Instant) {
        let last = self.late.entry(made).or_insert(arrives);
        *last = arrives.max(*last);
    }

    fn made(&self, member: usize, asked: &Asked) -> Made {
        let name = |path| text(&asked.body, path).to_owned();
        (self.members[member].name().to_owned(), name("/metadata/namespace"), name("/metadata/name"))
    }

    /// What the one that is killed now has sent arrives all the same, and the next one may have looked for it before.
    pub fn was_killed(&mut self, client: &str) {
        let of_it = self.held_up.extract_if(.., |(sender, ..)| sender == client);
        let still: Vec<_> = of_it.filter(|(_, arrives, _)| *arrives > Instant::now()).collect();
        for (_, arrives, made) in still {
            self.comes_late(made, arrives);
        }
    }

    pub fn may_come_late(&self, member: &Cluster, object: &Value) -> bool {
        self.late.contains_key(&found(member, object))
    }

    /// A person takes the nodes of a leaf off its record. What is attached for them is in no record from then on, like what comes late.
    pub fn has_no_record(&mut self, member: &Cluster, leaf: &Value) {
        let Some(hash) = self.volume_of(leaf) else { return };
        let all = member.list(ATTACHMENTS);
        let of_it: Vec<_> = all.iter().filter(|one| self.volume_of(one) == Some(hash)).collect();
        for attached in of_it {
            self.comes_late(found(member, attached), Instant::now());
        }
    }

    /// Nobody can tell that a leaf snapshot or group came late which does not say for whom it was made.
    pub fn is_nobodys(&self, member: &Cluster, snapshot: &Value) -> bool {
        let says = snapshot["metadata"]["annotations"].get("kosmos.csi.io/content").is_some();
        !says && self.may_come_late(member, snapshot)
    }

    /// The host has been told of a leaf and keeps its handle: from now on it must stay.
    pub fn rely_on(&mut self, uid: &str, volume: &str) {
        self.relied_on.insert(uid.to_owned(), volume.to_owned());
    }

    /// The host asks for its removal.
    pub fn let_go(&mut self, volume: &str) {
        self.relied_on.retain(|_, relied_on| relied_on != volume);
        self.bereaved.remove(volume);
    }

    /// Somebody deletes a leaf claim that is not his.
    pub fn deleted_by_people(&mut self, uid: &str) {
        self.deleted.insert(uid.to_owned());
    }

    /// The host has been told of a leaf snapshot or group, and keeps its handle: from now on it must stay.
    pub fn rely_on_snapshot(&mut self, uid: &str, name: &str) {
        self.handed_out.insert(uid.to_owned(), name.to_owned());
    }

    /// The host asks for its removal.
    pub fn let_go_of_snapshot(&mut self, name: &str) {
        self.handed_out.retain(|_, handed_out| handed_out != name);
    }

    /// UIDs of what was handed out and not let go, and their names.
    pub fn handed_out(&self) -> &BTreeMap<String, String> {
        &self.handed_out
    }

    /// The move has closed its source, whatever people have done to its mark since.
    pub fn has_closed(&self, of: &Value) -> bool {
        let part = |key: &str| text(of, &format!("/metadata/{key}")).to_owned();
        self.closed.contains(&format!("{}/{}/{}", part("namespace"), part("name"), part("uid")))
    }

    pub fn is_relied_on(&self, uid: &str) -> bool {
        self.relied_on.contains_key(uid)
    }

    /// Takes in what has happened in one member since the last look. What is wrong is said in sentences.
    pub fn catch_up(&mut self, member: usize) -> Vec<String> {
        let mut wrong = Vec::new();
        while let Some(change) = self.changes.get_mut(member).and_then(Changes::try_next) {
            wrong.extend(self.take(member, &change));
        }
        wrong
    }

    pub fn catch_up_all(&mut self) -> Vec<String> {
        (0..self.changes.len()).flat_map(|member| self.catch_up(member)).collect()
    }

    fn take(&mut self, member: usize, change: &Change) -> Option<String> {
        if change.resource != "persistentvolumeclaims" {
            return self.take_snapshot(change);
        }
        let uid = text(&change.object, "/metadata/uid").to_owned();
        let hash = self.volume_of(&change.object)?.to_owned();
        if self.foreign.contains(&uid) {
            return None;
        }
        self.ledger.note(member, &change.object);
        // Nobody could keep it from coming; what becomes of it is seen at the end.
        let mark = text(&change.object, "/metadata/annotations/kosmos.csi.io~1move");
        let is_copy = mark.ends_with("/copy");
        self.closed.extend(mark.strip_suffix("/source").map(str::to_owned));
        let came_late = is_copy || self.may_come_late(&self.members[member], &change.object);
        let living = self.living.entry(hash.clone()).or_default();
        let name = made_for(&change.object);
        match change.what {
            What::Added => {
                self.uids.insert(uid.clone());
                if !came_late {
                    living.push((member, uid.clone()));
                }
                let named = text(&change.object, "/spec/volumeName");
                let knows_no_volume = came_late && named.is_empty();
                // A copy is not what comes back of a source that somebody has deleted.
                if is_copy || knows_no_volume {
                    return None;
                }
                if let Some(volume) = self.bereaved.remove(name) {
                    self.relied_on.insert(uid, name.to_owned());
                    let other = format!("I1: volume {name} had {volume} and its new leaf claim names {named:?}");
                    return (named != volume).then_some(other);
                }
                if came_late {
                    return None;
                }
                let relied_on = self.relied_on.values().any(|volume| volume == name);
                if living.len() > 1 {
                    return Some(format!("I2: volume {name} has {} leaf claims at once: {living:?}", living.len()));
                }
                relied_on.then(|| format!("I2: volume {name} was given out and has another leaf claim now: {living:?}"))
            }
            What::Modified => {
                let ends = change.object.pointer("/metadata/deletionTimestamp").is_some();
                let volume = self.relied_on.get(&uid).filter(|_| ends);
                if volume.is_some_and(|volume| self.is_let_go(member, volume, &change.object)) {
                    self.leaving.insert(uid);
                }
                on_several_nodes(&change.object)
                    .map(|nodes| format!("I9: volume {name} is for one node and published on {nodes}"))
            }
            What::Deleted => {
                living.retain(|(_, living)| *living != uid);
                self.freed.push((member, Arc::clone(&change.object)));
                self.take_deleted(member, &uid, &change.object)
            }
        }
    }

    fn take_deleted(&mut self, member: usize, uid: &str, leaf: &Value) -> Option<String> {
        let volume = self.relied_on.get(uid)?.clone();
        if self.may_be_taken_back(member, &volume, leaf) {
            self.relied_on.remove(uid);
            return None;
        }
        let leaf_volume = text(leaf, "/spec/volumeName");
        let known = self.deleted.contains(uid) || self.leaving.contains(uid);
        if known || self.is_let_go(member, &volume, leaf) {
            self.relied_on.remove(uid);
            let kept = policy(&self.members[member], leaf_volume) == "Retain";
            let lost = format!("I1: the leaf claim {uid} of volume {volume} is gone, and {leaf_volume} goes too");
            if !self.is_retired(member, leaf) {
                self.bereaved.insert(volume, leaf_volume.to_owned());
            }
            return (!kept && !self.deleted.contains(uid)).then_some(lost);
        }
        Some(format!("I1: the leaf claim {uid} of volume {volume} is gone, and the host uses it"))
    }

    /// The host keeps a volume that no claim has, or that another claim has than its leaf was made for. Or a move has the leaf.
    fn is_let_go(&self, member: usize, volume: &str, leaf: &Value) -> bool {
        if self.belongs_elsewhere(member, leaf) {
            return true;
        }
        let Some(volume) = self.host.get("persistentvolumes", "", volume) else {
            return self.outlives_the_host(member, leaf);
        };
        let told = |field: &str| text(&volume, &format!("/spec/claimRef/{field}")).to_owned();
        let claim = self.host.get("persistentvolumeclaims", &told("namespace"), &told("name"));
        let has = claim.is_some_and(|claim| text(&claim, "/metadata/uid") == told("uid"));
        let made_for = leaf["metadata"]["annotations"]["kosmos.csi.io/claim"].as_str().unwrap_or_default();
        let renamed = !made_for.is_empty() && made_for != format!("{}/{}", told("namespace"), told("name"));
        renamed || !has && policy(&self.host, text(&volume, "/metadata/name")) == "Retain"
    }

    /// A restored host does not have the volume, which it had for a moment, and no pod has had it: nobody can tell it from one of
    /// which the host was never told.
    fn may_be_taken_back(&self, member: usize, volume: &str, leaf: &Value) -> bool {
        let is_forgotten = self.host_was_restored && self.host.get("persistentvolumes", "", volume).is_none();
        is_forgotten && !self.ledger.is_used(member, leaf)
    }

    /// A restored host has neither the volume nor a claim that waits for it. The leaf volume says that the host's was `Retain`: it stays,
    /// and its claim is let go.
    fn outlives_the_host(&self, member: usize, leaf: &Value) -> bool {
        let made_for = leaf["metadata"]["annotations"]["kosmos.csi.io/claim-uid"].as_str().unwrap_or_default();
        let waits =
            |claim: &Arc<Value>| text(claim, "/metadata/uid") == made_for && text(claim, "/spec/volumeName").is_empty();
        self.host_was_restored
            && policy(&self.members[member], text(leaf, "/spec/volumeName")) == "Retain"
            && !self.host.list("persistentvolumeclaims").iter().any(waits)
    }

    /// Its volume is the source of a move that is done.
    fn is_retired(&self, member: usize, leaf: &Value) -> bool {
        let volume = self.members[member].get("persistentvolumes", "", text(leaf, "/spec/volumeName"));
        volume.is_some_and(|volume| volume.pointer("/metadata/labels/kosmos.csi.io~1moved").is_some())
    }

    fn belongs_elsewhere(&self, member: usize, leaf: &Value) -> bool {
        let volume = self.members[member].get("persistentvolumes", "", text(leaf, "/spec/volumeName"));
        if self.is_retired(member, leaf) {
            return true;
        }
        let told = volume.map(|volume| text(&volume, "/metadata/annotations/kosmos.csi.io~1place").to_owned());
        let place = format!("{}/{}", text(leaf, "/metadata/namespace"), text(leaf, "/metadata/name"));
        told.is_some_and(|told| !told.is_empty() && told != place)
    }

    /// There is one for a name at a time, and what was handed out neither goes nor loses what stands behind it.
    fn take_snapshot(&mut self, change: &Change) -> Option<String> {
        let (object, uid) = (&change.object, text(&change.object, "/metadata/uid").to_owned());
        let bound_to = text(object, "/spec/volumeSnapshotRef/uid");
        let kept = self.handed_out.get(if change.resource == CONTENTS { bound_to } else { &uid });
        let ends = change.what == What::Deleted || object.pointer("/metadata/deletionTimestamp").is_some();
        if let Some(name) = kept.filter(|_| ends) {
            return Some(format!("I1: {} {uid} of {name} goes, and the host uses it", change.resource));
        }
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let of_ours = owners.into_iter().any(|owner| self.uids.contains(text(owner, "/uid")));
        if change.resource == CONTENTS || self.foreign.contains(&uid) || !(of_ours || self.is_of_this_host(object)) {
            return None;
        }
        self.uids.insert(uid.clone());
        let name = made_for(object);
        let cut = self.cut.entry(name.to_owned()).or_default();
        match change.what {
            What::Deleted => drop(cut.remove(&uid)),
            _ => drop(cut.insert(uid)),
        }
        (cut.len() > 1 && !name.is_empty()).then(|| format!("I2: {name} is there {} times at once: {cut:?}", cut.len()))
    }
}
