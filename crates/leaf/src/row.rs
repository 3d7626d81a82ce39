//! One row: what is known of a leaf claim, its volume and its consumer, as it is handed out. Pure.
//! `compact.rs` says how little of memory it takes meanwhile.

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use super::{
    capacity::node_of_volume,
    marks::{SELECTED_NODE, groups_of, request_of},
    ownership::{
        self, CLAIM, FINALIZER, FORMER, HAD_VOLUME, HANDLE, HEALING, POLICY_BEFORE, PROVISIONED_BY, REMOVAL, WITHDRAWN,
    },
    progress::ClaimProgress,
};
use domain::volume::{
    AccessMode, ClaimDigest, LeafPlace, VolumeHash, VolumeId, VolumeMode,
    growth::Size,
    plan::{ObservedClaim, ObservedVolume, Phase},
    quantity,
    spec::Fingerprint,
};

/// What is on record of a leaf and the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    None,
    /// Its removal was begun by CreateVolume, before the host was told of it.
    Withdrawn,
    /// Seen with a host volume: never to be removed on the word of a stale caller.
    Used,
}

/// A leaf claim.
#[derive(Clone, Debug)]
pub struct ClaimRow {
    pub place: LeafPlace,
    pub uid: Box<str>,
    pub class: Box<str>,
    pub access: Box<[AccessMode]>,
    pub mode: VolumeMode,
    pub(super) mark: Mark,
    /// UIDs of the claims in whose place it was made anew; empty for nearly all.
    pub former: Box<str>,
    /// The claim of the host that it was made for; absent where nobody told.
    pub made_for: Option<ClaimDigest>,
    /// The place that its handle names, where it was made anew at another one.
    pub(super) alias: Option<Box<LeafPlace>>,
    pub(super) phase: Phase,
    pub(super) terminating: bool,
    /// When that began, in seconds; 0 where it did not.
    pub(super) deleted: i64,
    /// Where our finalizer stands among the others.
    pub finalizer: Option<usize>,
    /// It carries the label of a group of snapshots, which chooses it by that.
    pub(super) chosen: bool,
    /// When it was made, in seconds.
    pub(super) created: i64,
    pub(super) volume: Option<Box<str>>,
    pub(super) capacity: u64,
    /// Whether it says for which node it waits.
    pub(super) node_selected: bool,
    /// Of the request it was made for; absent where somebody removed or garbled it.
    pub(super) request: Option<Fingerprint>,
    pub life: Box<ClaimProgress>,
    pub(super) version: u64,
    /// The list that named it, or after which it was seen.
    pub(super) round: u32,
}

/// A leaf volume.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct VolumeRow {
    pub name: Box<str>,
    /// The claim it is bound to: namespace, name and UID.
    pub claim_place: LeafPlace,
    pub claim_uid: Box<str>,
    /// The member's storage driver and its own handle; empty for kinds that are not CSI.
    pub driver: Box<str>,
    pub handle: Box<str>,
    /// UIDs of the claims it belonged to before; empty for nearly all.
    pub former: Box<str>,
    /// The place that its handle names, where its claim was made anew at another one.
    pub(super) alias: Option<Box<LeafPlace>>,
    /// It keeps the description of a claim that was let go, or is to be made anew.
    pub healing: bool,
    /// It is retained because the host's volume is.
    pub follows: bool,
    /// It says that it is being removed.
    pub removal: bool,
    /// The one node that it can be used on; empty where there are several.
    pub node: Box<str>,
    pub(super) uid: Box<str>,
    pub(super) retained: bool,
    /// No provisioner of the member has made it.
    pub(super) by_hand: bool,
    pub(super) terminating: bool,
    pub(super) created: i64,
    pub(super) version: u64,
    pub(super) round: u32,
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
    /// Where a claim is there, the one bound to it.
    pub volume: Option<VolumeRow>,
    pub consumer: Consumer,
}

impl Row {
    pub fn is_empty(&self) -> bool {
        self.claim.is_none() && self.volume.is_none()
    }

    pub fn observed_volume(&self) -> Option<ObservedVolume> {
        self.volume.as_ref().map(VolumeRow::observed)
    }
}

impl ClaimRow {
    /// In bytes; 0 before it is bound.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    pub fn new(claim: &PersistentVolumeClaim) -> Self {
        let (spec, status) = (claim.spec.as_ref(), claim.status.as_ref());
        let annotation = |key: &str| claim.annotations().get(key);
        let modes = spec.and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
        Self {
            place: LeafPlace { namespace: claim.namespace().unwrap_or_default(), claim: claim.name_any() },
            uid: claim.uid().unwrap_or_default().into(),
            class: spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default().into(),
            access: modes.iter().filter_map(|mode| AccessMode::parse(mode)).collect(),
            mode: match spec.and_then(|spec| spec.volume_mode.as_deref()) {
                Some("Block") => VolumeMode::Block,
                _ => VolumeMode::Filesystem,
            },
            mark: match annotation(WITHDRAWN) {
                _ if annotation(HAD_VOLUME).is_some() => Mark::Used,
                // A copy says it of another.
                Some(uid) if claim.metadata.uid.as_ref() == Some(uid) => Mark::Withdrawn,
                _ => Mark::None,
            },
            former: annotation(FORMER).map(String::as_str).unwrap_or_default().into(),
            made_for: annotation(CLAIM).map(|claim| ClaimDigest::new(claim)),
            alias: alias_of(annotation(HANDLE)),
            phase: match status.and_then(|status| status.phase.as_deref()) {
                Some("Bound") => Phase::Bound,
                Some("Lost") => Phase::Lost,
                _ => Phase::Pending,
            },
            terminating: claim.metadata.deletion_timestamp.is_some(),
            deleted: claim.metadata.deletion_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default(),
            chosen: !groups_of(&claim.metadata).is_empty(),
            finalizer: claim.finalizers().iter().position(|finalizer| finalizer == FINALIZER),
            created: created(&claim.metadata),
            volume: spec.and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty()).map(Into::into),
            capacity: status
                .and_then(|status| status.capacity.as_ref()?.get("storage"))
                .and_then(|size| quantity::parse(&size.0))
                .unwrap_or_default(),
            node_selected: annotation(SELECTED_NODE).is_some(),
            request: request_of(claim).map(|request| request.fingerprint()),
            life: Box::new(ClaimProgress::new(claim)),
            version: version(claim),
            round: 0,
        }
    }

    pub fn had_volume(&self) -> bool {
        self.mark == Mark::Used
    }

    pub fn is_withdrawn(&self) -> bool {
        self.mark == Mark::Withdrawn
    }

    /// Why it cannot be used now, where it cannot.
    pub fn unusable(&self) -> Option<&'static str> {
        match self.phase {
            _ if self.terminating => Some("is being removed in the member"),
            Phase::Lost => Some("has lost its volume"),
            Phase::Pending => Some("is not bound to a volume"),
            Phase::Bound => None,
        }
    }

    /// Its volume is gone, which is more than not being bound.
    pub fn is_lost(&self) -> bool {
        self.phase == Phase::Lost
    }

    /// Whether it is the claim with this UID, or was made in its place.
    pub fn is_or_was(&self, uid: &str) -> bool {
        *self.uid == *uid || ownership::is_former(&self.former, uid)
    }

    /// Its UID, and those of the claims in whose place it stands.
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        let former = self.former.split(',').filter(|uid| !uid.is_empty());
        std::iter::once(&*self.uid).chain(former)
    }

    /// Whether the host was told of another claim with another volume. Where it was told of none that was bound, nobody
    /// can tell. One that was seen with the host's volume, or carries no finalizer of ours, was restored from a backup: people
    /// are told to do that.
    pub fn came_late(&self, told_uid: &str, told_volume: &str) -> bool {
        let is_another = !self.is_or_was(told_uid) && self.volume() != Some(told_volume);
        is_another && !told_volume.is_empty() && self.may_have_come_late()
    }

    pub fn may_have_come_late(&self) -> bool {
        self.finalizer.is_some() && !self.had_volume()
    }

    /// The place that its handle names.
    pub fn handle_place(&self) -> &LeafPlace {
        self.alias.as_deref().unwrap_or(&self.place)
    }

    /// Its handle, where that names another place.
    pub(super) fn handle(&self, member: &str, hash: VolumeHash) -> Option<String> {
        let named = self.alias.as_deref()?;
        Some(VolumeId::new(member, &named.namespace, &named.claim, hash).to_string())
    }

    /// The leaf volume it names.
    pub fn volume(&self) -> Option<&str> {
        self.volume.as_deref()
    }

    pub fn size(&self) -> Size {
        Size {
            phase: self.phase,
            terminating: self.terminating,
            capacity: self.capacity,
            requested: self.life.requested,
            growth: self.life.growth,
        }
    }

    /// As the member writes it.
    pub(super) fn version_text(&self) -> String {
        self.version.to_string()
    }

    pub fn observed(&self) -> ObservedClaim {
        ObservedClaim {
            uid: self.uid.to_string(),
            phase: self.phase,
            terminating: self.terminating,
            protected: self.finalizer.is_some(),
            volume: self.volume.as_deref().map(str::to_owned),
            capacity: self.capacity,
            node_selected: self.node_selected,
            requested: self.life.requested,
            request: self.request,
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
            former: volume.annotations().get(FORMER).map(String::as_str).unwrap_or_default().into(),
            alias: alias_of(volume.annotations().get(HANDLE)),
            healing: volume.annotations().contains_key(HEALING),
            follows: volume.annotations().contains_key(POLICY_BEFORE),
            removal: volume.labels().contains_key(REMOVAL),
            node: node_of_volume(volume).unwrap_or_default().into(),
            uid: volume.uid().unwrap_or_default().into(),
            retained: policy == Some("Retain"),
            by_hand: !volume.annotations().contains_key(PROVISIONED_BY),
            terminating: volume.metadata.deletion_timestamp.is_some(),
            created: created(&volume.metadata),
            version: version(volume),
            round: 0,
        }
    }
}

impl VolumeRow {
    /// Whether it is bound to the claim with this UID, or was before that was made anew.
    pub fn is_or_was_bound_to(&self, claim_uid: &str) -> bool {
        *self.claim_uid == *claim_uid || ownership::is_former(&self.former, claim_uid)
    }

    /// For whom it is, in words: its claimRef as people in the member have written it.
    pub fn named_claim(&self) -> String {
        if self.claim_uid.is_empty() { "no claim".to_owned() } else { format!("claim {}", self.claim_place) }
    }

    pub fn observed(&self) -> ObservedVolume {
        ObservedVolume {
            name: self.name.to_string(),
            uid: self.uid.to_string(),
            claim_uid: self.claim_uid.to_string(),
            retained: self.retained,
            by_hand: self.by_hand,
            healing: self.healing,
            removal: self.removal,
            version: self.version,
        }
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    pub fn is_retained(&self) -> bool {
        self.retained
    }

    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// The place that its handle names.
    pub fn handle_place(&self) -> &LeafPlace {
        self.alias.as_deref().unwrap_or(&self.claim_place)
    }
}

fn alias_of(handle: Option<&String>) -> Option<Box<LeafPlace>> {
    VolumeId::parse(handle?)?.place().map(Box::new)
}

fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default()
}

/// Versions of one object can be compared as numbers.
pub fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
