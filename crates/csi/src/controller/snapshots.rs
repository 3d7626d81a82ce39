//! Making, removing and listing snapshots.

use std::sync::Arc;

use tonic::Request;
use tracing::Span;

use domain::{error::Result, volume::VolumeHash};

use super::{Controller, convert, deadline, required};
use crate::{
    by_handle::ByHandle,
    v1::{self, list_snapshots_response::Entry},
};

pub(super) async fn snapshot(
    controller: &Controller,
    request: Request<v1::CreateSnapshotRequest>,
) -> Result<v1::CreateSnapshotResponse> {
    let deadline = deadline(&request);
    let spec = convert::snapshots::spec(request.into_inner())?;
    let span = Span::current();
    span.record("volume.name", &spec.name);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("snapshot {}", spec.name));
    let by_handle = ByHandle::of("snapshot", VolumeHash::of_snapshot(&provisioner.host.id, &spec.name));
    let is_meant = |other: &str| other == key || by_handle.is(other);
    let work = |deadline| async move { driver::provision::snapshot::snapshot(&provisioner, &spec, &deadline).await };
    let snapshot = controller.in_flight.run_instead(&key, is_meant, deadline, work).await?;
    span.record("volume.id", snapshot.id.to_string());
    Ok(v1::CreateSnapshotResponse { snapshot: Some(convert::snapshots::snapshot(snapshot)) })
}

pub(super) async fn delete_snapshot(
    controller: &Controller,
    request: Request<v1::DeleteSnapshotRequest>,
) -> Result<v1::DeleteSnapshotResponse> {
    let deadline = deadline(&request);
    let id = request.into_inner().snapshot_id;
    required("snapshot_id", &id)?;
    Span::current().record("volume.id", &id);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("snapshot {id}"));
    let work = |deadline| async move { driver::provision::delete_snapshot::delete(&provisioner, &id, &deadline).await };
    controller.in_flight.run(&key, deadline, work).await?;
    Ok(v1::DeleteSnapshotResponse {})
}

pub(super) async fn snapshots(
    controller: &Controller,
    request: Request<v1::ListSnapshotsRequest>,
) -> Result<v1::ListSnapshotsResponse> {
    let deadline = deadline(&request);
    let wanted = convert::snapshots::wanted(request.into_inner())?;
    let (found, next_token) = driver::provision::snapshots::list(&controller.provisioner, &wanted, deadline).await?;
    let entry = |snapshot| Entry { snapshot: Some(convert::snapshots::snapshot(snapshot)) };
    Ok(v1::ListSnapshotsResponse { entries: found.into_iter().map(entry).collect(), next_token })
}

pub(super) async fn one(
    controller: &Controller,
    request: Request<v1::GetSnapshotRequest>,
) -> Result<v1::GetSnapshotResponse> {
    let id = request.into_inner().snapshot_id;
    required("snapshot_id", &id)?;
    let snapshot = driver::provision::snapshots::get(&controller.provisioner, &id).await?;
    Ok(v1::GetSnapshotResponse { snapshot: Some(convert::snapshots::snapshot(snapshot)) })
}
