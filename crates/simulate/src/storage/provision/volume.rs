//! The PersistentVolume that stands for a new volume. Pure.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    object::{name, namespace, set, text, uid},
    quantity,
    storage::names::{DIRECTORY, HOSTNAME, PROVISIONED_BY, VOLUME_FINALIZER, class_of},
};

/// What holds a volume: this driver, which knows it by its name, and where it is a directory, in which.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) driver: &'a str,
    pub(super) directory: Option<PathBuf>,
}

pub(super) fn requested(claim: &Value) -> u64 {
    quantity::parse(text(claim, "/spec/resources/requests/storage")).unwrap_or(0)
}

/// `place` is the one node that the volume can be used on.
pub(super) fn object(claim: &Value, class: &Value, source: Source, place: Option<&str>) -> Value {
    let volume = format!("pvc-{}", uid(claim));
    let policy = match text(class, "/reclaimPolicy") {
        "" => "Delete",
        policy => policy,
    };
    let mut object = json!({
        "metadata": {
            "name": volume,
            "annotations": {
                PROVISIONED_BY: text(class, "/provisioner"),
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
        },
        "spec": {
            "accessModes": claim.pointer("/spec/accessModes"),
            "capacity": {"storage": text(claim, "/spec/resources/requests/storage")},
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": namespace(claim),
                "name": name(claim),
                "uid": uid(claim),
                "resourceVersion": text(claim, "/metadata/resourceVersion"),
            },
            "persistentVolumeReclaimPolicy": policy,
            "storageClassName": class_of(claim),
            "volumeMode": claim.pointer("/spec/volumeMode").cloned().unwrap_or_else(|| json!("Filesystem")),
        },
    });
    if policy == "Delete" {
        set(&mut object, &["metadata", "finalizers"], json!([VOLUME_FINALIZER]));
    }
    if let Some(options) = class.get("mountOptions").filter(|options| !options.is_null()) {
        set(&mut object, &["spec", "mountOptions"], options.clone());
    }
    if let Some(place) = place {
        let term = json!({"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": [place]}]});
        set(&mut object, &["spec", "nodeAffinity"], json!({"required": {"nodeSelectorTerms": [term]}}));
    }
    let mut attributes = json!({"storage.kubernetes.io/csiProvisionerIdentity": source.driver});
    if let Some(directory) = source.directory {
        attributes[DIRECTORY] = json!(directory.display().to_string());
    }
    let csi = json!({"driver": source.driver, "volumeHandle": volume, "volumeAttributes": attributes});
    set(&mut object, &["spec", "csi"], csi);
    object
}
