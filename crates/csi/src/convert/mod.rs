//! From the interface's messages to the domain's types, with every check that needs no cluster.

pub mod changes;
pub mod listing;
pub mod snapshots;
mod topology;

use std::{collections::BTreeMap, time::Duration};

use tonic::metadata::MetadataMap;

use super::v1::{
    self, CapacityRange, CreateVolumeRequest, GetCapacityRequest, GetCapacityResponse, VolumeCapability,
    volume_capability::{AccessType, access_mode::Mode},
};
use domain::{
    error::{Error, Result},
    volume::{AccessMode, Claim, Parameters, Request, VolumeMode, VolumeSpec},
};
use driver::provision::{Capacity, CapacityQuestion, Volume};

const LONGEST_NAME: usize = 128;
/// What a request may wait for at most; the sidecar's workers are few.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Which volume a request is about, whatever else it says, and the host claim it is for.
pub fn volume_meant(request: &CreateVolumeRequest) -> Result<(String, Option<Claim>)> {
    let name = checked_name(request.name.clone())?;
    Ok((name, claim_meant(request)))
}

/// The claim that the provisioner asks for, where it names it.
pub fn claim_meant(request: &CreateVolumeRequest) -> Option<Claim> {
    claim(|key| request.parameters.get(key).cloned())
}

pub fn volume_spec(request: CreateVolumeRequest) -> Result<VolumeSpec> {
    let (name, claim) = volume_meant(&request)?;
    let source = request.volume_content_source.map(snapshots::source).transpose()?;
    let uses = uses(&request.volume_capabilities)?;
    let (required, limit) = sizes(request.capacity_range.as_ref())?;
    let raw: BTreeMap<String, String> = request.parameters.into_iter().collect();
    let requirement = topology::requirement(request.accessibility_requirements)?;
    let mut access: Vec<AccessMode> = uses.iter().map(|(access, _)| *access).collect();
    access.sort_unstable();
    access.dedup();
    Ok(VolumeSpec {
        name,
        request: Request {
            required,
            limit,
            access,
            mode: one_mode(&uses)?,
            parameters: VolumeSpec::comparable(&raw),
            source,
        },
        parameters: Parameters::parse(&raw)?,
        attributes: changes::attributes(request.mutable_parameters)?,
        claim,
        preferred: requirement.preferred,
        requisite: requirement.requisite,
        nodes: requirement.nodes,
    })
}

fn checked_name(name: String) -> Result<String> {
    let control = |character: char| character.is_control() && !matches!(character, '\t' | '\n' | '\r');
    match name.as_str() {
        "" => Err(missing("name")),
        long if long.len() > LONGEST_NAME => Err(Error::Invalid(format!(
            "name has {} bytes and at most {LONGEST_NAME} are allowed: choose a shorter one",
            long.len()
        ))),
        odd => match odd.chars().find(|character| control(*character)) {
            Some(character) => Err(Error::Invalid(format!(
                "name {odd:?} holds the control character U+{:04X}: leave it out",
                u32::from(character)
            ))),
            None => Ok(name),
        },
    }
}

/// A field that every request must have.
pub fn missing(field: &str) -> Error {
    Error::Invalid(format!("{field} is missing: the request must have it"))
}

/// The ways in which a volume is to be used.
pub fn uses(capabilities: &[VolumeCapability]) -> Result<Vec<(AccessMode, VolumeMode)>> {
    if capabilities.is_empty() {
        return Err(missing("volume_capabilities"));
    }
    capabilities.iter().map(one_use).collect()
}

fn one_use(capability: &VolumeCapability) -> Result<(AccessMode, VolumeMode)> {
    let mode = match &capability.access_type {
        Some(AccessType::Mount(_)) => VolumeMode::Filesystem,
        Some(AccessType::Block(_)) => VolumeMode::Block,
        None => {
            return Err(Error::Invalid("volume_capabilities: access_type is missing: say mount or block".to_owned()));
        }
    };
    let access = match capability.access_mode.as_ref().map(v1::volume_capability::AccessMode::mode) {
        Some(Mode::SingleNodeSingleWriter) => AccessMode::ReadWriteOncePod,
        Some(Mode::SingleNodeWriter | Mode::SingleNodeMultiWriter | Mode::SingleNodeReaderOnly) => {
            AccessMode::ReadWriteOnce
        }
        Some(Mode::MultiNodeReaderOnly) => AccessMode::ReadOnlyMany,
        Some(Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter) => AccessMode::ReadWriteMany,
        Some(Mode::Unknown) | None => {
            return Err(Error::Invalid(
                "volume_capabilities: access_mode is missing or UNKNOWN: say how the volume is to be used".to_owned(),
            ));
        }
    };
    Ok((access, mode))
}

fn one_mode(uses: &[(AccessMode, VolumeMode)]) -> Result<VolumeMode> {
    let block = uses.iter().filter(|(_, mode)| mode.is_block()).count();
    match block {
        0 => Ok(VolumeMode::Filesystem),
        all if all == uses.len() => Ok(VolumeMode::Block),
        _ => Err(Error::Invalid(format!(
            "volume_capabilities: {block} of {} say block and the others mount: one volume is either",
            uses.len()
        ))),
    }
}

fn sizes(range: Option<&CapacityRange>) -> Result<(u64, u64)> {
    let Some(range) = range else {
        return Ok((0, 0));
    };
    let positive = |what: &str, bytes: i64| {
        u64::try_from(bytes).map_err(|_| {
            Error::OutOfRange(format!("capacity_range.{what} is {bytes}: give a number of bytes, or 0 for any"))
        })
    };
    let sizes = (positive("required_bytes", range.required_bytes)?, positive("limit_bytes", range.limit_bytes)?);
    if sizes.1 > 0 && sizes.1 < sizes.0 {
        return Err(Error::OutOfRange(format!(
            "capacity_range: limit_bytes {} is less than required_bytes {}: raise the limit or ask for less",
            sizes.1, sizes.0
        )));
    }
    Ok(sizes)
}

/// What external-provisioner adds when it runs with --extra-create-metadata.
fn claim(parameter: impl Fn(&str) -> Option<String>) -> Option<Claim> {
    let (namespace, name) = ("csi.storage.k8s.io/pvc/namespace", "csi.storage.k8s.io/pvc/name");
    Some(Claim { namespace: parameter(namespace)?, name: parameter(name)? })
}

/// Which room is asked about. The provisioner sends the class's parameters as they stand, and no capabilities.
pub fn capacity_question(request: GetCapacityRequest) -> Result<CapacityQuestion> {
    if !request.volume_capabilities.is_empty() {
        uses(&request.volume_capabilities)?;
    }
    let parameters = Parameters::parse(&request.parameters.into_iter().collect())?;
    Ok(CapacityQuestion { parameters, place: topology::place(request.accessible_topology) })
}

pub fn capacity(capacity: Capacity) -> GetCapacityResponse {
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    GetCapacityResponse {
        available_capacity: bytes(capacity.free),
        maximum_volume_size: capacity.largest.map(bytes),
        minimum_volume_size: None,
    }
}

pub fn volume(volume: Volume) -> v1::Volume {
    v1::Volume {
        capacity_bytes: i64::try_from(volume.capacity).unwrap_or(i64::MAX),
        volume_id: volume.id.to_string(),
        volume_context: volume.context.into_iter().collect(),
        content_source: volume.source.map(snapshots::content_source),
        accessible_topology: vec![topology::accessible(volume.member, volume.node)],
    }
}

/// How long a call may wait: until shortly before its own deadline, so that the answer still arrives.
pub fn patience(metadata: &MetadataMap) -> Duration {
    let given = metadata.get("grpc-timeout").and_then(|value| timeout(value.to_str().ok()?));
    given.map_or(LONGEST_WAIT, |given| {
        let reserve = (given / 10).clamp(Duration::from_millis(200), Duration::from_secs(3));
        given.saturating_sub(reserve).min(LONGEST_WAIT)
    })
}

fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count.checked_mul(3600)?)),
        "M" => Some(Duration::from_secs(count.checked_mul(60)?)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
