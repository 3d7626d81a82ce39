//! The volumes behind the PersistentVolumes: what is there, how large, and in which directory. Nothing outside of the
//! storage's own folder is ever made or removed.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;

use super::settings::Settings;

#[derive(Debug)]
pub(super) struct Backing {
    folder: Option<PathBuf>,
    whole: Option<u64>,
    by_class: BTreeMap<String, u64>,
    volumes: Mutex<BTreeMap<String, Volume>>,
    /// Told whenever there is more or less room.
    changed: watch::Sender<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) class: String,
    pub(super) bytes: u64,
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
            changed: watch::Sender::new(()),
        }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.lock().keys().cloned().collect()
    }

    pub(super) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
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
            volumes.insert(name.to_owned(), Volume { class: class.to_owned(), bytes });
        }
        drop(volumes);
        self.changed.send_replace(());
        Ok(())
    }

    /// Counts a volume that was made before.
    pub(super) fn adopt(&self, name: &str, class: &str, bytes: u64) {
        self.lock().entry(name.to_owned()).or_insert_with(|| Volume { class: class.to_owned(), bytes });
        self.changed.send_replace(());
    }

    pub(super) fn grow(&self, name: &str, bytes: u64) -> Result<(), Trouble> {
        let mut volumes = self.lock();
        let Some(Volume { class, bytes: before }) = volumes.get(name).cloned() else {
            return Ok(());
        };
        let more = bytes.saturating_sub(before);
        if let Some(room) = self.room_in(&volumes, &class).filter(|room| *room < more) {
            return Err(Trouble::Full(room));
        }
        volumes.insert(name.to_owned(), Volume { class, bytes: bytes.max(before) });
        drop(volumes);
        self.changed.send_replace(());
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
        self.changed.send_replace(());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulate::storage::settings::{Binding, Class};

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
        assert_eq!((backing.room("a"), backing.names()), (Some(60), Vec::<String>::new()));
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
        backing.adopt("link", "a", 1);
        assert!(backing.remove("link").is_err());
        backing.make("own", "a", 1).unwrap();
        std::os::unix::fs::symlink(outside.path(), folder.join("own/link")).unwrap();
        backing.remove("own").unwrap();
        assert!(outside.path().join("kept").exists() && !folder.join("own").exists());
    }
}
