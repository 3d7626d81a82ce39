//! What a removal has seen of its leaf: that and nothing else is removed, and is to be proved gone.

use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        plan::{self, Removal},
    },
};
use host::volume::GivenOut;
use leaf::{
    MemberClient,
    identity::{Identity, Meant, is_leaf_of, judge, labels_of},
    ownership,
    row::{ClaimRow, Row, VolumeRow},
    volume::Labelled,
};

/// What was last seen of a leaf, for the read that proves it gone.
#[derive(Default)]
pub(super) struct LastSeen {
    /// UIDs of the claim, and of those in whose place it was recreated.
    claims: Vec<String>,
    /// Name, and UID where it carried our labels.
    pub(super) volume: Option<(String, Option<String>)>,
    /// UID of the claim that it was bound to.
    bound_to: String,
    /// The volume that the claim names is not bound to it, not there, or another's and stays: it is none of ours.
    pub(super) no_volume: bool,
    /// The volume was made by people and is theirs again.
    pub(super) handed_back: bool,
}

impl LastSeen {
    /// What is seen first is what is removed: when it has gone, a copy may come into view. What was recreated in its place
    /// belongs to it.
    pub(super) fn note(&mut self, row: &Row) {
        if let Some(claim) = &row.claim {
            let uids = std::iter::once(&*claim.uid).chain(claim.former.split(',').filter(|uid| !uid.is_empty()));
            let new: Vec<String> = uids.filter(|uid| !self.is_mine(uid)).map(str::to_owned).collect();
            self.claims.extend(new);
        }
        if self.volume.is_none()
            && let Some(volume) = row.observed_volume()
        {
            self.volume = Some((volume.name, Some(volume.uid)));
            self.bound_to = volume.claim_uid;
        }
    }

    /// Its volume, where people of the member have given it to a claim of theirs since, or have taken off which one it is bound to. One that
    /// they have made is theirs anyhow, and one that goes or moves is looked after elsewhere.
    pub(super) fn taken<'a>(&self, row: &'a Row) -> Option<&'a VolumeRow> {
        let (Some((_, Some(uid))), Some(volume)) = (&self.volume, &row.volume) else { return None };
        let is_its_own = || self.claims.iter().chain([&self.bound_to]).any(|mine| volume.is_or_was_bound_to(mine));
        let is_left = volume.observed().by_hand || volume.is_terminating() || volume.place.is_some();
        (volume.uid() == uid && !is_left && !is_its_own()).then_some(volume)
    }

    /// Its volume, where it is its own by no more than that it says that it was bound to one of its claims, and is bound to one that was not
    /// seen: to a leaf claim that was recreated, or to one of people.
    pub(super) fn given_since<'a>(&self, row: &'a Row) -> Option<&'a VolumeRow> {
        let volume = row.volume.as_ref().filter(|volume| !volume.claim_uid.is_empty())?;
        let is_seen = *volume.claim_uid == *self.bound_to || self.is_mine(&volume.claim_uid);
        (!is_seen).then_some(volume)
    }

    fn is_mine(&self, claim_uid: &str) -> bool {
        self.claims.iter().any(|mine| mine == claim_uid)
    }

    pub(super) fn only_mine(&self, mut row: Row) -> Row {
        if !self.claims.is_empty() {
            row.claim.take_if(|claim| !self.claims.iter().any(|mine| claim.is_or_was(mine)));
            row.volume.take_if(|volume| !self.claims.iter().any(|mine| volume.is_or_was_bound_to(mine)));
        }
        let other_volume = |uid: &str| matches!(&self.volume, Some((_, Some(mine))) if mine != uid);
        row.volume.take_if(|volume| other_volume(volume.uid()));
        row
    }

    /// Makes the volume ours by sight, so that its end is seen.
    pub(super) async fn label(
        &mut self,
        leaf: &MemberClient,
        volume: &str,
        hash: VolumeHash,
        claim_uid: &str,
    ) -> Result<()> {
        match leaf::volume::label(leaf, volume, hash, claim_uid).await {
            Ok(Labelled::Ours(_)) => return Ok(()),
            Ok(Labelled::Others { volume, owner }) if !volume.is_retained() => {
                return Err(would_take_along(leaf, &volume, &owner));
            }
            Ok(Labelled::Others { .. }) => {}
            Err(refused @ (Error::NotFound(_) | Error::Refused(_))) => {
                let there = leaf::volume::read(leaf, volume).await?;
                if there.is_some_and(|volume| *volume.claim_uid == *claim_uid) {
                    return Err(refused.while_a_leaf_may_exist());
                }
            }
            Err(error) => return Err(error),
        }
        self.no_volume = true;
        Ok(())
    }

    /// Its volume is not known at this place any more, but at another one, where its claim is recreated.
    pub(super) fn is_elsewhere(&self, leaf: &MemberClient, hash: VolumeHash, place: &LeafPlace) -> bool {
        let Some((_, Some(uid))) = &self.volume else { return false };
        let is_it = |row: Row| row.volume.is_some_and(|volume| volume.uid() == uid);
        !is_it(leaf.rows.row_at(hash, place)) && leaf.rows.row(hash).is_some_and(is_it)
    }

    /// One read: of the volume where there was one, which outlives its claim, else of the claim.
    pub(super) async fn is_gone(&self, leaf: &MemberClient, hash: VolumeHash, place: &LeafPlace) -> Result<bool> {
        if let Some((name, uid)) = self.volume.as_ref().filter(|_| !self.handed_back) {
            return leaf::volume::is_gone(leaf, name, uid.as_deref()).await;
        }
        let Some(found) = leaf::claim::read(leaf, place).await? else { return Ok(true) };
        match self.claims.as_slice() {
            [_, ..] => Ok(!self.claims.iter().any(|mine| ownership::is_or_was(&found.metadata, mine))),
            [] => match judge(&found.metadata, &leaf.host, Meant::Volume(hash)) {
                Identity::Stripped => {
                    Err(stripped(leaf, place, &labels_of(&found.metadata, &leaf.host, Meant::Volume(hash))))
                }
                // Seen only now: the next look removes it.
                identity => Ok(!matches!(identity, Identity::Leaf(_))),
            },
        }
    }
}

pub(super) fn decide(row: &Row, no_volume: bool) -> Removal {
    let mut claim = row.claim.as_ref().map(ClaimRow::observed);
    if let (true, Some(claim)) = (no_volume, &mut claim) {
        claim.volume = None;
    }
    plan::removal(claim.as_ref(), row.observed_volume().as_ref())
}

/// The member goes by the claimRef: what names no claim it never removes, and what names another claim is that one's.
pub(super) fn astray(leaf: &MemberClient, volume: &VolumeRow, given_out: Option<&GivenOut>) -> Error {
    let uid = given_out.map(|given_out| format!(" (UID {})", given_out.claim_uid)).unwrap_or_default();
    let named = volume.named_claim();
    let why = format!(
        "names {named} in its claimRef, and not its leaf claim{uid}: the driver leaves it untouched. Have its claimRef \
         name the leaf claim again if its data is to go"
    );
    left_untouched(leaf, volume, &why)
}

/// Nothing is done with a volume that is bound to somebody's claim, whatever it says of before.
pub(super) async fn is_nobody_elses(leaf: &MemberClient, hash: VolumeHash, volume: &VolumeRow) -> Result<()> {
    let Some(holder) = leaf::claim::read(leaf, &volume.claim_place).await? else { return Ok(()) };
    let has_it = holder.metadata.uid.as_deref() == Some(&*volume.claim_uid);
    if has_it && !is_leaf_of(&holder.metadata, &leaf.host, hash) { Err(astray(leaf, volume, None)) } else { Ok(()) }
}

/// Only a person can say what is to become of it.
pub(super) fn left_untouched(leaf: &MemberClient, volume: &VolumeRow, why: &str) -> Error {
    Error::Refused(format!(
        "member {}: leaf volume {} {why}; if it is to stay, give the host's volume the policy Retain, and delete the \
         host's volume by hand",
        leaf.member, volume.name
    ))
}

/// The member removes what goes with its claim, whosever it is.
fn would_take_along(leaf: &MemberClient, volume: &VolumeRow, owner: &str) -> Error {
    Error::InProgress(format!(
        "member {}: leaf claim {} is bound to volume {}, which belongs to {owner} and would go with the claim: give that volume the \
         policy Retain there first",
        leaf.member, volume.claim_place, volume.name
    ))
}

/// Somebody has written the handle of another host's leaf, with all that stands beside it, into a volume of this one.
pub(super) fn of_another_host(leaf: &MemberClient, place: &LeafPlace, whose: &str) -> Error {
    Error::Refused(format!(
        "member {}: the handle leads to claim {place}, and {whose}: the driver removes nothing. Give this volume the \
         policy Retain, and then delete it here by hand",
        leaf.member
    ))
}

pub(super) fn stripped(leaf: &MemberClient, place: &LeafPlace, labels: &str) -> Error {
    Error::Refused(format!(
        "member {}: claim {place} is the leaf of a volume and its labels were removed: put back {labels}, or delete it \
         there",
        leaf.member
    ))
}
