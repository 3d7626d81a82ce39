//! The kinds of snapshots as they go over the wire, with the fields that are used here and no others.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Resource, core::NamespaceResourceScope};
use serde::{Deserialize, Serialize};

pub(super) const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "v1";

/// A snapshot as its user sees it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshot {
    pub api_version: String,
    pub kind: String,
    pub metadata: ObjectMeta,
    pub spec: SnapshotSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<SnapshotStatus>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSource {
    pub source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_class_name: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Source {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_snapshot_content_name: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound_volume_snapshot_content_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_time: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_to_use: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restore_size: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Trouble>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Trouble {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What stands behind a snapshot: the storage's own.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSnapshotContent {
    pub metadata: ObjectMeta,
    pub spec: ContentSpec,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    pub deletion_policy: String,
    pub volume_snapshot_ref: SnapshotRef,
}

/// The snapshot that a content is bound to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotRef {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

macro_rules! resource {
    ($type:ty, $kind:literal, $plural:literal, $scope:ty) => {
        impl Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind.into()
            }

            fn group((): &()) -> Cow<'_, str> {
                GROUP.into()
            }

            fn version((): &()) -> Cow<'_, str> {
                VERSION.into()
            }

            fn plural((): &()) -> Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

resource!(VolumeSnapshot, "VolumeSnapshot", "volumesnapshots", NamespaceResourceScope);
resource!(VolumeSnapshotContent, "VolumeSnapshotContent", "volumesnapshotcontents", kube::core::ClusterResourceScope);
