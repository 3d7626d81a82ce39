//! Gives files to a group.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, PermissionsExt, chown},
    },
    path::{Path, PathBuf},
};

use nix::fcntl::{OFlag, ResolveFlag};

use super::{link, open_in, told};
use crate::kernel::{Called, Failure};

/// Why a file stays as it is: somebody forbids it, all of it can only be read, or its filesystem knows no groups.
const KEPT: [io::ErrorKind; 3] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::Unsupported];

/// Answers how many files stay as they are. The folder itself comes last.
pub(super) fn all_below(root: &OwnedFd, group: u32) -> Called<u64> {
    let (mut folders, mut kept) = (vec![PathBuf::from(".")], 0);
    while let Some(next) = folders.pop() {
        for entry in entries(root, &next)?.into_iter().flatten() {
            let path = next.join(entry.map_err(told)?.file_name());
            if give_one(root, &path, group, &mut kept)? {
                folders.push(path);
            }
        }
    }
    give_one(root, Path::new("."), group, &mut kept)?;
    Ok(kept)
}

/// What is in a folder below a root, one by one, as there may be millions; nothing where something else is mounted.
fn entries(root: &OwnedFd, folder: &Path) -> Called<Option<fs::ReadDir>> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
    let folder = match open_in(root, folder, flags, ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV) {
        // It was replaced or removed since it was seen.
        Err(Failure::Missing | Failure::Link) => return Ok(None),
        folder => folder?,
    };
    fs::read_dir(link(&folder)).map(Some).map_err(told)
}

/// Whether it was a folder. One more is kept, where it may not be changed.
fn give_one(root: &OwnedFd, path: &Path, group: u32, kept: &mut u64) -> Called<bool> {
    let how = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
    let there = match open_in(root, path, OFlag::O_PATH, how) {
        // A link, something that is mounted here, or something that is gone.
        Err(Failure::Link | Failure::Missing | Failure::Elsewhere) => return Ok(false),
        there => there?,
    };
    let before = fs::metadata(link(&there)).map_err(told)?;
    match give_open(&there, &before, group) {
        Err(error) if KEPT.contains(&error.kind()) => *kept += 1,
        given => given.map_err(told)?,
    }
    Ok(before.is_dir())
}

fn give_open(there: &OwnedFd, before: &fs::Metadata, group: u32) -> io::Result<()> {
    chown(link(there), None, Some(group))?;
    let enter = before.is_dir() || before.mode() & 0o111 != 0;
    let bits = 0o060 | if enter { 0o010 } else { 0 } | if before.is_dir() { 0o2000 } else { 0 };
    let mode = fs::Permissions::from_mode((before.mode() & 0o7777) | bits);
    fs::set_permissions(link(there), mode)
}
