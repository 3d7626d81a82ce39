//! The names that storage, clusters and their users agree on.

use serde_json::Value;

use crate::object::{annotation, name, text};

pub(super) const CLAIMS: &str = "persistentvolumeclaims";
pub(super) const VOLUMES: &str = "persistentvolumes";
pub(super) const CLASSES: &str = "storageclasses.storage.k8s.io";
pub(super) const ATTRIBUTES_CLASSES: &str = "volumeattributesclasses.storage.k8s.io";
pub(super) const PODS: &str = "pods";
pub(super) const SECRETS: &str = "secrets";
pub(super) const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
pub(super) const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub(super) const SNAPSHOT_CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
pub(super) const GROUPS: &str = "volumegroupsnapshots.groupsnapshot.storage.k8s.io";
pub(super) const GROUP_CONTENTS: &str = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io";
pub(super) const GROUP_CLASSES: &str = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io";
pub(super) const NODES: &str = "nodes";

pub(super) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
pub(super) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
pub(super) const VOLUME_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// The attribute that tells where a volume is, where volumes are directories.
pub const DIRECTORY: &str = "directory";
pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";

pub(super) fn class_of(claim: &Value) -> &str {
    text(claim, "/spec/storageClassName")
}

pub(super) fn waits_for_pod(class: &Value) -> bool {
    text(class, "/volumeBindingMode") == "WaitForFirstConsumer"
}

pub(super) fn is_bound(claim: &Value) -> bool {
    !text(claim, "/spec/volumeName").is_empty() && !annotation(claim, BIND_COMPLETED).is_empty()
}

/// Under which name the storage itself knows a volume.
pub(super) fn handle(volume: &Value) -> &str {
    let path = text(volume, "/spec/hostPath/path").rsplit('/').next().unwrap_or_default();
    [text(volume, "/spec/csi/volumeHandle"), path]
        .into_iter()
        .find(|told| !told.is_empty())
        .unwrap_or_else(|| name(volume))
}
