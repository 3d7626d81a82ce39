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
use domain::volume::{HostId, VolumeHash, VolumeId};

/// How many removed snapshots are remembered.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
struct Table {
    rows: BTreeMap<VolumeHash, SnapshotRow>,
    extent: Extent,
    relist: Relist<VolumeHash>,
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
    fn extent_of(&self, hash: VolumeHash) -> Extent {
        self.rows.get(&hash).map(SnapshotRow::extent).unwrap_or_default()
    }

    fn take(&mut self, mut new: SnapshotRow) {
        let hash = new.hash;
        let relisted = self.relist.awaits(&hash);
        self.relist.tell(&hash);
        let before = self.extent_of(hash);
        match self.rows.get_mut(&hash) {
            // News from before what is known; that it was listed counts all the same.
            Some(known) if known.uid == new.uid && !relisted && known.version > new.version => {}
            Some(known) => {
                new.marked = known.marked && known.uid == new.uid;
                *known = new;
            }
            None => drop(self.rows.insert(hash, new)),
        }
        let after = self.extent_of(hash);
        self.extent.change(before, after);
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
        self.lock().rows.get(&hash).cloned()
    }

    /// The row a handle stands for. A readable handle also says where the leaf is.
    pub fn find(&self, id: &VolumeId) -> Option<SnapshotRow> {
        let (table, place) = (self.lock(), id.place());
        let mut rows = table.rows.range(id.hashes()).map(|(_, row)| row);
        rows.find(|row| place.as_ref().is_none_or(|place| *place == row.place)).cloned()
    }

    /// All that a condition holds for.
    pub fn all(&self, wanted: impl Fn(&SnapshotRow) -> bool) -> Vec<SnapshotRow> {
        self.lock().rows.values().filter(|row| wanted(row)).cloned().collect()
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
            let (hash, uid) = (new.hash, new.uid.clone());
            table.removed.retain(|removed| removed.uid != uid || removed.number >= removals);
            if !table.removed.iter().any(|removed| removed.uid == uid && new.version <= removed.as_of) {
                table.take(new);
            }
            table.rows.get(&hash).filter(|row| row.uid == uid).cloned()
        })
    }

    /// Its content carries our labels.
    pub fn mark(&self, hash: VolumeHash, uid: &str) {
        self.write(|table| {
            if let Some(row) = table.rows.get_mut(&hash).filter(|row| *row.uid == *uid) {
                row.marked = true;
            }
        });
    }

    pub fn is_marked(&self, hash: VolumeHash) -> bool {
        self.lock().rows.get(&hash).is_some_and(|row| row.marked)
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
            if table.rows.get(&hash).is_some_and(|row| *row.uid == *uid) {
                let before = table.extent_of(hash);
                table.rows.remove(&hash);
                table.extent.change(before, Extent::default());
            }
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
            for hash in table.relist.end(table.rows.keys()) {
                table.rows.remove(&hash);
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
