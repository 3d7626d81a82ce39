//! Makes, removes, grows and changes volumes.

use crate::copies::copy_volumes;
use crate::device;
use crate::driver::Driver;
use crate::error::Error;
use crate::parameters::{Kind, Parameters, check_mutable};
use crate::placement::{self, Range};
use crate::staging::has_live_stage;
use crate::volume::{Format, Map, Source, Volume, VolumeRequest};

/// What a copy starts from.
#[derive(Debug, Clone, Copy)]
struct Origin {
    kind: Kind,
    format: Format,
    bytes: u64,
}

/// The name is the key: a repeated call finds the volume that is there.
pub(crate) async fn create(driver: &Driver, wanted: VolumeRequest) -> Result<Volume, Error> {
    let parameters = Parameters::parse(&wanted.parameters)?;
    check_mutable(&wanted.mutable_parameters)?;
    for capability in &wanted.capabilities {
        parameters.kind.supports(capability)?;
    }
    placement::check(&wanted.requisite, &driver.topology_key, &driver.node)?;
    let _name = driver.in_flight.begin([format!("the name {:?}", wanted.name)])?;
    if let Some(volume) = driver.volumes.named(&wanted.name) {
        let _volume = driver.in_flight.begin([&volume.id])?;
        return volume.matches(&wanted).map(|()| volume);
    }

    let origin = wanted.source.as_ref().map(|source| origin(driver, source)).transpose()?;
    let volume = plan(driver.volumes.next_id(), parameters.kind, origin, wanted)?;
    let _room = driver.capacity.reserve(&driver.volumes, volume.bytes)?;
    driver.faults.pass(&format!("create {}", volume.name), &parameters.create).await?;
    if let Err(error) = fill(driver, &volume).await {
        driver.data.remove(&volume.id)?;
        return Err(error);
    }
    driver.volumes.put(volume.clone())?;
    Ok(volume)
}

/// An unknown volume is a deleted volume.
pub(crate) async fn delete(driver: &Driver, id: &str) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let Some(volume) = driver.volumes.find(id) else {
        return Ok(());
    };
    if let Some(node) = volume.attached.keys().next() {
        return Err(Error::Precondition(format!("volume {id} is attached to {node}")));
    }
    if has_live_stage(driver, &volume).await? {
        return Err(Error::Precondition(format!("volume {id} is staged on {}", driver.node)));
    }
    let fault = Parameters::parse(&volume.parameters)?.delete;
    driver.faults.pass(&format!("delete {id}"), &fault).await?;
    if volume.kind == Kind::Loop {
        device::detach(&driver.data.path(id)).await?;
    }
    driver.data.remove(id)?;
    driver.volumes.remove(id)
}

/// Grows the file. Its device and filesystem follow on the node.
pub(crate) fn expand(driver: &Driver, id: &str, range: Range) -> Result<Volume, Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    if range.contains(volume.bytes) {
        return Ok(volume);
    }
    let bytes = range.size(volume.bytes)?;
    let _room = driver.capacity.reserve(&driver.volumes, bytes - volume.bytes)?;
    if volume.kind == Kind::Loop {
        driver.data.grow(id, bytes)?;
    }
    driver.volumes.update(id, |volume| volume.bytes = bytes)
}

/// Changes the attributes that are given and no others; all of them or none.
pub(crate) fn modify(driver: &Driver, id: &str, mutable_parameters: Map) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    driver.volumes.get(id)?;
    check_mutable(&mutable_parameters)?;
    driver
        .volumes
        .update(id, |volume| {
            volume.mutable_parameters.extend(mutable_parameters);
        })
        .map(drop)
}

fn origin(driver: &Driver, source: &Source) -> Result<Origin, Error> {
    match source {
        Source::Snapshot(id) => driver.snapshots.get(id).map(|snapshot| Origin {
            kind: snapshot.kind,
            format: snapshot.format,
            bytes: snapshot.bytes,
        }),
        Source::Volume(id) => driver.volumes.get(id).map(|volume| Origin {
            kind: volume.kind,
            format: volume.format,
            bytes: volume.bytes,
        }),
    }
}

fn plan(id: String, kind: Kind, origin: Option<Origin>, wanted: VolumeRequest) -> Result<Volume, Error> {
    let format = kind.format(&wanted.capabilities, origin.map(|origin| origin.format))?;
    if origin.is_some_and(|origin| origin.kind != kind || origin.format != format) {
        return Err(Error::Invalid("a copy has the kind and the format of its source".to_owned()));
    }
    let minimum = origin.map_or(0, |origin| origin.bytes).max(format.minimum());
    Ok(Volume {
        id,
        name: wanted.name,
        bytes: wanted.range.size(minimum)?,
        kind,
        format,
        parameters: wanted.parameters,
        mutable_parameters: wanted.mutable_parameters,
        source: wanted.source,
        ..Volume::default()
    })
}

/// Gives a new volume its data. The source is held only now, so that a delay of this volume holds up no other.
async fn fill(driver: &Driver, volume: &Volume) -> Result<(), Error> {
    match &volume.source {
        None => driver.data.create(&volume.id, volume.kind, volume.bytes),
        Some(Source::Snapshot(id)) => {
            let _source = driver.in_flight.begin([id])?;
            driver.snapshots.get(id)?;
            driver.data.copy(id, &volume.id, volume.kind, volume.bytes).await
        }
        Some(Source::Volume(id)) => {
            let _source = driver.in_flight.begin([id])?;
            let source = driver.volumes.get(id)?;
            copy_volumes(driver, &[(source, &volume.id, volume.bytes)]).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{Access, Capability, Mode};

    const MEBIBYTE: u64 = 1 << 20;

    fn wanted(required: u64, filesystem: Option<Format>) -> VolumeRequest {
        let access = Access::Mount { filesystem, options: vec![] };
        VolumeRequest {
            name: "a".to_owned(),
            range: Range { required, limit: 0 },
            capabilities: vec![Capability { access, mode: Mode::SingleNodeWriter }],
            ..VolumeRequest::default()
        }
    }

    #[test]
    fn a_copy_is_no_smaller_than_its_source() {
        let origin = Origin { kind: Kind::Loop, format: Format::Ext4, bytes: 8 * MEBIBYTE };
        for (required, bytes) in [(MEBIBYTE, 8 * MEBIBYTE), (9 * MEBIBYTE, 9 * MEBIBYTE)] {
            let volume = plan("vol".to_owned(), Kind::Loop, Some(origin), wanted(required, None)).unwrap();
            assert_eq!((volume.bytes, volume.format), (bytes, Format::Ext4));
        }
    }

    #[test]
    fn a_copy_is_of_its_sources_kind() {
        let ext4 = Origin { kind: Kind::Loop, format: Format::Ext4, bytes: MEBIBYTE };
        for (kind, filesystem) in [(Kind::Loop, Some(Format::Xfs)), (Kind::Shared, None)] {
            let planned = plan("vol".to_owned(), kind, Some(ext4), wanted(0, filesystem));
            assert!(matches!(planned, Err(Error::Invalid(_))), "{kind:?}");
        }
    }

    #[test]
    fn xfs_has_its_own_smallest_size() {
        let volume = plan("vol".to_owned(), Kind::Loop, None, wanted(MEBIBYTE, Some(Format::Xfs))).unwrap();
        assert_eq!(volume.bytes, 300 * MEBIBYTE);
    }
}
