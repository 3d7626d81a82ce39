//! Who may use whom. The crates are the layers, and each `Cargo.toml` says what its crate uses; here stands what must not come in
//! by any of them, and what no manifest can say: how long a file may be, and that the pages speak of what is there.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "layering/circles.rs"]
mod circles;
#[path = "layering/docs.rs"]
mod docs;
#[path = "layering/size.rs"]
mod size;
#[path = "layering/systems.rs"]
mod systems;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What a crate does not use, not even through others.
const APART: &[(&str, &[&str])] = &[
    ("kosmos-csi-domain", &["futures", "http", "k8s-openapi", "kube", "nix", "tokio", "tonic", "tracing"]),
    ("kosmos-csi-mount", &["k8s-openapi", "kube", "tokio", "tonic"]),
    ("kosmos-csi-mover", &["k8s-openapi", "kosmos-csi-cluster", "kube", "tonic"]),
    ("kosmos-csi-cluster", &["kosmos-csi-domain", "tonic"]),
    ("kosmos-csi-host", &["kosmos-csi-leaf", "tonic"]),
    ("kosmos-csi-leaf", &["kosmos-csi-host", "tonic"]),
    ("kosmos-csi-member", &["kosmos-csi-driver", "tonic"]),
    ("kosmos-csi-driver", &["kosmos-csi-agent", "kosmos-csi-mount", "kosmos-csi-operator", "tonic"]),
    ("kosmos-csi-agent", &["kosmos-csi-driver", "kosmos-csi-mount", "kosmos-csi-operator", "simulate", "tonic"]),
    ("kosmos-csi-operator", &["kosmos-csi-agent", "kosmos-csi-driver", "kosmos-csi-mount", "tonic"]),
    ("kosmos-csi-ui", &["kosmos-csi-agent", "kosmos-csi-csi", "kosmos-csi-mount", "simulate", "tonic"]),
    ("kosmos-csi-csi", &["kosmos-csi-agent", "kosmos-csi-operator", "simulate"]),
    ("kosmos-csi-commands", &["simulate"]),
    ("simulate", &["kosmos-csi-domain", "kosmos-csi-cluster", "tonic"]),
];

/// The crates that are the driver: all but the simulator and those who try it.
const CRATES: [&str; 13] = [
    "agent", "cluster", "commands", "csi", "domain", "driver", "host", "leaf", "member", "mount", "mover", "operator",
    "ui",
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below a folder of the checkout, relative to it.
fn files(folder: &str) -> Vec<PathBuf> {
    let folder = root().join(folder);
    let (mut found, mut open) = (Vec::new(), vec![folder.clone()]);
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path.strip_prefix(&folder).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The names and versions of all that a crate is built from, without what its tests use.
fn tree(name: &str, features: &str) -> BTreeSet<(String, String)> {
    let arguments = ["tree", "--offline", "--edges=normal", "--prefix=none", "--format={p}", "--package", name];
    let more = ["--features", features];
    let output = Command::new(env!("CARGO")).args(arguments).args(more).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let mut packages = BTreeSet::new();
    for line in tree.lines() {
        let mut words = line.split(' ').map(str::to_owned);
        packages.extend(words.next().zip(words.next()));
    }
    packages
}

/// Their names.
fn built_from(name: &str) -> Vec<String> {
    tree(name, "").into_iter().map(|(there, _)| there).collect()
}

#[test]
fn no_crate_is_built_from_what_its_layer_does_not_know() {
    for (name, unknown) in APART {
        let tree = built_from(name);
        assert!(tree.iter().any(|there| there == name), "{name}: {tree:?}");
        let known: Vec<_> = tree.iter().filter(|there| unknown.contains(&there.as_str())).collect();
        assert!(known.is_empty(), "{name} is built from {known:?}");
    }
}

/// The others make spans, and know nobody who collects them.
#[test]
fn traces_are_sent_by_one_crate_where_its_feature_is_asked_for_and_by_the_grpc_that_is_there() {
    for name in CRATES {
        let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let known: Vec<&str> =
            manifest.lines().filter(|row| row.contains("opentelemetry") && row.contains(" = {")).collect();
        assert_eq!(known.is_empty(), name != "commands", "{name}: {known:?}");
        assert!(known.iter().all(|row| row.ends_with("optional = true }")), "{name}: {known:?}");
    }
    let is_of_traces = |(name, _): &(String, String)| name.contains("opentelemetry");
    assert!(!tree("kosmos-csi", "").iter().any(is_of_traces), "a program has them that nobody asked for");
    let with = tree("kosmos-csi", "otlp");
    assert!(with.iter().any(is_of_traces));
    for once in ["hyper", "prost", "tonic", "tracing"] {
        assert_eq!(with.iter().filter(|(name, _)| name == once).count(), 1, "{once}");
    }
}

#[test]
fn every_crate_has_a_layer() {
    let folders = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut folders: Vec<String> = folders.map(|name| name.into_string().unwrap()).collect();
    folders.retain(|name| !["dev", "simulate"].contains(&name.as_str()));
    folders.sort();
    assert_eq!(folders, CRATES);
    for name in CRATES {
        let package = format!("kosmos-csi-{name}");
        assert!(APART.iter().any(|(there, _)| *there == package), "APART has no row for {package}");
    }
    for name in CRATES.into_iter().chain(["dev", "simulate"]) {
        let text = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        let page = text.lines().find_map(|line| line.strip_prefix("//! Its page: `")?.strip_suffix("`."));
        assert!(page.is_some_and(|page| root().join(page).is_file()), "{name}: {page:?} is no page");
    }
}

/// What a manifest says that its crate uses of the others, also on one system alone, in alphabetical order.
fn uses(name: &str) -> Vec<String> {
    let manifest = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let is_meant =
        |head: &str| head == "dependencies]" || head.starts_with("target.") && head.ends_with(".dependencies]");
    let sections = manifest.split("\n[").filter(|section| section.lines().next().is_some_and(is_meant));
    let names = sections.flat_map(str::lines).filter_map(|row| row.strip_suffix(".workspace = true"));
    let mut names: Vec<String> = names.filter(|name| CRATES.contains(name)).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn table_of_layers_says_which_crates_each_knows() {
    let page = fs::read_to_string(root().join("docs/design.md")).unwrap();
    for name in CRATES {
        let row = page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap();
        let told = row.split(" | ").nth(2).unwrap();
        let quoted: Vec<&str> = told.split('`').skip(1).step_by(2).collect();
        let wanted =
            if told == "all of these" { CRATES.into_iter().filter(|other| *other != name).collect() } else { quoted };
        assert_eq!(uses(name), wanted, "{name}");
    }
}

/// What a page promises by the name of a test.
#[test]
fn every_test_that_the_security_page_names_is_there() {
    let page = include_str!("../SECURITY.md");
    let rows = page.lines().filter(|line| line.starts_with("| ")).filter_map(|line| line.rsplit(" | ").next());
    let names = rows.flat_map(|tests| tests.split('`').skip(1).step_by(2));
    let names: Vec<&str> = names.filter(|name| name.contains('_')).collect();
    assert!(names.len() > 15, "the table has {names:?} alone");
    let folders = ["crates", "src", "tests"];
    let texts =
        folders.iter().flat_map(|folder| files(folder).into_iter().map(move |file| root().join(folder).join(file)));
    let texts: Vec<String> = texts.map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_there = |name: &&&str| texts.iter().any(|text| text.contains(&format!("fn {name}()")));
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "SECURITY.md names tests that are not there: {missing:?}");
}
