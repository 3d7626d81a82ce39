//! The ends of paths: where they really are, made before something is mounted on them, and cleared after it.

use std::path::{Path, PathBuf};

use super::{
    Kernel, Machine, Trouble,
    kernel::{Failure, Kind, Point},
    options::{Flags, OF_A_MOUNT, flags_of},
    paths::failed,
    table::Table,
};
use domain::error::{Error, Result};

impl<K: Kernel> Machine<K> {
    /// A path as the kernel knows it. Whoever runs the kubelet may have made its folder a link; nothing below it is.
    pub(super) fn place(&self, path: &Path) -> Result<PathBuf> {
        match path.strip_prefix(&self.kubelet_dir) {
            Ok(below) => Ok(self.real_kubelet_dir()?.join(below)),
            Err(_) => Ok(path.to_owned()),
        }
    }

    pub(super) fn real_kubelet_dir(&self) -> Result<PathBuf> {
        match self.kernel.resolve(&self.kubelet_dir) {
            Err(Failure::Missing) => Ok(self.kubelet_dir.clone()),
            real => real.map_err(failed("finding", &self.kubelet_dir)),
        }
    }

    pub(super) fn table(&self) -> Result<Table> {
        Table::parse(&self.kernel.mountinfo().map_err(failed("reading", Path::new("/proc/self/mountinfo")))?)
    }

    /// The folder in which a mount point lies is there, and reached without a link.
    pub(super) fn check_way_to(&self, place: &Path) -> Result<()> {
        let folder = place.parent().unwrap_or(place);
        self.kernel.look(folder).map(drop).map_err(failed("looking at", folder))
    }

    /// Makes the mount point, or finds it there and empty. What was written to it while nothing was mounted would vanish
    /// below the mount, and is not ours to remove.
    pub(super) fn make_point(&self, place: &Path, point: Point) -> Result<()> {
        let seen = match self.kernel.look(place) {
            Err(Failure::Missing) => return self.kernel.make(place, point).map_err(failed("making", place)),
            seen => seen.map_err(failed("looking at", place))?,
        };
        let fits = match (seen.kind, point) {
            (Kind::Folder, Point::Folder) => self.kernel.is_empty(place).map_err(failed("reading", place))?,
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
    pub(super) fn take_mounts(&self, place: &Path) -> Result<()> {
        let there = self.table()?.all_at(place).count();
        for _ in 0..there {
            let taken = match self.kernel.unmount(place, false) {
                // One that is dead will not come to rest.
                Err(Failure::Busy) if self.is_dead(place)? => self.kernel.unmount(place, true),
                taken => taken,
            };
            taken.map_err(failed("unmounting", place))?;
        }
        Ok(())
    }

    /// Removes the mount point, which is an empty folder or an empty file. Anything else there is not ours.
    pub(super) fn take_point(&self, place: &Path) -> Result<()> {
        let point = match self.kernel.look(place) {
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
        match self.kernel.remove(place, point) {
            Err(Failure::Missing) => Ok(()),
            removed => removed.map_err(failed("removing", place)),
        }
    }

    pub(super) fn is_dead(&self, place: &Path) -> Result<bool> {
        match self.kernel.look(place) {
            Err(Failure::Dead) => Ok(true),
            seen => seen.map(|_| false).map_err(failed("looking at", place)),
        }
    }

    /// Gives a mount the flags it still lacks. The kernel ignores them while it binds, so this is a step of its own, and
    /// a crash may have come before it.
    pub(super) fn give_flags(&self, place: &Path, wanted: &Flags) -> Result<()> {
        let table = self.table()?;
        let mount = table.at(place).ok_or_else(|| {
            Error::InProgress(format!("nothing is mounted at {} any more: it is tried again", place.display()))
        })?;
        let has = flags_of(&mount.options);
        if OF_A_MOUNT.iter().all(|flag| has.contains(flag) || !wanted.contains(flag)) {
            return Ok(());
        }
        let wanted = OF_A_MOUNT.into_iter().filter(|flag| wanted.contains(flag));
        let flags: Flags = has.iter().copied().chain(wanted).collect();
        self.kernel.remount(place, &flags).map_err(failed("setting the flags of the mount at", place))
    }

    /// What is wrong with a mount.
    pub(super) fn trouble_at(
        &self,
        path: &Path,
        place: &Path,
        table: &Table,
        only_reads: bool,
    ) -> Result<Option<Trouble>> {
        let Some(mount) = table.at(place) else {
            return Ok(Some(Trouble::NotMounted(path.to_owned())));
        };
        if self.is_dead(place)? {
            return Ok(Some(Trouble::Dead(path.to_owned())));
        }
        let stopped = !only_reads && mount.super_options.iter().any(|option| option == "ro");
        Ok(stopped.then(|| Trouble::ReadOnly(path.to_owned())))
    }
}
