//! JSON patch, RFC 6902, with the liberties of the API server: a member that is not there can be replaced, and is null
//! where it is copied or tested. Whatever cannot be done is refused without a word why.

use serde_json::Value;

use super::super::status_error::StatusError;

pub(super) fn patch(target: &mut Value, steps: &Value) -> Result<(), StatusError> {
    let steps = steps
        .as_array()
        .ok_or_else(|| super::wrong_shape(steps, "error decoding patch: ", "[]handlers.jsonPatchOp"))?;
    for step in steps {
        take(target, step).ok_or_else(StatusError::not_processable)?;
    }
    Ok(())
}

/// None where the step cannot be taken.
fn take(target: &mut Value, step: &Value) -> Option<()> {
    let at = |field: &str| step.get(field).and_then(Value::as_str).map(segments);
    let path = at("path")?;
    let value = step.get("value").cloned().unwrap_or(Value::Null);
    match step.get("op")?.as_str()? {
        "test" => (found(target, &path)? == value).then_some(()),
        "add" => put(target, &path, value, true),
        "replace" => put(target, &path, value, false),
        "remove" => take_out(target, &path).map(drop),
        "move" => {
            let moved = take_out(target, &at("from")?)?;
            put(target, &path, moved, true)
        }
        "copy" => {
            let copied = found(target, &at("from")?)?;
            put(target, &path, copied, true)
        }
        _ => None,
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()
}

fn child<'a>(value: &'a mut Value, segment: &str) -> Option<&'a mut Value> {
    match value {
        Value::Object(fields) => fields.get_mut(segment),
        Value::Array(items) => items.get_mut(segment.parse::<usize>().ok()?),
        _ => None,
    }
}

/// What holds the last segment of a path, and that segment.
fn holder<'a, 'b>(target: &'a mut Value, path: &'b [String]) -> Option<(&'a mut Value, &'b str)> {
    let (last, before) = path.split_last()?;
    let holder = before.iter().try_fold(target, |value, segment| child(value, segment))?;
    Some((holder, last))
}

fn found(target: &mut Value, path: &[String]) -> Option<Value> {
    if path.is_empty() {
        return Some(target.clone());
    }
    let (holder, last) = holder(target, path)?;
    match child(holder, last) {
        Some(value) => Some(value.clone()),
        None => holder.is_object().then_some(Value::Null),
    }
}

fn put(target: &mut Value, path: &[String], value: Value, insert: bool) -> Option<()> {
    if path.is_empty() {
        *target = value;
        return Some(());
    }
    let (holder, last) = holder(target, path)?;
    match holder {
        // What is null in a typed object is not there.
        Value::Object(fields) if value.is_null() => drop(fields.remove(last)),
        Value::Object(fields) => drop(fields.insert(last.to_owned(), value)),
        Value::Array(items) if insert && last == "-" => items.push(value),
        Value::Array(items) => {
            let position: usize = last.parse().ok()?;
            if insert {
                (position <= items.len()).then(|| items.insert(position, value))?;
            } else {
                *items.get_mut(position)? = value;
            }
        }
        _ => return None,
    }
    Some(())
}

fn take_out(target: &mut Value, path: &[String]) -> Option<Value> {
    let (holder, last) = holder(target, path)?;
    match holder {
        Value::Object(fields) => fields.remove(last),
        Value::Array(items) => {
            let position: usize = last.parse().ok()?;
            (position < items.len()).then(|| items.remove(position))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "literals read better")]
    fn patched(steps: Value) -> Result<Value, u16> {
        let mut target = json!({"a": "b", "list": [1, 2], "deep": {"x/y": {"z": 1}}});
        patch(&mut target, &steps).map(|()| target).map_err(|refusal| refusal.code)
    }

    #[test]
    fn steps_are_taken_in_order() {
        let steps = json!([
            {"op": "test", "path": "/a", "value": "b"},
            {"op": "add", "path": "/list/1", "value": 5},
            {"op": "add", "path": "/list/-", "value": 6},
            {"op": "remove", "path": "/list/0"},
            {"op": "replace", "path": "/deep/x~1y/z", "value": 2},
            {"op": "move", "from": "/a", "path": "/moved"},
            {"op": "copy", "from": "/list/0", "path": "/list/0"},
        ]);
        let expected = json!({"moved": "b", "list": [5, 5, 2, 6], "deep": {"x/y": {"z": 2}}});
        assert_eq!(patched(steps), Ok(expected));
    }

    #[test]
    fn what_the_api_server_lets_pass_passes() {
        let unchanged = patched(json!([]));
        assert_eq!(patched(json!([{"op": "test", "path": "/none", "value": null}])), unchanged);
        assert_eq!(patched(json!([{"op": "copy", "from": "/none", "path": "/new"}])), unchanged);
        let replaced = patched(json!([{"op": "replace", "path": "/none", "value": 1}])).unwrap();
        assert_eq!(replaced["none"], json!(1));
    }

    #[test]
    fn step_that_cannot_be_taken_is_refused() {
        for step in [
            json!({"op": "test", "path": "/a", "value": "c"}),
            json!({"op": "test", "path": "/none/deeper", "value": null}),
            json!({"op": "test", "path": "/list/7", "value": 1}),
            json!({"op": "remove", "path": "/none"}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "add", "path": "/none/deeper", "value": 1}),
            json!({"op": "add", "path": "/list/3", "value": 1}),
            json!({"op": "replace", "path": "/list/2", "value": 1}),
            json!({"op": "move", "from": "/none", "path": "/b"}),
            json!({"op": "frob", "path": "/a"}),
            json!({"op": "add", "value": 1}),
        ] {
            assert_eq!(patched(json!([step])), Err(422), "{step}");
        }
        assert_eq!(patched(json!({"op": "add"})), Err(400));
    }
}
