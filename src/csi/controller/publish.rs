//! Attaching, as far as the controller does it: which nodes may have a volume.

use std::sync::Arc;

use tonic::{Request, Status};
use tracing::Span;

use super::{Controller, convert, deadline, required};
use crate::{csi::v1, volume::backing};

impl Controller {
    pub(super) async fn publish(
        &self,
        request: Request<v1::ControllerPublishVolumeRequest>,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        required("node_id", &request.node_id)?;
        Span::current().record("volume.id", &request.volume_id);
        let way = convert::changes::way(request.volume_capability.as_ref())?;
        let (provisioner, key) = (Arc::clone(&self.provisioner), key(&request.volume_id, &request.node_id));
        let work =
            |_| async move { provisioner.publish(&request.volume_id, &request.node_id, way, request.readonly).await };
        self.in_flight.run(&key, deadline, work).await?;
        let publish_context = backing::context_of_virtual_node().into_iter().collect();
        Ok(v1::ControllerPublishVolumeResponse { publish_context })
    }

    pub(super) async fn unpublish(
        &self,
        request: Request<v1::ControllerUnpublishVolumeRequest>,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        let deadline = deadline(&request);
        let request = request.into_inner();
        required("volume_id", &request.volume_id)?;
        Span::current().record("volume.id", &request.volume_id);
        let (provisioner, key) = (Arc::clone(&self.provisioner), key(&request.volume_id, &request.node_id));
        let work = |_| async move { provisioner.unpublish(&request.volume_id, &request.node_id).await };
        self.in_flight.run(&key, deadline, work).await?;
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}

/// Nodes come and go independently of each other: the record on the leaf claim sees to their order.
fn key(volume: &str, node: &str) -> String {
    format!("volume {volume} on node {node}")
}
