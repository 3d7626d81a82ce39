//! Classes, claims and volumes.

use serde_json::{Value, json};

use super::{Making, causes::Causes, fill, quantities, words};
use crate::{status_error::StatusError, store::text};

const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RESIZE: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];
const NOT_RESIZABLE: &str =
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";

pub(super) fn class(object: &mut Value) {
    fill(object, "reclaimPolicy", json!("Delete"));
    fill(object, "volumeBindingMode", json!("Immediate"));
}

pub(super) fn check_class(object: &Value, causes: &mut Causes) {
    match text(object, "/provisioner") {
        "" => causes.required("provisioner", ""),
        name => {
            let lower = name.to_lowercase();
            causes.all("provisioner", name, &words::qualified(&lower));
        }
    }
    if object["parameters"].as_object().is_some_and(|map| map.contains_key("")) {
        causes.invalid("parameters", &json!(""), "field can not be empty.");
    }
    causes.one_of("reclaimPolicy", object.get("reclaimPolicy"), &["Delete", "Retain"]);
    causes.one_of("volumeBindingMode", object.get("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
}

pub(super) fn check_class_change(old: &Value, new: &Value, causes: &mut Causes) {
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        causes.immutable(field, old.get(field), new.get(field));
    }
}

pub(super) fn claim(object: &mut Value, making: &Making<'_>) {
    let given = object.get("spec").and_then(|spec| spec.get("storageClassName")).is_some();
    if let Some(default) = default_class(making).filter(|_| !given) {
        object["spec"]["storageClassName"] = json!(default);
    }
    add_finalizer(object, "kubernetes.io/pvc-protection");
    fill(&mut object["spec"], "volumeMode", json!("Filesystem"));
    tidy_source(&mut object["spec"]);
    object["status"] = json!({"phase": "Pending"});
}

/// The newest of those that say they are, by name where that does not tell.
fn default_class(making: &Making<'_>) -> Option<String> {
    let mut classes = (making.view)("storageclasses.storage.k8s.io");
    classes.retain(|class| class["metadata"]["annotations"][IS_DEFAULT] == "true");
    let made = |class: &Value| text(class, "/metadata/creationTimestamp").to_owned();
    let name = |class: &Value| text(class, "/metadata/name").to_owned();
    classes.sort_by(|one, other| made(other).cmp(&made(one)).then(name(one).cmp(&name(other))));
    classes.first().map(|class| name(class))
}

/// Where a claim's content comes from is said twice, in an old field and in a new one.
fn tidy_source(spec: &mut Value) {
    let Some(mut source) = spec.get("dataSource").filter(|source| !source.is_null()).cloned() else { return };
    let kind = (text(&source, "/apiGroup").to_owned(), text(&source, "/kind").to_owned());
    let known = [("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot")];
    if !known.contains(&(kind.0.as_str(), kind.1.as_str())) {
        spec.as_object_mut().map(|spec| spec.remove("dataSource"));
        return;
    }
    if source.get("apiGroup").is_none() {
        source["apiGroup"] = Value::Null;
    }
    fill(spec, "dataSourceRef", source.clone());
    spec["dataSource"] = source;
}

pub(super) fn check_claim(object: &Value, causes: &mut Causes) {
    let spec = &object["spec"];
    check_access("at least 1 access mode is required", spec, causes);
    match spec.pointer("/resources/requests/storage").and_then(Value::as_str) {
        None => causes.required("spec.resources[storage]", ""),
        Some(size) if quantities::is_zero_or_less(size) => {
            causes.invalid("spec.resources[storage]", &json!(size), "must be greater than zero");
        }
        Some(_) => {}
    }
    let class = text(spec, "/storageClassName");
    if !class.is_empty() {
        causes.all("spec.storageClassName", class, &words::subdomain(class));
    }
    causes.one_of("spec.volumeMode", spec.get("volumeMode"), &VOLUME_MODES);
}

fn check_access(missing: &str, spec: &Value, causes: &mut Causes) {
    let modes: Vec<&Value> = spec["accessModes"].as_array().into_iter().flatten().collect();
    if modes.is_empty() {
        causes.required("spec.accessModes", missing);
    }
    for mode in &modes {
        causes.one_of("spec.accessModes", Some(mode), &ACCESS_MODES);
    }
    if modes.len() > 1 && modes.iter().any(|mode| *mode == "ReadWriteOncePod") {
        causes.forbidden("spec.accessModes", "may not use ReadWriteOncePod with other access modes");
    }
}

/// What bound claims may still change, and what they may be changed to.
pub(super) fn check_claim_change(old: &Value, new: &Value, causes: &mut Causes) {
    let size = |object: &Value| object.pointer("/spec/resources/requests/storage").cloned().unwrap_or_default();
    let bound = old["status"]["phase"] == "Bound";
    let mut allowed = new["spec"].clone();
    if text(old, "/spec/volumeName").is_empty() {
        allowed["volumeName"] = old["spec"]["volumeName"].clone();
    }
    if bound {
        allowed["resources"]["requests"]["storage"] = size(old);
        allowed["volumeAttributesClassName"] = old["spec"]["volumeAttributesClassName"].clone();
    }
    let mut before = old["spec"].clone();
    for spec in [&mut allowed, &mut before] {
        spec.as_object_mut().into_iter().for_each(|spec| spec.retain(|_, value| !value.is_null()));
    }
    let nanos = |value: &Value| value.as_str().and_then(quantities::nanos).unwrap_or(0);
    let capacity = nanos(&old["status"]["capacity"]["storage"]);
    if allowed != before {
        let detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for \
            bound claims";
        causes.forbidden("spec", detail);
    } else if nanos(&size(new)) < nanos(&size(old)) && nanos(&size(new)) <= capacity {
        causes.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
    }
    causes.immutable("volumeMode", old["spec"].get("volumeMode"), new["spec"].get("volumeMode"));
}

pub(super) fn check_claim_status(new: &Value, causes: &mut Causes) {
    let statuses = new.pointer("/status/allocatedResourceStatuses").and_then(Value::as_object);
    for (resource, status) in statuses.into_iter().flatten() {
        if !RESIZE.iter().any(|one| status == one) {
            causes.unsupported("status.allocatedResourceStatuses", &json!(resource), &RESIZE);
        }
    }
}

/// Only a class that says so lets its claims grow.
pub(super) fn admit_growth(old: &Value, new: &Value, making: &Making<'_>) -> Result<(), StatusError> {
    let size = |object: &Value| quantities::nanos(text(object, "/spec/resources/requests/storage")).unwrap_or(0);
    if size(new) <= size(old) || old["status"]["phase"] != "Bound" {
        return Ok(());
    }
    let wanted = text(old, "/spec/storageClassName");
    let classes = (making.view)("storageclasses.storage.k8s.io");
    let class = classes.iter().find(|class| !wanted.is_empty() && text(class, "/metadata/name") == wanted);
    if class.is_some_and(|class| class["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    Err(StatusError::forbidden("persistentvolumeclaims", text(new, "/metadata/name"), NOT_RESIZABLE))
}

pub(super) fn volume(object: &mut Value, making: &Making<'_>) {
    add_finalizer(object, "kubernetes.io/pv-protection");
    fill(&mut object["spec"], "volumeMode", json!("Filesystem"));
    fill(&mut object["spec"], "persistentVolumeReclaimPolicy", json!("Retain"));
    if object["spec"]["hostPath"].is_object() {
        fill(&mut object["spec"]["hostPath"], "type", json!(""));
    }
    object["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": making.now});
}

const SOURCES: [&str; 8] = ["hostPath", "nfs", "local", "csi", "iscsi", "fc", "cephfs", "rbd"];

pub(super) fn check_volume(object: &Value, causes: &mut Causes) {
    let spec = &object["spec"];
    check_access("", spec, causes);
    match spec.pointer("/capacity/storage").and_then(Value::as_str) {
        None => {
            causes.required("spec.capacity", "");
            causes.unsupported("spec.capacity", &json!({}), &["storage"]);
        }
        Some(size) if quantities::is_zero_or_less(size) => {
            causes.invalid("spec.capacity[storage]", &json!(size), "must be greater than zero");
        }
        Some(_) => {}
    }
    let policies = ["Delete", "Recycle", "Retain"];
    causes.one_of("spec.persistentVolumeReclaimPolicy", spec.get("persistentVolumeReclaimPolicy"), &policies);
    let mut sources = SOURCES.iter().filter(|source| spec[**source].is_object());
    if sources.next().is_none() {
        causes.required("spec", "must specify a volume type");
    }
    sources.for_each(|extra| causes.forbidden(&format!("spec.{extra}"), "may not specify more than 1 volume type"));
    if spec["csi"].is_object() {
        for field in ["driver", "volumeHandle"] {
            if text(&spec["csi"], &format!("/{field}")).is_empty() {
                causes.required(&format!("spec.csi.{field}"), "");
            }
        }
    }
    causes.one_of("spec.volumeMode", spec.get("volumeMode"), &VOLUME_MODES);
}

pub(super) fn check_volume_change(old: &Value, new: &Value, causes: &mut Causes) {
    let (old, new) = (&old["spec"], &new["spec"]);
    if SOURCES.iter().any(|source| old.get(source) != new.get(source)) {
        let detail = "spec.persistentvolumesource is immutable after creation";
        causes.forbidden("spec.persistentvolumesource", detail);
    }
    causes.immutable("volumeMode", old.get("volumeMode"), new.get("volumeMode"));
    if old["nodeAffinity"].is_object() && old["nodeAffinity"] != new["nodeAffinity"] {
        let detail = "field is immutable, except for updating from beta label to GA";
        causes.invalid("nodeAffinity", &in_go(&new["nodeAffinity"]), detail);
    }
}

/// As the real server's own types print: fields begin with capital letters, and none is left out.
pub(super) fn in_go(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let name = |key: &str| {
                let mut letters = key.chars();
                let first = letters.next().map(|first| first.to_ascii_uppercase());
                first.into_iter().chain(letters).collect::<String>()
            };
            let mut named: serde_json::Map<String, Value> =
                fields.iter().map(|(key, value)| (name(key), in_go(value))).collect();
            if named.contains_key("MatchExpressions") {
                named.entry("MatchFields").or_insert(Value::Null);
            }
            Value::Object(named)
        }
        Value::Array(values) => values.iter().map(in_go).collect(),
        other => other.clone(),
    }
}

/// A status that says when the phase changed says so itself.
pub(super) fn note_phase(old: &Value, new: &mut Value, now: &str) {
    if old["status"]["phase"] != new["status"]["phase"] {
        new["status"]["lastPhaseTransitionTime"] = json!(now);
    }
}

pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let list = &mut object["metadata"]["finalizers"];
    match list.as_array_mut() {
        Some(there) if there.iter().any(|one| one == finalizer) => {}
        Some(there) => there.push(json!(finalizer)),
        None => *list = json!([finalizer]),
    }
}
