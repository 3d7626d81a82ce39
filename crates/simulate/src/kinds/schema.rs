//! Objects of kinds that were defined at run time, held against the schema of their definition: fields it does not know
//! are dropped, what it has a default for is filled in, and what does not fit is refused.

use serde_json::{Map, Value, json};

use super::causes::Causes;
use crate::{resources::Kind, store::text};

fn schema_of<'a>(kind: &'a Kind, object: &Value) -> Option<&'a Value> {
    let version = text(object, "/apiVersion").rsplit('/').next().unwrap_or_default();
    kind.schemas.iter().find(|(name, _)| name == version).map(|(_, schema)| schema)
}

/// Drops what is not known, tells what that was, and fills in what has a default.
pub(super) fn complete(kind: &Kind, object: &mut Value, unknown: &mut Vec<String>) {
    if let Some(schema) = schema_of(kind, object) {
        let fixed = ["apiVersion", "kind", "metadata"];
        prune(schema, object, "", unknown, &fixed);
        fill_in(schema, object);
    }
}

fn is_open(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true || schema["x-kubernetes-embedded-resource"] == true
}

fn below(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn prune(schema: &Value, value: &mut Value, path: &str, unknown: &mut Vec<String>, fixed: &[&str]) {
    match value {
        Value::Object(fields) => {
            let known = schema["properties"].as_object();
            let others = schema.get("additionalProperties");
            if others.is_none() && !is_open(schema) {
                let fits = |key: &str| fixed.contains(&key) || known.is_some_and(|known| known.contains_key(key));
                unknown.extend(fields.keys().filter(|key| !fits(key)).map(|key| below(path, key)));
                fields.retain(|key, _| fits(key));
            }
            for (key, value) in fields {
                let inner = known.and_then(|known| known.get(key)).or(others);
                let inner = inner.filter(|_| !fixed.contains(&key.as_str()));
                if let Some(inner) = inner {
                    prune(inner, value, &below(path, key), unknown, &[]);
                }
            }
        }
        Value::Array(values) => {
            for (index, value) in values.iter_mut().enumerate() {
                prune(&schema["items"], value, &format!("{path}[{index}]"), unknown, &[]);
            }
        }
        _ => {}
    }
}

fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
                // Null means "not there", but where the schema says that it may be.
                if inner["nullable"] != true && fields.get(key).is_some_and(Value::is_null) {
                    fields.remove(key);
                }
                if let Some(default) = inner.get("default") {
                    fields.entry(key.clone()).or_insert_with(|| default.clone());
                }
                fields.get_mut(key).into_iter().for_each(|value| fill_in(inner, value));
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| fill_in(&schema["items"], value)),
        _ => {}
    }
}

pub(super) fn check(kind: &Kind, object: &Value, causes: &mut Causes) {
    if let Some(schema) = schema_of(kind, object) {
        check_value(schema, object, "", causes);
    }
}

fn check_value(schema: &Value, value: &Value, path: &str, causes: &mut Causes) {
    let wanted = schema["type"].as_str().unwrap_or_default();
    let given = type_of(value);
    let mixed = schema["x-kubernetes-int-or-string"] == true;
    let fits = wanted.is_empty() || mixed || wanted == given || (wanted == "number" && given == "integer");
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    if !fits {
        causes.wrong_type(path, given, wanted);
        return;
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        causes.unsupported(path, value, &allowed);
    }
    check_size(schema, value, path, causes);
    match value {
        Value::Object(fields) => check_fields(schema, fields, path, causes),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                check_value(&schema["items"], value, &format!("{path}[{index}]"), causes);
            }
        }
        _ => {}
    }
}

fn check_fields(schema: &Value, fields: &Map<String, Value>, path: &str, causes: &mut Causes) {
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(key) {
            causes.required(&below(path, key), "");
        }
    }
    for (key, value) in fields {
        let inner = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
        let own = path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&key.as_str());
        inner.filter(|_| !own).into_iter().for_each(|inner| check_value(inner, value, &below(path, key), causes));
    }
}

fn check_size(schema: &Value, value: &Value, path: &str, causes: &mut Causes) {
    let mut wrong = |detail: &str| causes.invalid(path, value, &format!("{path} in body {detail}"));
    if let (Some(least), Some(text)) = (schema["minLength"].as_u64(), value.as_str())
        && (text.chars().count() as u64) < least
    {
        wrong(&format!("should be at least {least} chars long"));
    }
    if let (Some(least), Some(number)) = (schema["minimum"].as_f64(), value.as_f64())
        && number < least
    {
        wrong(&format!("should be greater than or equal to {least}"));
    }
    if let (Some(most), Some(number)) = (schema["maximum"].as_f64(), value.as_f64())
        && number > most
    {
        wrong(&format!("should be less than or equal to {most}"));
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A definition is named after what it defines.
pub(super) fn check_definition(object: &Value, causes: &mut Causes) {
    let name = text(object, "/metadata/name");
    let expected = format!("{}.{}", text(object, "/spec/names/plural"), text(object, "/spec/group"));
    if name != expected {
        causes.invalid("metadata.name", &json!(name), "must be spec.names.plural+\".\"+spec.group");
    }
}

pub(super) fn definition(object: &mut Value) {
    let spec = &mut object["spec"];
    super::fill(spec, "conversion", json!({"strategy": "None"}));
    let kind = text(spec, "/names/kind").to_owned();
    super::fill(&mut spec["names"], "listKind", json!(format!("{kind}List")));
    super::fill(&mut spec["names"], "singular", json!(kind.to_lowercase()));
}

/// What the server has yet to find out about a new definition.
pub(super) fn new_definition(object: &mut Value) {
    let stored = object["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> =
        stored.filter(|version| version["storage"] == true).map(|version| version["name"].clone()).collect();
    object["status"] =
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored});
}
