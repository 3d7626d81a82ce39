//! The pinned helm, and what it renders.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::clusters::tools;

pub const CHART: &str = "deploy/chart/kosmos-csi";
pub const NAMESPACE: &str = "kosmos-csi";
/// The agent's.
pub const PODS_NAMESPACE: &str = "kosmos-csi-pods";

pub fn checkout() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Without the settings and caches of whoever runs it. `home` is a folder of its own.
fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(checkout()).env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home);
    command
}

fn told(output: &Output) -> Result<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}{error}", String::from_utf8_lossy(&output.stdout));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What helm prints.
pub fn helm(arguments: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    let program = tools::tool("helm")?;
    let output = command(&program, home.path()).args(arguments).output().context("run helm")?;
    told(&output).with_context(|| format!("helm {}", arguments.join(" ")))
}

/// The chart as `helm template` renders it with these settings.
pub fn rendered(settings: &[&str]) -> Result<String> {
    let mut arguments = vec!["template", "kosmos-csi", CHART, "--namespace", NAMESPACE];
    arguments.extend(settings.iter().flat_map(|setting| ["--set", setting]));
    helm(&arguments)
}

/// Runs the script that renders the manifests into a folder.
pub fn render_manifests(folder: &Path) -> Result<()> {
    let home = tempfile::tempdir()?;
    let script: PathBuf = checkout().join("deploy/manifests/render.sh");
    let output = command(&script, home.path()).env("HELM", tools::tool("helm")?).arg(folder).output();
    told(&output.context("run render.sh")?).map(drop)
}

/// The objects of a file.
pub fn objects(text: &str) -> Result<Vec<Value>> {
    let all: Vec<Value> = serde_saphyr::from_multiple(text).context("read YAML")?;
    Ok(all.into_iter().filter(|object| !object.is_null()).collect())
}
