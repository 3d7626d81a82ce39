//! A description of an interface as a flat list of facts, so that comparing two of them is comparing two maps and
//! nothing can hide in a corner that the comparison does not visit.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;

use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, EnumDescriptor, ExtensionDescriptor, FileDescriptor, MessageDescriptor,
    ServiceDescriptor,
};

const PACKAGE: &str = "csi.v1";

/// What is said of each element, by its name inside the package: `VolumeCapability.AccessMode.mode`.
pub type Facts = BTreeMap<String, BTreeMap<&'static str, String>>;

/// Reads the facts from a serialised `FileDescriptorSet`.
///
/// # Panics
/// When the set is not one, or not of the interface.
pub fn facts(descriptors: &[u8]) -> Facts {
    // The global pool holds Google's own files, which only one of the two sides brings along.
    let mut pool = DescriptorPool::global();
    pool.decode_file_descriptor_set(descriptors).unwrap();
    let mut facts = Facts::new();
    let mut files = pool.files().filter(|file| file.package_name() == PACKAGE);
    add_file(&mut facts, &files.next().expect("no file of the package"));
    assert!(files.next().is_none(), "more than one file of the package");
    facts
}

/// Every difference as a sentence, ours first.
pub fn differences(ours: &Facts, published: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    for (name, theirs) in published {
        let Some(mine) = ours.get(name) else {
            found.push(format!("{name}: missing, published"));
            continue;
        };
        for (fact, their_value) in theirs {
            let my_value = mine.get(fact).map_or("", String::as_str);
            if my_value != their_value {
                let (mine, theirs) = (or_none(my_value), or_none(their_value));
                found.push(format!("{name}: {fact} {mine}, published {theirs}"));
            }
        }
    }
    let unknown = ours.keys().filter(|name| !published.contains_key(*name));
    found.extend(unknown.map(|name| format!("{name}: not published")));
    found
}

fn or_none(value: &str) -> &str {
    if value.is_empty() { "none" } else { value }
}

/// Every element has the same facts as the others of its kind, empty where they do not apply.
fn add<const N: usize>(facts: &mut Facts, name: &str, list: [(&'static str, String); N]) {
    let name = name.trim_start_matches(PACKAGE).trim_start_matches('.');
    let known = facts.insert(name.to_owned(), BTreeMap::from(list));
    assert!(known.is_none(), "{name} is there twice");
}

fn add_file(facts: &mut Facts, file: &FileDescriptor) {
    let syntax = file.file_descriptor_proto().syntax().to_owned();
    add(facts, "the file", [("syntax", syntax)]);
    file.messages().for_each(|message| add_message(facts, &message));
    file.enums().for_each(|list| add_enum(facts, &list));
    file.extensions().for_each(|extension| add_extension(facts, &extension));
    file.services().for_each(|service| add_service(facts, &service));
}

fn add_message(facts: &mut Facts, message: &MessageDescriptor) {
    let list = [
        ("kind", "message".to_owned()),
        ("map entry", message.is_map_entry().to_string()),
        ("reserved numbers", ranges(message.reserved_ranges())),
        ("reserved names", message.reserved_names().collect::<Vec<_>>().join(" ")),
        ("extension numbers", ranges(message.extension_ranges())),
        ("options", options(&message.options())),
    ];
    add(facts, message.full_name(), list);
    for field in message.fields() {
        let proto = field.field_descriptor_proto();
        let list = [
            ("kind", "field".to_owned()),
            ("number", field.number().to_string()),
            ("type", shown(proto.r#type())),
            ("type name", proto.type_name().to_owned()),
            ("label", shown(field.cardinality())),
            ("oneof", field.containing_oneof().map_or_else(String::new, |oneof| oneof.name().to_owned())),
            ("optional", proto.proto3_optional().to_string()),
            ("JSON name", field.json_name().to_owned()),
            ("options", options(&field.options())),
        ];
        add(facts, field.full_name(), list);
    }
    for oneof in message.oneofs() {
        let list = [("kind", "oneof".to_owned()), ("options", options(&oneof.options()))];
        add(facts, oneof.full_name(), list);
    }
    message.child_messages().for_each(|child| add_message(facts, &child));
    message.child_enums().for_each(|list| add_enum(facts, &list));
    message.child_extensions().for_each(|extension| add_extension(facts, &extension));
}

fn add_enum(facts: &mut Facts, list: &EnumDescriptor) {
    let facts_of_enum = [
        ("kind", "enum".to_owned()),
        ("reserved numbers", list.reserved_ranges().map(|range| shown(range) + " ").collect()),
        ("reserved names", list.reserved_names().collect::<Vec<_>>().join(" ")),
        ("options", options(&list.options())),
    ];
    add(facts, list.full_name(), facts_of_enum);
    for value in list.values() {
        let facts_of_value = [
            ("kind", "value".to_owned()),
            ("number", value.number().to_string()),
            ("options", options(&value.options())),
        ];
        add(facts, &format!("{}.{}", list.full_name(), value.name()), facts_of_value);
    }
}

fn add_extension(facts: &mut Facts, extension: &ExtensionDescriptor) {
    let proto = extension.field_descriptor_proto();
    let list = [
        ("kind", "extension".to_owned()),
        ("of", proto.extendee().to_owned()),
        ("number", extension.number().to_string()),
        ("type", shown(proto.r#type())),
        ("type name", proto.type_name().to_owned()),
        ("label", shown(extension.cardinality())),
    ];
    add(facts, extension.full_name(), list);
}

fn add_service(facts: &mut Facts, service: &ServiceDescriptor) {
    let list = [("kind", "service".to_owned()), ("options", options(&service.options()))];
    add(facts, service.full_name(), list);
    for method in service.methods() {
        let list = [
            ("kind", "method".to_owned()),
            ("request", method.input().full_name().to_owned()),
            ("response", method.output().full_name().to_owned()),
            ("client streaming", method.is_client_streaming().to_string()),
            ("server streaming", method.is_server_streaming().to_string()),
            ("options", options(&method.options())),
        ];
        add(facts, method.full_name(), list);
    }
}

fn shown(value: impl Debug) -> String {
    format!("{value:?}")
}

fn ranges(ranges: impl Iterator<Item = Range<u32>>) -> String {
    ranges.map(shown).collect::<Vec<_>>().join(" ")
}

/// With the interface's own marks, such as what is secret: a set of plain descriptors would lose them.
fn options(options: &DynamicMessage) -> String {
    options.to_string()
}
