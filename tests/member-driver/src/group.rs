//! The group controller service: snapshots of several volumes at one moment.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::convert::{map, name, required, wire_group};
use crate::driver::Driver;
use crate::error::Error;
use crate::proto::csi;
use crate::proto::csi::group_controller_server::GroupController;
use crate::proto::csi::group_controller_service_capability::rpc::Type as RpcType;
use crate::proto::csi::group_controller_service_capability::{Rpc, Type};
use crate::rpc::answer;
use crate::snapshots;

type Reply<T> = Result<Response<T>, Status>;

#[derive(Debug)]
pub(crate) struct GroupControllerService(pub(crate) Arc<Driver>);

#[tonic::async_trait]
impl GroupController for GroupControllerService {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<csi::GroupControllerGetCapabilitiesRequest>,
    ) -> Reply<csi::GroupControllerGetCapabilitiesResponse> {
        let rpc = Rpc {
            r#type: RpcType::CreateDeleteGetVolumeGroupSnapshot.into(),
        };
        let capabilities = vec![csi::GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(rpc)),
        }];
        Ok(Response::new(csi::GroupControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<csi::CreateVolumeGroupSnapshotRequest>,
    ) -> Reply<csi::CreateVolumeGroupSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer(
            "CreateVolumeGroupSnapshot",
            request.name.clone(),
            async move {
                let name = name(request.name)?;
                if request.source_volume_ids.is_empty() {
                    return Err(Error::Invalid("source_volume_ids is missing".to_owned()));
                }
                let sources = request.source_volume_ids.into_iter().collect();
                let group =
                    snapshots::create_group(&driver, &name, sources, &map(request.parameters))
                        .await?;
                Ok(csi::CreateVolumeGroupSnapshotResponse {
                    group_snapshot: Some(wire_group(&driver, group)),
                })
            },
        )
        .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<csi::DeleteVolumeGroupSnapshotRequest>,
    ) -> Reply<csi::DeleteVolumeGroupSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer(
            "DeleteVolumeGroupSnapshot",
            request.group_snapshot_id.clone(),
            async move {
                let id = required(request.group_snapshot_id, "group_snapshot_id")?;
                snapshots::delete_group(&driver, &id, &request.snapshot_ids.into_iter().collect())?;
                Ok(csi::DeleteVolumeGroupSnapshotResponse {})
            },
        )
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        request: Request<csi::GetVolumeGroupSnapshotRequest>,
    ) -> Reply<csi::GetVolumeGroupSnapshotResponse> {
        let (driver, request) = (self.0.clone(), request.into_inner());
        answer(
            "GetVolumeGroupSnapshot",
            request.group_snapshot_id.clone(),
            async move {
                let group = driver
                    .groups
                    .get(&required(request.group_snapshot_id, "group_snapshot_id")?)?;
                snapshots::check_members(&group, &request.snapshot_ids.into_iter().collect())?;
                Ok(csi::GetVolumeGroupSnapshotResponse {
                    group_snapshot: Some(wire_group(&driver, group)),
                })
            },
        )
        .await
    }
}
