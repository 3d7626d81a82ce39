//! Objects as the rows that `kubectl get` prints.

use std::time::SystemTime;

use serde_json::Value;

use super::{call::Call, read::Page};

pub fn is_wanted(_accept: &str) -> bool {
    false
}

pub fn of_list(_: &Call, _: &Page, _: SystemTime) -> Value {
    Value::Null
}

pub fn of_one(_: &Call, object: &Value, _: SystemTime) -> Value {
    object.clone()
}
