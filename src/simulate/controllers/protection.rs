//! Claims in use by pods and volumes that are bound are kept by a finalizer until they are neither.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::simulate::{
    Cluster, What,
    object::{drop_finalizer, has_finalizer, is_terminating, items, name, namespace, text},
    store::Key,
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const PODS: &str = "pods";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";

pub(super) async fn run(cluster: Cluster) {
    let mut changes = cluster.follow(&[PODS, CLAIMS, VOLUMES]);
    let mut users = Users::default();
    loop {
        let change = changes.next().await;
        let gone = change.what == What::Deleted;
        match change.resource.as_str() {
            VOLUMES => release_volume(&cluster, &change.object),
            CLAIMS => release_claim(&cluster, &users, &key(&change.object)),
            _ => users.put(&change.object, gone).iter().for_each(|claim| release_claim(&cluster, &users, claim)),
        }
    }
}

/// Which pods use a claim. A pod counts from when it has a node until it is gone, whether it still runs or not.
#[derive(Debug, Default)]
struct Users {
    pods: HashMap<Key, BTreeSet<String>>,
}

impl Users {
    /// Takes a pod in and tells which claims it names.
    fn put(&mut self, pod: &Value, gone: bool) -> Vec<Key> {
        if text(pod, "/spec/nodeName").is_empty() {
            return Vec::new();
        }
        let claims = claims_of(pod);
        for claim in &claims {
            let pods = self.pods.entry(claim.clone()).or_default();
            if gone {
                pods.remove(name(pod));
            } else {
                pods.insert(name(pod).to_owned());
            }
            if pods.is_empty() {
                self.pods.remove(claim);
            }
        }
        if gone { claims } else { Vec::new() }
    }
}

fn claims_of(pod: &Value) -> Vec<Key> {
    let volumes = items(pod, "/spec/volumes").iter();
    let names = volumes.map(|volume| text(volume, "/persistentVolumeClaim/claimName")).filter(|name| !name.is_empty());
    names.map(|name| (namespace(pod).to_owned(), name.to_owned())).collect()
}

fn key(object: &Value) -> Key {
    (namespace(object).to_owned(), name(object).to_owned())
}

fn release_claim(cluster: &Cluster, users: &Users, key: &Key) {
    let Some(claim) = cluster.get(CLAIMS, &key.0, &key.1) else {
        return;
    };
    if is_terminating(&claim) && has_finalizer(&claim, CLAIM_FINALIZER) && !users.pods.contains_key(key) {
        // Gone meanwhile is as good.
        drop(cluster.change(CLAIMS, &key.0, &key.1, |claim| drop_finalizer(claim, CLAIM_FINALIZER)));
    }
}

fn release_volume(cluster: &Cluster, volume: &Value) {
    let Some(volume) = cluster.get(VOLUMES, "", name(volume)) else {
        return;
    };
    let bound = text(&volume, "/status/phase") == "Bound";
    if is_terminating(&volume) && has_finalizer(&volume, VOLUME_FINALIZER) && !bound {
        drop(cluster.change(VOLUMES, "", name(&volume), |volume| drop_finalizer(volume, VOLUME_FINALIZER)));
    }
}
