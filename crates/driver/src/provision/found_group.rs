//! Groups of snapshots that are there: how they are found, and what of them was given out.

use super::snapshot::Snapshot;
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, VolumeId, snapshot::group_hash},
};
use leaf::{
    MemberClient, ownership,
    snapshot::{
        group::{Groups, LeafGroup},
        kinds::VolumeSnapshot,
        row::SnapshotRow,
    },
};

/// The leaf group behind a handle, and its hash. One that is there and from which somebody has taken our labels is not called gone.
pub(super) async fn find(
    leaf: &MemberClient,
    groups: &Groups<'_>,
    id: &VolumeId,
) -> Result<Option<(VolumeHash, LeafGroup)>> {
    let Some(hash) = group_hash(id) else { return Ok(None) };
    let (found, without_labels) = match id.place() {
        Some(place) => match groups.read(&place, hash).await? {
            Some(Err(_)) => (None, Some(place)),
            found => (found.and_then(Result::ok), None),
        },
        None => match groups.find(hash).await? {
            None => (None, groups.stripped(hash).await?),
            found => (found, None),
        },
    };
    match without_labels {
        Some(place) => Err(stripped(leaf, &place, hash)),
        None => Ok(found.map(|group| (hash, group))),
    }
}

fn stripped(leaf: &MemberClient, place: &LeafPlace, hash: VolumeHash) -> Error {
    Error::Refused(format!(
        "member {}: group {place} has the name of one of the driver's, but not its labels: put back {},{}={hash}, or \
         delete it there",
        leaf.member,
        ownership::selector(&leaf.host),
        ownership::GROUP
    ))
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
