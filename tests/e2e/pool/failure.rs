//! What a person needs to see of a test that failed, besides the folder with all logs.

use std::{fmt::Write as _, fs};

use crate::clusters::Fleet;

const LINES: usize = 15;
/// Said by the driver and its sidecars in the host.
const LOGS: [&str; 3] = ["controller.log", "host-csi-provisioner.log", "virtual-node.log"];

/// # Panics
/// Always, with the error, the last warnings of the driver and the clusters' last events.
pub fn tell(name: &str, fleet: &Fleet, error: &anyhow::Error) -> ! {
    let mut told = format!("{name}: {error:#}\n");
    for log in LOGS {
        let text = fs::read_to_string(fleet.folder().join(log)).unwrap_or_default();
        let loud: Vec<&str> = text.lines().filter(|line| is_loud(line)).collect();
        section(&mut told, &format!("last warnings in {log}"), &loud);
    }
    for cluster in fleet.clusters() {
        let events = std::process::Command::new(fleet.tools().path("kubectl"))
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .args([
                "--request-timeout=5s",
                "get",
                "events",
                "-A",
                "--field-selector=type=Warning",
                "--sort-by=.lastTimestamp",
            ])
            .env("HOME", fleet.folder())
            .output();
        let events = events.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        section(
            &mut told,
            &format!("last warnings of {}", cluster.name()),
            &events.lines().skip(1).collect::<Vec<_>>(),
        );
    }
    // Once more: who sees the end of a long log alone sees what it was.
    panic!("{told}-- {name} failed: {error:#}");
}

/// As the driver says it, or as the sidecars do: E or W, and the date.
fn is_loud(line: &str) -> bool {
    let of_sidecar =
        line.strip_prefix(['E', 'W']).is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    of_sidecar || ["WARN", "ERROR", "panicked"].iter().any(|word| line.contains(word))
}

fn section(told: &mut String, title: &str, lines: &[&str]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(told, "-- {title}:");
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        let _ = writeln!(told, "   {line}");
    }
}
