//! The node service. Each call is parsed, carried out elsewhere and converted back.

use std::path::Path;
use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::convert::{capability, place, required, required_path, wire_size};
use crate::driver::Driver;
use crate::health::{wire_health, wire_storage};
use crate::proto::csi;
use crate::proto::csi::node_server::Node;
use crate::proto::csi::node_service_capability::rpc::Type as RpcType;
use crate::proto::csi::node_service_capability::{Rpc, Type};
use crate::proto::csi::volume_usage::Unit;
use crate::publishing::{self, Amounts};
use crate::rpc::answer;
use crate::staging;
use crate::volume::Publication;

type Reply<T> = Result<Response<T>, Status>;

#[derive(Debug)]
pub(crate) struct NodeService(pub(crate) Arc<Driver>);

const CAPABILITIES: [RpcType; 6] = [
    RpcType::StageUnstageVolume,
    RpcType::GetVolumeStats,
    RpcType::ExpandVolume,
    RpcType::SingleNodeMultiWriter,
    RpcType::GetVolumeHealth,
    RpcType::GetStorageHealth,
];

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Reply<csi::NodeGetCapabilitiesResponse> {
        let capability =
            |rpc: RpcType| csi::NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) };
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities: CAPABILITIES.map(capability).into() }))
    }

    async fn node_get_info(&self, _: Request<csi::NodeGetInfoRequest>) -> Reply<csi::NodeGetInfoResponse> {
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: self.0.node.clone(),
            max_volumes_per_node: self.0.max_volumes.into(),
            accessible_topology: Some(place(&self.0)),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<csi::NodeStageVolumeRequest>,
    ) -> Reply<csi::NodeStageVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeStageVolume", request.volume_id.clone(), async move {
            driver.faults.held("NodeStageVolume").await;
            let id = required(request.volume_id, "volume_id")?;
            let path = required_path(request.staging_target_path, "staging_target_path")?;
            driver.volumes.get(&id)?.opens_with(&request.secrets.into_iter().collect())?;
            staging::stage(&driver, &id, path, capability(request.volume_capability)?).await?;
            Ok(csi::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<csi::NodeUnstageVolumeRequest>,
    ) -> Reply<csi::NodeUnstageVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeUnstageVolume", request.volume_id.clone(), async move {
            driver.faults.held("NodeUnstageVolume").await;
            let id = required(request.volume_id, "volume_id")?;
            let path = required_path(request.staging_target_path, "staging_target_path")?;
            staging::unstage(&driver, &id, &path).await?;
            Ok(csi::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<csi::NodePublishVolumeRequest>,
    ) -> Reply<csi::NodePublishVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodePublishVolume", request.volume_id.clone(), async move {
            driver.faults.held("NodePublishVolume").await;
            let id = required(request.volume_id, "volume_id")?;
            let target = required_path(request.target_path, "target_path")?;
            driver.volumes.get(&id)?.opens_with(&request.secrets.into_iter().collect())?;
            let capability = capability(request.volume_capability)?;
            let read_only = request.readonly || capability.mode.reads_only();
            let publication = Publication { capability, read_only };
            publishing::publish(&driver, &id, Path::new(&request.staging_target_path), target, publication).await?;
            Ok(csi::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<csi::NodeUnpublishVolumeRequest>,
    ) -> Reply<csi::NodeUnpublishVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeUnpublishVolume", request.volume_id.clone(), async move {
            driver.faults.held("NodeUnpublishVolume").await;
            let id = required(request.volume_id, "volume_id")?;
            let target = required_path(request.target_path, "target_path")?;
            publishing::unpublish(&driver, &id, &target).await?;
            Ok(csi::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<csi::NodeGetVolumeStatsRequest>,
    ) -> Reply<csi::NodeGetVolumeStatsResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeGetVolumeStats", request.volume_id.clone(), async move {
            let id = required(request.volume_id, "volume_id")?;
            let path = required_path(request.volume_path, "volume_path")?;
            let usage = publishing::usage(&driver, &id, &path).await?;
            let inodes = usage.inodes.map(|inodes| volume_usage(Unit::Inodes, &inodes));
            let bytes = volume_usage(Unit::Bytes, &usage.bytes);
            Ok(csi::NodeGetVolumeStatsResponse { usage: std::iter::once(bytes).chain(inodes).collect() })
        })
        .await
    }

    async fn node_get_volume_health(
        &self,
        request: Request<csi::NodeGetVolumeHealthRequest>,
    ) -> Reply<csi::NodeGetVolumeHealthResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeGetVolumeHealth", request.volume_id.clone(), async move {
            let volume = driver.volumes.get(&required(request.volume_id, "volume_id")?)?;
            Ok(csi::NodeGetVolumeHealthResponse { volume_health: Some(wire_health(&driver, &volume)) })
        })
        .await
    }

    async fn node_get_storage_health(
        &self,
        _: Request<csi::NodeGetStorageHealthRequest>,
    ) -> Reply<csi::NodeGetStorageHealthResponse> {
        let driver = self.0.clone();
        answer("NodeGetStorageHealth", String::new(), async move {
            Ok(csi::NodeGetStorageHealthResponse { backend_health: wire_storage(&driver) })
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<csi::NodeExpandVolumeRequest>,
    ) -> Reply<csi::NodeExpandVolumeResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer("NodeExpandVolume", request.volume_id.clone(), async move {
            driver.faults.held("NodeExpandVolume").await;
            let id = required(request.volume_id, "volume_id")?;
            let path = required_path(request.volume_path, "volume_path")?;
            let bytes = publishing::expand(&driver, &id, &path).await?;
            Ok(csi::NodeExpandVolumeResponse { capacity_bytes: wire_size(bytes) })
        })
        .await
    }
}

fn volume_usage(unit: Unit, amounts: &Amounts) -> csi::VolumeUsage {
    csi::VolumeUsage {
        unit: unit.into(),
        total: wire_size(amounts.total),
        available: wire_size(amounts.available),
        used: wire_size(amounts.used),
    }
}
