//! What is asked of the machine: the kernel's calls, the programs that know filesystems, and the files of the records.
//! Nothing here decides, and the tests play the other side with a model.
//!
//! No path is walked through a link, unless a method says so: a link anywhere in it is [`Failure::Link`].

use std::{
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use super::options::Flags;

/// Where the kernel says what a process has mounted.
pub const MOUNTINFO: &str = "/proc/self/mountinfo";

pub trait Kernel {
    /// The mounts of this process, as the kernel writes them.
    fn mountinfo(&self) -> Called<String>;

    /// Where a path leads, through links.
    fn resolve(&self, path: &Path) -> Called<PathBuf>;

    fn look(&self, path: &Path) -> Called<Seen>;

    /// Looks at a place where a filesystem of this number is mounted. Its server may be dead: where no answer comes in time, that is
    /// [`Failure::Silent`], and so at once while an earlier question to the same filesystem hangs.
    fn ask(&self, place: &Path, filesystem: Number) -> Called<Seen>;

    fn is_empty(&self, folder: &Path) -> Called<bool>;

    /// Makes the last element of a path.
    fn make(&self, path: &Path, point: Point) -> Called<()>;

    /// Removes an empty folder or an empty file.
    fn remove(&self, path: &Path, point: Point) -> Called<()>;

    /// Mounts a filesystem.
    fn mount(&self, new: &NewMount, target: &Path) -> Called<()>;

    /// Lets a program mount, which gets the source, the target, `-o` and the options.
    fn mount_by(&self, program: &str, source: &str, target: &Path, options: &str) -> Called<Ended>;

    /// Shows a folder or a device at another place too, if it is still what was seen.
    fn bind(&self, source: &Path, seen: &Seen, target: &Path) -> Called<()>;

    /// Gives one mount, and not its filesystem, these flags and no others.
    fn remount(&self, target: &Path, flags: &Flags) -> Called<()>;

    /// Takes away the last mount at a path. A lazy one is gone from the path at once, and ends when its last user does and all is written,
    /// for which nobody waits.
    fn unmount(&self, target: &Path, lazy: bool) -> Called<()>;

    /// Has everything on its disk that was written to the filesystem at a path.
    fn sync(&self, path: &Path) -> Called<()>;

    fn filled(&self, path: &Path) -> Called<Filled>;

    /// Gives a group all files below a folder, and the folder itself last, so that one look at it tells whether all was
    /// done. Crosses no mount and follows no link. Answers how many stay as they are, as this machine may not change them: a server may take
    /// its root for nobody.
    fn give(&self, folder: &Path, group: u32) -> Called<u64>;

    /// The address of a host's name.
    fn address(&self, host: &str) -> Called<IpAddr>;

    /// What a disk says that it is: its serial number, or its name in the world. Nothing, where its kind says nothing.
    fn ids(&self, device: &Path) -> Called<Vec<String>>;

    /// In bytes.
    fn device_size(&self, device: &Path) -> Called<u64>;

    /// Has the kernel ask the disk for its size, where the disk's kind needs that.
    fn rescan(&self, device: &Path) -> Called<()>;

    /// Lets some time pass.
    fn pause(&self, time: Duration);

    /// The first [`HEAD`] bytes of a device.
    fn head(&self, device: &Path) -> Called<Vec<u8>>;

    /// Whether the device, or a part of it, is kept for somebody: mounted wherever, or a part of a RAID or a volume group.
    fn is_held(&self, device: &Path) -> Called<bool>;

    /// Runs a program to its end. It is never stopped: a filesystem is safer with a program that takes long than with
    /// half of its work.
    fn run(&self, program: &str, arguments: &[&str]) -> Called<Ended>;

    fn read(&self, file: &Path) -> Called<String>;

    /// Writes a file whole, lasting and never half; makes its folder.
    fn write(&self, file: &Path, text: &str) -> Called<()>;

    fn erase(&self, file: &Path) -> Called<()>;

    /// The files of a folder.
    fn list(&self, folder: &Path) -> Called<Vec<PathBuf>>;
}

/// How much of a device [`Kernel::head`] reads.
pub const HEAD: usize = 1 << 20;

/// What is at the end of a path on which something is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    Folder,
    File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Folder,
    File,
    /// With its number.
    Device(Number),
    Other,
}

/// The number of a device: major and minor.
pub type Number = (u64, u64);

/// What is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    /// The id of the mount that it is on.
    pub mount: u64,
    /// Its file number there.
    pub file: u64,
    pub size: u64,
    pub group: u32,
    pub mode: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMount {
    pub source: String,
    pub filesystem: String,
    pub flags: Flags,
    /// The filesystem's own options.
    pub data: String,
}

/// How full a filesystem is: units of storage, and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filled {
    pub unit: u64,
    pub blocks: Left,
    pub files: Left,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub total: u64,
    pub free: u64,
    /// Of the free ones, those that are not kept for root.
    pub available: u64,
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// None after a signal.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// Why a call failed, as far as a decision hangs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    Missing,
    /// The path, or a part of it, is a link or leads through one.
    Link,
    Exists,
    NotEmpty,
    Busy,
    /// It is on another mount.
    Elsewhere,
    /// The other side of a mount is gone: a server forgot it, or its program ended.
    Dead,
    /// The other side has not answered in time, and may still do so.
    Silent,
    /// The kernel does not take these options, or this source.
    Unfit,
    /// What is on the disk is a filesystem, and not whole.
    Broken,
    Other(String),
}

pub type Called<T> = Result<T, Failure>;
