//! Sets of fields, as `managedFields` keeps them: which fields a value has, and how two values differ.
//!
//! A path is the list of keys under which a field is found in a `fieldsV1`: `f:spec`, `k:{"name":"a"}`, `v:"x"`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::schema::{Place, Same, key};

pub(super) type Path = Vec<String>;
pub(super) type Set = BTreeSet<Path>;

/// The key of an item in a list that is merged. None in a list that is one value.
pub(super) fn element(item: &Value, same: Same) -> Option<String> {
    match same {
        Same::Never => None,
        Same::Value => Some(format!("v:{item}")),
        Same::Keys(names) => {
            let keys: BTreeMap<&str, Value> = names.iter().map(|name| (*name, key(item, name))).collect();
            Some(format!("k:{}", serde_json::json!(keys)))
        }
    }
}

pub(super) fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The parts of a value that are merged one by one, with their keys and places. None where it is one value.
pub(super) fn parts<'v, 'p>(value: &'v Value, place: &Place<'p>) -> Option<Vec<(String, Place<'p>, &'v Value)>> {
    match value {
        Value::Object(fields) if !place.is_whole() => {
            Some(fields.iter().map(|(name, value)| (field(name), place.field(name), value)).collect())
        }
        Value::Array(items) => {
            let same = place.applied();
            items.iter().map(|item| Some((element(item, same)?, place.clone(), item))).collect::<Option<Vec<_>>>()
        }
        _ => None,
    }
}

/// What a configuration that is applied has: its leaves, and the items of its lists.
pub(super) fn of(value: &Value, place: &Place<'_>) -> Set {
    let mut set = Set::new();
    walk(value, place, &mut Vec::new(), &mut set, &|_, is_item| is_item);
    set
}

/// `with_self` says of a value with parts whether it counts itself, and is asked with its key and whether it is an item.
fn walk(value: &Value, place: &Place<'_>, path: &mut Path, set: &mut Set, with_self: &dyn Fn(&str, bool) -> bool) {
    let last = path.last().map(String::as_str).unwrap_or_default();
    let is_item = !last.starts_with("f:") && !path.is_empty();
    let parts = parts(value, place).filter(|parts| !(parts.is_empty() || is_item && place.has_whole_items()));
    if parts.is_none() || with_self(last, is_item) {
        set.insert(path.clone());
    }
    for (key, place, part) in parts.into_iter().flatten() {
        path.push(key);
        walk(part, &place, path, set, with_self);
        path.pop();
    }
}

/// How two values differ.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub changed: Set,
    pub removed: Set,
}

pub(super) fn compare(before: &Value, after: &Value, place: &Place<'_>) -> Difference {
    let mut difference = Difference::default();
    compare_at(before, after, place, &mut Vec::new(), &mut difference);
    difference
}

fn compare_at(before: &Value, after: &Value, place: &Place<'_>, path: &mut Path, difference: &mut Difference) {
    if before == after {
        return;
    }
    let is_item = path.last().is_some_and(|last| !last.starts_with("f:"));
    let both = parts(before, place).zip(parts(after, place)).filter(|_| !(is_item && place.has_whole_items()));
    let Some((before, after)) = both else {
        difference.changed.insert(path.clone());
        return;
    };
    let find = |list: &[(String, Place<'_>, &Value)], key: &str| list.iter().position(|(other, ..)| other == key);
    for (key, place, value) in &before {
        path.push(key.clone());
        match find(&after, key).and_then(|position| after.get(position)) {
            Some((.., new)) => compare_at(value, new, place, path, difference),
            None => walk(value, place, path, &mut difference.removed, &|_, _| true),
        }
        path.pop();
    }
    for (key, place, value) in after.iter().filter(|(key, ..)| find(&before, key).is_none()) {
        path.push(key.clone());
        let always: &[&str] = if place.is_custom() { &["f:metadata"] } else { &ALWAYS_THERE };
        walk(value, place, path, &mut difference.changed, &|key, _| !always.contains(&key));
        path.pop();
    }
}

/// Parts that typed objects have even where nothing is in them, so that nobody adds them.
const ALWAYS_THERE: [&str; 6] = ["f:containers", "f:metadata", "f:spec", "f:status", "f:strategy", "f:template"];

/// A set with everything above what is in it.
pub(super) fn with_ancestors(set: &Set) -> Set {
    set.iter()
        .flat_map(|path| (1..=path.len()).filter_map(|length| path.get(..length).map(<[String]>::to_vec)))
        .collect()
}

pub(super) fn to_value(set: &Set) -> Value {
    let mut root = Map::new();
    for path in set {
        // What lies below a path follows it in the order of the set.
        let longer = set.range(path.clone()..).nth(1).is_some_and(|next| next.starts_with(path));
        insert(&mut root, path, longer);
    }
    Value::Object(root)
}

fn insert(level: &mut Map<String, Value>, path: &[String], with_self: bool) {
    let Some((key, rest)) = path.split_first() else {
        if with_self {
            level.insert(".".to_owned(), Value::Object(Map::new()));
        }
        return;
    };
    if let Value::Object(next) = level.entry(key.clone()).or_insert_with(|| Value::Object(Map::new())) {
        insert(next, rest, with_self);
    }
}

pub(super) fn from_value(value: &Value) -> Set {
    let mut set = Set::new();
    collect(value, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, path: &mut Path, set: &mut Set) {
    let Some(fields) = value.as_object() else { return };
    if !path.is_empty() && (fields.is_empty() || fields.contains_key(".")) {
        set.insert(path.clone());
    }
    for (key, value) in fields.iter().filter(|(key, _)| *key != ".") {
        path.push(key.clone());
        collect(value, path, set);
        path.pop();
    }
}

/// A path as conflicts name it.
pub(super) fn print(path: &[String]) -> String {
    let part = |key: &String| match key.split_once(':') {
        Some(("f", name)) => format!(".{name}"),
        Some(("k", keys)) => {
            let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", keys.join(","))
        }
        Some((_, value)) => format!("[={value}]"),
        None => String::new(),
    };
    path.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn configuration_owns_leaves_and_items() {
        let config = json!({
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c", "args": ["1", "2"]}], "nodeSelector": {"a": "b"}, "volumes": []},
        });
        let set = of(&config, &Place::root("pods", false));
        let fields = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {
                "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:args": {}}},
                "f:nodeSelector": {}, "f:volumes": {},
            },
        });
        assert_eq!(to_value(&set), fields);
        assert_eq!(from_value(&fields), set);
    }

    #[test]
    fn difference_names_what_changed_and_what_went() {
        let before = json!({"metadata": {}, "data": {"a": "1", "b": "2"}});
        let after = json!({"metadata": {"labels": {"x": "y"}, "finalizers": ["f"]}, "data": {"a": "3"}});
        let difference = compare(&before, &after, &Place::root("configmaps", false));
        let metadata = json!({"f:labels": {".": {}, "f:x": {}}, "f:finalizers": {".": {}, "v:\"f\"": {}}});
        let changed = json!({"f:metadata": metadata, "f:data": {"f:a": {}}});
        assert_eq!(to_value(&difference.changed), changed);
        assert_eq!(to_value(&difference.removed), json!({"f:data": {"f:b": {}}}));
    }

    #[test]
    fn paths_are_printed_as_conflicts_name_them() {
        let path = ["f:spec", "k:{\"containerPort\":80,\"protocol\":\"TCP\"}", "v:\"x\""].map(str::to_owned);
        assert_eq!(print(&path), ".spec[containerPort=80,protocol=\"TCP\"][=\"x\"]");
    }
}
