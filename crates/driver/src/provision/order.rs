//! A removal as it was asked for, and whether that stands still.

use std::time::Duration;

use tokio::time::Instant;

use super::{Provisioner, find};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, VolumeId, plan::Removal},
};
use host::volume::{GivenOutDigest, HostVolume};
use leaf::{
    MemberClient,
    identity::is_leaf_of,
    ownership::MadeFor,
    row::{ClaimRow, Row},
};
use member::registry::{Snapshot, may_mean, serving};

/// Whoever asks for a removal has just looked at the host, and is believed for so long.
const BELIEVED: Duration = Duration::from_secs(2);

/// A removal as it was asked for. People of the host may change their minds while it waits, and then nobody calls again.
pub(super) struct Order {
    pub(super) handle: String,
    id: VolumeId,
    asked: Instant,
    /// The host has, or had, a volume with this handle.
    given_out: bool,
}

impl Order {
    pub(super) fn of_volume(id: &VolumeId, asked: Instant) -> Self {
        Self { handle: id.to_string(), id: id.clone(), asked, given_out: true }
    }

    /// Of a leaf that the host was never given.
    pub(super) fn of_creation(id: &VolumeId) -> Self {
        Self { given_out: false, ..Self::of_volume(id, Instant::now()) }
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

    /// One that comes into sight only while it is being taken back may have been used, whatever the host knows of that.
    pub(super) fn is_unused(&self, leaf: &MemberClient, claim: Option<&ClaimRow>) -> Result<()> {
        match claim.filter(|claim| !self.given_out && claim.was_had()) {
            None => Ok(()),
            Some(claim) => Err(Error::InProgress(format!(
                "member {}: leaf claim {} has had a volume of the host, so the driver does not remove it",
                leaf.member, claim.place
            ))),
        }
    }

    /// Whoever asked has looked at one volume of the host with the handle, and not at others, nor at the leaf: where a move has made that volume,
    /// another leaf than its own may be at the place. He has looked long before that where he, or this driver, has stood still since, and what is
    /// listed now says otherwise. One that was never given out has none.
    async fn is_to_be_looked_at(&self, provisioner: &Provisioner, row: &Row) -> Result<bool> {
        if !self.given_out {
            return Ok(false);
        }
        let there = provisioner.shared_handles.with(&provisioner.host, &self.id, self.asked).await?;
        Ok(there.shared || there.wanted || row.claim.as_ref().is_some_and(|claim| is_another(there.leaf, claim)))
    }

    /// Whether its leaf is or was there, or nothing is said of where that is.
    fn may_be_at(&self, row: &Row, place: Option<&LeafPlace>) -> bool {
        let of_claim = row.claim.as_ref().map(|claim| &claim.place);
        let of_volume = row.volume.as_ref().map(|volume| &volume.claim_place);
        place.is_none_or(|place| {
            [of_claim, of_volume].contains(&Some(place)) || self.id.place().is_some_and(|own| own == *place)
        })
    }

    /// Right before a step by which data may go: no volume of the host wants the leaf now. A leaf volume that is kept for the
    /// host may be so since the removal was asked for: there nobody is believed, nor where several volumes of the host have the handle, nor of
    /// another leaf than the one that was given out.
    pub(super) async fn still_stands(
        &self,
        provisioner: &Provisioner,
        leaf: &MemberClient,
        hash: VolumeHash,
        step: &Removal,
        row: &Row,
    ) -> Result<()> {
        let is_kept = row.volume.as_ref().is_some_and(|volume| volume.follows || volume.healing || volume.removal);
        let is_believed = || self.asked.elapsed() < BELIEVED && !is_kept;
        // To ask that may take longer than anybody is believed.
        if is_believed() && !self.is_to_be_looked_at(provisioner, row).await? && is_believed() {
            return Ok(());
        }
        let members = provisioner.members.all()?;
        // Under another name of its member, or by the hash alone, people write other handles for the same leaf.
        let leads_there = |id: &VolumeId| {
            let is_same = || may_mean(&members, &id.member, &leaf.member) && id.names(hash);
            *id == self.id || is_same() && self.may_be_at(row, id.place().as_ref())
        };
        let volumes = host::volume::all_leading(&provisioner.host, leads_there).await?;
        // One that somebody has deleted while its claim is there goes with that, and may be made `Retain` until then.
        if let Some(volume) = volumes.iter().find(|volume| !volume.is_to_be_reclaimed()) {
            let way_out = if volumes.len() > 1 {
                ". Another volume with that handle may go: give that other volume the policy Retain, and delete it by \
                 hand"
            } else {
                ""
            };
            return Err(Error::InProgress(format!(
                "PersistentVolume {} of the host, with handle {}{}, is retained or in use again, so the driver does \
                 not remove its leaf{way_out}",
                volume.name,
                volume.handle,
                doubt(&members, volume, leaf)
            )));
        }
        if let Some(claim) = row.claim.as_ref().filter(|_| self.given_out) {
            is_of_now(provisioner, leaf, (hash, claim), &self.handle, &volumes).await?;
        }
        if self.given_out && volumes.is_empty() && is_waited_for(provisioner, leaf, hash, row).await? {
            return Err(Error::InProgress(format!(
                "the host has no volume with handle {}, but the claim that the leaf was made for waits for its volume, \
                 so the driver does not remove the leaf",
                self.handle
            )));
        }
        let follows = row.volume.as_ref().is_some_and(|volume| volume.follows);
        if (self.given_out || follows) && volumes.is_empty() && matches!(step, Removal::MakeDeletable(_)) {
            return Err(Error::InProgress(format!(
                "the leaf volume of handle {} was made Retain, and no volume of the host says that it may go, so the \
                 driver keeps it",
                self.handle
            )));
        }
        Ok(())
    }
}

/// In words, where nobody can tell now that the name in its handle means this member.
fn doubt(members: &Snapshot, volume: &HostVolume, leaf: &MemberClient) -> String {
    let name = VolumeId::parse(&volume.handle).map(|id| id.member).unwrap_or_default();
    if serving(members, &name) == leaf.member {
        return String::new();
    }
    format!(" ({name} does not answer, or has left, and may be another name of member {})", leaf.member)
}

/// A host that was restored from a backup after it had asked for the removal has the claim, which will find its leaf again. What the leaf says
/// of it is believed only where it carries its volume's hash and that claim's volume has the same.
async fn is_waited_for(provisioner: &Provisioner, leaf: &MemberClient, hash: VolumeHash, row: &Row) -> Result<bool> {
    let Some(seen) = row.claim.as_ref().filter(|claim| claim.made_for.is_some()) else { return Ok(false) };
    let there = leaf::claim::read(leaf, &seen.place).await?;
    let there = there.filter(|claim| is_leaf_of(&claim.metadata, &leaf.host, hash));
    let made_for = there.and_then(|claim| MadeFor::read(&claim.metadata));
    let Some(made_for) = made_for.filter(|of| VolumeHash::new(&leaf.host, &of.volume) == hash) else {
        return Ok(false);
    };
    let claim = host::claim::read(&provisioner.host, &made_for.claim, &made_for.volume).await?;
    Ok(claim.is_some_and(|claim| claim.uid == made_for.uid && claim.volume.is_none()))
}

fn is_another(told: Option<GivenOutDigest>, claim: &ClaimRow) -> bool {
    told.is_some_and(|told| told.is_another(claim.uids(), claim.volume()))
}

/// A leaf of before its volume has moved away and back, as its member was restored, is a source that was to be kept, and may be all there
/// is. `volumes`: those of the host with the handle.
async fn is_of_now(
    provisioner: &Provisioner,
    leaf: &MemberClient,
    (hash, claim): (VolumeHash, &ClaimRow),
    handle: &str,
    volumes: &[HostVolume],
) -> Result<()> {
    let Some(volume) = volumes.iter().find(|volume| is_another(volume.leaf, claim)) else { return Ok(()) };
    let told = host::volume::read(&provisioner.host, &volume.name).await?.and_then(|live| live.given_out);
    match find::is_since_its_move(provisioner, leaf, (hash, claim), handle, told.as_ref()).await {
        Err(Error::Refused(why)) => Err(Error::Refused(format!(
            "{why}. The driver does not remove it before that. If it is to stay, give the host's volume the policy \
             Retain, and delete the host's volume by hand"
        ))),
        other => other,
    }
}
