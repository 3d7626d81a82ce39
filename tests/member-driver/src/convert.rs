//! Between the interface's messages and the driver's own types. A message that lacks what the standard requires ends here.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::driver::Driver;
use crate::error::Error;
use crate::placement::Range;
use crate::proto::csi;
use crate::proto::csi::volume_capability::AccessType;
use crate::proto::csi::volume_capability::access_mode::Mode as WireMode;
use crate::proto::csi::volume_content_source::Type as WireSource;
use crate::volume::{Access, Capability, Format, Group, Map, Mode, Snapshot, Source, Volume, VolumeRequest};

/// The longest text that the standard allows.
const MOST_BYTES: usize = 128;

/// A field that must be there.
pub(crate) fn required(text: String, field: &str) -> Result<String, Error> {
    if text.is_empty() { Err(missing(field)) } else { Ok(text) }
}

pub(crate) fn required_path(text: String, field: &str) -> Result<PathBuf, Error> {
    required(text, field).map(PathBuf::from)
}

/// The key of a volume, snapshot or group.
pub(crate) fn name(text: String) -> Result<String, Error> {
    if text.len() > MOST_BYTES || text.chars().any(char::is_control) {
        return Err(Error::Invalid(format!("a name has at most {MOST_BYTES} bytes and no control characters")));
    }
    required(text, "name")
}

pub(crate) fn map(wire: HashMap<String, String>) -> Map {
    wire.into_iter().collect()
}

pub(crate) fn wire_map(map: Map) -> HashMap<String, String> {
    map.into_iter().collect()
}

pub(crate) fn range(wire: Option<csi::CapacityRange>) -> Result<Range, Error> {
    let wire = wire.unwrap_or_default();
    let size = |bytes: i64| u64::try_from(bytes).map_err(|_| Error::Invalid("a size is not negative".to_owned()));
    Ok(Range { required: size(wire.required_bytes)?, limit: size(wire.limit_bytes)? })
}

/// How many entries a page may have; zero for all.
pub(crate) fn page_size(entries: i32) -> Result<usize, Error> {
    usize::try_from(entries).map_err(|_| Error::Invalid("max_entries is not negative".to_owned()))
}

pub(crate) fn capability(wire: Option<csi::VolumeCapability>) -> Result<Capability, Error> {
    let wire = wire.ok_or_else(|| missing("volume_capability"))?;
    let mode = wire.access_mode.map(|wire| wire.mode()).and_then(mode).ok_or_else(|| missing("access_mode"))?;
    let access = match wire.access_type.ok_or_else(|| missing("access_type"))? {
        AccessType::Block(_) => Access::Block,
        AccessType::Mount(mount) => {
            Access::Mount { filesystem: filesystem(&mount.fs_type)?, options: mount.mount_flags }
        }
    };
    Ok(Capability { access, mode })
}

pub(crate) fn capabilities(wire: Vec<csi::VolumeCapability>) -> Result<Vec<Capability>, Error> {
    if wire.is_empty() {
        return Err(missing("volume_capabilities"));
    }
    wire.into_iter().map(|wire| capability(Some(wire))).collect()
}

/// The places that would do. The order in which a request prefers them is not kept: there is one place here.
fn requisite(wire: Option<csi::TopologyRequirement>) -> Vec<Map> {
    let places = wire.map(|requirement| requirement.requisite).unwrap_or_default();
    places.into_iter().map(|place| map(place.segments)).collect()
}

pub(crate) fn wanted(wire: csi::CreateVolumeRequest) -> Result<VolumeRequest, Error> {
    Ok(VolumeRequest {
        name: name(wire.name)?,
        range: range(wire.capacity_range)?,
        capabilities: capabilities(wire.volume_capabilities)?,
        parameters: map(wire.parameters),
        mutable_parameters: map(wire.mutable_parameters),
        source: wire.volume_content_source.map(source).transpose()?,
        requisite: requisite(wire.accessibility_requirements),
    })
}

pub(crate) fn wire_volume(driver: &Driver, volume: Volume) -> csi::Volume {
    csi::Volume {
        capacity_bytes: wire_size(volume.bytes),
        volume_id: volume.id,
        volume_context: HashMap::new(),
        content_source: volume.source.map(wire_source),
        accessible_topology: vec![place(driver)],
    }
}

pub(crate) fn wire_snapshot(snapshot: Snapshot) -> csi::Snapshot {
    csi::Snapshot {
        size_bytes: wire_size(snapshot.bytes),
        snapshot_id: snapshot.id,
        source_volume_id: snapshot.volume,
        creation_time: Some(timestamp(snapshot.created)),
        ready_to_use: true,
        group_snapshot_id: snapshot.group.unwrap_or_default(),
        accessible_topology: Vec::new(),
    }
}

pub(crate) fn wire_group(driver: &Driver, group: Group) -> csi::VolumeGroupSnapshot {
    let snapshots = group.snapshots.iter().filter_map(|id| driver.snapshots.find(id));
    csi::VolumeGroupSnapshot {
        snapshots: snapshots.map(wire_snapshot).collect(),
        group_snapshot_id: group.id,
        creation_time: Some(timestamp(group.created)),
        ready_to_use: true,
    }
}

/// The one place where volumes of this driver are.
pub(crate) fn place(driver: &Driver) -> csi::Topology {
    csi::Topology { segments: wire_map(driver.place()) }
}

/// No size here comes near the end of the number.
pub(crate) fn wire_size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn missing(field: &str) -> Error {
    Error::Invalid(format!("{field} is missing"))
}

fn mode(wire: WireMode) -> Option<Mode> {
    match wire {
        WireMode::Unknown => None,
        WireMode::SingleNodeWriter => Some(Mode::SingleNodeWriter),
        WireMode::SingleNodeReaderOnly => Some(Mode::SingleNodeReader),
        WireMode::SingleNodeSingleWriter => Some(Mode::SingleNodeSingleWriter),
        WireMode::SingleNodeMultiWriter => Some(Mode::SingleNodeMultiWriter),
        WireMode::MultiNodeReaderOnly => Some(Mode::MultiNodeReader),
        WireMode::MultiNodeSingleWriter => Some(Mode::MultiNodeSingleWriter),
        WireMode::MultiNodeMultiWriter => Some(Mode::MultiNodeMultiWriter),
    }
}

fn filesystem(name: &str) -> Result<Option<Format>, Error> {
    match name {
        "" => Ok(None),
        "ext4" => Ok(Some(Format::Ext4)),
        "xfs" => Ok(Some(Format::Xfs)),
        _ => Err(Error::Invalid(format!("{name:?} is neither ext4 nor xfs"))),
    }
}

fn source(wire: csi::VolumeContentSource) -> Result<Source, Error> {
    match wire.r#type.ok_or_else(|| missing("volume_content_source.type"))? {
        WireSource::Snapshot(source) => required(source.snapshot_id, "snapshot_id").map(Source::Snapshot),
        WireSource::Volume(source) => required(source.volume_id, "volume_id").map(Source::Volume),
    }
}

fn wire_source(source: Source) -> csi::VolumeContentSource {
    use csi::volume_content_source::{SnapshotSource, VolumeSource};
    let source = match source {
        Source::Snapshot(snapshot_id) => WireSource::Snapshot(SnapshotSource { snapshot_id }),
        Source::Volume(volume_id) => WireSource::Volume(VolumeSource { volume_id }),
    };
    csi::VolumeContentSource { r#type: Some(source) }
}

fn timestamp(since_epoch: Duration) -> prost_types::Timestamp {
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    prost_types::Timestamp { seconds, nanos: since_epoch.subsec_nanos().cast_signed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(fs_type: &str, mode: WireMode) -> csi::VolumeCapability {
        let mount = csi::volume_capability::MountVolume { fs_type: fs_type.to_owned(), ..Default::default() };
        csi::VolumeCapability {
            access_type: Some(AccessType::Mount(mount)),
            access_mode: Some(csi::volume_capability::AccessMode { mode: mode.into() }),
        }
    }

    #[test]
    fn a_capability_is_whole_or_refused() {
        assert!(capability(Some(wire("", WireMode::SingleNodeWriter))).is_ok());
        assert!(capability(Some(wire("xfs", WireMode::MultiNodeMultiWriter))).is_ok());
        let incomplete = [
            None,
            Some(wire("btrfs", WireMode::SingleNodeWriter)),
            Some(wire("", WireMode::Unknown)),
            Some(csi::VolumeCapability { access_type: None, ..wire("", WireMode::SingleNodeWriter) }),
            Some(csi::VolumeCapability { access_mode: None, ..wire("", WireMode::SingleNodeWriter) }),
        ];
        for wire in incomplete {
            assert!(matches!(capability(wire.clone()), Err(Error::Invalid(_))), "{wire:?}");
        }
        assert!(capabilities(vec![]).is_err());
    }

    #[test]
    fn names_are_short_and_printable() {
        assert!(name("n".repeat(128)).is_ok());
        for wrong in [String::new(), "n".repeat(129), "a\u{7f}".to_owned()] {
            assert!(name(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn sizes_are_not_negative() {
        assert_eq!(range(None), Ok(Range::default()));
        assert!(range(Some(csi::CapacityRange { required_bytes: -1, limit_bytes: 0 })).is_err());
        assert!(page_size(-1).is_err());
    }
}
