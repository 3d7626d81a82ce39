//! Where the two servers are allowed to differ, each with the reason. Whoever adds one has to argue for it here.

use serde_json::Value;

use crate::step::Step;

#[derive(Debug)]
pub struct Exception {
    pub what: &'static str,
    pub reason: &'static str,
    /// Takes out of both answers what may differ.
    forgive: fn(&Step, &mut Value, &mut Value),
}

pub const EXCEPTIONS: &[Exception] = &[
    Exception {
        what: "metadata.managedFields",
        reason: "who wrote which field is kept for appliers alone: what they may do shows in the answers to applies",
        forgive: |_, real, simulated| {
            take_out(real, "managedFields");
            take_out(simulated, "managedFields");
        },
    },
    Exception {
        what: "kinds in discovery",
        reason: "a real server has many more kinds; those that both have must be told alike",
        forgive: |step, real, simulated| {
            if step.topic == "discovery" {
                keep_common(real, simulated);
            }
        },
    },
    Exception {
        what: "the build in /version",
        reason: "the simulated server is not built of that commit, with that compiler, on that day",
        forgive: |step, real, simulated| {
            if step.path == "/version" {
                for key in ["buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform"] {
                    take_out(real, key);
                    take_out(simulated, key);
                }
            }
        },
    },
    Exception {
        what: "the object quoted in the refusal of a patch",
        reason: "it is printed in the order of the fields in the real server's sources",
        forgive: |_, real, simulated| {
            unquote(real);
            unquote(simulated);
        },
    },
];

/// Whether the answers are alike but for the exceptions; counts those that mattered.
pub fn alike(step: &Step, real: &Value, simulated: &Value, used: &mut [usize]) -> Result<(), (Value, Value)> {
    let (mut real, mut simulated) = (real.clone(), simulated.clone());
    for (exception, used) in EXCEPTIONS.iter().zip(used) {
        if real == simulated {
            break;
        }
        let before = (real.clone(), simulated.clone());
        (exception.forgive)(step, &mut real, &mut simulated);
        *used += usize::from(before != (real.clone(), simulated.clone()));
    }
    if real == simulated { Ok(()) } else { Err((real, simulated)) }
}

fn take_out(value: &mut Value, key: &str) {
    match value {
        Value::Object(fields) => {
            fields.remove(key);
            fields.values_mut().for_each(|value| take_out(value, key));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| take_out(value, key)),
        _ => {}
    }
}

/// Takes out of the lists of the one what the other does not have, by name.
fn keep_common(real: &mut Value, simulated: &Value) {
    match (real, simulated) {
        (Value::Object(real), Value::Object(simulated)) => {
            for (key, value) in real {
                simulated.get(key).into_iter().for_each(|simulated| keep_common(value, simulated));
            }
        }
        (Value::Array(real), Value::Array(simulated)) => {
            let twin = |value: &Value| simulated.iter().find(|other| same_name(value, other));
            real.retain(|value| name(value).is_none() || twin(value).is_some());
            for value in real {
                twin(value).into_iter().for_each(|twin| keep_common(value, twin));
            }
        }
        _ => {}
    }
}

fn name(value: &Value) -> Option<&Value> {
    ["/name", "/metadata/name", "/resource", "/subresource", "/groupVersion"]
        .iter()
        .find_map(|place| value.pointer(place))
}

fn same_name(one: &Value, other: &Value) -> bool {
    name(one).is_some() && name(one) == name(other)
}

fn unquote(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(unquote),
        Value::Array(values) => values.iter_mut().for_each(unquote),
        Value::String(text) => {
            if let Some((head, tail)) = text.split_once("Invalid value: \"{\\\"")
                && let Some((_, tail)) = tail.rsplit_once("}\": ")
            {
                *text = format!("{head}Invalid value: (an object): {tail}");
            }
        }
        _ => {}
    }
}
