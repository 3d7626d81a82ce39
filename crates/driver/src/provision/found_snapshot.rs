//! A leaf snapshot that is there, and whether it is the one that was given out.

use domain::error::{Error, Result};
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
