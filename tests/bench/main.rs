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
mod inside;
mod least;
mod leaves;
mod measure;
mod process;
mod provisioner;
mod report;
mod scale;
mod seen;
mod subject;
mod told;

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use clusters::{Fleet, Spec};
use serde_json::json;

const MEMBER: &str = "cluster38";
const CLASS: &str = "now";
const NAMESPACE: &str = "bench";
const PATIENCE: Duration = Duration::from_mins(10);

#[derive(Debug, Parser)]
#[command(override_usage = "bench [OPTIONS]", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    part: Option<Part>,
    /// How often the bare driver and the driver take turns
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measures few and many volumes on simulated members instead
    #[arg(long)]
    scale: bool,
}

/// What the bench starts of itself in processes of their own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Measures, inside the fleet whose folder this is
    #[command(hide = true)]
    Inside { folder: PathBuf },
    /// Serves the least that a driver can do
    #[command(hide = true)]
    Least { socket: PathBuf, kubeconfig: PathBuf, until: least::Until },
    /// Binds claims, and tells in a file when
    #[command(hide = true)]
    Bind { kubeconfig: PathBuf, told: PathBuf },
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match &arguments.part {
        Some(Part::Inside { folder }) => Box::pin(inside::measure(folder, arguments.rounds)).await,
        Some(Part::Bind { kubeconfig, told }) => binder::process(kubeconfig, told).await,
        Some(Part::Least { socket, kubeconfig, until }) => least::process(socket, kubeconfig, *until).await,
        None if arguments.scale => scale::measure().await,
        None => outside(arguments.rounds).await,
    }
}

/// Starts the fleet, lets the measuring part run in it, and prints what that prints.
async fn outside(rounds: usize) -> Result<()> {
    println!("starting a host and a member");
    let fleet = Fleet::start_named(Spec { members: 1, nodes: false }, None, |text| println!("{text}")).await?;
    for cluster in fleet.clusters() {
        for process in ["kube-controller-manager", "kube-scheduler"] {
            cluster.stop(process).await?;
        }
    }
    let member = fleet.member(MEMBER);
    for (cluster, name) in fleet.clusters().flat_map(|cluster| [(cluster, NAMESPACE), (cluster, "kosmos-csi")]) {
        cluster
            .apply(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).to_string())
            .await?;
    }
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "bench.kosmos-csi.test", "volumeBindingMode": "Immediate",
    });
    member.apply(&class.to_string()).await?;
    let program = std::env::current_exe().context("find this program")?;
    let folder = fleet.folder().display().to_string();
    let arguments = ["--rounds", &rounds.to_string(), "inside", &folder];
    let measuring = fleet.spawn("measure", program, &arguments, &[])?;
    let mut shown = 0;
    loop {
        let ended = measuring.wait(Duration::from_millis(500)).await;
        let log = measuring.log()?;
        print!("{}", log.get(shown..).unwrap_or_default());
        shown = log.len();
        if let Ok(exit) = ended {
            ensure!(exit.code == Some(0), "measuring failed");
            return Ok(());
        }
    }
}
