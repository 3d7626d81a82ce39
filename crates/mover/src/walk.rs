//! A tree, thing by thing in the order of `Entry::compare_places`. No link is followed, and nothing is opened but files and
//! folders.

use std::{
    collections::{HashMap, hash_map},
    ffi::{CStr, CString},
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    vec,
};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat, open, openat, readlinkat, statat};
use tokio_util::sync::CancellationToken;

use crate::{
    attributes,
    content::Reader,
    entry::{BLOCK_DEVICE, CHARACTER_DEVICE, Entry, FILE, FOLDER, LINK, Time, kind_of, shown},
};

/// The folder that a check of an ext filesystem puts finds into.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Bytes of a path that rsync carries. Whoever goes deeper into a volume could be made to keep more and more of them, a path for each folder.
const LONGEST_PATH: usize = 4095;
/// Bytes of a longer one that are told.
const BEGINNING: usize = 200;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Names, kinds and sizes.
    Survey,
    /// Everything, contents as well.
    Whole,
}

#[derive(Debug)]
pub struct Walk {
    root: Option<OwnedFd>,
    device: u64,
    depth: Depth,
    with_lost_and_found: bool,
    /// How exact times are where the copy is, in nanoseconds.
    granularity: u32,
    open: Vec<Folder>,
    /// Of files with several names, some perhaps outside the tree: the first that was met.
    first_names: HashMap<u64, Vec<u8>>,
    reader: Reader,
    bytes: Arc<AtomicU64>,
    met: Arc<AtomicU64>,
    /// What the files that were met take of their filesystem.
    stored: u64,
}

#[derive(Debug)]
struct Folder {
    handle: OwnedFd,
    path: Vec<u8>,
    names: vec::IntoIter<CString>,
}

impl Walk {
    /// Counts in `bytes` what of files was read.
    pub fn new(root: &Path, depth: Depth, bytes: Arc<AtomicU64>) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
        let handle = open(root, flags, Mode::empty())?;
        let device = rustix::fs::fstat(&handle)?.st_dev;
        Ok(Self {
            root: Some(handle),
            device,
            depth,
            with_lost_and_found: true,
            granularity: 1,
            open: Vec::new(),
            first_names: HashMap::new(),
            reader: Reader::default(),
            bytes,
            met: Arc::default(),
            stored: 0,
        })
    }

    /// As the two sides have agreed.
    #[must_use]
    pub fn agreed(self, with_lost_and_found: bool, granularity: u32) -> Self {
        Self { with_lost_and_found, granularity: granularity.max(1), ..self }
    }

    /// Ends with an error where it is told to, also in the middle of a file.
    #[must_use]
    pub fn until(self, stop: CancellationToken) -> Self {
        Self { reader: self.reader.until(stop), ..self }
    }

    /// Counts there each entry and each name that was read as well.
    #[must_use]
    pub fn noted(self, met: Arc<AtomicU64>) -> Self {
        Self { met, ..self }
    }

    fn step(&mut self) -> io::Result<Option<Entry>> {
        if let Some(root) = self.root.take() {
            let entry = self.entry(root.as_fd(), c".", Vec::new())?;
            self.enter(root, Vec::new())?;
            return Ok(Some(entry));
        }
        while let Some(folder) = self.open.last_mut() {
            let Some(name) = folder.names.next() else {
                self.open.pop();
                continue;
            };
            let mut path = folder.path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.to_bytes());
            if path == LOST_AND_FOUND && !self.with_lost_and_found {
                continue;
            }
            if path.len() > LONGEST_PATH {
                let begins = shown(&path[..BEGINNING]);
                let text = format!("a path is longer than {LONGEST_PATH} bytes, which rsync does not carry: {begins}");
                return Err(io::Error::other(text));
            }
            return self.visit(&name, path.clone()).map(Some).map_err(|error| at(&path, &error));
        }
        Ok(None)
    }

    fn visit(&mut self, name: &CStr, path: Vec<u8>) -> io::Result<Entry> {
        let folder = self.open.pop().ok_or_else(|| io::Error::other("no folder is open"))?;
        let visited = self.entry(folder.handle.as_fd(), name, path.clone());
        let inner = match &visited {
            Ok(entry) if entry.kind() == FOLDER => Some(enter(folder.handle.as_fd(), name)?),
            _ => None,
        };
        self.open.push(folder);
        if let Some(handle) = inner {
            self.enter(handle, path)?;
        }
        visited
    }

    fn enter(&mut self, handle: OwnedFd, path: Vec<u8>) -> io::Result<()> {
        let mut names = Vec::new();
        for there in Dir::read_from(&handle)? {
            let name = there?.file_name().to_owned();
            self.met.fetch_add(1, Ordering::Relaxed);
            if name.as_c_str() != c"." && name.as_c_str() != c".." {
                names.push(name);
            }
        }
        names.sort();
        self.open.push(Folder { handle, path, names: names.into_iter() });
        Ok(())
    }

    fn entry(&mut self, folder: impl AsFd, name: &CStr, path: Vec<u8>) -> io::Result<Entry> {
        let folder = folder.as_fd();
        let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        self.met.fetch_add(1, Ordering::Relaxed);
        if stat.st_dev != self.device {
            return Err(io::Error::other("another filesystem is mounted there"));
        }
        let mut entry = Entry {
            mode: stat.st_mode,
            owner: stat.st_uid,
            group: stat.st_gid,
            modified: self.time(&stat)?,
            same_file_as: self.first_name(&stat, &path),
            path,
            ..Entry::default()
        };
        match entry.kind() {
            FILE => {
                entry.size = u64::try_from(stat.st_size).map_err(io::Error::other)?;
                if entry.is_first_name() {
                    self.stored += u64::try_from(stat.st_blocks).map_err(io::Error::other)? * 512;
                    entry.digest = self.content(folder, name, entry.size)?;
                }
            }
            LINK => entry.link_target = readlinkat(folder, name, Vec::new())?.into_bytes(),
            CHARACTER_DEVICE | BLOCK_DEVICE => entry.device = stat.st_rdev,
            _ => {}
        }
        if self.depth == Depth::Whole {
            // By the folder's handle: the name is the only part of the path that could lead elsewhere, and is not followed.
            let place = format!("/proc/self/fd/{}/", folder.as_raw_fd()).into_bytes();
            entry.attributes = attributes::read(&CString::new([&place, name.to_bytes()].concat())?)?;
        }
        Ok(entry)
    }

    fn content(&mut self, folder: impl AsFd, name: &CStr, size: u64) -> io::Result<Vec<u8>> {
        if self.depth == Depth::Survey {
            return Ok(Vec::new());
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(folder, name, flags, Mode::empty())?);
        self.reader.digest(&file, size, &self.bytes)
    }

    fn first_name(&mut self, stat: &Stat, path: &[u8]) -> Vec<u8> {
        if stat.st_nlink < 2 || kind_of(stat.st_mode) == FOLDER {
            return Vec::new();
        }
        match self.first_names.entry(stat.st_ino) {
            hash_map::Entry::Occupied(first) => first.get().clone(),
            hash_map::Entry::Vacant(none) => {
                none.insert(path.to_vec());
                Vec::new()
            }
        }
    }

    fn time(&self, stat: &Stat) -> io::Result<Time> {
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).map_err(io::Error::other)?;
        Ok(Time { seconds: stat.st_mtime, nanoseconds: nanoseconds / self.granularity * self.granularity })
    }
}

impl Iterator for Walk {
    type Item = io::Result<Entry>;

    /// Nothing comes after an error: what was not seen cannot be told to be the same.
    fn next(&mut self) -> Option<io::Result<Entry>> {
        let stepped = self.step().transpose();
        if let Some(Err(_)) = stepped {
            self.open.clear();
        }
        stepped
    }
}

fn enter(folder: impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NOATIME | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

fn at(path: &[u8], error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", shown(path)))
}

/// What a copy of a tree takes.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Survey {
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    /// Of all files, holes as well.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// What they take of their filesystem.
    #[prost(uint64, tag = "3")]
    pub stored: u64,
    #[prost(bool, tag = "4")]
    pub has_hard_links: bool,
    /// Somebody's data is in it; else it is the filesystem's own affair.
    #[prost(bool, tag = "5")]
    pub with_lost_and_found: bool,
    /// Of a file with several names one.
    #[prost(uint64, tag = "6")]
    pub inodes: u64,
}

impl Survey {
    pub fn of(root: &Path) -> io::Result<Self> {
        Self::noted(root, Arc::default())
    }

    /// The same, and counts there what it meets.
    pub fn noted(root: &Path, met: Arc<AtomicU64>) -> io::Result<Self> {
        let mut survey = Self::default();
        let mut walk = Walk::new(root, Depth::Survey, Arc::default())?.noted(met);
        for entry in walk.by_ref() {
            let entry = entry?;
            survey.entries += 1;
            survey.inodes += u64::from(entry.is_first_name());
            survey.bytes += if entry.is_first_name() { entry.size } else { 0 };
            survey.has_hard_links |= !entry.same_file_as.is_empty();
            survey.with_lost_and_found |= is_in_lost_and_found(&entry);
        }
        Ok(Self { stored: walk.stored, ..survey })
    }
}

fn is_in_lost_and_found(entry: &Entry) -> bool {
    let is_it = entry.path == LOST_AND_FOUND && entry.kind() != FOLDER;
    is_it || entry.path.strip_prefix(LOST_AND_FOUND).is_some_and(|rest| rest.starts_with(b"/"))
}

#[cfg(test)]
mod tests {
    use rustix::fs::mkdirat;

    use super::*;

    #[test]
    fn tree_is_read_as_deep_as_rsync_carries_it_and_no_deeper() {
        let folder = tempfile::tempdir().unwrap();
        let mut innermost = open(folder.path(), OFlags::RDONLY, Mode::empty()).unwrap();
        let name = "d".repeat(255);
        for _ in 0..16 {
            mkdirat(&innermost, name.as_str(), Mode::RWXU).unwrap();
            innermost = openat(&innermost, name.as_str(), OFlags::RDONLY, Mode::empty()).unwrap();
        }
        assert_eq!(Survey::of(folder.path()).unwrap().entries, 17, "the last path has 4095 bytes");
        mkdirat(&innermost, "d", Mode::RWXU).unwrap();
        let error = Survey::of(folder.path()).unwrap_err().to_string();
        assert!(error.starts_with("a path is longer than 4095 bytes") && error.len() < 1000, "{error}");
    }

    /// A destination of less inodes than names has room for it.
    #[test]
    fn file_with_several_names_takes_one_inode() {
        let folder = tempfile::tempdir().unwrap();
        let name = |name: &str| folder.path().join(name);
        std::fs::write(name("a"), "data").unwrap();
        for other in ["b", "c"] {
            std::fs::hard_link(name("a"), name(other)).unwrap();
        }
        let survey = Survey::of(folder.path()).unwrap();
        assert_eq!((survey.entries, survey.inodes, survey.bytes), (4, 2, 4), "with the root folder");
    }
}
