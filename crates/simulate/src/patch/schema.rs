//! How the lists and maps of the kinds are merged. What is in no table is the usual: a list is replaced as a whole, a map
//! is merged field by field.
//!
//! A place is named by the end of its path of fields, without the positions in lists: `spec.containers` is that of pods
//! and of every template of pods.

use serde_json::Value;

/// What makes two items of a list the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Same {
    /// Nothing: the list is one value.
    Never,
    /// Their value.
    Value,
    /// These fields.
    Keys(&'static [&'static str]),
}

struct List {
    place: &'static str,
    /// In server-side apply.
    applied: Same,
    /// In strategic merge.
    strategic: Same,
}

const fn by(place: &'static str, keys: &'static [&'static str]) -> List {
    List { place, applied: Same::Keys(keys), strategic: Same::Keys(keys) }
}

const NAME: &[&str] = &["name"];

const LISTS: &[List] = &[
    by("metadata.ownerReferences", &["uid"]),
    List { place: "metadata.finalizers", applied: Same::Value, strategic: Same::Value },
    by("spec.containers", NAME),
    by("spec.initContainers", NAME),
    by("spec.ephemeralContainers", NAME),
    by("spec.volumes", NAME),
    by("spec.imagePullSecrets", NAME),
    by("spec.schedulingGates", NAME),
    by("spec.resourceClaims", NAME),
    by("spec.hostAliases", &["ip"]),
    by("spec.topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    by("env", NAME),
    by("volumeMounts", &["mountPath"]),
    by("volumeDevices", &["devicePath"]),
    by("containers.ports", &["containerPort", "protocol"]),
    by("initContainers.ports", &["containerPort", "protocol"]),
    by("ephemeralContainers.ports", &["containerPort", "protocol"]),
    List { place: "resources.claims", applied: Same::Keys(NAME), strategic: Same::Never },
    by("status.conditions", &["type"]),
    by("status.podIPs", &["ip"]),
    List { place: "status.hostIPs", applied: Same::Never, strategic: Same::Keys(&["ip"]) },
];

/// Where the end of a path says too little.
const OF_ONE_KIND: &[(&str, List)] = &[
    (
        "csidrivers.storage.k8s.io",
        List { place: "spec.volumeLifecycleModes", applied: Same::Value, strategic: Same::Never },
    ),
    ("csinodes.storage.k8s.io", by("spec.drivers", NAME)),
    (
        "customresourcedefinitions.apiextensions.k8s.io",
        List { place: "status.conditions", applied: Same::Keys(&["type"]), strategic: Same::Never },
    ),
    ("jobs.batch", List { place: "status.conditions", applied: Same::Never, strategic: Same::Keys(&["type"]) }),
    ("nodes", by("status.addresses", &["type"])),
    ("nodes", List { place: "spec.podCIDRs", applied: Same::Value, strategic: Same::Value }),
    ("serviceaccounts", by("secrets", NAME)),
    ("services", by("spec.ports", &["port", "protocol"])),
    // As their definition says.
    ("virtualmachines.vmoperator.vmware.com", by("spec.volumes", NAME)),
];

/// Maps that server-side apply takes as one value: selectors and references.
const WHOLE_MAPS: &[&str] = &[
    "configMapKeyRef",
    "controllerExpandSecretRef",
    "controllerPublishSecretRef",
    "dataSource",
    "fieldRef",
    "involvedObject",
    "labelSelector",
    "namespaceSelector",
    "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution",
    "nodeAffinity.required",
    "nodeExpandSecretRef",
    "nodePublishSecretRef",
    "nodeStageSecretRef",
    "nodeTopology",
    "podSelector",
    "regarding",
    "related",
    "resourceFieldRef",
    "roleRef",
    "scopeSelector",
    "secretKeyRef",
    "secretRef",
    "selector",
    "spec.nodeSelector",
];

/// Lists whose items are one value each, though they have keys.
const WHOLE_ITEMS: &[&str] = &["metadata.ownerReferences", "spec.imagePullSecrets", "secrets"];

/// The path of fields to a value of one kind of objects.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    resource: &'a str,
    custom: bool,
    path: String,
}

impl<'a> Place<'a> {
    pub(super) fn root(resource: &'a str, custom: bool) -> Self {
        Self { resource, custom, path: String::new() }
    }

    pub(super) fn field(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, ..self.clone() }
    }

    pub(super) fn is_custom(&self) -> bool {
        self.custom
    }

    fn ends_with(&self, place: &str) -> bool {
        let rest = self.path.strip_suffix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            && (!self.custom || self.path.starts_with("metadata."))
    }

    fn list(&self) -> Option<&'static List> {
        let own = OF_ONE_KIND.iter().filter(|(resource, list)| *resource == self.resource && self.path == list.place);
        let own = own.map(|(_, list)| list).next();
        own.or_else(|| LISTS.iter().find(|list| self.ends_with(list.place)))
    }

    pub(super) fn applied(&self) -> Same {
        self.list().map_or(Same::Never, |list| list.applied)
    }

    /// Of several keys, the first alone counts.
    pub(super) fn strategic(&self) -> Same {
        self.list().map_or(Same::Never, |list| list.strategic)
    }

    /// Whether strategic merge takes a map as one value.
    pub(super) fn is_replaced(&self) -> bool {
        self.resource == "poddisruptionbudgets.policy" && self.path == "spec.selector"
    }

    pub(super) fn is_whole(&self) -> bool {
        WHOLE_MAPS.iter().any(|place| self.ends_with(place))
    }

    pub(super) fn has_whole_items(&self) -> bool {
        WHOLE_ITEMS.iter().any(|place| self.ends_with(place))
    }
}

/// A key of an item; some have a default.
pub(super) fn key(item: &Value, name: &str) -> Value {
    match item.get(name) {
        Some(value) => value.clone(),
        None if name == "protocol" => Value::from("TCP"),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(resource: &'a str, path: &[&str]) -> Place<'a> {
        path.iter().fold(Place::root(resource, resource == "lamps.example.org"), |place, field| place.field(field))
    }

    #[test]
    fn templates_merge_as_pods_do() {
        for (resource, path) in [("pods", &["spec"][..]), ("deployments.apps", &["spec", "template", "spec"])] {
            let containers = place(resource, path).field("containers");
            assert_eq!(containers.strategic(), Same::Keys(NAME));
            assert_eq!(containers.field("ports").applied(), Same::Keys(&["containerPort", "protocol"]));
            assert!(!containers.is_whole() && place(resource, path).field("nodeSelector").is_whole());
        }
    }

    #[test]
    fn same_name_in_another_kind_is_another_list() {
        assert_eq!(place("services", &["spec", "ports"]).strategic(), Same::Keys(&["port", "protocol"]));
        assert_eq!(place("networkpolicies.networking.k8s.io", &["spec", "ingress", "ports"]).strategic(), Same::Never);
        assert_eq!(place("jobs.batch", &["status", "conditions"]).applied(), Same::Never);
        assert_eq!(place("pods", &["status", "conditions"]).applied(), Same::Keys(&["type"]));
        assert_eq!(place("lamps.example.org", &["spec", "containers"]).applied(), Same::Never);
        assert_eq!(place("lamps.example.org", &["metadata", "finalizers"]).applied(), Same::Value);
    }
}
