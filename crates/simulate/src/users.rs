//! Which pods use which claims. A pod counts from when it has a node until it is gone, whether it still runs or not.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::{
    object::{items, name, namespace, text},
    store::Key,
};

#[derive(Debug, Default)]
pub(super) struct Users {
    pods: HashMap<Key, BTreeSet<String>>,
}

impl Users {
    /// Takes a pod in as it is now, or has been.
    pub(super) fn put(&mut self, pod: &Value, gone: bool) {
        if text(pod, "/spec/nodeName").is_empty() {
            return;
        }
        for claim in keys_of(pod) {
            let pods = self.pods.entry(claim.clone()).or_default();
            if !gone {
                pods.insert(name(pod).to_owned());
            } else if pods.remove(name(pod)) && pods.is_empty() {
                self.pods.remove(&claim);
            }
        }
    }

    /// The names of the pods, which are where the claim is.
    pub(super) fn of(&self, claim: &Key) -> impl Iterator<Item = &str> {
        self.pods.get(claim).into_iter().flatten().map(String::as_str)
    }
}

/// The claims that a pod mounts.
pub(super) fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(pod, "/spec/volumes").iter();
    volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty())
}

/// Those without which it does not begin.
pub(super) fn secrets_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(pod, "/spec/volumes").iter().filter(|volume| volume["secret"]["optional"] != true);
    volumes.map(|volume| text(volume, "/secret/secretName")).filter(|name| !name.is_empty())
}

pub(super) fn keys_of(pod: &Value) -> Vec<Key> {
    claims_of(pod).map(|claim| (namespace(pod).to_owned(), claim.to_owned())).collect()
}
