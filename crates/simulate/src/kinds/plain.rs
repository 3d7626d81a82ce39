//! The kinds about which there is little to say.

use serde_json::{Value, json};

use super::{causes::Causes, fill};
use crate::{decoder, store::text};

pub(super) fn namespace(object: &mut Value) {
    object["metadata"]["labels"]["kubernetes.io/metadata.name"] = object["metadata"]["name"].clone();
    let mut finalizers = object["spec"]["finalizers"].as_array().cloned().unwrap_or_default();
    if !finalizers.iter().any(|one| one == "kubernetes") {
        finalizers.push(json!("kubernetes"));
    }
    object["spec"]["finalizers"] = json!(finalizers);
    object["status"] = json!({"phase": "Active"});
}

/// Only the end of a namespace takes away from its finalizers.
pub(super) fn namespace_change(old: &Value, new: &mut Value) {
    new["metadata"]["labels"]["kubernetes.io/metadata.name"] = old["metadata"]["name"].clone();
    new["spec"] = old["spec"].clone();
}

pub(super) fn check_data_change(old: &Value, new: &Value, causes: &mut Causes) {
    if old.get("immutable") != Some(&json!(true)) {
        return;
    }
    if new.get("immutable") != Some(&json!(true)) {
        causes.forbidden("immutable", "field is immutable when `immutable` is set");
    }
    for field in ["data", "binaryData"] {
        if old.get(field) != new.get(field) {
            causes.forbidden(field, "field is immutable when `immutable` is set");
        }
    }
}

pub(super) fn check_data(object: &Value, causes: &mut Causes) {
    for key in object["data"].as_object().into_iter().flat_map(|data| data.keys()) {
        let valid =
            !key.is_empty() && key.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_.".contains(letter));
        if !valid {
            let detail = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
            causes.invalid(&format!("data[{key}]"), &json!(key), detail);
        }
    }
}

/// Texts are stored as data.
pub(super) fn secret(object: &mut Value) {
    let texts = object.as_object_mut().and_then(|fields| fields.remove("stringData"));
    for (key, value) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
        object["data"][key] = json!(decoder::base64(value.as_str().unwrap_or_default().as_bytes(), decoder::STANDARD));
    }
    fill(object, "type", json!("Opaque"));
}

pub(super) fn check_secret(object: &Value, causes: &mut Causes) {
    let keys: &[&str] = match text(object, "/type") {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        _ => &[],
    };
    for key in keys.iter().filter(|key| object["data"].get(**key).is_none()) {
        causes.required(&format!("data[{key}]"), "");
    }
}

/// Where base64 breaks, if it does.
pub(super) fn base64_error(text: &str) -> Option<usize> {
    let letters = text.trim_end_matches('=');
    let valid = |letter: char| letter.is_ascii_alphanumeric() || letter == '+' || letter == '/';
    letters.find(|letter| !valid(letter)).or_else(|| (!text.len().is_multiple_of(4)).then_some(text.len()))
}

pub(super) fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    fill(spec, "type", json!("ClusterIP"));
    fill(spec, "sessionAffinity", json!("None"));
    fill(spec, "internalTrafficPolicy", json!("Cluster"));
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", json!("SingleStack"));
    if let Some(address) = spec.get("clusterIP").cloned() {
        fill(spec, "clusterIPs", json!([address]));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    }
    fill(object, "status", json!({"loadBalancer": {}}));
}

pub(super) fn node(object: &mut Value) {
    let ready = json!({"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"});
    let taints = &mut object["spec"]["taints"];
    match taints.as_array_mut() {
        Some(list) if list.iter().any(|taint| taint["key"] == ready["key"]) => {}
        Some(list) => list.push(ready),
        None => *taints = json!([ready]),
    }
    node_status(object);
}

pub(super) fn node_status(object: &mut Value) {
    if let Some(range) = object["spec"].get("podCIDR").cloned() {
        fill(&mut object["spec"], "podCIDRs", json!([range]));
    }
    let status = &mut object["status"];
    if let Some(capacity) = status.get("capacity").cloned() {
        fill(status, "allocatable", capacity);
    }
    fill(status, "daemonEndpoints", json!({"kubeletEndpoint": {"Port": 0}}));
    for field in [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ] {
        fill(&mut status["nodeInfo"], field, json!(""));
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(condition, "lastHeartbeatTime", Value::Null);
        fill(condition, "lastTransitionTime", Value::Null);
    }
}

pub(super) fn event(object: &mut Value) {
    for field in ["reportingComponent", "reportingInstance"] {
        fill(object, field, json!(""));
    }
    for field in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        fill(object, field, Value::Null);
    }
    fill(object, "source", json!({}));
}

pub(super) fn check_event(object: &Value, causes: &mut Causes) {
    let (own, about) = (text(object, "/metadata/namespace"), text(object, "/involvedObject/namespace"));
    let fits = own == about || (about.is_empty() && own == "default");
    if !fits {
        let detail = "does not match event.namespace";
        causes.invalid("involvedObject.namespace", &json!(about), detail);
    }
    let kind = text(object, "/type");
    if !object["eventTime"].is_null() && !["Normal", "Warning"].contains(&kind) {
        causes.invalid("type", &json!(""), &format!("has invalid value: {kind}"));
    }
}

pub(super) fn check_lease(object: &Value, causes: &mut Causes) {
    let seconds = &object["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        causes.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0");
    }
}

/// Users and groups are of a group of their own, accounts of the core.
pub(super) fn binding(object: &mut Value) {
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if ["User", "Group"].contains(&text(subject, "/kind")) {
            fill(subject, "apiGroup", json!("rbac.authorization.k8s.io"));
        }
    }
}

pub(super) fn check_binding_change(old: &Value, new: &Value, causes: &mut Causes) {
    if old["roleRef"] != new["roleRef"] {
        let role = &new["roleRef"];
        let told = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        causes.invalid("roleRef", &told, "cannot change roleRef");
    }
}

const COUNTED: [&str; 14] = [
    "configmaps",
    "limits.cpu",
    "limits.memory",
    "memory",
    "cpu",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
];

pub(super) fn check_quota(object: &Value, causes: &mut Causes) {
    for name in object["spec"]["hard"].as_object().into_iter().flat_map(|hard| hard.keys()) {
        if !name.contains('/') && !COUNTED.contains(&name.as_str()) && !name.starts_with("services.") {
            let field = format!("spec.hard[{name}]");
            causes.invalid(&field, &json!(name), "must be a standard resource type or fully qualified");
            causes.invalid(&field, &json!(name), "must be a standard resource for quota");
        }
    }
}
