//! What every object has: name, labels, annotations, finalizers, owners.

use serde_json::{Value, json};

use super::{causes::Causes, words};
use crate::store::text;

fn name_rule(resource: &str) -> fn(&str) -> Vec<String> {
    match resource {
        "namespaces" | "services" => words::label,
        resource if resource.ends_with(".rbac.authorization.k8s.io") => words::path_segment,
        _ => words::subdomain,
    }
}

pub(super) fn check(resource: &str, object: &Value, causes: &mut Causes) {
    let rule = name_rule(resource);
    let (name, prefix) = (text(object, "/metadata/name"), text(object, "/metadata/generateName"));
    if !prefix.is_empty() {
        causes.all("metadata.generateName", prefix, &rule(prefix.trim_end_matches('-')));
    }
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else if resource == "namespaces" && name.contains('.') {
        causes.invalid("metadata.name", &json!(name), "must not contain dots");
    } else {
        causes.all("metadata.name", name, &rule(name));
    }
    check_lists(object, causes);
}

fn check_lists(object: &Value, causes: &mut Causes) {
    let metadata = &object["metadata"];
    labels("metadata.labels", &metadata["labels"], causes);
    for key in metadata["annotations"].as_object().into_iter().flat_map(|map| map.keys()) {
        causes.all("metadata.annotations", key, &words::qualified(&key.to_lowercase()));
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().unwrap_or_default().is_empty() {
                causes.invalid(&format!("metadata.ownerReferences.{field}"), &json!(""), detail);
            }
        }
    }
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (index, finalizer) in finalizers.enumerate() {
        causes.all("metadata.finalizers", finalizer, &words::qualified(finalizer));
        if !finalizer.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.invalid(&format!("metadata.finalizers[{index}]"), &json!(finalizer), detail);
        }
    }
}

pub(super) fn labels(field: &str, labels: &Value, causes: &mut Causes) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        causes.all(field, key, &words::qualified(key));
        let value = value.as_str().unwrap_or_default();
        causes.all(field, value, &words::label_value(value));
    }
}
