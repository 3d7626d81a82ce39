//! GroupController: snapshots of several volumes at one moment.

use std::sync::Arc;

use tonic::{Request, Response};
use tracing::Span;

use domain::{error::Result, volume::VolumeHash};

use super::{
    by_handle::ByHandle,
    controller::{Controller, deadline, required},
    convert::snapshots as convert,
    status::{Answer, answer},
    v1::{self, group_controller_server, group_controller_service_capability as capability},
};

#[tonic::async_trait]
impl group_controller_server::GroupController for Controller {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<v1::GroupControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::GroupControllerGetCapabilitiesResponse> {
        let kind = capability::rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into();
        let rpc = capability::Type::Rpc(capability::Rpc { r#type: kind });
        let capabilities = vec![v1::GroupControllerServiceCapability { r#type: Some(rpc) }];
        Ok(Response::new(v1::GroupControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<v1::CreateVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::CreateVolumeGroupSnapshotResponse> {
        answer(group(&self, request).await)
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<v1::DeleteVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::DeleteVolumeGroupSnapshotResponse> {
        answer(delete_group(&self, request).await)
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<v1::GetVolumeGroupSnapshotRequest>,
    ) -> Answer<v1::GetVolumeGroupSnapshotResponse> {
        answer(one_group(&self, request.into_inner()).await)
    }
}

async fn group(
    controller: &Controller,
    request: Request<v1::CreateVolumeGroupSnapshotRequest>,
) -> Result<v1::CreateVolumeGroupSnapshotResponse> {
    let deadline = deadline(&request);
    let spec = convert::group_spec(request.into_inner())?;
    Span::current().record("volume.name", &spec.name);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("group {}", spec.name));
    let by_handle = ByHandle::of("group", VolumeHash::of_group(&provisioner.host.id, &spec.name));
    let is_meant = |other: &str| other == key || by_handle.is(other);
    let work = |deadline| async move { driver::provision::group::group(&provisioner, &spec, &deadline).await };
    let group = controller.in_flight.run_instead(&key, is_meant, deadline, work).await?;
    Span::current().record("volume.id", group.id.to_string());
    Ok(v1::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(convert::group(group)) })
}

async fn delete_group(
    controller: &Controller,
    request: Request<v1::DeleteVolumeGroupSnapshotRequest>,
) -> Result<v1::DeleteVolumeGroupSnapshotResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    let id = request.group_snapshot_id;
    required("group_snapshot_id", &id)?;
    Span::current().record("volume.id", &id);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("group {id}"));
    let work = |deadline| async move {
        driver::provision::delete_group::delete(&provisioner, &id, &request.snapshot_ids, &deadline).await
    };
    controller.in_flight.run(&key, deadline, work).await?;
    Ok(v1::DeleteVolumeGroupSnapshotResponse {})
}

async fn one_group(
    controller: &Controller,
    request: v1::GetVolumeGroupSnapshotRequest,
) -> Result<v1::GetVolumeGroupSnapshotResponse> {
    required("group_snapshot_id", &request.group_snapshot_id)?;
    let group =
        driver::provision::group::get(&controller.provisioner, &request.group_snapshot_id, &request.snapshot_ids)
            .await?;
    Ok(v1::GetVolumeGroupSnapshotResponse { group_snapshot: Some(convert::group(group)) })
}
