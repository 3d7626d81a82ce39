//! Records that outlive the process: one JSON file each, replaced whole, so that a kill at any moment leaves the old
//! record or the new one. They are not synced to the disk: they outlive the process, not the machine.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::volume::{Group, Snapshot, Volume};

pub(crate) trait Record: Clone + Serialize + DeserializeOwned {
    /// What people call it.
    const NOUN: &str;
    /// What its ids begin with.
    const PREFIX: &str;
    fn id(&self) -> &str;
    fn name(&self) -> &str;
}

impl Record for Volume {
    const NOUN: &str = "volume";
    const PREFIX: &str = "vol-";
    fn id(&self) -> &str {
        &self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
}

impl Record for Snapshot {
    const NOUN: &str = "snapshot";
    const PREFIX: &str = "snap-";
    fn id(&self) -> &str {
        &self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
}

impl Record for Group {
    const NOUN: &str = "group snapshot";
    const PREFIX: &str = "group-";
    fn id(&self) -> &str {
        &self.id
    }
    fn name(&self) -> &str {
        &self.name
    }
}

/// Ends the name of a record that is being written.
const FRESH: &str = "new";

/// All records of one sort, by id. Ids grow with time, so their order is the order of creation.
#[derive(Debug)]
pub(crate) struct Table<R> {
    folder: PathBuf,
    rows: Mutex<Rows<R>>,
}

#[derive(Debug)]
struct Rows<R> {
    by_id: BTreeMap<String, R>,
    last_id: u64,
}

/// Some records and, if there are more, the token to go on with.
#[derive(Debug)]
pub(crate) struct Page<R> {
    pub(crate) rows: Vec<R>,
    pub(crate) next: String,
}

impl<R: Record> Table<R> {
    pub(crate) fn open(folder: PathBuf) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        let mut by_id = BTreeMap::new();
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == FRESH) {
                // A crash came before it took the place of the record.
                fs::remove_file(&path)?;
                continue;
            }
            let row: R = serde_json::from_slice(&fs::read(&path)?)
                .map_err(|error| io::Error::other(format!("{}: {error}", path.display())))?;
            by_id.insert(row.id().to_owned(), row);
        }
        Ok(Self { folder, rows: Mutex::new(Rows { by_id, last_id: 0 }) })
    }

    /// An id that no record has had before.
    pub(crate) fn next_id(&self) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut rows = self.lock();
        rows.last_id = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX).max(rows.last_id + 1);
        format!("{}{:016x}", R::PREFIX, rows.last_id)
    }

    pub(crate) fn get(&self, id: &str) -> Result<R, Error> {
        self.find(id).ok_or_else(|| Error::NotFound(format!("there is no {} {id:?}", R::NOUN)))
    }

    pub(crate) fn find(&self, id: &str) -> Option<R> {
        self.lock().by_id.get(id).cloned()
    }

    pub(crate) fn named(&self, name: &str) -> Option<R> {
        self.lock().by_id.values().find(|row| row.name() == name).cloned()
    }

    pub(crate) fn all(&self) -> Vec<R> {
        self.lock().by_id.values().cloned().collect()
    }

    /// Adds or replaces a record, first in its file.
    pub(crate) fn put(&self, row: R) -> Result<(), Error> {
        let mut rows = self.lock();
        self.write(&row).map_err(Error::during(format!("recording {} {}", R::NOUN, row.id())))?;
        rows.by_id.insert(row.id().to_owned(), row);
        Ok(())
    }

    /// Changes a record that exists, and returns it as it is then.
    pub(crate) fn update(&self, id: &str, change: impl FnOnce(&mut R)) -> Result<R, Error> {
        let mut row = self.get(id)?;
        change(&mut row);
        self.put(row.clone())?;
        Ok(row)
    }

    pub(crate) fn remove(&self, id: &str) -> Result<(), Error> {
        let mut rows = self.lock();
        if rows.by_id.contains_key(id) {
            fs::remove_file(self.file(id)).map_err(Error::during(format!("forgetting {} {id}", R::NOUN)))?;
            rows.by_id.remove(id);
        }
        Ok(())
    }

    /// The records after the one that `token` names, at most `most` of them (0 for all). The record itself may be
    /// gone by now.
    pub(crate) fn page(&self, token: &str, most: usize, wanted: impl Fn(&R) -> bool) -> Result<Page<R>, Error> {
        if !token.is_empty() && !is_id::<R>(token) {
            return Err(Error::BadToken(format!("{token:?} is not a token of this driver")));
        }
        let rows = self.lock();
        let mut matching = rows.by_id.values().filter(|row| row.id() > token && wanted(row));
        let most = if most == 0 { usize::MAX } else { most };
        let page: Vec<R> = matching.by_ref().take(most).cloned().collect();
        let more = matching.next().is_some();
        let next = page.last().filter(|_| more).map(|row| row.id().to_owned());
        Ok(Page { rows: page, next: next.unwrap_or_default() })
    }

    fn write(&self, row: &R) -> io::Result<()> {
        let fresh = self.folder.join(format!("{}.{FRESH}", row.id()));
        fs::write(&fresh, serde_json::to_vec_pretty(row)?)?;
        fs::rename(fresh, self.file(row.id()))
    }

    fn file(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.json"))
    }

    fn lock(&self) -> MutexGuard<'_, Rows<R>> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_id<R: Record>(text: &str) -> bool {
    text.strip_prefix(R::PREFIX).is_some_and(|rest| rest.len() == 16 && u64::from_str_radix(rest, 16).is_ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    fn group(id: String, name: &str) -> Group {
        Group {
            id,
            name: name.to_owned(),
            volumes: BTreeSet::new(),
            snapshots: BTreeSet::new(),
            created: Duration::ZERO,
        }
    }

    #[test]
    fn records_outlive_the_process() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::<Group>::open(folder.path().to_owned()).unwrap();
        let (kept, gone) = (table.next_id(), table.next_id());
        table.put(group(kept.clone(), "kept")).unwrap();
        table.put(group(gone.clone(), "gone")).unwrap();
        table.update(&kept, |row| row.created = Duration::from_secs(7)).unwrap();
        table.remove(&gone).unwrap();
        table.remove(&gone).unwrap();
        fs::write(folder.path().join("group-half.new"), "{").unwrap();

        let table = Table::<Group>::open(folder.path().to_owned()).unwrap();
        assert_eq!(table.all().len(), 1);
        assert!(!folder.path().join("group-half.new").exists());
        assert_eq!(table.named("kept").unwrap().created, Duration::from_secs(7));
        assert!(matches!(table.get(&gone), Err(Error::NotFound(_))));
    }

    #[test]
    fn pages_go_on_where_they_ended_even_when_that_record_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::<Group>::open(folder.path().to_owned()).unwrap();
        let ids: Vec<String> = (0..3).map(|_| table.next_id()).collect();
        for id in &ids {
            table.put(group(id.clone(), id)).unwrap();
        }
        let page = table.page("", 2, |_| true).unwrap();
        assert_eq!((page.rows.len(), &page.next), (2, &ids[1]));
        table.remove(&ids[1]).unwrap();
        let page = table.page(&page.next, 2, |_| true).unwrap();
        assert_eq!((page.rows.len(), page.next.as_str()), (1, ""));
        assert_eq!(table.page("", 0, |row| row.id() == ids[2]).unwrap().rows.len(), 1);
        assert!(matches!(table.page("invalid-token", 0, |_| true), Err(Error::BadToken(_))));
    }

    #[test]
    fn ids_are_new_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let table = Table::<Group>::open(folder.path().to_owned()).unwrap();
        let ids: Vec<String> = (0..100).map(|_| table.next_id()).collect();
        assert!(ids.is_sorted_by(|one, next| one < next));
        assert!(ids.iter().all(|id| is_id::<Group>(id)));
    }
}
