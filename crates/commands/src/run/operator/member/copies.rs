//! Pods of the host that run in a member. Who takes the agent's account away leaves nobody to end them, nor the ConfigMaps and Secrets that
//! were copied for them.

use anyhow::anyhow;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::run::operator::pods;
use agent::{CORDONED, may_be_called};
use cluster::with_causes;
use domain::volume::{DRIVER, MEMBER_KEY, moving::YARD};
use host::{Host, pod::has_ended};
use leaf::{
    MemberClient, consumer,
    ownership::{self, COPY_OF, MANAGED_BY},
};

/// By this the agent's virtual nodes of a member are known. Those of clustertree are for that to drain.
pub(super) fn selector(member: &str) -> String {
    format!("{MANAGED_BY}={DRIVER},{MEMBER_KEY}={member}")
}

async fn nodes(host: &Host, member: &str) -> anyhow::Result<Vec<String>> {
    let nodes = Api::<Node>::all(host.client.clone());
    let nodes = nodes.list_metadata(&ListParams::default().labels(&selector(member))).await;
    let nodes = nodes.map_err(|error| anyhow!("list nodes of member {member}: {}", with_causes(&error)))?;
    Ok(nodes.iter().map(ResourceExt::name_any).collect())
}

/// A virtual node of a member with a shorter name that has a name which one of this member could have, and that member. One with a longer
/// name keeps its own. Who may not see nodes is not kept from anything: the agent leaves such a node out itself.
pub(super) async fn namesake(host: &Host, member: &str) -> anyhow::Result<Option<(String, String)>> {
    let ours = ListParams::default().labels(&format!("{MANAGED_BY}={DRIVER},{MEMBER_KEY}"));
    let nodes = match Api::<Node>::all(host.client.clone()).list_metadata(&ours).await {
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(None),
        nodes => nodes.map_err(|error| anyhow!("list nodes: {}", with_causes(&error)))?,
    };
    let mut named = nodes.iter().filter_map(|node| Some((node.name_any(), node.labels().get(MEMBER_KEY)?.clone())));
    let is_longer = |of: &str| member.strip_prefix(of).is_some_and(|rest| rest.starts_with('-'));
    Ok(named.find(|(node, of)| is_longer(of) && may_be_called(member, node)))
}

/// They take no pods any more, as after `kubectl cordon`: what the agent has closed itself, for a member that has come back, it would open.
/// Whether there are any.
pub(super) async fn close(host: &Host, member: &str) -> anyhow::Result<bool> {
    change(host, member, json!({"metadata": {"annotations": {CORDONED: null}}, "spec": {"unschedulable": true}})).await
}

/// It is the agent's word from now on, as with any member that leaves: it opens them when the member comes back.
pub(super) async fn leave_closed(host: &Host, member: &str) -> anyhow::Result<()> {
    change(host, member, json!({"metadata": {"annotations": {CORDONED: "true"}}})).await.map(drop)
}

async fn change(host: &Host, member: &str, change: Value) -> anyhow::Result<bool> {
    let (nodes, change) = (nodes(host, member).await?, Patch::Merge(change));
    for node in &nodes {
        let changed = Api::<Node>::all(host.client.clone()).patch(node, &PatchParams::default(), &change).await;
        cluster::read(changed, node).map_err(|error| anyhow!("patch node {node}: {}", with_causes(&error)))?;
    }
    Ok(!nodes.is_empty())
}

/// What is bound to the nodes of a member.
#[derive(Debug, Default)]
pub(super) struct Bound {
    pub(super) running: Vec<String>,
    /// Whose copies are there as long as they are.
    pub(super) ended: Vec<String>,
}

/// Pods of DaemonSets are not run, and go with the node.
pub(super) async fn bound(host: &Host, member: &str) -> anyhow::Result<Bound> {
    let mut bound = Bound::default();
    for node in nodes(host, member).await? {
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = pods::list(&host.client, None, &there).await;
        let pods = pods.map_err(|error| anyhow!("list pods of node {node}: {}", with_causes(&error)))?;
        for pod in pods.iter().filter(|pod| !is_of_daemon_set(pod)) {
            let all = if has_ended(pod) { &mut bound.ended } else { &mut bound.running };
            all.push(place(pod));
        }
    }
    Ok(bound)
}

fn is_of_daemon_set(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet" && owner.controller == Some(true))
}

/// What runs in a member.
pub(super) struct There {
    pub(super) copies: Vec<String>,
    /// The driver's: movers, and consumers of claims.
    pub(super) own: Vec<String>,
}

/// By whom may list pods: the driver's account may not. Where it is not certain that this one is another, it sees none.
pub(super) async fn there(leaf: &MemberClient, is_certain: bool) -> Result<There, String> {
    let ours = ListParams::default().labels(&ownership::selector(&leaf.host));
    let pods = match pods::list(&leaf.client, None, &ours).await {
        Ok(pods) => pods,
        Err(kube::Error::Api(status)) if status.code == 403 && !is_certain => Vec::new(),
        Err(error) => return Err(with_causes(&error)),
    };
    let of = |is_one: fn(&Pod) -> bool| pods.iter().filter(|pod| is_one(pod)).map(place).collect();
    Ok(There { copies: of(is_copy), own: of(is_own) })
}

/// As the agent knows one. Whoever makes pods there writes our labels on them, and what has no more than these nobody ends for us.
fn is_copy(pod: &Pod) -> bool {
    pod.annotations().get(COPY_OF).is_some_and(|uid| !uid.is_empty())
}

fn is_own(pod: &Pod) -> bool {
    let is_named = pod.name_any().starts_with(consumer::PREFIX);
    !is_copy(pod) && (is_named || pod.metadata.namespace.as_deref() == Some(YARD))
}

fn place(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
