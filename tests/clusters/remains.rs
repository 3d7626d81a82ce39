//! What a fleet could leave on the machine, and its removal: loop devices, cgroups, the folder. In this order, so
//! that as long as anything is left the folder is, and whoever comes next finds it.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{Context, Result};

const PREFIX: &str = "kosmos-csi-";
const CGROUPS: &str = "/sys/fs/cgroup";

/// Makes a fleet's folder, locked for as long as the file is open. With no name it gets one of its own.
/// Fleets whose guardian died without cleaning up are removed first.
pub fn claim_folder(name: Option<&str>) -> Result<(PathBuf, File)> {
    let parent = env::temp_dir();
    let one_at_a_time = File::open(&parent).with_context(|| format!("open {}", parent.display()))?;
    one_at_a_time.lock().context("lock the temp folder")?;
    sweep(&parent)?;
    let folder = match name {
        Some(name) => named_folder(name),
        None => tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).context("make the fleet's folder")?.keep(),
    };
    if name.is_some() {
        fs::create_dir(&folder).with_context(|| format!("make {}: is that fleet up already?", folder.display()))?;
    }
    let lock = File::open(&folder).context("open the fleet's folder")?;
    lock.lock().context("lock the fleet's folder")?;
    Ok((folder, lock))
}

/// The folder of a fleet that a person started.
pub fn named_folder(name: &str) -> PathBuf {
    env::temp_dir().join(format!("{PREFIX}up-{name}"))
}

/// The name of a fleet's cgroup in every hierarchy: that of its folder.
pub fn cgroup_name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Every hierarchy of version 1, or the single one of version 2.
pub fn cgroup_hierarchies() -> Result<Vec<PathBuf>> {
    let root = PathBuf::from(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return Ok(vec![root]);
    }
    let entries = fs::read_dir(&root).context("list the cgroup hierarchies")?;
    let mut hierarchies: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    hierarchies.retain(|path| path.is_dir());
    Ok(hierarchies)
}

fn sweep(parent: &Path) -> Result<()> {
    for entry in fs::read_dir(parent).context("list the temp folder")?.flatten() {
        let is_fleet = entry.file_name().to_string_lossy().starts_with(PREFIX) && entry.path().is_dir();
        let unlocked = || File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_fleet && unlocked() {
            remove(&entry.path()).with_context(|| format!("remove the dead fleet {}", entry.path().display()))?;
        }
    }
    Ok(())
}

/// Removes what is left of a fleet whose processes are gone.
pub fn remove(folder: &Path) -> Result<()> {
    detach_loop_devices(folder)?;
    for hierarchy in cgroup_hierarchies()? {
        remove_cgroup(&hierarchy.join(cgroup_name(folder)))?;
    }
    // Something that was killed a moment ago may still be at work on its last file.
    patiently(|| fs::remove_dir_all(folder)).with_context(|| format!("remove {}", folder.display()))
}

fn detach_loop_devices(folder: &Path) -> Result<()> {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return Ok(());
    };
    for device in devices.flatten() {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(backing.trim()).starts_with(folder) {
            let path = Path::new("/dev").join(device.file_name());
            Command::new("losetup").arg("-d").arg(path).status().context("run losetup")?;
        }
    }
    Ok(())
}

fn remove_cgroup(cgroup: &Path) -> Result<()> {
    let Ok(children) = fs::read_dir(cgroup) else {
        return Ok(());
    };
    for child in children.flatten().filter(|child| child.path().is_dir()) {
        remove_cgroup(&child.path())?;
    }
    // A cgroup stays busy for a moment after its last process.
    patiently(|| fs::remove_dir(cgroup)).with_context(|| format!("remove the cgroup {}", cgroup.display()))
}

fn patiently(remove: impl Fn() -> std::io::Result<()>) -> std::io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        match remove() {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(_) if Instant::now() < deadline => thread::sleep(Duration::from_millis(50)),
            result => return result,
        }
    }
}
