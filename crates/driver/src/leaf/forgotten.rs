//! Whether a leaf was ever given out to the host as a volume, by what it and its volume say.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;

use super::{
    Cluster,
    healing::Patient,
    ownership::{self, MadeFor},
    row::{self, ClaimRow, VolumeRow},
};
use crate::volume::{
    LeafBinding, Parameters, VolumeHash,
    plan::{ObservedVolume, Phase},
};

/// A leaf of which the host was never told.
#[derive(Debug)]
pub struct NeverGivenOut {
    pub claim: ClaimRow,
    pub made_for: MadeFor,
    /// The volume that the member made for it, where that would outlive it.
    pub retained: Option<ObservedVolume>,
}

impl ClaimRow {
    /// No note on it tells of a volume of the host's. Without our finalizer it is what a tool has made of a leaf.
    pub fn was_never_given_out(&self) -> bool {
        let unused = !self.had_volume && self.former.is_empty() && self.life.published.is_nowhere();
        unused && self.finalizer.is_some() && !self.is_lost()
    }
}

impl Patient {
    /// CreateVolume says that there is a volume only once that carries our labels. A leaf that need not be bound for it is
    /// bound by its first pod: of such a one nobody can tell any more.
    pub fn never_given_out(&self, leaf: &Cluster, hash: VolumeHash) -> Option<NeverGivenOut> {
        let claim = self.claim.as_ref()?;
        let (now, made_for) = (ClaimRow::new(claim), MadeFor::read(&claim.metadata)?);
        let ours = ownership::volume_of(&claim.metadata, &leaf.host) == Some(hash);
        if !ours || !now.was_never_given_out() {
            return None;
        }
        if now.observed().phase == Phase::Pending && now.volume().is_none() {
            return Some(NeverGivenOut { claim: now, made_for, retained: None });
        }
        let volume = self.volume.as_ref().filter(|volume| is_unlabelled(volume))?;
        if waits_to_be_bound(claim, &leaf.member) != Some(true) {
            return None;
        }
        let retained = Some(VolumeRow::new(volume).observed()).filter(|volume| volume.retained && !volume.by_hand);
        Some(NeverGivenOut { claim: now, made_for, retained })
    }
}

fn is_unlabelled(volume: &PersistentVolume) -> bool {
    !volume.labels().contains_key(ownership::VOLUME)
}

/// Whether CreateVolume of this leaf waits for its volume; nothing, where what was asked for cannot be read any more.
fn waits_to_be_bound(claim: &PersistentVolumeClaim, member: &str) -> Option<bool> {
    let parameters = Parameters::parse(&row::request_of(claim)?.parameters).ok()?;
    Some(parameters.leaf_binding.at(member).copied().unwrap_or_default() != LeafBinding::Deferred)
}
