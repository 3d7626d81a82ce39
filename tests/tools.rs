//! What the builds of the test clusters promise: pinned versions, keys that change with what they stand for, and
//! images whose bytes depend on nothing but their programs.

use std::collections::BTreeSet;
use std::fs;

#[path = "clusters/images.rs"]
pub mod images;
#[path = "clusters/packages.rs"]
pub mod packages;
#[path = "clusters/tools.rs"]
pub mod tools;
#[path = "clusters/tools_table.rs"]
pub mod tools_table;

use tools_table::TOOLS;

#[test]
fn every_upstream_tool_is_pinned() {
    for tool in TOOLS {
        let version = tool.version().unwrap();
        let own = tool.module.starts_with("kosmos-csi/");
        assert_eq!(version == "own", own, "{}: {version}", tool.name);
    }
}

#[test]
fn every_binary_has_one_tool() {
    let names: Vec<_> = TOOLS.iter().flat_map(|tool| tool.binaries).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
}

#[test]
fn a_key_changes_with_the_version_and_with_go() {
    let key = |version, go| TOOLS[0].key(version, go).unwrap();
    assert_eq!(key("v1.0.0", "go1.26.0"), key("v1.0.0", "go1.26.0"));
    assert_ne!(key("v1.0.0", "go1.26.0"), key("v1.0.0", "go1.26.1"));
    let hash = |key: String| key.rsplit_once('-').unwrap().1.to_owned();
    let stamped = TOOLS.iter().find(|tool| tool.name == "kubernetes").unwrap();
    let stamped = |version| hash(stamped.key(version, "go1.26.0").unwrap());
    assert_ne!(stamped("v1.36.3"), stamped("v1.36.4"));
}

#[test]
fn all_that_is_missing_is_listed_with_its_remedy() {
    let item = |what, remedy: &str| packages::Lacking { what, remedy: remedy.to_owned() };
    let text = packages::list(&[item("go", "install it"), item("runc", "apt-get install runc")]);
    assert_eq!(text, "missing on this machine:\n  go    install it\n  runc  apt-get install runc");
}

#[test]
fn the_snapshot_crds_are_there_six_of_them() {
    let files = tools::tools().unwrap().snapshot_crds().unwrap();
    assert_eq!(files.len(), 6, "{files:?}");
}

#[test]
fn an_image_packed_again_has_the_same_bytes() {
    let tools = tools::tools().unwrap();
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = images::images_in(&tools, one.path()).unwrap();
    let second = images::images_in(&tools, other.path()).unwrap();
    for (first, second) in first.iter().zip(&second) {
        assert_eq!(first.file_name(), second.file_name());
        assert!(fs::read(first).unwrap() == fs::read(second).unwrap(), "{}", first.display());
    }
}
