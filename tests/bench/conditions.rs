//! What was measured and where, and in what it is unlike life: said beside the figures.

use std::{fs, process::Command, thread::available_parallelism};

use serde_json::{Value, json};

pub const UNLIKE_LIFE: [&str; 10] = [
    "Callers, drivers, two API servers, their etcds and the binder share the processors: among a hundred callers a time is \
     mostly one of waiting for a processor, which is told.",
    "etcd does not wait for the disk (--unsafe-no-fsync), and the API servers write an audit log without bodies.",
    "All are administrators by certificate: no token is checked and no right is looked up.",
    "No controller-manager, scheduler, webhook or quota: a binder makes the member's volumes at once and lets claims go, and claims of \
     the host are made before the clock runs.",
    "The callers play external-provisioner: each asks for the next volume once it has the last. The host's volume is made beside \
     that, and its binding is one write.",
    "The driver and the bare one have at most 32 requests under way in a cluster; what another has is its own.",
    "A driver is started for each turn, with no volumes but those of the turn, and nothing else is in the clusters.",
    "What a driver does in the background once it has answered counts only as far as it falls into the turn.",
    "A member that is farther away is so for who connects to it from the host's side: what is sent waits half of the delay each way, in \
     a process of its own; nothing is lost, and the line is not narrow.",
    "Processor time of the servers is all that they used meanwhile, also idle.",
];

/// The head of the results.
pub fn conditions() -> Value {
    let toolchain = include_str!("../../rust-toolchain.toml");
    let rust = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap_or_default();
    json!({
        "commit": printed("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
        "rust": rust.trim_matches('"'),
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "processors": available_parallelism().map_or(0, Into::into),
        "processor": processor(),
        "unlike life": UNLIKE_LIFE,
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
    for sentence in UNLIKE_LIFE {
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
