//! Puts a role together: clients, registry, services, and the order in which they stop.

pub mod clusters;
pub mod controller;
pub mod driver;
#[cfg(any(test, not(target_os = "linux")))]
mod elsewhere;
mod kubeconfig;
#[cfg(target_os = "linux")]
pub mod mover;
#[cfg(target_os = "linux")]
pub mod node;
pub mod operator;
pub mod virtual_node;
pub mod volume_stats;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use anyhow::Context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{admin, telemetry::Traces};
use cluster::metrics::Metrics;
pub use controller::controller;
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{mover, node};
#[cfg(target_os = "linux")]
pub use mover::mover;
#[cfg(target_os = "linux")]
pub use node::node;
pub use virtual_node::virtual_node;
pub use volume_stats::volume_stats;

/// What only the person who started the process can mend.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// The signals that ask for a stop. Made before anything else is begun: until then the default is to die at once.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }

    /// Cancels the token at the first signal, and returns at the second.
    async fn stop(mut self, stop: CancellationToken) {
        let signal = self.next().await;
        tracing::info!(signal, "kosmos-csi stops: requests under way may finish");
        stop.cancel();
        self.next().await;
    }
}

/// Runs a role until it ends by itself, the grace after a first signal is over, or a second signal comes. What is left of the grace is for
/// its last traces.
pub async fn bounded<F>(
    signals: Signals,
    stop: CancellationToken,
    grace: Duration,
    traces: Traces,
    work: F,
) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let mut too_long = pin!(async {
        stop.cancelled().await;
        tokio::time::sleep(grace).await;
    });
    let ended = tokio::select! {
        ended = work => ended,
        () = signals.stop(stop.clone()) => anyhow::bail!("kosmos-csi stopped at once, as a second signal came"),
        () = &mut too_long => anyhow::bail!("requests under way did not finish within {}", humantime::format_duration(grace)),
    };
    tokio::select! {
        () = traces.end() => {}
        () = too_long => {}
    }
    ended
}

/// A connection is an open file, and each member takes some: a thousand of them more than the 1024 that a process has to itself on many
/// nodes, unless it asks for what it may have. So is each folder around a file that a mover reads.
fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return;
    }
    let (before, now) = (limit.current, limit.maximum);
    match setrlimit(Resource::Nofile, Rlimit { current: now, maximum: now }) {
        Ok(()) => tracing::info!(before, now, "kosmos-csi may have more files and connections open"),
        Err(error) => {
            tracing::warn!(before, %error, "kosmos-csi may have no more files and connections open, which limits how many members it serves, or how deep in a volume a mover reads");
        }
    }
}

/// By the flag, else by the variable that is every CSI driver's.
fn endpoint(flag: Option<&Path>) -> Result<Option<PathBuf>, Misuse> {
    if let Some(path) = flag {
        return Ok(Some(path.to_owned()));
    }
    let standard = std::env::var("CSI_ENDPOINT").unwrap_or_default();
    if standard.is_empty() {
        return Ok(None);
    }
    let path = crate::args::socket_path(&standard);
    path.map(Some).map_err(|reason| Misuse(format!("CSI_ENDPOINT: {reason}")))
}

/// Answers on the admin address, where there is one, until the token is cancelled.
async fn serve_admin(
    address: Option<SocketAddr>,
    ready: &watch::Sender<bool>,
    metrics: &Metrics,
    last: &CancellationToken,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> anyhow::Result<()> {
    let Some(address) = address else { return Ok(()) };
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Misuse(format!("--admin-address {address} cannot be served: {error}")))?;
    let (ready, metrics, last) = (ready.subscribe(), metrics.clone(), last.clone());
    tasks.spawn(async move { admin::serve(listener, ready, metrics, last).await.context("admin endpoint") });
    Ok(())
}

/// A task that ends by itself is a fault: none of them has a reason to.
pub async fn first_failure(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    match tasks.join_next().await {
        Some(ended) => ended.context("a task failed")?.and_then(|()| anyhow::bail!("a task ended that should not")),
        None => std::future::pending().await,
    }
}
