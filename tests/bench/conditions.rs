//! What was measured and where, and in what it is unlike life: said beside the figures.

use std::{
    env, fs,
    hash::{DefaultHasher, Hash, Hasher},
    process::Command,
    thread::available_parallelism,
};

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

/// In it the bench tells its part in the fleet which servers these are.
pub const SERVERS: &str = "KOSMOS_CSI_BENCH_SERVERS";

/// What is measured and what measures, as git finds it: what is written in pages or in other tests changes neither.
const MEASURED: [&str; 11] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates",
    "deploy",
    "proto",
    "rust-toolchain.toml",
    "src",
    "tests/bench",
    "tests/clusters",
    "tests/member-driver",
    ":(exclude)*.md",
];

/// The head of the results: they are comparable where it is the same.
pub fn conditions(unlike_life: &[&str]) -> Value {
    let toolchain = include_str!("../../rust-toolchain.toml");
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap_or_default();
    json!({
        "commit": commit(),
        "rust": rust.trim_matches('"'),
        "servers": env::var(SERVERS).unwrap_or_else(|_| "simulated".to_owned()),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "processors": available_parallelism().map_or(0, Into::into),
        "processor": processor(),
        "unlike life": unlike_life,
    })
}

/// The last one that has changed something of that, and a hash of what was changed since.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let repository = ["-C", env!("CARGO_MANIFEST_DIR")];
        printed("git", &[&repository[..], arguments, &["--"], &MEASURED].concat())
    };
    let (last, changed) = (git(&["log", "-1", "--format=%h"]), git(&["status", "--porcelain"]));
    if changed.is_empty() {
        return last;
    }
    let mut hash = DefaultHasher::new();
    (changed, git(&["diff", "HEAD"])).hash(&mut hash);
    format!("{last}-dirty-{:016x}", hash.finish())
}

/// When a run begins.
pub fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// One sentence.
pub fn told(head: &Value) -> String {
    let text = |key: &str| head[key].as_str().unwrap_or_default().to_owned();
    format!(
        "commit {}, Rust {}, servers: {}, Linux {}, {} processors ({})",
        text("commit"),
        text("rust"),
        text("servers"),
        text("kernel"),
        head["processors"],
        text("processor")
    )
}

/// In what it is unlike life.
pub fn unlike_life(head: &Value) -> impl Iterator<Item = &str> {
    head["unlike life"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

pub fn print(head: &Value) {
    println!("\n{}\nIn this it is unlike life:", told(head));
    for sentence in unlike_life(head) {
        println!("- {sentence}");
    }
}

fn processor() -> String {
    let all = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = all.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    name.trim_start_matches([' ', '\t', ':']).to_owned()
}

/// Nothing where the program is not there.
fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default()
}
