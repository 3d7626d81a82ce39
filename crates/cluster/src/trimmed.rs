//! Objects as they are read from watches, lists and the answers to our own writes: of their metadata only what somebody goes by. Most of
//! a claim's text is who wrote which field, and notes of others, and none of that is decoded.
//!
//! What comes out is the ordinary object with the rest of its metadata empty. What else is to be read of the metadata is
//! named in [`Metadata`]; labels and annotations, by whoever [`Reads`] them.

use std::{borrow::Cow, collections::BTreeMap, fmt, marker::PhantomData, ops::Deref};

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, PodStatus},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::Resource;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

/// Somebody who goes by labels and annotations.
pub trait Reads {
    /// By this one.
    fn reads(key: &str) -> bool;
}

/// An object without what nobody there reads of its metadata.
#[derive(Clone, Debug)]
pub struct Trimmed<K, R> {
    object: K,
    by: PhantomData<R>,
}

impl<K, R> Trimmed<K, R> {
    /// As it is to be written.
    pub fn of(object: K) -> Self {
        Self { object, by: PhantomData }
    }

    pub fn into_object(self) -> K {
        self.object
    }
}

impl<K, R> Deref for Trimmed<K, R> {
    type Target = K;

    fn deref(&self) -> &K {
        &self.object
    }
}

impl<K: Serialize, R> Serialize for Trimmed<K, R> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.object.serialize(to)
    }
}

impl<K: Resource, R> Resource for Trimmed<K, R> {
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
        self.object.meta()
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.object.meta_mut()
    }
}

/// An object in its three parts.
#[derive(Deserialize)]
#[serde(bound = "Spec: Deserialize<'de>, Status: Deserialize<'de>, R: Reads")]
struct Parts<Spec, Status, R> {
    metadata: Option<Metadata<R>>,
    spec: Option<Spec>,
    status: Option<Status>,
}

impl<'de, R: Reads> Deserialize<'de> for Trimmed<PersistentVolumeClaim, R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::<_, _, R>::deserialize(from)?;
        let metadata = metadata.map(ObjectMeta::from).unwrap_or_default();
        Ok(Self::of(PersistentVolumeClaim { metadata, spec, status }))
    }
}

impl<'de, R: Reads> Deserialize<'de> for Trimmed<PersistentVolume, R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::<_, _, R>::deserialize(from)?;
        let metadata = metadata.map(ObjectMeta::from).unwrap_or_default();
        Ok(Self::of(PersistentVolume { metadata, spec, status }))
    }
}

/// What is read of a pod's status. The rest is the word of who runs it: that of a member may hold times that no parser here takes.
#[derive(Deserialize)]
struct Phase {
    phase: Option<String>,
}

impl<'de, R: Reads> Deserialize<'de> for Trimmed<Pod, R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Parts { metadata, spec, status } = Parts::<_, Phase, R>::deserialize(from)?;
        let metadata = metadata.map(ObjectMeta::from).unwrap_or_default();
        let status = status.map(|Phase { phase }| PodStatus { phase, ..PodStatus::default() });
        Ok(Self::of(Pod { metadata, spec, status }))
    }
}

/// What is read of any object's metadata.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "R: Reads")]
struct Metadata<R> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    labels: Option<Notes<R>>,
    annotations: Option<Notes<R>>,
}

impl<R> From<Metadata<R>> for ObjectMeta {
    fn from(read: Metadata<R>) -> Self {
        Self {
            name: read.name,
            namespace: read.namespace,
            uid: read.uid,
            resource_version: read.resource_version,
            creation_timestamp: read.creation_timestamp,
            deletion_timestamp: read.deletion_timestamp,
            finalizers: read.finalizers,
            labels: read.labels.map(|notes| notes.read),
            annotations: read.annotations.map(|notes| notes.read),
            ..Self::default()
        }
    }
}

/// Labels or annotations: those that are read.
struct Notes<R> {
    read: BTreeMap<String, String>,
    by: PhantomData<R>,
}

impl<'de, R: Reads> Deserialize<'de> for Notes<R> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Noted(PhantomData))
    }
}

struct Noted<R>(PhantomData<R>);

impl<'de, R: Reads> Visitor<'de> for Noted<R> {
    type Value = Notes<R>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("labels or annotations")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Notes<R>, A::Error> {
        let mut read = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            if R::reads(&key) {
                read.insert(key, map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(Notes { read, by: PhantomData })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::from_str;

    use super::*;

    #[derive(Clone, Debug)]
    enum Person {}

    impl Reads for Person {
        fn reads(key: &str) -> bool {
            key == "read"
        }
    }

    type Volume = Trimmed<PersistentVolume, Person>;

    #[test]
    fn object_with_little_or_nothing_is_read() {
        let empty: Volume = from_str("{}").unwrap();
        assert_eq!(*empty, PersistentVolume::default());
        let nulls = r#"{"metadata": {"name": null, "labels": null, "annotations": {}}, "spec": null}"#;
        let nulls: Volume = from_str(nulls).unwrap();
        assert_eq!((&nulls.metadata.labels, &nulls.metadata.annotations), (&None, &Some(BTreeMap::new())));
        assert!(from_str::<Volume>(r#"{"metadata": {"labels": 1}}"#).is_err());
    }

    #[test]
    fn pod_is_read_whatever_is_said_of_it_by_who_runs_it() {
        let status =
            r#"{"phase": "Running", "conditions": [{"lastTransitionTime": "9999-12-31T23:59:59Z"}], "podIP": 1}"#;
        let pod = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{"containers": []}}, "status": {status}}}"#);
        let pod: Trimmed<Pod, Person> = from_str(&pod).unwrap();
        let status = PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() };
        assert_eq!((pod.metadata.name.as_deref(), &pod.status), (Some("a"), &Some(status)));
        assert!(pod.spec.is_some());
    }

    #[test]
    fn label_that_nobody_reads_may_be_anything() {
        let labels = r#"{"metadata": {"labels": {"read": "a", "b": {"c": [1]}}, "managedFields": 1}}"#;
        let volume: Volume = from_str(labels).unwrap();
        assert_eq!(volume.metadata.labels, Some([("read".to_owned(), "a".to_owned())].into()));
        assert!(from_str::<Volume>(r#"{"metadata": {"labels": {"read": 1}}}"#).is_err());
    }
}
