//! Where the two servers are allowed to differ, each with the reason. Whoever adds one has to argue for it here.

use serde_json::Value;

use crate::differential::step::Step;

#[derive(Debug)]
pub(crate) struct Exception {
    pub(crate) what: &'static str,
    pub(crate) reason: &'static str,
    /// Takes out of both answers what may differ.
    forgive: fn(&Step, &mut Value, &mut Value),
}

pub(crate) const EXCEPTIONS: &[Exception] = &[
    Exception {
        what: "metadata.managedFields",
        reason: "the simulated server notes what admission adds as the client's own; what appliers may do with which \
            field shows in the answers to applies",
        forgive: |_, real, simulated| {
            take_out(real, "managedFields");
            take_out(simulated, "managedFields");
        },
    },
    Exception {
        what: "kinds in discovery",
        reason: "a real server has many more kinds, and lists those of definitions in any order; those that both have \
            must be told alike",
        forgive: |step, real, simulated| {
            if step.topic == "discovery" {
                sort_resources(real);
                sort_resources(simulated);
                keep_common(real, simulated);
            }
        },
    },
    Exception {
        what: "build and address of the server",
        reason: "the simulated server is not built of that commit, with that compiler, on that day, and is elsewhere",
        forgive: |step, real, simulated| {
            if step.topic == "discovery" {
                for key in
                    ["buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform", "serverAddress"]
                {
                    take_out(real, key);
                    take_out(simulated, key);
                }
            }
        },
    },
    Exception {
        what: "storageVersionHash",
        reason: "it is a digest for those who migrate what is stored; nothing is to be migrated here",
        forgive: |_, real, simulated| {
            take_out(real, "storageVersionHash");
            take_out(simulated, "storageVersionHash");
        },
    },
    Exception {
        what: "causes that are told twice",
        reason: "the real server checks some things in several places; the message tells each of them once",
        forgive: |_, real, simulated| {
            for answer in [real, simulated] {
                if let Some(causes) = answer.pointer_mut("/body/details/causes").and_then(Value::as_array_mut) {
                    let all = std::mem::take(causes);
                    for cause in all {
                        if !causes.contains(&cause) {
                            causes.push(cause);
                        }
                    }
                }
            }
        },
    },
    Exception {
        what: "the object quoted in the refusal of a patch",
        reason: "it is printed in the order of the fields in the real server's sources",
        forgive: |_, real, simulated| {
            texts(real, &unquoted);
            texts(simulated, &unquoted);
        },
    },
    Exception {
        what: "what changed, in the refusal of a change",
        reason: "it is printed in the form of the real server's own types, field by field",
        forgive: |_, real, simulated| {
            texts(real, &without_difference);
            texts(simulated, &without_difference);
        },
    },
    Exception {
        what: "the description of a column",
        reason: "it is prose out of the real server's documentation",
        forgive: |_, real, simulated| {
            undescribe(real);
            undescribe(simulated);
        },
    },
];

/// Whether the answers are alike but for the exceptions; counts those that mattered.
pub(crate) fn alike(step: &Step, real: &Value, simulated: &Value, used: &mut [usize]) -> Result<(), (Value, Value)> {
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

fn undescribe(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.get_mut("columnDefinitions").into_iter().for_each(|columns| take_out(columns, "description"));
            fields.values_mut().for_each(undescribe);
        }
        Value::Array(values) => values.iter_mut().for_each(undescribe),
        _ => {}
    }
}

/// Takes out of the lists of the one what the other does not have, by name.
fn keep_common(real: &mut Value, simulated: &Value) {
    match (real, simulated) {
        (Value::Object(real), Value::Object(simulated)) => {
            if let (Some(Value::Array(paths)), Some(Value::Array(others))) =
                (real.get_mut("paths"), simulated.get("paths"))
            {
                paths.retain(|path| others.contains(path));
            }
            if !simulated.contains_key("subresources") {
                real.remove("subresources");
            }
            for (key, value) in real {
                simulated.get(key).into_iter().for_each(|simulated| keep_common(value, simulated));
            }
        }
        (Value::Array(real), Value::Array(simulated)) => {
            if let ([real], [simulated]) = (real.as_mut_slice(), simulated.as_slice()) {
                keep_common(real, simulated); // the core group has no name
                return;
            }
            let twin = |value: &Value| simulated.iter().find(|other| same_name(value, other));
            real.retain(|value| name(value).is_none() || twin(value).is_some());
            for value in real {
                if let Some(twin) = twin(value) {
                    keep_common(value, twin);
                }
            }
        }
        _ => {}
    }
}

fn sort_resources(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(resources) = fields.get_mut("resources").and_then(Value::as_array_mut) {
                resources.sort_by_key(|resource| name(resource).map(Value::to_string));
            }
            fields.values_mut().for_each(sort_resources);
        }
        Value::Array(values) => values.iter_mut().for_each(sort_resources),
        _ => {}
    }
}

fn name(value: &Value) -> Option<&Value> {
    ["/name", "/metadata/name", "/resource", "/subresource", "/groupVersion", "/version"]
        .iter()
        .find_map(|place| value.pointer(place))
}

fn same_name(one: &Value, other: &Value) -> bool {
    name(one).is_some() && name(one) == name(other)
}

fn texts(value: &mut Value, change: &impl Fn(&str) -> String) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|value| texts(value, change)),
        Value::Array(values) => values.iter_mut().for_each(|value| texts(value, change)),
        Value::String(text) => *text = change(text),
        _ => {}
    }
}

fn unquoted(text: &str) -> String {
    match text.split_once("Invalid value: \"{").and_then(|(head, rest)| Some((head, rest.rsplit_once("}\": ")?.1))) {
        Some((head, tail)) => format!("{head}Invalid value: (an object): {tail}"),
        None => text.to_owned(),
    }
}

/// Without the lines of a unified difference.
fn without_difference(text: &str) -> String {
    let begins = text.lines().position(|line| line.starts_with("@@ ")).unwrap_or(usize::MAX);
    let kept = |(index, line): &(usize, &str)| *index < begins || !line.starts_with(['@', ' ', '+', '-']);
    let lines: Vec<&str> = text.split('\n').enumerate().filter(kept).map(|(_, line)| line).collect();
    lines.join(if begins == usize::MAX { "\n" } else { "" })
}
