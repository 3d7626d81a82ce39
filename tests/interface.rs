//! `proto/csi.proto` is written in the project's own words; this holds it to the published interface, name by name
//! and number by number, so that a slip cannot pass.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure is the test's")]

use std::process::Command;

use prost::Message as _;
use prost_types::descriptor_proto::ReservedRange;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use protox::Compiler;

#[path = "interface/facts.rs"]
pub mod facts;
#[path = "clusters/tools.rs"]
pub mod tools;
#[path = "clusters/tools_table.rs"]
pub mod tools_table;

use facts::{differences, facts};

/// A change to the file, and the differences it must bring.
type Slip = (fn(&mut FileDescriptorProto), &'static [&'static str]);

#[test]
fn the_interface_is_the_published_one() {
    let found = differences(&facts(&ours()), &facts(&published()));
    assert!(found.is_empty(), "proto/csi.proto differs from the published interface:\n{}", found.join("\n"));
}

#[test]
fn every_kind_of_slip_is_reported_and_nothing_else() {
    let untouched = facts(&altered(|_| ()));
    for (alter, expected) in SLIPS {
        assert_eq!(differences(&facts(&altered(alter)), &untouched), expected);
    }
}

#[test]
fn a_lost_secret_mark_is_reported() {
    // Plain descriptors do not know the marks, so this set has lost them all.
    let found = differences(&facts(&altered(|_| ())), &facts(&ours()));
    let expected = "CreateVolumeRequest.secrets: options none, published [csi.v1.csi_secret]:true";
    assert!(found.iter().any(|sentence| sentence == expected), "{}", found.join("\n"));
}

const SLIPS: [Slip; 11] = [
    (
        |file| access_mode(file).field[0].number = Some(99),
        &["VolumeCapability.AccessMode.mode: number 99, published 1"],
    ),
    (
        |file| access_mode(file).enum_type[0].value[1].number = Some(99),
        &["VolumeCapability.AccessMode.Mode.SINGLE_NODE_WRITER: number 99, published 1"],
    ),
    (|file| message(file, "Topology").field.clear(), &["Topology.segments: missing, published"]),
    (
        |file| message(file, "Topology").field[0].name = Some("parts".to_owned()),
        &["Topology.segments: missing, published", "Topology.parts: not published"],
    ),
    (
        |file| message(file, "CapacityRange").field[0].set_type(Type::Uint64),
        &["CapacityRange.required_bytes: type Uint64, published Int64"],
    ),
    (
        |file| message(file, "CapacityRange").field[1].set_label(Label::Repeated),
        &["CapacityRange.limit_bytes: label Repeated, published Optional"],
    ),
    (
        |file| message(file, "VolumeContentSource").field[0].oneof_index = None,
        &["VolumeContentSource.snapshot: oneof none, published type"],
    ),
    (
        |file| {
            message(file, "Topology").reserved_name.push("parts".to_owned());
        },
        &["Topology: reserved names parts, published none"],
    ),
    (
        |file| {
            message(file, "Topology").reserved_range.push(reserved(7, 9));
        },
        &["Topology: reserved numbers 7..9, published none"],
    ),
    (
        |file| file.service[0].method[0].server_streaming = Some(true),
        &["Identity.GetPluginInfo: server streaming true, published false"],
    ),
    (|file| drop(file.service[0].method.remove(2)), &["Identity.Probe: missing, published"]),
];

fn message<'a>(file: &'a mut FileDescriptorProto, name: &str) -> &'a mut DescriptorProto {
    let found = file.message_type.iter_mut().find(|message| message.name() == name);
    found.expect("the message is there")
}

fn reserved(start: i32, end: i32) -> ReservedRange {
    ReservedRange { start: Some(start), end: Some(end) }
}

fn access_mode(file: &mut FileDescriptorProto) -> &mut DescriptorProto {
    let nested = &mut message(file, "VolumeCapability").nested_type;
    let found = nested.iter_mut().find(|message| message.name() == "AccessMode");
    found.expect("the message is there")
}

fn ours() -> Vec<u8> {
    let mut compiler = Compiler::new(["proto"]).unwrap();
    compiler.open_file("csi.proto").unwrap();
    compiler.encode_file_descriptor_set()
}

fn altered(alter: fn(&mut FileDescriptorProto)) -> Vec<u8> {
    let mut set = FileDescriptorSet::decode(&*ours()).unwrap();
    alter(&mut set.file[0]);
    set.encode_to_vec()
}

fn published() -> Vec<u8> {
    let program = tools::tools().unwrap_or_else(|error| panic!("{error:#}")).path("csi-spec");
    let output = Command::new(&program).output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), output.status);
    output.stdout
}
