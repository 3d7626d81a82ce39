//! Bodies and paths that many topics use.

use serde_json::{Value, json};

/// The path of a resource, of a namespace of the core group, and of an object in it.
pub(crate) fn core(resource: &str, namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/{resource}")
}

pub(crate) const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
pub(crate) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(crate) const NAMESPACES: &str = "/api/v1/namespaces";

pub(crate) fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

pub(crate) fn config_map(name: &str, labels: Value, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}, "data": data})
}

/// The account without which a namespace takes no pods; a controller makes it in a whole cluster.
pub(crate) fn account(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}})
}

pub(crate) fn claim(name: &str, class: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}}}})
}

pub(crate) fn volume(name: &str, size: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size},
            "csi": {"driver": "csi.example.com", "volumeHandle": name}}})
}

pub(crate) fn class(name: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
        "provisioner": "csi.example.com"})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "busybox"}]}})
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": "busybox"}]}}}})
}

/// An object with one place changed: `with(pod("a"), "/spec/nodeName", json!("n"))`. Missing parents are made.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut place = &mut object;
    for part in pointer.split('/').skip(1) {
        let key = part.replace("~1", "/").replace("~0", "~");
        place = match place {
            Value::Array(values) => &mut values[key.parse::<usize>().unwrap()],
            other => &mut other[key],
        };
    }
    *place = value;
    object
}

pub(crate) fn event(name: &str, namespace: &str, pod: &str, reason: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": reason, "message": "what happened",
        "type": if reason == "Failed" { "Warning" } else { "Normal" }, "count": 1, "source": {"component": "test"},
        "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace,
            "uid": "00000000-0000-0000-0000-000000000001"}})
}
