//! Two answers to the same step, held against each other whole.

use serde_json::Value;

/// Every place where two values differ, one line each.
pub(crate) fn differences(real: &Value, simulated: &Value) -> Vec<String> {
    let mut found = Vec::new();
    walk("", Some(real), Some(simulated), &mut found);
    found
}

fn walk(place: &str, real: Option<&Value>, simulated: Option<&Value>, found: &mut Vec<String>) {
    match (real, simulated) {
        (Some(Value::Object(one)), Some(Value::Object(other))) => {
            for key in one.keys().chain(other.keys().filter(|key| !one.contains_key(*key))) {
                walk(&format!("{place}/{key}"), one.get(key), other.get(key), found);
            }
        }
        (Some(Value::Array(one)), Some(Value::Array(other))) => {
            for index in 0..one.len().max(other.len()) {
                walk(&format!("{place}/{index}"), one.get(index), other.get(index), found);
            }
        }
        (real, simulated) if real == simulated => {}
        (real, simulated) => {
            found.push(format!("{place}\n      real      {}\n      simulated {}", shown(real), shown(simulated)));
        }
    }
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "(absent)".to_owned(), Value::to_string)
}
