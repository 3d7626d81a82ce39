//! The volumes behind the PersistentVolumes: what is there, how large, and in which directory. Nothing outside of the
//! storage's own folder is ever made or removed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::settings::Settings;
use crate::news::{Listener, News};

#[derive(Debug)]
pub(super) struct Backing {
    folder: Option<PathBuf>,
    whole: Option<u64>,
    by_class: BTreeMap<String, u64>,
    volumes: Mutex<BTreeMap<String, Volume>>,
    /// Told whenever there is more or less room.
    changed: News,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    kind: Kind,
    class: String,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Volume,
    /// It takes up no room of its own.
    Snapshot,
}

/// Why a volume cannot be made, grown or removed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// So much is left.
    Full(u64),
    Disk(io::Error),
}

impl Backing {
    pub(super) fn new(settings: &Settings) -> Self {
        let limits = settings.classes.iter().filter_map(|class| Some((class.name.clone(), class.capacity?)));
        Self {
            folder: settings.folder.clone(),
            whole: settings.capacity,
            by_class: limits.collect(),
            volumes: Mutex::default(),
            changed: News::default(),
        }
    }

    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        self.lock().iter().filter(|(_, volume)| volume.kind == kind).map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    pub(super) fn changes(&self) -> Listener {
        self.changed.listen()
    }

    fn tell(&self) {
        self.changed.tell(self.changed.latest() + 1);
    }

    /// The room that is left in a class; none where there is no limit.
    pub(super) fn room(&self, class: &str) -> Option<u64> {
        self.room_in(&self.lock(), class)
    }

    fn room_in(&self, volumes: &BTreeMap<String, Volume>, class: &str) -> Option<u64> {
        let used = |of_class: bool| -> u64 {
            volumes.values().filter(|volume| !of_class || volume.class == class).map(|volume| volume.bytes).sum()
        };
        let whole = self.whole.map(|whole| whole.saturating_sub(used(false)));
        let own = self.by_class.get(class).map(|own| own.saturating_sub(used(true)));
        [whole, own].into_iter().flatten().min()
    }

    /// Makes a volume once; made again, it is the same.
    pub(super) fn make(&self, name: &str, class: &str, bytes: u64) -> Result<(), Trouble> {
        let mut volumes = self.lock();
        if !volumes.contains_key(name) {
            if let Some(room) = self.room_in(&volumes, class).filter(|room| *room < bytes) {
                return Err(Trouble::Full(room));
            }
            if let Some(path) = self.path(name).map_err(Trouble::Disk)? {
                make_directory(&path).map_err(Trouble::Disk)?;
            }
            volumes.insert(name.to_owned(), Volume { kind: Kind::Volume, class: class.to_owned(), bytes });
        }
        drop(volumes);
        self.tell();
        Ok(())
    }

    /// Makes a snapshot of a volume once.
    pub(super) fn snapshot(&self, name: &str, of: &str) -> Result<(), Trouble> {
        if self.has(name) {
            return Ok(());
        }
        if let Some(path) = self.path(name).map_err(Trouble::Disk)? {
            make_directory(&path).map_err(Trouble::Disk)?;
        }
        self.adopt(Kind::Snapshot, name, "", 0);
        self.fill(name, of)
    }

    /// Fills what is new with what is in another, or takes it away again.
    pub(super) fn fill(&self, name: &str, from: &str) -> Result<(), Trouble> {
        let filled = self.copy(from, name);
        if filled.is_err() {
            self.remove(name)?;
        }
        filled
    }

    fn copy(&self, from: &str, to: &str) -> Result<(), Trouble> {
        if !self.has(from) {
            return Err(Trouble::Disk(io::Error::other(format!("{from} is gone"))));
        }
        let (from, to) = (self.path(from).map_err(Trouble::Disk)?, self.path(to).map_err(Trouble::Disk)?);
        match (from, to) {
            (Some(from), Some(to)) => copy_directory(&from, &to).map_err(Trouble::Disk),
            _ => Ok(()),
        }
    }

    /// Counts what was made before.
    pub(super) fn adopt(&self, kind: Kind, name: &str, class: &str, bytes: u64) {
        self.lock().entry(name.to_owned()).or_insert_with(|| Volume { kind, class: class.to_owned(), bytes });
        self.tell();
    }

    pub(super) fn grow(&self, name: &str, bytes: u64) -> Result<(), Trouble> {
        let mut volumes = self.lock();
        let Some(volume) = volumes.get(name).cloned() else {
            return Ok(());
        };
        let more = bytes.saturating_sub(volume.bytes);
        if let Some(room) = self.room_in(&volumes, &volume.class).filter(|room| *room < more) {
            return Err(Trouble::Full(room));
        }
        volumes.insert(name.to_owned(), Volume { bytes: bytes.max(volume.bytes), ..volume });
        drop(volumes);
        self.tell();
        Ok(())
    }

    /// Removes a volume and all that is in it. One that is not there is no trouble.
    pub(super) fn remove(&self, name: &str) -> Result<(), Trouble> {
        let mut volumes = self.lock();
        if !volumes.contains_key(name) {
            return Ok(());
        }
        if let Some(path) = self.path(name).map_err(Trouble::Disk)? {
            remove_directory(&path).map_err(Trouble::Disk)?;
        }
        volumes.remove(name);
        drop(volumes);
        self.tell();
        Ok(())
    }

    /// A volume's directory, where volumes have one.
    pub(super) fn path(&self, name: &str) -> io::Result<Option<PathBuf>> {
        let Some(folder) = &self.folder else {
            return Ok(None);
        };
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || ".-".contains(letter);
        let starts = name.starts_with(|letter: char| letter.is_ascii_alphanumeric());
        if !starts || !name.chars().all(plain) {
            return Err(io::Error::other(format!("{name:?} cannot be the name of a directory")));
        }
        Ok(Some(folder.join(name)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Volume>> {
        self.volumes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(room) => write!(out, "not enough space: {room} bytes are left"),
            Self::Disk(error) => write!(out, "{error}"),
        }
    }
}

/// One that is there already is taken, unless it leads elsewhere.
fn make_directory(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && is_directory(path)? => Ok(()),
        made => made,
    }
}

/// Links are not followed, at the path itself or below it.
fn remove_directory(path: &Path) -> io::Result<()> {
    match is_directory(path) {
        Ok(true) => fs::remove_dir_all(path),
        Ok(false) => Err(io::Error::other(format!("{} is no directory", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn is_directory(path: &Path) -> io::Result<bool> {
    fs::symlink_metadata(path).map(|found| found.is_dir())
}

/// Files and directories; a link could lead out, and is left behind.
fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            make_directory(&target)?;
            copy_directory(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::settings::{Binding, Class};

    fn limited(whole: Option<u64>, own: Option<u64>, folder: Option<PathBuf>) -> Backing {
        let class = Class { capacity: own, ..Class::new("a", Binding::Immediate) };
        Backing::new(&Settings { classes: vec![class], capacity: whole, folder, ..Settings::default() })
    }

    #[test]
    fn the_smaller_of_both_limits_counts_and_room_comes_back() {
        let backing = limited(Some(100), Some(60), None);
        assert_eq!((backing.room("a"), backing.room("b")), (Some(60), Some(100)));
        backing.make("one", "a", 50).unwrap();
        backing.make("one", "a", 50).unwrap();
        assert_eq!((backing.room("a"), backing.room("b")), (Some(10), Some(50)));
        assert!(matches!(backing.make("two", "a", 20), Err(Trouble::Full(10))));
        assert!(matches!(backing.grow("one", 70), Err(Trouble::Full(10))));
        backing.grow("one", 60).unwrap();
        backing.remove("one").unwrap();
        assert_eq!((backing.room("a"), backing.names(Kind::Volume)), (Some(60), Vec::<String>::new()));
    }

    #[test]
    fn nothing_outside_of_the_folder_is_touched() {
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("kept"), "x").unwrap();
        let folder = outside.path().join("volumes");
        let backing = limited(None, None, Some(folder.clone()));
        for name in ["", "..", ".", "../kept", "a/b", "/etc", ".hidden", "a\0"] {
            assert!(backing.make(name, "a", 1).is_err(), "{name:?}");
        }
        fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("link")).unwrap();
        assert!(backing.make("link", "a", 1).is_err());
        backing.adopt(Kind::Volume, "link", "a", 1);
        assert!(backing.remove("link").is_err());
        backing.make("own", "a", 1).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("own/link")).unwrap();
        backing.remove("own").unwrap();
        assert!(outside.path().join("kept").exists() && !folder.join("own").exists());
    }

    #[test]
    fn a_copy_holds_the_files_and_not_the_links() {
        let folder = tempfile::tempdir().unwrap();
        let backing = limited(Some(1), None, Some(folder.path().to_owned()));
        backing.make("one", "a", 1).unwrap();
        fs::create_dir(folder.path().join("one/deep")).unwrap();
        fs::write(folder.path().join("one/deep/file"), "text").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("one/link")).unwrap();
        backing.snapshot("two", "one").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("two/deep/file")).unwrap(), "text");
        assert!(!folder.path().join("two/link").exists());
        assert_eq!(
            (backing.names(Kind::Volume), backing.names(Kind::Snapshot)),
            (vec!["one".into()], vec!["two".into()])
        );
    }

    #[test]
    fn a_copy_that_fails_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let backing = limited(None, None, Some(folder.path().to_owned()));
        assert!(backing.snapshot("two", "gone").is_err());
        assert!(!backing.has("two") && !folder.path().join("two").exists());
    }
}
