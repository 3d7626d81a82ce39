//! A leaf snapshot that is there, and whether it is the one that was given out.

use domain::{
    error::{Error, Result},
    volume::{LeafPlace, snapshot::belongs},
};
use leaf::{
    MemberClient, ownership,
    snapshot::{Content, row::SnapshotRow},
};

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
