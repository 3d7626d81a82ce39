//! Who may use whom inside the driver. The tables below are the architecture; the rest reads its sources and holds them
//! against the tables. What a whole crate may use, its `Cargo.toml` says.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "layering/docs.rs"]
mod docs;
#[path = "layering/source.rs"]
mod source;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where the driver is: its library, and the command.
const SOURCES: [&str; 2] = ["crates/driver/src", "src"];

/// What each of its modules may use of the others. A path allows what lies below it; `*` allows all.
const MODULES: &[(&str, &[&str])] = &[
    // the domain
    ("error", &[]),
    ("printable", &[]),
    ("volume", &["error"]),
    // clusters
    ("metrics", &[]),
    ("cluster", &["metrics"]),
    ("host", &["cluster", "error", "printable", "volume"]),
    ("leaf", &["cluster", "error", "volume"]),
    ("member", &["cluster", "error", "host", "leaf", "metrics", "volume"]),
    ("attach", &["error", "host", "leaf", "member", "volume"]),
    ("lease", &["cluster"]),
    // a machine's kernel
    ("mount", &["error", "volume"]),
    // what nobody asks for
    ("follow", &["error", "host", "leaf", "member", "volume"]),
    // what an operator's commands decide
    ("operator", &["leaf::ownership", "member::token", "volume"]),
    // what stands in the host for its members
    ("agent", &["cluster", "error", "host", "leaf", "member", "volume"]),
    // use-cases, which see clusters only through the four above
    ("provision", &["attach", "error", "host", "leaf", "member", "volume"]),
    // edges
    ("csi", &["cluster::Writes", "error", "metrics", "mount", "printable", "provision", "volume"]),
    ("admin", &["metrics"]),
    ("telemetry", &[]),
    ("args", &["mount::source", "telemetry", "volume"]),
    // what puts it together
    ("run", &["*"]),
    ("lib", &[]),
    ("arguments", &["args"]),
    ("main", &["args", "printable", "run", "telemetry"]),
];

/// Without input or output, and without a clock.
const PURE: &[&str] = &["error", "operator", "printable", "volume"];

/// Where each dependency may be named: in a module and all below it. Those without a row may be named everywhere but in the pure modules.
const CRATES: &[(&str, &[&str])] = &[
    ("anyhow", &["run"]),
    ("axum", &["admin"]),
    ("clap", &["args", "arguments", "telemetry", "main"]),
    ("http", &["agent", "cluster", "csi"]),
    ("humantime", &["args", "run"]),
    ("hyper", &["agent::kubelet_api", "cluster"]),
    ("hyper_util", &["agent::kubelet_api"]),
    ("ipnet", &["member"]),
    ("k8s_openapi", &["agent", "cluster", "host", "leaf", "lease", "member", "operator", "run"]),
    ("kube", &["agent", "cluster", "host", "leaf", "lease", "member", "run"]),
    ("nix", &["mount::linux"]),
    ("prometheus_client", &["metrics"]),
    ("prost", &["csi"]),
    ("prost_types", &["csi"]),
    ("rcgen", &["agent::kubelet_api"]),
    ("rustls", &["agent::kubelet_api", "main"]),
    ("serde", &["leaf", "member", "mount", "run", "volume"]),
    ("serde_json", &["agent", "cluster", "host", "leaf", "lease", "member", "mount", "operator", "run", "volume"]),
    ("serde_saphyr", &["operator"]),
    ("sha2", &["agent", "host", "mount", "volume"]),
    ("smallvec", &["leaf"]),
    ("thiserror", &["error", "run"]),
    ("tokio_rustls", &["agent::kubelet_api"]),
    ("tokio_stream", &["csi"]),
    ("tonic", &["csi"]),
    ("tonic_prost", &["csi"]),
    ("tower", &["cluster", "csi"]),
    ("tracing_subscriber", &["telemetry"]),
];

/// Parts of the standard library that reach outside of the process.
const OUTSIDE: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];

/// Of sources, and of tests.
const LONGEST_FILES: [(&str, usize); 3] = [("crates", 400), ("src", 400), ("tests", 600)];

/// A file of the driver as a module: `leaf/claim.rs` is `leaf::claim`.
fn module_of(file: &Path) -> Vec<String> {
    let mut parts: Vec<String> = file.with_extension("").iter().map(|part| part.to_string_lossy().into()).collect();
    parts.pop_if(|last| last == "mod");
    parts
}

/// What is wrong in one file, one sentence each.
fn violations(folder: &str, file: &Path, text: &str, dependencies: &[String]) -> Vec<String> {
    let module = module_of(file);
    let layer = module[0].as_str();
    let row = |table: &'static [(&str, &'static [&str])], name: &str| {
        table.iter().find(|(key, _)| *key == name).map(|(_, allowed)| *allowed)
    };
    let Some(allowed) = row(MODULES, layer) else {
        return vec![format!("{folder}/{}: module {layer} has no row in MODULES", file.display())];
    };
    let mut wrong = Vec::new();
    for written in source::paths(text) {
        let rule = match target(&module, &written) {
            Target::Own(path) if path[0] == layer || covers(allowed, &path) => continue,
            Target::Own(path) => {
                format!("{layer} may not use crate::{}; it may use {}", path.join("::"), list(allowed))
            }
            Target::Foreign(path) if path[0] == "std" => {
                let outside = path.get(1).is_some_and(|part| OUTSIDE.contains(&part.as_str()));
                if !outside || !PURE.contains(&layer) {
                    continue;
                }
                format!("{layer} is pure and may not use {}", path.join("::"))
            }
            Target::Foreign(path) if dependencies.contains(&path[0]) => match row(CRATES, &path[0]) {
                Some(places) if !covers(places, &module) => {
                    format!("{layer} may not name the crate {}; {} may", path[0], list(places))
                }
                None if PURE.contains(&layer) => format!("{layer} is pure and may not name the crate {}", path[0]),
                _ => continue,
            },
            Target::Foreign(_) => continue,
        };
        wrong.push(format!("{folder}/{}:{}: {rule}", file.display(), written.line));
    }
    wrong.dedup(); // one rule can be broken twice in one line
    wrong
}

enum Target {
    /// A path below the crate's root.
    Own(Vec<String>),
    /// Another crate, or a name of the file's own.
    Foreign(Vec<String>),
}

/// Where a path leads from a file.
fn target(module: &[String], written: &source::Written) -> Target {
    let path = &written.segments;
    let ups = path.iter().take_while(|part| *part == "super").count();
    match path[0].as_str() {
        "crate" | "kosmos_csi" if path.len() > 1 => Target::Own(path[1..].to_vec()),
        "super" => {
            // The roots are files too, but no modules.
            let here = module.iter().filter(|part| !matches!(part.as_str(), "lib" | "main"));
            let mut from: Vec<String> = here.chain(&written.inside).cloned().collect();
            from.truncate(from.len().saturating_sub(ups));
            from.extend_from_slice(&path[ups..]);
            Target::Own(if from.is_empty() { vec!["*".to_owned()] } else { from })
        }
        _ => Target::Foreign(path.clone()),
    }
}

fn covers(allowed: &[&str], path: &[String]) -> bool {
    let path = path.join("::");
    allowed.iter().any(|rule| {
        let below = path.strip_prefix(rule).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
        *rule == "*" || below
    })
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The crates that the driver depends on, as they are named in code.
fn dependencies() -> Vec<String> {
    let manifest = fs::read_to_string(root().join("crates/driver/Cargo.toml")).unwrap();
    let section = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let rows = section.take_while(|line| !line.starts_with('['));
    rows.filter_map(|line| Some(line.split(['.', ' ', '=']).next()?.replace('-', "_")))
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .collect()
}

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

#[test]
fn modules_and_crates_are_used_only_where_the_tables_allow() {
    let dependencies = dependencies();
    let wrong = SOURCES.iter().flat_map(|folder| files(folder).into_iter().map(move |file| (folder, file)));
    let wrong = wrong.flat_map(|(folder, file)| {
        let text = fs::read_to_string(root().join(folder).join(&file)).unwrap();
        violations(folder, &file, &text, &dependencies)
    });
    let wrong: Vec<String> = wrong.collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn tables_speak_of_what_exists() {
    let modules = SOURCES.iter().flat_map(|folder| files(folder));
    let modules: Vec<Vec<String>> = modules.map(|file| module_of(&file)).collect();
    let layers: Vec<&String> = modules.iter().map(|module| &module[0]).collect();
    let dependencies = dependencies();
    for (layer, _) in MODULES {
        assert!(layers.iter().any(|there| *there == layer), "MODULES has a row for {layer}, which does not exist");
    }
    for (name, places) in CRATES {
        assert!(dependencies.iter().any(|there| there == name), "CRATES has a row for {name}: no dependency");
        let there = |place: &&&str| modules.iter().any(|module| module.join("::") == **place);
        let unknown: Vec<_> = places.iter().filter(|place| !there(place)).collect();
        assert!(unknown.is_empty(), "CRATES allows {name} in {unknown:?}, which does not exist");
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

#[test]
fn no_file_is_too_long_to_read() {
    for (folder, longest) in LONGEST_FILES {
        for file in files(folder) {
            let lines = fs::read_to_string(root().join(folder).join(&file)).unwrap().lines().count();
            assert!(lines <= longest, "{folder}/{} has {lines} lines: at most {longest}", file.display());
        }
    }
}

#[test]
fn every_way_to_break_a_rule_is_reported_with_its_line() {
    for (file, text, rule) in [
        (
            "leaf/claim.rs",
            "use crate::csi::status;",
            "crates/driver/src/leaf/claim.rs:1: leaf may not use crate::csi::status",
        ),
        ("leaf/claim.rs", "use crate::{\n    error::{Error, Result},\n    provision,\n};", ":3: leaf may not use"),
        ("leaf/claim.rs", "\nfn f() { crate::member::x() }", ":2: leaf may not use crate::member::x"),
        ("leaf/claim.rs", "use super::super::run::Misuse;", "leaf may not use crate::run::Misuse"),
        ("leaf/claim.rs", "mod a { use super::super::super::csi; }", "leaf may not use crate::csi"),
        ("leaf/mod.rs", "use super::csi;", "leaf may not use crate::csi"),
        ("csi/identity.rs", "use crate::leaf::claim::Wanted;", "it may use cluster::Writes, error, metrics"),
        ("provision/create.rs", "use {std::fmt, kube::Api};", "provision may not name the crate kube"),
        ("provision/create.rs", "fn f(p: &::k8s_openapi::Pod) {}", "the crate k8s_openapi; agent, cluster, host"),
        ("host/mod.rs", "#[tonic::async_trait]\nimpl A for B {}", ":1: host may not name the crate tonic; csi may"),
        ("host/mod.rs", "extern crate anyhow;", "host may not name the crate anyhow"),
        ("host/mod.rs", "use anyhow as error;", "host may not name the crate anyhow"),
        (
            "volume/id.rs",
            "async fn f() { tokio::time::sleep(d).await }",
            "volume is pure and may not name the crate tokio",
        ),
        ("mount/table.rs", "use nix::mount;", "mount may not name the crate nix; mount::linux may"),
        ("volume/id.rs", "use std::{fmt, fs};", "volume is pure and may not use std::fs"),
        ("main.rs", "use kosmos_csi::{args::Role, member};", "main may not use crate::member"),
        ("extra/mod.rs", "", "module extra has no row in MODULES"),
    ] {
        let found = violations(SOURCES[0], Path::new(file), text, &dependencies());
        assert!(found.len() == 1 && found[0].contains(rule), "{file} {text:?}: {found:?}");
    }
}

#[test]
fn what_is_no_use_is_not_reported() {
    let text = r##"
        //! [`crate::csi`] and tonic::Status
        /* use crate::run; /* kube::Api */ tonic::Code */
        use super::{Cluster, ownership::{self, FINALIZER}};
        use crate::error::Error as Outcome;
        const A: &str = "use crate::csi; \" tonic::Code";
        const B: &str = r#"crate::run::x " tonic::Code"#;
        const C: (char, char, u8) = ('"', '\'', b'"');
        fn f<'a>(x: &'a str) -> impl Sized + use<'a> { self::g(super::http::X, x.kube) }
        #[cfg(test)]
        mod tests { use super::*; mod deeper { use super::super::claim; } }
    "##;
    assert_eq!(violations(SOURCES[0], Path::new("leaf/rows.rs"), text, &dependencies()), Vec::<String>::new());
}
