//! Makes a volume ready at its staging path. What was asked for is on record before anything is done; where it fails for
//! good, all is taken back before the answer, because nobody will ask again.

use std::path::Path;

use super::{
    Kernel, Machine, Progress,
    decide::{self, Live, Stage},
    device::{self, Disk},
    disk::{Filesystem, Growth},
    kernel::{Failure, Kind, NewMount, Point, Seen},
    options::{Flag, Flags, Options, name_of},
    paths::{self, failed},
    points,
    records::Record,
    source::{self, Checked},
    table::{Origin, Table},
    volume_use::VolumeUse,
};
use domain::{
    error::{Error, Result},
    volume::backing::{Attached, Backing},
};

/// Makes a volume ready on this node. `Ask`: the leaf driver stages it at the same path.
pub fn stage<K: Kernel>(
    machine: &Machine<K>,
    attached: &Attached,
    staging: &Path,
    way: &VolumeUse,
) -> Result<Progress> {
    paths::check("staging_target_path", staging)?;
    let mut wanted = Record::new(attached, staging, way);
    let checked = source::check(&wanted)?;
    machine.permitted.check(&wanted)?;
    check_local(machine, &wanted)?;
    let found = machine.records.find(&machine.kernel, &attached.volume)?;
    let place = points::place(machine, staging)?;
    points::check_way_to(machine, &place)?;
    if wanted.folder().is_some() && found.as_ref().is_none_or(|found| found.staging != wanted.staging) {
        // No mount there tells that it is another volume's. A record that cannot be read is that one's affair.
        let all = machine.records.all(&machine.kernel).unwrap_or_default();
        decide::is_nobody_elses(&all, wanted.volume(), staging)?;
    }
    let disk = device::disk(machine, &wanted)?;
    let table = points::table(machine)?;
    points::check_kubelet_sees(machine, &attached.backing, &table)?;
    let live = live(machine, found.as_ref(), &wanted, &table)?;
    let next = decide::stage(found.as_ref(), &wanted, &live)?;
    if let Some(found) = &found {
        wanted.targets.clone_from(&found.targets);
        // What a leaf driver has to undo is not told by mounts alone.
        let csi = matches!(attached.backing, Backing::Csi(_));
        wanted.targets.retain(|path, _| csi || live.targets.contains(path));
        if found.attached.backing == attached.backing {
            (wanted.formatting, wanted.growing) = (found.formatting, found.growing);
        }
    }
    if let Backing::Csi(leaf) = &attached.backing {
        machine.records.keep(&machine.kernel, &wanted)?;
        return Ok(Progress::Ask(leaf.clone()));
    }
    if next == Stage::Begin || found.as_ref() != Some(&wanted) {
        if let (Some(disk), Stage::Begin) = (&disk, next) {
            check_unused(machine, disk, &wanted, &table)?;
        }
        machine.records.keep(&machine.kernel, &wanted)?;
    }
    let staged = bring_up(machine, &mut wanted, &place, disk.as_ref(), &checked, next);
    staged.map(|()| Progress::Done).map_err(|error| take_back(machine, error, found.as_ref(), &wanted, &place, &live))
}

/// What is mounted of a volume; anything else at the staging path is an error.
fn live<K: Kernel>(machine: &Machine<K>, found: Option<&Record>, wanted: &Record, table: &Table) -> Result<Live> {
    let mut live = Live::default();
    let place = points::place(machine, &wanted.staging)?;
    if let Some(mount) = table.at(&place) {
        // What a leaf driver mounts is known to it alone.
        let ours = matches!(wanted.attached.backing, Backing::Csi(_))
            || origin(machine, wanted, table)?.is_some_and(|origin| origin.is_of(mount));
        if !ours {
            return Err(Error::Refused(format!(
                "{} on {} is mounted already, and is not volume {}: unmount it first",
                mount.source,
                place.display(),
                wanted.volume()
            )));
        }
        live.here = true;
    }
    if let Some(found) = found {
        live.recorded = table.at(&points::place(machine, &found.staging)?).is_some();
        live.targets = points::live_targets(machine, found, table)?;
    }
    Ok(live)
}

/// By what the staged mount of a volume is known, or of a folder each of its mounts; a raw one is not mounted there.
pub(super) fn origin<K: Kernel>(machine: &Machine<K>, record: &Record, table: &Table) -> Result<Option<Origin>> {
    if record.way.mode.is_block() {
        return Ok(None);
    }
    match &record.attached.backing {
        Backing::Nfs { server, path } => Ok(Some(Origin::Server(source::nfs(server, path)))),
        Backing::Device { .. } => {
            let disk = device::disk(machine, record)?;
            Ok(disk.map(|disk| Origin::Place { device: disk.number, root: "/".into() }))
        }
        Backing::Local { path } => {
            let path = Path::new(path);
            let seen = points::look_at_folder(machine, path, table).map_err(failed("looking at", path))?;
            Ok(table.origin_of(path, seen.mount))
        }
        Backing::Csi(_) => Ok(None),
    }
}

fn check_local<K: Kernel>(machine: &Machine<K>, wanted: &Record) -> Result<()> {
    // A raw one has to be a device below /dev.
    let Some(path) = wanted.folder() else {
        return Ok(());
    };
    let real = points::real_kubelet_dir(machine)?;
    if !paths::may_be_shown(path, &machine.kubelet_dir) || !paths::may_be_shown(path, &real) {
        return Err(Error::Refused(format!(
            "folder {} belongs to this machine and is not shown to pods: keep volumes elsewhere",
            path.display()
        )));
    }
    folder(machine, path, &points::table(machine)?).map(drop)
}

/// What is at the path of a volume that is a folder of this machine.
pub(super) fn folder<K: Kernel>(machine: &Machine<K>, path: &Path, table: &Table) -> Result<Seen> {
    let seen = points::look_at_folder(machine, path, table);
    let seen = seen.map_err(failed("looking at the volume's folder", path))?;
    if seen.kind == Kind::Folder {
        return Ok(seen);
    }
    Err(Error::Refused(format!("{} is no folder: a volume with files needs one", path.display())))
}

/// A disk with another's filesystem in use is not this volume's, whatever its name says.
fn check_unused<K: Kernel>(machine: &Machine<K>, disk: &Disk, wanted: &Record, table: &Table) -> Result<()> {
    let mut ours = vec![points::place(machine, &wanted.staging)?];
    for target in wanted.targets.keys() {
        ours.push(points::place(machine, target)?);
    }
    if let Some(mount) = table.of_device(disk.number).find(|mount| !ours.contains(&mount.target)) {
        return Err(Error::Refused(format!(
            "disk {} is mounted at {}, which is not volume {}: unmount it there first",
            disk.name(),
            mount.target.display(),
            wanted.volume()
        )));
    }
    // A filesystem would not be mounted; a pod that has the disk raw would write below whoever keeps it.
    if wanted.way.mode.is_block() && device::is_held(machine, disk)? {
        return Err(Error::Refused(format!(
            "disk {} or a part of it is in use on this machine (mounted, or part of a RAID or a volume group), so it is no \
             volume: let the member's volume name another disk, or free this one",
            disk.name()
        )));
    }
    Ok(())
}

fn bring_up<K: Kernel>(
    machine: &Machine<K>,
    wanted: &mut Record,
    place: &Path,
    disk: Option<&Disk>,
    checked: &Checked,
    next: Stage,
) -> Result<()> {
    if let (Some(disk), true) = (disk, wanted.way.mode.is_block()) {
        return if wanted.only_reads() { device::lock(machine, disk, true) } else { Ok(()) };
    }
    if wanted.folder().is_some() {
        // A former version mounted it there, and so does a publish meanwhile, which may have been cut short.
        points::take_mounts(machine, place)?;
        return points::make(machine, place, Point::Folder);
    }
    if next == Stage::Begin || clear_dead(machine, place)? {
        points::make(machine, place, Point::Folder)?;
        mount(machine, wanted, place, disk, checked)?;
    }
    device::finish(machine, wanted)?;
    points::give_flags(machine, place, &checked.options.flags)?;
    match disk {
        Some(disk) if !checked.options.flags.contains(&Flag::ReadOnly) => grow(machine, wanted, place, disk, checked),
        _ => Ok(()),
    }
}

/// Lets what is mounted fill its disk. That is the kernel's work, which may be cut short at any moment: a program that is cut short leaves an ext4
/// that somebody has to repair.
fn grow<K: Kernel>(
    machine: &Machine<K>,
    wanted: &mut Record,
    place: &Path,
    disk: &Disk,
    checked: &Checked,
) -> Result<()> {
    let table = points::table(machine)?;
    let is_alone = || table.of_device(disk.number).all(|mount| mount.target == place);
    match table.at(place).and_then(|mount| Filesystem::known(&mount.filesystem)) {
        Some(Filesystem::Xfs) => device::grow_mounted(machine, disk, Filesystem::Xfs, place).map(drop),
        // Where a pod has it too, the kubelet asks for that.
        Some(Filesystem::Ext4) if is_alone() && device::may_grow(machine, disk)? => {
            match device::grow_mounted(machine, disk, Filesystem::Ext4, place) {
                // Not every machine lets it, nor every filesystem.
                Ok(Growth::Denied) | Err(Error::Refused(_)) => {
                    points::take_mounts(machine, place)?;
                    // Another container may have it still.
                    if !device::is_held(machine, disk)? {
                        device::grow_unmounted(machine, wanted, disk)?;
                    }
                    mount_disk(machine, wanted, place, disk, checked)
                }
                grown => grown.map(drop),
            }
        }
        _ => Ok(()),
    }
}

/// Whether there was a mount that no longer answers.
fn clear_dead<K: Kernel>(machine: &Machine<K>, place: &Path) -> Result<bool> {
    let dead = points::is_dead(machine, place)?;
    if dead {
        points::take_mounts(machine, place)?;
    }
    Ok(dead)
}

fn mount<K: Kernel>(
    machine: &Machine<K>,
    wanted: &mut Record,
    place: &Path,
    disk: Option<&Disk>,
    checked: &Checked,
) -> Result<()> {
    match (wanted.attached.backing.clone(), disk) {
        (Backing::Nfs { server, path }, _) => mount_nfs(machine, &server, &path, place, &checked.options),
        (_, Some(disk)) => match mount_disk(machine, wanted, place, disk, checked) {
            // The format of before was not finished, which may be seen only now.
            Err(error @ Error::Refused(_)) if wanted.formatting && !wanted.only_reads() => {
                if !device::format_again(machine, wanted, disk, checked.filesystem)? {
                    return Err(error);
                }
                mount_disk(machine, wanted, place, disk, checked)
            }
            mounted => mounted,
        },
        (Backing::Csi(_) | Backing::Device { .. } | Backing::Local { .. }, None) => Ok(()),
    }
}

fn mount_disk<K: Kernel>(
    machine: &Machine<K>,
    wanted: &mut Record,
    place: &Path,
    disk: &Disk,
    checked: &Checked,
) -> Result<()> {
    let filesystem = device::prepare(machine, wanted, disk, checked.filesystem)?;
    let mut options = checked.options.clone();
    options.data.extend(filesystem.option_of_ours(&options.data).map(str::to_owned));
    call_mount(machine, disk.name(), filesystem.as_str(), options.flags.clone(), options.data(), place)
}

/// By the program that knows how to speak to a server, if the machine has it.
fn mount_nfs<K: Kernel>(machine: &Machine<K>, server: &str, path: &str, place: &Path, options: &Options) -> Result<()> {
    let source = source::nfs(server, path);
    let mut options = options.clone();
    options.data.extend(source::nfs_option_of_ours(&options.data).map(str::to_owned));
    let flags = options.flags.iter().map(|flag| name_of(*flag).to_owned());
    let words: Vec<String> = flags.chain(options.data.iter().cloned()).collect();
    match machine.kernel.mount_by("mount.nfs", &source, place, &words.join(",")) {
        Err(Failure::Missing) => {}
        Ok(ended) if ended.code == Some(0) => return Ok(()),
        Ok(ended) => {
            let said = ended.stderr.trim().replace('\n', "; ");
            return Err(Error::InProgress(format!("NFS volume {source} is not mounted yet: {said}")));
        }
        Err(failure) => return Err(failed(&format!("mounting {source} at"), place)(failure)),
    }
    let address = machine.kernel.address(server).map_err(|_| {
        Error::InProgress(format!("this node cannot resolve the name of NFS server {server} yet: check the name"))
    })?;
    let data = [options.data(), format!("addr={address}")];
    let data: Vec<String> = data.into_iter().filter(|part| !part.is_empty()).collect();
    call_mount(machine, source, source::nfs_type(&options), options.flags, data.join(","), place)
}

fn call_mount<K: Kernel>(
    machine: &Machine<K>,
    source: String,
    filesystem: &str,
    flags: Flags,
    data: String,
    place: &Path,
) -> Result<()> {
    let new = NewMount { source, filesystem: filesystem.to_owned(), flags, data };
    machine.kernel.mount(&new, place).map_err(|failure| match failure {
        Failure::Unfit => Error::Refused(format!(
            "the kernel does not mount {} as {filesystem} with the options {:?}: check the options, and that this kernel has \
             the filesystem; its log (dmesg) says more",
            new.source, new.data
        )),
        Failure::Broken => Error::Refused(format!(
            "the {filesystem} on {} is damaged, and the kernel does not mount it: repair it by hand (an xfs by xfs_repair); the kernel's \
             log (dmesg) says more",
            new.source
        )),
        failure => failed(&format!("mounting {} at", new.source), place)(failure),
    })
}

/// After an outcome that is final nothing may be left; while something is, it is not final.
fn take_back<K: Kernel>(
    machine: &Machine<K>,
    error: Error,
    found: Option<&Record>,
    wanted: &Record,
    place: &Path,
    live: &Live,
) -> Error {
    if !error.is_final() {
        return error;
    }
    let taken = || {
        if !live.here && !wanted.way.mode.is_block() {
            points::take_mounts(machine, place)?;
        }
        match found.filter(|_| live.recorded || !live.targets.is_empty()) {
            Some(found) => machine.records.keep(&machine.kernel, &Record { growing: wanted.growing, ..found.clone() }),
            // What was begun has to be known to whoever comes next.
            None if wanted.is_begun() || live.here => Ok(()),
            None => machine.records.forget(&machine.kernel, wanted.volume()),
        }
    };
    // Whoever gives it up unstages it while the outcome is open, and that ends a format or repairs a growth as well.
    let is_undone = taken().is_ok() && !wanted.is_begun() && !live.here;
    if is_undone { error } else { error.while_a_leaf_may_exist() }
}

/// The flags with which a volume is mounted read-only.
pub(super) fn read_only() -> Flags {
    Flags::from([Flag::ReadOnly])
}
