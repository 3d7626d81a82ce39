//! Claims of a leaf that came late: what they were made for has another claim by now, or is over.

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt;

use crate::{ownership, row::ClaimRow, saved::policy_of};
use domain::{
    error::{Error, Result},
    volume::plan::Phase,
};

#[derive(Clone, Debug)]
pub struct Stray {
    pub(super) claim: PersistentVolumeClaim,
    /// The one that is bound to it.
    pub(super) volume: Option<PersistentVolume>,
}

impl Stray {
    /// What goes with it: a volume that was provisioned for it. One that was there before is somebody's data, as of a source that is kept.
    pub(super) fn takes_along(&self, member: &str) -> Result<Option<PersistentVolume>> {
        let made = |metadata: &ObjectMeta| metadata.creation_timestamp.as_ref().map(|made| made.0);
        let is_new = |volume: &PersistentVolume| {
            let is_kept = volume.labels().contains_key(ownership::MOVED) || ownership::was_found(&volume.metadata);
            made(&volume.metadata) >= made(&self.claim.metadata) && !is_kept
        };
        match &self.volume {
            Some(volume) if is_new(volume) => Ok(Some(volume.clone())),
            Some(volume) if policy_of(volume) != "Retain" => Err(Error::Refused(format!(
                "member {member}: claim {}/{} came late, and is bound to volume {}, which was there before it and would go with \
                 it: give that volume the policy Retain there",
                self.claim.namespace().unwrap_or_default(),
                self.claim.name_any(),
                volume.name_any()
            ))),
            _ => Ok(None),
        }
    }
}

/// It was recreated for this volume, and is not bound.
pub(super) fn waits_for(claim: &PersistentVolumeClaim, volume: &str) -> bool {
    let row = ClaimRow::new(claim);
    let is_recreated = row.finalizer.is_some() && !row.former.is_empty();
    is_recreated && row.observed().phase == Phase::Pending && row.volume() == Some(volume)
}
