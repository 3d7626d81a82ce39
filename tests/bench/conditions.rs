//! What was measured and where, and in what it is unlike life: said beside the figures.

use std::{fs, process::Command, thread::available_parallelism};

use serde_json::{Value, json};

/// The head of the results.
pub fn conditions(unlike_life: &[&str]) -> Value {
    let toolchain = include_str!("../../rust-toolchain.toml");
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap_or_default();
    json!({
        "commit": printed("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
        "rust": rust.trim_matches('"'),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "processors": available_parallelism().map_or(0, Into::into),
        "processor": processor(),
        "unlike life": unlike_life,
    })
}

pub fn print(head: &Value) {
    let text = |key: &str| head[key].as_str().unwrap_or_default().to_owned();
    println!(
        "\ncommit {}, Rust {}, Linux {}, {} processors ({})\nIn this it is unlike life:",
        text("commit"),
        text("rust"),
        text("kernel"),
        head["processors"],
        text("processor")
    );
    for sentence in head["unlike life"].as_array().into_iter().flatten().filter_map(Value::as_str) {
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
