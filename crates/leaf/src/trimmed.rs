//! Objects as they are read from watches, lists and the answers to our own writes: of their metadata only what this
//! driver goes by. Most of a claim's text is who wrote which field, and notes of others, and none of that is decoded.
//!
//! What comes out is the ordinary object with the rest of its metadata empty. What else is to be read of the metadata is
//! named in [`Metadata`]; labels and annotations, in [`is_read`].

use std::{borrow::Cow, collections::BTreeMap, fmt, ops::Deref};

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{IgnoredAny, MapAccess, Visitor},
};

use super::{
    marks::{MEMBER_OF, SELECTED_NODE},
    ownership::{MANAGED_BY, PROVISIONED_BY},
};

/// The prefix of every label and annotation of ours.
const OURS: &str = "kosmos.csi.io/";

/// An object without what nobody here reads of its metadata.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Trimmed<K>(pub K);

impl<K> Deref for Trimmed<K> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.0
    }
}

impl<K: Resource> Resource for Trimmed<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(of: &K::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &K::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &K::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &K::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.meta_mut()
    }
}

/// An object in its three parts.
#[derive(Deserialize)]
#[serde(bound = "Spec: Deserialize<'de>, Status: Deserialize<'de>")]
struct Parts<Spec, Status> {
    #[serde(default)]
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

impl<'de> Deserialize<'de> for Trimmed<PersistentVolumeClaim> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(from)?;
        Ok(Self(PersistentVolumeClaim { metadata: metadata.into(), spec, status }))
    }
}

impl<'de> Deserialize<'de> for Trimmed<PersistentVolume> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::deserialize(from)?;
        Ok(Self(PersistentVolume { metadata: metadata.into(), spec, status }))
    }
}

/// What is read of any object's metadata.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    #[serde(deserialize_with = "those_read")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "those_read")]
    annotations: Option<BTreeMap<String, String>>,
}

impl From<Metadata> for ObjectMeta {
    fn from(read: Metadata) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            finalizers: read.finalizers,
            labels: read.labels,
            annotations: read.annotations,
            ..Self::default()
        }
    }
}

/// Whether anybody here reads a label or an annotation.
fn is_read(key: &str) -> bool {
    [OURS, MEMBER_OF].iter().any(|prefix| key.starts_with(prefix))
        || [MANAGED_BY, SELECTED_NODE, PROVISIONED_BY].contains(&key)
}

fn those_read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    struct ThoseRead;

    impl<'de> Visitor<'de> for ThoseRead {
        type Value = Option<BTreeMap<String, String>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("labels or annotations")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut read = BTreeMap::new();
            while let Some(key) = map.next_key::<String>()? {
                if is_read(&key) {
                    read.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(Some(read))
        }
    }

    from.deserialize_any(ThoseRead)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_str, from_value, json};

    use super::*;

    #[test]
    fn only_what_is_gone_by_is_read_of_the_metadata() {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "db", "namespace": "shop", "uid": "u", "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "finalizers": ["kosmos.csi.io/protect", "kubernetes.io/pvc-protection"],
                "labels": {"kosmos.csi.io/host": "h", MANAGED_BY: "x", "app": "db"},
                "annotations": {"kosmos.csi.io/name": "pvc-1", SELECTED_NODE: "n", "pv.kubernetes.io/bind-completed": "yes"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o"}],
            },
            "spec": {"volumeName": "pv-1", "storageClassName": "now"},
            "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
        });
        let whole: PersistentVolumeClaim = from_value(claim.clone()).unwrap();
        let trimmed: Trimmed<PersistentVolumeClaim> = from_str(&claim.to_string()).unwrap();
        let mut expected = whole.clone();
        expected.metadata.managed_fields = None;
        expected.metadata.owner_references = None;
        expected.metadata.labels.as_mut().unwrap().remove("app");
        expected.metadata.annotations.as_mut().unwrap().remove("pv.kubernetes.io/bind-completed");
        assert_eq!(trimmed.0, expected);
    }

    #[test]
    fn object_with_little_or_nothing_is_read() {
        let empty: Trimmed<PersistentVolume> = from_str("{}").unwrap();
        assert_eq!(empty.0, PersistentVolume::default());
        let nulls = r#"{"metadata": {"name": null, "labels": null, "annotations": {}}, "spec": null}"#;
        let nulls: Trimmed<PersistentVolume> = from_str(nulls).unwrap();
        assert_eq!(nulls.metadata.labels, None);
        assert!(from_str::<Trimmed<PersistentVolume>>(r#"{"metadata": {"labels": 1}}"#).is_err());
    }
}
