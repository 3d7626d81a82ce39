//! Plays the node plugin of the members' storage driver on this machine: a volume is a folder, and using it is to bind it.
//! The driver's own node service calls it as it would call any other.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use kosmos_csi::{
    csi::{
        node::{blocking, volume_use},
        v1::{self, node_server, node_service_capability::rpc::Type},
    },
    error::{Error, Result},
    mount::{Linux, Machine},
    volume::backing::{AttachMode, Attached, Backing},
};
use simulate::storage::DIRECTORY;

pub(super) struct Leaf {
    pub(super) machine: Arc<Machine<Linux>>,
}

type Answer<T> = Result<Response<T>, Status>;

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
        let request = request.into_inner();
        let attached = attached(&request.volume_id, &request.volume_context)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        blocking(&self.machine, move |machine| machine.stage(&attached, request.staging_target_path.as_ref(), &way))
            .await?;
        Ok(Response::new(v1::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<v1::NodeUnstageVolumeRequest>,
    ) -> Answer<v1::NodeUnstageVolumeResponse> {
        let request = request.into_inner();
        let unstage =
            move |machine: &Machine<Linux>| machine.unstage(&request.volume_id, request.staging_target_path.as_ref());
        blocking(&self.machine, unstage).await?;
        Ok(Response::new(v1::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<v1::NodePublishVolumeRequest>,
    ) -> Answer<v1::NodePublishVolumeResponse> {
        let request = request.into_inner();
        let attached = attached(&request.volume_id, &request.volume_context)?;
        let way = volume_use(request.volume_capability.as_ref())?;
        let publish = move |machine: &Machine<Linux>| {
            let (staging, target) = (request.staging_target_path.as_ref(), request.target_path.as_ref());
            machine.publish(&attached, staging, target, &way, request.readonly)
        };
        blocking(&self.machine, publish).await?;
        Ok(Response::new(v1::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<v1::NodeUnpublishVolumeRequest>,
    ) -> Answer<v1::NodeUnpublishVolumeResponse> {
        let request = request.into_inner();
        let unpublish =
            move |machine: &Machine<Linux>| machine.unpublish(&request.volume_id, request.target_path.as_ref());
        blocking(&self.machine, unpublish).await?;
        Ok(Response::new(v1::NodeUnpublishVolumeResponse {}))
    }
}
