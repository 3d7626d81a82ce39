//! The `clusters` command: prepares this machine for the tests that need real clusters, starts such clusters for a
//! person, and is the guardian of every fleet.

#[path = "mod.rs"]
mod clusters;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

use clusters::{guard, namespaces, packages, tools_build};

#[derive(Debug, Parser)]
#[command(name = "clusters", about = "Real Kubernetes clusters on this machine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install the distribution's packages that are missing
    Packages,
    /// Build the pinned programs that are missing
    Build,
    /// Guard a fleet until standard input ends
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        name: Option<String>,
    },
    /// Be the first process of a fleet, or of a node
    #[command(hide = true)]
    Init {
        #[arg(long, requires = "folder")]
        node: Option<String>,
        #[arg(long)]
        folder: Option<PathBuf>,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Packages => packages::install(),
        Command::Build => tools_build::build(),
        Command::Guard { name } => guard::guard(name.as_deref()),
        Command::Init {
            node: Some(name),
            folder: Some(folder),
        } => namespaces::first_process_of_node(&folder, &name),
        Command::Init { .. } => namespaces::first_process_of_fleet(),
    }
}
