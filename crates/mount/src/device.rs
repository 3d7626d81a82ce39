//! The disks of this machine: found by name, made ready for a filesystem, grown.

use std::path::{Path, PathBuf};

use super::{
    Kernel, Machine,
    disk::{self, Filesystem, Growth, Plan},
    kernel::{Ended, Failure, Kind, Number, Seen},
    paths::failed,
    points,
    records::Record,
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

/// A disk that is there.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) path: PathBuf,
    pub(super) number: Number,
    pub(super) seen: Seen,
}

impl Disk {
    pub(super) fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// The disk of a volume that has one; none where the volume is not made of one.
pub(super) fn disk<K: Kernel>(machine: &Machine<K>, record: &Record) -> Result<Option<Disk>> {
    match &record.attached.backing {
        Backing::Device { names, .. } => disk_by_name(machine, names).map(Some),
        Backing::Local { path } if record.way.mode.is_block() => disk_at(machine, Path::new(path)).map(Some),
        _ => Ok(None),
    }
}

/// Udev makes the name a link, a moment after the disk is there.
fn disk_by_name<K: Kernel>(machine: &Machine<K>, names: &[String]) -> Result<Disk> {
    for name in names {
        check_name(name)?;
        match machine.kernel.resolve(&machine.device_dir.join(name)) {
            Err(Failure::Missing) => {}
            path => {
                let path = path.map_err(failed("finding", &machine.device_dir.join(name)))?;
                return disk_named(machine, name, &path);
            }
        }
    }
    Err(Error::InProgress(format!(
        "no disk named {} is in {} yet: this node waits for it; check that the volume is attached to it",
        names.join(" or "),
        machine.device_dir.display()
    )))
}

/// Udev may hear late that a disk is gone, and that another one has its place.
fn disk_named<K: Kernel>(machine: &Machine<K>, name: &str, path: &Path) -> Result<Disk> {
    let disk = disk_behind(machine, path)?;
    let ids = machine.kernel.ids(&disk.path).map_err(failed("looking at", &disk.path))?;
    if disk::may_be_named(name, &ids) {
        return Ok(disk);
    }
    Err(Error::InProgress(format!(
        "disk {name} is not there yet: {} leads to {}, which says that it is {}; this node waits until udev has renewed that link",
        machine.device_dir.join(name).display(),
        disk.name(),
        ids.join(", ").escape_default()
    )))
}

fn disk_at<K: Kernel>(machine: &Machine<K>, path: &Path) -> Result<Disk> {
    disk_behind(machine, &machine.kernel.resolve(path).map_err(failed("finding", path))?)
}

fn disk_behind<K: Kernel>(machine: &Machine<K>, path: &Path) -> Result<Disk> {
    let seen = machine.kernel.look(path).map_err(failed("looking at", path))?;
    match seen.kind {
        Kind::Device(number) if path.starts_with("/dev") => Ok(Disk { path: path.to_owned(), number, seen }),
        _ => Err(Error::Refused(format!(
            "{} is no block device below /dev, so it is not used as a disk",
            path.display()
        ))),
    }
}

/// Ends a format that was begun and cannot be left: whoever has not the record takes such a disk for one with data.
pub(super) fn end_format<K: Kernel>(
    machine: &Machine<K>,
    record: &mut Record,
    disk: &Disk,
    wanted: Option<Filesystem>,
) -> Result<()> {
    let head = head(machine, disk)?;
    match plan(machine, record, disk, wanted, false)? {
        Plan::Use(_) if !disk::is_half_made(&head) => Ok(()),
        Plan::Use(filesystem) | Plan::Format(filesystem) => format(machine, record, disk, filesystem),
    }
}

/// One that is going has no bytes any more, so that none of them is another than zero, and nobody recognises anything on it.
fn head<K: Kernel>(machine: &Machine<K>, disk: &Disk) -> Result<Vec<u8>> {
    let head = machine.kernel.head(&disk.path).map_err(failed("reading", &disk.path))?;
    if head.is_empty() {
        return Err(Error::Refused(format!(
            "disk {} has no size, so this node cannot tell what the disk holds: check that it is still attached to this machine",
            disk.name()
        )));
    }
    Ok(head)
}

/// Makes sure that a filesystem is on the disk of a volume, and whole.
pub(super) fn prepare<K: Kernel>(
    machine: &Machine<K>,
    record: &mut Record,
    disk: &Disk,
    wanted: Option<Filesystem>,
) -> Result<Filesystem> {
    let (zeros, mounted) = {
        let head = head(machine, disk)?;
        (head.iter().all(|byte| *byte == 0), disk::last_mount(&head))
    };
    match plan(machine, record, disk, wanted, zeros)? {
        Plan::Use(filesystem) if record.only_reads() => Ok(filesystem),
        Plan::Format(_) if record.only_reads() => Err(Error::Refused(format!(
            "disk {} is blank, and the volume is mounted for reading alone: mount it for writing first, which makes its filesystem",
            disk.name()
        ))),
        Plan::Format(filesystem) => format(machine, record, disk, filesystem).map(|()| filesystem),
        // One that is in use at a pod is not checked from here.
        Plan::Use(filesystem) if points::table(machine)?.of_device(disk.number).next().is_some() => Ok(filesystem),
        Plan::Use(Filesystem::Xfs) => Ok(Filesystem::Xfs),
        Plan::Use(Filesystem::Ext4) if is_half_grown(record, mounted) => {
            repair(machine, record, disk)?;
            finish(machine, record).map(|()| Filesystem::Ext4)
        }
        // Nor one that the kernel has still for somebody else's container: e2fsck refuses it, and a mount shows the same again.
        Plan::Use(Filesystem::Ext4) if is_held(machine, disk)? => Ok(Filesystem::Ext4),
        Plan::Use(Filesystem::Ext4) => check(machine, disk, &["-p"]).map(|()| Filesystem::Ext4),
    }
}

fn plan<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    disk: &Disk,
    wanted: Option<Filesystem>,
    zeros: bool,
) -> Result<Plan> {
    let name = disk.name();
    let ended = run(machine, "blkid", &["--probe", "--output", "export", &name], disk)?;
    disk::plan(&name, &disk::found(&name, &ended)?, wanted, zeros, record.formatting)
}

/// Whether the disk is kept for somebody, as a program does that works on it.
pub(super) fn is_held<K: Kernel>(machine: &Machine<K>, disk: &Disk) -> Result<bool> {
    machine.kernel.is_held(&disk.path).map_err(failed("opening", &disk.path))
}

/// A disk may be gone by the time a program has looked at it or has failed with it, and another one may have its place and its number.
fn check_is_same<K: Kernel>(machine: &Machine<K>, record: &Record, disk: &Disk) -> Result<()> {
    let place = |disk: &Disk| (disk.path.clone(), disk.number, disk.seen.mount, disk.seen.file);
    match self::disk(machine, record)? {
        Some(now) if place(&now) == place(disk) => Ok(()),
        _ => Err(Error::InProgress(format!(
            "disk {} is another one than a moment ago: this node looks at it again",
            disk.name()
        ))),
    }
}

/// The record says so first: a format that ends half-way leaves a disk that looks like nobody's data.
fn format<K: Kernel>(machine: &Machine<K>, record: &mut Record, disk: &Disk, filesystem: Filesystem) -> Result<()> {
    check_is_same(machine, record, disk)?;
    let again = record.formatting;
    // From then on it would not be looked at whether the disk is blank.
    if !again && is_held(machine, disk)? {
        return Err(Error::Refused(format!(
            "disk {} is blank and in use on this machine (part of a RAID, a volume group or a multipath device), so it is not formatted: \
             free it there",
            disk.name()
        )));
    }
    record.formatting = true;
    machine.records.keep(&machine.kernel, record)?;
    let name = disk.name();
    match (filesystem, again) {
        (Filesystem::Ext4, _) => run_well(machine, "mkfs.ext4", &["-q", "-F", "-m0", &name], disk)?,
        (Filesystem::Xfs, false) => run_well(machine, "mkfs.xfs", &["-q", &name], disk)?,
        (Filesystem::Xfs, true) => run_well(machine, "mkfs.xfs", &["-q", "-f", &name], disk)?,
    }
    finish(machine, record)
}

/// Formats a disk whose format was begun, unless somebody else has put something on it since. False: it was formatted to the end, here or
/// elsewhere, and may have been used by machines of which nobody here knows.
pub(super) fn format_again<K: Kernel>(
    machine: &Machine<K>,
    record: &mut Record,
    disk: &Disk,
    wanted: Option<Filesystem>,
) -> Result<bool> {
    let head = head(machine, disk)?;
    match plan(machine, record, disk, wanted, false)? {
        Plan::Use(filesystem) if disk::may_be_used(filesystem, &head) => Ok(false),
        Plan::Use(filesystem) | Plan::Format(filesystem) => format(machine, record, disk, filesystem).map(|()| true),
    }
}

/// What was begun with a disk has come to its end.
pub(super) fn finish<K: Kernel>(machine: &Machine<K>, record: &mut Record) -> Result<()> {
    if !record.is_begun() {
        return Ok(());
    }
    (record.formatting, record.growing) = (false, None);
    machine.records.keep(&machine.kernel, record)
}

/// Repairs what a growth that was begun has left, before the disk leaves: whoever has not the record leaves that to a person. The record goes next,
/// and is not written, for which this machine's own disk may have no room.
pub(super) fn end_growth<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    disk: &Disk,
    wanted: Option<Filesystem>,
) -> Result<()> {
    let mounted = disk::last_mount(&head(machine, disk)?);
    match plan(machine, record, disk, wanted, false)? {
        Plan::Use(Filesystem::Ext4) if is_half_grown(record, mounted) => repair(machine, record, disk),
        _ => Ok(()),
    }
}

/// Whether a growth may have been cut short here, and nobody has had the filesystem since, whose errors would be repaired with it.
fn is_half_grown(record: &Record, mounted: Option<u32>) -> bool {
    record.growing.is_some() && record.growing == mounted
}

/// By saying yes to whatever e2fsck wants to do: of a growth that was cut short it does nothing without being told so. What it cannot read it would
/// write over, so all has to be read before.
fn repair<K: Kernel>(machine: &Machine<K>, record: &Record, disk: &Disk) -> Result<()> {
    let name = disk.name();
    disk::looked(&name, &run(machine, "e2fsck", &["-f", "-n", &name], disk)?)?;
    check_is_same(machine, record, disk)?;
    check(machine, disk, &["-f", "-y"])
}

/// With `-p` it repairs what can be repaired without a person.
fn check<K: Kernel>(machine: &Machine<K>, disk: &Disk, how: &[&str]) -> Result<()> {
    let name = disk.name();
    disk::checked(&name, &run(machine, "e2fsck", &[how, &[name.as_str()]].concat(), disk)?)
}

/// Whether an ext4 filesystem has less than its disk.
pub(super) fn may_grow<K: Kernel>(machine: &Machine<K>, disk: &Disk) -> Result<bool> {
    let size = machine.kernel.device_size(&disk.path).map_err(failed("measuring", &disk.path))?;
    Ok(disk::size_of_ext4(&head(machine, disk)?).is_some_and(|filesystem| disk::should_grow(filesystem, size)))
}

/// Lets an ext4 filesystem that is not mounted fill its disk. The record says so first: where the program does not come to its end, no
/// `e2fsck -p` repairs what it leaves.
pub(super) fn grow_unmounted<K: Kernel>(machine: &Machine<K>, record: &mut Record, disk: &Disk) -> Result<()> {
    check(machine, disk, &["-p", "-f"])?;
    check_is_same(machine, record, disk)?;
    record.growing = disk::last_mount(&head(machine, disk)?);
    machine.records.keep(&machine.kernel, record)?;
    run_well(machine, "resize2fs", &[&disk.name()], disk)?;
    finish(machine, record)
}

/// Lets a mounted filesystem fill its disk.
pub(super) fn grow_mounted<K: Kernel>(
    machine: &Machine<K>,
    disk: &Disk,
    filesystem: Filesystem,
    place: &Path,
) -> Result<Growth> {
    let (program, argument) = match filesystem {
        Filesystem::Ext4 => ("resize2fs", disk.name()),
        Filesystem::Xfs => ("xfs_growfs", place.display().to_string()),
    };
    disk::grown(&disk.name(), program, &run(machine, program, &[&argument], disk)?)
}

/// Stops all writing to a bare disk, or allows it.
pub(super) fn lock<K: Kernel>(machine: &Machine<K>, disk: &Disk, only_reads: bool) -> Result<()> {
    let way = if only_reads { "--setro" } else { "--setrw" };
    run_well(machine, "blockdev", &[way, &disk.name()], disk)
}

/// Has all on a bare disk that was written to it. Its last user's end does so only where nobody else has it open. What cannot be written is lost.
pub(super) fn write_back<K: Kernel>(machine: &Machine<K>, disk: &Disk) {
    run(machine, "blockdev", &["--flushbufs", &disk.name()], disk).ok();
}

fn run_well<K: Kernel>(machine: &Machine<K>, program: &str, arguments: &[&str], disk: &Disk) -> Result<()> {
    let ended = run(machine, program, arguments, disk)?;
    if ended.code == Some(0) { Ok(()) } else { Err(disk::ended_badly(program, &disk.name(), &ended)) }
}

fn run<K: Kernel>(machine: &Machine<K>, program: &str, arguments: &[&str], disk: &Disk) -> Result<Ended> {
    match machine.kernel.run(program, arguments) {
        Err(Failure::Missing) => Err(Error::Refused(format!(
            "this node has no program {program}, which disk {} needs: install it where the driver runs",
            disk.name()
        ))),
        ended => ended.map_err(failed(&format!("running {program} on"), &disk.path)),
    }
}

/// A name of a folder's entry, and nothing that leads out of it.
fn check_name(name: &str) -> Result<()> {
    let plain = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    if plain && !name.chars().any(char::is_control) {
        return Ok(());
    }
    Err(Error::Invalid(format!("publish_context backing: {name:?} is no name of a disk")))
}
