//! Which claims and volumes a change touches.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use super::{class_of, is_free};
use crate::{
    object::{name, namespace, text},
    store::Key,
};

#[derive(Debug, Default)]
pub(super) struct Index {
    /// Volumes by the claim that they name, and what each named last.
    by_claim: HashMap<Key, BTreeSet<String>>,
    named: HashMap<String, Key>,
    /// Volumes that name none, by class.
    free: HashMap<String, BTreeSet<String>>,
    class_of_free: HashMap<String, String>,
    /// Claims without a volume, by class.
    waiting: HashMap<String, BTreeSet<Key>>,
    class_of_waiting: HashMap<Key, String>,
    /// Claims by the volume that they name.
    by_volume: BTreeMap<String, BTreeSet<Key>>,
}

impl Index {
    pub(super) fn put_claim(&mut self, key: &Key, claim: &Value, gone: bool) {
        let volume = text(claim, "/spec/volumeName");
        if let Some(class) = self.class_of_waiting.remove(key) {
            take(&mut self.waiting, &class, key);
        }
        if volume.is_empty() {
            if !gone {
                self.waiting.entry(class_of(claim).to_owned()).or_default().insert(key.clone());
                self.class_of_waiting.insert(key.clone(), class_of(claim).to_owned());
            }
            return;
        }
        let claims = self.by_volume.entry(volume.to_owned()).or_default();
        if gone {
            claims.remove(key);
        } else {
            claims.insert(key.clone());
        }
        if claims.is_empty() {
            self.by_volume.remove(volume);
        }
    }

    pub(super) fn put_volume(&mut self, volume: &Value, gone: bool) {
        let own = name(volume).to_owned();
        if let Some(claim) = self.named.remove(&own) {
            take(&mut self.by_claim, &claim, &own);
        }
        if let Some(class) = self.class_of_free.remove(&own) {
            take(&mut self.free, &class, &own);
        }
        if gone {
            return;
        }
        if is_free(volume) {
            self.free.entry(class_of(volume).to_owned()).or_default().insert(own.clone());
            self.class_of_free.insert(own, class_of(volume).to_owned());
        } else {
            let claim = claim_of(volume);
            self.by_claim.entry(claim.clone()).or_default().insert(own.clone());
            self.named.insert(own, claim);
        }
    }

    pub(super) fn volumes_of(&self, claim: &Key) -> Vec<String> {
        self.by_claim.get(claim).into_iter().flatten().cloned().collect()
    }

    /// The claim that a volume names, and those that name it.
    pub(super) fn claims_of(&self, volume: &Value) -> Vec<Key> {
        let mut claims = self.by_volume.get(name(volume)).cloned().unwrap_or_default();
        if !is_free(volume) {
            claims.insert(claim_of(volume));
        }
        claims.into_iter().collect()
    }

    pub(super) fn waiting(&self, class: &str) -> Vec<Key> {
        self.waiting.get(class).into_iter().flatten().cloned().collect()
    }

    /// Volumes that a claim could take: those that name it first.
    pub(super) fn offers(&self, claim: &Value) -> impl Iterator<Item = &str> {
        let own = self.by_claim.get(&(namespace(claim).to_owned(), name(claim).to_owned()));
        let free = self.free.get(class_of(claim));
        own.into_iter().flatten().chain(free.into_iter().flatten()).map(String::as_str)
    }
}

fn claim_of(volume: &Value) -> Key {
    (text(volume, "/spec/claimRef/namespace").to_owned(), text(volume, "/spec/claimRef/name").to_owned())
}

fn take<K: Eq + std::hash::Hash, V: Ord>(sets: &mut HashMap<K, BTreeSet<V>>, key: &K, value: &V) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(value);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
