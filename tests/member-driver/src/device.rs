//! Loop devices and the filesystems on them, through the programs that know them. A file has at most one device: what
//! a crash left behind is found by its file and used again, or cleared.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};

use crate::command::{attempt, require};
use crate::error::Error;
use crate::volume::Format;

/// The kernel's number for loop devices.
const LOOP_MAJOR: u64 = 7;

/// Another program may take a free device before we do.
const ATTEMPTS: usize = 8;

/// The device of `file`, if it has one.
pub(crate) async fn of(file: &Path) -> Result<Option<PathBuf>, Error> {
    Ok(all_of(file).await?.into_iter().next())
}

/// Gives `file` a device, unless it has one already, and lets the device have the file's size.
pub(crate) async fn attach(file: &Path, read_only: bool) -> Result<PathBuf, Error> {
    if let Some(device) = of(file).await? {
        refresh(&device).await?;
        return Ok(device);
    }
    let mut refused = None;
    for _ in 0..ATTEMPTS {
        let free = PathBuf::from(require("losetup", &["--find".as_ref()]).await?.trim());
        make_node(&free)?;
        let mut arguments: Vec<&OsStr> = vec![free.as_ref(), file.as_ref()];
        if read_only {
            arguments.insert(0, "--read-only".as_ref());
        }
        let ended = attempt("losetup", &arguments).await?;
        if ended.code == Some(0) {
            return Ok(free);
        }
        refused = Some(ended.failure());
    }
    Err(refused.unwrap_or_else(|| Error::Internal("no loop device is free".to_owned())))
}

/// Takes all devices from `file`.
pub(crate) async fn detach(file: &Path) -> Result<(), Error> {
    for device in all_of(file).await? {
        require("losetup", &["--detach".as_ref(), device.as_ref()]).await?;
    }
    Ok(())
}

/// Lets the device have its file's present size.
pub(crate) async fn refresh(device: &Path) -> Result<(), Error> {
    require("losetup", &["--set-capacity".as_ref(), device.as_ref()]).await.map(drop)
}

/// Makes sure that a filesystem of this format is on the device and as large as it. Only a blank device is formatted.
pub(crate) async fn prepare(device: &Path, format: Format) -> Result<(), Error> {
    match (found(device).await?, format) {
        (None, Format::Xfs) => require("mkfs.xfs", &["-q".as_ref(), device.as_ref()]).await.map(drop),
        (None, _) => require("mkfs.ext4", &["-q".as_ref(), "-m0".as_ref(), device.as_ref()]).await.map(drop),
        (Some(name), Format::Xfs) if name == "xfs" => Ok(()),
        (Some(name), Format::Ext4) if name == "ext4" => {
            check_ext4(device).await?;
            require("resize2fs", &[device.as_ref()]).await.map(drop)
        }
        (Some(name), _) => Err(Error::Precondition(format!("the volume holds {name}, which is not what is asked for"))),
    }
}

/// Lets a mounted filesystem fill its device.
pub(crate) async fn grow_mounted(device: &Path, target: &Path, format: Format) -> Result<(), Error> {
    if format == Format::Xfs {
        return require("xfs_growfs", &[target.as_ref()]).await.map(drop);
    }
    let ended = attempt("resize2fs", &[device.as_ref()]).await?;
    if ended.code != Some(0) && ended.stderr.contains("Permission denied") {
        return Err(Error::Precondition(
            "this machine's kernel does not let a mounted ext4 grow; it grows when the volume is next staged"
                .to_owned(),
        ));
    }
    ended.well().map(drop)
}

/// Stops all writing to a mounted filesystem. One that is frozen already was left so by a process that died, for the
/// caller holds the volume.
pub(crate) async fn freeze(target: &Path) -> Result<(), Error> {
    let ended = attempt("fsfreeze", &["--freeze".as_ref(), target.as_ref()]).await?;
    if ended.code != Some(0) && ended.stderr.contains("Device or resource busy") {
        return Ok(());
    }
    ended.well().map(drop)
}

/// Lets writing go on.
pub(crate) async fn thaw(target: &Path) -> Result<(), Error> {
    require("fsfreeze", &["--unfreeze".as_ref(), target.as_ref()]).await.map(drop)
}

/// What a device holds; None if it is blank.
async fn found(device: &Path) -> Result<Option<String>, Error> {
    let arguments = ["--probe", "--output", "value", "--match-tag", "TYPE"].map(OsStr::new);
    let ended = attempt("blkid", &[&arguments[..], &[device.as_ref()]].concat()).await?;
    match ended.code {
        Some(0) => Ok(Some(ended.stdout.trim().to_owned())),
        Some(2) => Ok(None),
        _ => Err(ended.failure()),
    }
}

/// Repairs what can be repaired without a person.
async fn check_ext4(device: &Path) -> Result<(), Error> {
    let ended = attempt("e2fsck", &["-f".as_ref(), "-p".as_ref(), device.as_ref()]).await?;
    // 1 and 2 say that something was repaired.
    if matches!(ended.code, Some(0..=2)) { Ok(()) } else { Err(ended.failure()) }
}

/// A file is known by itself while it is there, and afterwards by its name.
async fn all_of(file: &Path) -> Result<Vec<PathBuf>, Error> {
    if file.exists() {
        let arguments = ["--noheadings", "--output", "NAME", "--associated"].map(OsStr::new);
        let listed = require("losetup", &[&arguments[..], &[file.as_ref()]].concat()).await?;
        return Ok(listed.split_whitespace().map(PathBuf::from).collect());
    }
    let arguments = ["--list", "--noheadings", "--output", "NAME,BACK-FILE"].map(OsStr::new);
    Ok(of_deleted(&require("losetup", &arguments).await?, file))
}

/// Finds the devices of a file that is gone, in lines of a device and the path its file had.
fn of_deleted(listed: &str, file: &Path) -> Vec<PathBuf> {
    let gone = format!("{} (deleted)", file.display());
    let lines = listed.lines().filter_map(|line| line.trim().split_once(' '));
    lines.filter(|(_, path)| path.trim() == gone).map(|(device, _)| device.into()).collect()
}

/// The kernel makes devices as they are asked for, but a container's /dev does not show them.
fn make_node(device: &Path) -> Result<(), Error> {
    if device.exists() {
        return Ok(());
    }
    let number = device.to_str().and_then(|path| path.strip_prefix("/dev/loop")).and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| Error::Internal(format!("{} is not a loop device", device.display())))?;
    mknod(device, SFlag::S_IFBLK, Mode::from_bits_truncate(0o660), makedev(LOOP_MAJOR, number))
        .map_err(Error::during(format!("making {}", device.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_of_a_deleted_file_is_found_by_name() {
        let listed = "\
/dev/loop0  /state/a b (deleted)
/dev/loop10 /state/a
/dev/loop2  /state/a (deleted)
/dev/loop3
";
        let table = [("/state/a", vec!["/dev/loop2"]), ("/state/a b", vec!["/dev/loop0"]), ("/state/c", vec![])];
        for (file, devices) in table {
            let devices: Vec<PathBuf> = devices.into_iter().map(PathBuf::from).collect();
            assert_eq!(of_deleted(listed, Path::new(file)), devices, "{file}");
        }
    }
}
