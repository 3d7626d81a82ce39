//! Which fields of an object are kept: those that are named. What is not stays where it is.

use leaf::ownership::HEALING;
use serde_json::Value;

/// Annotations that Kubernetes and its sidecars write, and that tell where a volume stands. Of this driver's all are kept but
/// one, which holds a whole claim with whatever its author wrote on it.
const ANNOTATIONS: [&str; 13] = [
    "deployment.kubernetes.io/revision",
    "kubectl.kubernetes.io/restartedAt",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "pv.kubernetes.io/provisioned-by",
    "snapshot.storage.kubernetes.io/volumesnapshot-being-created",
    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted",
    "snapshotclass.kubernetes.io/is-default-class",
    "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/storage-resizer",
];

const METADATA: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "metadata.generation",
    "metadata.resourceVersion",
    "metadata.creationTimestamp",
    "metadata.deletionTimestamp",
    "metadata.finalizers",
    "metadata.ownerReferences",
];

/// An object with these of its fields, besides what says which one it is, and those labels and annotations that Kubernetes or
/// this driver writes.
pub(super) fn kept(object: &Value, fields: &[&str]) -> Value {
    let paths: Vec<Vec<&str>> = fields.iter().chain(&METADATA).map(|path| path.split('.').collect()).collect();
    let mut kept = at(object, &paths.iter().map(Vec::as_slice).collect::<Vec<_>>());
    keep_known(object, "labels", is_known_label, &mut kept);
    keep_known(object, "annotations", is_known_annotation, &mut kept);
    kept
}

fn keep_known(object: &Value, of: &str, is_known: impl Fn(&str) -> bool, kept: &mut Value) {
    if let Some(all) = object["metadata"][of].as_object() {
        let known = all.iter().filter(|(key, _)| is_known(key));
        kept["metadata"][of] = Value::Object(known.map(|(key, value)| (key.clone(), value.clone())).collect());
    }
}

/// A path leads through lists as if each of their items were in their place.
fn at(value: &Value, paths: &[&[&str]]) -> Value {
    if paths.iter().any(|path| path.is_empty()) {
        return value.clone();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| at(item, paths)).collect(),
        Value::Object(fields) => {
            let kept = fields.iter().filter_map(|(name, value)| {
                let below: Vec<&[&str]> = paths.iter().filter_map(|path| below(path, name)).collect();
                (!below.is_empty()).then(|| (name.clone(), at(value, &below)))
            });
            Value::Object(kept.collect())
        }
        _ => Value::Null,
    }
}

fn below<'a>(path: &'a [&'a str], name: &str) -> Option<&'a [&'a str]> {
    path.split_first().filter(|(first, _)| **first == name).map(|(_, rest)| rest)
}

/// Labels are short, and show.
fn is_known_label(key: &str) -> bool {
    ["kosmos.csi.io", "kubernetes.io", "k8s.io"].into_iter().any(|domain| is_within(key, domain))
}

fn is_known_annotation(key: &str) -> bool {
    ANNOTATIONS.contains(&key) || is_within(key, "kosmos.csi.io") && key != HEALING
}

fn is_within(key: &str, domain: &str) -> bool {
    let of = key.split_once('/').map_or("", |(of, _)| of);
    of.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_kept_that_is_not_named() {
        let object = json!({
            "metadata": {
                "name": "a", "managedFields": ["canary"],
                "labels": {"team": "canary", "app.kubernetes.io/name": "kosmos-csi", "evilkubernetes.io/x": "canary"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "canary", "password": "canary", HEALING: "canary", "kosmos.csi.io/handle": "m0/shop/db/1",
                    "topology.kosmos.csi.io/member": "m0",
                    "volume.kubernetes.io/selected-node": "node-1", "a.k8s.io/notes": "canary",
                },
            },
            "spec": {
                "containers": [{"name": "c", "env": [{"name": "PROXY", "value": "canary"}], "args": ["--a"]}, "canary"],
                "volumes": [{"secret": "canary"}], "nodeName": {"unlike": "canary"},
            },
            "data": {"password": "canary"},
        });
        let fields = ["spec.containers.name", "spec.containers.env.name", "spec.containers.args", "spec.nodeName.own"];
        let expected = json!({
            "metadata": {
                "name": "a", "labels": {"app.kubernetes.io/name": "kosmos-csi"},
                "annotations": {
                    "kosmos.csi.io/handle": "m0/shop/db/1", "topology.kosmos.csi.io/member": "m0",
                    "volume.kubernetes.io/selected-node": "node-1",
                },
            },
            "spec": {"containers": [{"name": "c", "env": [{"name": "PROXY"}], "args": ["--a"]}, null], "nodeName": {}},
        });
        assert_eq!(kept(&object, &fields), expected);
        assert_eq!(kept(&json!("canary"), &fields), Value::Null);
    }
}
