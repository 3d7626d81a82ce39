//! What no two servers can say alike is replaced by what it stands for: identities, versions, times, tokens and random
//! names. A uid becomes the n-th of that name, a version the n-th of that uid: "the same as before" still shows.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

const SUFFIX: usize = 5;
const TOKEN_VOLUME: &str = "kube-api-access-";

#[derive(Debug, Default)]
pub(crate) struct Normal {
    /// What a text of this server stands for.
    known: BTreeMap<String, String>,
    /// Distinct values by what they belong to, in the order they were seen in.
    seen: BTreeMap<String, Vec<String>>,
}

impl Normal {
    pub(crate) fn answer(&mut self, mut answer: Value) -> Value {
        self.learn(&answer);
        self.replace(&mut answer);
        answer
    }

    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(metadata) = fields.get("metadata").and_then(Value::as_object) {
                    self.learn_metadata(metadata);
                }
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Array(values) => values.iter().for_each(|value| self.learn(value)),
            _ => {}
        }
    }

    fn learn_metadata(&mut self, metadata: &Map<String, Value>) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str);
        let (Some(name), Some(uid)) = (text("name"), text("uid")) else {
            return;
        };
        let mut stands_for = name.to_owned();
        if let Some(prefix) = text("generateName").filter(|prefix| is_generated(name, prefix)) {
            let count = self.count(&format!("{prefix}*"), name);
            stands_for = format!("{prefix}(generated {count})");
            self.known.insert(name.to_owned(), stands_for.clone());
        }
        let owner = format!("{}/{stands_for}", text("namespace").unwrap_or_default());
        let count = self.count(&owner, uid);
        self.known.insert(uid.to_owned(), format!("(uid {count} of {owner})"));
    }

    /// Which of the distinct values of an owner this is, from 1.
    fn count(&mut self, owner: &str, value: &str) -> usize {
        let values = self.seen.entry(owner.to_owned()).or_default();
        let index = values.iter().position(|seen| seen == value).unwrap_or_else(|| {
            values.push(value.to_owned());
            values.len() - 1
        });
        index + 1
    }

    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
                    self.replace_versions(metadata);
                }
                if let Some(cells) = fields.get_mut("cells").and_then(Value::as_array_mut) {
                    cells.iter_mut().filter(|cell| is_age(cell)).for_each(|cell| *cell = "(age)".into());
                }
                fields.values_mut().for_each(|value| self.replace(value));
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.replace(value)),
            Value::String(text) => *text = self.replaced(text),
            _ => {}
        }
    }

    fn replace_versions(&mut self, metadata: &mut Map<String, Value>) {
        let text = |key: &str| metadata.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
        let uid = text("uid").map(str::to_owned);
        let version = text("resourceVersion").map(str::to_owned);
        let more = text("continue").is_some();
        if more {
            metadata.insert("continue".to_owned(), "(token)".into());
        }
        let Some(version) = version else {
            return;
        };
        let stands_for = match uid {
            Some(uid) => format!("(version {})", self.count(&format!("versions of {uid}"), &version)),
            None => "(version)".to_owned(),
        };
        metadata.insert("resourceVersion".to_owned(), stands_for.into());
    }

    fn replaced(&self, text: &str) -> String {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        if let Some(digits) = time_digits(text) {
            return format!("(time{})", if digits == 0 { String::new() } else { format!(" with {digits} digits") });
        }
        if is_generated(text, TOKEN_VOLUME) {
            return format!("{TOKEN_VOLUME}(generated)");
        }
        if text.contains("ResourceVersion in record") {
            return without_versions(text);
        }
        let replace = |text: String, (known, stands_for): (&String, &String)| text.replace(known.as_str(), stands_for);
        if text.len() < SUFFIX {
            return text.to_owned();
        }
        self.known.iter().fold(text.to_owned(), replace)
    }
}

/// Versions stand in brackets where a refusal tells them.
fn without_versions(text: &str) -> String {
    let parts = text.split('(').map(|part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => format!("version){rest}"),
        _ => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("(")
}

fn is_generated(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|suffix| {
        suffix.len() == SUFFIX && suffix.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    })
}

/// `12s`, `3m4s`: how old something is, in a table.
fn is_age(cell: &Value) -> bool {
    let text = cell.as_str().unwrap_or_default();
    text.starts_with(|first: char| first.is_ascii_digit())
        && text.ends_with(['s', 'm', 'h', 'd'])
        && text.chars().all(|letter| letter.is_ascii_digit() || "smhd".contains(letter))
}

/// How many digits follow the second, if this is a time.
fn time_digits(text: &str) -> Option<usize> {
    let shape = "0000-00-00T00:00:00";
    let (head, tail) = (text.get(..shape.len())?, text.get(shape.len()..)?);
    let alike = head.chars().zip(shape.chars()).all(|(one, other)| match other {
        '0' => one.is_ascii_digit(),
        _ => one == other,
    });
    let digits = tail.strip_suffix('Z')?.trim_start_matches('.');
    (alike && digits.bytes().all(|byte| byte.is_ascii_digit())).then_some(digits.len())
}
