//! What every object has: name, labels, annotations, finalizers, owners.

use serde_json::{Value, json};

use super::{causes::Causes, words};
use crate::simulate::store::text;

fn name_rule(resource: &str) -> fn(&str) -> Vec<String> {
    match resource {
        "namespaces" | "services" => words::label,
        resource if resource.ends_with(".rbac.authorization.k8s.io") => words::path_segment,
        _ => words::subdomain,
    }
}

pub fn check(resource: &str, object: &Value, causes: &mut Causes) {
    let rule = name_rule(resource);
    let (name, prefix) = (text(object, "/metadata/name"), text(object, "/metadata/generateName"));
    if !prefix.is_empty() {
        let problems = rule(prefix.trim_end_matches('-'));
        problems.iter().for_each(|problem| causes.invalid("metadata.generateName", &json!(prefix), problem));
    }
    if name.is_empty() {
        causes.required("metadata.name", "name or generateName is required");
    } else if resource == "namespaces" && name.contains('.') {
        causes.invalid("metadata.name", &json!(name), "must not contain dots");
    } else {
        rule(name).iter().for_each(|problem| causes.invalid("metadata.name", &json!(name), problem));
    }
    check_lists(object, causes);
}

fn check_lists(object: &Value, causes: &mut Causes) {
    let metadata = &object["metadata"];
    labels("metadata.labels", &metadata["labels"], causes);
    for key in metadata["annotations"].as_object().into_iter().flat_map(|map| map.keys()) {
        let problems = words::qualified(&key.to_lowercase());
        problems.iter().for_each(|problem| causes.invalid("metadata.annotations", &json!(key), problem));
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
        let problems = words::qualified(finalizer);
        problems.iter().for_each(|problem| causes.invalid("metadata.finalizers", &json!(finalizer), problem));
        if !finalizer.contains('/') && !["orphan", "foregroundDeletion", "kubernetes"].contains(&finalizer) {
            let detail = "name is neither a standard finalizer name nor is it fully qualified";
            causes.invalid(&format!("metadata.finalizers[{index}]"), &json!(finalizer), detail);
        }
    }
}

pub fn labels(field: &str, labels: &Value, causes: &mut Causes) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        words::qualified(key).iter().for_each(|problem| causes.invalid(field, &json!(key), problem));
        let value = value.as_str().unwrap_or_default();
        words::label_value(value).iter().for_each(|problem| causes.invalid(field, &json!(value), problem));
    }
}
