//! The objects of a snapshot, and how they tell of one another. Pure.

use serde_json::{Value, json};

use crate::{
    object::{add_finalizer, annotation, at, drop_finalizer, name, namespace, set, text, uid, unset},
    quantity,
};

const CONTENT_FINALIZER: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";
const CLAIM_FINALIZER: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
const FINALIZERS: [&str; 2] = [
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection",
    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection",
];
pub const BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
const DEFAULT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";

pub fn is_default(class: &Value) -> bool {
    annotation(class, DEFAULT_CLASS) == "true"
}

pub fn is_ready(object: &Value) -> bool {
    at(object, "/status/readyToUse") == Some(&Value::Bool(true))
}

/// The data as of one moment is kept; it may not be usable yet.
pub fn is_cut(object: &Value) -> bool {
    at(object, "/status/creationTime").is_some()
}

pub fn content_of(snapshot: &Value) -> &str {
    text(snapshot, "/status/boundVolumeSnapshotContentName")
}

pub fn deletes(content: &Value) -> bool {
    text(content, "/spec/deletionPolicy") == "Delete"
}

/// Whether a content names this snapshot, by its UID where it tells one.
pub fn is_of(content: &Value, snapshot: &Value) -> bool {
    let told = |field: &str| text(content, &format!("/spec/volumeSnapshotRef/{field}"));
    told("name") == name(snapshot)
        && told("namespace") == namespace(snapshot)
        && (told("uid").is_empty() || told("uid") == uid(snapshot))
}

/// What stands for a snapshot that is to be made of a volume.
pub fn content(snapshot: &Value, class: &Value, volume: &str) -> Value {
    json!({
        "metadata": {"name": format!("snapcontent-{}", uid(snapshot)), "finalizers": [CONTENT_FINALIZER]},
        "spec": {
            "deletionPolicy": text(class, "/deletionPolicy"),
            "driver": text(class, "/driver"),
            "source": {"volumeHandle": volume},
            "volumeSnapshotClassName": name(class),
            "volumeSnapshotRef": {
                "apiVersion": text(snapshot, "/apiVersion"),
                "kind": "VolumeSnapshot",
                "namespace": namespace(snapshot),
                "name": name(snapshot),
                "uid": uid(snapshot),
                "resourceVersion": text(snapshot, "/metadata/resourceVersion"),
            },
        },
    })
}

/// A snapshot is protected from the moment it is worked on.
pub fn begin(snapshot: &mut Value, class: &str) {
    for finalizer in FINALIZERS {
        add_finalizer(snapshot, finalizer);
    }
    if !class.is_empty() {
        set(snapshot, &["spec", "volumeSnapshotClassName"], json!(class));
    }
}

pub fn bind(snapshot: &mut Value, content: &str) {
    if content_of(snapshot) != content {
        set(snapshot, &["status", "boundVolumeSnapshotContentName"], json!(content));
        set(snapshot, &["status", "readyToUse"], json!(false));
    }
}

/// A content that a person made gets the UID of the snapshot that took it.
pub fn bind_content(content: &mut Value, snapshot: &Value) {
    set(content, &["spec", "volumeSnapshotRef", "uid"], json!(uid(snapshot)));
    add_finalizer(content, CONTENT_FINALIZER);
}

/// What storage tells of a snapshot that is made. Times are nanoseconds since 1970.
pub fn tell_made(content: &mut Value, handle: &str, bytes: u64, nanoseconds: u64, ready: bool) {
    set(
        content,
        &["status"],
        json!({"snapshotHandle": handle, "creationTime": nanoseconds, "readyToUse": ready, "restoreSize": bytes}),
    );
}

pub fn tell_uploaded(content: &mut Value) {
    set(content, &["status", "readyToUse"], json!(true));
    unset(content, &["status", "error"]);
}

pub fn tell_error(object: &mut Value, message: &str, now: &str) {
    set(object, &["status", "readyToUse"], json!(false));
    set(object, &["status", "error"], json!({"message": message, "time": now}));
}

/// What a content tells is what its snapshot tells.
pub fn tell_ready(snapshot: &mut Value, content: &Value, now: &str) {
    if !is_ready(snapshot) {
        tell_cut(snapshot, content, now);
        set(snapshot, &["status", "readyToUse"], json!(true));
        unset(snapshot, &["status", "error"]);
    }
}

pub fn tell_cut(snapshot: &mut Value, content: &Value, now: &str) {
    if !is_cut(snapshot) {
        let bytes = at(content, "/status/restoreSize").and_then(Value::as_u64).unwrap_or(0);
        set(snapshot, &["status", "restoreSize"], json!(quantity::print(bytes)));
        set(snapshot, &["status", "creationTime"], json!(now));
    }
}

pub fn release(snapshot: &mut Value) {
    for finalizer in FINALIZERS {
        drop_finalizer(snapshot, finalizer);
    }
}

pub fn release_content(content: &mut Value) {
    drop_finalizer(content, CONTENT_FINALIZER);
}

pub fn hold_source(claim: &mut Value) {
    add_finalizer(claim, CLAIM_FINALIZER);
}

pub fn release_source(claim: &mut Value) {
    drop_finalizer(claim, CLAIM_FINALIZER);
}
