//! The kinds there are, a line each.

use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub group: String,
    pub versions: Vec<String>,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub namespaced: bool,
    pub custom: bool,
    pub subresources: Vec<String>,
}

const BUILTIN: &[(&str, &str, &str, bool, &[&str])] = &[
    ("", "namespaces", "Namespace", false, &["status", "finalize"]),
    ("", "nodes", "Node", false, &["status"]),
    ("", "persistentvolumes", "PersistentVolume", false, &["status"]),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim", true, &["status"]),
    ("", "pods", "Pod", true, &["status", "binding", "eviction"]),
    ("", "configmaps", "ConfigMap", true, &[]),
    ("", "secrets", "Secret", true, &[]),
    ("", "serviceaccounts", "ServiceAccount", true, &[]),
    ("", "services", "Service", true, &["status"]),
    ("", "events", "Event", true, &[]),
    ("", "resourcequotas", "ResourceQuota", true, &["status"]),
    ("apps", "deployments", "Deployment", true, &["status", "scale"]),
    ("apps", "replicasets", "ReplicaSet", true, &["status", "scale"]),
    ("storage.k8s.io", "storageclasses", "StorageClass", false, &[]),
    ("storage.k8s.io", "csidrivers", "CSIDriver", false, &[]),
    ("storage.k8s.io", "csinodes", "CSINode", false, &[]),
    ("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", true, &[]),
    ("storage.k8s.io", "volumeattachments", "VolumeAttachment", false, &["status"]),
    ("coordination.k8s.io", "leases", "Lease", true, &[]),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false, &["status"]),
];

pub fn builtin() -> impl Iterator<Item = Kind> {
    BUILTIN.iter().map(|(group, plural, kind, namespaced, subresources)| Kind {
        group: (*group).to_owned(),
        versions: vec!["v1".to_owned()],
        plural: (*plural).to_owned(),
        singular: kind.to_lowercase(),
        kind: (*kind).to_owned(),
        list_kind: format!("{kind}List"),
        namespaced: *namespaced,
        custom: false,
        subresources: subresources.iter().map(|one| (*one).to_owned()).collect(),
    })
}

impl Kind {
    pub fn of_definition(_: &Value) -> Option<Self> {
        None
    }

    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn api_version(&self) -> String {
        let version = self.versions.first().map(String::as_str).unwrap_or_default();
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// As refusals name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}
