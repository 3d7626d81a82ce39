//! Conditions in an object's status: one of each type, whose time tells when it last turned.

use serde_json::{Value, json};

/// What a condition says now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition<'a> {
    pub(crate) kind: &'a str,
    pub(crate) holds: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Puts a condition into a list of them, which may be missing. Nothing changes where it says so already.
pub(crate) fn set(conditions: &mut Value, condition: Condition<'_>, now: &str) {
    let status = if condition.holds { "True" } else { "False" };
    let mut list = conditions.as_array().cloned().unwrap_or_default();
    let before = list.iter().position(|one| one["type"] == condition.kind);
    let same = before.and_then(|place| list.get(place)).filter(|one| one["status"] == status);
    let since = same.map_or_else(|| json!(now), |one| one["lastTransitionTime"].clone());
    let mut written = json!({"type": condition.kind, "status": status, "lastTransitionTime": since});
    for (field, text) in [("reason", condition.reason), ("message", condition.message)] {
        if !text.is_empty() {
            written[field] = json!(text);
        }
    }
    match before.and_then(|place| list.get_mut(place)) {
        Some(place) => *place = written,
        None => list.push(written),
    }
    *conditions = json!(list);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_that_of_the_last_turn() {
        let mut conditions = Value::Null;
        let mut say = |holds, message, now| {
            set(&mut conditions, Condition { kind: "Available", holds, reason: "", message }, now);
            conditions.clone()
        };
        assert_eq!(say(false, "", "1"), json!([{"type": "Available", "status": "False", "lastTransitionTime": "1"}]));
        assert_eq!(say(false, "none", "2")[0]["lastTransitionTime"], "1");
        let turned = say(true, "", "3");
        assert_eq!(turned, json!([{"type": "Available", "status": "True", "lastTransitionTime": "3"}]));
    }
}
