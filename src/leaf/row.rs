//! One row: what is kept of a leaf claim, its volume and its consumer, and which of two tidings is to be believed. Pure.

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::ownership::{FINALIZER, HAD_VOLUME, REQUEST};
use crate::volume::{
    AccessMode, VolumeMode,
    plan::{ObservedClaim, ObservedVolume, Phase},
    quantity,
    spec::LeafPlace,
};

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
    pub(super) phase: Phase,
    pub(super) terminating: bool,
    /// Where our finalizer stands among the others.
    pub finalizer: Option<usize>,
    /// When it was made, in seconds.
    pub(super) created: i64,
    pub(super) volume: Option<Box<str>>,
    pub(super) capacity: u64,
    pub(super) request: Option<Box<str>>,
    pub(super) version: u64,
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
    pub(super) uid: Box<str>,
    pub(super) retained: bool,
    pub(super) created: i64,
    pub(super) version: u64,
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
    pub(super) claim_round: u32,
    pub(super) volume_round: u32,
}

/// A StorageClass of the member.
#[derive(Clone, Debug)]
pub struct ClassRow {
    pub waits_for_pod: bool,
    pub(super) default_since: Option<String>,
}

impl Row {
    pub(super) fn at(mut self, place: &LeafPlace) -> Self {
        self.claim.take_if(|claim| !claim.is_at(place));
        self.volume.take_if(|volume| volume.claim_place != *place);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
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
    pub(super) fn supersedes(&self, known: &Self, listed: bool) -> bool {
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
    pub(super) fn supersedes(&self, known: &Self, listed: bool) -> bool {
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
    pub(super) fn new(class: &StorageClass) -> Self {
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
