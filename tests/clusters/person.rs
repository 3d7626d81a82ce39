//! Fleets for persons: `clusters up`, `clusters down`, `clusters status`. Such a fleet has a name and outlives the
//! command that started it.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::fleet::{Fleet, Spec};
use super::guardian::Guardian;
use super::remains::named_folder;

pub async fn up(name: &str, spec: Spec) -> Result<()> {
    let folder = named_folder(name);
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
    let kubectl = fleet.tools().path("kubectl");
    fleet.detach()?;
    tell(name, &folder)?;
    println!("\ntry:");
    let [host, member] = ["host", "cluster38"].map(|name| kubeconfig(&folder, name));
    println!("  {} --kubeconfig {host} get namespaces", kubectl.display());
    println!("  {} --kubeconfig {member} get nodes,storageclasses", kubectl.display());
    println!("  make clusters-down");
    Ok(())
}

pub fn down(name: &str) -> Result<()> {
    let folder = named_folder(name);
    if !folder.exists() {
        println!("no fleet {name} is up");
        return Ok(());
    }
    let Ok(guardian) = Guardian::find(&folder) else {
        bail!("{} is left of a fleet whose guardian is gone: the next fleet to start removes it", folder.display());
    };
    let processes = guardian.end()?;
    println!("ended the fleet {name}: {} processes", processes.len());
    for process in processes {
        println!("  {process}");
    }
    Ok(())
}

pub fn status(name: &str) -> Result<()> {
    let folder = named_folder(name);
    if Guardian::find(&folder).is_err() {
        println!("no fleet {name} is up");
        return Ok(());
    }
    println!("the fleet {name} is up");
    tell(name, &folder)
}

fn tell(name: &str, folder: &Path) -> Result<()> {
    println!("kubeconfigs of the fleet {name}:");
    for entry in folder.read_dir().context("list the fleet's clusters")?.flatten() {
        if entry.path().join("admin.kubeconfig").exists() {
            println!("  {}", kubeconfig(folder, &entry.file_name().to_string_lossy()));
        }
    }
    Ok(())
}

fn kubeconfig(folder: &Path, cluster: &str) -> String {
    folder.join(cluster).join("admin.kubeconfig").display().to_string()
}
