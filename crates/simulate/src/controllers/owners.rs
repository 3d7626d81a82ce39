//! Garbage collection: what belongs to others goes when the last of them has gone. An owner that is deleted in the
//! foreground waits for what blocks it; one that orphans is forgotten by what it owned first.

mod reference;

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use serde_json::Value;

use self::reference::{Fate, Reference, State, fate, forget, references};
use crate::{
    Cluster, What,
    object::{drop_finalizer, has_finalizer, is_terminating, name, namespace, uid},
    store::Key,
};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// A resource and the name of one object of it.
type Place = (String, Key);

pub(super) async fn run(cluster: Cluster) {
    let mut collector = Collector { cluster, dependents: HashMap::new() };
    loop {
        collector.follow().await;
    }
}

struct Collector {
    cluster: Cluster,
    /// By the UID of their owner.
    dependents: HashMap<String, BTreeSet<Place>>,
}

impl Collector {
    /// Follows all the kinds there are, until there are others.
    async fn follow(&mut self) {
        let resources = kinds_of(&self.cluster);
        let mut changes =
            crate::follow::follow(&self.cluster, &resources.iter().map(String::as_str).collect::<Vec<_>>());
        loop {
            let change = changes.next().await;
            self.changed(&change.resource, &change.object, change.what == What::Deleted);
            if change.resource == DEFINITIONS && kinds_of(&self.cluster) != resources {
                return;
            }
        }
    }

    fn changed(&mut self, resource: &str, object: &Value, gone: bool) {
        let owners = references(object);
        let place = place(resource, object);
        for owner in &owners {
            let known = self.dependents.entry(owner.uid.clone()).or_default();
            if !gone {
                known.insert(place.clone());
            } else if known.remove(&place) && known.is_empty() {
                self.dependents.remove(&owner.uid);
            }
        }
        if gone {
            for owner in &owners {
                self.finish(owner, namespace(object));
            }
            for dependent in self.dependents.remove(uid(object)).unwrap_or_default() {
                self.judge(&dependent);
            }
            return;
        }
        if !owners.is_empty() {
            self.judge(&place);
        }
        if is_terminating(object) {
            self.end(&place, object);
        }
    }

    /// An owner that ends otherwise than in the background.
    fn end(&mut self, place: &Place, owner: &Value) {
        let dependents = self.dependents.get(uid(owner)).cloned().unwrap_or_default();
        if has_finalizer(owner, ORPHAN) {
            for (resource, key) in &dependents {
                self.edit(resource, key, |dependent| forget(dependent, &[uid(owner)]));
            }
            self.dependents.remove(uid(owner));
            self.edit(&place.0, &place.1, |owner| drop_finalizer(owner, ORPHAN));
        }
        if has_finalizer(owner, FOREGROUND) {
            for dependent in &dependents {
                self.judge(dependent);
            }
            self.let_go(place, uid(owner));
        }
    }

    /// Something that an owner may have waited for is gone.
    fn finish(&self, owner: &Reference, within: &str) {
        if let State::Waits(place) = self.state(owner, within) {
            self.let_go(&place, &owner.uid);
        }
    }

    fn let_go(&self, place: &Place, owner: &str) {
        let blocks = |(resource, key): &Place| {
            let dependent = self.cluster.get(resource, &key.0, &key.1);
            dependent.is_some_and(|found| references(&found).iter().any(|one| one.uid == owner && one.blocks))
        };
        if !self.dependents.get(owner).into_iter().flatten().any(blocks) {
            self.edit(&place.0, &place.1, |owner| drop_finalizer(owner, FOREGROUND));
        }
    }

    fn judge(&self, (resource, key): &Place) {
        let Some(object) = self.cluster.get(resource, &key.0, &key.1).filter(|object| !is_terminating(object)) else {
            return;
        };
        let owners = references(&object);
        let states: Vec<State> = owners.iter().map(|owner| self.state(owner, &key.0)).collect();
        match fate(&states) {
            Fate::Stays => {}
            // Gone already is what is wanted.
            Fate::Goes => drop(self.cluster.delete(resource, &key.0, &key.1)),
            Fate::Forgets => {
                let absent = owners.iter().zip(&states).filter(|(_, state)| **state == State::Absent);
                let absent: Vec<&str> = absent.map(|(owner, _)| owner.uid.as_str()).collect();
                self.edit(resource, key, |object| forget(object, &absent));
            }
        }
    }

    fn state(&self, owner: &Reference, within: &str) -> State {
        // What is not known to be gone is there.
        let Some((resource, namespaced)) = resource_of(&self.cluster, &owner.group, &owner.kind) else {
            return State::There;
        };
        let key: Key = (if namespaced { within.to_owned() } else { String::new() }, owner.name.clone());
        if namespaced && within.is_empty() {
            return State::There;
        }
        let found: Option<Arc<Value>> = self.cluster.get(&resource, &key.0, &key.1);
        match found.filter(|found| uid(found) == owner.uid) {
            None => State::Absent,
            Some(found) if is_terminating(&found) && has_finalizer(&found, FOREGROUND) => State::Waits((resource, key)),
            Some(_) => State::There,
        }
    }

    fn edit(&self, resource: &str, key: &Key, edit: impl FnOnce(&mut Value)) {
        // It may be gone: that is told, and looked at, too.
        drop(self.cluster.change(resource, &key.0, &key.1, edit));
    }
}

fn place(resource: &str, object: &Value) -> Place {
    (resource.to_owned(), (namespace(object).to_owned(), name(object).to_owned()))
}

fn kinds_of(cluster: &Cluster) -> Vec<String> {
    cluster.store().tables().map(|table| table.kind.resource()).collect()
}

/// The resource of a kind, and whether it has namespaces.
fn resource_of(cluster: &Cluster, group: &str, kind: &str) -> Option<(String, bool)> {
    let store = cluster.store();
    let found = store.tables().map(|table| &table.kind).find(|known| known.group == group && known.kind == kind)?;
    Some((found.resource(), found.namespaced))
}
