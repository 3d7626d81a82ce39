//! `make bench`: what the driver adds to the least that a driver can do, on a real API server. Everything is a ratio within one
//! run: the same machine, the same member, the same callers, the bare driver and the driver in turns.
//!
//! The fleet's controller-managers and schedulers are stopped; claims are bound at once by a binder, a process of its own.
//! What measures runs inside the fleet, beside the driver, so that both reach the member in the same way.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "it speaks to a person, of small numbers")]

#[path = "../clusters/mod.rs"]
mod clusters;

mod again;
mod binder;
mod conditions;
mod delay;
mod inside;
mod least;
mod leaves;
mod measure;
mod members;
mod meters;
mod metrics;
mod outside;
mod process;
mod provisioner;
mod report;
mod scale;
mod seen;
mod sheet;
mod sidecar;
mod subject;
mod told;
mod turn;
mod world;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Result, ensure};
use clap::{Parser, Subcommand, value_parser};
use clusters::guardian::profile_folder;
use subject::Terms;

const MEMBER: &str = "cluster38";
const CLASS: &str = "now";
const NAMESPACE: &str = "bench";
const PATIENCE: Duration = Duration::from_mins(10);

/// What CSI drivers cost beside the least that one can do, in turns on real API servers
#[derive(Debug, Parser)]
#[command(
    override_usage = "bench [OPTIONS]",
    disable_help_subcommand = true,
    after_long_help = include_str!("subjects/help.txt")
)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// How often all take turns, beside a first time that is not counted
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many callers there are at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000])]
    callers: Vec<usize>,
    /// How many milliseconds it takes from the host to the member and back; with a delay there are no more than 100 callers
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 20, 100], value_parser = value_parser!(u16).range(..=10_000))]
    delays: Vec<u16>,
    /// A driver that is measured as well, as this file says; may be given several times (--help tells more)
    #[arg(long = "subject", value_name = "FILE")]
    subjects: Vec<PathBuf>,
    /// Where the results go as JSON; target/bench.json without it, and target/bench-members.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Measures instead what this driver takes with so many simulated members, idle and at work, leading and standing by, and how it starts
    #[arg(long, value_delimiter = ',', value_name = "COUNTS")]
    members: Vec<usize>,
    /// Measures few and many volumes on simulated members instead
    #[arg(long)]
    scale: bool,
}

/// What the bench starts of itself in processes of their own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Measures, inside the fleet whose folder this is, also behind this external-provisioner
    #[command(hide = true)]
    Inside { folder: PathBuf, provisioner: PathBuf },
    /// Serves the least that a driver can do
    #[command(hide = true)]
    Least { socket: PathBuf, kubeconfig: PathBuf, until: least::Until },
    /// Passes connections on, and lets what is sent on them wait
    #[command(hide = true)]
    Delay { listen: SocketAddr, to: SocketAddr, milliseconds: u16 },
    /// Binds claims, and tells in a file when
    #[command(hide = true)]
    Bind { kubeconfig: PathBuf, told: PathBuf },
}

impl Arguments {
    /// Where they go as JSON.
    fn results(&self, name: &str) -> Result<PathBuf> {
        Ok(match &self.json {
            Some(file) => std::path::absolute(file)?,
            None => profile_folder()?.with_file_name(name),
        })
    }
}

/// What is to be measured on real API servers.
#[derive(Debug)]
pub struct Plan {
    pub rounds: usize,
    pub callers: Vec<usize>,
    /// Milliseconds.
    pub delays: Vec<u16>,
    /// The bare driver, one that marks too, the driver that is here, and others.
    pub subjects: Vec<Terms>,
    /// What these others are read from.
    files: Vec<PathBuf>,
    pub json: PathBuf,
}

impl Plan {
    fn new(arguments: &Arguments) -> Result<Self> {
        let json = arguments.results("bench.json")?;
        let (callers, delays) = (arguments.callers.clone(), arguments.delays.clone());
        let files = arguments.subjects.iter().map(std::path::absolute).collect::<io::Result<Vec<PathBuf>>>()?;
        let mut subjects = vec![Terms::bare()?, Terms::marked()?, Terms::own()?];
        for file in &files {
            let terms = Terms::read(file)?;
            ensure!(subjects.iter().all(|other| other.name != terms.name), "two drivers are called {}", terms.name);
            subjects.push(terms);
        }
        Ok(Self { rounds: arguments.rounds, callers, delays, subjects, files, json })
    }

    /// As arguments of this program.
    fn arguments(&self) -> Vec<String> {
        let callers: Vec<String> = self.callers.iter().map(ToString::to_string).collect();
        let delays: Vec<String> = self.delays.iter().map(ToString::to_string).collect();
        let mut arguments = vec![
            format!("--rounds={}", self.rounds),
            format!("--callers={}", callers.join(",")),
            format!("--delays={}", delays.join(",")),
            format!("--json={}", self.json.display()),
        ];
        arguments.extend(self.files.iter().map(|file| format!("--subject={}", file.display())));
        arguments
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.part {
        Some(Part::Inside { folder, provisioner }) => {
            Box::pin(inside::measure(folder, provisioner, &Plan::new(&arguments)?)).await
        }
        Some(Part::Bind { kubeconfig, told }) => binder::process(kubeconfig, told).await,
        Some(Part::Delay { listen, to, milliseconds }) => {
            delay::process(*listen, *to, Duration::from_millis((*milliseconds).into()))
        }
        Some(Part::Least { socket, kubeconfig, until }) => least::process(socket, kubeconfig, *until).await,
        None if arguments.scale => scale::measure().await,
        None if !arguments.members.is_empty() => {
            members::measure(&arguments.members, &arguments.results("bench-members.json")?).await
        }
        None => outside::measure(&Plan::new(&arguments)?).await,
    }
}
