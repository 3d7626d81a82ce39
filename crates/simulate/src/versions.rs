//! One object in several forms: as it is kept, and as the version that was asked for has it. Versions of kinds that
//! definitions add differ in their name alone; the two kinds of events are one, with some fields called otherwise.

use serde_json::{Value, json};

use super::call::Call;

const EVENTS: &str = "events";
const EVENTS_OF_GROUP: &str = "events.events.k8s.io";

/// The older name of a field of events, and the younger one.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Under which resource the objects of a resource are kept.
pub(super) fn kept_as(resource: String) -> String {
    if resource == EVENTS_OF_GROUP { EVENTS.to_owned() } else { resource }
}

fn is_renamed(call: &Call) -> bool {
    call.resource == EVENTS && !call.kind.group.is_empty()
}

/// Whether an answer has the form of the store.
pub(super) fn is_given_as_kept(call: &Call) -> bool {
    !is_renamed(call) && !call.kind.custom
}

/// From the form of a request to that of the store.
pub(super) fn to_kept(call: &Call, object: &mut Value) {
    if is_renamed(call) {
        rename(object, |(old, new)| (new, old));
        object["apiVersion"] = json!("v1");
    }
}

/// From the form of the store to that of an answer.
pub(super) fn to_given(call: &Call, object: &mut Value) {
    if is_renamed(call) {
        rename(object, |(old, new)| (old, new));
        let said = |field: &str, value: &Value| !field.starts_with("reporting") || value != "";
        object.as_object_mut().into_iter().for_each(|fields| fields.retain(|field, value| said(field, value)));
    }
    if is_renamed(call) || call.kind.custom {
        object["apiVersion"] = json!(call.api_version());
    }
}

fn rename(object: &mut Value, names: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Some(fields) = object.as_object_mut() else { return };
    for (from, to) in FIELDS.map(names) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
}
