//! Mounts and unmounts. Every step asks the kernel first what is there, so each can be repeated after any crash.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use mount::table::{Mount, Table};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::statvfs::{Statvfs, statvfs};
use tokio::task::spawn_blocking;

use crate::error::Error;
use crate::volume::Format;

/// Options that the kernel takes as flags. Those that only undo a flag are the kernel's own defaults.
const FLAGS: [(&str, MsFlags); 18] = [
    ("async", MsFlags::empty()),
    ("atime", MsFlags::empty()),
    ("defaults", MsFlags::empty()),
    ("dev", MsFlags::empty()),
    ("exec", MsFlags::empty()),
    ("rw", MsFlags::empty()),
    ("suid", MsFlags::empty()),
    ("diratime", MsFlags::empty()),
    ("dirsync", MsFlags::MS_DIRSYNC),
    ("noatime", MsFlags::MS_NOATIME),
    ("nodev", MsFlags::MS_NODEV),
    ("nodiratime", MsFlags::MS_NODIRATIME),
    ("noexec", MsFlags::MS_NOEXEC),
    ("nosuid", MsFlags::MS_NOSUID),
    ("relatime", MsFlags::MS_RELATIME),
    ("ro", MsFlags::MS_RDONLY),
    ("strictatime", MsFlags::MS_STRICTATIME),
    ("sync", MsFlags::MS_SYNCHRONOUS),
];

/// What is at the end of a target path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Folder,
    File,
}

pub(crate) fn table() -> Result<Table, Error> {
    let bytes = fs::read("/proc/self/mountinfo").map_err(Error::during("reading the mounts"))?;
    Table::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| Error::Internal(error.to_string()))
}

/// What is mounted at `target`.
pub(crate) fn at(target: &Path) -> Result<Option<Mount>, Error> {
    Ok(table()?.at(&as_mounted(target)).cloned())
}

/// The kernel knows a mount by its path without symbolic links.
pub(crate) fn as_mounted(target: &Path) -> PathBuf {
    let parent = target.parent().and_then(|parent| parent.canonicalize().ok());
    match (parent, target.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => target.to_owned(),
    }
}

/// Makes the last element of `target`, and no more.
pub(crate) fn make_leaf(target: &Path, leaf: Leaf) -> Result<(), Error> {
    let made = match leaf {
        Leaf::Folder => fs::create_dir(target),
        Leaf::File => fs::File::create_new(target).map(drop),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::Internal(format!("making {}: {error}", target.display())))
        }
        _ => Ok(()),
    }
}

/// Mounts the filesystem on `device`.
pub(crate) async fn filesystem(
    device: &Path,
    target: &Path,
    format: Format,
    options: &[String],
    read_only: bool,
) -> Result<(), Error> {
    let (mut flags, mut data) = split(options);
    flags.set(MsFlags::MS_RDONLY, read_only || flags.contains(MsFlags::MS_RDONLY));
    let name = if format == Format::Xfs {
        // A volume and its copy carry the same identity, and xfs would refuse to mount both.
        data.push("nouuid");
        "xfs"
    } else {
        "ext4"
    };
    call_mount(Some(device), target, Some(name), flags, Some(data.join(","))).await
}

/// Shows `source` at `target` too, with the flags among `options`.
pub(crate) async fn bind(source: &Path, target: &Path, options: &[String]) -> Result<(), Error> {
    let (flags, data) = split(options);
    if let Some(option) = data.first() {
        return Err(Error::Invalid(format!("the mount option {option:?} means nothing to a folder")));
    }
    call_mount(Some(source), target, None, MsFlags::MS_BIND, None).await?;
    if flags.is_empty() { Ok(()) } else { rebind(target, flags).await }
}

/// Makes a bind mount read-only and keeps its other flags. The kernel ignores this while it binds, so it is a second step.
pub(crate) async fn make_read_only(target: &Path) -> Result<(), Error> {
    let there = at(target)?.ok_or_else(|| Error::Internal(format!("nothing is mounted at {}", target.display())))?;
    let (flags, _) = split(&there.options);
    rebind(target, flags | MsFlags::MS_RDONLY).await
}

async fn rebind(target: &Path, flags: MsFlags) -> Result<(), Error> {
    call_mount(None, target, None, flags | MsFlags::MS_BIND | MsFlags::MS_REMOUNT, None).await
}

/// Unmounts everything at `target`, however often something was mounted there.
pub(crate) async fn unmount(target: &Path) -> Result<(), Error> {
    while at(target)?.is_some() {
        let path = target.to_owned();
        blocking(move || umount2(&path, MntFlags::UMOUNT_NOFOLLOW))
            .await?
            .map_err(Error::during(format!("unmounting {}", target.display())))?;
    }
    Ok(())
}

/// Removes the mount point, which is an empty folder or an empty file; anything else there is not ours.
pub(crate) fn remove_leaf(target: &Path) -> Result<(), Error> {
    let removed = fs::symlink_metadata(target).and_then(|leaf| {
        if leaf.is_dir() {
            fs::remove_dir(target)
        } else if leaf.is_file() && leaf.len() == 0 {
            fs::remove_file(target)
        } else {
            Err(std::io::Error::other("it is not an empty file or folder"))
        }
    });
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::Internal(format!("removing {}: {error}", target.display())))
        }
        _ => Ok(()),
    }
}

pub(crate) async fn usage(target: &Path) -> Result<Statvfs, Error> {
    let path = target.to_owned();
    blocking(move || statvfs(&path)).await?.map_err(Error::during(format!("measuring {}", target.display())))
}

async fn call_mount(
    source: Option<&Path>,
    target: &Path,
    filesystem: Option<&'static str>,
    flags: MsFlags,
    data: Option<String>,
) -> Result<(), Error> {
    let (from, to) = (source.map(Path::to_owned), target.to_owned());
    blocking(move || mount(from.as_deref(), &to, filesystem, flags, data.as_deref()))
        .await?
        .map_err(Error::during(format!("mounting {}", target.display())))
}

/// The kernel may take its time over a disk.
async fn blocking<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    spawn_blocking(call).await.map_err(Error::during("a call to the kernel"))
}

/// Parts the options into the kernel's flags and the filesystem's own words.
fn split(options: &[String]) -> (MsFlags, Vec<&str>) {
    let mut flags = MsFlags::empty();
    let mut data = Vec::new();
    for option in options.iter().flat_map(|options| options.split(',')).filter(|option| !option.is_empty()) {
        match FLAGS.iter().find(|(name, _)| *name == option) {
            Some((_, flag)) => flags |= *flag,
            None => data.push(option),
        }
    }
    (flags, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn options_are_flags_or_the_filesystems_own() {
        let table = [
            (vec![], MsFlags::empty(), vec![]),
            (vec!["ro"], MsFlags::MS_RDONLY, vec![]),
            (vec!["rw", "defaults"], MsFlags::empty(), vec![]),
            (vec!["noatime,nodev", "discard"], MsFlags::MS_NOATIME | MsFlags::MS_NODEV, vec!["discard"]),
            (vec!["commit=5", "", "data=ordered"], MsFlags::empty(), vec!["commit=5", "data=ordered"]),
        ];
        for (words, flags, data) in table {
            assert_eq!(split(&options(&words)), (flags, data));
        }
    }

    #[test]
    fn only_the_last_element_is_made_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path();
        for (name, leaf) in [("file", Leaf::File), ("folder", Leaf::Folder)] {
            let target = parent.join(name);
            for _ in 0..2 {
                make_leaf(&target, leaf).unwrap();
            }
            for _ in 0..2 {
                remove_leaf(&target).unwrap();
            }
            assert!(!target.exists());
        }
        assert!(make_leaf(&parent.join("missing/leaf"), Leaf::Folder).is_err());
    }

    #[test]
    fn what_holds_data_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data"), "x").unwrap();
        assert!(remove_leaf(&folder.path().join("data")).is_err());
        assert!(remove_leaf(folder.path()).is_err());
        assert!(folder.path().join("data").exists());
    }

    #[test]
    fn a_path_through_a_link_is_known_by_where_it_leads() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real");
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
        assert_eq!(as_mounted(&folder.path().join("link/target")), real.canonicalize().unwrap().join("target"));
    }
}
