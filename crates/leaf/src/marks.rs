//! What is written on leaf objects besides whose they are, and how it is read. Pure.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::ownership::{REQUEST, WITHDRAWN};
use domain::volume::{Request, VolumeHash};

/// Where the class waits for a pod: for which node the volume is. The member's scheduler writes it, or we do.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On the claims of a group while it is being cut: its hash follows.
pub(crate) const MEMBER_OF: &str = "group.kosmos.csi.io/";

/// The groups whose labels a claim carries.
pub fn groups_of(claim: &ObjectMeta) -> Vec<VolumeHash> {
    let labels = claim.labels.iter().flat_map(BTreeMap::keys);
    labels.filter_map(|key| VolumeHash::parse(key.strip_prefix(MEMBER_OF)?)).collect()
}

/// What a claim was made for, as it says itself.
pub fn request_of(claim: &PersistentVolumeClaim) -> Option<Request> {
    read_request(claim.annotations().get(REQUEST)?)
}

pub(super) fn read_request(text: &str) -> Option<Request> {
    serde_json::from_str(text).ok()
}

/// As a patch names an annotation. No key of ours, nor of Kubernetes', has a tilde.
pub(super) fn path_of(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

/// The same of a label.
pub(super) fn label_path(key: &str) -> String {
    format!("/metadata/labels/{}", key.replace('/', "~1"))
}

/// Puts the mark on an object, or takes it off, where nobody has written on that since it was read.
pub(super) fn withdrawn_mark(uid: &str, version: &str, withdrawn: bool) -> [Value; 2] {
    let unchanged = json!({"op": "test", "path": "/metadata/resourceVersion", "value": version});
    let change = if withdrawn {
        json!({"op": "add", "path": path_of(WITHDRAWN), "value": uid})
    } else {
        json!({"op": "remove", "path": path_of(WITHDRAWN)})
    };
    [unchanged, change]
}
