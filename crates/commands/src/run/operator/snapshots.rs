//! What host and members have of snapshots and groups, each listed whole. A cluster without these kinds has none.

use kube::{
    Api, ResourceExt,
    api::{DynamicObject, ListParams},
};

use super::{
    objects::{lacks, resource, serves},
    whole::{whole, whole_of},
};
use host::Host;
use leaf::{
    MemberClient, ownership,
    snapshot::kinds::{VolumeSnapshot, VolumeSnapshotContent},
};
use operator::compare::HostSnapshots;

/// The host's records, and their kinds.
const RECORDS: [(&str, &str); 2] = [
    ("snapshot.storage.k8s.io/v1", "VolumeSnapshotContent"),
    ("groupsnapshot.storage.k8s.io/v1", "VolumeGroupSnapshotContent"),
];

pub(super) async fn of_host(host: &Host) -> HostSnapshots {
    let mut known = HostSnapshots::default();
    for (version, kind) in RECORDS {
        match records(host, version, kind).await {
            Ok(records) => {
                for record in records {
                    known.add(&record.name_any(), &record.data);
                }
            }
            Err(reason) => known.unread = Some(format!("{kind}: {reason}")),
        }
    }
    known
}

async fn records(host: &Host, version: &str, kind: &str) -> Result<Vec<DynamicObject>, String> {
    match whole::<DynamicObject>(Api::all_with(host.client.clone(), &resource(version, kind))).await {
        Err(_) if lacks(&host.client, version, kind).await => Ok(Vec::new()),
        told => told,
    }
}

/// Those with our labels.
pub(super) async fn of_member(leaf: &MemberClient) -> Result<Vec<VolumeSnapshot>, String> {
    let ours = ListParams::default().labels(&ownership::selector(&leaf.host));
    let mut all = Vec::new();
    for namespace in leaf.namespaces.each() {
        match whole_of(leaf.within(namespace), &ours).await {
            Ok(mut found) => all.append(&mut found),
            Err(reason) => return none_if_unserved(leaf, "VolumeSnapshot", reason).await,
        }
    }
    Ok(all)
}

/// What stands behind snapshots that have gone, where their class retains it.
pub(super) async fn outlived(
    leaf: &MemberClient,
    snapshots: &[VolumeSnapshot],
) -> Result<Vec<VolumeSnapshotContent>, String> {
    let ours = ListParams::default().labels(&ownership::selector(&leaf.host));
    let mut found = match whole_of::<VolumeSnapshotContent>(Api::all(leaf.client.clone()), &ours).await {
        Ok(found) => found,
        Err(reason) => return none_if_unserved(leaf, "VolumeSnapshotContent", reason).await,
    };
    found.retain(|content| {
        let of = &content.spec.volume_snapshot_ref;
        !snapshots.iter().any(|one| one.name_any() == of.name && one.namespace().as_ref() == Some(&of.namespace))
    });
    Ok(found)
}

/// Who is left out is not named, and nothing else follows from it.
async fn none_if_unserved<K>(leaf: &MemberClient, kind: &str, reason: String) -> Result<Vec<K>, String> {
    let served = serves(&leaf.client, "snapshot.storage.k8s.io/v1", kind).await;
    if matches!(served, Ok(false)) { Ok(Vec::new()) } else { Err(reason) }
}
