//! Changes in order, for what lives inside the cluster.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{
    Cluster,
    news::Listener,
    store::{Key, Store, What, key_of},
};
use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Change {
    pub resource: String,
    pub what: What,
    pub object: Arc<Value>,
}

/// First everything that is there, as added; then each change.
#[derive(Debug)]
pub struct Changes {
    cluster: Cluster,
    resources: Vec<String>,
    position: u64,
    restored: u32,
    pending: VecDeque<Change>,
    news: Listener,
    /// What has been told and is not gone, to make up for history that was forgotten.
    told: HashMap<(String, Key), Arc<Value>>,
}

pub fn follow(cluster: &Cluster, resources: &[&str]) -> Changes {
    let store = cluster.store();
    let mut changes = Changes {
        cluster: cluster.clone(),
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        position: store.revision,
        restored: store.restored,
        pending: VecDeque::new(),
        news: store.news.listen(),
        told: HashMap::new(),
    };
    changes.list(&store);
    changes
}

impl Changes {
    pub async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return change;
            }
            if !self.collect() {
                self.news.changed().await;
            }
        }
    }

    /// What is known already, without waiting.
    pub fn try_next(&mut self) -> Option<Change> {
        if self.pending.is_empty() {
            self.collect();
        }
        self.pending.pop_front()
    }

    fn list(&mut self, store: &Store) {
        let mut gone = std::mem::take(&mut self.told);
        for resource in self.resources.clone() {
            for object in store.table(&resource).into_iter().flat_map(|table| table.objects().values()) {
                let key = (resource.clone(), key_of(object));
                let what = match gone.remove(&key) {
                    Some(before) if before == *object => {
                        self.told.insert(key, before);
                        continue;
                    }
                    Some(_) => What::Modified,
                    None => What::Added,
                };
                self.tell(Change { resource: resource.clone(), what, object: Arc::clone(object) });
            }
        }
        for ((resource, _), object) in gone {
            self.tell(Change { resource, what: What::Deleted, object });
        }
        self.position = store.revision;
        self.restored = store.restored;
    }

    fn collect(&mut self) -> bool {
        let cluster = self.cluster.clone();
        let store = cluster.store();
        self.news.catch_up();
        let tables: Vec<_> = self.resources.iter().filter_map(|resource| store.table(resource)).collect();
        if self.restored != store.restored || tables.iter().any(|table| table.forgotten > self.position) {
            self.list(&store);
            return !self.pending.is_empty();
        }
        let mut entries: Vec<_> = tables
            .iter()
            .flat_map(|table| {
                let resource = table.kind.resource();
                table.since(self.position).map(move |entry| (entry.revision, resource.clone(), entry))
            })
            .collect();
        entries.sort_by_key(|(revision, ..)| *revision);
        for (_, resource, entry) in entries {
            self.tell(Change { resource, what: entry.what, object: Arc::clone(&entry.object) });
        }
        self.position = store.revision;
        !self.pending.is_empty()
    }

    fn tell(&mut self, change: Change) {
        let key = (change.resource.clone(), key_of(&change.object));
        match change.what {
            What::Deleted => drop(self.told.remove(&key)),
            _ => drop(self.told.insert(key, Arc::clone(&change.object))),
        }
        self.pending.push_back(change);
    }
}
