//! A control plane of another version of Kubernetes: that of the members, or the minor version before, which is built where it is asked for.

use anyhow::{Context, Result};

use crate::clusters::{
    Cluster,
    tools::{Tools, older},
};

pub async fn roll_back(cluster: &Cluster) -> Result<()> {
    let older = older()?;
    cluster.replace_control_plane(|program| older.binary(program)).await.context("roll back a control plane")
}

pub async fn upgrade(cluster: &Cluster, tools: &Tools) -> Result<()> {
    cluster.replace_control_plane(|program| tools.path(program)).await.context("upgrade a control plane")
}
