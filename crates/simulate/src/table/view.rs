//! What cells are made of: the parts of an object, in the words of tables.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::{super::store::text, age};

pub(super) const NONE: &str = "<none>";
pub(super) const UNSET: &str = "<unset>";

pub(super) struct View<'a> {
    pub object: &'a Value,
    pub now: SystemTime,
}

impl<'a> View<'a> {
    pub(super) fn word(&self, pointer: &str) -> &'a str {
        text(self.object, pointer)
    }

    pub(super) fn cell(&self, pointer: &str) -> Value {
        json!(self.word(pointer))
    }

    /// A word, or another where there is none.
    pub(super) fn or(&self, pointer: &str, other: &str) -> Value {
        json!(Some(self.word(pointer)).filter(|word| !word.is_empty()).unwrap_or(other))
    }

    pub(super) fn number(&self, pointer: &str) -> i64 {
        self.object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
    }

    pub(super) fn count(&self, pointer: &str) -> Value {
        json!(self.number(pointer))
    }

    pub(super) fn is(&self, pointer: &str, otherwise: bool) -> Value {
        json!(self.object.pointer(pointer).and_then(Value::as_bool).unwrap_or(otherwise))
    }

    pub(super) fn list(&self, pointer: &str) -> &'a [Value] {
        self.object.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// How many entries a list or a map has.
    pub(super) fn len(&self, pointer: &str) -> usize {
        let map = self.object.pointer(pointer).and_then(Value::as_object).map_or(0, serde_json::Map::len);
        map + self.list(pointer).len()
    }

    pub(super) fn name(&self) -> Value {
        self.cell("/metadata/name")
    }

    pub(super) fn age(&self) -> Value {
        json!(age::since(self.word("/metadata/creationTimestamp"), self.now))
    }

    pub(super) fn is_terminating(&self) -> bool {
        !self.word("/metadata/deletionTimestamp").is_empty()
    }

    /// What phase an object is in, unless it is on its way out.
    pub(super) fn phase(&self) -> Value {
        if self.is_terminating() { json!("Terminating") } else { self.cell("/status/phase") }
    }

    pub(super) fn has_condition(&self, kind: &str) -> bool {
        let wanted = |condition: &Value| condition["type"] == kind && condition["status"] == "True";
        self.list("/status/conditions").iter().any(wanted)
    }

    /// One field of each item of a list, with commas between.
    pub(super) fn joined(&self, pointer: &str, field: &str) -> String {
        let words: Vec<&str> = self.list(pointer).iter().filter_map(|item| item[field].as_str()).collect();
        words.join(",")
    }

    pub(super) fn labels(&self, pointer: &str) -> Value {
        let labels = pairs(self.object.pointer(pointer));
        json!(if labels.is_empty() { NONE.to_owned() } else { labels.join(",") })
    }

    /// A label selector in its short form.
    pub(super) fn selector(&self, pointer: &str) -> Value {
        let mut parts = pairs(self.object.pointer(&format!("{pointer}/matchLabels")));
        for wanted in self.list(&format!("{pointer}/matchExpressions")) {
            let (key, mut values) = (text(wanted, "/key"), words(&wanted["values"]));
            values.sort_unstable();
            let values = values.join(",");
            parts.push(match text(wanted, "/operator") {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "Exists" => key.to_owned(),
                _ => format!("!{key}"),
            });
        }
        json!(if parts.is_empty() { NONE.to_owned() } else { parts.join(",") })
    }
}

fn pairs(map: Option<&Value>) -> Vec<String> {
    let map = map.and_then(Value::as_object).into_iter().flatten();
    map.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect()
}

pub(super) fn words(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
