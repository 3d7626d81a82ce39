//! What can be known of a volume where it is used, and how it grows there.

use std::{path::Path, time::Duration};

use super::{
    Amounts, Expanded, Kernel, Machine, Trouble, Usage, decide,
    device::{self, Disk},
    disk::{self, Filesystem, Growth},
    kernel::Left,
    options::{Flag, flags_of},
    paths::failed,
    points, publish,
    records::Record,
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

/// A hypervisor tells its machine that a disk is larger after it has told the member.
const HEARD_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_secs(1);

/// How full a volume is.
pub fn usage<K: Kernel>(machine: &Machine<K>, volume: &str, path: &Path) -> Result<Usage> {
    let published = decide::published_path(path, &machine.kubelet_dir);
    let (record, place) = publish::mounted_at(machine, volume, published.as_deref().unwrap_or(path))?;
    if record.way.mode.is_block() {
        let total = match device::disk(machine, &record)? {
            Some(disk) => Some(machine.kernel.device_size(&disk.path).map_err(failed("measuring", &disk.path))?),
            None => None,
        };
        let bytes = total.map(|total| Amounts { total, ..Amounts::default() });
        return Ok(Usage { bytes, inodes: None });
    }
    points::check_answers(machine, &place)?;
    let filled = machine.kernel.filled(&place).map_err(failed("measuring", &place))?;
    let amounts = |left: Left, unit: u64| Amounts {
        total: left.total.saturating_mul(unit),
        available: left.available.saturating_mul(unit),
        used: left.total.saturating_sub(left.free).saturating_mul(unit),
    };
    // Some filesystems do not count files.
    let inodes = Some(filled.files).filter(|files| files.total > 0).map(|files| amounts(files, 1));
    Ok(Usage { bytes: Some(amounts(filled.blocks, filled.unit)), inodes })
}

/// Lets a volume's filesystem fill its disk, which is to have so many bytes by now.
pub fn expand<K: Kernel>(machine: &Machine<K>, volume: &str, path: &Path, required: u64) -> Result<Expanded> {
    let record = machine.record(volume)?.ok_or_else(|| publish::not_at(volume, path))?;
    if let Backing::Csi(leaf) = record.attached.backing {
        return Ok(Expanded::Ask(leaf));
    }
    let Some(disk) = device::disk(machine, &record)? else {
        let (_, place) = publish::mounted_at(machine, volume, path)?;
        points::check_answers(machine, &place)?;
        let filled = machine.kernel.filled(&place).map_err(failed("measuring", &place))?;
        return Ok(Expanded::To(filled.blocks.total.saturating_mul(filled.unit)));
    };
    if !record.way.mode.is_block() {
        publish::mounted_at(machine, volume, path)?;
    }
    let size = size_once_heard(machine, &disk, required)?;
    // The kubelet names a raw volume by other paths than the one where it was published.
    if !record.way.mode.is_block() {
        grow_staged(machine, &record, &disk)?;
    }
    Ok(Expanded::To(size))
}

/// Not for ever: a disk may lack a little of what its volume is said to have, and some machines hear of it at their next start alone.
fn size_once_heard<K: Kernel>(machine: &Machine<K>, disk: &Disk, required: u64) -> Result<u64> {
    let mut waited = Duration::ZERO;
    loop {
        machine.kernel.rescan(&disk.path).map_err(failed("reading the size of", &disk.path))?;
        let size = machine.kernel.device_size(&disk.path).map_err(failed("measuring", &disk.path))?;
        if !disk::should_grow(size, required) || waited >= HEARD_WITHIN {
            return Ok(size);
        }
        machine.kernel.pause(LOOK);
        waited += LOOK;
    }
}

fn grow_staged<K: Kernel>(machine: &Machine<K>, record: &Record, disk: &Disk) -> Result<()> {
    let place = points::place(machine, &record.staging)?;
    let table = points::table(machine)?;
    let mount = table.at(&place).ok_or_else(|| publish::not_at(record.volume(), &record.staging))?;
    if record.only_reads() || flags_of(&mount.options).contains(&Flag::ReadOnly) {
        return Err(Error::Refused(format!(
            "volume {} is only read on this node: its filesystem grows where it is written to",
            record.volume()
        )));
    }
    let Some(filesystem) = Filesystem::known(&mount.filesystem) else { return Ok(()) };
    // A kubelet that hears of a refusal asks no more while a pod has the volume, and writes no event.
    match device::grow_mounted(machine, disk, filesystem, &place).map_err(Error::while_a_leaf_may_exist)? {
        Growth::Done => Ok(()),
        Growth::Denied => Err(Error::Refused(format!(
            "this machine does not let the filesystem on disk {} grow while it is mounted: it grows when the volume \
             is next staged, so end the pods that use it here and start them again. If it has not grown then, another container \
             has it mounted still: end that one first",
            disk.name()
        ))),
    }
}

/// What is wrong with a volume; nothing, if all is well.
pub fn health<K: Kernel>(machine: &Machine<K>, volume: &str) -> Result<Vec<Trouble>> {
    let unknown = || Error::NotFound(format!("volume {volume} is not on this node"));
    let record = machine.record(volume)?.ok_or_else(unknown)?;
    let table = points::table(machine)?;
    let mut troubles = Vec::new();
    let is_mounted = !record.way.mode.is_block() && !matches!(record.attached.backing, Backing::Csi(_));
    let staging = Some(&record.staging).filter(|_| is_mounted && record.folder().is_none());
    for path in staging.into_iter().chain(record.targets.keys()) {
        // A raw volume has no filesystem that could stop.
        let only_reads = record.only_reads() || record.way.mode.is_block();
        troubles.extend(points::trouble_at(machine, path, &points::place(machine, path)?, &table, only_reads)?);
    }
    Ok(troubles)
}
