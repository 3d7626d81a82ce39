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
        "member {}: leaf snapshot {} is not what was given out as {what}: it was cut late, when that had been removed there, as its \
         content {content} has no label {label}. What was given out may be kept there, in a VolumeSnapshotContent with the label \
         {label}={}: then delete the late one in the member, and make it again from that one's snapshotHandle, with its name, labels \
         and annotations. Deleting the snapshot here removes both. Where somebody took the label off, put it back",
        leaf.member, row.place, row.hash
    ))
}
