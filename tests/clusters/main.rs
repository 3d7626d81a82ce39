//! `clusters`: fleets for persons, and the guardian of every fleet.

#[path = "mod.rs"]
mod clusters;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Real Kubernetes clusters on this machine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Guard a fleet until standard input ends.
    #[command(hide = true)]
    Guard {
        #[arg(long)]
        name: Option<String>,
    },
    /// Be the first process of a fleet, or of a node.
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
        Command::Guard { name } => clusters::guard::guard(name.as_deref()),
        Command::Init {
            node: Some(name),
            folder: Some(folder),
        } => clusters::namespaces::first_process_of_node(&folder, &name),
        Command::Init { .. } => clusters::namespaces::first_process_of_fleet(),
    }
}
