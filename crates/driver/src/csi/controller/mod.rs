//! Controller: each RPC parses, calls its use-case and converts the answer. The files beside this one hold a group of
//! RPCs each; here stands what they have in common, and the whole service at a glance.

mod capacity;
mod changes;
mod listing;
mod publish;
mod snapshots;
mod volumes;

use std::sync::Arc;

use tokio::time::Instant;
use tonic::{Request, Response, Status};

use super::{
    convert,
    inflight::InFlight,
    v1::{self, controller_server, controller_service_capability::rpc::Type},
};
use crate::provision::Provisioner;

/// Fixed for the life of the process, whatever the members can do now: the sidecars ask once.
const CAPABILITIES: [Type; 16] = [
    Type::CloneVolume,
    Type::CreateDeleteSnapshot,
    Type::CreateDeleteVolume,
    Type::ExpandVolume,
    Type::GetCapacity,
    Type::GetSnapshot,
    Type::GetVolume,
    Type::GetVolumeHealth,
    Type::ListSnapshots,
    Type::ListVolumeHealth,
    Type::ListVolumes,
    Type::ListVolumesPublishedNodes,
    Type::ModifyVolume,
    Type::PublishReadonly,
    Type::PublishUnpublishVolume,
    Type::SingleNodeMultiWriter,
];

#[derive(Clone, Debug)]
pub struct Controller {
    pub provisioner: Arc<Provisioner>,
    pub in_flight: InFlight,
}

pub(super) type Answer<T> = Result<Response<T>, Status>;

pub(super) fn deadline<T>(request: &Request<T>) -> Instant {
    Instant::now() + convert::patience(request.metadata())
}

pub(super) fn required(field: &str, value: &str) -> Result<(), Status> {
    if value.is_empty() { Err(convert::missing(field).into()) } else { Ok(()) }
}

#[tonic::async_trait]
impl controller_server::Controller for Controller {
    async fn controller_get_capabilities(
        &self,
        _: Request<v1::ControllerGetCapabilitiesRequest>,
    ) -> Answer<v1::ControllerGetCapabilitiesResponse> {
        let capabilities = CAPABILITIES.map(Into::into).into();
        Ok(Response::new(v1::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(&self, request: Request<v1::CreateVolumeRequest>) -> Answer<v1::CreateVolumeResponse> {
        self.create(request).await.map(Response::new)
    }

    async fn delete_volume(&self, request: Request<v1::DeleteVolumeRequest>) -> Answer<v1::DeleteVolumeResponse> {
        self.delete(request).await.map(Response::new)
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<v1::ValidateVolumeCapabilitiesResponse> {
        self.validate(request.into_inner()).await.map(Response::new)
    }

    async fn get_capacity(&self, request: Request<v1::GetCapacityRequest>) -> Answer<v1::GetCapacityResponse> {
        self.capacity(request.into_inner()).await.map(Response::new)
    }

    async fn create_snapshot(&self, request: Request<v1::CreateSnapshotRequest>) -> Answer<v1::CreateSnapshotResponse> {
        self.snapshot(request).await.map(Response::new)
    }

    async fn delete_snapshot(&self, request: Request<v1::DeleteSnapshotRequest>) -> Answer<v1::DeleteSnapshotResponse> {
        self.unsnapshot(request).await.map(Response::new)
    }

    async fn list_snapshots(&self, request: Request<v1::ListSnapshotsRequest>) -> Answer<v1::ListSnapshotsResponse> {
        self.snapshots(request).await.map(Response::new)
    }

    async fn get_snapshot(&self, request: Request<v1::GetSnapshotRequest>) -> Answer<v1::GetSnapshotResponse> {
        self.one_snapshot(request).await.map(Response::new)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        self.expand(request).await.map(Response::new)
    }

    async fn controller_modify_volume(
        &self,
        request: Request<v1::ControllerModifyVolumeRequest>,
    ) -> Answer<v1::ControllerModifyVolumeResponse> {
        self.modify(request).await.map(Response::new)
    }

    async fn list_volumes(&self, request: Request<v1::ListVolumesRequest>) -> Answer<v1::ListVolumesResponse> {
        self.list(&request.into_inner()).map(Response::new)
    }

    async fn controller_get_volume(
        &self,
        request: Request<v1::ControllerGetVolumeRequest>,
    ) -> Answer<v1::ControllerGetVolumeResponse> {
        self.get(&request.into_inner().volume_id).await.map(Response::new)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<v1::ControllerListVolumeHealthRequest>,
    ) -> Answer<v1::ControllerListVolumeHealthResponse> {
        self.list_health(&request.into_inner()).map(Response::new)
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<v1::ControllerGetVolumeHealthRequest>,
    ) -> Answer<v1::ControllerGetVolumeHealthResponse> {
        self.health(&request.into_inner().volume_id).await.map(Response::new)
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Answer<v1::ControllerPublishVolumeResponse> {
        self.publish(request).await.map(Response::new)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v1::ControllerUnpublishVolumeResponse> {
        self.unpublish(request).await.map(Response::new)
    }
}
