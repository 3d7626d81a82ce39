//! The machine's own kernel. Every path is opened from the root, without following a link anywhere, and the call is made
//! on what was opened: whatever is swapped meanwhile, it happens there or nowhere.
//!
//! What is open keeps its mount busy, so nothing stays open after a call.

mod give;
mod silent;

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    net::{IpAddr, ToSocketAddrs},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::{
        stat::{Mode, SFlag, mkdirat, mknodat},
        statvfs::fstatvfs,
    },
    unistd::{UnlinkatFlags, syncfs, unlinkat},
};

use super::{
    disk,
    kernel::{Called, Ended, Failure, Filled, HEAD, Kernel, Kind, Left, MOUNTINFO, NewMount, Number, Point, Seen},
    options::{Flag, Flags},
    table::Table,
};

/// Of what a program prints, this much is kept: it may have met a disk that somebody has made to be told of without end.
const PRINTED: u64 = 64 << 10;

/// Where the kernel says what a disk told it of itself: virtio, SCSI (once as a page of bytes) and NVMe.
const IDS: [&str; 5] = ["serial", "device/vpd_pg80", "device/wwid", "device/serial", "wwid"];

#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

impl Kernel for Linux {
    fn mountinfo(&self) -> Called<String> {
        // Bytes that are no text stand for themselves in no path of ours.
        Ok(String::from_utf8_lossy(&fs::read(MOUNTINFO).map_err(told)?).into_owned())
    }

    fn resolve(&self, path: &Path) -> Called<PathBuf> {
        path.canonicalize().map_err(told)
    }

    fn look(&self, path: &Path) -> Called<Seen> {
        seen(&open(path)?)
    }

    fn ask(&self, place: &Path, filesystem: Number) -> Called<Seen> {
        let place = place.to_owned();
        silent::ask(filesystem, move || {
            let there = open(&place)?;
            let found = seen(&there)?;
            // That may be remembered from when its server still answered; this never is.
            let dead = fstatvfs(&there).is_err_and(|errno| failure(errno) == Failure::Dead);
            if dead { Err(Failure::Dead) } else { Ok(found) }
        })
    }

    fn is_empty(&self, folder: &Path) -> Called<bool> {
        let folder = open_as(folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?;
        Ok(fs::read_dir(link(&folder)).map_err(told)?.next().is_none())
    }

    fn make(&self, path: &Path, point: Point) -> Called<()> {
        let (parent, name) = parent(path)?;
        match point {
            Point::Folder => mkdirat(&parent, name, Mode::from_bits_truncate(0o750)),
            Point::File => mknodat(&parent, name, SFlag::S_IFREG, Mode::from_bits_truncate(0o640), 0),
        }
        .map_err(failure)
    }

    fn remove(&self, path: &Path, point: Point) -> Called<()> {
        let (parent, name) = parent(path)?;
        let flag = match point {
            Point::Folder => UnlinkatFlags::RemoveDir,
            Point::File => {
                let there = seen(&open(path)?)?;
                if there.kind != Kind::File || there.size > 0 {
                    return Err(Failure::NotEmpty);
                }
                UnlinkatFlags::NoRemoveDir
            }
        };
        unlinkat(&parent, name, flag).map_err(failure)
    }

    fn mount(&self, new: &NewMount, target: &Path) -> Called<()> {
        let target = open(target)?;
        let data = Some(new.data.as_str()).filter(|data| !data.is_empty());
        let flags = bits(&new.flags);
        mount(Some(new.source.as_str()), &link(&target), Some(new.filesystem.as_str()), flags, data).map_err(failure)
    }

    fn mount_by(&self, program: &str, source: &str, target: &Path, options: &str) -> Called<Ended> {
        let target = open(target)?;
        // The program's own /proc/self is another one.
        let target = format!("/proc/{}/fd/{}", std::process::id(), target.as_raw_fd());
        let mut arguments = vec![source, target.as_str()];
        if !options.is_empty() {
            arguments.extend(["-o", options]);
        }
        self.run(program, &arguments)
    }

    fn bind(&self, source: &Path, expected: &Seen, target: &Path) -> Called<()> {
        let (source, target) = (open(source)?, open(target)?);
        let there = seen(&source)?;
        if (there.kind, there.mount, there.file) != (expected.kind, expected.mount, expected.file) {
            return Err(Failure::Other("it has been replaced meanwhile".to_owned()));
        }
        let nothing = None::<&str>;
        mount(Some(&link(&source)), &link(&target), nothing, MsFlags::MS_BIND, nothing).map_err(failure)
    }

    fn remount(&self, target: &Path, flags: &Flags) -> Called<()> {
        let target = open(target)?;
        let nothing = None::<&str>;
        let flags = bits(flags) | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        mount(nothing, &link(&target), nothing, flags, nothing).map_err(failure)
    }

    fn unmount(&self, target: &Path, lazy: bool) -> Called<()> {
        // What is open in a mount keeps it, so the way to it is held by its parent.
        let (parent, name) = parent(target)?;
        let name = name.to_owned();
        let call =
            move |how: MntFlags| umount2(&link(&parent).join(&name), MntFlags::UMOUNT_NOFOLLOW | how).map_err(failure);
        if !lazy {
            return call(MntFlags::empty());
        }
        // It is not given up before the mount is gone: it might take the next one.
        let before = mounts_at(target)?;
        let is_gone = || mounts_at(target).is_ok_and(|now| now < before);
        silent::until_done(move || call(MntFlags::MNT_DETACH), is_gone)
    }

    fn sync(&self, path: &Path) -> Called<()> {
        syncfs(open_as(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?).map_err(failure)
    }

    fn filled(&self, path: &Path) -> Called<Filled> {
        let told = fstatvfs(open(path)?).map_err(failure)?;
        let left = |total, free, available| Left { total, free, available };
        Ok(Filled {
            unit: told.fragment_size(),
            blocks: left(told.blocks(), told.blocks_free(), told.blocks_available()),
            files: left(told.files(), told.files_free(), told.files_available()),
        })
    }

    fn give(&self, folder: &Path, group: u32) -> Called<u64> {
        give::all_below(&open_as(folder, OFlag::O_RDONLY | OFlag::O_DIRECTORY)?, group)
    }

    fn address(&self, host: &str) -> Called<IpAddr> {
        let found = (host, 0).to_socket_addrs().map_err(told)?.next();
        found.map(|address| address.ip()).ok_or(Failure::Missing)
    }

    fn ids(&self, device: &Path) -> Called<Vec<String>> {
        let Kind::Device((major, minor)) = self.look(device)?.kind else {
            return Err(Failure::Missing);
        };
        let told = IDS.iter().filter_map(|file| fs::read(format!("/sys/dev/block/{major}:{minor}/{file}")).ok());
        Ok(told.map(|id| disk::id_in(&id)).filter(|id| !id.is_empty()).collect())
    }

    fn device_size(&self, device: &Path) -> Called<u64> {
        open_device(device, OFlag::empty())?.seek(SeekFrom::End(0)).map_err(told)
    }

    fn rescan(&self, device: &Path) -> Called<()> {
        let Kind::Device((major, minor)) = self.look(device)?.kind else {
            return Err(Failure::Missing);
        };
        match OpenOptions::new().write(true).open(format!("/sys/dev/block/{major}:{minor}/device/rescan")) {
            Ok(mut file) => file.write_all(b"1").map_err(told),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(told(error)),
        }
    }

    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }

    fn head(&self, device: &Path) -> Called<Vec<u8>> {
        let mut head = Vec::new();
        open_device(device, OFlag::empty())?.take(HEAD as u64).read_to_end(&mut head).map_err(told)?;
        Ok(head)
    }

    fn is_held(&self, device: &Path) -> Called<bool> {
        match open_device(device, OFlag::O_EXCL) {
            Ok(_) => Ok(false),
            Err(Failure::Busy) => Ok(true),
            Err(failure) => Err(failure),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Called<Ended> {
        let mut command = Command::new(program);
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().map_err(told)?;
        let (out, err) = (running.stdout.take(), running.stderr.take());
        let (stdout, stderr) = thread::scope(|scope| {
            let out = scope.spawn(|| beginning(out));
            let stderr = beginning(err);
            let unread = |_| Err(Failure::Other(format!("what {program} prints cannot be read")));
            (out.join().unwrap_or_else(unread), stderr)
        });
        let ended = running.wait().map_err(told)?;
        Ok(Ended { code: ended.code(), stdout: stdout?, stderr: stderr? })
    }

    fn read(&self, file: &Path) -> Called<String> {
        fs::read_to_string(file).map_err(told)
    }

    fn write(&self, file: &Path, text: &str) -> Called<()> {
        let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
            return Err(Failure::Missing);
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(told)?;
        let half = folder.join(format!(".{}.half", name.to_string_lossy()));
        let mut writing =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half).map_err(told)?;
        writing.write_all(text.as_bytes()).and_then(|()| writing.sync_all()).map_err(told)?;
        fs::rename(&half, file).and_then(|()| File::open(folder)?.sync_all()).map_err(told)
    }

    fn erase(&self, file: &Path) -> Called<()> {
        fs::remove_file(file).map_err(told)?;
        file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all()).map_err(told)
    }

    fn list(&self, folder: &Path) -> Called<Vec<PathBuf>> {
        fs::read_dir(folder).map_err(told)?.map(|entry| entry.map(|entry| entry.path()).map_err(told)).collect()
    }
}

/// How many mounts lie on each other at a path.
fn mounts_at(target: &Path) -> Called<usize> {
    let table = Table::parse(&Linux.mountinfo()?).map_err(|error| Failure::Other(error.to_string()))?;
    Ok(table.all_at(target).count())
}

fn open(path: &Path) -> Called<OwnedFd> {
    open_as(path, OFlag::O_PATH)
}

/// The beginning of what a program prints. All of it is read, so that it comes to its end.
fn beginning(printed: Option<impl Read>) -> Called<String> {
    let Some(mut printed) = printed else { return Ok(String::new()) };
    let mut kept = Vec::new();
    printed.by_ref().take(PRINTED).read_to_end(&mut kept).map_err(told)?;
    io::copy(&mut printed, &mut io::sink()).map_err(told)?;
    Ok(String::from_utf8_lossy(&kept).into_owned())
}

fn open_as(path: &Path, flags: OFlag) -> Called<OwnedFd> {
    let root = File::open("/").map_err(told)?;
    let below = path.strip_prefix("/").map_err(|_| Failure::Missing)?;
    let below = if below.as_os_str().is_empty() { Path::new(".") } else { below };
    open_in(&root, below, flags, ResolveFlag::empty())
}

fn open_in(folder: impl AsFd, path: &Path, flags: OFlag, more: ResolveFlag) -> Called<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS | more);
    openat2(folder, path, how).map_err(failure)
}

/// The folder of the last element, and that.
fn parent(path: &Path) -> Called<(OwnedFd, &Path)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((open(parent)?, Path::new(name))),
        _ => Err(Failure::Missing),
    }
}

/// The name by which the kernel takes what is open.
fn link(open: &impl AsRawFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

fn seen(open: &OwnedFd) -> Called<Seen> {
    let told_of = fs::metadata(link(open)).map_err(told)?;
    let kind = match told_of.file_type() {
        kind if kind.is_dir() => Kind::Folder,
        kind if kind.is_file() => Kind::File,
        kind if kind.is_block_device() => Kind::Device(number(told_of.rdev())),
        _ => Kind::Other,
    };
    Ok(Seen {
        kind,
        mount: mount_of(open)?,
        file: told_of.ino(),
        size: told_of.len(),
        group: told_of.gid(),
        mode: told_of.mode(),
    })
}

fn number(device: u64) -> Number {
    (nix::sys::stat::major(device), nix::sys::stat::minor(device))
}

fn mount_of(open: &OwnedFd) -> Called<u64> {
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", open.as_raw_fd())).map_err(told)?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")).and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| Failure::Other("the kernel does not say on which mount it is".to_owned()))
}

fn open_device(device: &Path, how: OFlag) -> Called<File> {
    let there = open(device)?;
    match seen(&there)?.kind {
        Kind::Device(_) => OpenOptions::new().read(true).custom_flags(how.bits()).open(link(&there)).map_err(told),
        _ => Err(Failure::Other("it is no block device".to_owned())),
    }
}

fn bits(flags: &Flags) -> MsFlags {
    let bit = |flag: &Flag| match flag {
        Flag::ReadOnly => MsFlags::MS_RDONLY,
        Flag::NoSuid => MsFlags::MS_NOSUID,
        Flag::NoDev => MsFlags::MS_NODEV,
        Flag::NoExec => MsFlags::MS_NOEXEC,
        Flag::NoAtime => MsFlags::MS_NOATIME,
        Flag::NoDirAtime => MsFlags::MS_NODIRATIME,
        Flag::RelAtime => MsFlags::MS_RELATIME,
        Flag::StrictAtime => MsFlags::MS_STRICTATIME,
        Flag::Sync => MsFlags::MS_SYNCHRONOUS,
        Flag::DirSync => MsFlags::MS_DIRSYNC,
        Flag::LazyTime => MsFlags::MS_LAZYTIME,
    };
    flags.iter().map(bit).fold(MsFlags::empty(), |all, flag| all | flag)
}

#[expect(clippy::needless_pass_by_value, reason = "it stands where errors are mapped")]
fn told(error: io::Error) -> Failure {
    match error.raw_os_error() {
        Some(number) => failure(Errno::from_raw(number)),
        None if error.kind() == io::ErrorKind::NotFound => Failure::Missing,
        None => Failure::Other(error.to_string()),
    }
}

fn failure(errno: Errno) -> Failure {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR => Failure::Missing,
        Errno::ELOOP => Failure::Link,
        Errno::EEXIST => Failure::Exists,
        Errno::ENOTEMPTY => Failure::NotEmpty,
        Errno::EBUSY => Failure::Busy,
        Errno::EXDEV => Failure::Elsewhere,
        Errno::ESTALE | Errno::ENOTCONN | Errno::ESHUTDOWN | Errno::EHOSTDOWN => Failure::Dead,
        Errno::EINVAL | Errno::ENODEV => Failure::Unfit,
        Errno::EUCLEAN | Errno::EBADMSG => Failure::Broken,
        errno => Failure::Other(errno.desc().to_owned()),
    }
}
