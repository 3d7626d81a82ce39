//! The volumes that a group of snapshots is of: of one member and one namespace, each with the claim that is cut.

use std::collections::BTreeSet;

use super::{Provisioner, find, snapshot::no_volume};
use domain::{
    error::{Error, Result},
    volume::{SnapshotSpec, VolumeHash, VolumeId},
};
use leaf::{MemberClient, row::ClaimRow, snapshot::kinds::VolumeSnapshot};

/// One of the volumes that a group is of.
pub(super) struct Volume {
    pub(super) handle: String,
    pub(super) hash: VolumeHash,
    pub(super) claim: ClaimRow,
    pub(super) driver: String,
}

/// A moment is one member's.
pub(super) fn one_member(spec: &SnapshotSpec) -> Result<String> {
    let mut members = BTreeSet::new();
    for handle in &spec.sources {
        members.insert(VolumeId::parse(handle).ok_or_else(|| no_volume(handle))?.member);
    }
    match members.len() {
        1 => members.pop_first().ok_or_else(|| Error::Invalid("source_volume_ids is empty".to_owned())),
        _ => Err(Error::Refused(format!(
            "the volumes of a group must be in one member, and these are in {}: make a group for each",
            members.into_iter().collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The claims of a group, each found and fit for it.
pub(super) async fn volumes_of(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    spec: &SnapshotSpec,
) -> Result<Vec<Volume>> {
    let mut volumes = Vec::new();
    for handle in &spec.sources {
        let found = find::find(provisioner, handle).await?;
        if found.imported {
            return Err(Error::Refused(format!(
                "member {}: claim {} was imported, so it carries no labels by which a group could select it",
                leaf.member, found.claim.place
            )));
        }
        let row = VolumeId::parse(handle).and_then(|id| leaf.rows.find(&id));
        let (hash, row) = row.ok_or_else(|| no_volume(handle))?;
        let driver = row.volume.map(|volume| volume.driver.to_string()).unwrap_or_default();
        volumes.push(Volume { handle: handle.clone(), hash, claim: found.claim, driver });
    }
    Ok(volumes)
}

pub(super) fn one_namespace<'a>(leaf: &MemberClient, volumes: &'a [Volume]) -> Result<&'a str> {
    let namespaces: BTreeSet<&str> = volumes.iter().map(|volume| volume.claim.place.namespace.as_str()).collect();
    let drivers: BTreeSet<&str> = volumes.iter().map(|volume| volume.driver.as_str()).collect();
    let list = |set: &BTreeSet<&str>| set.iter().copied().collect::<Vec<_>>().join(", ");
    if namespaces.len() > 1 {
        return Err(Error::Refused(format!(
            "member {}: the leaf claims of a group must be in one namespace, and these are in {}",
            leaf.member,
            list(&namespaces)
        )));
    }
    if drivers.len() > 1 || drivers.contains("") {
        return Err(Error::Refused(format!(
            "member {}: the volumes of a group must be of one CSI driver, and these are of {}",
            leaf.member,
            if drivers.contains("") { "none".to_owned() } else { list(&drivers) }
        )));
    }
    namespaces.first().copied().ok_or_else(|| Error::Invalid("source_volume_ids is empty".to_owned()))
}

/// The volume of each snapshot that the member has made for a group; of a claim that is none of its volumes', that claim's name.
pub(super) fn paired<'a>(
    parts: &'a [VolumeSnapshot],
    volumes: &'a [Volume],
) -> Result<Vec<(&'a VolumeSnapshot, &'a Volume)>, &'a str> {
    let pair = |part: &'a VolumeSnapshot| {
        let claim = part.spec.source.persistent_volume_claim_name.as_deref().unwrap_or_default();
        let volume = volumes.iter().find(|volume| volume.claim.place.claim == claim);
        volume.map(|volume| (part, volume)).ok_or(claim)
    };
    parts.iter().map(pair).collect()
}
