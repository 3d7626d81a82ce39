//! The virtual-node role: the agent behind the virtual nodes, on the replica that holds its lease.

use std::{net::SocketAddr, sync::Arc};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Misuse, Signals, bounded,
    clusters::{Clusters, check_folder, host_config},
    controller::follow_readiness,
    first_failure, raise_open_files, serve_admin,
};
use crate::args::{self, KubeletApi, VirtualNode};
use agent::{
    Agent, NodeMode, Settings,
    kubelet_api::{Authority, Credentials, Server, Shown},
};
use cluster::{
    Dial,
    lease::{self, Lease},
    metrics::Metrics,
};
use host::Host;
use member::{Registry, Scope, source::Account};

pub async fn virtual_node(arguments: VirtualNode) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    check_folder(arguments.members.members_dir.as_deref())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "kosmos-csi virtual-node starts");
    raise_open_files();
    let stop = CancellationToken::new();
    let grace = arguments.process.shutdown_grace;
    bounded(signals, stop.clone(), grace, Box::pin(run(arguments, stop))).await?;
    tracing::info!("stopped");
    Ok(())
}

async fn run(arguments: VirtualNode, stop: CancellationToken) -> anyhow::Result<()> {
    let (metrics, last, ready) = (Metrics::new(), CancellationToken::new(), watch::Sender::new(false));
    let mut tasks = JoinSet::new();
    serve_admin(arguments.process.admin_address, &ready, &metrics, &last, &mut tasks).await?;
    let kubelet_api = Bound::new(arguments.kubelet_api).await?;
    let settings = Settings {
        node_mode: match arguments.node_mode {
            args::NodeMode::Member => NodeMode::Member,
            args::NodeMode::Node => NodeMode::Node,
        },
        kubelet_api: kubelet_api.as_ref().map(|kubelet_api| kubelet_api.told),
        host_address: arguments.host_address,
    };
    let clusters = Clusters {
        host: host_config(arguments.kubeconfig.as_deref()).await?,
        dial: Dial::Network,
        members_dir: arguments.members.members_dir,
        members_namespace: arguments.members_namespace,
        kosmos_clusters: arguments.members.kosmos_clusters,
        metrics,
    };
    let Some(started) = start(clusters, settings, kubelet_api, &mut tasks, &stop).await? else { return Ok(()) };
    tokio::select! {
        () = stop.cancelled() => {}
        failed = first_failure(&mut tasks) => failed?,
        never = follow_readiness(started.listed, &ready, &stop) => match never {},
    }
    ready.send_replace(false);
    last.cancel();
    tasks.shutdown().await;
    started.lease.give_back().await;
    Ok(())
}

/// The kubelet's endpoint, before there is anybody to ask for it.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    /// By the virtual nodes.
    told: SocketAddr,
    credentials: Credentials,
}

impl Bound {
    async fn new(flags: KubeletApi) -> Result<Option<Self>, Misuse> {
        let Some(address) = flags.kubelet_address else { return Ok(None) };
        if address.ip().is_unspecified() {
            return Err(Misuse(format!(
                "--kubelet-address {address}: virtual nodes tell it to the host's API server, so it must be the one address \
                 at which this process is reached, such as the pod's"
            )));
        }
        let unfit = |reason| Misuse(format!("the kubelet endpoint cannot be served: {reason}"));
        let shown = match (flags.kubelet_certificate, flags.kubelet_key) {
            (Some(certificate), Some(key)) => Shown::Files { certificate, key },
            _ => Shown::own(address.ip()).map_err(unfit)?,
        };
        let authority = flags.kubelet_client_ca.map_or_else(Authority::of_host, Authority::File);
        let credentials = Credentials { authority, shown };
        credentials.check().map_err(unfit)?;
        if let Some(told) = flags.kubelet_advertise_address {
            credentials
                .shown
                .names(told)
                .map_err(|reason| Misuse(format!("--kubelet-advertise-address {told}: {reason}")))?;
        }
        let unserved = |error| Misuse(format!("--kubelet-address {address} cannot be served: {error}"));
        let listener = TcpListener::bind(address).await.map_err(unserved)?;
        let address = listener.local_addr().map_err(unserved)?;
        let told = SocketAddr::new(flags.kubelet_advertise_address.unwrap_or_else(|| address.ip()), address.port());
        Ok(Some(Self { listener, address, told, credentials }))
    }

    /// On every replica: nodes tell the address of the one that leads, and conversations outlast that.
    fn serve(self, host: &Host, members: &Registry, tasks: &mut JoinSet<anyhow::Result<()>>, stop: &CancellationToken) {
        let kubelet_api = Server { host: host.clone(), members: members.clone(), credentials: self.credentials };
        let (listener, stop) = (self.listener, stop.clone());
        tasks.spawn(async move {
            kubelet_api.serve(listener, stop).await;
            // It ends when all is to end, which is no failure.
            std::future::pending().await
        });
    }
}

/// An agent at work.
#[derive(Debug)]
pub struct Started {
    /// True once every source of members has been read.
    pub listed: watch::Receiver<bool>,
    /// To be given back once its tasks have ended.
    pub lease: Arc<Lease>,
}

/// Starts the agent; none where a stop was asked for before.
pub async fn start(
    clusters: Clusters,
    settings: Settings,
    kubelet_api: Option<Bound>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Started>> {
    let Some(host) = clusters.connect(stop).await? else { return Ok(None) };
    let (members, listed) = clusters.follow(&host, Account::VirtualNode, Scope::Nothing, tasks);
    if let Some(kubelet_api) = kubelet_api {
        tracing::info!(address = %kubelet_api.address, told = %kubelet_api.told, "serves the kubelet endpoint");
        kubelet_api.serve(&host, &members, tasks, stop);
    }
    let lease = Arc::new(Lease::new(host.client.clone(), &host.namespace, lease::VIRTUAL_NODE));
    let agent = Agent::new(host, members, settings);
    let leading = Arc::clone(&lease);
    tasks.spawn(async move {
        leading.lead(|| Box::pin(agent.clone().run())).await;
        Ok(())
    });
    Ok(Some(Started { listed, lease }))
}
