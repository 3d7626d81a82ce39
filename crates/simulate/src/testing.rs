//! What the tests of controllers and storage share: objects, and time that passes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    Cluster, controllers,
    storage::{Storage, definitions},
};

pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLASSES: &str = "storageclasses.storage.k8s.io";
pub(super) const PODS: &str = "pods";

/// Lets the controllers work for so many seconds.
pub(super) async fn pass(cluster: &Cluster, seconds: u64) {
    let ended = timeout(Duration::from_secs(seconds), controllers::run(cluster.clone())).await;
    assert!(ended.is_err(), "the controllers have ended");
}

/// Lets controllers and storage work for so many seconds.
pub(super) async fn live(cluster: &Cluster, storage: &Storage, seconds: u64) {
    let work = async { tokio::join!(controllers::run(cluster.clone()), storage.run()) };
    assert!(timeout(Duration::from_secs(seconds), work).await.is_err(), "storage or controllers have ended");
}

pub(super) fn class(name: &str, provisioner: &str, binding: &str) -> Value {
    json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": binding, "reclaimPolicy": "Delete"})
}

pub(super) fn claim(name: &str, class: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name, "finalizers": ["kubernetes.io/pvc-protection"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": class,
            "volumeMode": "Filesystem",
        },
    })
}

pub(super) fn volume(name: &str, class: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name, "finalizers": ["kubernetes.io/pv-protection"]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": size},
            "storageClassName": class,
            "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": "/nowhere"},
        },
    })
}

pub(super) fn pod(name: &str, claims: &[&str]) -> Value {
    let volumes: Vec<Value> =
        claims.iter().map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})).collect();
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"containers": [{"name": "main", "image": "x"}], "volumes": volumes},
        "status": {"phase": "Pending"},
    })
}

/// Adds the kinds of snapshots, with a class for each policy.
pub(super) fn add_snapshots(cluster: &Cluster) {
    definitions::install(cluster).unwrap();
    for policy in ["Delete", "Retain"] {
        let name = policy.to_lowercase();
        let class = definitions::class(&name, "storage.simulated", policy, None);
        cluster.create("volumesnapshotclasses.snapshot.storage.k8s.io", class).unwrap();
    }
}

pub(super) fn snapshot(name: &str, source: &str, class: &str) -> Value {
    json!({
        "metadata": {"namespace": "default", "name": name},
        "spec": {"volumeSnapshotClassName": class, "source": {"persistentVolumeClaimName": source}},
    })
}

/// A claim that is to be filled with something.
pub(super) fn copy_of(name: &str, kind: &str, source: &str) -> Value {
    let mut claim = claim(name, "now");
    claim["spec"]["dataSource"] = json!({"kind": kind, "name": source});
    if kind == "VolumeSnapshot" {
        claim["spec"]["dataSource"]["apiGroup"] = json!("snapshot.storage.k8s.io");
    }
    claim
}

impl Cluster {
    pub(super) fn claim(&self, name: &str) -> Arc<Value> {
        self.get(CLAIMS, "default", name).unwrap()
    }

    pub(super) fn volume(&self, name: &str) -> Arc<Value> {
        self.get(VOLUMES, "", name).unwrap()
    }

    pub(super) fn pod(&self, name: &str) -> Arc<Value> {
        self.get(PODS, "default", name).unwrap()
    }

    /// The reasons of all events, each once, in alphabetical order.
    pub(super) fn reasons(&self) -> Vec<String> {
        let events = self.list("events");
        let mut reasons: Vec<String> =
            events.iter().map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
        reasons.sort();
        reasons.dedup();
        reasons
    }
}
