//! What is known of a member's leaves: one small row per volume, fed by the watches and by the answers to our own
//! writes, so that a request is answered from memory and reads its own writes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use tokio::{sync::watch, time::Instant};

use super::ownership::{self, FINALIZER, HAD_VOLUME, REQUEST};
use crate::volume::{
    AccessMode, HostId, VolumeHash, VolumeId, VolumeMode,
    plan::{ObservedClaim, ObservedVolume, Phase},
    quantity,
    spec::LeafPlace,
};

/// How many removed claims are remembered.
const REMEMBERED: usize = 256;

/// A leaf claim.
#[derive(Clone, Debug)]
pub struct ClaimRow {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub class: Box<str>,
    pub access: Box<[AccessMode]>,
    pub mode: VolumeMode,
    /// Seen with a host volume: never to be removed on the word of a stale caller.
    pub had_volume: bool,
    phase: Phase,
    terminating: bool,
    /// Where our finalizer stands among the others.
    pub finalizer: Option<usize>,
    /// When it was made, in seconds.
    created: i64,
    volume: Option<Box<str>>,
    capacity: u64,
    request: Option<Box<str>>,
    version: u64,
}

/// A leaf volume.
#[derive(Clone, Debug)]
pub struct VolumeRow {
    pub name: Box<str>,
    /// The claim it is bound to: namespace, name and UID.
    pub claim_place: LeafPlace,
    pub claim_uid: Box<str>,
    /// The member's storage driver and its own handle; empty for kinds that are not CSI.
    pub driver: Box<str>,
    pub handle: Box<str>,
    uid: Box<str>,
    retained: bool,
    created: i64,
    version: u64,
}

/// The pod that consumes a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Consumer {
    /// Another process may have made one.
    #[default]
    Unknown,
    /// It is there, with this UID.
    Made(Box<str>),
    Gone,
}

/// Everything known of one volume in one member.
#[derive(Clone, Debug, Default)]
pub struct Row {
    pub claim: Option<ClaimRow>,
    pub volume: Option<VolumeRow>,
    pub consumer: Consumer,
    claim_round: u32,
    volume_round: u32,
}

/// A StorageClass of the member.
#[derive(Clone, Debug)]
pub struct ClassRow {
    pub waits_for_pod: bool,
    default_since: Option<String>,
}

/// The three kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claims,
    Volumes,
    Classes,
}

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<VolumeHash, Row>,
    classes: BTreeMap<String, ClassRow>,
    listing: BTreeMap<String, ClassRow>,
    claim_round: u32,
    volume_round: u32,
    synced: [bool; 3],
    /// Claims that have gone, and as of which version: older news of them may still be on its way.
    removed: VecDeque<(Box<str>, u64)>,
    /// What keeps a kind from being watched.
    obstacles: [Option<String>; 3],
}

/// The rows of one member.
#[derive(Debug)]
pub struct Rows {
    host: HostId,
    table: Mutex<Table>,
    changed: watch::Sender<()>,
}

impl Rows {
    pub fn new(host: HostId) -> Self {
        Self { host, table: Mutex::default(), changed: watch::Sender::new(()) }
    }

    /// Whether everything has been listed, and is watched since.
    pub fn synced(&self) -> bool {
        self.lock().synced == [true; 3]
    }

    /// Nothing is to be believed until it has been listed anew.
    pub fn unsync(&self) {
        self.write(|table| table.synced = [false; 3]);
    }

    /// What keeps a kind from being watched, where the member said it.
    pub fn obstacle(&self) -> Option<String> {
        self.lock().obstacles.iter().flatten().next().cloned()
    }

    pub fn set_obstacle(&self, kind: Kind, obstacle: Option<String>) {
        self.write(|table| table.obstacles[kind as usize] = obstacle);
    }

    pub fn row(&self, hash: VolumeHash) -> Option<Row> {
        self.lock().rows.get(&hash).cloned()
    }

    /// What is known of a volume at the place of its leaf: whatever else carries its labels is a copy.
    pub fn row_at(&self, hash: VolumeHash, place: &LeafPlace) -> Row {
        self.row(hash).map(|row| row.at(place)).unwrap_or_default()
    }

    /// The row a handle stands for. A readable handle says where the leaf is.
    pub fn find(&self, id: &VolumeId) -> Option<(VolumeHash, Row)> {
        let table = self.lock();
        let rows = table.rows.range(id.hashes()).map(|(hash, row)| match id.place() {
            Some(place) => (*hash, row.clone().at(&place)),
            None => (*hash, row.clone()),
        });
        rows.into_iter().find(|(_, row)| !row.is_empty())
    }

    pub fn class(&self, name: &str) -> Option<ClassRow> {
        self.lock().classes.get(name).cloned()
    }

    pub fn class_names(&self) -> Vec<String> {
        self.lock().classes.keys().cloned().collect()
    }

    /// The member's default class: the newest of those that say they are, as Kubernetes itself decides.
    pub fn default_class(&self) -> Option<String> {
        let table = self.lock();
        let defaults = table.classes.iter().filter_map(|(name, class)| Some((class.default_since.as_ref()?, name)));
        defaults.max_by(|left, right| left.0.cmp(right.0).then(right.1.cmp(left.1))).map(|(_, name)| name.clone())
    }

    pub fn set_consumer(&self, hash: VolumeHash, consumer: Consumer) {
        self.write(|table| {
            table.rows.entry(hash).or_default().consumer = consumer;
            table.tidy(hash);
        });
    }

    /// Takes in a claim as it is now.
    pub fn put_claim(&self, claim: &PersistentVolumeClaim) {
        let Some(hash) = ownership::volume_of(&claim.metadata, &self.host) else {
            return;
        };
        let new = ClaimRow::new(claim);
        self.write(|table| {
            if table.removed.iter().any(|(uid, as_of)| *uid == new.uid && new.version <= *as_of) {
                return;
            }
            let round = table.claim_round;
            let row = table.rows.entry(hash).or_default();
            let listed = row.claim_round == round;
            if row.claim.as_ref().is_none_or(|known| new.supersedes(known, listed)) {
                row.claim = Some(new);
                row.claim_round = round;
            } else if row.claim.as_ref().is_some_and(|known| known.uid == new.uid) {
                row.claim_round = round;
            }
        });
    }

    /// A claim has gone as of a version; `u64::MAX` where that has been proved.
    pub fn drop_claim(&self, hash: VolumeHash, uid: &str, as_of: u64) {
        self.write(|table| {
            table.removed.push_back((uid.into(), as_of));
            if table.removed.len() > REMEMBERED {
                table.removed.pop_front();
            }
            table.rows.entry(hash).and_modify(|row| {
                row.claim.take_if(|claim| *claim.uid == *uid);
            });
            table.tidy(hash);
        });
    }

    pub fn put_volume(&self, volume: &PersistentVolume) {
        let Some(hash) = ownership::volume_of(&volume.metadata, &self.host) else {
            return;
        };
        let new = VolumeRow::new(volume);
        self.write(|table| {
            let round = table.volume_round;
            let row = table.rows.entry(hash).or_default();
            let listed = row.volume_round == round;
            if row.volume.as_ref().is_none_or(|known| new.supersedes(known, listed)) {
                row.volume = Some(new);
                row.volume_round = round;
            } else if row.volume.as_ref().is_some_and(|known| known.uid == new.uid) {
                row.volume_round = round;
            }
        });
    }

    pub fn drop_volume(&self, hash: VolumeHash, uid: &str) {
        self.write(|table| {
            table.rows.entry(hash).and_modify(|row| {
                row.volume.take_if(|volume| *volume.uid == *uid);
            });
            table.tidy(hash);
        });
    }

    pub fn put_class(&self, class: &StorageClass, listing: bool) {
        self.write(|table| {
            let classes = if listing { &mut table.listing } else { &mut table.classes };
            classes.insert(class.name_any(), ClassRow::new(class));
        });
    }

    pub fn drop_class(&self, name: &str) {
        self.write(|table| drop(table.classes.remove(name)));
    }

    /// A list begins: what is neither in it nor written by us meanwhile has gone.
    pub fn begin(&self, kind: Kind) {
        self.write(|table| match kind {
            Kind::Claims => table.claim_round += 1,
            Kind::Volumes => table.volume_round += 1,
            Kind::Classes => table.listing.clear(),
        });
    }

    pub fn complete(&self, kind: Kind) {
        self.write(|table| {
            let (claims, volumes) = (table.claim_round, table.volume_round);
            match kind {
                Kind::Claims => {
                    table.rows.values_mut().filter(|row| row.claim_round != claims).for_each(|row| row.claim = None);
                }
                Kind::Volumes => {
                    table.rows.values_mut().filter(|row| row.volume_round != volumes).for_each(|row| row.volume = None);
                }
                Kind::Classes => table.classes = std::mem::take(&mut table.listing),
            }
            table.rows.retain(|_, row| !row.is_empty());
            table.synced[kind as usize] = true;
        });
    }

    /// Waits until the rows satisfy a condition; false when the deadline came first.
    pub async fn until(&self, deadline: Instant, mut holds: impl FnMut(&Self) -> bool) -> bool {
        let mut changes = self.changed.subscribe();
        loop {
            changes.mark_unchanged();
            if holds(self) {
                return true;
            }
            if !matches!(tokio::time::timeout_at(deadline, changes.changed()).await, Ok(Ok(()))) {
                return holds(self);
            }
        }
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) {
        change(&mut self.lock());
        self.changed.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn tidy(&mut self, hash: VolumeHash) {
        if self.rows.get(&hash).is_some_and(Row::is_empty) {
            self.rows.remove(&hash);
        }
    }
}

impl Row {
    fn at(mut self, place: &LeafPlace) -> Self {
        self.claim.take_if(|claim| !claim.is_at(place));
        self.volume.take_if(|volume| volume.claim_place != *place);
        self
    }

    fn is_empty(&self) -> bool {
        self.claim.is_none() && self.volume.is_none() && !matches!(self.consumer, Consumer::Made(_))
    }

    /// The leaf volume; where a claim is there, only the one bound to it.
    pub fn observed_volume(&self) -> Option<ObservedVolume> {
        let bound = |volume: &&VolumeRow| self.claim.as_ref().is_none_or(|claim| claim.uid == volume.claim_uid);
        self.volume.as_ref().filter(bound).map(|volume| ObservedVolume {
            name: volume.name.to_string(),
            uid: volume.uid.to_string(),
            claim_uid: volume.claim_uid.to_string(),
            retained: volume.retained,
        })
    }
}

impl ClaimRow {
    pub fn new(claim: &PersistentVolumeClaim) -> Self {
        let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
        let annotation = |key: &str| claim.annotations().get(key);
        let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        Self {
            namespace: claim.namespace().unwrap_or_default().into(),
            name: claim.name_any().into(),
            uid: claim.uid().unwrap_or_default().into(),
            class: spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default().into(),
            access: modes.iter().filter_map(|mode| AccessMode::parse(mode)).collect(),
            mode: match spec.and_then(|spec| spec.volume_mode.as_deref()) {
                Some("Block") => VolumeMode::Block,
                _ => VolumeMode::Filesystem,
            },
            had_volume: annotation(HAD_VOLUME).is_some(),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Bound") => Phase::Bound,
                Some("Lost") => Phase::Lost,
                _ => Phase::Pending,
            },
            terminating: claim.metadata.deletion_timestamp.is_some(),
            finalizer: claim.finalizers().iter().position(|finalizer| finalizer == FINALIZER),
            created: created(&claim.metadata),
            volume: spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty()).map(Into::into),
            capacity: status
                .and_then(|status| status.capacity.as_ref()?.get("storage"))
                .and_then(|size| quantity::parse(&size.0))
                .unwrap_or_default(),
            request: annotation(REQUEST).map(|request| request.as_str().into()),
            version: version(claim),
        }
    }

    /// Whether this is to be believed instead of what is known. Copies of a leaf carry its labels: the oldest is the leaf.
    fn supersedes(&self, known: &Self, listed: bool) -> bool {
        if self.uid == known.uid {
            // A member restored from a backup begins with lower versions again, and lists them.
            return self.version >= known.version || !listed;
        }
        if self.namespace == known.namespace && self.name == known.name {
            return self.version > known.version || !listed;
        }
        let older = (self.created, &self.uid) < (known.created, &known.uid);
        let (copy, leaf) = if older { (known, self) } else { (self, known) };
        tracing::warn!(
            copy = format!("{}/{}", copy.namespace, copy.name),
            leaf = format!("{}/{}", leaf.namespace, leaf.name),
            "two claims carry the labels of one volume; the older one is its leaf"
        );
        older
    }

    /// Whether the claim is the one at this place: another one with the same labels is a copy.
    pub fn is_at(&self, place: &LeafPlace) -> bool {
        *self.namespace == *place.namespace && *self.name == *place.claim
    }

    pub fn place(&self) -> LeafPlace {
        LeafPlace { namespace: self.namespace.to_string(), claim: self.name.to_string() }
    }

    pub fn observed(&self) -> ObservedClaim {
        ObservedClaim {
            uid: self.uid.to_string(),
            phase: self.phase,
            terminating: self.terminating,
            protected: self.finalizer.is_some(),
            volume: self.volume.as_deref().map(str::to_owned),
            capacity: self.capacity,
            request: self.request.as_deref().and_then(|request| serde_json::from_str(request).ok()),
        }
    }
}

impl VolumeRow {
    pub fn new(volume: &PersistentVolume) -> Self {
        let spec = volume.spec.as_ref();
        let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        let csi = spec.and_then(|spec| spec.csi.as_ref());
        let bound_to = spec.and_then(|spec| spec.claim_ref.clone()).unwrap_or_default();
        Self {
            name: volume.name_any().into(),
            claim_uid: bound_to.uid.unwrap_or_default().into(),
            claim_place: LeafPlace {
                namespace: bound_to.namespace.unwrap_or_default(),
                claim: bound_to.name.unwrap_or_default(),
            },
            driver: csi.map(|csi| csi.driver.as_str()).unwrap_or_default().into(),
            handle: csi.map(|csi| csi.volume_handle.as_str()).unwrap_or_default().into(),
            uid: volume.uid().unwrap_or_default().into(),
            retained: policy == Some("Retain"),
            created: created(&volume.metadata),
            version: version(volume),
        }
    }
}

impl VolumeRow {
    fn supersedes(&self, known: &Self, listed: bool) -> bool {
        if self.uid == known.uid {
            return self.version >= known.version || !listed;
        }
        if self.name == known.name {
            return self.version > known.version || !listed;
        }
        (self.created, &self.uid) < (known.created, &known.uid)
    }
}

impl ClassRow {
    fn new(class: &StorageClass) -> Self {
        let is_default =
            ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"]
                .iter()
                .any(|key| class.annotations().get(*key).is_some_and(|value| value == "true"));
        let made = class.metadata.creation_timestamp.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
        Self {
            waits_for_pod: class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer"),
            default_since: is_default.then_some(made),
        }
    }
}

fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default()
}

/// Versions of one object can be compared as numbers.
pub fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
