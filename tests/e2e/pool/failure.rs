//! What a person needs to see of a test that failed, besides the folder with all logs.

use std::{fmt::Write as _, fs};

use crate::clusters::{Cluster, Fleet};

const LINES: usize = 15;
/// Said by the driver, its sidecars and the scheduler in the host.
const LOGS: [&str; 4] = ["controller.log", "host-csi-provisioner.log", "virtual-node.log", "host/kube-scheduler.log"];

/// What a cluster is asked, shortest first: who sees the beginning alone sees why a pod waits.
const ASKED: [(&str, &[&str]); 3] = [
    ("pods without a node", &["pods", "-A", "--field-selector=spec.nodeName=", PODS]),
    ("nodes", &["nodes", NODES]),
    ("last warnings", &["events", "-A", "--field-selector=type=Warning", "--sort-by=.lastTimestamp"]),
];
const PODS: &str = r#"--output=custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,WHY:.status.conditions[?(@.type=="PodScheduled")].message"#;
const NODES: &str = r#"--output=custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,TAINTS:.spec.taints[*].key"#;

/// # Panics
/// Always, with the error, what waits in the clusters, and the last warnings of the driver.
pub fn tell(name: &str, fleet: &Fleet, error: &anyhow::Error) -> ! {
    let mut told = format!("{name}: {error:#}\n");
    for (what, asked) in ASKED {
        for cluster in fleet.clusters() {
            let answer = ask(fleet, cluster, asked);
            section(&mut told, &format!("{what} of {}", cluster.name()), &answer.lines().skip(1).collect::<Vec<_>>());
        }
    }
    for log in LOGS {
        let text = fs::read_to_string(fleet.folder().join(log)).unwrap_or_default();
        let loud: Vec<&str> = text.lines().filter(|line| is_loud(line)).collect();
        section(&mut told, &format!("last warnings in {log}"), &loud);
    }
    // Once more: who sees the end of a long log alone sees what it was.
    panic!("{told}-- {name} failed: {error:#}");
}

fn ask(fleet: &Fleet, cluster: &Cluster, asked: &[&str]) -> String {
    let kubectl = std::process::Command::new(fleet.tools().path("kubectl"))
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig())
        .args(["--request-timeout=5s", "get"])
        .args(asked)
        .env("HOME", fleet.folder())
        .output();
    kubectl.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
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
