//! Shows a staged volume to pods, and what can be done to it where they see it.

use std::path::{Path, PathBuf};

use mount::table::Table;

use crate::device;
use crate::driver::Driver;
use crate::error::Error;
use crate::mounts::{self, Leaf};
use crate::staging::{check_same, is_staged};
use crate::volume::{Access, Capability, Format, Mode, Publication, Volume};

/// What a volume holds, as far as it can be known: a bare device has no files.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(crate) bytes: Amounts,
    pub(crate) inodes: Option<Amounts>,
}

#[derive(Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) total: u64,
    pub(crate) available: u64,
    pub(crate) used: u64,
}

pub(crate) async fn publish(
    driver: &Driver,
    id: &str,
    staging: &Path,
    target: PathBuf,
    publication: Publication,
) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    let table = mounts::table()?;
    let present = is_live(&table, &target);
    if present {
        check_same(volume.published.get(&target), &publication, &target)?;
    } else {
        volume.allows(&publication.capability).map_err(|refusal| Error::Precondition(refusal.to_string()))?;
        check_alone(&volume, &publication.capability, &target, |path| is_live(&table, path))?;
        if !is_staged(driver, &volume, staging).await? {
            return Err(Error::Precondition(format!("volume {id} is not staged at {}", staging.display())));
        }
    }
    driver.volumes.update(id, |volume| {
        volume.published.insert(target.clone(), publication.clone());
    })?;
    show(driver, &volume, staging, &target, &publication, present).await
}

pub(crate) async fn unpublish(driver: &Driver, id: &str, target: &Path) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    driver.volumes.get(id)?;
    mounts::unmount(target).await?;
    mounts::remove_leaf(target)?;
    driver
        .volumes
        .update(id, |volume| {
            volume.published.remove(target);
        })
        .map(drop)
}

pub(crate) async fn usage(driver: &Driver, id: &str, path: &Path) -> Result<Usage, Error> {
    let volume = driver.volumes.get(id)?;
    check_shown(&volume, path)?;
    if volume.format == Format::Block {
        let bytes = Amounts { total: volume.bytes, ..Amounts::default() };
        return Ok(Usage { bytes, inodes: None });
    }
    let measured = mounts::usage(path).await?;
    let amounts = |unit: u64, total: u64, free: u64, available: u64| Amounts {
        total: total * unit,
        available: available * unit,
        used: total.saturating_sub(free) * unit,
    };
    Ok(Usage {
        bytes: amounts(
            measured.fragment_size(),
            measured.blocks(),
            measured.blocks_free(),
            measured.blocks_available(),
        ),
        inodes: Some(amounts(1, measured.files(), measured.files_free(), measured.files_available())),
    })
}

/// Lets device and filesystem have the size that the controller gave the file.
pub(crate) async fn expand(driver: &Driver, id: &str, path: &Path) -> Result<u64, Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    if volume.format == Format::Folder {
        return check_shown(&volume, path).map(|()| volume.bytes);
    }
    let device = device::of(&driver.data.path(id)).await?;
    let device = device.ok_or_else(|| Error::NotFound(format!("volume {id} is not on this node")))?;
    device::refresh(&device).await?;
    // The kubelet names a bare device by other paths than the one where it was published.
    if volume.format != Format::Block {
        check_shown(&volume, path)?;
        device::grow_mounted(&device, path, volume.format).await?;
    }
    Ok(volume.bytes)
}

fn is_live(table: &Table, path: &Path) -> bool {
    table.at(&mounts::as_mounted(path)).is_some()
}

fn check_shown(volume: &Volume, path: &Path) -> Result<(), Error> {
    let ours = volume.staged.contains_key(path) || volume.published.contains_key(path);
    if ours && mounts::at(path)?.is_some() {
        return Ok(());
    }
    Err(Error::NotFound(format!("volume {} is not at {}", volume.id, path.display())))
}

/// A single writer shares the volume with nobody, whoever came first.
fn check_alone(
    volume: &Volume,
    capability: &Capability,
    target: &Path,
    is_live: impl Fn(&Path) -> bool,
) -> Result<(), Error> {
    let single = |capability: &Capability| capability.mode == Mode::SingleNodeSingleWriter;
    let mut others = volume.published.iter().filter(|(path, _)| *path != target && is_live(path));
    match others.find(|(_, other)| single(capability) || single(&other.capability)) {
        Some((path, _)) => Err(Error::Precondition(format!(
            "volume {} is published at {}, and has a single writer",
            volume.id,
            path.display()
        ))),
        None => Ok(()),
    }
}

async fn show(
    driver: &Driver,
    volume: &Volume,
    staging: &Path,
    target: &Path,
    publication: &Publication,
    present: bool,
) -> Result<(), Error> {
    if publication.capability.access == Access::Block {
        if present {
            return Ok(());
        }
        let device = device::of(&driver.data.path(&volume.id)).await?;
        let device = device.ok_or_else(|| Error::Precondition(format!("volume {} has no device", volume.id)))?;
        mounts::make_leaf(target, Leaf::File)?;
        return mounts::bind(&device, target, &[]).await;
    }
    if !present {
        mounts::make_leaf(target, Leaf::Folder)?;
        mounts::bind(staging, target, &[]).await?;
    }
    // Also for a mount that is present: a crash may have come between the two steps.
    if publication.read_only { mounts::make_read_only(target).await } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn capability(mode: Mode) -> Capability {
        Capability { access: Access::Mount { filesystem: None, options: vec![] }, mode }
    }

    #[test]
    fn a_single_writer_is_alone() {
        let (one, many) = (Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter);
        let table = [
            (one, "/a", true, one, "/b", false),
            (one, "/a", true, many, "/b", false),
            (many, "/a", true, one, "/b", false),
            (many, "/a", true, many, "/b", true),
            (one, "/a", true, one, "/a", true),
            (one, "/a", false, one, "/b", true),
        ];
        for (first, at, live, second, target, allowed) in table {
            let publication = Publication { capability: capability(first), read_only: false };
            let volume = Volume { published: BTreeMap::from([(at.into(), publication)]), ..Volume::default() };
            let checked = check_alone(&volume, &capability(second), Path::new(target), |_| live);
            assert_eq!(checked.is_ok(), allowed, "{first:?} {live} {second:?} {target}");
        }
    }
}
