//! Reading and editing the parts of an object that controllers look at.

use serde_json::{Map, Value, json};

pub(super) use super::store::{at, text};

pub(super) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(super) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(super) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The list at a place; empty where there is none.
pub(super) fn items<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    at(object, pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts of a list.
pub(super) fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    items(object, pointer).iter().filter_map(Value::as_str)
}

pub(super) fn is_terminating(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

pub(super) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    let annotations = at(object, "/metadata/annotations");
    annotations.and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

pub(super) fn annotate(object: &mut Value, key: &str, value: &str) {
    set(object, &["metadata", "annotations", key], json!(value));
}

pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    texts(object, "/metadata/finalizers").any(|there| there == finalizer)
}

pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        let with = texts(object, "/metadata/finalizers").chain([finalizer]).map(Value::from).collect();
        set(object, &["metadata", "finalizers"], with);
    }
}

pub(super) fn drop_finalizer(object: &mut Value, finalizer: &str) {
    if let Some(all) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
        all.retain(|there| there != finalizer);
    }
}

/// Puts a value at a place whose parents need not exist yet.
pub(super) fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((first, rest)) = path.split_first() else {
        *object = value;
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    if let Some(fields) = object.as_object_mut() {
        set(fields.entry(*first).or_insert(Value::Null), rest, value);
    }
}

/// Takes away the value at a place.
pub(super) fn unset(object: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else {
        return;
    };
    let parent = parents.iter().try_fold(object, |inner, part| inner.get_mut(*part));
    if let Some(fields) = parent.and_then(Value::as_object_mut) {
        fields.remove(*last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_set_below_parents_that_are_missing_and_taken_away_again() {
        let mut object = json!({"metadata": {"name": "x"}});
        annotate(&mut object, "a/b", "c");
        assert_eq!((annotation(&object, "a/b"), name(&object)), ("c", "x"));
        unset(&mut object, &["metadata", "annotations", "a/b"]);
        unset(&mut object, &["spec", "none"]);
        assert_eq!(object, json!({"metadata": {"name": "x", "annotations": {}}}));
    }

    #[test]
    fn a_finalizer_is_added_once() {
        let mut object = json!({});
        add_finalizer(&mut object, "one");
        add_finalizer(&mut object, "one");
        assert_eq!(texts(&object, "/metadata/finalizers").collect::<Vec<_>>(), ["one"]);
        drop_finalizer(&mut object, "one");
        assert!(!has_finalizer(&object, "one"));
    }
}
