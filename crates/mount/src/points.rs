//! The ends of paths: where they really are, made before something is mounted on them, and cleared after it.

use std::path::{Path, PathBuf};

use super::{
    Kernel, Machine, Trouble,
    kernel::{Called, Failure, Kind, MOUNTINFO, Point, Seen},
    options::{Flags, OF_A_MOUNT, flags_of},
    paths::failed,
    records::Record,
    table::{Mount, Table},
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

/// A path as the kernel knows it. Whoever runs the kubelet may have made its folder a link; nothing below it is.
pub(super) fn place<K: Kernel>(machine: &Machine<K>, path: &Path) -> Result<PathBuf> {
    match path.strip_prefix(&machine.kubelet_dir) {
        Ok(below) => Ok(real_kubelet_dir(machine)?.join(below)),
        Err(_) => Ok(path.to_owned()),
    }
}

pub(super) fn real_kubelet_dir<K: Kernel>(machine: &Machine<K>) -> Result<PathBuf> {
    match machine.kernel.resolve(&machine.kubelet_dir) {
        Err(Failure::Missing) => Ok(machine.kubelet_dir.clone()),
        real => real.map_err(failed("finding", &machine.kubelet_dir)),
    }
}

pub(super) fn table<K: Kernel>(machine: &Machine<K>) -> Result<Table> {
    Table::parse(&machine.kernel.mountinfo().map_err(failed("reading", Path::new(MOUNTINFO)))?)
}

/// Where a container has the kubelet's folder for itself, a pod would get what is below a mount point, and write to the machine's own disk.
pub(super) fn check_kubelet_sees<K: Kernel>(machine: &Machine<K>, backing: &Backing, table: &Table) -> Result<()> {
    // Those of a leaf driver are mounted by it.
    if matches!(backing, Backing::Csi(_)) {
        return Ok(());
    }
    let folder = real_kubelet_dir(machine)?;
    match table.at(&folder) {
        Some(mount) if !mount.is_shared => Err(Error::Refused(format!(
            "mounts of kosmos-csi node in {} are not visible outside of its container, and pods would write to this machine's own disk: \
             mount the folder there with mountPropagation Bidirectional, or, outside of a pod, type mount --make-shared",
            folder.display()
        ))),
        _ => Ok(()),
    }
}

/// The folder in which a mount point lies is there, and reached without a link.
pub(super) fn check_way_to<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<()> {
    let folder = place.parent().unwrap_or(place);
    machine.kernel.look(folder).map(drop).map_err(failed("looking at", folder))
}

/// Makes the mount point, or finds it there and empty. What was written to it while nothing was mounted would vanish
/// below the mount, and is not ours to remove.
pub(super) fn make<K: Kernel>(machine: &Machine<K>, place: &Path, point: Point) -> Result<()> {
    let seen = match machine.kernel.look(place) {
        Err(Failure::Missing) => return machine.kernel.make(place, point).map_err(failed("making", place)),
        seen => seen.map_err(failed("looking at", place))?,
    };
    let fits = match (seen.kind, point) {
        (Kind::Folder, Point::Folder) => machine.kernel.is_empty(place).map_err(failed("reading", place))?,
        (Kind::File, Point::File) => seen.size == 0,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    let empty = if point == Point::Folder { "an empty folder" } else { "an empty file" };
    Err(Error::Refused(format!(
        "{} is not {empty}, and nothing is mounted there: move away what it holds, which belongs to no volume",
        place.display()
    )))
}

/// Takes away all mounts at a place, however many lie on each other.
pub(super) fn take_mounts<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<()> {
    let there = table(machine)?.all_at(place).count();
    for _ in 0..there {
        let taken = match machine.kernel.unmount(place, is_silent(machine, place)?) {
            // One that is dead will not come to rest.
            Err(Failure::Busy) if is_dead(machine, place)? => machine.kernel.unmount(place, true),
            // Where the kubelet's folder is mounted on itself, each mount below is there twice, and both go at once.
            Err(Failure::Unfit) if table(machine)?.at(place).is_none() => return Ok(()),
            taken => taken,
        };
        taken.map_err(failed("unmounting", place))?;
    }
    Ok(())
}

/// Removes the mount point, which is an empty folder or an empty file. Anything else there is not ours.
pub(super) fn take<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<()> {
    let point = match machine.kernel.look(place) {
        Err(Failure::Missing) => return Ok(()),
        seen => match seen.map_err(failed("looking at", place))?.kind {
            Kind::Folder => Point::Folder,
            Kind::File => Point::File,
            Kind::Device(_) | Kind::Other => {
                return Err(Error::Refused(format!(
                    "{} is no mount point of a volume and is left untouched: remove it by hand",
                    place.display()
                )));
            }
        },
    };
    match machine.kernel.remove(place, point) {
        Err(Failure::Missing) => Ok(()),
        removed => removed.map_err(failed("removing", place)),
    }
}

/// Whether what is mounted at a place is gone for good.
pub(super) fn is_dead<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<bool> {
    match table(machine)?.at(place).map(|mount| machine.kernel.ask(place, mount.device)) {
        Some(Err(Failure::Dead)) => Ok(true),
        Some(asked) => asked.map(|_| false).map_err(failed("looking at", place)),
        None => Ok(false),
    }
}

/// Whether a server keeps silent, and what it has may go lazily. A question of ours that hangs would keep its mount busy, and the last unmount would
/// wait until all is written there. Nothing of ours writes there, as this call has the volume for itself. What somebody else has mounted below would
/// go along, and is waited for; below one mount of a server the kernel itself makes others of it.
fn is_silent<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<bool> {
    let table = table(machine)?;
    let is_alone = table.below(place).all(Mount::is_of_a_server);
    let mount = table.at(place).filter(|mount| is_alone && mount.is_of_a_server());
    Ok(mount.is_some_and(|mount| machine.kernel.ask(place, mount.device) == Err(Failure::Silent)))
}

/// Before something is called at a place that has no bound of its own.
pub(super) fn check_answers<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<()> {
    match table(machine)?.at(place) {
        Some(mount) => machine.kernel.ask(place, mount.device).map(drop).map_err(failed("looking at", place)),
        None => Ok(()),
    }
}

/// Looks at a folder of this machine, which may have it from a server.
pub(super) fn look_at_folder<K: Kernel>(machine: &Machine<K>, folder: &Path, table: &Table) -> Called<Seen> {
    match table.over(folder) {
        Some(mount) => machine.kernel.ask(folder, mount.device),
        None => machine.kernel.look(folder),
    }
}

/// Gives a mount the flags it still lacks. The kernel ignores them while it binds, so this is a step of its own, and
/// a crash may have come before it.
pub(super) fn give_flags<K: Kernel>(machine: &Machine<K>, place: &Path, wanted: &Flags) -> Result<()> {
    let table = table(machine)?;
    let mount = table.at(place).ok_or_else(|| {
        Error::InProgress(format!("nothing is mounted at {} any more: it is tried again", place.display()))
    })?;
    let has = flags_of(&mount.options);
    if OF_A_MOUNT.iter().all(|flag| has.contains(flag) || !wanted.contains(flag)) {
        return Ok(());
    }
    let wanted = OF_A_MOUNT.into_iter().filter(|flag| wanted.contains(flag));
    let flags: Flags = has.iter().copied().chain(wanted).collect();
    machine.kernel.remount(place, &flags).map_err(failed("setting the flags of the mount at", place))
}

/// By what a filesystem says that nothing is written on it: ext4 is not `ro` after an error from Linux 6.15 on.
const STOPPED: [&str; 3] = ["ro", "emergency_ro", "shutdown"];

/// What is wrong with a mount.
pub(super) fn trouble_at<K: Kernel>(
    machine: &Machine<K>,
    path: &Path,
    place: &Path,
    table: &Table,
    only_reads: bool,
) -> Result<Option<Trouble>> {
    let Some(mount) = table.at(place) else {
        return Ok(Some(Trouble::NotMounted(path.to_owned())));
    };
    match machine.kernel.ask(place, mount.device) {
        Err(Failure::Dead | Failure::Silent) => return Ok(Some(Trouble::Dead(path.to_owned()))),
        asked => asked.map(drop).map_err(failed("looking at", place))?,
    }
    let stopped = !only_reads && mount.super_options.iter().any(|option| STOPPED.contains(&option.as_str()));
    Ok(stopped.then(|| Trouble::ReadOnly(path.to_owned())))
}

pub(super) fn live_targets<K: Kernel>(machine: &Machine<K>, record: &Record, table: &Table) -> Result<Vec<PathBuf>> {
    let mut live = Vec::new();
    for path in record.targets.keys() {
        if table.at(&place(machine, path)?).is_some() {
            live.push(path.clone());
        }
    }
    Ok(live)
}
