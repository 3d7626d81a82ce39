//! The controller role: Identity and Controller on a private socket beside the sidecars, in the host.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Misuse, Signals, bounded,
    clusters::{check_folder, host_config},
    driver::Driver,
    endpoint, first_failure, raise_open_files, serve_admin,
};
use crate::{args::Controller, telemetry::Traces};
use cluster::{Dial, metrics::Metrics};
use csi::server::{self, Socket};

pub async fn controller(arguments: Controller, traces: Traces) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let path = endpoint(arguments.common.endpoint.as_deref())?;
    let path = path.ok_or_else(|| Misuse("no socket to serve: give --endpoint unix:///path/to/csi.sock".to_owned()))?;
    check_folder(arguments.members.members_dir.as_deref())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), endpoint = %path.display(), "kosmos-csi controller starts");
    raise_open_files();
    let socket = Socket::bind(&path).await.map_err(Misuse)?;
    let ui = listen(arguments.ui_address).await?;
    let stop = CancellationToken::new();
    let grace = arguments.common.process.shutdown_grace;
    let ready = watch::Sender::new(false);
    bounded(signals, stop.clone(), grace, traces, serve(arguments, socket, ui, ready, stop)).await?;
    tracing::info!("kosmos-csi controller has stopped");
    Ok(())
}

async fn listen(address: Option<SocketAddr>) -> anyhow::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| Misuse(format!("--ui-address {address} cannot be served: {error}")))?;
    tracing::info!(address = %listener.local_addr()?, "the page that shows members and volumes is served");
    Ok(Some(listener))
}

/// Serves until the token is cancelled; tells whether it is ready. With a listener for people who look, they are shown what it knows.
pub async fn serve(
    arguments: Controller,
    socket: Socket,
    ui: Option<TcpListener>,
    ready: watch::Sender<bool>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let last = CancellationToken::new();
    let mut tasks = JoinSet::new();
    serve_admin(arguments.common.process.admin_address, &ready, &metrics, &last, &mut tasks).await?;
    let config = host_config(arguments.common.kubeconfig.as_deref()).await?;
    let driver = Driver {
        host: config,
        dial: Dial::Network,
        members_dir: arguments.members.members_dir,
        members_namespace: arguments.members_namespace,
        kosmos_clusters: arguments.members.kosmos_clusters,
        leaf_namespace: arguments.leaf_namespace,
        mover_image: arguments.mover_image,
        moves_at_once: arguments.moves_at_once.get(),
        metrics: metrics.clone(),
    };
    let Some(started) = Box::pin(driver.start(&mut tasks, &stop)).await? else {
        return Ok(());
    };
    if let Some(listener) = ui {
        let (shown, last) = (started.shown, last.clone());
        tasks.spawn(async move { ui::serve(listener, shown, last).await.context("the page") });
    }
    let serving = server::serve_controller(socket, started.controller, metrics, stop.clone());
    tokio::select! {
        served = serving => served.context("the CSI socket")?,
        failed = first_failure(&mut tasks) => failed?,
        never = follow_readiness(started.listed, &ready, &stop) => match never {},
    }
    ready.send_replace(false);
    last.cancel();
    tasks.shutdown().await;
    started.lease.give_back().await;
    Ok(())
}

/// Ready once the sources have been read, until a stop is asked for. Members do not count.
pub(super) async fn follow_readiness(
    mut listed: watch::Receiver<bool>,
    ready: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> std::convert::Infallible {
    if listed.wait_for(|listed| *listed).await.is_ok() && !stop.is_cancelled() {
        ready.send_replace(true);
        tracing::info!("kosmos-csi is ready");
    }
    stop.cancelled().await;
    ready.send_replace(false);
    std::future::pending().await
}
