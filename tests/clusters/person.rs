//! Fleets for persons: `clusters up`, `clusters down`, `clusters status`. Such a fleet has a name and outlives the
//! command that started it.

use std::path::Path;

use anyhow::{Context, Result};

use super::fleet::{Fleet, Spec};
use super::guardian::Guardian;
use super::images::BUSYBOX;
use super::remains::{self, named_folder};

pub async fn up(name: &str, spec: Spec) -> Result<()> {
    let folder = named_folder(name)?;
    if Guardian::find(&folder).is_ok() {
        println!("the fleet {name} is up already");
        return tell(name, &folder);
    }
    let clusters = spec.members + 1;
    println!("starting {clusters} clusters{}", if spec.nodes { " with a node each" } else { "" });
    let fleet = Fleet::start_named(spec, Some(name), |progress| println!("  {progress}")).await?;
    if spec.nodes {
        for member in fleet.members() {
            member.install_local_path("local-path").await?;
            println!("  {}: StorageClass local-path", member.name());
        }
    }
    let kubectl = fleet.tools().path("kubectl").display().to_string();
    let last = fleet.clusters().last().context("a fleet without clusters")?.name().to_owned();
    fleet.detach()?;
    tell(name, &folder)?;
    let [host, last] =
        ["host", &last].map(|cluster| format!("{kubectl} --kubeconfig {}", kubeconfig(&folder, cluster)));
    println!("\ntry:\n  {host} get namespaces");
    println!("  {last} get nodes,storageclasses");
    if spec.nodes {
        println!("  {last} run hello --image {BUSYBOX} --restart Never -- sleep 1000");
    }
    println!("\nto end it: make clusters-down");
    Ok(())
}

pub fn down(name: &str) -> Result<()> {
    let folder = named_folder(name)?;
    if !folder.exists() {
        println!("no fleet {name} is up");
        return Ok(());
    }
    let Ok(guardian) = Guardian::find(&folder) else {
        remains::sweep()?;
        println!("removed what was left of the fleet {name}: its guardian had been killed");
        return Ok(());
    };
    let processes = guardian.end()?;
    println!("ended the fleet {name}: {} processes", processes.len());
    for process in processes {
        println!("  {process}");
    }
    Ok(())
}

pub fn status(name: &str) -> Result<()> {
    let folder = named_folder(name)?;
    if Guardian::find(&folder).is_err() {
        println!("no fleet {name} is up");
        return Ok(());
    }
    println!("the fleet {name} is up");
    tell(name, &folder)
}

fn tell(name: &str, folder: &Path) -> Result<()> {
    println!("kubeconfigs of the fleet {name}:");
    let entries = folder.read_dir().context("list the fleet's clusters")?.flatten();
    let mut clusters: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    clusters.retain(|cluster| folder.join(cluster).join("admin.kubeconfig").exists());
    clusters.sort();
    for cluster in clusters {
        println!("  {}", kubeconfig(folder, &cluster));
    }
    Ok(())
}

fn kubeconfig(folder: &Path, cluster: &str) -> String {
    folder.join(cluster).join("admin.kubeconfig").display().to_string()
}
