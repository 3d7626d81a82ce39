//! What is known of a member's leaf snapshots: one small row each, fed by a watch that begins when there is something to
//! see, and by the answers to our own requests.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{kinds::VolumeSnapshot, row::SnapshotRow};
use crate::{limits::Extent, notices};
use cluster::Relist;
use domain::volume::{HostId, LeafPlace, VolumeHash, VolumeId};

/// How many removed snapshots are remembered.
const REMEMBERED: usize = 64;

/// Its hash, and the UID of one that has it.
type Key = (VolumeHash, Box<str>);

#[derive(Debug, Default)]
struct Table {
    /// Of one hash there may be several: where the handle of its volume says no namespace, a copy in another one says all that it says.
    rows: BTreeMap<Key, SnapshotRow>,
    extent: Extent,
    relist: Relist<Key>,
    synced: bool,
    removed: VecDeque<Removed>,
    /// How many have gone in all, and how many of them before the list that is there or under way.
    removals: u64,
    removals_before_list: u64,
}

/// A snapshot that has gone, and as of which version: older news of it may still be on its way.
#[derive(Debug)]
struct Removed {
    uid: Box<str>,
    as_of: u64,
    /// How many had gone before it.
    number: u64,
}

impl Table {
    fn take(&mut self, mut new: SnapshotRow) {
        let key: Key = (new.hash, new.uid.clone());
        let relisted = self.relist.awaits(&key);
        self.relist.tell(&key);
        let former = self.of(new.hash).filter(|row| row.place == new.place && row.uid != new.uid);
        let former: Vec<Key> = former.map(|row| (row.hash, row.uid.clone())).collect();
        for key in &former {
            self.lose(key);
        }
        match self.rows.get(&key) {
            // News from before what is known; that it was listed counts all the same.
            Some(known) if !relisted && known.version > new.version => return,
            Some(known) => new.marked = known.marked,
            None => {}
        }
        let after = new.extent();
        let before = self.rows.insert(key, new).map(|known| known.extent()).unwrap_or_default();
        self.extent.change(before, after);
    }

    fn lose(&mut self, key: &Key) {
        if let Some(row) = self.rows.remove(key) {
            self.extent.change(row.extent(), Extent::default());
        }
    }

    fn of(&self, hash: VolumeHash) -> impl Iterator<Item = &SnapshotRow> {
        let first: Key = (hash, Box::default());
        self.rows.range(first..).map(|(_, row)| row).take_while(move |row| row.hash == hash)
    }

    /// One of its name was there before it, in another namespace.
    fn is_copy(&self, row: &SnapshotRow) -> bool {
        self.of(row.hash).any(|other| other.place.claim == row.place.claim && other.age() < row.age())
    }

    /// Of those that are no copies the latest: what was cut again in a group has another name.
    fn own(&self, hash: VolumeHash) -> Option<&SnapshotRow> {
        let own = self.of(hash).filter(|row| !self.is_copy(row));
        own.max_by(|one, other| one.age().cmp(&other.age()))
    }

    /// Forgets all but how many have gone: who reads meanwhile has counted them.
    fn clear(&mut self) {
        *self = Self { removals: self.removals, ..Self::default() };
    }
}

/// The snapshots of one member.
#[derive(Debug)]
pub struct Snapshots {
    host: HostId,
    table: Mutex<Table>,
    changed: Notify,
    wanted: watch::Sender<bool>,
}

impl Snapshots {
    pub fn new(host: HostId) -> Self {
        Self { host, table: Mutex::default(), changed: Notify::new(), wanted: watch::Sender::new(false) }
    }

    /// From now on they are watched: there is one, or there soon will be.
    pub fn want(&self) {
        self.wanted.send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }

    /// Returns when somebody wants to see them.
    pub(super) async fn are_wanted(&self) {
        // The sender is here, so this ends with the wish alone.
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// The member has no such kind: nothing is there to be watched.
    pub(super) fn are_not_served(&self) {
        self.wanted.send_replace(false);
        self.write(Table::clear);
    }

    /// Whether all have been listed, and are watched since.
    pub fn synced(&self) -> bool {
        self.lock().synced
    }

    /// Why no more is remembered of them. What is, is forgotten then.
    pub(super) fn too_much(&self) -> Option<String> {
        let mut table = self.lock();
        let reason = table.extent.too_much()?;
        table.clear();
        Some(reason)
    }

    pub(super) fn unsync(&self) {
        self.write(|table| table.synced = false);
    }

    pub fn row(&self, hash: VolumeHash) -> Option<SnapshotRow> {
        self.lock().own(hash).cloned()
    }

    /// The same, whichever is at this place.
    pub fn row_at(&self, hash: VolumeHash, place: &LeafPlace) -> Option<SnapshotRow> {
        self.lock().of(hash).find(|row| row.place == *place).cloned()
    }

    /// The row a handle stands for. A readable handle also says where the leaf is.
    pub fn find(&self, id: &VolumeId) -> Option<SnapshotRow> {
        let (table, hashes) = (self.lock(), id.hashes());
        let Some(place) = id.place() else { return table.own(*hashes.start()).cloned() };
        let first: Key = (*hashes.start(), Box::default());
        let mut rows = table.rows.range(first..).map(|(_, row)| row).take_while(|row| row.hash <= *hashes.end());
        rows.find(|row| row.place == place).cloned()
    }

    /// All that a condition holds for, without the copies that people have made of them.
    pub fn all(&self, wanted: impl Fn(&SnapshotRow) -> bool) -> Vec<SnapshotRow> {
        let table = self.lock();
        table.rows.values().filter(|row| wanted(row) && !table.is_copy(row)).cloned().collect()
    }

    /// Takes in a snapshot as it is now; its row, where it is ours and has not gone.
    pub fn put(&self, snapshot: &VolumeSnapshot) -> Option<SnapshotRow> {
        self.take(snapshot, 0)
    }

    /// The same of one that a list names: what had gone before the list began is back, as in a member that was restored from a
    /// backup.
    pub(super) fn put_listed(&self, snapshot: &VolumeSnapshot) {
        let before = self.lock().removals_before_list;
        drop(self.take(snapshot, before));
    }

    /// The same of one that a quorum read has shown, which was sent when so many had gone: it is there, whatever was heard of its
    /// end before.
    pub(super) fn put_read(&self, snapshot: &VolumeSnapshot, removals: u64) -> Option<SnapshotRow> {
        self.take(snapshot, removals)
    }

    /// How many have gone so far.
    pub(super) fn removals(&self) -> u64 {
        self.lock().removals
    }

    /// What was heard of the end of a snapshot counts, but for what was heard before so many had gone.
    fn take(&self, snapshot: &VolumeSnapshot, removals: u64) -> Option<SnapshotRow> {
        let new = SnapshotRow::new(snapshot, &self.host)?;
        self.write(|table| {
            let key: Key = (new.hash, new.uid.clone());
            table.removed.retain(|removed| removed.uid != key.1 || removed.number >= removals);
            if !table.removed.iter().any(|removed| removed.uid == key.1 && new.version <= removed.as_of) {
                table.take(new);
            }
            table.rows.get(&key).cloned()
        })
    }

    /// Its content carries our labels.
    pub fn mark(&self, hash: VolumeHash, uid: &str) {
        self.write(|table| {
            let key: Key = (hash, uid.into());
            if let Some(row) = table.rows.get_mut(&key) {
                row.marked = true;
            }
        });
    }

    pub fn is_marked(&self, hash: VolumeHash, uid: &str) -> bool {
        let key: Key = (hash, uid.into());
        self.lock().rows.get(&key).is_some_and(|row| row.marked)
    }

    /// It has gone, as was proved.
    pub fn drop_row(&self, hash: VolumeHash, uid: &str) {
        self.remove(hash, uid, u64::MAX);
    }

    /// It is out of sight: gone, or without its labels.
    pub(super) fn lose(&self, snapshot: &VolumeSnapshot) {
        if let Some(row) = SnapshotRow::new(snapshot, &self.host) {
            self.remove(row.hash, &row.uid, row.version);
        }
    }

    fn remove(&self, hash: VolumeHash, uid: &str, as_of: u64) {
        self.write(|table| {
            table.removed.push_back(Removed { uid: uid.into(), as_of, number: table.removals });
            table.removals += 1;
            if table.removed.len() > REMEMBERED {
                table.removed.pop_front();
            }
            table.lose(&(hash, uid.into()));
        });
    }

    /// A list begins: what is neither in it nor written by us meanwhile has gone.
    pub(super) fn begin(&self) {
        self.write(|table| {
            table.relist.begin();
            table.removals_before_list = table.removals;
        });
    }

    pub(super) fn complete(&self) {
        self.write(|table| {
            for key in table.relist.end(table.rows.keys()) {
                table.rows.remove(&key);
            }
            table.extent = Extent::default();
            table.rows.values().for_each(|row| table.extent.change(Extent::default(), row.extent()));
            table.synced = true;
        });
    }

    /// Waits until the rows satisfy a condition; false when the deadline came first.
    pub async fn until(&self, deadline: Instant, mut holds: impl FnMut(&Self) -> bool) -> bool {
        notices::until(&self.changed, deadline, || holds(self)).await
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let done = change(&mut self.lock());
        self.changed.notify_waiters();
        done
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
