//! `make bench`: what the driver adds to the least that a driver can do, on a real API server. Everything is a ratio within one
//! run: the same machine, the same member, the same callers, the bare driver and the driver in turns.
//!
//! The fleet's controller-managers and schedulers are stopped; claims are bound at once by a binder, a process of its own.
//! What measures runs inside the fleet, beside the driver, so that both reach the member in the same way.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![allow(
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "it speaks to a person, of small numbers"
)]

#[path = "../clusters/mod.rs"]
mod clusters;

mod again;
mod agent;
mod beside;
mod binder;
mod conditions;
mod delay;
mod flame;
mod goals;
mod inside;
mod least;
mod leaves;
mod measure;
mod members;
mod meters;
mod metrics;
mod outside;
mod page;
mod process;
mod provisioner;
mod question;
mod replica;
mod report;
mod scale;
mod scheduler;
mod seen;
mod sheet;
mod sidecar;
mod start;
mod subject;
mod takeover;
mod told;
mod turn;
mod world;

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Result, bail, ensure};
use clap::{Parser, Subcommand, value_parser};
use clusters::guardian::profile_folder;
use question::Question;
use subject::Terms;
use tokio::signal::unix::{SignalKind, signal};

const MEMBER: &str = "cluster38";
const CLASS: &str = "now";
const NAMESPACE: &str = "bench";
const PATIENCE: Duration = Duration::from_mins(10);

/// What CSI drivers cost beside the least that one can do, in turns on real API servers
#[derive(Debug, Parser)]
#[command(
    override_usage = "bench [OPTIONS]",
    args_override_self = true,
    disable_help_subcommand = true,
    after_long_help = include_str!("subjects/help.txt")
)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// How often all take turns, beside a first time that is not counted; three times at most where the member is far away
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many callers there are at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 100, 1000], overrides_with = "callers")]
    callers: Vec<usize>,
    /// How many milliseconds it takes from the host to the member and back; with a delay there are no more than 100 callers
    #[arg(
        long,
        value_delimiter = ',',
        default_values_t = [0, 1, 20, 100],
        value_parser = value_parser!(u16).range(..=10_000),
        overrides_with = "delays"
    )]
    delays: Vec<u16>,
    /// A driver that is measured as well, as this file says; may be given several times (--help tells more)
    #[arg(long = "subject", value_name = "FILE")]
    subjects: Vec<PathBuf>,
    /// Where the results go as JSON; target/bench.json without it, or target/bench-members.json, target/bench-scheduler.json
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Takes so many minutes at most, and goes on where an earlier run of this kind has ended
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<u64>,
    /// Measures instead what this driver takes with so many simulated members
    #[arg(long, value_delimiter = ',', value_name = "COUNTS", overrides_with = "members")]
    members: Vec<usize>,
    /// What is measured with them; `idle,start` without it
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        value_name = "QUESTIONS",
        requires = "members",
        overrides_with = "ask"
    )]
    ask: Vec<Question>,
    /// How many volumes the host has in each of them from the beginning
    #[arg(long, default_value_t = 0, value_name = "COUNT", requires = "members")]
    volumes: u32,
    /// Fails where a goal is missed, or there is none for what was asked
    #[arg(long, requires = "members")]
    strict: bool,
    /// Measures few and many volumes on simulated members instead
    #[arg(long)]
    scale: bool,
    /// Measures the real scheduler among so many virtual nodes instead, with the room of each in one class and in five, and without
    #[arg(long, value_name = "NODES")]
    scheduler: Option<usize>,
}

/// What the bench starts of itself in processes of their own, and what it makes of its results.
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
    /// Draws a flame graph of what `perf script -F ip,sym` has told
    Flame { samples: PathBuf, picture: PathBuf },
    /// Puts tables of results into a page, between the marks there
    Page {
        page: PathBuf,
        /// Results as JSON; of those that are not there the page keeps what it has
        #[arg(long = "of", value_name = "FILE")]
        of: Vec<PathBuf>,
    },
}

impl Arguments {
    /// Where they go as JSON.
    fn results(&self, name: &str) -> Result<PathBuf> {
        Ok(match &self.json {
            Some(file) => std::path::absolute(file)?,
            None => profile_folder()?.with_file_name(name),
        })
    }

    fn members(&self) -> Result<question::Plan> {
        let asked = if self.ask.is_empty() { vec![Question::Idle, Question::Start] } else { self.ask.clone() };
        let (counts, json) = (self.members.clone(), self.results("bench-members.json")?);
        let (rounds, volumes) = (self.rounds, self.volumes);
        Ok(question::Plan { counts, volumes, asked, rounds, minutes: self.minutes, is_strict: self.strict, json })
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
    pub minutes: Option<u64>,
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
        Ok(Self { rounds: arguments.rounds, callers, delays, subjects, files, minutes: arguments.minutes, json })
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
        arguments.extend(self.minutes.map(|minutes| format!("--minutes={minutes}")));
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
        Some(Part::Flame { samples, picture }) => flame::draw(samples, picture),
        Some(Part::Page { page, of }) => page::write(page, of),
        None => unless_ended(Box::pin(ask(&arguments))).await,
    }
}

/// Who is told to end leaves nothing behind: no driver, no folder, no control group.
async fn unless_ended(work: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        done = work => return done,
        _ = interrupted.recv() => {}
        _ = terminated.recv() => {}
    }
    bail!("it was told to end: rounds that were seen whole are kept")
}

async fn ask(arguments: &Arguments) -> Result<()> {
    if arguments.scale {
        return scale::measure().await;
    }
    if !arguments.members.is_empty() {
        return Box::pin(members::measure(&arguments.members()?)).await;
    }
    match arguments.scheduler {
        Some(nodes) => {
            let json = arguments.results("bench-scheduler.json")?;
            Box::pin(scheduler::measure(nodes, arguments.rounds, arguments.minutes, &json)).await
        }
        None => Box::pin(outside::measure(&Plan::new(arguments)?)).await,
    }
}
