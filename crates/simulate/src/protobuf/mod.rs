//! Bodies in the API's binary form. Generated clients, `kubectl create namespace` among them, send nothing else and do
//! not fall back; so the kinds that kubectl makes by name can be read. They are answered in JSON, which they accept.

mod schema;

use serde_json::{Map, Value, json};

use super::status_error::StatusError;
use schema::Type;

/// What every such body begins with.
const MAGIC: &[u8] = b"k8s\0";

pub fn is_meant(content_type: &str) -> bool {
    content_type.starts_with("application/vnd.kubernetes.protobuf")
}

/// Refuses what it does not know to the last field: nothing that a client sends is dropped unsaid.
pub fn to_json(body: &[u8]) -> Result<Value, StatusError> {
    read(body).ok_or_else(|| StatusError::unknown_format("application/json"))
}

/// An envelope names the kind of what it holds.
fn read(body: &[u8]) -> Option<Value> {
    let (mut type_meta, mut raw): (&[u8], &[u8]) = (&[], &[]);
    for field in Fields(body.strip_prefix(MAGIC)?) {
        match field? {
            (1, Content::Bytes(bytes)) => type_meta = bytes,
            (2, Content::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let mut object = message("TypeMeta", type_meta)?;
    let kind = object.get("kind")?.as_str()?.to_owned();
    object.append(&mut message(&kind, raw)?);
    Some(Value::Object(object))
}

enum Content<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, with their numbers; None for what is none.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn field(&mut self) -> Option<(u64, Content<'a>)> {
        let head = self.number()?;
        let content = match head & 7 {
            0 => Content::Number(self.number()?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Content::Bytes(bytes)
            }
            _ => return None,
        };
        Some((head >> 3, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Content<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn message(name: &str, bytes: &[u8]) -> Option<Map<String, Value>> {
    let known = schema::fields(name)?;
    let mut object = Map::new();
    for field in Fields(bytes) {
        let (number, content) = field?;
        let Some(field) = known.iter().find(|known| known.number == number) else {
            if is_empty(&content) {
                continue;
            }
            return None;
        };
        let value = match content {
            Content::Number(number) => scalar(field.of, number)?,
            Content::Bytes(bytes) => compound(field.of, bytes)?,
        };
        add(&mut object, field, value);
    }
    Some(object)
}

fn is_empty(content: &Content<'_>) -> bool {
    match content {
        Content::Number(number) => *number == 0,
        // Messages of nothing but empty fields are empty too.
        Content::Bytes(bytes) => {
            let mut fields = Fields(bytes);
            fields.all(|field| field.is_some_and(|(_, content)| is_empty(&content)))
        }
    }
}

/// Fields that are not optional are always sent: their zero means that they are not there.
fn add(object: &mut Map<String, Value>, field: &schema::Field, value: Value) {
    let said = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Number(number) => number.as_i64() != Some(0),
        Value::Bool(is) => *is,
        Value::Object(fields) => !fields.is_empty(),
        Value::Null => false,
        Value::Array(_) => true,
    };
    match (field.of, value) {
        (Type::List(_), value) => {
            if let Value::Array(list) = object.entry(field.name).or_insert_with(|| json!([])) {
                list.push(value);
            }
        }
        (Type::Map(_), Value::Object(mut entry)) => {
            if let Value::Object(map) = object.entry(field.name).or_insert_with(|| json!({})) {
                map.append(&mut entry);
            }
        }
        (_, value) if field.optional || said(&value) => drop(object.insert(field.name.to_owned(), value)),
        _ => {}
    }
}

fn scalar(of: Type, number: u64) -> Option<Value> {
    match of {
        Type::Whole => Some(json!(number.cast_signed())),
        Type::Is => Some(json!(number != 0)),
        _ => None,
    }
}

fn compound(of: Type, bytes: &[u8]) -> Option<Value> {
    match of {
        Type::Text | Type::List("") => Some(json!(std::str::from_utf8(bytes).ok()?)),
        Type::Bytes => Some(json!(base64(bytes))),
        Type::Message("Time") => time(bytes),
        Type::Message("Quantity") => Some(message("Quantity", bytes)?.remove("string").unwrap_or_else(|| json!("0"))),
        Type::Message("IntOrString") => {
            let mut either = message("IntOrString", bytes)?;
            either.remove("text").or_else(|| either.remove("number")).or(Some(Value::Null))
        }
        Type::Message(name) | Type::List(name) => Some(Value::Object(message(name, bytes)?)),
        Type::Map(of) => {
            let (mut key, mut value) = (String::new(), compound(schema::of(of), &[])?);
            for field in Fields(bytes) {
                match field? {
                    (1, Content::Bytes(bytes)) => std::str::from_utf8(bytes).ok()?.clone_into(&mut key),
                    (2, Content::Bytes(bytes)) => value = compound(schema::of(of), bytes)?,
                    _ => return None,
                }
            }
            Some(json!({key: value}))
        }
        Type::Whole | Type::Is => None,
    }
}

fn time(bytes: &[u8]) -> Option<Value> {
    let seconds = message("Time", bytes)?.get("seconds").and_then(Value::as_u64);
    let stamp = |seconds| std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    Some(seconds.map_or(Value::Null, |seconds| json!(humantime::format_rfc3339_seconds(stamp(seconds)).to_string())))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |value: u32| DIGITS.get(value as usize & 63).map_or('=', |digit| char::from(*digit));
    let of_three = |three: &[u8]| {
        let number =
            (0..3).fold(0_u32, |number, place| number << 8 | u32::from(three.get(place).copied().unwrap_or(0)));
        let digits = [18, 12, 6, 0].map(|shift| digit(number >> shift));
        digits
            .into_iter()
            .enumerate()
            .map(|(place, digit)| if place > three.len() { '=' } else { digit })
            .collect::<String>()
    };
    bytes.chunks(3).map(of_three).collect()
}

#[cfg(test)]
mod tests;
