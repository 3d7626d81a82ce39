//! Copies volumes as they are at one moment: all writing stops, everything is copied, all writing goes on. One volume
//! for a clone or a snapshot, several for a group.

use std::fs::File;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use crate::device;
use crate::driver::Driver;
use crate::error::Error;
use crate::mounts;
use crate::staging::live_mount;
use crate::volume::{Format, Volume};

/// Each volume is copied to the data of the given id, with the given size. The caller holds the volumes.
pub(crate) async fn copy_volumes(driver: &Driver, copies: &[(Volume, &str, u64)]) -> Result<(), Error> {
    let mut frozen = Vec::new();
    let outcome = freeze_and_copy(driver, copies, &mut frozen).await;
    let mut thawed = Ok(());
    for target in frozen {
        thawed = thawed.and(device::thaw(&target).await);
    }
    outcome.and(thawed)
}

/// Whatever is in `frozen` at the end has to go on, also after a failure.
async fn freeze_and_copy(
    driver: &Driver,
    copies: &[(Volume, &str, u64)],
    frozen: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let table = mounts::table()?;
    for (volume, _, _) in copies {
        let mounted = live_mount(volume, &table);
        match (volume.format, mounted) {
            (Format::Ext4 | Format::Xfs, Some(target)) => {
                frozen.push(target.to_owned());
                device::freeze(target).await?;
            }
            (Format::Block, _) => flush(&driver.data.path(&volume.id)).await?,
            // Nothing is mounted, or it is a folder: there is no way to stop those who write into it.
            _ => {}
        }
    }
    for (volume, id, bytes) in copies {
        driver.data.copy(&volume.id, id, volume.kind, *bytes).await?;
    }
    Ok(())
}

/// Writes to a bare device wait in memory until someone asks for them.
async fn flush(file: &Path) -> Result<(), Error> {
    let Some(device) = device::of(file).await? else {
        return Ok(());
    };
    let sync = move || File::open(device).and_then(|device| device.sync_all());
    spawn_blocking(sync).await.map_err(Error::during("flushing a device"))?.map_err(Error::during("flushing a device"))
}
