//! Attaching, as far as the controller does it: which nodes may have a volume, and what they have to know of it.

use std::sync::Arc;

use tokio::time::Instant;
use tonic::Request;
use tracing::Span;

use super::{Controller, convert, deadline, required};
use crate::v1;
use domain::error::Result;
use driver::provision::{Deadline, Publishing};

pub(super) async fn publish(
    controller: &Controller,
    request: Request<v1::ControllerPublishVolumeRequest>,
) -> Result<v1::ControllerPublishVolumeResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    required("volume_id", &request.volume_id)?;
    required("node_id", &request.node_id)?;
    Span::current().record("volume.id", &request.volume_id);
    let (access, mode) = convert::changes::volume_use(request.volume_capability.as_ref())?;
    let wanted = Publishing {
        volume: request.volume_id,
        node: request.node_id,
        access,
        mode,
        readonly: request.readonly,
        context: request.volume_context.into_iter().collect(),
    };
    let (provisioner, volume, node) = (Arc::clone(&controller.provisioner), wanted.volume.clone(), wanted.node.clone());
    let work = |deadline| async move { driver::provision::publish::publish(&provisioner, &wanted, &deadline).await };
    let context = on_node(controller, &volume, &node, deadline, work).await?;
    Ok(v1::ControllerPublishVolumeResponse { publish_context: context.into_iter().collect() })
}

pub(super) async fn unpublish(
    controller: &Controller,
    request: Request<v1::ControllerUnpublishVolumeRequest>,
) -> Result<v1::ControllerUnpublishVolumeResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    required("volume_id", &request.volume_id)?;
    Span::current().record("volume.id", &request.volume_id);
    let (provisioner, volume, node) = (Arc::clone(&controller.provisioner), &request.volume_id, &request.node_id);
    let (id, from) = (volume.clone(), node.clone());
    let work = |deadline| async move {
        Box::pin(driver::provision::publish::unpublish(&provisioner, &id, &from, &deadline)).await
    };
    on_node(controller, volume, node, deadline, work).await?;
    Ok(v1::ControllerUnpublishVolumeResponse {})
}

/// Nodes come and go independently of each other: the record on the leaf claim sees to their order. No node is all of them, so
/// what goes on for one of these would undo what is asked for now, and the other way round.
async fn on_node<T, F>(
    controller: &Controller,
    volume: &str,
    node: &str,
    answer_by: Instant,
    work: impl FnOnce(Deadline) -> F,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (key, on_all) = (format!("volume {volume} on node {node}"), format!("volume {volume} on node "));
    let is_meant = |other: &str| other == key || other == on_all || node.is_empty() && other.starts_with(&on_all);
    controller.in_flight.run_instead(&key, is_meant, answer_by, work).await
}
