//! Makes a volume usable on this node: device, filesystem, mount. What was asked for is on record before anything is
//! done, and what was done the kernel knows; between the two, every call finds out what is left to do.

use std::path::{Path, PathBuf};

use mount::table::Table;

use crate::device;
use crate::driver::Driver;
use crate::error::Error;
use crate::mounts::{self, Leaf};
use crate::volume::{Access, Capability, Format, Volume};

pub(crate) async fn stage(driver: &Driver, id: &str, path: PathBuf, capability: Capability) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    check_usable(driver, &volume, &capability)?;
    if is_staged(driver, &volume, &path).await? {
        return check_same(volume.staged.get(&path), &capability, &path);
    }
    if mounts::at(&path)?.is_some() {
        return Err(Error::Precondition(format!("something else is mounted at {}", path.display())));
    }
    let volume = driver.volumes.update(id, |volume| {
        volume.staged.insert(path.clone(), capability.clone());
    })?;
    if let Err(error) = bring_up(driver, &volume, &path, &capability).await {
        take_down(driver, &volume, &path).await?;
        return Err(error);
    }
    Ok(())
}

pub(crate) async fn unstage(driver: &Driver, id: &str, path: &Path) -> Result<(), Error> {
    let _volume = driver.in_flight.begin([id])?;
    let volume = driver.volumes.get(id)?;
    take_down(driver, &volume, path).await
}

/// Whether the volume can be used at `path` now. A mount is seen in the mount table, a bare device by its file.
pub(crate) async fn is_staged(driver: &Driver, volume: &Volume, path: &Path) -> Result<bool, Error> {
    match volume.staged.get(path).map(|capability| &capability.access) {
        None => Ok(false),
        Some(Access::Block) => Ok(device::of(&driver.data.path(&volume.id)).await?.is_some()),
        Some(Access::Mount { .. }) => Ok(mounts::at(path)?.is_some()),
    }
}

pub(crate) async fn has_live_stage(driver: &Driver, volume: &Volume) -> Result<bool, Error> {
    for path in volume.staged.keys() {
        if is_staged(driver, volume, path).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the volume's filesystem is mounted first, if it is.
pub(crate) fn live_mount<'a>(volume: &'a Volume, table: &Table) -> Option<&'a Path> {
    volume.staged.keys().map(PathBuf::as_path).find(|path| table.at(&mounts::as_mounted(path)).is_some())
}

/// Whether a repeated call asks for what is already there.
pub(crate) fn check_same<T: PartialEq>(recorded: Option<&T>, wanted: &T, path: &Path) -> Result<(), Error> {
    if recorded == Some(wanted) {
        return Ok(());
    }
    Err(Error::Exists(format!("the volume is at {} in another way than is asked for", path.display())))
}

fn check_usable(driver: &Driver, volume: &Volume, capability: &Capability) -> Result<(), Error> {
    volume.allows(capability).map_err(|refusal| Error::Precondition(refusal.to_string()))?;
    if driver.attach && !volume.attached.contains_key(&driver.node) {
        return Err(Error::Precondition(format!("volume {} is not attached to {}", volume.id, driver.node)));
    }
    Ok(())
}

async fn bring_up(driver: &Driver, volume: &Volume, path: &Path, capability: &Capability) -> Result<(), Error> {
    let file = driver.data.path(&volume.id);
    let Access::Mount { options, .. } = &capability.access else {
        return device::attach(&file, capability.mode.reads_only()).await.map(drop);
    };
    mounts::make_leaf(path, Leaf::Folder)?;
    if volume.format == Format::Folder {
        return mounts::bind(&file, path, options).await;
    }
    let device = device::attach(&file, false).await?;
    device::prepare(&device, volume.format).await?;
    mounts::filesystem(&device, path, volume.format, options, capability.mode.reads_only()).await?;
    let read_only = mounts::at(path)?.is_some_and(|mount| mount.options.iter().any(|option| option == "ro"));
    if volume.format == Format::Xfs && !read_only {
        // Unlike ext4, it grows only while it is mounted.
        device::grow_mounted(&device, path, volume.format).await?;
    }
    Ok(())
}

/// Undoes as much as there is. The device stays while the volume is staged at another path.
async fn take_down(driver: &Driver, volume: &Volume, path: &Path) -> Result<(), Error> {
    mounts::unmount(path).await?;
    let mut rest = volume.clone();
    rest.staged.remove(path);
    if volume.format != Format::Folder && !has_live_stage(driver, &rest).await? {
        device::detach(&driver.data.path(&volume.id)).await?;
    }
    driver.volumes.put(rest)
}
