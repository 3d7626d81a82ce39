//! Making and removing volumes, and whether one can be used in some way.

use std::sync::Arc;

use tonic::Request;
use tracing::Span;

use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId},
};

use super::{Controller, convert, deadline, required};
use crate::v1::{self, validate_volume_capabilities_response::Confirmed};

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
    let by_handle = ByHandle::of(hash);
    let is_meant = |other: &str| other == key || by_handle.is(other);
    let work = |deadline| async move {
        match convert::volume_spec(request) {
            Ok(spec) => Box::pin(driver::provision::create::create(&provisioner, &spec, &deadline)).await,
            Err(invalid) => {
                Err(driver::provision::create::refused_at_sight(&provisioner, &name, claim.as_ref(), invalid).await)
            }
        }
    };
    let volume = controller.in_flight.run_instead(&key, is_meant, deadline, work).await?;
    span.record("volume.id", volume.id.to_string());
    Ok(v1::CreateVolumeResponse { volume: Some(convert::volume(volume)) })
}

/// Work on the same volume, as a removal that was asked for before the host was restored from a backup: it would take the leaf that is
/// given out now.
struct ByHandle {
    hash: VolumeHash,
    /// A handle of the volume ends with one of these, and what does not is not taken apart.
    endings: [String; 2],
}

impl ByHandle {
    fn of(hash: VolumeHash) -> Self {
        Self { hash, endings: [hash.prefix(), hash.to_string()] }
    }

    fn is(&self, key: &str) -> bool {
        let may_be = self.endings.iter().any(|ending| key.ends_with(ending.as_str()));
        let id = key.strip_prefix("volume ").filter(|_| may_be).and_then(VolumeId::parse);
        id.is_some_and(|id| id.names(self.hash))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use domain::volume::HostId;

    #[test]
    fn work_by_handle_is_that_on_the_volume_itself() {
        let hash = |name: &str| VolumeHash::new(&HostId("h".to_owned()), name);
        let id = VolumeId::new("m", "shop", "data", hash("pvc-1"));
        let long = VolumeId::new("m", "shop", &"d".repeat(120), hash("pvc-1"));
        for (key, is_it) in [
            (format!("volume {id}"), true),
            (format!("volume {long}"), true),
            (format!("volume {}", VolumeId::new("m", "shop", "data", hash("pvc-2"))), false),
            (format!("volume {id} on node "), false),
            (format!("volume {id} on node virtual/m"), false),
            (format!("snapshot {id}"), false),
            (format!("volume m/shop/data/{}", hash("pvc-1")), false),
            ("volume pvc-1".to_owned(), false),
        ] {
            assert_eq!(ByHandle::of(hash("pvc-1")).is(&key), is_it, "{key}");
        }
    }
}
