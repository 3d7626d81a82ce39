//! Answers to questions about what would be possible. They change nothing.

use crate::convert::{capabilities, capability, map, wire_map};
use crate::driver::Driver;
use crate::error::Error;
use crate::parameters::{Parameters, check_mutable};
use crate::placement::is_here;
use crate::proto::csi;
use crate::proto::csi::validate_volume_capabilities_response::Confirmed;
use crate::volume::Volume;

/// Confirms what was asked, unless any part of it does not hold for this volume.
pub(crate) fn confirm(
    volume: &Volume,
    request: csi::ValidateVolumeCapabilitiesRequest,
) -> csi::ValidateVolumeCapabilitiesResponse {
    let (parameters, mutable) = (map(request.parameters), map(request.mutable_parameters));
    let check = || -> Result<(), Error> {
        for capability in capabilities(request.volume_capabilities.clone())? {
            volume.allows(&capability)?;
        }
        check_mutable(&mutable)?;
        if !parameters.is_empty() && parameters != volume.parameters {
            return Err(Error::Invalid("the volume was made with other parameters".to_owned()));
        }
        Ok(())
    };
    if let Err(refusal) = check() {
        csi::ValidateVolumeCapabilitiesResponse { confirmed: None, message: refusal.to_string() }
    } else {
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: wire_map(parameters),
            mutable_parameters: wire_map(mutable),
        };
        csi::ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() }
    }
}

/// The room for a volume such as this, in this place.
pub(crate) fn room(driver: &Driver, request: csi::GetCapacityRequest) -> Result<u64, Error> {
    let kind = Parameters::parse(&map(request.parameters))?.kind;
    let elsewhere = |place: csi::Topology| !is_here(&map(place.segments), &driver.topology_key, &driver.node);
    let possible = request
        .volume_capabilities
        .into_iter()
        .all(|wire| capability(Some(wire)).is_ok_and(|capability| kind.supports(&capability).is_ok()));
    if !possible || request.accessible_topology.is_some_and(elsewhere) {
        return Ok(0);
    }
    Ok(driver.capacity.left(&driver.volumes))
}
