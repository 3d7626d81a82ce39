//! What docs/development.md tells a person to type in the first ten minutes, typed as it stands.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{
    clusters::Fleet,
    install::{helm::checkout, readme::blocks},
    pool::{Need, Turn, bare},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const PATIENCE: Duration = Duration::from_mins(5);
/// Of what was printed, in the words of a failure; the log has all.
const LINES: usize = 30;

#[tokio::test]
async fn first_ten_minutes_of_the_development_page_go_as_they_say() {
    let _turn = Turn::take("first_minutes", Need::Bare).await;
    let fleet = bare().await;
    let _logs = fleet.test("first_minutes");
    for member in fleet.members() {
        member.install_local_path("local-path").await.unwrap();
    }
    let typed = type_all(fleet).await;
    leave(fleet).await.unwrap();
    let printed = typed.unwrap();
    let told = |word: &str| printed.lines().filter(|line| line.contains(word)).collect::<Vec<_>>().join("\n");
    assert!(told("persistentvolumeclaim/nginx-pvc condition met").len() > 1, "{printed}");
    assert!(told("nginx ").contains("kosmos-cluster38"), "the pod is not on the virtual node: {printed}");
    let claims = told("persistentvolumeclaim/nginx-pvc   Bound");
    assert_eq!(claims.lines().count(), 2, "in the host and in the member: {printed}");
    assert!(!told("No resources found").is_empty(), "something remains: {printed}");
}

/// All blocks in one shell, as a person has it, which ends what was started in it.
async fn type_all(fleet: &Fleet) -> Result<String> {
    let page = fs::read_to_string(checkout().join("docs/development.md"))?;
    let fleets = format!("fleet={}", fleet.folder().display());
    let text = blocks(&page, "first ten minutes").join("\n");
    ensure!(text.contains("fleet=/tmp/kosmos-fleet-up-default"), "the page names the fleet in another way");
    let text = text.replace("fleet=/tmp/kosmos-fleet-up-default", &fleets).replace("target/debug/kosmos-csi", PROGRAM);
    let script = format!("trap 'kill $(jobs -p)' EXIT\nset -eu\n{text}");
    let log = fleet.folder().join("first-minutes.log");
    tokio::time::timeout(PATIENCE, tokio::task::spawn_blocking(move || typed(&script, &log)))
        .await
        .context("the first ten minutes take longer than five")??
}

fn typed(script: &str, log: &Path) -> Result<String> {
    let output = fs::File::create(log)?;
    let (errors, folder) = (output.try_clone()?, checkout());
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(errors);
    let ended = shell.status().context("start a shell")?;
    let printed = fs::read_to_string(log)?;
    let lines: Vec<&str> = printed.lines().collect();
    ensure!(
        ended.success(),
        "{ended}; {} ends with\n{}",
        log.display(),
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    );
    Ok(printed)
}

/// The clusters as they were.
async fn leave(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    for file in
        ["examples/claim-and-pod.yaml", "examples/virtual-nodes.yaml", "examples/storageclass.yaml", "host.yaml"]
    {
        let path = checkout().join("deploy").join(file).display().to_string();
        host.kubectl(&["delete", "--ignore-not-found", "--wait=false", "-f", &path]).await?;
    }
    Ok(())
}
