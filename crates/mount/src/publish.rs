//! Shows a staged volume to pods.

use std::path::{Path, PathBuf};

use super::{
    Kernel, Machine, Progress,
    decide::{self, only_reads},
    device::{self, Disk},
    kernel::{Failure, Kind, Point, Seen},
    paths::{self, failed},
    points,
    records::{Record, Target},
    source,
    stage::{self, read_only},
    table::{Origin, Table},
    volume_use::VolumeUse,
};
use domain::{
    error::{Error, Result},
    volume::backing::{Attached, Backing},
};

/// Folder bits that a group needs to have all below it: to read, to write, to enter, and to hand itself on.
const GROUP_BITS: u32 = 0o2070;

/// Shows a staged volume at a pod's path. `Ask`: the leaf driver publishes it there, and then [`own`].
pub fn publish<K: Kernel>(
    machine: &Machine<K>,
    attached: &Attached,
    staging: &Path,
    target: &Path,
    way: &VolumeUse,
    readonly: bool,
) -> Result<Progress> {
    let wanted = Target { way: way.clone(), readonly };
    let mut record = staged_record(machine, attached, staging, target, way)?;
    let volume = &attached.volume;
    let table = points::table(machine)?;
    points::check_kubelet_sees(machine, &attached.backing, &table)?;
    let others = points::live_targets(machine, &record, &table)?;
    let others: Vec<(&Path, &Target)> = record
        .targets
        .iter()
        .filter(|(path, _)| *path != target && others.contains(path))
        .map(|(path, target)| (path.as_path(), target))
        .collect();
    let place = points::place(machine, target)?;
    points::check_way_to(machine, &place)?;
    let mounted = table.at(&place).is_some();
    if mounted && record.targets.get(target).is_some_and(|there| *there != wanted) {
        return Err(Error::Exists(format!(
            "volume {volume} is published at {} in another way: unpublish it there first",
            target.display()
        )));
    }
    decide::may_join(volume, &wanted, &others)?;
    if let Backing::Csi(leaf) = &attached.backing {
        enter(machine, &mut record, target, wanted)?;
        return Ok(Progress::Ask(leaf.clone()));
    }
    let shown = what_to_show(machine, &record, target, &table)?;
    check_target(machine, &record, &place, &shown, &table)?;
    enter(machine, &mut record, target, wanted.clone())?;
    let kept = if record.folder().is_some() {
        show_folder(machine, &record, &wanted, &place, &shown, mounted)?
    } else {
        show(machine, &record, &wanted, &place, &shown, mounted)?
    };
    Ok(if kept == 0 { Progress::Done } else { Progress::Kept(kept) })
}

/// The record of a volume, if it is staged as the request says.
fn staged_record<K: Kernel>(
    machine: &Machine<K>,
    attached: &Attached,
    staging: &Path,
    target: &Path,
    way: &VolumeUse,
) -> Result<Record> {
    paths::check("target_path", target)?;
    if staging.as_os_str().is_empty() {
        return Err(Error::Refused(format!(
            "staging_target_path is missing: volume {} is published from where it is staged",
            attached.volume
        )));
    }
    paths::check("staging_target_path", staging)?;
    if target.starts_with(staging) || staging.starts_with(target) {
        return Err(Error::Invalid(format!(
            "target_path {} and staging_target_path {} lie in each other: use two separate paths",
            target.display(),
            staging.display()
        )));
    }
    let record = machine.record(&attached.volume)?.filter(|record| !record.formatting).ok_or_else(|| {
        Error::Refused(format!(
            "volume {} is not staged on this node: stage it at {} first",
            attached.volume,
            staging.display()
        ))
    })?;
    decide::is_staged_so(&record, &Record::new(attached, staging, way))?;
    Ok(record)
}

fn enter<K: Kernel>(machine: &Machine<K>, record: &mut Record, target: &Path, wanted: Target) -> Result<()> {
    if record.targets.get(target) == Some(&wanted) {
        return Ok(());
    }
    record.targets.insert(target.to_owned(), wanted);
    machine.records.keep(&machine.kernel, record)
}

fn what_to_show<K: Kernel>(machine: &Machine<K>, record: &Record, target: &Path, table: &Table) -> Result<Shown> {
    // A mount of a device keeps nobody from writing to it. Where a pod asks for that of a volume that others write to, kubelet lets its
    // containers only read from the device.
    if record.way.mode.is_block() {
        return raw(machine, record, table);
    }
    if let Some(path) = record.folder() {
        return folder(machine, record, path, target, table);
    }
    let staging = points::place(machine, &record.staging)?;
    let not_staged = |reason: &str| {
        Error::Refused(format!(
            "volume {} is not staged: {reason} at {}; stage it again",
            record.volume(),
            staging.display()
        ))
    };
    let mount = table.at(&staging).ok_or_else(|| not_staged("nothing is mounted"))?;
    if !stage::origin(machine, record, table)?.is_some_and(|origin| origin.is_of(mount)) {
        return Err(not_staged(&format!("{} is mounted", mount.source)));
    }
    let seen = match machine.kernel.ask(&staging, mount.device) {
        Err(Failure::Dead) => return Err(not_staged("what is mounted no longer answers")),
        seen => seen.map_err(failed("looking at", &staging))?,
    };
    if seen.mount != mount.id {
        return Err(not_staged("something else is mounted by now"));
    }
    Ok(Shown { path: staging, seen, origin: Origin::of(mount), point: Point::Folder })
}

fn raw<K: Kernel>(machine: &Machine<K>, record: &Record, table: &Table) -> Result<Shown> {
    let missing = || Error::Refused(format!("volume {} has no device on this node", record.volume()));
    let disk: Disk = device::disk(machine, record)?.ok_or_else(missing)?;
    let origin = table.origin_of(&disk.path, disk.seen.mount).ok_or_else(missing)?;
    Ok(Shown { path: disk.path, seen: disk.seen, origin, point: Point::File })
}

/// The folder of this machine that a volume is. It may have been replaced, or the disk on it unmounted, since others of its pods got it.
fn folder<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    path: &Path,
    target: &Path,
    table: &Table,
) -> Result<Shown> {
    let seen = stage::folder(machine, path, table)?;
    let origin = table.origin_of(path, seen.mount).ok_or_else(|| {
        Error::InProgress(format!(
            "something was mounted or unmounted at {} just now: it is tried again",
            path.display()
        ))
    })?;
    let others = points::live_targets(machine, record, table)?.into_iter().filter(|other| other != target);
    // A former version mounted it where it is staged.
    for other in others.chain([record.staging.clone()]) {
        let place = points::place(machine, &other)?;
        if let Some(mount) = table.at(&place).filter(|mount| !origin.is_of(mount)) {
            return Err(Error::Refused(format!(
                "folder {} is not what it was when volume {} was mounted at {} (from {}): bring back what was at the folder, or end the \
                 pods that have the volume on this node",
                path.display(),
                record.volume(),
                place.display(),
                mount.source
            )));
        }
    }
    Ok(Shown { path: path.to_owned(), seen, origin, point: Point::Folder })
}

/// How a mount of this volume at a target is known.
pub(super) fn shown_origin<K: Kernel>(machine: &Machine<K>, record: &Record, table: &Table) -> Result<Option<Origin>> {
    if record.way.mode.is_block() {
        return Ok(raw(machine, record, table).ok().map(|shown| shown.origin));
    }
    if record.folder().is_some() {
        return stage::origin(machine, record, table);
    }
    let staging = points::place(machine, &record.staging)?;
    Ok(table.at(&staging).map(Origin::of))
}

fn check_target<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    place: &Path,
    shown: &Shown,
    table: &Table,
) -> Result<()> {
    match table.at(place) {
        Some(mount) if !shown.origin.is_of(mount) => Err(Error::Refused(format!(
            "{} on {} is mounted already, and is not volume {}: unmount it first",
            mount.source,
            place.display(),
            record.volume()
        ))),
        Some(_) => Ok(()),
        // Before the record names it: what cannot be a target shall never be one.
        None => points::make(machine, place, shown.point),
    }
}

/// Shows a folder of this machine. It is mounted where it is staged only meanwhile: a kubelet unstages no volume while the machine has mounted the
/// same elsewhere. Without that, a pod would not have its flags, as a remount of what it sees is told to no other container.
fn show_folder<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    wanted: &Target,
    place: &Path,
    folder: &Shown,
    mounted: bool,
) -> Result<u64> {
    let staging = points::place(machine, &record.staging)?;
    let kept = mount_meanwhile(machine, record, &staging, folder)
        .and_then(|shown| show(machine, record, wanted, place, &shown, mounted));
    points::take_mounts(machine, &staging)?;
    kept
}

fn mount_meanwhile<K: Kernel>(machine: &Machine<K>, record: &Record, staging: &Path, folder: &Shown) -> Result<Shown> {
    if points::table(machine)?.at(staging).is_none() {
        points::make(machine, staging, Point::Folder)?;
        let bound = machine.kernel.bind(&folder.path, &folder.seen, staging);
        bound.map_err(failed("showing the volume's folder at", staging))?;
    }
    points::give_flags(machine, staging, &source::check(record)?.options.flags)?;
    let seen = points::look_at_folder(machine, staging, &points::table(machine)?);
    let seen = seen.map_err(failed("looking at", staging))?;
    Ok(Shown { path: staging.to_owned(), seen, origin: folder.origin.clone(), point: Point::Folder })
}

/// Answers how many files may not be changed, and stay as they are.
fn show<K: Kernel>(
    machine: &Machine<K>,
    record: &Record,
    wanted: &Target,
    place: &Path,
    shown: &Shown,
    mounted: bool,
) -> Result<u64> {
    let only_reads = only_reads(record, wanted);
    let has_owners = !matches!(record.attached.backing, Backing::Nfs { .. });
    let kept = match (wanted.way.group, only_reads, has_owners, shown.seen.kind) {
        (Some(group), false, true, Kind::Folder) => give(machine, &shown.path, &shown.seen, group)?,
        _ => 0,
    };
    if !mounted {
        if shown.point == Point::Folder {
            // A bind takes them along. A remount of before may have been in the container of another process, and changed nothing elsewhere.
            points::give_flags(machine, &shown.path, &source::check(record)?.options.flags)?;
        }
        machine.kernel.bind(&shown.path, &shown.seen, place).map_err(failed("showing the volume at", place))?;
    }
    if only_reads {
        points::give_flags(machine, place, &read_only())?;
    }
    Ok(kept)
}

/// Gives the files of a published CSI leaf volume to the pod's group, where its driver leaves that to the node. Not
/// to be called where the leaf driver does it itself (VOLUME_MOUNT_GROUP). Answers how many files may not be changed, and stay as they are.
pub fn own<K: Kernel>(machine: &Machine<K>, volume: &str, target: &Path) -> Result<u64> {
    let (record, place) = mounted_at(machine, volume, target)?;
    let group = record.targets.get(target).and_then(|target| decide::owns(&record, target));
    let Some(group) = group else {
        return Ok(0);
    };
    points::check_answers(machine, &place)?;
    let seen = machine.kernel.look(&place).map_err(failed("looking at", &place))?;
    if seen.kind == Kind::Folder { give(machine, &place, &seen, group) } else { Ok(0) }
}

/// The folder itself comes last, so where it is the group's, all is.
fn give<K: Kernel>(machine: &Machine<K>, folder: &Path, seen: &Seen, group: u32) -> Result<u64> {
    if seen.group == group && seen.mode & GROUP_BITS == GROUP_BITS {
        return Ok(0);
    }
    machine.kernel.give(folder, group).map_err(failed("giving the pod's group the files below", folder))
}

/// What a target is to show.
struct Shown {
    path: PathBuf,
    seen: Seen,
    origin: Origin,
    point: Point,
}

/// The record of a volume that is staged or mounted at a path, and where that really is.
pub(super) fn mounted_at<K: Kernel>(machine: &Machine<K>, volume: &str, path: &Path) -> Result<(Record, PathBuf)> {
    let record = machine.record(volume)?.ok_or_else(|| not_at(volume, path))?;
    if !record.targets.contains_key(path) && record.staging != path {
        return Err(not_at(volume, path));
    }
    let place = points::place(machine, path)?;
    let table = points::table(machine)?;
    if let Some(folder) = record.folder().filter(|_| record.staging == path).map(Path::to_owned) {
        // Nothing is mounted there.
        stage::folder(machine, &folder, &table)?;
        return Ok((record, folder));
    }
    let mounted = match table.at(&place) {
        Some(mount) if !matches!(record.attached.backing, Backing::Csi(_)) => {
            shown_origin(machine, &record, &table)?.is_none_or(|origin| origin.is_of(mount))
        }
        there => there.is_some(),
    };
    if mounted { Ok((record, place)) } else { Err(not_at(volume, path)) }
}

pub(super) fn not_at(volume: &str, path: &Path) -> Error {
    Error::NotFound(format!("volume {volume} is not at {}", path.display()))
}
