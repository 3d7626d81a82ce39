//! Attaching, as far as the controller does it: which nodes may have a volume, and what they have to know of it.

use std::sync::Arc;

use tonic::{Request, Status};
use tracing::Span;

use super::{Controller, convert, deadline, required};
use crate::{csi::v1, provision::Publishing};

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
        let (access, mode) = convert::changes::way(request.volume_capability.as_ref())?;
        let wanted = Publishing {
            volume: request.volume_id,
            node: request.node_id,
            access,
            mode,
            readonly: request.readonly,
            context: request.volume_context.into_iter().collect(),
        };
        let (provisioner, key) = (Arc::clone(&self.provisioner), key(&wanted.volume, &wanted.node));
        let work = |deadline| async move { provisioner.publish(&wanted, &deadline).await };
        let context = self.in_flight.run(&key, deadline, work).await?;
        Ok(v1::ControllerPublishVolumeResponse { publish_context: context.into_iter().collect() })
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
        let work =
            |deadline| async move { provisioner.unpublish(&request.volume_id, &request.node_id, &deadline).await };
        self.in_flight.run(&key, deadline, work).await?;
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}

/// Nodes come and go independently of each other: the record on the leaf claim sees to their order.
fn key(volume: &str, node: &str) -> String {
    format!("volume {volume} on node {node}")
}
