//! The `clusters` command: prepares this machine for the tests that need real clusters.

use clap::{Parser, Subcommand};

pub mod images;
pub mod packages;
pub mod progress;
pub mod tools;
pub mod tools_build;
pub mod tools_table;

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
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Packages => packages::install(),
        Command::Build => tools_build::build(),
    }
}
