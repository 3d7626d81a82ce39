//! The `clusters` command: prepares this machine for the tests that need real clusters, starts such clusters for a
//! person, and is the guardian of every fleet.

#[path = "mod.rs"]
mod clusters;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};

use clusters::{Spec, guard, namespaces, packages, person, product, tools_build};

const NAME: &str = "default";

#[derive(Debug, Parser)]
#[command(name = "clusters", about = "Real Kubernetes clusters on this machine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install the distribution's packages that are missing, and let the machine have several fleets
    Packages,
    /// Build the pinned programs that are missing
    Build {
        /// Only what these binaries need
        binaries: Vec<String>,
        /// In their place a control plane of the minor version before
        #[arg(long, conflicts_with = "binaries")]
        older: bool,
        /// In their place Kubernetes' own end-to-end suites
        #[arg(long, conflicts_with_all = ["binaries", "older"])]
        suites: bool,
    },
    /// Say where one of them is
    Where { binary: String },
    /// Pack the driver's container images
    Image {
        /// The driver's program
        #[arg(long)]
        program: PathBuf,
        /// The image's name; that of the nodes' image has -node behind it
        #[arg(long, default_value = product::NAME)]
        name: String,
        #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
        tag: String,
        /// Where the archives go
        #[arg(long)]
        folder: PathBuf,
    },
    /// Start a fleet that stays until it is ended
    Up {
        #[arg(long, default_value = NAME)]
        name: String,
        /// How many members beside the host
        #[arg(long, default_value_t = 2)]
        members: usize,
        /// Control planes only
        #[arg(long)]
        no_nodes: bool,
    },
    /// End it
    Down {
        #[arg(long, default_value = NAME)]
        name: String,
    },
    /// Say whether it is up
    Status {
        #[arg(long, default_value = NAME)]
        name: String,
    },
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
        Command::Packages => packages::install().and_then(|()| packages::raise_limits()),
        Command::Build { older: true, .. } => tools_build::build_older(),
        Command::Build { suites: true, .. } => tools_build::build_suites(),
        Command::Build { binaries, .. } => tools_build::build(&binaries),
        Command::Where { binary } => tools_build::tell_where(&binary),
        Command::Image { program, name, tag, folder } => product::images(&program, &name, &tag, &folder),
        Command::Up { name, members, no_nodes } => up(&name, Spec { members, nodes: !no_nodes }),
        Command::Down { name } => person::down(&name),
        Command::Status { name } => person::status(&name),
        Command::Guard { name } => guard::guard(name.as_deref()),
        Command::Init { node: Some(name), folder: Some(folder) } => namespaces::first_process_of_node(&folder, &name),
        Command::Init { .. } => namespaces::first_process_of_fleet(),
    }
}

fn up(name: &str, spec: Spec) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    runtime.block_on(person::up(name, spec))
}
