//! Groups of snapshots that are there: how they are found, and what of them was given out.

use super::snapshot::Snapshot;
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId, snapshot::group_hash},
};
use leaf::{
    MemberClient,
    snapshot::{
        group::{Groups, LeafGroup},
        kinds::VolumeSnapshot,
        row::SnapshotRow,
    },
};

/// The leaf group behind a handle, and its hash.
pub(super) async fn find(groups: &Groups<'_>, id: &VolumeId) -> Result<Option<(VolumeHash, LeafGroup)>> {
    let Some(hash) = group_hash(id) else { return Ok(None) };
    let found = match id.place() {
        Some(place) => groups.read(&place, hash).await?.and_then(Result::ok),
        None => groups.find(hash).await?,
    };
    Ok(found.map(|group| (hash, group)))
}

/// The snapshots of a group that were marked, and so may have been given out: by the name of their member that the group was given out by.
pub(super) fn marked(
    leaf: &MemberClient,
    group: &VolumeId,
    parts: &[VolumeSnapshot],
    hash: VolumeHash,
) -> Vec<Snapshot> {
    let rows = marked_rows(leaf, parts, hash);
    let mut found: Vec<Snapshot> = rows.iter().map(|row| Snapshot::known_as(&group.member, leaf, row)).collect();
    found.sort_by_key(|snapshot| snapshot.id.to_string());
    found
}

pub(super) fn marked_rows(leaf: &MemberClient, parts: &[VolumeSnapshot], hash: VolumeHash) -> Vec<SnapshotRow> {
    let rows = parts.iter().filter_map(|part| leaf.snapshots.put(part));
    rows.filter(|row| row.group == Some(hash)).collect()
}
