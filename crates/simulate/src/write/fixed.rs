//! What a client cannot change by writing.

use serde_json::{Value, json};

use super::is_terminating;
use crate::{call::Call, faults::Verb, kinds, status_error::StatusError, store::text};

/// What belongs to the server is as it was, whatever a client sends.
pub(super) fn keep_system_fields(call: &Call, live: &Value, object: &mut Value) -> Result<(), StatusError> {
    let uid = text(object, "/metadata/uid");
    let other = !uid.is_empty() && uid != text(live, "/metadata/uid");
    if other && call.verb == Verb::Patch {
        let mut causes = kinds::Causes::default();
        causes.invalid("metadata.uid", &json!(uid), "field is immutable");
        return causes.into_result(&call.kind.qualified(), &call.name);
    }
    if other {
        let place: Vec<&str> = [&call.kind.plural, &call.namespace, &call.name]
            .into_iter()
            .map(String::as_str)
            .filter(|part| !part.is_empty())
            .collect();
        let problem = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}, ResourceVersion: 0, AdditionalErrorMsg: \
            Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            place.join("/"),
            text(live, "/metadata/uid")
        );
        return Err(StatusError::conflict(&call.resource, &call.name, &problem));
    }
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "resourceVersion",
        "generateName",
    ] {
        match live["metadata"].get(field) {
            Some(value) => object["metadata"][field] = value.clone(),
            None => drop(object["metadata"].as_object_mut().map(|metadata| metadata.remove(field))),
        }
    }
    for field in ["kind", "apiVersion"] {
        object[field] = live[field].clone();
    }
    Ok(())
}

pub(super) fn no_new_finalizers(call: &Call, live: &Value, object: &Value) -> Result<(), StatusError> {
    if !is_terminating(live) {
        return Ok(());
    }
    let list = |object: &Value| -> Vec<String> {
        let listed = object.pointer("/metadata/finalizers").and_then(Value::as_array);
        listed.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = list(live);
    let added: Vec<String> = list(object).into_iter().filter(|one| !before.contains(one)).collect();
    if added.is_empty() { Ok(()) } else { Err(StatusError::finalizers_added(call, &added)) }
}
