//! Other versions: of a control plane, that of the members, or the minor version of Kubernetes before, which is built where it is asked for;
//! and of driver and agent, that which was built with these tests, or one before.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

use super::world::World;
use crate::{
    clusters::{
        Cluster,
        tools::{Tools, older},
    },
    driver::{Launch, PROGRAM},
};

/// Says where the program of a version before is.
const BEFORE: &str = "KOSMOS_CSI_BEFORE";

pub async fn roll_back(cluster: &Cluster) -> Result<()> {
    let older = older()?;
    cluster.replace_control_plane(|program| older.binary(program)).await.context("roll back a control plane")
}

pub async fn upgrade(cluster: &Cluster, tools: &Tools) -> Result<()> {
    cluster.replace_control_plane(|program| tools.path(program)).await.context("upgrade a control plane")
}

pub fn before() -> Result<PathBuf> {
    let program = env::var_os(BEFORE).with_context(|| format!("{BEFORE} says where a program of before is"))?;
    let program = PathBuf::from(program);
    ensure!(differ(&program, Path::new(PROGRAM))?, "{BEFORE}: {} is the program of now", program.display());
    Ok(program)
}

fn differ(one: &Path, other: &Path) -> Result<bool> {
    let length =
        |path: &Path| Ok::<u64, anyhow::Error>(fs::metadata(path).with_context(|| path.display().to_string())?.len());
    Ok(length(one)? != length(other)? || fs::read(one)? != fs::read(other)?)
}

/// Driver and agent are killed, and begun from a program; without any, from that of now.
pub async fn begin_from(world: &World<'_>, program: Option<PathBuf>) -> Result<()> {
    let rig = world.rig;
    rig.driver.launch_with(Launch { program: program.clone(), ..rig.driver.launch().await }).await;
    rig.driver.kill().await?;
    rig.driver.ensure(&rig.fleet).await?;
    let pods = world.pods.as_ref().context("there is no agent")?;
    pods.agent.lock().await.replace(&Launch { program, ..Launch::default() }).await
}

#[test]
fn program_of_before_is_another_one_than_that_of_now() {
    let folder = tempfile::tempdir().unwrap();
    let [now, same, other] = ["now", "same", "other"].map(|name| folder.path().join(name));
    for (file, text) in [(&now, "new"), (&same, "new"), (&other, "old")] {
        fs::write(file, text).unwrap();
    }
    assert!(!differ(&now, &same).unwrap() && differ(&now, &other).unwrap());
    assert!(differ(&now, &folder.path().join("missing")).is_err());
}
