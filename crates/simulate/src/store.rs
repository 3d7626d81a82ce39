//! The objects of one cluster, by kind, with the history that watches and consistent reads need. It knows versions and
//! order; what a request may do is decided above it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde_json::{Value, json};

use super::{news::News, persist::Journal, resources::Kind};

/// Namespace (empty for what has none) and name.
pub type Key = (String, String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Added,
    Modified,
    Deleted,
}

/// One change, as watches see it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub revision: u64,
    pub what: What,
    pub object: Arc<Value>,
    pub before: Option<Arc<Value>>,
}

/// All objects of one kind.
#[derive(Debug)]
pub struct Table {
    pub kind: Arc<Kind>,
    objects: BTreeMap<Key, Arc<Value>>,
    log: VecDeque<Entry>,
    /// Changes up to this revision are forgotten.
    pub forgotten: u64,
    pub news: News,
}

const REMEMBERED: usize = 20_000;

impl Table {
    pub fn get(&self, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(key)
    }

    pub fn objects(&self) -> &BTreeMap<Key, Arc<Value>> {
        &self.objects
    }

    /// Changes after a revision, in order.
    pub fn since(&self, revision: u64) -> impl Iterator<Item = &Entry> {
        let first = self.log.partition_point(|entry| entry.revision <= revision);
        self.log.range(first..)
    }

    /// The objects as they were, where that is still known.
    pub fn at(&self, revision: u64) -> Option<BTreeMap<Key, Arc<Value>>> {
        if revision < self.forgotten {
            return None;
        }
        let mut objects = self.objects.clone();
        for entry in self.log.iter().rev().take_while(|entry| entry.revision > revision) {
            let key = key_of(&entry.object);
            match &entry.before {
                Some(before) => drop(objects.insert(key, Arc::clone(before))),
                None => drop(objects.remove(&key)),
            }
        }
        Some(objects)
    }

    fn remember(&mut self, entry: Entry) {
        let revision = entry.revision;
        self.log.push_back(entry);
        if self.log.len() > REMEMBERED
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.revision;
        }
        self.news.tell(revision);
    }
}

/// Everything that there is at one moment, as a backup of etcd holds it.
#[derive(Clone, Debug)]
pub struct Backup {
    revision: u64,
    objects: Vec<(String, Arc<Value>)>,
}

#[derive(Debug, Default)]
pub struct Store {
    pub revision: u64,
    /// How often it was restored from a backup: each time, what was read before is not the past of what is there.
    pub restored: u32,
    tables: BTreeMap<String, Table>,
    /// Told after every change of any kind.
    pub news: News,
    pub(super) journal: Option<Journal>,
}

impl Store {
    pub fn add_kind(&mut self, kind: Arc<Kind>) {
        let forgotten = self.revision;
        if let Some(table) = self.tables.get_mut(&kind.resource()) {
            table.kind = kind;
            return;
        }
        let (objects, log, news) = (BTreeMap::new(), VecDeque::new(), News::default());
        self.tables.insert(kind.resource(), Table { kind, objects, log, forgotten, news });
    }

    pub fn drop_kind(&mut self, resource: &str) {
        if let Some(table) = self.tables.remove(resource) {
            table.news.tell(u64::MAX);
        }
        if let Some(journal) = &mut self.journal {
            journal.outdated();
        }
    }

    pub fn table(&self, resource: &str) -> Option<&Table> {
        self.tables.get(resource)
    }

    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.tables.values()
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.tables.get(resource)?.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    /// Puts an object down under a new version.
    pub fn put(&mut self, resource: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        let revision = self.revision;
        stamp(&mut object, revision);
        let object = Arc::new(object);
        if let Some(table) = self.tables.get_mut(resource) {
            let before = table.objects.insert(key_of(&object), Arc::clone(&object));
            let what = if before.is_some() { What::Modified } else { What::Added };
            keep(&mut self.journal, resource, what, &object);
            table.remember(Entry { revision, what, object: Arc::clone(&object), before });
        }
        self.told();
        object
    }

    /// Takes an object out; what is told of it carries the version of its end.
    pub fn remove(&mut self, resource: &str, last: Value) -> Arc<Value> {
        self.revision += 1;
        let revision = self.revision;
        let mut last = last;
        stamp(&mut last, revision);
        let object = Arc::new(last);
        if let Some(table) = self.tables.get_mut(resource) {
            let before = table.objects.remove(&key_of(&object));
            keep(&mut self.journal, resource, What::Deleted, &object);
            table.remember(Entry { revision, what: What::Deleted, object: Arc::clone(&object), before });
        }
        self.told();
        object
    }

    /// Everything there is, with its resource.
    pub fn objects(&self) -> Vec<(String, Arc<Value>)> {
        let of = |table: &Table| {
            let resource = table.kind.resource();
            table.objects.values().map(|object| (resource.clone(), Arc::clone(object))).collect::<Vec<_>>()
        };
        self.tables.values().flat_map(of).collect()
    }

    fn told(&mut self) {
        if self.journal.as_ref().is_some_and(Journal::is_due) {
            let objects = self.objects();
            if let Some(journal) = &mut self.journal {
                journal.renew(self.revision, &objects);
            }
        }
        self.news.tell(self.revision);
    }

    /// Puts an object back as it was saved, with its version.
    pub fn restore(&mut self, resource: &str, object: Value) {
        self.revision = self.revision.max(version_of(&object));
        if let Some(table) = self.tables.get_mut(resource) {
            table.objects.insert(key_of(&object), Arc::new(object));
        }
    }

    pub fn backup(&self) -> Backup {
        Backup { revision: self.revision, objects: self.objects() }
    }

    /// Becomes what it was, with the versions of then. Kinds that came later stay, without objects.
    pub fn restore_from(&mut self, backup: &Backup) {
        self.revision = backup.revision;
        self.restored += 1;
        for table in self.tables.values_mut() {
            table.objects.clear();
        }
        for (resource, object) in &backup.objects {
            if let Some(table) = self.tables.get_mut(resource) {
                table.objects.insert(key_of(object), Arc::clone(object));
            }
        }
        self.compact();
        if let Some(journal) = &mut self.journal {
            journal.outdated();
        }
        let revision = self.revision;
        self.tables.values().for_each(|table| table.news.tell(revision));
        self.told();
    }

    /// Forgets all history, as compaction does.
    pub fn compact(&mut self) {
        let revision = self.revision;
        for table in self.tables.values_mut() {
            table.log.clear();
            table.forgotten = revision;
        }
    }
}

fn keep(journal: &mut Option<Journal>, resource: &str, what: What, object: &Value) {
    if let Some(journal) = journal {
        journal.write(resource, what, object);
    }
}

fn stamp(object: &mut Value, revision: u64) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("resourceVersion".to_owned(), json!(revision.to_string()));
    }
}

/// A text inside an object; empty where there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// What a pointer leads to. It is read so often that it may not allocate, as serde_json's does, unless it has escapes.
pub fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(object, |inner, part| match inner {
        Value::Object(fields) => fields.get(part),
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => None,
    })
}

pub fn key_of(object: &Value) -> Key {
    (text(object, "/metadata/namespace").to_owned(), text(object, "/metadata/name").to_owned())
}

pub fn version_of(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or(0)
}
