//! The node service: each call is parsed, done by the machine (`mount`) or by the leaf driver on this node, and answered.

mod convert;
mod leaf;
mod one_per_volume;
mod volumes;

pub use self::{convert::volume_use, volumes::blocking};

use std::{path::PathBuf, sync::Arc};

use tokio::time::Instant;
use tonic::{Request, Response};

use self::{leaf::Leaves, one_per_volume::OnePerVolume};
use super::v1::{self, node_server, node_service_capability::rpc::Type};
use crate::{
    convert::patience,
    status::{Answer, answer},
};
use domain::volume::{MEMBER_KEY, NodeId};
use mount::{Linux, Machine};

const CAPABILITIES: [Type; 7] = [
    Type::StageUnstageVolume,
    Type::GetVolumeStats,
    Type::ExpandVolume,
    Type::SingleNodeMultiWriter,
    Type::VolumeMountGroup,
    Type::GetVolumeHealth,
    Type::GetStorageHealth,
];

/// Volumes at work at once; each may keep a thread while its storage does not answer.
const WORKS: usize = 256;
/// Likewise those that are only looked at, so that looking at a dead one never keeps a living one from its pod.
const LOOKS: usize = 64;

/// What the host is told of this node.
#[derive(Clone, Debug)]
pub struct Info {
    /// The node's name in the host.
    pub name: String,
    /// The member whose volumes it can use.
    pub member: String,
    /// How many at once; 0 for any number.
    pub most: u32,
}

/// This machine, as a node of the host.
#[derive(Clone, Debug)]
pub struct Node {
    machine: Arc<Machine<Linux>>,
    leaves: Leaves,
    info: Info,
    works: OnePerVolume,
    looks: OnePerVolume,
}

impl Node {
    pub fn new(machine: Machine<Linux>, kubelet_dir: PathBuf, info: Info) -> Self {
        Self {
            machine: machine.into(),
            leaves: Leaves { kubelet_dir },
            info,
            works: OnePerVolume::new(WORKS),
            looks: OnePerVolume::new(LOOKS),
        }
    }

    /// Until no volume is worked on, also for callers that were answered before. What only looks may hang.
    pub async fn ended(&self) {
        self.works.ended().await;
    }
}

fn deadline<T>(request: &Request<T>) -> Instant {
    Instant::now() + patience(request.metadata())
}

#[tonic::async_trait]
impl node_server::Node for Node {
    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let capabilities = CAPABILITIES.map(Into::into).into();
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(&self, _: Request<v1::NodeGetInfoRequest>) -> Answer<v1::NodeGetInfoResponse> {
        let segments = [(MEMBER_KEY.to_owned(), self.info.member.clone())].into();
        Ok(Response::new(v1::NodeGetInfoResponse {
            node_id: NodeId::Real(self.info.name.clone()).to_string(),
            max_volumes_per_node: self.info.most.into(),
            accessible_topology: Some(v1::Topology { segments }),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        answer(self.stage(deadline(&request), request.into_inner()).await)
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        answer(self.unstage(deadline(&request), request.into_inner()).await)
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        answer(self.publish(deadline(&request), request.into_inner()).await)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        answer(self.unpublish(deadline(&request), request.into_inner()).await)
    }

    async fn node_expand_volume(
        &self,
        request: Request<v1::NodeExpandVolumeRequest>,
    ) -> Answer<v1::NodeExpandVolumeResponse> {
        answer(self.expand(deadline(&request), request.into_inner()).await)
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<v1::NodeGetVolumeStatsRequest>,
    ) -> Answer<v1::NodeGetVolumeStatsResponse> {
        answer(self.usage(deadline(&request), request.into_inner()).await)
    }

    async fn node_get_volume_health(
        &self,
        request: Request<v1::NodeGetVolumeHealthRequest>,
    ) -> Answer<v1::NodeGetVolumeHealthResponse> {
        answer(self.health(deadline(&request), request.into_inner()).await)
    }

    async fn node_get_storage_health(
        &self,
        _: Request<v1::NodeGetStorageHealthRequest>,
    ) -> Answer<v1::NodeGetStorageHealthResponse> {
        answer(self.storage_health().await)
    }
}
