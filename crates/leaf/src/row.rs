//! One row: what is known of a leaf claim, its volume and its consumer, as it is handed out. Pure.
//! `compact.rs` says how little of memory it takes meanwhile.

mod volume;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;

use super::{
    marks::{SELECTED_NODE, groups_of, request_of},
    ownership::{self, CLAIM, FINALIZER, FORMER, HAD_VOLUME, HANDLE, MOVE, WITHDRAWN},
    progress::ClaimProgress,
};
use domain::{
    error::{Error, Result},
    volume::{
        AccessMode, ClaimDigest, LeafName, LeafPlace, VolumeHash, VolumeId, VolumeMode,
        growth::Size,
        moving::{MoveMark, Part},
        plan::{ObservedClaim, ObservedVolume, Phase},
        quantity,
        spec::Fingerprint,
    },
};

pub use volume::{VolumeRow, place_told};

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
    /// UIDs of the claims in whose place it was recreated; empty for nearly all.
    pub former: Box<str>,
    /// The claim of the host that it was made for; absent where nobody told.
    pub made_for: Option<ClaimDigest>,
    /// What its handle names, where it was recreated at another place than that.
    pub(super) alias: Option<Box<Alias>>,
    /// The move that has it.
    pub moving: Option<Box<MoveMark>>,
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

/// What a handle names that is not the one of a leaf at this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Alias {
    Place(LeafPlace),
    /// The hash alone.
    Hash,
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

    /// A move has it, or has it still.
    pub fn is_moving(&self) -> bool {
        self.claim.as_ref().is_some_and(|claim| claim.moving.is_some()) || self.place_told().is_some()
    }

    /// Where its claim belongs, where its volume says that.
    pub fn place_told(&self) -> Option<&LeafPlace> {
        self.volume.as_ref()?.place.as_deref()
    }

    /// The handle that leads to it.
    pub fn id(&self, member: &str, hash: VolumeHash) -> Option<VolumeId> {
        let of_claim = self.claim.as_ref().map(|claim| claim.id(member, hash));
        of_claim.or_else(|| self.volume.as_ref().map(|volume| volume.id(member, hash)))
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
        let request = request_of(claim);
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
            alias: Alias::of(annotation(HANDLE)),
            moving: annotation(MOVE).and_then(|text| MoveMark::parse(text)).map(Box::new),
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
            life: Box::new(ClaimProgress::new(claim, request.as_ref())),
            request: request.map(|request| request.fingerprint()),
            version: version(claim),
            round: 0,
        }
    }

    /// When it was made, in seconds.
    pub fn created(&self) -> i64 {
        self.created
    }

    /// When its deletion was begun; 0 where it was not.
    pub fn deleted(&self) -> i64 {
        self.deleted
    }

    /// Whether a node was chosen for its first pod.
    pub fn is_node_selected(&self) -> bool {
        self.node_selected
    }

    pub fn had_volume(&self) -> bool {
        self.mark == Mark::Used
    }

    /// A volume of the host led to it, or a node of the host has it.
    pub fn was_had(&self) -> bool {
        self.had_volume() || !self.life.published.is_unpublished()
    }

    /// It was recreated for a volume, and has not got it.
    pub fn waits_as_recreated(&self) -> bool {
        let is_recreated = self.finalizer.is_some() && !self.former.is_empty();
        is_recreated && self.phase == Phase::Pending && self.volume().is_some()
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

    /// It is the second leaf of a volume, and not the one that a handle means.
    pub fn is_copy_of_a_move(&self) -> bool {
        self.moving.as_ref().is_some_and(|mark| mark.part == Part::Copy)
    }

    /// Nothing is done with it while a move has it.
    pub fn stands_still(&self, member: &str) -> Result<()> {
        match &self.moving {
            None => Ok(()),
            Some(mark) => Err(Error::InProgress(format!(
                "member {member}: leaf claim {} is being moved to another member by {}: wait until the move has ended, \
                 or delete it to call it off",
                self.place,
                mark.object()
            ))),
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
        self.is_another(told_uid, told_volume) && self.may_have_come_late()
    }

    /// Neither the claim that the host was told of, nor one in its place, nor with its volume.
    pub fn is_another(&self, told_uid: &str, told_volume: &str) -> bool {
        !told_volume.is_empty() && !self.is_or_was(told_uid) && self.volume() != Some(told_volume)
    }

    /// What people do about another one where a move has made this volume of the host: it may be of before.
    pub fn may_be_of_before_move(&self, member: &str, told_volume: &str, volume_uid: &str) -> String {
        let LeafPlace { namespace, claim } = &self.place;
        format!(
            "leaf claim {} of member {member} (UID {}) may be from before its volume was moved, for example because it \
             was restored from a backup: the host was given another leaf claim since, whose data is in leaf volume \
             {told_volume}. Restore that claim and its volume there under their names. Or, if this one has the data \
             that you want, type in the member: `kubectl annotate --overwrite -n {namespace} pvc {claim} \
             {HAD_VOLUME}={volume_uid}`",
            self.place, self.uid
        )
    }

    pub fn may_have_come_late(&self) -> bool {
        self.finalizer.is_some() && !self.had_volume()
    }

    /// The handle that leads to it.
    pub fn id(&self, member: &str, hash: VolumeHash) -> VolumeId {
        id_of(member, hash, self.alias.as_deref(), &self.place)
    }

    /// The same, where it is not that of a leaf at this place.
    pub(super) fn handle(&self, member: &str, hash: VolumeHash) -> Option<String> {
        self.alias.as_ref().map(|_| self.id(member, hash).to_string())
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

impl Alias {
    fn of(handle: Option<&String>) -> Option<Box<Self>> {
        let named = VolumeId::parse(handle?)?.place();
        Some(Box::new(named.map_or(Self::Hash, Self::Place)))
    }

    pub(crate) fn place(&self) -> Option<&LeafPlace> {
        match self {
            Self::Place(place) => Some(place),
            Self::Hash => None,
        }
    }
}

fn id_of(member: &str, hash: VolumeHash, alias: Option<&Alias>, place: &LeafPlace) -> VolumeId {
    let LeafPlace { namespace, claim } = match alias {
        Some(Alias::Hash) => return VolumeId { member: member.to_owned(), leaf: LeafName::Hashed(hash) },
        Some(Alias::Place(named)) => named,
        None => place,
    };
    VolumeId::new(member, namespace, claim, hash)
}

pub(crate) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map(|time| time.0.as_second()).unwrap_or_default()
}

/// Versions of one object can be compared as numbers.
pub fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or_default()
}
