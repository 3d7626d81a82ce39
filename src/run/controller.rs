//! The controller role: Identity and Controller on a private socket beside the sidecars, in the host.

use std::{path::Path, time::Duration};

use anyhow::Context;
use backon::{BackoffBuilder, ExponentialBuilder};
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Misuse, Signals, bounded, endpoint};
use crate::{
    admin,
    args::Controller,
    cluster::{self, with_causes},
    csi::server::{self, Socket},
    host::Host,
    member::{
        registry::Keeper,
        source::{directory, secrets},
    },
    metrics::Metrics,
    provision::Provisioner,
};

/// The host as it is called in messages and metrics.
const HOST: &str = "(host)";

pub async fn controller(arguments: Controller) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let path = endpoint(&arguments.common)?;
    check_folder(arguments.members_dir.as_deref())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), endpoint = %path.display(), "kosmos-csi controller starts");
    let socket = Socket::bind(&path).await.map_err(Misuse)?;
    let stop = CancellationToken::new();
    let grace = arguments.common.process.shutdown_grace;
    bounded(signals, stop.clone(), grace, serve(arguments, socket, stop)).await?;
    tracing::info!("stopped");
    Ok(())
}

async fn serve(arguments: Controller, socket: Socket, stop: CancellationToken) -> anyhow::Result<()> {
    let metrics = Metrics::new();
    let ready = watch::Sender::new(false);
    let last = CancellationToken::new();
    let mut tasks = JoinSet::new();
    if let Some(address) = arguments.common.process.admin_address {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Misuse(format!("--admin-address {address} cannot be served: {error}")))?;
        let (ready, metrics, last) = (ready.subscribe(), metrics.clone(), last.clone());
        tasks.spawn(async move { admin::serve(listener, ready, metrics, last).await.context("admin endpoint") });
    }
    let config = host_config(arguments.common.kubeconfig.as_deref()).await?;
    let Some(host) = connect(config, &arguments, &metrics, &stop).await? else {
        return Ok(());
    };

    let listed = watch::Sender::new(false);
    let members_stop = CancellationToken::new();
    let (keeper, members) = Keeper::new(host.clone(), metrics.clone());
    let sources = start_sources(&arguments, &host, &mut tasks);
    tasks.spawn({
        let (listed, stop) = (listed.clone(), members_stop.clone());
        async move {
            keeper.run(sources, listed, stop).await;
            Ok(())
        }
    });
    let provisioner = Provisioner { host, members, leaf_namespace: arguments.leaf_namespace };
    let serving = server::serve(socket, provisioner, metrics, stop.clone());
    tokio::select! {
        served = serving => served.context("the CSI socket")?,
        failed = first_failure(&mut tasks) => failed?,
        never = follow_readiness(listed.subscribe(), &ready, &stop) => match never {},
    }
    ready.send_replace(false);
    members_stop.cancel();
    last.cancel();
    tasks.shutdown().await;
    Ok(())
}

fn check_folder(folder: Option<&Path>) -> Result<(), Misuse> {
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Misuse(format!("--members-dir {} is not a folder: make it, or leave the flag out", folder.display())))
        }
        _ => Ok(()),
    }
}

async fn host_config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|error| {
            Misuse(format!("no --kubeconfig given, and this is not a pod with a service account: {error}")).into()
        });
    };
    let misuse = |error: kube::config::KubeconfigError| Misuse(format!("--kubeconfig {}: {error}", path.display()));
    let kubeconfig = Kubeconfig::read_from(path).map_err(misuse)?;
    Ok(Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(misuse)?)
}

/// Tries until the host answers; nothing can be decided without it.
async fn connect(
    config: Config,
    arguments: &Controller,
    metrics: &Metrics,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Host>> {
    let line = cluster::connect(HOST, config, metrics)
        .map_err(|error| Misuse(format!("the host's kubeconfig cannot be used: {}", with_causes(&error))))?;
    let mut pauses = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(300))
        .with_max_delay(Duration::from_secs(5))
        .with_jitter()
        .without_max_times()
        .build();
    loop {
        let connecting = Host::connect(line.probe.clone(), arguments.members_namespace.clone());
        match stop.run_until_cancelled(connecting).await {
            None => return Ok(None),
            Some(Ok(host)) => return Ok(Some(host)),
            Some(Err(error)) => tracing::warn!(%error, "the host does not answer yet"),
        }
        let pause = tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(5)));
        if stop.run_until_cancelled(pause).await.is_none() {
            return Ok(None);
        }
    }
}

fn start_sources(
    arguments: &Controller,
    host: &Host,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> Vec<crate::member::source::News> {
    let mut news = Vec::new();
    if let Some(folder) = arguments.members_dir.clone() {
        let (sender, receiver) = watch::channel(None);
        tasks.spawn(async move {
            directory::follow(folder, sender).await;
            Ok(())
        });
        news.push(receiver);
    }
    let (sender, receiver) = watch::channel(None);
    let (client, namespace) = (host.client.clone(), host.namespace.clone());
    tasks.spawn(async move {
        secrets::follow(client, namespace, sender).await;
        Ok(())
    });
    news.push(receiver);
    news
}

/// A task that ends by itself is a fault: none of them has a reason to.
async fn first_failure(tasks: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    match tasks.join_next().await {
        Some(ended) => ended.context("a task failed")?.and_then(|()| anyhow::bail!("a task ended that should not")),
        None => std::future::pending().await,
    }
}

/// Ready once the sources have been read, until a stop is asked for. Members do not count.
async fn follow_readiness(
    mut listed: watch::Receiver<bool>,
    ready: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> std::convert::Infallible {
    if listed.wait_for(|listed| *listed).await.is_ok() && !stop.is_cancelled() {
        ready.send_replace(true);
        tracing::info!("ready");
    }
    stop.cancelled().await;
    ready.send_replace(false);
    std::future::pending().await
}
