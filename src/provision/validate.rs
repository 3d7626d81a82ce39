//! ValidateVolumeCapabilities: can this volume be used in these ways?

use super::Provisioner;
use crate::{
    error::{Error, Result},
    leaf::{ownership, row::ClaimRow},
    volume::{AccessMode, VolumeId, VolumeMode},
};

impl Provisioner {
    /// None where all ways are open; else why one is not.
    pub async fn obstacle(&self, id: &str, wanted: &[(AccessMode, VolumeMode)]) -> Result<Option<String>> {
        let claim = self.find(id).await?;
        Ok(wanted.iter().find_map(|(access, mode)| obstacle(&claim, *access, *mode)))
    }

    /// The leaf claim behind a handle, from memory where it is known.
    pub(super) async fn find(&self, text: &str) -> Result<ClaimRow> {
        let unknown = || Error::NotFound(format!("no volume has the handle {text:?}"));
        let id = VolumeId::parse(text).ok_or_else(unknown)?;
        let member = self.members.get(&id.member).await?;
        let leaf = member.leaf()?;
        if let Some(claim) = leaf.rows.find(&id).and_then(|(_, row)| row.claim) {
            return Ok(claim);
        }
        let place = id.place().ok_or_else(unknown)?;
        let found = leaf.read_claim(&place).await?.ok_or_else(unknown)?;
        let hash = ownership::volume_of(&found.metadata, &leaf.host).ok_or_else(unknown)?;
        if id.names(hash) { Ok(ClaimRow::new(&found)) } else { Err(unknown()) }
    }
}

fn obstacle(claim: &ClaimRow, access: AccessMode, mode: VolumeMode) -> Option<String> {
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
