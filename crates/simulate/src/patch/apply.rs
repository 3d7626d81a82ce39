//! Server-side apply: a manager sends the fields it wants, owns them from then on, and loses what it no longer sends.

use serde_json::{Map, Value, json};

use super::{
    super::{
        status_error::{Cause, StatusError},
        store::text,
    },
    Options,
    fields::{self, Path, Set, element, field},
    managers::{self, Managers, Owner, ownable},
    schema::{Place, Same},
};

pub(super) fn apply(resource: &str, live: &Value, wanted: Value, options: &Options) -> Result<Value, StatusError> {
    check(resource, live, &wanted, options)?;
    let place = Place::root(resource, options.custom);
    let owner = Owner::of(&options.writer, "Apply");
    let mut managers = managers::read(live);
    let wants = ownable(fields::of(&wanted, &place), &options.writer);
    if live.is_null() {
        let mut object = wanted;
        settle(&mut object, &mut managers, owner, wants, options, true);
        return Ok(object);
    }
    let mut object = merged(Some(live), &wanted, &place);
    let changed = fields::compare(live, &object, &place).changed;
    take_over(&mut managers, &owner, &changed, options.force)?;
    let before = managers.get(&owner).map(|last| last.fields.clone()).unwrap_or_default();
    for path in dropped(&managers, &owner, &before, &wants) {
        remove(&mut object, &path, &place);
    }
    let new = object != *live;
    settle(&mut object, &mut managers, owner, wants, options, new);
    Ok(object)
}

fn check(resource: &str, live: &Value, wanted: &Value, options: &Options) -> Result<(), StatusError> {
    if options.writer.manager.is_empty() {
        let cause = Cause {
            reason: "FieldValueRequired".to_owned(),
            message: "Required value: is required for apply patch".to_owned(),
            field: "fieldManager".to_owned(),
        };
        return Err(StatusError::invalid("PatchOptions.meta.k8s.io", "", &[cause]));
    }
    let (given, kind) = (text(wanted, "/apiVersion"), text(wanted, "/kind"));
    if (given, kind) != (&options.api_version, &options.kind) {
        let given = if given.is_empty() { "/".to_owned() } else { with_group(given) };
        return Err(StatusError::bad_request(&format!("invalid object type: {given}, Kind={kind}")));
    }
    if wanted.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(StatusError::bad_request("metadata.managedFields must be nil"));
    }
    let uid = text(wanted, "/metadata/uid");
    if live.is_null() && !uid.is_empty() {
        let problem =
            format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(StatusError::conflict(resource, &options.name, &problem));
    }
    Ok(())
}

fn with_group(api_version: &str) -> String {
    if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") }
}

/// The live object with what is wanted laid over it.
fn merged(live: Option<&Value>, wanted: &Value, place: &Place<'_>) -> Value {
    match wanted {
        Value::Object(wanted) if !place.is_whole() => {
            let mut fields = live.and_then(Value::as_object).cloned().unwrap_or_default();
            for (name, value) in wanted {
                if value.is_null() {
                    fields.remove(name);
                } else {
                    let value = merged(fields.get(name), value, &place.field(name));
                    fields.insert(name.clone(), value);
                }
            }
            Value::Object(fields)
        }
        Value::Array(wanted) if place.applied() != Same::Never => {
            let live = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            Value::Array(merged_list(live, wanted, place))
        }
        other => other.clone(),
    }
}

/// Both lists keep their order, and what is in the live one alone stands before what is new. Where they differ, the
/// order of the wanted list holds.
fn merged_list(live: &[Value], wanted: &[Value], place: &Place<'_>) -> Vec<Value> {
    let key = |item: &Value| element(item, place.applied());
    let find = |list: &[Value], item: &Value| list.iter().position(|other| key(other) == key(item));
    let mut list = Vec::with_capacity(live.len() + wanted.len());
    let mut left = live.iter().peekable();
    for (position, item) in wanted.iter().enumerate() {
        let shared = wanted.iter().skip(position).find(|item| find(live, item).is_some()).map(key);
        while let Some(other) = left.next_if(|other| shared != Some(key(other))) {
            if find(wanted, other).is_none() {
                list.push(other.clone());
            }
        }
        left.next_if(|other| key(other) == key(item));
        let there = find(live, item).and_then(|position| live.get(position));
        let is_merged = item.is_object() && !place.has_whole_items();
        list.push(if is_merged { merged_item(there, item, place) } else { item.clone() });
    }
    list.extend(left.filter(|other| find(wanted, other).is_none()).cloned());
    list
}

fn merged_item(live: Option<&Value>, item: &Value, place: &Place<'_>) -> Value {
    let mut fields = live.and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
    for (name, value) in item.as_object().into_iter().flatten() {
        let value = merged(fields.get(name), value, &place.field(name));
        fields.insert(name.clone(), value);
    }
    Value::Object(fields)
}

/// What others own of the changed fields is a conflict, or is taken from them.
fn take_over(managers: &mut Managers, owner: &Owner, changed: &Set, force: bool) -> Result<(), StatusError> {
    let others = managers.iter_mut().filter(|(other, _)| *other != owner);
    let mut conflicts: Vec<(String, Vec<Path>)> = Vec::new();
    for (other, owned) in others {
        let taken: Vec<Path> = owned.fields.intersection(changed).cloned().collect();
        if taken.is_empty() {
            continue;
        }
        owned.fields.retain(|path| !taken.contains(path));
        conflicts.push((other.print(), taken));
    }
    if force || conflicts.is_empty() { Ok(()) } else { Err(conflict(conflicts)) }
}

fn conflict(mut conflicts: Vec<(String, Vec<Path>)>) -> StatusError {
    conflicts.sort();
    let causes: Vec<Cause> = conflicts
        .iter()
        .flat_map(|(manager, paths)| paths.iter().map(move |path| (manager, path)))
        .map(|(manager, path)| Cause {
            reason: "FieldManagerConflict".to_owned(),
            message: format!("conflict with {manager}"),
            field: fields::print(path),
        })
        .collect();
    let said = match causes.as_slice() {
        [only] => format!("1 conflict: {}: {}", only.message, only.field),
        many => {
            let each = conflicts.iter().map(|(manager, paths)| {
                let lines = paths.iter().map(|path| format!("- {}", fields::print(path)));
                let head = format!("conflicts with {manager}:");
                std::iter::once(head).chain(lines).collect::<Vec<_>>().join("\n")
            });
            format!("{} conflicts: {}", many.len(), each.collect::<Vec<_>>().join("\n"))
        }
    };
    StatusError::apply_conflict(&format!("Apply failed with {said}"), &causes)
}

/// What the manager owned, no longer wants, and nobody else owns; what holds other fields before them.
fn dropped(managers: &Managers, owner: &Owner, before: &Set, now: &Set) -> Vec<Path> {
    let mut kept = fields::with_ancestors(now);
    kept.insert(vec![field("metadata")]); // every object has it, whoever owns what is in it
    for (_, owned) in managers.iter().filter(|(other, _)| *other != owner) {
        kept.extend(fields::with_ancestors(&owned.fields));
    }
    fields::with_ancestors(before).difference(&kept).cloned().collect()
}

fn remove(value: &mut Value, path: &[String], place: &Place<'_>) {
    let Some((key, rest)) = path.split_first() else { return };
    match value {
        Value::Object(fields) => {
            let Some(name) = fields.keys().find(|name| field(name) == *key).cloned() else { return };
            if rest.is_empty() {
                fields.remove(&name);
            } else if let Some(value) = fields.get_mut(&name) {
                remove(value, rest, &place.field(&name));
            }
        }
        Value::Array(items) => {
            let same = place.applied();
            let Some(position) = items.iter().position(|item| element(item, same).as_ref() == Some(key)) else {
                return;
            };
            let is_key = |name: &&str| rest == [field(name)];
            if rest.is_empty() {
                items.remove(position);
            } else if matches!(same, Same::Keys(names) if names.iter().any(is_key)) {
                // Whoever else owns the item needs its keys.
            } else if let Some(item) = items.get_mut(position) {
                remove(item, rest, place);
            }
        }
        _ => {}
    }
}

/// Writes down who owns what; the time moves only where something has changed.
fn settle(object: &mut Value, managers: &mut Managers, owner: Owner, wants: Set, options: &Options, changed: bool) {
    let entry = managers.entry(owner).or_default();
    if changed || entry.fields != wants {
        entry.time.clone_from(&options.writer.now);
    }
    entry.fields = wants;
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    managers::write(object, managers);
}

#[cfg(test)]
mod tests {
    use super::{
        super::managers::{Writer, note},
        *,
    };

    fn options(manager: &str, force: bool) -> Options {
        let writer = Writer {
            manager: manager.to_owned(),
            api_version: "v1".to_owned(),
            now: "now".to_owned(),
            ..Writer::default()
        };
        Options {
            name: "a".to_owned(),
            kind: "ConfigMap".to_owned(),
            api_version: "v1".to_owned(),
            writer,
            force,
            custom: false,
        }
    }

    fn map(data: &Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
    }

    fn applied(live: &Value, manager: &str, data: &Value, force: bool) -> Result<Value, StatusError> {
        apply("configmaps", live, map(data), &options(manager, force))
    }

    #[test]
    fn first_apply_creates_and_the_same_again_changes_nothing() {
        let made = applied(&Value::Null, "m", &json!({"k": "v"}), false).unwrap();
        let entry = &made["metadata"]["managedFields"][0];
        assert_eq!((&entry["operation"], &entry["fieldsV1"]), (&json!("Apply"), &json!({"f:data": {"f:k": {}}})));
        let mut later = options("m", false);
        later.writer.now = "later".to_owned();
        assert_eq!(apply("configmaps", &made, map(&json!({"k": "v"})), &later).unwrap(), made);
    }

    #[test]
    fn field_of_another_is_a_conflict_unless_forced() {
        let mut live = map(&json!({"k": "v"}));
        note("configmaps", false, &Value::Null, &mut live, &options("curl", false).writer);
        let refusal = applied(&live, "m", &json!({"k": "w"}), false).unwrap_err();
        assert_eq!(refusal.message, "Apply failed with 1 conflict: conflict with \"curl\" using v1: .data.k");
        let forced = applied(&live, "m", &json!({"k": "w", "x": "y"}), true).unwrap();
        assert_eq!(forced["data"], json!({"k": "w", "x": "y"}));
        assert_eq!(forced["metadata"]["managedFields"][1]["fieldsV1"], json!({"f:data": {}}));
        let refusal = applied(&forced, "m2", &json!({"k": "z", "x": "z"}), false).unwrap_err();
        assert_eq!(refusal.message, "Apply failed with 2 conflicts: conflicts with \"m\":\n- .data.k\n- .data.x");
        assert_eq!(refusal.to_status()["details"]["causes"][1]["field"], json!(".data.x"));
        assert!(applied(&forced, "m2", &json!({"k": "w"}), false).is_ok());
    }

    #[test]
    fn what_is_no_longer_applied_goes_unless_another_owns_it() {
        let made = applied(&Value::Null, "m", &json!({"k": "v", "x": "y"}), false).unwrap();
        let shared = applied(&made, "m2", &json!({"x": "y"}), false).unwrap();
        let fewer = apply(
            "configmaps",
            &shared,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            &options("m", false),
        )
        .unwrap();
        assert_eq!(fewer["data"], json!({"x": "y"}));
        let none = apply(
            "configmaps",
            &fewer,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            &options("m2", false),
        )
        .unwrap();
        assert_eq!((none.get("data"), none["metadata"].get("managedFields")), (None, None));
    }

    #[test]
    fn items_are_merged_by_key_in_the_applied_order() {
        let pod = |containers: Value| json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": containers}});
        let mut pods = options("m", false);
        pods.kind = "Pod".to_owned();
        let live = pod(json!([{"name": "a", "image": "1", "tty": true}, {"name": "b"}, {"name": "c"}]));
        let merged = apply("pods", &live, pod(json!([{"name": "c"}, {"name": "a", "image": "1"}])), &pods).unwrap();
        let expected = json!([{"name": "b"}, {"name": "c"}, {"name": "a", "image": "1", "tty": true}]);
        assert_eq!(merged["spec"]["containers"], expected);
        let more = apply("pods", &live, pod(json!([{"name": "new"}, {"name": "b"}])), &pods).unwrap();
        let names: Vec<_> =
            more["spec"]["containers"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names, ["a", "new", "b", "c"]);
        let fewer = apply("pods", &merged, pod(json!([{"name": "c"}])), &pods).unwrap();
        assert_eq!(fewer["spec"]["containers"], json!([{"name": "b"}, {"name": "c"}]));
    }

    #[test]
    fn body_about_something_else_is_refused() {
        let refused =
            |wanted: Value| apply("configmaps", &Value::Null, wanted, &options("m", false)).unwrap_err().message;
        assert_eq!(refused(json!({"metadata": {"name": "a"}})), "invalid object type: /, Kind=");
        assert_eq!(refused(json!({"apiVersion": "v1", "kind": "Secret"})), "invalid object type: /v1, Kind=Secret");
        let refusal = apply("configmaps", &Value::Null, map(&json!({})), &options("", false)).unwrap_err();
        assert_eq!(
            refusal.message,
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
    }
}
