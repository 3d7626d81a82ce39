//! The virtual-node role: the agent behind the virtual nodes, on the replica that holds its lease.

use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    Signals, bounded,
    clusters::{Clusters, check_folder, host_config},
    controller::follow_readiness,
    first_failure, serve_admin,
};
use crate::{
    agent::{Agent, Door, NodeMode, Settings},
    args::{self, VirtualNode},
    cluster::Dial,
    lease::{self, Lease},
    member::{Tracked, source::Account},
    metrics::Metrics,
};

pub async fn virtual_node(arguments: VirtualNode) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    check_folder(arguments.members.members_dir.as_deref())?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "kosmos-csi virtual-node starts");
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
    let settings = Settings {
        node_mode: match arguments.node_mode {
            args::NodeMode::Member => NodeMode::Member,
            args::NodeMode::Node => NodeMode::Node,
        },
        door: arguments.kubelet_address.map(|address| Door { address }),
        host_address: arguments.host_address,
    };
    let clusters = Clusters {
        host: host_config(arguments.kubeconfig.as_deref()).await?,
        dial: Dial::Network,
        members_dir: arguments.members.members_dir,
        members_namespace: arguments.members.members_namespace,
        metrics,
    };
    let Some(listed) = start(clusters, settings, &mut tasks, &stop).await? else { return Ok(()) };
    tokio::select! {
        () = stop.cancelled() => {}
        failed = first_failure(&mut tasks) => failed?,
        never = follow_readiness(listed, &ready, &stop) => match never {},
    }
    ready.send_replace(false);
    last.cancel();
    tasks.shutdown().await;
    Ok(())
}

/// Starts the agent. True once every source of members has been read; none where a stop was asked for before.
pub async fn start(
    clusters: Clusters,
    settings: Settings,
    tasks: &mut JoinSet<anyhow::Result<()>>,
    stop: &CancellationToken,
) -> anyhow::Result<Option<watch::Receiver<bool>>> {
    let Some(host) = clusters.connect(stop).await? else { return Ok(None) };
    let (members, listed) = clusters.follow(&host, Account::VirtualNode, Tracked::Nothing, tasks);
    let lease = Lease::new(host.client.clone(), &host.namespace, lease::VIRTUAL_NODE);
    let agent = Agent::new(host, members, settings);
    tasks.spawn(async move {
        lease.lead(|| Box::pin(agent.clone().run())).await;
        Ok(())
    });
    Ok(Some(listed))
}
