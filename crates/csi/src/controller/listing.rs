//! What there is, and how it is.

use tracing::Span;

use domain::error::Result;

use super::{
    Controller,
    convert::listing::{self, most},
    required,
};
use crate::v1::{self, controller_get_volume_response::VolumeStatus};

pub(super) fn list(controller: &Controller, request: &v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse> {
    let page =
        driver::provision::list::list(&controller.provisioner, most(request.max_entries)?, &request.starting_token)?;
    let entries = page.entries.into_iter().map(listing::entry).collect();
    Ok(v1::ListVolumesResponse { entries, next_token: page.next })
}

pub(super) async fn get(controller: &Controller, id: &str) -> Result<v1::ControllerGetVolumeResponse> {
    required("volume_id", id)?;
    Span::current().record("volume.id", id);
    let (volume, published_node_ids) =
        listing::volume(driver::provision::list::get(&controller.provisioner, id).await?);
    let status = Some(VolumeStatus { published_node_ids });
    Ok(v1::ControllerGetVolumeResponse { volume: Some(volume), status })
}

pub(super) fn list_health(
    controller: &Controller,
    request: &v1::ControllerListVolumeHealthRequest,
) -> Result<v1::ControllerListVolumeHealthResponse> {
    let page = driver::provision::health::list_ailing(
        &controller.provisioner,
        most(request.max_entries)?,
        &request.starting_token,
    )?;
    let entries = page.entries.into_iter().map(listing::health).collect();
    Ok(v1::ControllerListVolumeHealthResponse { entries, next_token: page.next })
}

pub(super) async fn health(controller: &Controller, id: &str) -> Result<v1::ControllerGetVolumeHealthResponse> {
    required("volume_id", id)?;
    Span::current().record("volume.id", id);
    let health = listing::health(driver::provision::health::health(&controller.provisioner, id).await?);
    Ok(v1::ControllerGetVolumeHealthResponse { volume_health: Some(health) })
}
