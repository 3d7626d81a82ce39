//! ValidateVolumeCapabilities: can this volume be used in these ways?

use super::{Provisioner, find};
use domain::{
    error::Result,
    volume::{AccessMode, VolumeMode},
};
use leaf::row::ClaimRow;

/// None where all ways are open; else why one is not.
pub async fn obstacle(
    provisioner: &Provisioner,
    id: &str,
    wanted: &[(AccessMode, VolumeMode)],
) -> Result<Option<String>> {
    let found = find::find(provisioner, id).await?;
    if let (true, Some(reason)) = (found.imported, found.claim.unusable()) {
        tracing::info!(volume = %found.hash, handle = %found.id, reason, "an imported volume cannot be used");
        return Ok(Some(format!("member {}: leaf claim {} {reason}", found.member.name, found.claim.place)));
    }
    Ok(wanted.iter().find_map(|(access, mode)| refused_use(&found.claim, *access, *mode)))
}

pub(super) fn refused_use(claim: &ClaimRow, access: AccessMode, mode: VolumeMode) -> Option<String> {
    // What the volume was asked for its class has seen to, also where the leaf claim itself is of another kind.
    if claim.life.asked.as_ref().is_some_and(|(asked, as_mode)| *as_mode == mode && asked.contains(&access)) {
        return None;
    }
    if claim.mode != mode {
        let is = if claim.mode.is_block() { "a block device" } else { "a filesystem" };
        return Some(format!("the volume is {is}"));
    }
    // What several nodes may write, one node or one pod may write as well.
    let allowed = claim.access.iter().any(|mode| *mode == access || *mode == AccessMode::ReadWriteMany);
    (!allowed).then(|| {
        let modes: Vec<&str> = claim.access.iter().map(|mode| mode.as_str()).collect();
        format!("the volume's access modes are {}, not {}", modes.join(", "), access.as_str())
    })
}
