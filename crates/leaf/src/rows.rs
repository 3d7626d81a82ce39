//! What is known of a member's leaves: one small row per volume, fed by the watches and by the answers to our own
//! writes, so that a request is answered from memory and reads its own writes.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::ResourceExt;
use tokio::{sync::Notify, time::Instant};

use super::{
    class_row::ClassRow,
    limits::Extent,
    notices, ownership,
    row::{ClaimRow, Consumer, VolumeRow},
    sightings::Sightings,
};
use cluster::{Relist, Unread};
use domain::{
    compact_text::{CompactText, Interner},
    volume::{HostId, VolumeHash},
};
use entries::Entries;
use tally::Tally;

/// How many removed claims are remembered.
const REMEMBERED: usize = 256;

/// How many are remembered whose size has changed, or that one has to look at: of several replicas, one takes notice.
const NOTICED: usize = 1000;

/// Who waits for one volume is woken by news of it and of some one in so many others: by news of all, a thousand callers
/// would look a million times.
const PARTS: usize = 256;

/// The three kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claims,
    Volumes,
    Classes,
}

#[derive(Debug, Default)]
struct Table {
    rows: Entries,
    names: Interner,
    extent: Extent,
    classes: BTreeMap<String, ClassRow>,
    relisted_classes: Relist<String>,
    /// What is there of each kind and cannot be read, with the volume that it says it is of.
    unread: [Unread<Option<VolumeHash>>; 3],
    claim_round: u32,
    volume_round: u32,
    synced: [bool; 3],
    /// Lists that have begun and not come to their end.
    begun: [bool; 3],
    removed: VecDeque<Removed>,
    tally: Tally,
    /// Volumes whose size has changed since somebody took notice.
    resized: BTreeSet<VolumeHash>,
    /// Those of which there was news that one has to look at, since somebody did.
    remarkable: BTreeSet<VolumeHash>,
    /// Those of which there was any, since somebody did; none before that, and where they were too many.
    changed: Option<BTreeSet<VolumeHash>>,
    /// What keeps a kind from being watched.
    obstacles: [Option<String>; 3],
}

/// A claim that has gone, and as of which version: older news of it may still be on its way.
#[derive(Debug)]
struct Removed {
    uid: CompactText,
    as_of: u64,
    /// The list that was there then, or under way.
    round: u32,
}

/// The rows of one member.
#[derive(Debug)]
pub struct Rows {
    host: HostId,
    table: Mutex<Table>,
    changed: [Notify; PARTS],
    /// Told when something has become of a leaf that nobody asked for.
    remarkable: Notify,
    /// Told when a claim waits to be bound.
    waits: Notify,
}

impl Rows {
    pub fn new(host: HostId) -> Self {
        Self::told_to(host, None)
    }

    /// What is there is told to who looks through all members.
    pub fn told_to(host: HostId, sightings: Option<Arc<Sightings>>) -> Self {
        Self {
            host,
            table: Mutex::new(Table { rows: Entries::told_to(sightings), ..Table::default() }),
            changed: std::array::from_fn(|_| Notify::new()),
            remarkable: Notify::new(),
            waits: Notify::new(),
        }
    }

    /// Whether everything has been listed, and is watched since.
    pub fn synced(&self) -> bool {
        self.lock().synced == [true; 3]
    }

    /// Whether all is known that there is of a volume. What cannot be read may be of any, where it does not say of which.
    pub fn has_told(&self, hash: VolumeHash) -> bool {
        let table = self.lock();
        table.synced == [true; 3]
            && !table.may_be_unread(Kind::Claims, hash)
            && !table.may_be_unread(Kind::Volumes, hash)
    }

    /// Whether something is there that says that it is of this volume, and cannot be read.
    pub fn has_unread(&self, hash: VolumeHash) -> bool {
        self.lock().unread.iter().any(|unread| unread.any(|whose| *whose == Some(hash)))
    }

    /// An object is there that cannot be read. False where that is known already.
    pub fn put_unread(&self, kind: Kind, object: &str, whose: Option<VolumeHash>, field: String) -> bool {
        let mut table = self.lock();
        table.rows.set_unread(true);
        table.unread[kind as usize].put(object, whose, field)
    }

    /// Something cannot be read of which only a list tells what it is: by a watch nobody learns that it has been mended.
    pub fn awaits_list(&self, kind: Kind) -> bool {
        self.lock().unread[kind as usize].has("")
    }

    /// This one can be read.
    pub fn put_readable(&self, kind: Kind, object: impl FnOnce() -> String) {
        let mut table = self.lock();
        if !table.unread[kind as usize].is_empty() {
            table.unread[kind as usize].remove(&object());
            table.note_unread();
        }
    }

    /// Nothing is to be believed until it has been listed again.
    pub fn unsync(&self) {
        self.write_all(|table| table.synced = [false; 3]);
    }

    /// What keeps a kind from being watched, where the member said it.
    pub fn obstacle(&self) -> Option<String> {
        self.lock().obstacles.iter().flatten().next().cloned()
    }

    pub fn set_obstacle(&self, kind: Kind, obstacle: Option<String>) {
        if self.lock().obstacles[kind as usize] != obstacle {
            self.write_all(|table| table.obstacles[kind as usize] = obstacle);
        }
    }

    /// Until there is a leaf that one has to look at. For one who waits: the others would miss it.
    pub async fn remarkable(&self) {
        self.remarkable.notified().await;
    }

    pub fn class(&self, name: &str) -> Option<ClassRow> {
        self.lock().classes.get(name).cloned()
    }

    /// Those that this host may use.
    pub fn class_names(&self) -> Vec<String> {
        let table = self.lock();
        table.classes.iter().filter(|(_, class)| class.open).map(|(name, _)| name.clone()).collect()
    }

    /// The first of those that this host may use, with what is known of them.
    pub fn open_classes(&self, most: usize) -> Vec<(String, ClassRow)> {
        let table = self.lock();
        let open = table.classes.iter().filter(|(_, class)| class.open);
        open.take(most).map(|(name, class)| (name.clone(), class.clone())).collect()
    }

    /// The member's default class: the newest of those that say they are, as Kubernetes itself decides.
    pub fn default_class(&self) -> Option<String> {
        let table = self.lock();
        let defaults = table.classes.iter().filter_map(|(name, class)| Some((class.default_since.as_ref()?, name)));
        defaults.max_by(|left, right| left.0.cmp(right.0).then(right.1.cmp(left.1))).map(|(_, name)| name.clone())
    }

    pub fn set_consumer(&self, hash: VolumeHash, consumer: Consumer) {
        self.write(hash, |table| {
            table.rows.entry(hash).consumer = consumer;
            table.tidy(hash);
        });
    }

    /// Takes in a claim of a list. One that had gone before the list began is back: the member was restored from a backup.
    pub fn put_listed_claim(&self, claim: &PersistentVolumeClaim) {
        let mut table = self.lock();
        let (round, uid) = (table.claim_round, claim.metadata.uid.as_deref().map(CompactText::from));
        table.removed.retain(|removed| removed.round == round || Some(&removed.uid) != uid.as_ref());
        drop(table);
        self.put_claim(claim);
    }

    /// Takes in a claim as it is now.
    pub fn put_claim(&self, claim: &PersistentVolumeClaim) {
        let Some(hash) = ownership::volume_of(&claim.metadata, &self.host) else {
            return;
        };
        let mut new = ClaimRow::new(claim);
        let uid = CompactText::from(&*new.uid);
        self.write(hash, |table| {
            if table.removed.iter().any(|removed| removed.uid == uid && new.version <= removed.as_of) {
                return;
            }
            new.round = table.claim_round;
            let entry = table.rows.entry(hash);
            let before = entry.capacity();
            entry.put_claim(&new, &mut table.names);
            if before != 0 && entry.capacity() != before && table.resized.len() < NOTICED {
                table.resized.insert(hash);
            }
        });
    }

    /// A claim has gone as of a version; `u64::MAX` where that has been proved.
    pub fn drop_claim(&self, hash: VolumeHash, uid: &str, as_of: u64) {
        self.write(hash, |table| {
            table.removed.push_back(Removed { uid: uid.into(), as_of, round: table.claim_round });
            if table.removed.len() > REMEMBERED {
                table.removed.pop_front();
            }
            if let Some(entry) = table.rows.get_mut(hash) {
                entry.drop_claim(uid);
            }
            table.tidy(hash);
        });
    }

    pub fn put_volume(&self, volume: &PersistentVolume) {
        let Some(hash) = ownership::volume_of(&volume.metadata, &self.host) else {
            return;
        };
        let mut new = VolumeRow::new(volume);
        self.write(hash, |table| {
            new.round = table.volume_round;
            table.rows.entry(hash).put_volume(&new, &mut table.names);
        });
    }

    pub fn drop_volume(&self, hash: VolumeHash, uid: &str) {
        self.write(hash, |table| {
            if let Some(entry) = table.rows.get_mut(hash) {
                entry.drop_volume(uid);
            }
            table.tidy(hash);
        });
    }

    pub fn put_class(&self, class: &StorageClass) {
        let (name, row) = (class.name_any(), ClassRow::new(class, &self.host));
        self.write_all(|table| {
            table.relisted_classes.tell(&name);
            table.classes.insert(name, row);
        });
    }

    pub fn drop_class(&self, name: &str) {
        self.write_all(|table| drop(table.classes.remove(name)));
    }

    /// Why no more is remembered of the member. What is, is forgotten then.
    pub fn too_much(&self) -> Option<String> {
        let mut table = self.lock();
        let all = Extent { leaves: table.extent.leaves.max(table.classes.len()), ..table.extent };
        let reason = all.too_much()?;
        *table = Table {
            rows: table.rows.emptied(),
            claim_round: table.claim_round,
            volume_round: table.volume_round,
            begun: table.begun,
            obstacles: std::mem::take(&mut table.obstacles),
            ..Table::default()
        };
        Some(reason)
    }

    /// A list begins: what is neither in it nor written by us meanwhile has gone. True where the one before was not
    /// brought to its end.
    pub fn begin(&self, kind: Kind) -> bool {
        let mut table = self.lock();
        match kind {
            Kind::Claims => table.claim_round += 1,
            Kind::Volumes => table.volume_round += 1,
            Kind::Classes => table.relisted_classes.begin(),
        }
        table.unread[kind as usize].begin();
        std::mem::replace(&mut table.begun[kind as usize], true)
    }

    pub fn complete(&self, kind: Kind) {
        self.write_all(|table| {
            table.lose_unlisted(kind);
            table.extent = Extent::default();
            table.rows.values().for_each(|entry| table.extent.change(Extent::default(), entry.extent()));
            table.tally = Tally::of(&table.rows);
            table.synced[kind as usize] = true;
            table.begun[kind as usize] = false;
        });
        self.waits.notify_one();
    }

    /// Waits until what is known of a volume satisfies a condition; false when the deadline came first.
    pub async fn until(&self, hash: VolumeHash, deadline: Instant, mut holds: impl FnMut(&Self) -> bool) -> bool {
        notices::until(self.news_of(hash), deadline, || holds(self)).await
    }

    /// A change that concerns one volume.
    fn write(&self, hash: VolumeHash, change: impl FnOnce(&mut Table)) {
        let mut table = self.lock();
        let before = table.sight_of(hash);
        change(&mut table);
        let after = table.sight_of(hash);
        let is_news = after.versions != before.versions;
        if is_news {
            table.note_change(hash);
        }
        table.extent.change(before.extent, after.extent);
        if table.count_again(hash, before.settled) {
            self.waits.notify_one();
        }
        // Whoever reads one to look at it puts in what is known.
        let is_remarkable = is_news && (before.is_remarkable || after.is_remarkable);
        if is_remarkable && table.remarkable.len() < NOTICED {
            table.remarkable.insert(hash);
        }
        if is_remarkable || table.resized.contains(&hash) {
            self.remarkable.notify_one();
        }
        drop(table);
        self.news_of(hash).notify_waiters();
    }

    /// A change that may concern all.
    fn write_all(&self, change: impl FnOnce(&mut Table)) {
        change(&mut self.lock());
        self.changed.iter().for_each(Notify::notify_waiters);
    }

    fn news_of(&self, hash: VolumeHash) -> &Notify {
        let [.., last] = hash.seed().to_ne_bytes();
        &self.changed[usize::from(last)]
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

mod entries;
mod looks;
mod sought;
mod table;
mod tally;
#[cfg(test)]
mod tests;
