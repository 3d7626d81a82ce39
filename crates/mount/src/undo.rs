//! Takes volumes away again: from pods, and from this node. What is not there is done; what is not ours is left alone.

use std::path::Path;

use super::{
    Kernel, Machine, Progress, decide, device,
    disk::Filesystem,
    kernel::Failure,
    paths, points, publish,
    records::Record,
    source,
    table::{Mount, Table},
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

/// Takes a volume from a pod's path. `Ask`: the leaf driver unpublishes it first, and then [`unpublished`].
pub fn unpublish<K: Kernel>(machine: &Machine<K>, volume: &str, target: &Path) -> Result<Progress> {
    paths::check("target_path", target)?;
    let record = machine.record(volume)?;
    match record.filter(|record| record.targets.contains_key(target)).map(|record| record.attached.backing) {
        Some(Backing::Csi(leaf)) => Ok(Progress::Ask(leaf)),
        _ => unpublished(machine, volume, target).map(|()| Progress::Done),
    }
}

/// Clears what is left at a pod's path: mounts, the mount point, the record's entry.
pub fn unpublished<K: Kernel>(machine: &Machine<K>, volume: &str, target: &Path) -> Result<()> {
    paths::check("target_path", target)?;
    let record = machine.record(volume)?;
    let place = points::place(machine, target)?;
    let recorded = record.as_ref().is_some_and(|record| record.targets.contains_key(target));
    if !recorded {
        let form = decide::is_kubelets_target(target, &machine.kubelet_dir);
        if !may_clear(machine, volume, record.as_ref(), target, &place, form)? {
            return Ok(());
        }
    }
    points::take_mounts(machine, &place)?;
    points::take(machine, &place)?;
    match record {
        Some(mut record) if recorded => {
            if record.folder().is_some() {
                // A former version mounted it there, and so does a publish that was cut short. The kubelet would unstage nothing.
                points::take_mounts(machine, &points::place(machine, &record.staging)?)?;
            }
            record.targets.remove(target);
            // One whose mount is gone does not count, and no pod's end waits until this machine's disk has room again.
            machine.records.keep(&machine.kernel, &record).ok();
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Takes a volume from this node. `Ask`: the leaf driver unstages it first, and then [`unstaged`].
pub fn unstage<K: Kernel>(machine: &Machine<K>, volume: &str, staging: &Path) -> Result<Progress> {
    paths::check("staging_target_path", staging)?;
    let record = machine.record(volume)?.filter(|record| record.staging == staging);
    if let Some(record) = &record {
        check_unpublished(machine, record)?;
    }
    match record.map(|record| record.attached.backing) {
        Some(Backing::Csi(leaf)) => Ok(Progress::Ask(leaf)),
        _ => unstaged(machine, volume, staging).map(|()| Progress::Done),
    }
}

/// Clears what is left at the staging path, and the record. The folder is whoever's who made the path.
pub fn unstaged<K: Kernel>(machine: &Machine<K>, volume: &str, staging: &Path) -> Result<()> {
    paths::check("staging_target_path", staging)?;
    let record = machine.record(volume)?;
    let place = points::place(machine, staging)?;
    let mut record = match record {
        Some(record) if record.staging == staging => record,
        other => {
            let form = decide::is_kubelets_staging(staging, &machine.kubelet_dir);
            may_clear(machine, volume, other.as_ref(), staging, &place, form)?;
            return points::take_mounts(machine, &place);
        }
    };
    check_unpublished(machine, &record)?;
    write_back(machine, &record, &place)?;
    points::take_mounts(machine, &place)?;
    let_go(machine, &mut record)?;
    machine.records.forget(&machine.kernel, volume)
}

/// An unmount does so only where nobody else keeps the filesystem, as a container does that was once given all files of the machine with what
/// was mounted then; and the disk goes next. What cannot be written is lost to an unmount too.
fn write_back<K: Kernel>(machine: &Machine<K>, record: &Record, place: &Path) -> Result<()> {
    let is_disk = matches!(record.attached.backing, Backing::Device { .. });
    let is_mounted = |mount: &Mount| Filesystem::known(&mount.filesystem).is_some();
    if is_disk && !record.only_reads() && points::table(machine)?.at(place).is_some_and(is_mounted) {
        machine.kernel.sync(place).ok();
    }
    Ok(())
}

/// Forgets a volume that its leaf driver refused for good when it was first asked, unless something is mounted after all:
/// nobody calls again to undo it. Nothing is unmounted, since only the driver knows what it has there.
pub fn refused<K: Kernel>(machine: &Machine<K>, volume: &str, staging: &Path) -> Result<()> {
    match points::table(machine)?.at(&points::place(machine, staging)?) {
        Some(_) => Ok(()),
        None => machine.records.forget(&machine.kernel, volume),
    }
}

/// Likewise one path of it.
pub fn refused_at<K: Kernel>(machine: &Machine<K>, volume: &str, target: &Path) -> Result<()> {
    let mounted = points::table(machine)?.at(&points::place(machine, target)?).is_some();
    let Some(mut record) = machine.record(volume)?.filter(|_| !mounted) else { return Ok(()) };
    record.targets.remove(target);
    machine.records.keep(&machine.kernel, &record)
}

/// Leaves a disk as the next node can use it. One that is gone is let go all the same.
fn let_go<K: Kernel>(machine: &Machine<K>, record: &mut Record) -> Result<()> {
    let Ok(Some(disk)) = device::disk(machine, record) else {
        return Ok(());
    };
    match (record.way.mode.is_block(), record.only_reads()) {
        (true, true) => device::lock(machine, &disk, false)?,
        (true, false) => device::write_back(machine, &disk),
        (false, _) => {}
    }
    if record.only_reads() || !record.is_begun() {
        return Ok(());
    }
    let wanted = source::check(record)?.filesystem;
    let ended = if record.formatting {
        device::end_format(machine, record, &disk, wanted)
    } else {
        device::end_growth(machine, record, &disk, wanted)
    };
    match ended {
        // Outside of a container a program outlives the plugin that has begun it.
        Err(error @ Error::Refused(_)) if device::is_held(machine, &disk) == Ok(true) => {
            Err(error.while_a_leaf_may_exist())
        }
        Err(Error::Refused(_)) => Ok(()),
        ended => ended,
    }
}

fn check_unpublished<K: Kernel>(machine: &Machine<K>, record: &Record) -> Result<()> {
    match points::live_targets(machine, record, &points::table(machine)?)?.first() {
        None => Ok(()),
        Some(target) => Err(Error::Refused(format!(
            "volume {} is still published at {}: unpublish it there first",
            record.volume(),
            target.display()
        ))),
    }
}

/// Whether there is anything at a path that no record of this volume names, and it may be taken away: what is mounted
/// is this volume's, or nothing is known of the volume any more, the path is one that the kubelet makes for a volume
/// alone (`form`), and no other volume has it. Otherwise a kubelet could never end a pod whose record was lost.
fn may_clear<K: Kernel>(
    machine: &Machine<K>,
    volume: &str,
    record: Option<&Record>,
    path: &Path,
    place: &Path,
    form: bool,
) -> Result<bool> {
    let table = points::table(machine)?;
    let mount = table.at(place);
    if mount.is_none() && machine.kernel.look(place) == Err(Failure::Missing) {
        return Ok(false);
    }
    decide::is_nobody_elses(&machine.records.all(&machine.kernel)?, volume, path)?;
    let Some(mount) = mount else {
        return Ok(true);
    };
    let ours = match record {
        Some(record) => are_all_its(machine, record, place, &table)?,
        None => form,
    };
    if ours {
        return Ok(true);
    }
    Err(Error::Refused(format!(
        "{} is mounted at {}, which is not known as a path of volume {volume}: nothing was touched; unmount it by hand",
        mount.source,
        place.display()
    )))
}

fn are_all_its<K: Kernel>(machine: &Machine<K>, record: &Record, place: &Path, table: &Table) -> Result<bool> {
    let origin = publish::shown_origin(machine, record, table)?;
    Ok(origin.is_some_and(|origin| table.all_at(place).all(|mount| origin.is_of(mount))))
}
