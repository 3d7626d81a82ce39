//! What there is, and how it is.

use tracing::Span;

use domain::error::Result;

use super::{
    Controller,
    convert::listing::{self, most},
    required,
};
use crate::v1::{self, controller_get_volume_response::VolumeStatus};

impl Controller {
    pub(super) fn list(&self, request: &v1::ListVolumesRequest) -> Result<v1::ListVolumesResponse> {
        let page = self.provisioner.list(most(request.max_entries)?, &request.starting_token)?;
        let entries = page.entries.into_iter().map(listing::entry).collect();
        Ok(v1::ListVolumesResponse { entries, next_token: page.next })
    }

    pub(super) async fn get(&self, id: &str) -> Result<v1::ControllerGetVolumeResponse> {
        required("volume_id", id)?;
        Span::current().record("volume.id", id);
        let (volume, published_node_ids) = listing::volume(self.provisioner.get(id).await?);
        let status = Some(VolumeStatus { published_node_ids });
        Ok(v1::ControllerGetVolumeResponse { volume: Some(volume), status })
    }

    pub(super) fn list_health(
        &self,
        request: &v1::ControllerListVolumeHealthRequest,
    ) -> Result<v1::ControllerListVolumeHealthResponse> {
        let page = self.provisioner.list_ailing(most(request.max_entries)?, &request.starting_token)?;
        let entries = page.entries.into_iter().map(listing::health).collect();
        Ok(v1::ControllerListVolumeHealthResponse { entries, next_token: page.next })
    }

    pub(super) async fn health(&self, id: &str) -> Result<v1::ControllerGetVolumeHealthResponse> {
        required("volume_id", id)?;
        Span::current().record("volume.id", id);
        let health = listing::health(self.provisioner.health(id).await?);
        Ok(v1::ControllerGetVolumeHealthResponse { volume_health: Some(health) })
    }
}
