//! The four kinds of patch, each a function of the live object and the body. What the result may be is for others.

mod apply;
mod fields;
mod json;
mod managers;
mod merge;
mod schema;
mod strategic;

use serde_json::Value;

use super::{status_error::StatusError, store::text};
pub use managers::{Writer, note};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchType {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// What the request says beside its body.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The name in the path.
    pub name: String,
    pub kind: String,
    pub api_version: String,
    pub writer: Writer,
    pub force: bool,
    /// Whether a definition made the kind: then strategic merge is not for it.
    pub custom: bool,
}

const OF_CUSTOM: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl PatchType {
    pub fn from_content_type(text: &str) -> Result<Self, StatusError> {
        match text.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Ok(Self::Json),
            "application/merge-patch+json" => Ok(Self::Merge),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic),
            "application/apply-patch+yaml" => Ok(Self::Apply),
            _ => Err(StatusError::unsupported_media_type()),
        }
    }
}

/// The patched object; `live` is null where there is none yet, which is for `PatchType::Apply` alone.
pub fn apply(
    how: PatchType,
    resource: &str,
    live: &Value,
    body: &[u8],
    options: &Options,
) -> Result<Value, StatusError> {
    let mut object = live.clone();
    match how {
        PatchType::Apply => {
            let wanted = parsed(body, "error decoding YAML: ")?;
            object = apply::apply(resource, live, wanted, options)?;
        }
        PatchType::Json => json::patch(&mut object, &parsed(body, "error decoding patch: ")?)?,
        PatchType::Strategic if options.custom => return Err(StatusError::unknown_format(OF_CUSTOM)),
        PatchType::Strategic => {
            let place = schema::Place::root(resource, options.custom);
            strategic::merge(&mut object, &fields_of(parsed(body, "")?, "")?, &place)?;
        }
        PatchType::Merge => {
            let before = "error decoding patch: ";
            let patch = fields_of(parsed(body, before)?, before)?;
            merge::merge(&mut object, &Value::Object(patch));
        }
    }
    check_name(&object, &options.name)?;
    Ok(object)
}

fn parsed(body: &[u8], before: &str) -> Result<Value, StatusError> {
    serde_json::from_slice(body).map_err(|error| {
        let problem = if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
        StatusError::bad_request(&format!("{before}{problem}"))
    })
}

fn fields_of(patch: Value, before: &str) -> Result<serde_json::Map<String, Value>, StatusError> {
    match patch {
        Value::Object(fields) => Ok(fields),
        Value::Null => Err(StatusError::bad_request("Invalid JSON Patch")),
        other => Err(wrong_shape(&other, before, "map[string]interface {}")),
    }
}

/// A body that is JSON, but not of the kind that a patch is.
fn wrong_shape(patch: &Value, before: &str, wanted: &str) -> StatusError {
    let given = super::kinds::name_of(patch);
    StatusError::bad_request(&format!("{before}json: cannot unmarshal {given} into Go value of type {wanted}"))
}

fn check_name(object: &Value, name: &str) -> Result<(), StatusError> {
    match text(object, "/metadata/name") {
        given if given == name => Ok(()),
        "" => Err(StatusError::bad_request(&format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        given => Err(StatusError::bad_request(&format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(how: PatchType, body: &str, custom: bool) -> (u16, String) {
        let live = json!({"kind": "ConfigMap", "metadata": {"name": "a"}});
        let options = Options { name: "a".to_owned(), custom, ..Options::default() };
        let refusal = apply(how, "configmaps", &live, body.as_bytes(), &options).unwrap_err();
        (refusal.code, refusal.message)
    }

    #[test]
    fn body_that_is_no_patch_is_refused() {
        let eof = "error decoding patch: unexpected end of JSON input".to_owned();
        assert_eq!(refused(PatchType::Merge, "{", false), (400, eof.clone()));
        assert_eq!(refused(PatchType::Json, "[", false), (400, eof));
        assert_eq!(refused(PatchType::Strategic, "{", false), (400, "unexpected end of JSON input".to_owned()));
        let (code, message) = refused(PatchType::Merge, "[]", false);
        assert_eq!(code, 400);
        assert!(message.ends_with("cannot unmarshal array into Go value of type map[string]interface {}"), "{message}");
        assert_eq!(refused(PatchType::Strategic, "{}", true).0, 415);
        assert_eq!(PatchType::from_content_type("application/json").unwrap_err().code, 415);
    }

    #[test]
    fn name_cannot_be_patched() {
        let (code, message) = refused(PatchType::Merge, r#"{"metadata": {"name": "b"}}"#, false);
        assert_eq!(code, 400);
        assert_eq!(message, "the name of the object (b) does not match the name on the URL (a)");
        assert_eq!(refused(PatchType::Json, r#"[{"op": "replace", "path": "", "value": {}}]"#, false).0, 400);
    }
}
