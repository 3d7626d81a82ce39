//! The kinds of snapshots, where a cluster is to have them, and classes for them.

use serde_json::{Value, json};

use crate::{Cluster, StatusError};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Group, plural, kind, scope, and what a table shows of one.
type Row =
    (&'static str, &'static str, &'static str, &'static str, &'static [(&'static str, &'static str, &'static str)]);

const AGE: (&str, &str, &str) = ("Age", "date", ".metadata.creationTimestamp");
const READY: (&str, &str, &str) = ("ReadyToUse", "boolean", ".status.readyToUse");

const KINDS: [Row; 6] = [
    (
        "snapshot.storage.k8s.io",
        "volumesnapshots",
        "VolumeSnapshot",
        "Namespaced",
        &[
            READY,
            ("SourcePVC", "string", ".spec.source.persistentVolumeClaimName"),
            ("RestoreSize", "string", ".status.restoreSize"),
            ("SnapshotClass", "string", ".spec.volumeSnapshotClassName"),
            AGE,
        ],
    ),
    (
        "snapshot.storage.k8s.io",
        "volumesnapshotcontents",
        "VolumeSnapshotContent",
        "Cluster",
        &[
            READY,
            ("DeletionPolicy", "string", ".spec.deletionPolicy"),
            ("Driver", "string", ".spec.driver"),
            ("VolumeSnapshot", "string", ".spec.volumeSnapshotRef.name"),
            AGE,
        ],
    ),
    (
        "snapshot.storage.k8s.io",
        "volumesnapshotclasses",
        "VolumeSnapshotClass",
        "Cluster",
        &[("Driver", "string", ".driver"), ("DeletionPolicy", "string", ".deletionPolicy"), AGE],
    ),
    ("groupsnapshot.storage.k8s.io", "volumegroupsnapshots", "VolumeGroupSnapshot", "Namespaced", &[READY, AGE]),
    (
        "groupsnapshot.storage.k8s.io",
        "volumegroupsnapshotcontents",
        "VolumeGroupSnapshotContent",
        "Cluster",
        &[READY, ("Driver", "string", ".spec.driver"), AGE],
    ),
    (
        "groupsnapshot.storage.k8s.io",
        "volumegroupsnapshotclasses",
        "VolumeGroupSnapshotClass",
        "Cluster",
        &[("Driver", "string", ".driver"), AGE],
    ),
];

/// Makes the kinds that are missing.
pub fn install(cluster: &Cluster) -> Result<(), StatusError> {
    for (group, plural, kind, scope, columns) in KINDS {
        let columns: Vec<Value> =
            columns.iter().map(|(name, data, path)| json!({"name": name, "type": data, "jsonPath": path})).collect();
        let definition = json!({
            "metadata": {
                "name": format!("{plural}.{group}"),
                "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter"},
            },
            "spec": {
                "group": group,
                "names": {
                    "plural": plural, "kind": kind, "singular": kind.to_lowercase(), "listKind": format!("{kind}List"),
                },
                "scope": scope,
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
                }],
            },
        });
        match cluster.create(DEFINITIONS, definition) {
            Err(refusal) if refusal.reason != "AlreadyExists" => return Err(refusal),
            _ => {}
        }
    }
    Ok(())
}

/// A class of snapshots, or of groups of them.
pub fn class(name: &str, driver: &str, policy: &str, default: Option<&str>) -> Value {
    let mut class = json!({"metadata": {"name": name}, "driver": driver, "deletionPolicy": policy});
    if let Some(annotation) = default {
        class["metadata"]["annotations"] = json!({annotation: "true"});
    }
    class
}
