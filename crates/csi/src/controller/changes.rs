//! Volumes that change while they live: larger ones, and ones with other attributes.

use std::sync::Arc;

use tonic::Request;
use tracing::Span;

use domain::error::Result;

use super::{Controller, convert, deadline, required};
use crate::v1;

pub(super) async fn expand(
    controller: &Controller,
    request: Request<v1::ControllerExpandVolumeRequest>,
) -> Result<v1::ControllerExpandVolumeResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    required("volume_id", &request.volume_id)?;
    Span::current().record("volume.id", &request.volume_id);
    let (least, most) = convert::changes::new_size(request.capacity_range.as_ref())?;
    let (provisioner, id) = (Arc::clone(&controller.provisioner), request.volume_id);
    let key = format!("volume {id}");
    let work =
        |deadline| async move { driver::provision::expand::expand(&provisioner, &id, least, most, &deadline).await };
    let grown = controller.in_flight.run(&key, deadline, work).await?;
    let capacity_bytes = i64::try_from(grown.capacity).unwrap_or(i64::MAX);
    Ok(v1::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: grown.on_node })
}

pub(super) async fn modify(
    controller: &Controller,
    request: Request<v1::ControllerModifyVolumeRequest>,
) -> Result<v1::ControllerModifyVolumeResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    required("volume_id", &request.volume_id)?;
    Span::current().record("volume.id", &request.volume_id);
    let attributes = convert::changes::attributes(request.mutable_parameters)?;
    let (provisioner, id) = (Arc::clone(&controller.provisioner), request.volume_id);
    let key = format!("volume {id}");
    let work =
        |deadline| async move { driver::provision::modify::modify(&provisioner, &id, &attributes, &deadline).await };
    controller.in_flight.run(&key, deadline, work).await?;
    Ok(v1::ControllerModifyVolumeResponse {})
}
