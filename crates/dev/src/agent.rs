//! The real agent behind the virtual nodes. Nobody else may work in this folder, so it needs no lease, which its next life
//! would have to wait for.

use serde_json::Value;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{
    HOST,
    folder::Folder,
    host::capacity::{CAPACITIES, CLASSES},
    objects::PODS_NAMESPACE,
};
use agent::{Agent, NodeMode, Settings};
use cluster::{Dial, metrics::Metrics};
use commands::{
    args::KosmosClusters,
    run::{
        clusters::{Clusters, host_config},
        first_failure,
    },
};
use domain::volume::{DRIVER, MEMBER_KEY};
use member::{Scope, source::Account};
use simulate::Cluster;

/// Every new node has it, until somebody sees that it is ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Works until the token is cancelled.
pub(super) async fn run(folder: &Folder, stop: CancellationToken) -> anyhow::Result<()> {
    let clusters = Clusters {
        host: host_config(Some(&folder.kubeconfig(HOST))).await?,
        dial: Dial::Network,
        members_dir: Some(folder.members()),
        members_namespace: PODS_NAMESPACE.to_owned(),
        kosmos_clusters: KosmosClusters::Off,
        metrics: Metrics::new(),
    };
    let Some(host) = clusters.connect(&stop).await? else { return Ok(()) };
    let mut tasks = JoinSet::new();
    let (_, never_restored) = watch::channel(());
    let (members, _) = clusters.follow(&host, Account::VirtualNode, Scope::Nothing, &never_restored, &mut tasks);
    let settings = Settings { node_mode: NodeMode::Member, kubelet_api: None, host_address: None };
    tokio::select! {
        () = Agent::new(host, members, settings).run() => Ok(()),
        failed = first_failure(&mut tasks) => failed,
        () = stop.cancelled() => Ok(()),
    }
}

/// Waits until each member has a virtual node that pods can land on, with volumes too: of a class that waits for a pod, the
/// scheduler goes by the room that it is told.
pub(super) async fn all_take_pods(host: Cluster, members: Vec<String>) {
    let mut changes = simulate::follow::follow(&host, &["nodes", CAPACITIES]);
    let has_node = |member: &String| {
        let nodes = host.list("nodes");
        nodes.iter().any(|node| node["metadata"]["labels"][MEMBER_KEY] == **member && takes_pods(node))
    };
    let has_room = |member: &String| {
        let capacities = host.list(CAPACITIES);
        capacities.iter().any(|capacity| capacity["nodeTopology"]["matchLabels"][MEMBER_KEY] == **member)
    };
    let waits = |class: &Value| class["provisioner"] == DRIVER && class["volumeBindingMode"] == "WaitForFirstConsumer";
    let goes_by_room = host.list(CLASSES).iter().any(|class| waits(class));
    while !members.iter().all(|member| has_node(member) && (!goes_by_room || has_room(member))) {
        changes.next().await;
    }
}

fn takes_pods(node: &Value) -> bool {
    let each = |list: &'static str| node.pointer(list).and_then(Value::as_array).into_iter().flatten();
    !each("/spec/taints").any(|taint| taint["key"] == NOT_READY)
        && each("/status/conditions").any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}
