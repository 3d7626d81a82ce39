//! A leaf snapshot that is there, and whether it is the one that was given out.

use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash, VolumeId,
        snapshot::{belongs, leaf_name},
    },
};
use leaf::{
    MemberClient, ownership,
    snapshot::{Content, row::SnapshotRow},
};

/// Where the leaf snapshot is or would be, if the handle of its volume says so, or else the leaf claim of that, where it is seen.
pub(super) fn beside(leaf: &MemberClient, hash: VolumeHash, volume: &str) -> Option<LeafPlace> {
    let volume = VolumeId::parse(volume)?;
    let of_claim = || leaf.rows.find(&volume)?.1.claim.map(|claim| claim.place);
    volume.place().or_else(of_claim).map(|place| LeafPlace { claim: leaf_name(hash), ..place })
}

/// It is bound to no content that was there before it, as what a backup tool has made is.
pub(super) fn is_cut(row: &SnapshotRow) -> bool {
    row.content.as_deref().is_none_or(|content| *content == *Content::name_of(None, &row.uid))
}

/// The leaf snapshot behind a handle, as far as it is known. Where neither that nor the handle of its volume says a namespace, one that is not
/// beside the leaf claim is a copy, unless it was cut itself: the leaf claim may have been there.
pub(super) fn behind(leaf: &MemberClient, id: &VolumeId) -> Result<Option<SnapshotRow>> {
    let Some(row) = leaf.snapshots.find(id) else { return Ok(None) };
    if id.place().is_some() || row.group.is_some() {
        return Ok(Some(row));
    }
    let place = beside(leaf, row.hash, &row.source);
    if let Some(own) = place.as_ref().and_then(|place| leaf.snapshots.row_at(row.hash, place)) {
        return Ok(Some(own));
    }
    is_told_from_copies(leaf, &row)?;
    Ok(Some(row).filter(|row| place.is_none() || row.content.is_some() && is_cut(row)))
}

/// A driver that has just begun does not know yet where the leaf claim is, which may be all that tells a leaf snapshot from a copy.
pub(super) fn is_told_from_copies(leaf: &MemberClient, row: &SnapshotRow) -> Result<()> {
    let is_known = row.content.is_some() && is_cut(row) || beside(leaf, row.hash, &row.source).is_some();
    if is_known || row.group.is_some() || leaf.rows.synced() {
        return Ok(());
    }
    Err(Error::InProgress(format!(
        "member {}: its claims are not listed yet, by which leaf snapshot {} is told from a copy",
        leaf.member, row.place
    )))
}

/// What is given out is marked first. One that came late, when that had gone, has its name and is of another moment; what was
/// restored under our name is bound to a content that was there before it.
pub(super) async fn was_given_out(leaf: &MemberClient, row: &SnapshotRow, what: &str) -> Result<()> {
    let own = Content::name_of(None, &row.uid);
    if row.is_marked() || row.group.is_some() || row.content.as_deref() != Some(&*own) {
        return Ok(());
    }
    match leaf::snapshot::read_content(leaf, &own).await?.filter(|content| content.snapshot_uid == *row.uid) {
        Some(content) if !content.marked => Err(came_late(leaf, row, what, &own)),
        Some(_) => {
            leaf.snapshots.mark(row.hash, &row.uid);
            Ok(())
        }
        None => Ok(()),
    }
}

/// A volume that is used again may have its leaf in another namespace than its handle names. A snapshot there could not be told
/// from a copy, so none is made: it would never be given out, nor be found to be removed.
pub(super) fn is_where_its_handle_says(leaf: &MemberClient, handle: &str, claim: &LeafPlace) -> Result<()> {
    if belongs(handle, &claim.namespace) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "member {}: the leaf claim of volume {handle} is {claim} now, in another namespace than the one in which the \
         volume was made, so it cannot have snapshots: clone it (a claim whose dataSource is its claim), and take \
         snapshots of the clone",
        leaf.member
    )))
}

fn came_late(leaf: &MemberClient, row: &SnapshotRow, what: &str, content: &str) -> Error {
    let label = ownership::SNAPSHOT;
    Error::Refused(format!(
        "member {}: leaf snapshot {} is not what was given out as {what}: its content {content} has no label {label}, \
         so it was taken later, after the first one had been removed there. The first one may be kept there, in a \
         VolumeSnapshotContent with the label {label}={}. If so, delete the later one in the member, and make it again \
         from the first one's snapshotHandle, with the same name, labels and annotations. Deleting the snapshot here \
         removes both. If somebody took the label off, put it back",
        leaf.member, row.place, row.hash
    ))
}
