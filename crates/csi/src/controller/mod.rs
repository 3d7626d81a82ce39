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
use tonic::{Request, Response};

use super::{
    convert,
    inflight::InFlight,
    status::{Answer, answer},
    v1::{self, controller_server, controller_service_capability::rpc::Type},
};
use cluster::metrics::waiting::{Refusal, Waiting};
use domain::error::Result;
use driver::provision::Provisioner;

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
    pub waiting: Waiting,
}

pub(super) fn deadline<T>(request: &Request<T>) -> Instant {
    Instant::now() + convert::patience(request.metadata())
}

pub(super) fn required(field: &str, value: &str) -> Result<()> {
    if value.is_empty() { Err(convert::missing(field)) } else { Ok(()) }
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
        let claim = convert::claim_meant(request.get_ref());
        let asked = self.waiting.asks(&request.get_ref().name, claim.map(|claim| claim.to_string()));
        let answer = answer(volumes::create(&self, request).await);
        asked.answered(
            answer
                .as_ref()
                .err()
                .map(|status| Refusal { code: format!("{:?}", status.code()), message: status.message().to_owned() }),
        );
        answer
    }

    async fn delete_volume(&self, request: Request<v1::DeleteVolumeRequest>) -> Answer<v1::DeleteVolumeResponse> {
        answer(volumes::delete(&self, request).await)
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<v1::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<v1::ValidateVolumeCapabilitiesResponse> {
        answer(volumes::validate(&self, request.into_inner()).await)
    }

    async fn get_capacity(&self, request: Request<v1::GetCapacityRequest>) -> Answer<v1::GetCapacityResponse> {
        answer(capacity::capacity(&self, request.into_inner()).await)
    }

    async fn create_snapshot(&self, request: Request<v1::CreateSnapshotRequest>) -> Answer<v1::CreateSnapshotResponse> {
        answer(snapshots::snapshot(&self, request).await)
    }

    async fn delete_snapshot(&self, request: Request<v1::DeleteSnapshotRequest>) -> Answer<v1::DeleteSnapshotResponse> {
        answer(snapshots::delete_snapshot(&self, request).await)
    }

    async fn list_snapshots(&self, request: Request<v1::ListSnapshotsRequest>) -> Answer<v1::ListSnapshotsResponse> {
        answer(snapshots::snapshots(&self, request).await)
    }

    async fn get_snapshot(&self, request: Request<v1::GetSnapshotRequest>) -> Answer<v1::GetSnapshotResponse> {
        answer(snapshots::one(&self, request).await)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<v1::ControllerExpandVolumeRequest>,
    ) -> Answer<v1::ControllerExpandVolumeResponse> {
        answer(changes::expand(&self, request).await)
    }

    async fn controller_modify_volume(
        &self,
        request: Request<v1::ControllerModifyVolumeRequest>,
    ) -> Answer<v1::ControllerModifyVolumeResponse> {
        answer(changes::modify(&self, request).await)
    }

    async fn list_volumes(&self, request: Request<v1::ListVolumesRequest>) -> Answer<v1::ListVolumesResponse> {
        answer(listing::list(&self, &request.into_inner()))
    }

    async fn controller_get_volume(
        &self,
        request: Request<v1::ControllerGetVolumeRequest>,
    ) -> Answer<v1::ControllerGetVolumeResponse> {
        answer(listing::get(&self, &request.into_inner().volume_id).await)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<v1::ControllerListVolumeHealthRequest>,
    ) -> Answer<v1::ControllerListVolumeHealthResponse> {
        answer(listing::list_health(&self, &request.into_inner()))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<v1::ControllerGetVolumeHealthRequest>,
    ) -> Answer<v1::ControllerGetVolumeHealthResponse> {
        answer(listing::health(&self, &request.into_inner().volume_id).await)
    }

    async fn controller_publish_volume(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Answer<v1::ControllerPublishVolumeResponse> {
        answer(publish::publish(&self, request).await)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Answer<v1::ControllerUnpublishVolumeResponse> {
        answer(publish::unpublish(&self, request).await)
    }
}
