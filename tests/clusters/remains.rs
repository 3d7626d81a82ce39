//! What a fleet could leave on the machine, and its removal: loop devices, cgroups, the folder. In this order, so
//! that as long as anything is left the folder is, and whoever comes next finds it.

use std::collections::BTreeSet;
use std::env;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::stat::{major, minor};
use nix::sys::statvfs::statvfs;
use nix::unistd::geteuid;

use super::wait::wait_blocking;

const PATIENCE: Duration = Duration::from_secs(5);
/// Short, because sockets lie below and their paths may not be long. Whatever is called so is taken for a fleet.
const PREFIX: &str = "kosmos-fleet-";
const CGROUPS: &str = "/sys/fs/cgroup";
/// Above what a fleet takes, and above what its kubelets keep free.
const MEBIBYTES_NEEDED: u64 = 2048;

/// Makes a fleet's folder, locked for as long as the file is open. With no name it gets one of its own.
/// Fleets whose guardian died without cleaning up are removed first.
pub fn claim_folder(name: Option<&str>) -> Result<(PathBuf, File)> {
    let parent = env::temp_dir();
    let _one_at_a_time = sweep()?;
    ensure_room(&parent)?;
    let folder = match name {
        Some(name) => make_named_folder(name)?,
        None => tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent).context("make the fleet's folder")?.keep(),
    };
    let lock = File::open(&folder).context("open the fleet's folder")?;
    lock.lock().context("lock the fleet's folder")?;
    Ok((folder, lock))
}

/// Where the disk is full, kubelets evict what they run, and tests fail far from the cause.
fn ensure_room(parent: &Path) -> Result<()> {
    let disk = statvfs(parent).with_context(|| format!("see how full the disk of {} is", parent.display()))?;
    let free = disk.blocks_available() * disk.fragment_size() / (1 << 20);
    ensure!(
        free >= MEBIBYTES_NEEDED,
        "{} has {free} MiB left, and a fleet of clusters needs {MEBIBYTES_NEEDED} MiB: make room there, or set TMPDIR to a \
         folder on another disk",
        parent.display()
    );
    Ok(())
}

/// The keys of the clusters' administrators are in it.
fn make_named_folder(name: &str) -> Result<PathBuf> {
    let folder = named_folder(name)?;
    let made = DirBuilder::new().mode(0o700).create(&folder);
    made.with_context(|| format!("make {}: is that fleet up already?", folder.display()))?;
    Ok(folder)
}

/// The folder of a fleet that a person started. Somebody else's is not used: its kubeconfigs may have programs run.
pub fn named_folder(name: &str) -> Result<PathBuf> {
    let folder = env::temp_dir().join(format!("{PREFIX}up-{name}"));
    if let Ok(there) = folder.symlink_metadata() {
        let is_ours = there.is_dir() && there.uid() == geteuid().as_raw();
        ensure!(is_ours, "{} belongs to somebody else: remove it, or give the fleet another name", folder.display());
    }
    Ok(folder)
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

/// Removes what is left of fleets whose guardian died. Nobody else makes or removes one until the file is closed.
pub fn sweep() -> Result<File> {
    let parent = env::temp_dir();
    let lock = File::open(&parent).with_context(|| format!("open {}", parent.display()))?;
    lock.lock().context("lock the temp folder")?;
    for entry in fs::read_dir(&parent).context("list the temp folder")?.flatten() {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let is_fleet = is_folder && entry.file_name().to_string_lossy().starts_with(PREFIX);
        let unlocked = || File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_fleet && unlocked() {
            remove(&entry.path()).with_context(|| format!("remove the dead fleet {}", entry.path().display()))?;
        }
    }
    Ok(lock)
}

/// Removes what is left of a fleet whose processes are gone.
pub fn remove(folder: &Path) -> Result<()> {
    detach_loop_devices(folder)?;
    for hierarchy in cgroup_hierarchies()? {
        remove_cgroup(&hierarchy.join(cgroup_name(folder)))?;
    }
    // Something that was killed a moment ago may still be at work on its last file.
    patiently(&format!("{} is removed", folder.display()), || fs::remove_dir_all(folder))
}

/// A device of a file that a node has made shows it under the node's own path, which tells nothing here, so such files are
/// known by their numbers.
fn detach_loop_devices(folder: &Path) -> Result<()> {
    let mut files = BTreeSet::new();
    for cluster in fs::read_dir(folder).into_iter().flatten().flatten() {
        collect_numbers(&cluster.path().join("lib/kubelet/plugins"), &mut files);
    }
    let columns = "NAME,BACK-MAJ:MIN,BACK-INO,BACK-FILE";
    let listed = Command::new("losetup").args(["--list", "--noheadings", "--raw", "--output", columns]).output();
    let Ok(listed) = listed else {
        return Ok(());
    };
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [device, disk, number, file] = words[..] else { continue };
        // Some versions fill the column with blanks, and write each as this.
        let disk = disk.replace("\\x20", "");
        let is_made_by_a_node = files.contains(&format!("{disk} {number}"));
        if is_made_by_a_node || Path::new(file).starts_with(folder) {
            Command::new("losetup").args(["-d", device]).status().context("run losetup")?;
        }
    }
    Ok(())
}

/// Of all files below a folder: the number of their disk, and theirs on it.
fn collect_numbers(folder: &Path, numbers: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect_numbers(&entry.path(), numbers),
            Ok(kind) if kind.is_file() => {
                let Ok(file) = entry.metadata() else { continue };
                numbers.insert(format!("{}:{} {}", major(file.dev()), minor(file.dev()), file.ino()));
            }
            _ => {}
        }
    }
}

fn remove_cgroup(cgroup: &Path) -> Result<()> {
    let Ok(children) = fs::read_dir(cgroup) else {
        return Ok(());
    };
    for child in children.flatten().filter(|child| child.path().is_dir()) {
        remove_cgroup(&child.path())?;
    }
    // A cgroup stays busy for a moment after its last process.
    patiently(&format!("the cgroup {} is removed", cgroup.display()), || fs::remove_dir(cgroup))
}

fn patiently(what: &str, remove: impl Fn() -> io::Result<()>) -> Result<()> {
    wait_blocking(what, PATIENCE, || match remove() {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(Some(())),
    })
}
