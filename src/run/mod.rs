//! Puts a role together: clients, registry, services, and the order in which they stop.

mod controller;
mod dev;
pub mod driver;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::Common;
pub use controller::controller;
pub use dev::dev;

/// What only the person who started the process can mend.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// The signals that ask for a stop. Made before anything else is begun: until then the default is to die at once.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
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
        tracing::info!(signal, "stopping: requests under way may finish");
        stop.cancel();
        self.next().await;
    }
}

/// Runs a role until it ends by itself, the grace after a first signal is over, or a second signal comes.
async fn bounded<F>(signals: Signals, stop: CancellationToken, grace: Duration, work: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = work => ended,
        () = signals.stop(stop.clone()) => anyhow::bail!("a second signal came: stopped at once"),
        () = too_long => anyhow::bail!("requests under way did not finish within {}", humantime::format_duration(grace)),
    }
}

fn endpoint(common: &Common) -> Result<PathBuf, Misuse> {
    if let Some(path) = &common.endpoint {
        return Ok(path.clone());
    }
    let standard = std::env::var("CSI_ENDPOINT").unwrap_or_default();
    if standard.is_empty() {
        return Err(Misuse("no socket to serve: give --endpoint unix:///path/to/csi.sock".to_owned()));
    }
    crate::args::socket_path(&standard).map_err(|reason| Misuse(format!("CSI_ENDPOINT: {reason}")))
}
