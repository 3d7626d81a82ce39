//! Plays the node plugin of the members' storage driver on this machine: a volume is a folder, and using it is to bind it.
//! The driver's own node service calls it as it would call any other.

use std::sync::Arc;

use tonic::{Request, Response};

use csi::{
    node::{blocking, volume_use},
    status::{Answer, answer},
    v1::{self, node_server, node_service_capability::rpc::Type},
};
use domain::{
    error::{Error, Result},
    volume::backing::{AttachMode, Attached, Backing},
};
use mount::{Linux, Machine};
use simulate::storage::DIRECTORY;

pub(super) struct Leaf {
    pub(super) machine: Arc<Machine<Linux>>,
}

/// The same on both calls: what is staged must be what is published.
fn attached(volume: &str, context: &std::collections::HashMap<String, String>) -> Result<Attached> {
    let missing =
        || Error::Invalid(format!("volume_context {DIRECTORY} is missing: {volume} is no volume of this driver"));
    let path = context.get(DIRECTORY).ok_or_else(missing)?.clone();
    let (backing, options) = (Backing::Local { path }, Vec::new());
    Ok(Attached { volume: volume.to_owned(), mode: AttachMode::None, backing, options, readonly: false })
}

#[tonic::async_trait]
impl node_server::Node for Leaf {
    async fn node_get_capabilities(
        &self,
        _: Request<v1::NodeGetCapabilitiesRequest>,
    ) -> Answer<v1::NodeGetCapabilitiesResponse> {
        let capabilities = vec![Type::StageUnstageVolume.into(), Type::SingleNodeMultiWriter.into()];
        Ok(Response::new(v1::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<v1::NodeStageVolumeRequest>,
    ) -> Answer<v1::NodeStageVolumeResponse> {
        answer(self.stage(request.into_inner()).await)
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        answer(self.unstage(request.into_inner()).await)
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        answer(self.publish(request.into_inner()).await)
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        answer(self.unpublish(request.into_inner()).await)
    }
}

impl Leaf {
    async fn stage(&self, request: v1::NodeStageVolumeRequest) -> Result<v1::NodeStageVolumeResponse> {
        let attached = attached(&request.volume_id, &request.volume_context)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        blocking(&self.machine, move |machine| {
            mount::stage::stage(machine, &attached, request.staging_target_path.as_ref(), &way)
        })
        .await?;
        Ok(v1::NodeStageVolumeResponse {})
    }

    async fn unstage(&self, request: v1::NodeUnstageVolumeRequest) -> Result<v1::NodeUnstageVolumeResponse> {
        let unstage = move |machine: &Machine<Linux>| {
            mount::undo::unstage(machine, &request.volume_id, request.staging_target_path.as_ref())
        };
        blocking(&self.machine, unstage).await?;
        Ok(v1::NodeUnstageVolumeResponse {})
    }

    async fn publish(&self, request: v1::NodePublishVolumeRequest) -> Result<v1::NodePublishVolumeResponse> {
        let attached = attached(&request.volume_id, &request.volume_context)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        let publish = move |machine: &Machine<Linux>| {
            let (staging, target) = (request.staging_target_path.as_ref(), request.target_path.as_ref());
            mount::publish::publish(machine, &attached, staging, target, &way, request.readonly)
        };
        blocking(&self.machine, publish).await?;
        Ok(v1::NodePublishVolumeResponse {})
    }

    async fn unpublish(&self, request: v1::NodeUnpublishVolumeRequest) -> Result<v1::NodeUnpublishVolumeResponse> {
        let unpublish = move |machine: &Machine<Linux>| {
            mount::undo::unpublish(machine, &request.volume_id, request.target_path.as_ref())
        };
        blocking(&self.machine, unpublish).await?;
        Ok(v1::NodeUnpublishVolumeResponse {})
    }
}
