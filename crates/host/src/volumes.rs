//! What is known of the host's volumes: a few words for each of this driver's, by handle, fed by one watch.
//!
//! It says where to look, and never what to do: before a leaf is removed, kept or made anew, the host is asked itself.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use tokio::sync::watch;

use super::{
    Host,
    volume::{self, HostVolume},
};
use cluster::{Relist, pauses, with_causes};
use domain::volume::{VolumeHash, VolumeId};

/// The host's volumes of this driver.
#[derive(Debug, Default)]
pub struct HostVolumes {
    table: Mutex<Table>,
    told: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Table {
    /// By handle, then by name: people make several volumes with one handle.
    volumes: BTreeMap<(Box<str>, Box<str>), HostVolume>,
    handles: HashMap<Box<str>, Box<str>>,
    /// By name.
    relist: Relist<Box<str>>,
    synced: bool,
    /// Handles of which there is news, by member.
    news: BTreeMap<Box<str>, BTreeSet<Box<str>>>,
}

impl HostVolumes {
    /// Whether all have been listed once.
    pub fn synced(&self) -> bool {
        self.lock().synced
    }

    /// The volumes with this handle.
    pub fn with(&self, handle: &str) -> Vec<HostVolume> {
        let table = self.lock();
        let from = (Box::from(handle), Box::default());
        let volumes = table.volumes.range(from..).take_while(|((found, _), _)| **found == *handle);
        volumes.map(|(_, volume)| volume.clone()).collect()
    }

    /// Those whose claim has gone, and that are to go with it.
    pub fn to_be_reclaimed(&self) -> Vec<HostVolume> {
        self.lock().volumes.values().filter(|volume| volume.is_to_be_reclaimed()).cloned().collect()
    }

    /// Of these hashes, those that a handle names, in whatever member.
    pub fn named(&self, hashes: &BTreeSet<VolumeHash>) -> BTreeSet<VolumeHash> {
        let table = self.lock();
        let ids = table.volumes.keys().filter_map(|(handle, _)| VolumeId::parse(handle));
        ids.flat_map(|id| hashes.range(id.hashes()).copied()).collect()
    }

    pub fn handle_of(&self, volume: &str) -> Option<Box<str>> {
        self.lock().handles.get(volume).cloned()
    }

    /// Handles in a member that come after another one, a few at a time.
    pub fn next_in(&self, member: &str, after: Option<&str>, count: usize) -> Vec<Box<str>> {
        let (table, first) = (self.lock(), format!("{member}/"));
        let from =
            (after.map_or_else(|| Box::from(first.as_str()), |after| format!("{after}\u{0}").into()), Box::default());
        let there = table.volumes.range(from..).map(|((handle, _), _)| handle);
        let mut handles: Vec<_> = there.take_while(|handle| handle.starts_with(&first)).take(count).cloned().collect();
        handles.dedup();
        handles
    }

    /// Those that handles name, whether or not they have joined.
    pub fn members(&self) -> BTreeSet<String> {
        let (table, mut members) = (self.lock(), BTreeSet::new());
        let mut from = (Box::<str>::default(), Box::<str>::default());
        while let Some(((handle, _), _)) = table.volumes.range(from..).next() {
            let member = handle.split_once('/').map_or(&**handle, |(member, _)| member).to_owned();
            // What follows a slash: the next handle of another member.
            from = (format!("{member}0").into(), Box::default());
            members.insert(member);
        }
        members
    }

    /// Handles in a member of which there was news since the last time.
    pub fn take_news(&self, member: &str) -> BTreeSet<Box<str>> {
        self.lock().news.remove(member).unwrap_or_default()
    }

    /// Changes whenever there is news.
    pub fn told(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }

    fn put(&self, volume: &PersistentVolume) {
        let Some(new) = HostVolume::new(volume) else { return };
        let mut table = self.lock();
        table.relist.tell(&new.name);
        let key = (new.handle.clone(), new.name.clone());
        if table.volumes.get(&key) == Some(&new) {
            return;
        }
        table.forget(&new.name);
        table.handles.insert(new.name.clone(), new.handle.clone());
        table.is_news(&new.handle);
        table.volumes.insert(key, new);
        drop(table);
        self.told.send_replace(());
    }

    fn drop(&self, name: &str) {
        self.lock().lose(name);
        self.told.send_replace(());
    }

    fn begin(&self) {
        self.lock().relist.begin();
    }

    fn complete(&self) {
        let mut locked = self.lock();
        let table = &mut *locked;
        for name in table.relist.end(table.handles.keys()) {
            table.lose(&name);
        }
        table.synced = true;
        drop(locked);
        self.told.send_replace(());
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Its handle, where it was known.
    fn forget(&mut self, name: &str) -> Option<Box<str>> {
        let (name, handle) = self.handles.remove_entry(name)?;
        self.volumes.remove(&(handle.clone(), name));
        Some(handle)
    }

    /// It has gone, which is news.
    fn lose(&mut self, name: &str) {
        if let Some(handle) = self.forget(name) {
            self.is_news(&handle);
        }
    }

    fn is_news(&mut self, handle: &str) {
        if let Some((member, _)) = handle.split_once('/') {
            self.news.entry(member.into()).or_default().insert(handle.into());
        }
    }
}

/// The volumes as the replica that leads follows them: none at any other, and none once it leads no more.
#[derive(Clone, Debug, Default)]
pub struct FollowedVolumes(Arc<Mutex<Weak<HostVolumes>>>);

impl FollowedVolumes {
    pub fn now(&self) -> Option<Arc<HostVolumes>> {
        self.lock().upgrade()
    }

    /// From now on these, for as long as somebody keeps them.
    pub fn set(&self, volumes: &Arc<HostVolumes>) {
        *self.lock() = Arc::downgrade(volumes);
    }

    fn lock(&self) -> MutexGuard<'_, Weak<HostVolumes>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps the volumes true, until it is dropped.
pub async fn keep(host: &Host, volumes: &HostVolumes) {
    let events =
        watcher(volume::unlabelled(host), watcher::Config::default()).backoff(ExponentialBackoff::from(pauses()));
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => volumes.begin(),
            Ok(Event::InitApply(volume) | Event::Apply(volume)) => volumes.put(&volume),
            Ok(Event::InitDone) => volumes.complete(),
            Ok(Event::Delete(volume)) => volumes.drop(&volume.name_any()),
            Err(error) => tracing::debug!(error = with_causes(&error), "the host's volumes cannot be watched"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_value, json};

    use super::*;

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
        volumes.put(&volume("a", "m0/n/c/1"));
        volumes.put(&volume("b", "m0/n/c/1"));
        volumes.put(&volume("c", "m1/n/c/1"));
        volumes.put(&volume("d", "no handle of ours"));
        assert_eq!(names(&volumes, "m0/n/c/1"), ["a", "b"]);
        assert_eq!(volumes.take_news("m0").len(), 1);
        assert!(volumes.take_news("m0").is_empty(), "told once");
        volumes.put(&volume("a", "m0/n/c/1"));
        assert!(volumes.take_news("m0").is_empty(), "nothing has changed");
        volumes.put(&volume("a", "m0/n/c/2"));
        assert_eq!(names(&volumes, "m0/n/c/1"), ["b"]);
        assert_eq!(volumes.take_news("m0").len(), 1);
        volumes.drop("b");
        assert!(names(&volumes, "m0/n/c/1").is_empty());
        assert_eq!(volumes.take_news("m0").len(), 1, "that it has gone is news");
    }

    #[test]
    fn what_a_new_list_does_not_tell_has_gone() {
        let volumes = HostVolumes::default();
        volumes.put(&volume("a", "m0/n/a/1"));
        assert!(!volumes.synced());
        volumes.begin();
        volumes.put(&volume("b", "m0/n/b/1"));
        volumes.take_news("m0");
        volumes.complete();
        assert_eq!(volumes.take_news("m0"), BTreeSet::from([Box::from("m0/n/a/1")]), "that it has gone is news");
        assert!(volumes.synced() && names(&volumes, "m0/n/a/1").is_empty());
        assert_eq!(names(&volumes, "m0/n/b/1"), ["b"]);
    }

    #[test]
    fn volumes_are_shown_while_somebody_follows_them() {
        let shown = FollowedVolumes::default();
        assert!(shown.now().is_none());
        let followed = Arc::<HostVolumes>::default();
        shown.set(&followed);
        assert!(shown.now().is_some());
        drop(followed);
        assert!(shown.now().is_none());
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
    fn handles_of_a_member_are_gone_through_a_few_at_a_time() {
        let volumes = HostVolumes::default();
        for (name, handle) in [("a", "m0/n/a/1"), ("a2", "m0/n/a/1"), ("b", "m0/n/b/1"), ("c", "m0x/n/c/1")] {
            volumes.put(&volume(name, handle));
        }
        assert_eq!(volumes.next_in("m0", None, 1), [Box::from("m0/n/a/1")]);
        assert_eq!(volumes.next_in("m0", Some("m0/n/a/1"), 5), [Box::from("m0/n/b/1")]);
        assert!(volumes.next_in("m0", Some("m0/n/b/1"), 5).is_empty());
        assert_eq!(volumes.members().into_iter().collect::<Vec<_>>(), ["m0", "m0x"]);
    }
}
