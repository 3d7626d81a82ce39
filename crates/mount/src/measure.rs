//! What can be known of a volume where it is used, and how it grows there.

use std::path::{Path, PathBuf};

use super::{
    Amounts, Expanded, Kernel, Machine, Trouble, Usage, disk::Filesystem, kernel::Left, paths::failed, records::Record,
};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

impl<K: Kernel> Machine<K> {
    /// How full a volume is. A dead server may keep it from ever answering.
    pub fn usage(&self, volume: &str, path: &Path) -> Result<Usage> {
        let (record, place) = self.mounted_at(volume, path)?;
        if record.way.mode.is_block() {
            let total = match self.disk(&record)? {
                Some(disk) => Some(self.kernel.device_size(&disk.path).map_err(failed("measuring", &disk.path))?),
                None => None,
            };
            let bytes = total.map(|total| Amounts { total, ..Amounts::default() });
            return Ok(Usage { bytes, inodes: None });
        }
        let filled = self.kernel.filled(&place).map_err(failed("measuring", &place))?;
        let amounts = |left: Left, unit: u64| Amounts {
            total: left.total.saturating_mul(unit),
            available: left.available.saturating_mul(unit),
            used: left.total.saturating_sub(left.free).saturating_mul(unit),
        };
        // Some filesystems do not count files.
        let inodes = Some(filled.files).filter(|files| files.total > 0).map(|files| amounts(files, 1));
        Ok(Usage { bytes: Some(amounts(filled.blocks, filled.unit)), inodes })
    }

    /// Lets a volume's filesystem fill the size that its disk has now.
    pub fn expand(&self, volume: &str, path: &Path) -> Result<Expanded> {
        let record = self.record(volume)?.ok_or_else(|| not_at(volume, path))?;
        if let Backing::Csi(leaf) = record.attached.backing {
            return Ok(Expanded::Ask(leaf));
        }
        let Some(disk) = self.disk(&record)? else {
            let (_, place) = self.mounted_at(volume, path)?;
            let filled = self.kernel.filled(&place).map_err(failed("measuring", &place))?;
            return Ok(Expanded::To(filled.blocks.total.saturating_mul(filled.unit)));
        };
        if !record.way.mode.is_block() {
            self.mounted_at(volume, path)?;
        }
        self.kernel.rescan(&disk.path).map_err(failed("reading the size of", &disk.path))?;
        // The kubelet names a raw volume by other paths than the one where it was published.
        if !record.way.mode.is_block() {
            self.grow_staged(&record, &disk)?;
        }
        self.kernel.device_size(&disk.path).map(Expanded::To).map_err(failed("measuring", &disk.path))
    }

    fn grow_staged(&self, record: &Record, disk: &super::device::Disk) -> Result<()> {
        let place = self.place(&record.staging)?;
        let table = self.table()?;
        let mount = table.at(&place).ok_or_else(|| not_at(record.volume(), &record.staging))?;
        if record.only_reads() {
            return Err(Error::Refused(format!(
                "volume {} is only read on this node: its filesystem grows where it is written to",
                record.volume()
            )));
        }
        match Filesystem::known(&mount.filesystem) {
            Some(filesystem) => self.grow_mounted(disk, filesystem, &place),
            None => Ok(()),
        }
    }

    /// What is wrong with a volume; nothing, if all is well. A dead server may keep it from ever answering.
    pub fn health(&self, volume: &str) -> Result<Vec<Trouble>> {
        let unknown = || Error::NotFound(format!("volume {volume} is not on this node"));
        let record = self.record(volume)?.ok_or_else(unknown)?;
        let table = self.table()?;
        let mut troubles = Vec::new();
        let is_mounted = !record.way.mode.is_block() && !matches!(record.attached.backing, Backing::Csi(_));
        let staging = Some(&record.staging).filter(|_| is_mounted);
        for path in staging.into_iter().chain(record.targets.keys()) {
            // A raw volume has no filesystem that could stop.
            let only_reads = record.only_reads() || record.way.mode.is_block();
            troubles.extend(self.trouble_at(path, &self.place(path)?, &table, only_reads)?);
        }
        Ok(troubles)
    }

    /// The record of a volume that is mounted at a path, and where that really is.
    pub(super) fn mounted_at(&self, volume: &str, path: &Path) -> Result<(Record, PathBuf)> {
        let record = self.record(volume)?.ok_or_else(|| not_at(volume, path))?;
        if !record.targets.contains_key(path) && record.staging != path {
            return Err(not_at(volume, path));
        }
        let place = self.place(path)?;
        let table = self.table()?;
        let mounted = match table.at(&place) {
            Some(mount) if !matches!(record.attached.backing, Backing::Csi(_)) => {
                self.shown_origin(&record, &table)?.is_none_or(|origin| origin.is_of(mount))
            }
            there => there.is_some(),
        };
        if mounted { Ok((record, place)) } else { Err(not_at(volume, path)) }
    }
}

fn not_at(volume: &str, path: &Path) -> Error {
    Error::NotFound(format!("volume {volume} is not at {}", path.display()))
}
