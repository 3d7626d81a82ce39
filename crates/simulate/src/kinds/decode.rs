//! From a body to what the API's types keep of it: types that must fit, quantities in their one form, no empty leftovers,
//! no unknown fields.

use serde_json::{Map, Value, json};

use super::{plain::base64_error, quantities, schema, types};
use crate::resources::Kind;

/// What was noticed besides.
#[derive(Debug, Default)]
pub struct Noticed {
    pub unknown: Vec<String>,
    pub warnings: Vec<String>,
}

/// Says what cannot be read, in the words of the decoder.
pub fn decode(kind: &Kind, object: &mut Value) -> Result<Noticed, String> {
    let resource = kind.resource();
    types(kind, &resource, object)?;
    let mut noticed = Noticed { unknown: unknown(kind, object), warnings: Vec::new() };
    if kind.custom {
        schema::complete(kind, object, &mut noticed.unknown);
        tidy_metadata(object);
        return Ok(noticed);
    }
    tidy(object);
    amounts(&resource, object)?;
    fractions(&resource, object, &mut noticed.warnings);
    fill_conditions(&resource, object);
    Ok(noticed)
}

fn types(kind: &Kind, resource: &str, object: &Value) -> Result<(), String> {
    if let Some(mismatch) = types::mismatch(resource, object) {
        return Err(mismatch.as_decoded(&kind.kind));
    }
    if resource == "secrets" {
        for value in object["data"].as_object().into_iter().flat_map(Map::values).filter_map(Value::as_str) {
            if let Some(place) = base64_error(value) {
                return Err(format!("illegal base64 data at input byte {place}"));
            }
        }
    }
    if resource == "leases.coordination.k8s.io" {
        ["acquireTime", "renewTime"].iter().try_for_each(|field| fine_time(&object["spec"][*field]))?;
    }
    Ok(())
}

/// Times of leases have six digits after the second.
fn fine_time(time: &Value) -> Result<(), String> {
    let Some(text) = time.as_str() else { return Ok(()) };
    let rest = text.get(19..).unwrap_or_default();
    if rest.len() >= 8 && rest.starts_with('.') {
        return Ok(());
    }
    Err(format!(
        "parsing time \"{text}\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"{rest}\" as \".000000\""
    ))
}

const METADATA: [&str; 15] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// The fields of a kind besides kind, version and metadata; of those that are not listed, all are let through.
fn fields(resource: &str) -> Option<&'static [&'static str]> {
    Some(match resource {
        "configmaps" => &["data", "binaryData", "immutable"],
        "secrets" => &["data", "stringData", "type", "immutable"],
        "serviceaccounts" => &["secrets", "imagePullSecrets", "automountServiceAccountToken"],
        "storageclasses.storage.k8s.io" => &[
            "provisioner",
            "parameters",
            "reclaimPolicy",
            "mountOptions",
            "allowVolumeExpansion",
            "volumeBindingMode",
            "allowedTopologies",
        ],
        "namespaces"
        | "nodes"
        | "persistentvolumeclaims"
        | "persistentvolumes"
        | "pods"
        | "resourcequotas"
        | "deployments.apps"
        | "replicasets.apps"
        | "statefulsets.apps"
        | "daemonsets.apps" => &["spec", "status"],
        _ => return None,
    })
}

/// What is wrong with the body of an apply, which has a reader of its own.
pub fn unappliable(kind: &Kind, body: &Value) -> Option<String> {
    let resource = kind.resource();
    let mut read = body.clone();
    let missing = || unknown(kind, &mut read).first().map(|field| format!(".{field}: field not declared in schema"));
    types::mismatch(&resource, body).map(|mismatch| mismatch.as_applied()).or_else(missing)
}

/// Takes out what the kind does not have, and says what that was.
fn unknown(kind: &Kind, object: &mut Value) -> Vec<String> {
    let mut found = Vec::new();
    if let (Some(known), Some(all)) = (fields(&kind.resource()), object.as_object_mut()) {
        let fits = |key: &str| ["apiVersion", "kind", "metadata"].contains(&key) || known.contains(&key);
        found.extend(all.keys().filter(|key| !fits(key)).cloned());
        all.retain(|key, _| fits(key));
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let odd = metadata.keys().filter(|key| !METADATA.contains(&key.as_str()));
        found.extend(odd.map(|key| format!("metadata.{key}")));
        metadata.retain(|key, _| METADATA.contains(&key.as_str()) && key != "selfLink");
    }
    found
}

/// Null is kept where the API's types have no way to leave a field out.
const KEPT_NULLS: [&str; 12] = [
    "topologyKeys",
    "drivers",
    "lastProbeTime",
    "lastTransitionTime",
    "lastHeartbeatTime",
    "apiGroup",
    "eventTime",
    "firstTimestamp",
    "lastTimestamp",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "rules",
];
/// Lists and maps that are left out when there is nothing in them.
const LEFT_OUT: [&str; 38] = [
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "data",
    "binaryData",
    "stringData",
    "parameters",
    "mountOptions",
    "requests",
    "limits",
    "nodeSelector",
    "tolerations",
    "volumes",
    "env",
    "envFrom",
    "volumeMounts",
    "command",
    "args",
    "imagePullSecrets",
    "accessModes",
    "capacity",
    "conditions",
    "secrets",
    "subjects",
    "taints",
    "allowedTopologies",
    "matchLabels",
    "matchExpressions",
    "initContainers",
    "hard",
    "used",
    "volumeAttributes",
    "containerStatuses",
    "ports",
    "items",
    "managedFields",
    "addresses",
];
const LEFT_OUT_TEXTS: [&str; 4] = ["volumeName", "generateName", "nodeName", "namespace"];

fn tidy(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(tidy);
            fields.retain(|key, value| match value {
                Value::Null => KEPT_NULLS.contains(&key.as_str()),
                Value::Object(inner) => !inner.is_empty() || !LEFT_OUT.contains(&key.as_str()),
                Value::Array(inner) => !inner.is_empty() || !LEFT_OUT.contains(&key.as_str()),
                Value::String(text) => !text.is_empty() || !LEFT_OUT_TEXTS.contains(&key.as_str()),
                _ => true,
            });
        }
        Value::Array(values) => values.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn tidy_metadata(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata") {
        tidy(metadata);
    }
}

fn amounts(resource: &str, object: &mut Value) -> Result<(), String> {
    let places: &[&str] = match resource {
        "persistentvolumeclaims" => {
            &["/spec/resources/requests", "/spec/resources/limits", "/status/capacity", "/status/allocatedResources"]
        }
        "persistentvolumes" => &["/spec/capacity"],
        "resourcequotas" => &["/spec/hard", "/status/hard", "/status/used"],
        "nodes" => &["/status/capacity", "/status/allocatable"],
        _ => &[],
    };
    for place in places {
        object.pointer_mut(place).map_or(Ok(()), quantities::tidy)?;
    }
    for list in ["initContainers", "containers"] {
        for spec in ["/spec", "/spec/template/spec"] {
            let containers = object.pointer_mut(&format!("{spec}/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                for part in ["/resources/requests", "/resources/limits"] {
                    container.pointer_mut(part).map_or(Ok(()), quantities::tidy)?;
                }
            }
        }
    }
    if resource == "csistoragecapacities.storage.k8s.io"
        && let Some(capacity) = object["capacity"].as_str()
    {
        object["capacity"] = json!(quantities::canonical(capacity).ok_or(quantities::WRONG)?);
    }
    Ok(())
}

fn fractions(resource: &str, object: &Value, warnings: &mut Vec<String>) {
    let place = match resource {
        "persistentvolumeclaims" => "/spec/resources/requests/storage",
        "persistentvolumes" => "/spec/capacity/storage",
        _ => return,
    };
    let size = object.pointer(place).and_then(Value::as_str).unwrap_or_default();
    if size.ends_with(['m', 'u', 'n']) {
        let field = if resource == "persistentvolumeclaims" { "spec.resources.requests" } else { "spec.capacity" };
        warnings.push(format!("{field}[storage]: fractional byte value \"{size}\" is invalid, must be an integer"));
    }
}

fn fill_conditions(resource: &str, object: &mut Value) {
    let times: &[&str] = match resource {
        "pods" | "persistentvolumeclaims" => &["lastProbeTime", "lastTransitionTime"],
        "namespaces" => &["lastTransitionTime"],
        "deployments.apps" => &["lastUpdateTime", "lastTransitionTime"],
        _ => &[],
    };
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        for time in times {
            super::fill(condition, time, Value::Null);
        }
    }
}
