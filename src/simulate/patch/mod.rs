//! The four kinds of patch.

use serde_json::Value;

use super::refusal::Refusal;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub manager: String,
    pub force: bool,
    pub custom: bool,
    pub subresource: String,
}

impl PatchType {
    pub fn from_content_type(text: &str) -> Result<Self, Refusal> {
        match text.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(Refusal::unsupported_media_type()),
        }
    }
}

pub fn apply(how: PatchType, _: &str, live: &Value, body: &[u8], _: &Options) -> Result<Value, Refusal> {
    let patch: Value = serde_json::from_slice(body).map_err(|error| Refusal::bad_request(&error.to_string()))?;
    let mut object = live.clone();
    match how {
        PatchType::Json => json_patch(&mut object, &patch)?,
        _ => merge(&mut object, &patch),
    }
    Ok(object)
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        if value.is_null() {
            if let Some(target) = target.as_object_mut() {
                target.remove(key);
            }
        } else {
            merge(&mut target[key], value);
        }
    }
}

fn json_patch(target: &mut Value, patch: &Value) -> Result<(), Refusal> {
    for step in patch.as_array().into_iter().flatten() {
        let wrong = || Refusal::bad_request(&format!("cannot apply {step}"));
        let at_path = step["path"].as_str().ok_or_else(wrong)?;
        let (parent, last) = at_path.rsplit_once('/').ok_or_else(wrong)?;
        let last = last.replace("~1", "/").replace("~0", "~");
        let invalid =
            || Refusal { code: 422, reason: "Invalid", message: format!("cannot apply {step}"), details: None };
        match step["op"].as_str() {
            Some("test") => {
                if target.pointer(at_path).unwrap_or(&Value::Null) != &step["value"] {
                    return Err(invalid());
                }
            }
            Some("add" | "replace") => match target.pointer_mut(parent) {
                Some(Value::Array(items)) if last == "-" => items.push(step["value"].clone()),
                Some(Value::Array(items)) => {
                    let at: usize = last.parse().map_err(|_| wrong())?;
                    if step["op"] == "add" {
                        items.insert(at.min(items.len()), step["value"].clone());
                    } else {
                        *items.get_mut(at).ok_or_else(invalid)? = step["value"].clone();
                    }
                }
                Some(Value::Object(fields)) => drop(fields.insert(last, step["value"].clone())),
                _ => return Err(invalid()),
            },
            Some("remove") => match target.pointer_mut(parent) {
                Some(Value::Array(items)) => {
                    let at: usize = last.parse().map_err(|_| wrong())?;
                    if at >= items.len() {
                        return Err(invalid());
                    }
                    items.remove(at);
                }
                Some(Value::Object(fields)) => drop(fields.remove(&last).ok_or_else(invalid)?),
                _ => return Err(invalid()),
            },
            _ => return Err(wrong()),
        }
    }
    Ok(())
}
