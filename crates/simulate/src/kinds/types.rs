//! Fields whose type is looked at, and how the readers of bodies say that one does not fit: the decoder of objects, that
//! of applied ones, that of strategic patches.

use serde_json::{Map, Value};

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Object,
    Integer,
    Text,
    /// An object of texts.
    Texts,
}

/// Resource (ends may be left out), place, type, and the field as the decoder names it; `K` stands for the kind.
const TYPES: &[(&str, &str, Type, &str)] = &[
    ("", "/metadata", Type::Object, "K.metadata of type v1.ObjectMeta"),
    ("", "/metadata/labels", Type::Texts, "ObjectMeta.metadata.labels of type string"),
    ("", "/metadata/annotations", Type::Texts, "ObjectMeta.metadata.annotations of type string"),
    ("configmaps", "/data", Type::Texts, "ConfigMap.data of type string"),
    (
        "pods",
        "/spec/terminationGracePeriodSeconds",
        Type::Integer,
        "PodSpec.spec.terminationGracePeriodSeconds of type int64",
    ),
    ("pods", "/status/phase", Type::Text, "PodStatus.status.phase of type v1.PodPhase"),
    (".apps", "/spec/replicas", Type::Integer, "KSpec.spec.replicas of type int32"),
    (".apps", "/spec/template/metadata/labels", Type::Texts, "ObjectMeta.spec.template.metadata.labels of type string"),
    (
        ".apps",
        "/spec/template/metadata/annotations",
        Type::Texts,
        "ObjectMeta.spec.template.metadata.annotations of type string",
    ),
    (
        "persistentvolumeclaims",
        "/status/phase",
        Type::Text,
        "PersistentVolumeClaimStatus.status.phase of type v1.PersistentVolumeClaimPhase",
    ),
    (
        "persistentvolumes",
        "/status/phase",
        Type::Text,
        "PersistentVolumeStatus.status.phase of type v1.PersistentVolumePhase",
    ),
];

/// One field that has a value of another type than it should.
#[derive(Debug)]
pub(super) struct Mismatch<'a> {
    place: &'static str,
    told: &'static str,
    /// In a map, the key.
    key: Option<&'a str>,
    value: &'a Value,
}

pub(super) fn mismatch<'a>(resource: &str, object: &'a Value) -> Option<Mismatch<'a>> {
    TYPES.iter().filter(|row| resource.ends_with(row.0)).find_map(|(_, place, expected, told)| {
        let value = object.pointer(place).filter(|value| !value.is_null())?;
        let (key, value) = match expected {
            Type::Object => (None, Some(value).filter(|value| !value.is_object())),
            Type::Integer => (None, Some(value).filter(|value| !value.is_i64())),
            Type::Text => (None, Some(value).filter(|value| !value.is_string())),
            Type::Texts => {
                let odd = |(_, value): &(&String, &Value)| !value.is_string() && !value.is_null();
                let found = value.as_object().into_iter().flat_map(Map::iter).find(odd)?;
                (Some(found.0.as_str()), Some(found.1))
            }
        };
        value.map(|value| Mismatch { place, told, key, value })
    })
}

impl Mismatch<'_> {
    pub(super) fn as_decoded(&self, kind: &str) -> String {
        let told = match self.told.strip_prefix('K') {
            Some(rest) => format!("{kind}{rest}"),
            None => self.told.to_owned(),
        };
        format!("json: cannot unmarshal {} into Go struct field {told}", name_of(self.value))
    }

    pub(super) fn as_applied(&self) -> String {
        let key = self.key.map(|key| format!(".{key}")).unwrap_or_default();
        let wanted = if self.told.ends_with("string") || self.key.is_some() { "string" } else { "numeric" };
        let place = self.place.replace('/', ".");
        format!("{place}{key}: expected {wanted}, got &value.valueUnstructured{{Value:{}}}", self.value)
    }
}

/// What a strategic patch says of a number where a text should be; of others it leaves it to the decoder.
pub fn unpatchable(resource: &str, patch: &Value) -> Option<(String, &'static str)> {
    let mismatch = mismatch(resource, patch)?;
    let fits = mismatch.key.is_some() && mismatch.value.is_i64();
    fits.then(|| (format!("\"{}\"", as_map(patch)), "cannot convert int64 to string"))
}

/// As the real server prints a map.
fn as_map(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key}:{}", as_map(value))).collect();
            format!("map[{}]", fields.join(" "))
        }
        Value::Array(values) => format!("[{}]", values.iter().map(as_map).collect::<Vec<_>>().join(" ")),
        Value::String(text) => text.clone(),
        Value::Null => "<nil>".to_owned(),
        other => other.to_string(),
    }
}

/// As the decoder names the type of a value.
pub fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
