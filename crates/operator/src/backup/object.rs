//! What of any object is kept.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::objects::word;
use domain::volume::id::{is_label, is_subdomain};

/// Annotations that were true of an object in its former cluster alone.
const OF_THEN: [&str; 8] = [
    "kosmos.csi.io/",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-",
    "volume.beta.kubernetes.io/storage-provisioner",
    "snapshot.storage.kubernetes.io/volumesnapshot-being",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// What people have written of an object: everything else is the former cluster's.
pub(super) fn trimmed(object: &Value) -> Value {
    let mut kept = object.clone();
    let metadata = &object["metadata"];
    let mut trimmed = json!({"name": metadata["name"]});
    for key in ["namespace", "labels"] {
        if !metadata[key].is_null() {
            trimmed[key] = metadata[key].clone();
        }
    }
    let is_lasting = |key: &str| !OF_THEN.iter().any(|of_then| key.starts_with(of_then));
    let notes = metadata["annotations"].as_object().into_iter().flatten().filter(|(key, _)| is_lasting(key));
    let notes: serde_json::Map<String, Value> = notes.map(|(key, note)| (key.clone(), note.clone())).collect();
    if !notes.is_empty() {
        trimmed["annotations"] = Value::Object(notes);
    }
    kept["metadata"] = trimmed;
    if let Some(kept) = kept.as_object_mut() {
        kept.remove("status");
    }
    kept
}

pub(super) fn by_name(objects: &[Value]) -> BTreeMap<(&str, &str), &Value> {
    let named = |object| ((word(object, "/metadata/namespace"), word(object, "/metadata/name")), object);
    objects.iter().map(named).collect()
}

/// Of this kind, and of that name and namespace which such an object has: both become part of a path.
pub(super) fn is_a(object: &Value, version: &str, kind: &str, namespace: &str) -> bool {
    (word(object, "/apiVersion"), word(object, "/kind")) == (version, kind)
        && word(object, "/metadata/namespace") == namespace
        && (namespace.is_empty() || is_label(namespace, 63))
        && is_subdomain(word(object, "/metadata/name"))
}
