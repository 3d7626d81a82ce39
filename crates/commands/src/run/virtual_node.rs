//! The virtual-node role: the agent behind the virtual nodes, on the replica that holds its lease.

use std::{net::SocketAddr, ops::RangeInclusive, sync::Arc};

use tokio::{net::TcpListener, sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Misuse, Signals, bounded,
    clusters::{Clusters, check_folder, host_config},
    controller::follow_readiness,
    first_failure, raise_open_files, serve_admin,
};
use crate::{
    args::{self, KubeletApi, VirtualNode},
    telemetry::Traces,
};
use agent::{
    Agent, KubeletAddress, NodeMode, Settings,
    kubelet_api::{Authority, Credentials, Server, Shown},
    usage::{Ports, Usage},
};
use cluster::{
    Dial,
    lease::{self, Lease},
    metrics::Metrics,
};
use host::Host;
use member::{Registry, Scope, source::Account};

pub async fn virtual_node(arguments: VirtualNode, traces: Traces) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    check_folder(arguments.members.members_dir.as_deref())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "kosmos-csi virtual-node starts");
    raise_open_files();
    let stop = CancellationToken::new();
    let grace = arguments.process.shutdown_grace;
    bounded(signals, stop.clone(), grace, traces, Box::pin(run(arguments, stop))).await?;
    tracing::info!("kosmos-csi virtual-node has stopped");
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
        kubelet_api: kubelet_api.as_ref().map(|kubelet_api| kubelet_api.told.clone()),
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
    /// At the address, and at the ports that virtual nodes have for themselves.
    listeners: Vec<TcpListener>,
    address: SocketAddr,
    /// By the virtual nodes.
    told: KubeletAddress,
    credentials: Credentials,
}

impl Bound {
    async fn new(flags: KubeletApi) -> Result<Option<Self>, Misuse> {
        let Some(address) = flags.kubelet_address else { return Ok(None) };
        if address.ip().is_unspecified() {
            return Err(Misuse(format!(
                "--kubelet-address {address}: the host's API server connects to this address, so it must be the one address at \
                 which it reaches this process, such as the pod's"
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
        let shared = bind(address).await?;
        let address = shared.local_addr().unwrap_or(address);
        let own = ports(address, flags.kubelet_node_ports)?;
        let mut listeners = vec![shared];
        for port in own.clone().into_iter().flatten() {
            listeners.push(bind(SocketAddr::new(address.ip(), port)).await?);
        }
        let told = KubeletAddress {
            shared: SocketAddr::new(flags.kubelet_advertise_address.unwrap_or_else(|| address.ip()), address.port()),
            usage: own.map(|own| Arc::new(Usage::new(Ports::new(own)))),
        };
        Ok(Some(Self { listeners, address, told, credentials }))
    }

    /// On every replica: nodes tell the address of the one that leads, and conversations outlast that.
    fn serve(self, host: &Host, members: &Registry, tasks: &mut JoinSet<anyhow::Result<()>>, stop: &CancellationToken) {
        let kubelet_api = Server {
            host: host.clone(),
            members: members.clone(),
            credentials: self.credentials,
            usage: self.told.usage,
        };
        let (listeners, stop) = (self.listeners, stop.clone());
        tasks.spawn(async move {
            kubelet_api.serve(listeners, stop).await;
            // It ends when all is to end, which is no failure.
            std::future::pending().await
        });
    }
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Misuse> {
    let unserved = |error| Misuse(format!("--kubelet-address {address} cannot be served: {error}"));
    TcpListener::bind(address).await.map_err(unserved)
}

/// Those that follow the one that all nodes share; none where there are to be none.
fn ports(address: SocketAddr, count: u16) -> Result<Option<RangeInclusive<u16>>, Misuse> {
    let first = address.port();
    let last = first.checked_add(count).ok_or_else(|| {
        Misuse(format!(
            "--kubelet-node-ports {count}: the last of these ports, which follow {first}, would be more than 65535"
        ))
    })?;
    Ok((count > 0).then(|| first + 1..=last))
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
    let lease = Arc::new(Lease::new(host.client.clone(), &host.namespace, lease::VIRTUAL_NODE));
    let (members, listed) = clusters.follow(&host, Account::VirtualNode, Scope::Nothing, &lease.restored(), tasks);
    if let Some(kubelet_api) = kubelet_api {
        let (told, ports) = (kubelet_api.told.shared, kubelet_api.listeners.len() - 1);
        tracing::info!(address = %kubelet_api.address, %told, ports, "the kubelet endpoint is served");
        kubelet_api.serve(&host, &members, tasks, stop);
    }
    let agent = Agent::new(host, members, settings);
    let leading = Arc::clone(&lease);
    tasks.spawn(async move {
        leading.lead(|| Box::pin(agent.clone().run())).await;
        Ok(())
    });
    Ok(Some(Started { listed, lease }))
}
