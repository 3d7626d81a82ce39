//! Puts a role together: clients, registry, services, and the order in which they stop.

mod controller;

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::args::Common;
pub use controller::controller;

/// What only the person who started the process can mend.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Misuse(pub String);

/// Cancels the token at the first SIGTERM or SIGINT, and returns at the second.
async fn signals(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    for first in [true, false] {
        let name = tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        };
        if first {
            tracing::info!(signal = name, "stopping: requests under way may finish");
            stop.cancel();
        }
    }
    Ok(())
}

/// Runs a role until it ends by itself, the grace after a first signal is over, or a second signal comes.
async fn bounded<F>(stop: CancellationToken, grace: Duration, work: F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = work => ended,
        impatient = signals(stop.clone()) => {
            impatient?;
            anyhow::bail!("a second signal came: stopped at once")
        }
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
