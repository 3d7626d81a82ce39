//! Making and removing volumes, and whether one can be used in some way.

use std::sync::Arc;

use tonic::Request;
use tracing::Span;

use domain::{error::Result, volume::VolumeHash};

use super::{Controller, convert, deadline, required};
use crate::{
    by_handle::ByHandle,
    v1::{self, validate_volume_capabilities_response::Confirmed},
};

pub(super) async fn create(
    controller: &Controller,
    request: Request<v1::CreateVolumeRequest>,
) -> Result<v1::CreateVolumeResponse> {
    let deadline = deadline(&request);
    let request = request.into_inner();
    let (name, claim) = convert::volume_meant(&request)?;
    let span = Span::current();
    let of = claim.as_ref().map(|claim| format!("{}/{}", claim.namespace, claim.name));
    tracing::record_all!(span, volume.name = name, pvc = of);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("volume {name}"));
    let hash = VolumeHash::new(&provisioner.host.id, &name);
    let by_handle = ByHandle::of("volume", hash);
    let is_meant = |other: &str| other == key || by_handle.is(other);
    let work = |deadline| async move {
        match convert::volume_spec(request) {
            Ok(spec) => Box::pin(driver::provision::create::create(&provisioner, &spec, &deadline)).await,
            Err(invalid) => {
                let claim = claim.as_ref();
                Err(driver::provision::create::refused_at_sight(&provisioner, &name, claim, invalid, &deadline).await)
            }
        }
    };
    let volume = controller.in_flight.run_instead(&key, is_meant, deadline, work).await?;
    span.record("volume.id", volume.id.to_string());
    Ok(v1::CreateVolumeResponse { volume: Some(convert::volume(volume)) })
}

pub(super) async fn delete(
    controller: &Controller,
    request: Request<v1::DeleteVolumeRequest>,
) -> Result<v1::DeleteVolumeResponse> {
    let deadline = deadline(&request);
    let id = request.into_inner().volume_id;
    required("volume_id", &id)?;
    Span::current().record("volume.id", &id);
    let (provisioner, key) = (Arc::clone(&controller.provisioner), format!("volume {id}"));
    let work = |deadline| async move { driver::provision::delete::delete(&provisioner, &id, &deadline).await };
    controller.in_flight.run(&key, deadline, work).await?;
    Ok(v1::DeleteVolumeResponse {})
}

pub(super) async fn validate(
    controller: &Controller,
    request: v1::ValidateVolumeCapabilitiesRequest,
) -> Result<v1::ValidateVolumeCapabilitiesResponse> {
    required("volume_id", &request.volume_id)?;
    Span::current().record("volume.id", &request.volume_id);
    let uses = convert::uses(&request.volume_capabilities)?;
    let obstacle = driver::provision::validate::obstacle(&controller.provisioner, &request.volume_id, &uses).await?;
    let confirmed = obstacle.is_none().then_some(Confirmed {
        volume_context: request.volume_context,
        volume_capabilities: request.volume_capabilities,
        parameters: request.parameters,
        mutable_parameters: request.mutable_parameters,
    });
    let message = obstacle.unwrap_or_default();
    Ok(v1::ValidateVolumeCapabilitiesResponse { confirmed, message })
}
