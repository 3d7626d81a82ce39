//! Requests made from the interface's own description: what is called like a thing we know gets its value, the rest the
//! first that comes to mind, and every `secrets` a secret.

use std::collections::HashMap;

use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value,
};

use super::{SECRET, SHOP};

/// What a request is made for.
#[derive(Clone, Debug)]
pub struct Story {
    /// Of a volume that exists, or of none.
    pub volume: String,
    pub name: String,
    /// A request that says nothing but its secrets.
    pub empty: bool,
    pub class: &'static str,
}

pub fn interface() -> DescriptorPool {
    let files = protox::compile(["csi.proto"], [concat!(env!("CARGO_MANIFEST_DIR"), "/proto")]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
}

pub fn request(of: &MessageDescriptor, story: &Story) -> DynamicMessage {
    let mut message = DynamicMessage::new(of.clone());
    for field in of.fields() {
        let taken = field.containing_oneof().is_some_and(|oneof| oneof.fields().next().as_ref() != Some(&field));
        if field.name() == "secrets" {
            message.set_field(&field, map([("password", SECRET)]));
        } else if !story.empty && !taken {
            message.set_field(&field, value(&field, story));
        }
    }
    message
}

fn value(field: &FieldDescriptor, story: &Story) -> Value {
    if field.is_map() {
        return match field.name() {
            "parameters" => map([
                ("leafStorageClass", story.class),
                ("csi.storage.k8s.io/pvc/namespace", SHOP),
                ("csi.storage.k8s.io/pvc/name", "data"),
            ]),
            "segments" => map([("topology.kosmos.csi.io/member", "m0")]),
            _ => map([]),
        };
    }
    let one = match field.kind() {
        Kind::Message(message) if message.full_name().starts_with("google.") => {
            Value::Message(DynamicMessage::new(message))
        }
        Kind::Message(message) => Value::Message(request(&message, story)),
        Kind::Enum(_) => Value::EnumNumber(1),
        Kind::String => Value::String(match field.name() {
            "name" => story.name.clone(),
            "starting_token" | "fs_type" | "volume_mount_group" => String::new(),
            _ => story.volume.clone(),
        }),
        Kind::Int64 if field.name() == "required_bytes" => Value::I64(1 << 30),
        kind => Value::default_value(&kind),
    };
    // A source would need a snapshot; a volume is asked for without.
    if field.name() == "volume_content_source" && story.volume.is_empty() {
        return Value::default_value_for_field(field);
    }
    if field.is_list() { Value::List(vec![one]) } else { one }
}

fn map<const N: usize>(pairs: [(&str, &str); N]) -> Value {
    let pairs = pairs.map(|(key, value)| (MapKey::String(key.to_owned()), Value::String(value.to_owned())));
    Value::Map(HashMap::from(pairs))
}

/// The text of an answer, in the interface's words.
pub fn shown(of: MessageDescriptor, bytes: &[u8]) -> String {
    let message = DynamicMessage::decode(of, bytes).unwrap();
    format!("{} {message}", message.descriptor().name())
}
