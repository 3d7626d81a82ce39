//! Other versions: of a control plane, that of the members, or the minor version of Kubernetes before, which is built where it is asked for;
//! and of driver and agent, that which was built with these tests, or one before.

use std::{env, path::PathBuf};

use anyhow::{Context, Result};

use super::world::World;
use crate::{
    clusters::{
        Cluster,
        tools::{Tools, older},
    },
    driver::Launch,
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
    Ok(program.into())
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
