//! What is known of the host's volumes: a few words for each of this driver's, by handle, fed by one watch.
//!
//! It says where to look, and never what to do: before a leaf is removed, kept or recreated, the host is asked itself. But whether that is
//! needed before a removal that was asked for just now, it tells as well ([`SharedHandles`](super::shared_handles::SharedHandles)).

mod compact;
mod follow;
mod news;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::PersistentVolume;
use tokio::{sync::watch, time::Instant};

use super::volume::HostVolume;
use cluster::{Relist, Unread};
pub(crate) use compact::member_of;
use compact::{CompactVolume, Key};
use domain::{
    compact_text::CompactText,
    volume::{VolumeHash, VolumeId},
};
use news::Listeners;

pub use follow::keep;
pub use news::MemberNews;

/// The connection of a watch that was begun, or has told something, so lately has not died unnoticed.
const YOUNG: Duration = Duration::from_secs(10);

/// The host's volumes of this driver.
#[derive(Debug, Default)]
pub struct HostVolumes {
    table: Mutex<Table>,
    /// Whether all have been listed, and are followed since.
    synced: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Table {
    /// By member.
    volumes: BTreeMap<Box<str>, BTreeMap<Key, Box<CompactVolume>>>,
    /// By name.
    handles: HashMap<CompactText, Arc<str>>,
    relist: Relist<CompactText>,
    /// What is there and cannot be read, which may be of this driver.
    unread: Unread<()>,
    listeners: Listeners,
    /// When the watch has told something last, and was not behind.
    heard: Option<Instant>,
}

impl HostVolumes {
    /// Whether all have been listed, and are followed since.
    pub fn synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// The same, where each of them could be read.
    pub fn whole(&self) -> bool {
        self.synced() && self.lock().unread.is_empty()
    }

    /// Until all have been listed.
    pub async fn listed(&self) {
        let mut synced = self.synced.subscribe();
        let _ = synced.wait_for(|synced| *synced).await;
    }

    /// Whether the watch has told something so lately that it has not died unnoticed since, and was not behind.
    pub fn heard_lately(&self) -> bool {
        self.lock().heard.is_some_and(|heard| heard.elapsed() < YOUNG)
    }

    /// The volumes with this handle, by their names.
    pub fn with(&self, handle: &str) -> Vec<HostVolume> {
        let table = self.lock();
        let mut found: Vec<HostVolume> = table.with(handle).map(|(key, compact)| compact.volume(key)).collect();
        found.sort_by(|one, other| one.name.cmp(&other.name));
        found
    }

    /// How many there are of them: to know that, none is unpacked.
    pub fn count_with(&self, handle: &str) -> usize {
        self.lock().with(handle).count()
    }

    /// Those whose claim has gone, and that are to go with it.
    pub fn to_be_reclaimed(&self) -> Vec<HostVolume> {
        let table = self.lock();
        let all = table.volumes.values().flatten().filter(|(_, compact)| compact.is_to_be_reclaimed());
        all.map(|(key, compact)| compact.volume(key)).collect()
    }

    /// Of these hashes, those that a handle names, in whatever member.
    pub fn named(&self, hashes: &BTreeSet<VolumeHash>) -> BTreeSet<VolumeHash> {
        let table = self.lock();
        let ids = table.volumes.values().flat_map(BTreeMap::keys).filter_map(|key| VolumeId::parse(&key.handle));
        ids.flat_map(|id| hashes.range(id.hashes()).copied()).collect()
    }

    pub fn handle_of(&self, volume: &str) -> Option<Arc<str>> {
        self.lock().handles.get(&CompactText::from(volume)).cloned()
    }

    /// Handles in a member that may be for the volume with this hash.
    pub fn handles_for(&self, member: &str, hash: VolumeHash) -> Vec<Arc<str>> {
        let table = self.lock();
        let volumes = table.volumes.get(member).into_iter();
        let from_there = volumes.flat_map(|volumes| volumes.range(Key::before_all_of(hash)..));
        let there = from_there.take_while(|(key, _)| key.may_be_of(hash));
        let mut handles: Vec<Arc<str>> = there.map(|(key, _)| Arc::clone(&key.handle)).collect();
        handles.dedup();
        handles
    }

    /// How many may have the leaf of this one, by whichever name of its member, and in whichever form, their handles say it.
    pub fn count_like(&self, id: &VolumeId) -> usize {
        let (table, first) = (self.lock(), *id.hashes().start());
        let like = |volumes: &BTreeMap<Key, Box<CompactVolume>>| {
            volumes.range(Key::before_all_of(first)..).take_while(|(key, _)| key.may_be_of(first)).count()
        };
        table.volumes.values().map(like).sum()
    }

    /// How many volumes there are in a member.
    pub fn count_in(&self, member: &str) -> usize {
        self.lock().volumes.get(member).map_or(0, BTreeMap::len)
    }

    /// Handles in a member that come after another one, a few at a time.
    pub fn next_in(&self, member: &str, after: Option<&str>, count: usize) -> Vec<Arc<str>> {
        let (table, mut handles) = (self.lock(), Vec::<Arc<str>>::new());
        let Some(volumes) = table.volumes.get(member) else { return handles };
        let from = after.map_or_else(|| Key::before(""), Key::after);
        for (key, _) in volumes.range(from..) {
            if handles.last() == Some(&key.handle) {
                continue;
            }
            if handles.len() == count {
                break;
            }
            handles.push(Arc::clone(&key.handle));
        }
        handles
    }

    /// Those that handles name, whether or not they have joined.
    pub fn members(&self) -> BTreeSet<String> {
        self.lock().volumes.keys().map(ToString::to_string).collect()
    }

    /// Tells of news of this member's volumes, for as long as it is kept.
    pub fn listen(&self, member: &str) -> Arc<MemberNews> {
        self.lock().listeners.add(member)
    }

    /// Takes in a volume as it is now.
    pub fn put(&self, volume: &PersistentVolume) {
        let Some(new) = HostVolume::new(volume) else { return };
        let (key, compact) = (Key::of(&new), CompactVolume::of(&new));
        let mut table = self.lock();
        table.relist.tell(&key.name);
        if table.get(&key) == Some(&compact) {
            return;
        }
        if let Some(before) = table.forget(&key.name).filter(|before| *before != key.handle) {
            table.listeners.tell(&before);
        }
        table.listeners.tell(&key.handle);
        table.insert(key, compact);
    }

    /// One is there that cannot be read. False where that is known already.
    fn put_unread(&self, name: &str, field: String) -> bool {
        self.lock().unread.put(name, (), field)
    }

    /// One cannot be read of which only a list tells which it is: by a watch nobody learns that it has been mended.
    fn awaits_list(&self) -> bool {
        self.lock().unread.has("")
    }

    /// This one can be read.
    fn put_readable(&self, name: &str) {
        self.lock().unread.remove(name);
    }

    fn drop(&self, name: &str) {
        let mut table = self.lock();
        table.unread.remove(name);
        table.lose(&CompactText::from(name));
    }

    /// Nothing is to be believed until all have been listed again.
    fn unsync(&self) {
        self.synced.send_replace(false);
    }

    /// The watch tells something, be it of another driver's volume. What is behind hides what has happened since; a bookmark may be of a
    /// while ago only because nothing has.
    fn hear(&self, is_behind: bool, is_bookmark: bool) {
        let mut table = self.lock();
        match (is_behind, is_bookmark) {
            (false, _) => table.heard = Some(Instant::now()),
            (true, false) => table.heard = None,
            (true, true) => {}
        }
    }

    fn begin(&self) {
        let mut table = self.lock();
        table.relist.begin();
        table.unread.begin();
    }

    fn complete(&self) {
        let mut locked = self.lock();
        let table = &mut *locked;
        table.unread.complete();
        let gone = table.relist.end(table.handles.keys());
        if table.unread.is_empty() {
            for name in &gone {
                table.lose(name);
            }
        }
        drop(locked);
        self.synced.send_replace(true);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn with(&self, handle: &str) -> impl Iterator<Item = (&Key, &CompactVolume)> {
        let volumes = self.volumes.get(member_of(handle)).into_iter();
        let there = volumes.flat_map(move |volumes| volumes.range(Key::before(handle)..Key::after(handle)));
        there.map(|(key, compact)| (key, &**compact))
    }

    fn get(&self, key: &Key) -> Option<&CompactVolume> {
        self.volumes.get(member_of(&key.handle))?.get(key).map(|compact| &**compact)
    }

    fn insert(&mut self, key: Key, compact: CompactVolume) {
        self.handles.insert(key.name.clone(), Arc::clone(&key.handle));
        self.volumes.entry(member_of(&key.handle).into()).or_default().insert(key, Box::new(compact));
    }

    /// Its handle, where it was known.
    fn forget(&mut self, name: &CompactText) -> Option<Arc<str>> {
        let (name, handle) = self.handles.remove_entry(name)?;
        let member = member_of(&handle);
        if let Some(volumes) = self.volumes.get_mut(member) {
            volumes.remove(&Key::new(Arc::clone(&handle), name));
            if volumes.is_empty() {
                self.volumes.remove(member);
            }
        }
        Some(handle)
    }

    /// It has gone, which is news.
    fn lose(&mut self, name: &CompactText) {
        if let Some(handle) = self.forget(name) {
            self.listeners.tell(&handle);
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;
    use domain::volume::HostId;

    fn volume(name: &str, handle: &str) -> PersistentVolume {
        from_value(json!({
            "metadata": {"name": name, "uid": name},
            "spec": {"csi": {"driver": "kosmos.csi.io", "volumeHandle": handle}},
        }))
        .unwrap()
    }

    fn names(volumes: &HostVolumes, handle: &str) -> Vec<String> {
        volumes.with(handle).into_iter().map(|volume| volume.name.into()).collect()
    }

    #[test]
    fn volumes_are_found_by_handle_and_told_by_member() {
        let volumes = HostVolumes::default();
        let news = volumes.listen("m0");
        volumes.put(&volume("a", "m0/n/c/1"));
        volumes.put(&volume("b", "m0/n/c/1"));
        volumes.put(&volume("c", "m1/n/c/1"));
        volumes.put(&volume("d", "no handle of ours"));
        assert_eq!(names(&volumes, "m0/n/c/1"), ["a", "b"]);
        assert_eq!(
            ["m0/n/c/1", "m1/n/c/1", "m0/n/c/2", "m0/n/c/"].map(|handle| volumes.count_with(handle)),
            [2, 1, 0, 0]
        );
        assert_eq!(news.take().len(), 1);
        assert!(news.take().is_empty(), "told once");
        volumes.put(&volume("a", "m0/n/c/1"));
        assert!(news.take().is_empty(), "nothing has changed");
        volumes.put(&volume("a", "m0/n/c/2"));
        assert_eq!(names(&volumes, "m0/n/c/1"), ["b"]);
        assert_eq!(news.take().len(), 2, "of both handles: one has it no more");
        volumes.drop("b");
        assert!(names(&volumes, "m0/n/c/1").is_empty());
        assert_eq!(news.take().len(), 1, "that it has gone is news");
    }

    #[test]
    fn what_a_new_list_does_not_tell_has_gone() {
        let volumes = HostVolumes::default();
        let news = volumes.listen("m0");
        volumes.put(&volume("a", "m0/n/a/1"));
        assert!(!volumes.synced());
        volumes.begin();
        volumes.put(&volume("b", "m0/n/b/1"));
        news.take();
        volumes.complete();
        assert_eq!(news.take(), BTreeSet::from([Arc::from("m0/n/a/1")]), "that it has gone is news");
        assert!(volumes.synced() && names(&volumes, "m0/n/a/1").is_empty());
        assert_eq!(names(&volumes, "m0/n/b/1"), ["b"]);
    }

    #[test]
    fn nothing_has_gone_by_a_list_in_which_one_cannot_be_read() {
        let volumes = HostVolumes::default();
        volumes.put(&volume("a", "m0/n/a/1"));
        volumes.begin();
        assert!(volumes.put_unread("a", "spec.csi".to_owned()));
        volumes.put(&volume("b", "m0/n/b/1"));
        volumes.complete();
        assert!(volumes.synced() && !volumes.whole());
        assert_eq!([names(&volumes, "m0/n/a/1"), names(&volumes, "m0/n/b/1")], [["a"], ["b"]]);
        volumes.put_readable("a");
        assert!(volumes.whole());
    }

    #[test]
    fn hashes_that_handles_name_are_known_in_whatever_member_the_volume_is() {
        let volumes = HostVolumes::default();
        let hash = |digits: &str| VolumeHash::parse(digits).unwrap();
        let (short, long) = (hash("0123456789abcdef0000000000000007"), hash("00000000000000000000000000000008"));
        volumes.put(&volume("a", "m0/n/a/0123456789abcdef"));
        volumes.put(&volume("b", "m1///00000000000000000000000000000008"));
        let asked = BTreeSet::from([short, long, hash("00000000000000000000000000000009")]);
        assert_eq!(volumes.named(&asked), BTreeSet::from([short, long]));
    }

    #[test]
    fn volumes_of_a_leaf_of_which_nothing_is_left_are_found_by_its_hash() {
        let volumes = HostVolumes::default();
        let hash = VolumeHash::new(&HostId("h".to_owned()), "pvc-1");
        let (readable, hashed) = (format!("m0/n/a/{}", hash.prefix()), format!("m0///{hash}"));
        for (name, handle) in
            [("a", &readable), ("a2", &readable), ("b", &hashed), ("d", &readable.replace("m0", "m1"))]
        {
            volumes.put(&volume(name, handle));
        }
        volumes.put(&volume("c", "m0/n/c/0000000000000000"));
        assert_eq!(volumes.handles_for("m0", hash), [Arc::from(hashed), Arc::from(readable)]);
        assert!(volumes.handles_for("m2", hash).is_empty());
        let like = |handle: String| volumes.count_like(&VolumeId::parse(&handle).unwrap());
        let handles =
            [format!("m0/n/a/{}", hash.prefix()), format!("m2///{hash}"), "m0/n/c/0000000000000001".to_owned()];
        assert_eq!(handles.map(like), [4, 4, 0]);
        assert_eq!(["m0", "m1", "m2"].map(|member| volumes.count_in(member)), [4, 1, 0]);
    }

    #[test]
    fn handles_of_a_member_are_gone_through_a_few_at_a_time() {
        let volumes = HostVolumes::default();
        for (name, handle) in [("a", "m0/n/a/1"), ("a2", "m0/n/a/1"), ("b", "m0/n/b/1"), ("c", "m0x/n/c/1")] {
            volumes.put(&volume(name, handle));
        }
        assert_eq!(volumes.next_in("m0", None, 1), [Arc::from("m0/n/a/1")]);
        assert_eq!(volumes.next_in("m0", Some("m0/n/a/1"), 5), [Arc::from("m0/n/b/1")]);
        assert!(volumes.next_in("m0", Some("m0/n/b/1"), 5).is_empty());
        assert_eq!(volumes.members().into_iter().collect::<Vec<_>>(), ["m0", "m0x"]);
    }
}
