//! A removal as it was asked for, and whether that stands still.

use std::time::Duration;

use tokio::time::Instant;

use super::Provisioner;
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, VolumeId, healing::Wish, plan::Removal},
};
use leaf::{
    MemberClient,
    row::{ClaimRow, Row},
};

/// Whoever asks for a removal has just looked at the host, and is believed for so long.
const BELIEVED: Duration = Duration::from_secs(2);

/// A removal as it was asked for. People of the host may change their minds while it waits, and then nobody calls again.
pub(super) struct Order {
    pub(super) handle: String,
    asked: Instant,
    /// The host has, or had, a volume with this handle.
    given_out: bool,
}

impl Order {
    pub(super) fn of_volume(id: &VolumeId) -> Self {
        Self { handle: id.to_string(), asked: Instant::now(), given_out: true }
    }

    /// Of a leaf that the host was never given.
    pub(super) fn of_creation(id: &VolumeId) -> Self {
        Self { given_out: false, ..Self::of_volume(id) }
    }

    /// Once its volume is labelled, nobody can tell a leaf that was never given out from one that was. Should this removal be
    /// cut short and never be asked for again, its mark says so.
    pub(super) async fn mark(
        &self,
        leaf: &MemberClient,
        hash: VolumeHash,
        step: &Removal,
        claim: Option<&ClaimRow>,
    ) -> Result<()> {
        let takes_it = matches!(step, Removal::Label { .. } | Removal::MakeDeletable(_) | Removal::DeleteClaim);
        match claim.filter(|claim| claim.volume().is_some() && !claim.is_withdrawn() && claim.made_for.is_some()) {
            Some(claim) if takes_it && !self.given_out => {
                leaf::forgotten::mark_withdrawn(leaf, claim, hash, true).await
            }
            _ => Ok(()),
        }
    }

    /// Right before a step by which data may go: no volume of the host wants the leaf now. A leaf volume that is kept for the
    /// host may be so since the removal was asked for: there nobody is believed.
    pub(super) async fn still_stands(&self, provisioner: &Provisioner, step: &Removal, row: &Row) -> Result<()> {
        let is_kept = row.volume.as_ref().is_some_and(|volume| volume.follows || volume.healing || volume.removal);
        if self.asked.elapsed() < BELIEVED && !is_kept {
            return Ok(());
        }
        let volumes = host::volume::all_with(&provisioner.host, &self.handle).await?;
        if volumes.iter().any(|volume| volume.wish() != Wish::Nothing) {
            return Err(Error::InProgress(format!(
                "a volume of the host with handle {} is retained or in use again: its leaf is not removed",
                self.handle
            )));
        }
        let follows = row.volume.as_ref().is_some_and(|volume| volume.follows);
        if (self.given_out || follows) && volumes.is_empty() && matches!(step, Removal::MakeDeletable(_)) {
            return Err(Error::InProgress(format!(
                "the leaf volume of handle {} was made Retain, and no volume of the host says that it is to go: it is kept",
                self.handle
            )));
        }
        Ok(())
    }
}
