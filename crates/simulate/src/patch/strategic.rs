//! Strategic merge patch: as merge patch, but lists whose items have a key are merged item by item, and directives in
//! the patch say what to remove, what to keep and which order to have.

use serde_json::{Map, Value};

use super::{
    super::status_error::StatusError,
    schema::{Place, Same},
};

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder/";

type Fields = Map<String, Value>;

pub(super) fn merge(target: &mut Value, patch: &Fields, place: &Place<'_>) -> Result<(), StatusError> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return Ok(()) };
    match directive(patch)? {
        Some("replace") => {
            target.clone_from(patch);
            target.remove(DIRECTIVE);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        _ => {}
    }
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        target.retain(|field, _| retained.iter().any(|kept| kept == field));
    }
    for (field, value) in patch.iter().filter(|(field, _)| !field.starts_with('$')) {
        merge_field(target, field, value, patch, &place.field(field))?;
    }
    for (field, value) in patch {
        if let Some(field) = field.strip_prefix(DELETE_FROM) {
            delete_from(target, field, value);
        } else if let Some(field) = field.strip_prefix(ORDER).filter(|field| !patch.contains_key(*field)) {
            let place = place.field(field);
            if let Some(Value::Array(live)) = target.get_mut(field) {
                merge_list(live, &[], value.as_array(), &place)?;
            }
        }
    }
    Ok(())
}

fn directive(patch: &Fields) -> Result<Option<&str>, StatusError> {
    match patch.get(DIRECTIVE).map(|value| value.as_str().unwrap_or_default()) {
        Some(known @ ("replace" | "delete" | "merge")) => Ok(Some(known)),
        None => Ok(None),
        Some(unknown) => {
            let printed = print(&Value::Object(patch.clone()));
            Err(StatusError::unforeseen(&format!("unknown patch type: {unknown} in map: {printed}")))
        }
    }
}

fn merge_field(
    target: &mut Fields,
    field: &str,
    value: &Value,
    patch: &Fields,
    place: &Place<'_>,
) -> Result<(), StatusError> {
    match value {
        Value::Null => drop(target.remove(field)),
        Value::Object(fields) if !place.is_replaced() => {
            let emptied = directive(fields)? == Some("delete");
            merge(target.entry(field).or_insert(Value::Null), fields, place)?;
            if emptied {
                target.remove(field);
            }
        }
        Value::Array(items) if place.strategic() != Same::Never => {
            let order = patch.get(&format!("{ORDER}{field}")).and_then(Value::as_array);
            let live = target.entry(field).or_insert_with(|| Value::Array(Vec::new()));
            if !live.is_array() {
                *live = Value::Array(Vec::new());
            }
            if let Value::Array(live) = live {
                merge_list(live, items, order, place)?;
            }
        }
        _ => drop(target.insert(field.to_owned(), value.clone())),
    }
    Ok(())
}

fn delete_from(target: &mut Fields, field: &str, removed: &Value) {
    let removed = removed.as_array().map(Vec::as_slice).unwrap_or_default();
    if let Some(items) = target.get_mut(field).and_then(Value::as_array_mut) {
        items.retain(|item| !removed.contains(item));
    }
}

/// Merges a list item by item. In the end it has the order of the patch, or the one it asks for; what only the live list
/// has stays before those that it was before.
fn merge_list(
    live: &mut Vec<Value>,
    items: &[Value],
    order: Option<&Vec<Value>>,
    place: &Place<'_>,
) -> Result<(), StatusError> {
    let key = match place.strategic() {
        Same::Keys(keys) => keys.first(),
        _ => None,
    };
    let of = |item: &Value| key.map_or_else(|| item.clone(), |key| item.get(*key).cloned().unwrap_or(Value::Null));
    let before: Vec<Value> = live.iter().map(of).collect();
    let replaced = items.iter().any(|item| item.get(DIRECTIVE).is_some_and(|directive| directive == "replace"));
    if replaced {
        live.clear();
    }
    for item in items {
        match (key, item.as_object()) {
            (Some(key), Some(fields)) => merge_item(live, fields, key, place)?,
            _ if live.contains(item) => {}
            _ => live.push(item.clone()),
        }
    }
    if !replaced {
        let wanted: Vec<Value> = order.map_or(items, Vec::as_slice).iter().map(of).collect();
        *live = arranged(std::mem::take(live), &of, &wanted, &before);
    }
    Ok(())
}

fn merge_item(live: &mut Vec<Value>, item: &Fields, key: &str, place: &Place<'_>) -> Result<(), StatusError> {
    let directive = directive(item)?;
    let Some(value) = item.get(key) else {
        if directive == Some("replace") {
            return Ok(()); // it speaks for the list
        }
        let printed = print(&Value::Object(item.clone()));
        return Err(StatusError::unforeseen(&format!("map: {printed} does not contain declared merge key: {key}")));
    };
    let position = live.iter().position(|there| there.get(key) == Some(value));
    match (directive, position) {
        (Some("delete"), Some(position)) => drop(live.remove(position)),
        (Some("delete"), None) => {}
        (_, Some(position)) => {
            if let Some(there) = live.get_mut(position) {
                merge(there, item, place)?;
            }
        }
        (_, None) => {
            let mut new = Value::Null;
            merge(&mut new, item, place)?;
            live.push(new);
        }
    }
    Ok(())
}

fn arranged(items: Vec<Value>, of: &impl Fn(&Value) -> Value, wanted: &[Value], before: &[Value]) -> Vec<Value> {
    let place_in = |list: &[Value], item: &Value| list.iter().position(|key| *key == of(item));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        items.into_iter().partition(|item| place_in(wanted, item).is_some());
    named.sort_by_key(|item| place_in(wanted, item));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for item in named {
        let was = place_in(before, &item);
        while let Some(other) = others.next_if(|other| was.is_some_and(|was| place_in(before, other) < Some(was))) {
            arranged.push(other);
        }
        arranged.push(item);
    }
    arranged.extend(others);
    arranged
}

/// A value as the API server prints what it cannot make sense of.
fn print(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(field, value)| format!("{field}:{}", print(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(print).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "literals read better")]
    fn merged(mut live: Value, patch: Value) -> Value {
        merge(&mut live, patch.as_object().unwrap(), &Place::root("pods", false)).unwrap();
        live
    }

    fn containers(names: &[&str]) -> Value {
        let containers: Vec<Value> = names.iter().map(|name| json!({"name": name, "image": name})).collect();
        json!({"spec": {"containers": containers}})
    }

    fn names(pod: &Value) -> Vec<&str> {
        pod["spec"]["containers"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn items_are_merged_by_key_and_the_patch_gives_the_order() {
        let pod = merged(containers(&["a", "b"]), json!({"spec": {"containers": [{"name": "b", "image": "new"}]}}));
        assert_eq!((names(&pod), &pod["spec"]["containers"][1]["image"]), (vec!["a", "b"], &json!("new")));
        let pod = merged(containers(&["a", "b"]), json!({"spec": {"containers": [{"name": "c"}]}}));
        assert_eq!(names(&pod), ["c", "a", "b"]);
        let order = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c"}]}});
        assert_eq!(names(&merged(containers(&["a", "b"]), order)), ["b", "c", "a"]);
        let order = json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}});
        assert_eq!(names(&merged(containers(&["a", "b"]), order)), ["b", "a"]);
    }

    #[test]
    fn directives_delete_replace_and_retain() {
        let delete = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"}]}});
        assert_eq!(names(&merged(containers(&["a", "b"]), delete)), ["b"]);
        let replace = json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "c"}]}});
        assert_eq!(names(&merged(containers(&["a", "b"]), replace)), ["c"]);
        let live = json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
        let retain = json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}}]}});
        assert_eq!(merged(live, retain)["spec"]["volumes"], json!([{"name": "v", "hostPath": {"path": "/"}}]));
        let labels = json!({"metadata": {"labels": {"a": "b"}}});
        let replaced = merged(labels.clone(), json!({"metadata": {"labels": {"$patch": "replace", "c": "d"}}}));
        assert_eq!(replaced["metadata"]["labels"], json!({"c": "d"}));
        let removed = merged(labels, json!({"metadata": {"labels": {"$patch": "delete"}}}));
        assert_eq!(removed["metadata"], json!({}));
    }

    #[test]
    fn lists_of_values_are_sets_only_where_the_table_says_so() {
        let live =
            json!({"metadata": {"finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "x", "args": ["1"]}]}});
        let added = merged(live.clone(), json!({"metadata": {"finalizers": ["b", "c"]}}));
        assert_eq!(added["metadata"]["finalizers"], json!(["a", "b", "c"]));
        let fewer = merged(live.clone(), json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}));
        assert_eq!(fewer["metadata"]["finalizers"], json!(["b"]));
        let args = merged(live, json!({"spec": {"containers": [{"name": "x", "args": ["2"]}]}}));
        assert_eq!(args["spec"]["containers"][0]["args"], json!(["2"]));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |patch: Value| {
            let place = Place::root("pods", false);
            merge(&mut json!({}), patch.as_object().unwrap(), &place).unwrap_err().message
        };
        assert_eq!(
            refused(json!({"metadata": {"$patch": "frob"}})),
            "unknown patch type: frob in map: map[$patch:frob]"
        );
        let unkeyed = refused(json!({"spec": {"containers": [{"image": "x"}]}}));
        assert_eq!(unkeyed, "map: map[image:x] does not contain declared merge key: name");
    }
}
