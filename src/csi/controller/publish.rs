//! Attaching, as far as the controller does it: which nodes may have a volume.

use std::collections::HashMap;

use tonic::Status;
use tracing::Span;

use super::{Controller, convert, required};
use crate::csi::v1;

/// How the volume gets to the node. Everybody can read it on the VolumeAttachment.
const ATTACH_MODE: (&str, &str) = ("attachMode", "none");

impl Controller {
    pub(super) async fn publish(
        &self,
        request: v1::ControllerPublishVolumeRequest,
    ) -> Result<v1::ControllerPublishVolumeResponse, Status> {
        let (volume, node) = (&request.volume_id, &request.node_id);
        required("volume_id", volume)?;
        required("node_id", node)?;
        Span::current().record("volume.id", volume);
        let way = convert::way(request.volume_capability.as_ref())?;
        // Nodes come and go independently of each other: the record on the leaf claim sees to their order.
        let _place = self.in_flight.enter(&format!("{volume} on {node}"))?;
        self.provisioner.publish(volume, node, way, request.readonly).await?;
        let publish_context = HashMap::from([(ATTACH_MODE.0.to_owned(), ATTACH_MODE.1.to_owned())]);
        Ok(v1::ControllerPublishVolumeResponse { publish_context })
    }

    pub(super) async fn unpublish(
        &self,
        request: v1::ControllerUnpublishVolumeRequest,
    ) -> Result<v1::ControllerUnpublishVolumeResponse, Status> {
        let (volume, node) = (&request.volume_id, &request.node_id);
        required("volume_id", volume)?;
        Span::current().record("volume.id", volume);
        let _place = self.in_flight.enter(&format!("{volume} on {node}"))?;
        self.provisioner.unpublish(volume, node).await?;
        Ok(v1::ControllerUnpublishVolumeResponse {})
    }
}
