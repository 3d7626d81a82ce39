//! The controller service. Each call is parsed, carried out elsewhere and converted back.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::attachment;
use crate::convert::{
    capability, map, name, page_size, range, required, wanted, wire_size, wire_snapshot, wire_volume,
};
use crate::driver::Driver;
use crate::error::Error;
use crate::health::{ailment, wire_health};
use crate::parameters::Kind;
use crate::proto::csi;
use crate::proto::csi::controller_server::Controller;
use crate::proto::csi::controller_service_capability::rpc::Type as RpcType;
use crate::proto::csi::controller_service_capability::{Rpc, Type};
use crate::provision;
use crate::questions::{confirm, room};
use crate::rpc::answer;
use crate::snapshots;
use crate::volume::{Snapshot, Volume};

type Reply<T> = Result<Response<T>, Status>;

#[derive(Debug)]
pub(crate) struct ControllerService(pub(crate) Arc<Driver>);

const CAPABILITIES: [RpcType; 13] = [
    RpcType::CreateDeleteVolume,
    RpcType::ListVolumes,
    RpcType::GetCapacity,
    RpcType::CreateDeleteSnapshot,
    RpcType::ListSnapshots,
    RpcType::CloneVolume,
    RpcType::ExpandVolume,
    RpcType::GetVolume,
    RpcType::SingleNodeMultiWriter,
    RpcType::ModifyVolume,
    RpcType::GetSnapshot,
    RpcType::GetVolumeHealth,
    RpcType::ListVolumeHealth,
];

const ATTACH_CAPABILITIES: [RpcType; 3] =
    [RpcType::PublishUnpublishVolume, RpcType::PublishReadonly, RpcType::ListVolumesPublishedNodes];

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Reply<csi::ControllerGetCapabilitiesResponse> {
        let attach = if self.0.attach { &ATTACH_CAPABILITIES[..] } else { &[] };
        let capability =
            |rpc: &RpcType| csi::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: (*rpc).into() })) };
        let capabilities = CAPABILITIES.iter().chain(attach).map(capability).collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(&self, request: Request<csi::CreateVolumeRequest>) -> Reply<csi::CreateVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("CreateVolume", request.name.clone(), async move {
            let volume = provision::create(&driver, wanted(request)?).await?;
            Ok(csi::CreateVolumeResponse { volume: Some(wire_volume(&driver, volume)) })
        })
        .await
    }

    async fn delete_volume(&self, request: Request<csi::DeleteVolumeRequest>) -> Reply<csi::DeleteVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("DeleteVolume", request.volume_id.clone(), async move {
            let id = required(request.volume_id, "volume_id")?;
            provision::delete(&driver, &id).await?;
            Ok(csi::DeleteVolumeResponse {})
        })
        .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Reply<csi::ControllerPublishVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerPublishVolume", request.volume_id.clone(), async move {
            check_attach(&driver)?;
            let id = required(request.volume_id, "volume_id")?;
            let node = required(request.node_id, "node_id")?;
            let capability = capability(request.volume_capability)?;
            attachment::attach(&driver, &id, &node, &capability, request.readonly)?;
            Ok(csi::ControllerPublishVolumeResponse::default())
        })
        .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Reply<csi::ControllerUnpublishVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerUnpublishVolume", request.volume_id.clone(), async move {
            check_attach(&driver)?;
            let id = required(request.volume_id, "volume_id")?;
            attachment::detach(&driver, &id, &request.node_id)?;
            Ok(csi::ControllerUnpublishVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<csi::ValidateVolumeCapabilitiesRequest>,
    ) -> Reply<csi::ValidateVolumeCapabilitiesResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ValidateVolumeCapabilities", request.volume_id.clone(), async move {
            let id = required(request.volume_id.clone(), "volume_id")?;
            if request.volume_capabilities.is_empty() {
                return Err(Error::Invalid("volume_capabilities is missing".to_owned()));
            }
            Ok(confirm(&driver.volumes.get(&id)?, request))
        })
        .await
    }

    async fn list_volumes(&self, request: Request<csi::ListVolumesRequest>) -> Reply<csi::ListVolumesResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ListVolumes", String::new(), async move {
            let page = driver.volumes.page(&request.starting_token, page_size(request.max_entries)?, |_| true)?;
            let entry = |volume: Volume| {
                let published_node_ids = volume.attached.keys().cloned().collect();
                csi::list_volumes_response::Entry {
                    volume: Some(wire_volume(&driver, volume)),
                    status: Some(csi::list_volumes_response::VolumeStatus { published_node_ids }),
                }
            };
            let entries = page.rows.into_iter().map(entry).collect();
            Ok(csi::ListVolumesResponse { entries, next_token: page.next })
        })
        .await
    }

    async fn controller_get_volume(
        &self,
        request: Request<csi::ControllerGetVolumeRequest>,
    ) -> Reply<csi::ControllerGetVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerGetVolume", request.volume_id.clone(), async move {
            let volume = driver.volumes.get(&required(request.volume_id, "volume_id")?)?;
            let published_node_ids = volume.attached.keys().cloned().collect();
            Ok(csi::ControllerGetVolumeResponse {
                volume: Some(wire_volume(&driver, volume)),
                status: Some(csi::controller_get_volume_response::VolumeStatus { published_node_ids }),
            })
        })
        .await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<csi::ControllerGetVolumeHealthRequest>,
    ) -> Reply<csi::ControllerGetVolumeHealthResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerGetVolumeHealth", request.volume_id.clone(), async move {
            let volume = driver.volumes.get(&required(request.volume_id, "volume_id")?)?;
            Ok(csi::ControllerGetVolumeHealthResponse { volume_health: Some(wire_health(&driver, &volume)) })
        })
        .await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<csi::ControllerListVolumeHealthRequest>,
    ) -> Reply<csi::ControllerListVolumeHealthResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerListVolumeHealth", String::new(), async move {
            let sick = |volume: &Volume| ailment(&driver, volume).is_some();
            let page = driver.volumes.page(&request.starting_token, page_size(request.max_entries)?, sick)?;
            let entries = page.rows.iter().map(|volume| wire_health(&driver, volume)).collect();
            Ok(csi::ControllerListVolumeHealthResponse { entries, next_token: page.next })
        })
        .await
    }

    async fn get_capacity(&self, request: Request<csi::GetCapacityRequest>) -> Reply<csi::GetCapacityResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("GetCapacity", String::new(), async move {
            let left = room(&driver, request)?;
            Ok(csi::GetCapacityResponse {
                available_capacity: wire_size(left),
                maximum_volume_size: Some(wire_size(left)),
                minimum_volume_size: None,
            })
        })
        .await
    }

    async fn create_snapshot(
        &self,
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Reply<csi::CreateSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("CreateSnapshot", request.name.clone(), async move {
            let (name, source) = (name(request.name)?, required(request.source_volume_id, "source_volume_id")?);
            let snapshot = snapshots::create(&driver, &name, &source, &map(request.parameters)).await?;
            Ok(csi::CreateSnapshotResponse { snapshot: Some(wire_snapshot(snapshot)) })
        })
        .await
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Reply<csi::DeleteSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("DeleteSnapshot", request.snapshot_id.clone(), async move {
            snapshots::delete(&driver, &required(request.snapshot_id, "snapshot_id")?)?;
            Ok(csi::DeleteSnapshotResponse {})
        })
        .await
    }

    async fn list_snapshots(&self, request: Request<csi::ListSnapshotsRequest>) -> Reply<csi::ListSnapshotsResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ListSnapshots", request.snapshot_id.clone(), async move {
            let (id, source) = (request.snapshot_id, request.source_volume_id);
            let wanted = |snapshot: &Snapshot| {
                (id.is_empty() || snapshot.id == id) && (source.is_empty() || snapshot.volume == source)
            };
            let page = driver.snapshots.page(&request.starting_token, page_size(request.max_entries)?, wanted)?;
            let entry = |snapshot| csi::list_snapshots_response::Entry { snapshot: Some(wire_snapshot(snapshot)) };
            let entries = page.rows.into_iter().map(entry).collect();
            Ok(csi::ListSnapshotsResponse { entries, next_token: page.next })
        })
        .await
    }

    async fn get_snapshot(&self, request: Request<csi::GetSnapshotRequest>) -> Reply<csi::GetSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("GetSnapshot", request.snapshot_id.clone(), async move {
            let snapshot = driver.snapshots.get(&required(request.snapshot_id, "snapshot_id")?)?;
            Ok(csi::GetSnapshotResponse { snapshot: Some(wire_snapshot(snapshot)) })
        })
        .await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Reply<csi::ControllerExpandVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerExpandVolume", request.volume_id.clone(), async move {
            let id = required(request.volume_id, "volume_id")?;
            if request.capacity_range.is_none() {
                return Err(Error::Invalid("capacity_range is missing".to_owned()));
            }
            let volume = provision::expand(&driver, &id, range(request.capacity_range)?)?;
            Ok(csi::ControllerExpandVolumeResponse {
                capacity_bytes: wire_size(volume.bytes),
                node_expansion_required: volume.kind == Kind::Loop,
            })
        })
        .await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Reply<csi::ControllerModifyVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("ControllerModifyVolume", request.volume_id.clone(), async move {
            let id = required(request.volume_id, "volume_id")?;
            provision::modify(&driver, &id, map(request.mutable_parameters))?;
            Ok(csi::ControllerModifyVolumeResponse {})
        })
        .await
    }
}

fn check_attach(driver: &Driver) -> Result<(), Error> {
    if driver.attach { Ok(()) } else { Err(Error::Unsupported("volumes of this driver are not attached".to_owned())) }
}
