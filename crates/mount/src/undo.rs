//! Takes volumes away again: from pods, and from this node. What is not there is done; what is not ours is left alone.

use std::path::Path;

use super::{Kernel, Machine, Step, decide, kernel::Failure, paths, records::Record, source, table::Table};
use domain::{
    error::{Error, Result},
    volume::backing::Backing,
};

impl<K: Kernel> Machine<K> {
    /// Takes a volume from a pod's path. `Ask`: the leaf driver unpublishes it first, and then [`Self::unpublished`].
    pub fn unpublish(&self, volume: &str, target: &Path) -> Result<Step> {
        paths::check("target_path", target)?;
        let record = self.record(volume)?;
        match record.filter(|record| record.targets.contains_key(target)).map(|record| record.attached.backing) {
            Some(Backing::Csi(leaf)) => Ok(Step::Ask(leaf)),
            _ => self.unpublished(volume, target).map(|()| Step::Done),
        }
    }

    /// Clears what is left at a pod's path: mounts, the mount point, the record's entry.
    pub fn unpublished(&self, volume: &str, target: &Path) -> Result<()> {
        paths::check("target_path", target)?;
        let record = self.record(volume)?;
        let place = self.place(target)?;
        let recorded = record.as_ref().is_some_and(|record| record.targets.contains_key(target));
        if !recorded {
            let form = decide::is_kubelets_target(target, &self.kubelet_dir);
            if !self.may_clear(volume, record.as_ref(), target, &place, form)? {
                return Ok(());
            }
        }
        self.take_mounts(&place)?;
        self.take_point(&place)?;
        match record {
            Some(mut record) if recorded => {
                record.targets.remove(target);
                self.records.keep(&self.kernel, &record)
            }
            _ => Ok(()),
        }
    }

    /// Takes a volume from this node. `Ask`: the leaf driver unstages it first, and then [`Self::unstaged`].
    pub fn unstage(&self, volume: &str, staging: &Path) -> Result<Step> {
        paths::check("staging_target_path", staging)?;
        let record = self.record(volume)?.filter(|record| record.staging == staging);
        if let Some(record) = &record {
            self.check_unpublished(record)?;
        }
        match record.map(|record| record.attached.backing) {
            Some(Backing::Csi(leaf)) => Ok(Step::Ask(leaf)),
            _ => self.unstaged(volume, staging).map(|()| Step::Done),
        }
    }

    /// Clears what is left at the staging path, and the record. The folder is whoever's who made the path.
    pub fn unstaged(&self, volume: &str, staging: &Path) -> Result<()> {
        paths::check("staging_target_path", staging)?;
        let record = self.record(volume)?;
        let place = self.place(staging)?;
        let mut record = match record {
            Some(record) if record.staging == staging => record,
            other => {
                let form = decide::is_kubelets_staging(staging, &self.kubelet_dir);
                self.may_clear(volume, other.as_ref(), staging, &place, form)?;
                return self.take_mounts(&place);
            }
        };
        self.check_unpublished(&record)?;
        self.take_mounts(&place)?;
        self.let_go(&mut record)?;
        self.records.forget(&self.kernel, volume)
    }

    /// Forgets a volume that its leaf driver refused for good when it was first asked, unless something is mounted after all:
    /// nobody calls again to undo it. Nothing is unmounted, since only the driver knows what it has there.
    pub fn refused(&self, volume: &str, staging: &Path) -> Result<()> {
        match self.table()?.at(&self.place(staging)?) {
            Some(_) => Ok(()),
            None => self.records.forget(&self.kernel, volume),
        }
    }

    /// Likewise one path of it.
    pub fn refused_at(&self, volume: &str, target: &Path) -> Result<()> {
        let mounted = self.table()?.at(&self.place(target)?).is_some();
        let Some(mut record) = self.record(volume)?.filter(|_| !mounted) else { return Ok(()) };
        record.targets.remove(target);
        self.records.keep(&self.kernel, &record)
    }

    /// Leaves a disk as the next node can use it. One that is gone is let go all the same.
    fn let_go(&self, record: &mut Record) -> Result<()> {
        let Ok(Some(disk)) = self.disk(record) else {
            return Ok(());
        };
        if record.way.mode.is_block() && record.only_reads() {
            self.lock(&disk, false)?;
        }
        if record.formatting && !record.only_reads() {
            let wanted = source::check(record)?.filesystem;
            return match self.end_format(record, &disk, wanted) {
                Err(Error::Refused(_)) => Ok(()),
                formatted => formatted,
            };
        }
        Ok(())
    }

    fn check_unpublished(&self, record: &Record) -> Result<()> {
        match self.live_targets(record, &self.table()?)?.first() {
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
    fn may_clear(&self, volume: &str, record: Option<&Record>, path: &Path, place: &Path, form: bool) -> Result<bool> {
        let table = self.table()?;
        let mount = table.at(place);
        if mount.is_none() && self.kernel.look(place) == Err(Failure::Missing) {
            return Ok(false);
        }
        self.check_nobody_elses(volume, path)?;
        let Some(mount) = mount else {
            return Ok(true);
        };
        let ours = match record {
            Some(record) => self.are_all_its(record, place, &table)?,
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

    fn are_all_its(&self, record: &Record, place: &Path, table: &Table) -> Result<bool> {
        let origin = self.shown_origin(record, table)?;
        Ok(origin.is_some_and(|origin| table.all_at(place).all(|mount| origin.is_of(mount))))
    }

    fn check_nobody_elses(&self, volume: &str, path: &Path) -> Result<()> {
        let all = self.records.all(&self.kernel)?;
        let has = |record: &&Record| record.staging == path || record.targets.contains_key(path);
        match all.iter().filter(|record| record.volume() != volume).find(has) {
            None => Ok(()),
            Some(other) => Err(Error::Refused(format!(
                "{} belongs to volume {}, not to {volume}: nothing was touched",
                path.display(),
                other.volume()
            ))),
        }
    }
}
