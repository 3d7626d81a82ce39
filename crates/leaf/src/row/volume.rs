//! The row of a leaf volume.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;

use super::{Alias, created, id_of, version};
use crate::{
    capacity::node_of_volume,
    ownership::{self, FORMER, HANDLE, HEALING, PLACE, POLICY_BEFORE, PROVISIONED_BY, REMOVAL},
};
use domain::volume::{LeafPlace, VolumeHash, VolumeId, plan::ObservedVolume};

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
    /// What its handle names, where its claim was recreated at another place than that.
    pub(crate) alias: Option<Box<Alias>>,
    /// Where its claim belongs, while a move has it.
    pub place: Option<Box<LeafPlace>>,
    /// It keeps the description of a claim that was let go, or is to be recreated.
    pub healing: bool,
    /// It is retained because the host's volume is.
    pub follows: bool,
    /// It says that it is being removed.
    pub removal: bool,
    /// The one node that it can be used on; empty where there are several.
    pub node: Box<str>,
    pub(crate) uid: Box<str>,
    pub(crate) retained: bool,
    /// No provisioner of the member has made it.
    pub(crate) by_hand: bool,
    pub(crate) terminating: bool,
    pub(crate) created: i64,
    pub(crate) version: u64,
    pub(crate) round: u32,
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
            alias: Alias::of(volume.annotations().get(HANDLE)),
            place: place_told(volume).map(Box::new),
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

    /// Whether it is bound to the claim with this UID, or was before that was recreated.
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
            follows: self.follows,
            healing: self.healing,
            removal: self.removal,
            version: self.version,
        }
    }

    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// When it was made, in seconds.
    pub fn created(&self) -> i64 {
        self.created
    }

    pub fn is_retained(&self) -> bool {
        self.retained
    }

    pub fn is_terminating(&self) -> bool {
        self.terminating
    }

    /// The handle that leads to it.
    pub fn id(&self, member: &str, hash: VolumeHash) -> VolumeId {
        id_of(member, hash, self.alias.as_deref(), &self.claim_place)
    }
}

/// Where a volume says that its claim belongs.
pub fn place_told(volume: &PersistentVolume) -> Option<LeafPlace> {
    let (namespace, claim) = volume.annotations().get(PLACE)?.split_once('/')?;
    Some(LeafPlace { namespace: namespace.to_owned(), claim: claim.to_owned() })
}
