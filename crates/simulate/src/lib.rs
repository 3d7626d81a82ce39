//! Clusters in a process: a Kubernetes API server in memory, the controllers and the storage that make it alive, and the
//! faults that a real one has too seldom. It knows nothing of the product.
//!
//! ```text
//! a client ─ HTTP ─► server ─┐
//! kube::Client ─► service ───┴► faults ─► call ─► read | write | remove | watch ─► kinds, patch, quota ─► store
//! controllers, storage ── hands of a Cluster, without HTTP and without faults ───────────────────────────► store
//! ```
//!
//! It is believed because it is compared: `tests/e2e/differential` sends the same requests to it and to a real API server.
//!
//! Its page: `docs/design/simulator.md`.

pub mod call;
pub mod chance;
pub mod clock;
pub mod controllers;
pub mod custom;
pub mod decoder;
pub mod discovery;
pub mod events;
mod fairness;
pub mod faults;
pub mod follow;
pub mod kinds;
pub mod labels;
pub mod limits;
pub mod news;
mod object;
pub mod options;
pub mod patch;
pub mod persist;
pub mod protobuf;
pub mod quantity;
pub mod quota;
pub mod read;
pub mod remove;
pub mod resources;
mod review;
pub mod selector;
pub mod server;
pub mod service;
pub mod status_error;
pub mod storage;
pub mod store;
pub mod subresources;
pub mod table;
#[cfg(test)]
mod testing;
mod timers;
mod users;
pub mod versions;
pub mod watch;
pub mod write;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use serde_json::{Value, json};

use chance::Chance;
use clock::Clock;
use faults::Faults;
pub use follow::{Change, Changes};
pub use news::Listener;
use remove::Options;
pub use server::serve;
pub use service::{Lost, Service};
pub use status_error::StatusError;
use store::Store;
pub use store::{Backup, What, text};

/// One cluster. Cheap to clone: all clones are the same cluster.
#[derive(Clone, Debug)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    name: String,
    seed: u64,
    chance: Chance,
    clock: Clock,
    faults: Faults,
    store: Mutex<Store>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Cluster").field("name", &self.name).finish_non_exhaustive()
    }
}

const FIRST_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];

impl Cluster {
    /// With its first namespaces and their accounts, and nothing else.
    pub fn new(name: &str, seed: u64) -> Self {
        let cluster = Self::empty(name, seed);
        for namespace in FIRST_NAMESPACES {
            let made = cluster.create("namespaces", json!({"metadata": {"name": namespace}}));
            debug_assert!(made.is_ok(), "{made:?}");
            let account = json!({"metadata": {"namespace": namespace, "name": "default"}});
            let made = cluster.create("serviceaccounts", account);
            debug_assert!(made.is_ok(), "{made:?}");
        }
        cluster
    }

    /// With the objects of an earlier one, as `objects` gave them.
    pub fn restored(name: &str, seed: u64, objects: Vec<(String, Value)>) -> Self {
        let cluster = Self::empty(name, seed);
        let (kinds, others): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|(resource, _)| resource == custom::RESOURCE);
        let mut store = cluster.store();
        for (_, definition) in &kinds {
            custom::serve(&mut store, definition);
        }
        for (resource, object) in kinds.into_iter().chain(others) {
            store.restore(&resource, object);
        }
        store.compact();
        drop(store);
        cluster
    }

    fn empty(name: &str, seed: u64) -> Self {
        let mut store = Store::default();
        for kind in resources::builtin() {
            store.add_kind(Arc::new(kind));
        }
        Self(Arc::new(Inner {
            name: name.to_owned(),
            seed,
            chance: Chance::new(seed),
            clock: Clock::start(),
            faults: Faults::default(),
            store: Mutex::new(store),
        }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    pub fn chance(&self) -> &Chance {
        &self.0.chance
    }

    pub fn now(&self) -> SystemTime {
        self.0.clock.now()
    }

    /// The time as objects carry it.
    pub fn stamp(&self) -> String {
        self.0.clock.stamp()
    }

    /// The same as the head of an answer has it.
    pub(crate) fn date(&self) -> String {
        self.0.clock.date(self.faults().behind())
    }

    pub fn faults(&self) -> &Faults {
        &self.0.faults
    }

    /// What a client is built on, without a socket.
    pub fn service(&self, client: &str) -> Service {
        Service::new(self.clone(), client)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The hands of what lives inside: no HTTP, no faults, and they may do what the API refuses to clients.
impl Cluster {
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.store().get(resource, namespace, name)
    }

    /// Of all namespaces.
    pub fn list(&self, resource: &str) -> Vec<Arc<Value>> {
        self.store().table(resource).map(|table| table.objects().values().cloned().collect()).unwrap_or_default()
    }

    pub fn create(&self, resource: &str, mut object: Value) -> Result<Arc<Value>, StatusError> {
        let mut store = self.store();
        let kind = store.table(resource).map(|table| Arc::clone(&table.kind)).ok_or_else(StatusError::no_such_path)?;
        object["kind"] = json!(kind.kind);
        object["apiVersion"] = json!(kind.api_version());
        self.make(&mut store, &kind, object, write::Maker::Inside, false)
    }

    /// Reads, edits and puts down in one step; nothing is written where nothing has changed.
    pub fn change(
        &self,
        resource: &str,
        namespace: &str,
        name: &str,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Arc<Value>, StatusError> {
        let mut store = self.store();
        let live = store.get(resource, namespace, name).ok_or_else(|| StatusError::not_found(resource, name))?;
        let mut object = Value::clone(&live);
        edit(&mut object);
        if object == *live {
            return Ok(live);
        }
        Ok(Self::put_down(&mut store, resource, object))
    }

    /// As a client deletes: finalizers are waited for, and pods are given their time.
    pub fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<(), StatusError> {
        remove::end(self, &mut self.store(), resource, namespace, name, &Options::default()).map(drop)
    }

    /// As a kubelet deletes a pod that has ended.
    pub fn delete_now(&self, resource: &str, namespace: &str, name: &str) -> Result<(), StatusError> {
        remove::end(self, &mut self.store(), resource, namespace, name, &Options::at_once()).map(drop)
    }

    /// Everything there is, with its resource: for who keeps it.
    pub fn objects(&self) -> Vec<(String, Arc<Value>)> {
        self.store().objects()
    }

    /// The version of the newest change, to wait for the next one.
    pub fn versions(&self) -> Listener {
        self.store().news.listen()
    }

    /// For [`Self::restore_from`].
    pub fn backup(&self) -> Backup {
        self.store().backup()
    }

    /// As when etcd is restored from a backup and its revisions are not raised: the API server begins again, all watches end, and
    /// versions that were given out since lie in the future.
    pub fn restore_from(&self, backup: &Backup) {
        self.store().restore_from(backup);
    }

    /// Forgets the history: watches that are behind are told 410.
    pub fn compact(&self) {
        self.store().compact();
    }
}

#[cfg(test)]
mod tests;
