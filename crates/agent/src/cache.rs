//! What watches have told: objects by place, and news of which of them have changed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::StreamExt;
use kube::{
    Client,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, ExponentialBackoff, watcher},
    },
};
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use super::{
    LABEL, LABEL_VALUE, PREFIX,
    object::{self, Objects, Place, text, whole},
};
use cluster::{Relist, pauses, with_causes};
use domain::volume::DRIVER;

/// Who is further behind with the news looks at everything.
const BEHIND: usize = 1024;

/// What one member's pods, or its nodes, may take of memory: whoever administers it decides what it says, and one process serves
/// all members.
const MOST: usize = 128 << 20;

/// Objects of one kind.
#[derive(Debug)]
pub(super) struct ObjectCache {
    table: Mutex<Table>,
    news: broadcast::Sender<Place>,
    synced: watch::Sender<bool>,
    /// More was told than one member has room for.
    overfull: watch::Sender<bool>,
    /// What was last in the way of the watch.
    obstacle: Mutex<Option<String>>,
}

#[derive(Debug, Default)]
struct Table {
    objects: HashMap<Place, Arc<Value>>,
    relist: Relist<Place>,
    /// What the objects take, in bytes.
    weight: usize,
}

impl Table {
    fn insert(&mut self, place: Place, object: Arc<Value>) {
        self.weight += weight(&object);
        if let Some(before) = self.objects.insert(place, object) {
            self.weight -= weight(&before);
        }
    }

    fn remove(&mut self, place: &Place) -> bool {
        let removed = self.objects.remove(place);
        self.weight -= removed.as_deref().map_or(0, weight);
        removed.is_some()
    }
}

fn weight(value: &Value) -> usize {
    let inside = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + weight(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    size_of::<Value>() + inside
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            news: broadcast::Sender::new(BEHIND),
            synced: watch::Sender::new(false),
            overfull: watch::Sender::new(false),
            obstacle: Mutex::default(),
        }
    }
}

impl ObjectCache {
    pub(super) fn get(&self, place: &Place) -> Option<Arc<Value>> {
        self.lock().objects.get(place).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<Value>> {
        self.lock().objects.values().cloned().collect()
    }

    pub(super) fn news(&self) -> broadcast::Receiver<Place> {
        self.news.subscribe()
    }

    /// Returns once everything has been listed.
    pub(super) async fn synced(&self) {
        // The sender is here: it cannot be closed.
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }

    /// Returns once a member has told more of them than there is room for, with what to say of it.
    pub(super) async fn overfull(&self, kinds: &str) -> String {
        // The sender is here: it cannot be closed.
        let _ = self.overfull.subscribe().wait_for(|overfull| *overfull).await;
        format!("its {kinds} take more than {} MiB, and no more of them is looked at", MOST >> 20)
    }

    pub(super) fn obstacle(&self) -> Option<String> {
        self.obstacle.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Told in the log once.
    fn obstructed(&self, kind: &str, reason: String) {
        let mut obstacle = self.obstacle.lock().unwrap_or_else(PoisonError::into_inner);
        if obstacle.as_ref() != Some(&reason) {
            tracing::warn!(kind, reason, "cannot be watched; it is tried again");
        }
        *obstacle = Some(reason);
    }

    fn put(&self, object: Value) {
        let place = Place::of(&object);
        let mut table = self.lock();
        table.relist.tell(&place);
        table.insert(place.clone(), Arc::new(object));
        if table.weight > MOST {
            self.overfull.send_replace(true);
        }
        drop(table);
        let _ = self.news.send(place);
    }

    fn remove(&self, place: Place) {
        if self.lock().remove(&place) {
            let _ = self.news.send(place);
        }
    }

    fn complete(&self) {
        let mut locked = self.lock();
        let table = &mut *locked;
        let gone = table.relist.end(table.objects.keys());
        for place in &gone {
            table.remove(place);
        }
        drop(locked);
        for place in gone {
            let _ = self.news.send(place);
        }
        self.synced.send_replace(true);
    }

    fn take(&self, event: Event<kube::api::DynamicObject>, keeps: fn(&mut Value) -> bool) {
        let judged = |object| {
            let mut object = whole(object);
            (keeps(&mut object), object)
        };
        match event {
            Event::Init => self.lock().relist.begin(),
            Event::InitApply(object) => {
                let (kept, object) = judged(object);
                if kept {
                    self.put(object);
                }
            }
            Event::InitDone => self.complete(),
            Event::Apply(object) => match judged(object) {
                (true, object) => self.put(object),
                (false, object) => self.remove(Place::of(&object)),
            },
            Event::Delete(object) => self.remove(Place::of(&whole(object))),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a cache true, until it is dropped. `keeps` decides what is kept, and may leave out of it what nobody reads.
pub(super) async fn keep(
    objects: Objects,
    config: watcher::Config,
    cache: &ObjectCache,
    keeps: fn(&mut Value) -> bool,
) {
    let kind = objects.resource_url().to_owned();
    let events = watcher(objects, config).backoff(ExponentialBackoff::from(pauses()));
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => cache.take(event, keeps),
            Err(error) => cache.obstructed(&kind, with_causes(&error)),
        }
    }
}

/// What is known of the host.
#[derive(Debug, Default)]
pub(super) struct HostCache {
    /// Virtual nodes, ours and others.
    pub(super) nodes: ObjectCache,
    pub(super) csi_nodes: ObjectCache,
    /// Pods that may be on nodes of ours.
    pub(super) pods: ObjectCache,
    pub(super) attachments: ObjectCache,
}

impl HostCache {
    pub(super) async fn synced(&self) {
        for cache in [&self.nodes, &self.csi_nodes, &self.pods, &self.attachments] {
            cache.synced().await;
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Value>> {
        self.nodes.get(&Place { namespace: String::new(), name: name.to_owned() })
    }
}

pub(super) async fn watch_host(client: &Client, view: &HostCache) {
    let virtual_nodes = watcher::Config::default().labels(&format!("{LABEL}={LABEL_VALUE}"));
    let bound = watcher::Config::default().fields("spec.nodeName!=");
    tokio::join!(
        keep(object::nodes(client), virtual_nodes, &view.nodes, |_| true),
        keep(object::csi_nodes(client), watcher::Config::default(), &view.csi_nodes, of_virtual_node),
        keep(object::all_pods(client), bound, &view.pods, on_virtual_node),
        keep(object::attachments(client), watcher::Config::default(), &view.attachments, of_driver),
    );
}

fn of_virtual_node(csi_node: &mut Value) -> bool {
    object::items(csi_node, "/spec/drivers").any(|driver| text(driver, "/name") == DRIVER)
        || text(csi_node, "/metadata/name").starts_with(PREFIX)
}

fn on_virtual_node(pod: &mut Value) -> bool {
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    text(pod, "/spec/nodeName").starts_with(PREFIX)
}

fn of_driver(attachment: &mut Value) -> bool {
    text(attachment, "/spec/attacher") == DRIVER
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, kept: bool) -> kube::api::DynamicObject {
        object::parsed(json!({"metadata": {"namespace": "shop", "name": name}, "kept": kept})).unwrap()
    }

    fn keeps(object: &mut Value) -> bool {
        object["kept"] == true
    }

    #[test]
    fn what_a_new_list_does_not_tell_has_gone_and_is_news() {
        let cache = ObjectCache::default();
        cache.take(Event::Apply(object("a", true)), keeps);
        cache.take(Event::Apply(object("b", true)), keeps);
        let mut news = cache.news();
        cache.take(Event::Init, keeps);
        cache.take(Event::InitApply(object("b", true)), keeps);
        cache.take(Event::InitApply(object("c", false)), keeps);
        cache.take(Event::InitDone, keeps);
        let told: Vec<String> = std::iter::from_fn(|| news.try_recv().ok()).map(|place| place.to_string()).collect();
        assert_eq!(told, ["shop/b", "shop/a"]);
        assert_eq!(cache.all().len(), 1);
    }

    #[test]
    fn what_is_not_kept_any_more_is_removed() {
        let cache = ObjectCache::default();
        cache.take(Event::Apply(object("a", true)), keeps);
        cache.take(Event::Apply(object("a", false)), keeps);
        assert!(cache.all().is_empty());
    }
}
