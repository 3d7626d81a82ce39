//! The kinds there are: the built-in ones, a line each, and those that a CustomResourceDefinition adds.

use serde_json::Value;

use super::store::text;

/// One kind and the ways to name it. Built-in ones and those of definitions differ in `custom` alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    pub group: String,
    /// Served versions, the preferred one first.
    pub versions: Vec<String>,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub custom: bool,
    pub subresources: Vec<String>,
    pub columns: Vec<Column>,
    /// What objects of each version must look like, where a definition says it.
    pub schemas: Vec<(String, Value)>,
}

fn schema(version: &Value) -> Option<(String, Value)> {
    let schema = version.pointer("/schema/openAPIV3Schema")?;
    Some((text(version, "/name").to_owned(), schema.clone()))
}

/// What a definition wants `kubectl get` to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Of the kind: each has columns of its own.
    pub version: String,
    pub name: String,
    pub data: String,
    pub format: String,
    pub description: String,
    pub priority: i64,
    pub path: String,
}

/// Group, plural, kind, short names, whether namespaced, categories, subresources. All of them are served as v1.
type Row = (&'static str, &'static str, &'static str, &'static str, bool, &'static str, &'static str);

#[rustfmt::skip]
const BUILTIN: &[Row] = &[
    ("", "configmaps", "ConfigMap", "cm", true, "", ""),
    ("", "endpoints", "Endpoints", "ep", true, "", ""),
    ("", "events", "Event", "ev", true, "", ""),
    ("", "limitranges", "LimitRange", "limits", true, "", ""),
    ("", "namespaces", "Namespace", "ns", false, "", "finalize status"),
    ("", "nodes", "Node", "no", false, "", "status"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", true, "", "status"),
    ("", "persistentvolumes", "PersistentVolume", "pv", false, "", "status"),
    ("", "pods", "Pod", "po", true, "all", "binding ephemeralcontainers eviction status"),
    ("", "resourcequotas", "ResourceQuota", "quota", true, "", "status"),
    ("", "secrets", "Secret", "", true, "", ""),
    ("", "serviceaccounts", "ServiceAccount", "sa", true, "", "token"),
    ("", "services", "Service", "svc", true, "all", "status"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", "", false, "api-extensions", "status"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", "", false, "api-extensions", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "crd crds", false, "api-extensions", "status"),
    ("apps", "daemonsets", "DaemonSet", "ds", true, "all", "status"),
    ("apps", "deployments", "Deployment", "deploy", true, "all", "scale status"),
    ("apps", "replicasets", "ReplicaSet", "rs", true, "all", "scale status"),
    ("apps", "statefulsets", "StatefulSet", "sts", true, "all", "scale status"),
    ("batch", "jobs", "Job", "", true, "all", "status"),
    ("coordination.k8s.io", "leases", "Lease", "", true, "", ""),
    ("events.k8s.io", "events", "Event", "ev", true, "", ""),
    ("networking.k8s.io", "networkpolicies", "NetworkPolicy", "netpol", true, "", ""),
    ("policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", true, "", "status"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding", "", false, "", ""),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", "", false, "", ""),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding", "", true, "", ""),
    ("rbac.authorization.k8s.io", "roles", "Role", "", true, "", ""),
    ("scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", false, "", ""),
    ("storage.k8s.io", "csidrivers", "CSIDriver", "", false, "", ""),
    ("storage.k8s.io", "csinodes", "CSINode", "", false, "", ""),
    ("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity", "", true, "", ""),
    ("storage.k8s.io", "storageclasses", "StorageClass", "sc", false, "", ""),
    ("storage.k8s.io", "volumeattachments", "VolumeAttachment", "", false, "", "status"),
    ("storage.k8s.io", "volumeattributesclasses", "VolumeAttributesClass", "vac", false, "", ""),
];

pub fn builtin() -> impl Iterator<Item = Kind> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    BUILTIN.iter().map(move |(group, plural, kind, short, namespaced, categories, subresources)| Kind {
        group: (*group).to_owned(),
        versions: vec!["v1".to_owned()],
        plural: (*plural).to_owned(),
        singular: kind.to_lowercase(),
        kind: (*kind).to_owned(),
        list_kind: format!("{kind}List"),
        short_names: words(short),
        categories: words(categories),
        namespaced: *namespaced,
        custom: false,
        subresources: words(subresources),
        columns: Vec::new(),
        schemas: Vec::new(),
    })
}

impl Kind {
    /// None where a definition lacks what a kind needs.
    pub fn of_definition(definition: &Value) -> Option<Self> {
        let spec = definition.get("spec")?;
        let names = spec.get("names")?;
        let word = |field: &str| names.get(field).and_then(Value::as_str).filter(|word| !word.is_empty());
        let words = |field: &str| -> Vec<String> {
            let listed = names.get(field).and_then(Value::as_array).into_iter().flatten();
            listed.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let kind = word("kind")?;
        let mut served: Vec<&Value> = spec.get("versions")?.as_array()?.iter().collect();
        served.retain(|version| version["served"] == Value::Bool(true));
        served.sort_by_key(|version| std::cmp::Reverse(rank(text(version, "/name"))));
        let mut subresources: Vec<String> = served
            .iter()
            .filter_map(|version| version["subresources"].as_object())
            .flat_map(|parts| parts.keys().cloned())
            .collect();
        subresources.sort();
        subresources.dedup();
        Some(Self {
            group: spec.get("group")?.as_str()?.to_owned(),
            versions: served.iter().map(|version| text(version, "/name").to_owned()).collect(),
            plural: word("plural")?.to_owned(),
            singular: word("singular").map_or_else(|| kind.to_lowercase(), str::to_owned),
            kind: kind.to_owned(),
            list_kind: word("listKind").map_or_else(|| format!("{kind}List"), str::to_owned),
            short_names: words("shortNames"),
            categories: words("categories"),
            namespaced: text(spec, "/scope") == "Namespaced",
            custom: true,
            subresources,
            columns: served.iter().flat_map(|version| columns(version)).collect(),
            schemas: served.iter().filter_map(|version| schema(version)).collect(),
        })
        .filter(|kind| !kind.versions.is_empty())
    }

    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    pub fn api_version(&self) -> String {
        self.group_version(self.versions.first().map(String::as_str).unwrap_or_default())
    }

    pub fn group_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// The group as the server's own types name it.
    pub fn internal_group(&self) -> &str {
        if self.group.is_empty() { "core" } else { self.group.split('.').next().unwrap_or_default() }
    }

    /// As refusals name it.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }
}

fn columns(version: &Value) -> Vec<Column> {
    let listed = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    let column = |column: &Value| {
        let word = |field: &str| column[field].as_str().unwrap_or_default().to_owned();
        Column {
            version: text(version, "/name").to_owned(),
            name: word("name"),
            data: word("type"),
            format: word("format"),
            description: word("description"),
            priority: column["priority"].as_i64().unwrap_or(0),
            path: word("jsonPath"),
        }
    };
    listed.map(column).collect()
}

/// Order of versions: v2 before v1 before v1beta1 before v1alpha1, and all of them before other names.
pub(super) fn rank(version: &str) -> (u8, u64, u64) {
    let number = |text: &str| text.parse::<u64>().ok();
    let Some(rest) = version.strip_prefix('v') else { return (0, 0, 0) };
    for (stage, word) in [(2, "beta"), (1, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return number(major).zip(number(minor)).map_or((0, 0, 0), |(major, minor)| (stage, major, minor));
        }
    }
    number(rest).map_or((0, 0, 0), |major| (3, major, 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definition_becomes_a_kind() {
        let definition = json!({"spec": {
            "group": "example.org", "scope": "Cluster",
            "names": {"plural": "lamps", "kind": "Lamp", "shortNames": ["la"]},
            "versions": [
                {"name": "v1beta1", "served": true},
                {"name": "v1alpha1", "served": false},
                {"name": "v1", "served": true, "subresources": {"status": {}},
                 "additionalPrinterColumns": [{"name": "Lit", "type": "boolean", "jsonPath": ".status.lit"}]},
            ],
        }});
        let kind = Kind::of_definition(&definition).unwrap();
        assert_eq!((kind.resource().as_str(), kind.api_version().as_str()), ("lamps.example.org", "example.org/v1"));
        assert_eq!(
            (kind.versions.as_slice(), kind.singular.as_str()),
            (&["v1".to_owned(), "v1beta1".to_owned()][..], "lamp")
        );
        assert_eq!((kind.list_kind.as_str(), kind.namespaced, kind.custom), ("LampList", false, true));
        assert_eq!(
            (kind.subresources.as_slice(), kind.columns[0].path.as_str()),
            (&["status".to_owned()][..], ".status.lit")
        );
        assert_eq!(Kind::of_definition(&json!({"spec": {"group": "x", "names": {"kind": "X"}, "versions": []}})), None);
    }

    #[test]
    fn names_of_built_in_kinds_lead_to_one_kind_each() {
        let mut resources: Vec<String> = builtin().map(|kind| kind.resource()).collect();
        let all = resources.len();
        resources.sort();
        resources.dedup();
        assert_eq!(resources.len(), all);
        let claim = builtin().find(|kind| kind.short_names == ["pvc"]).unwrap();
        assert_eq!(
            (claim.resource().as_str(), claim.qualified().as_str()),
            ("persistentvolumeclaims", "PersistentVolumeClaim")
        );
    }
}
