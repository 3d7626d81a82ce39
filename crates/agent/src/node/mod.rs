//! Keeps Nodes in the host, with their CSINodes, Leases and what they say. The plans beside this say what is to be done;
//! here it is done, one step at a time, on objects that were just read.

mod away;
mod departed;
mod features;
mod found;
mod heartbeat;
mod member_state;
mod plan;
mod room;
mod settled;
mod status;
mod writes;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    KubeletAddress,
    object::{self, Place, items, read, text, whole},
    view::HostCache,
    virtual_node::{VirtualNodeId, is_of_clustertree, virtual_node_of},
};
use away::Away;
use cluster::with_causes;
pub(super) use departed::retire_departed;
use domain::volume::{NodeId, id::is_label};
use found::Found;
pub(super) use heartbeat::keep_alive;
use host::{
    Host,
    events::{About, News},
};
use member_state::name_of;
pub(super) use member_state::{MemberNodes, MemberState};
pub use plan::CORDONED;
pub(super) use plan::patch_of;
use plan::{Leave, NodeStep};
use room::is_open;
pub(super) use room::trim;
use settled::Seen;
pub(super) use status::Health;
use status::ObservedStatus;
pub(super) use writes::ignore_conflict;
use writes::{create, patch, remove};

/// More than there are steps.
const STEPS: usize = 8;
/// The value of a label, as the one that says of which architecture a node is.
const LONGEST_LABEL: usize = 63;
/// How long what a member has is believed, and until what stands in the way of a Node is looked at again.
const BELIEVED: Duration = Duration::from_secs(5);

/// Whether a virtual node stands for a whole member or for one node of it. One choice for the whole host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeMode {
    Member,
    Node,
}

/// Why one stays that is to go: of a Node that is gone the host detaches everything.
const IN_USE: &str = "the Node stays while volumes are in use there (status.volumesInUse): delete it once all that ran there has ended for good";

/// The work on virtual nodes. What it remembers saves requests and nothing else.
#[derive(Debug)]
pub(super) struct Nodes {
    host: Host,
    view: Arc<HostCache>,
    found: Found,
    /// As they were when nothing was to be done for them.
    settled: HashMap<String, Seen>,
    /// Nodes that are not to be looked at before.
    later: HashMap<String, Instant>,
    told: HashSet<String>,
    /// Those that were told to be down since their member answered last.
    away: HashMap<String, Away>,
}

impl Nodes {
    pub(super) fn new(host: Host, view: Arc<HostCache>) -> Self {
        let (found, settled, later) = (Found::default(), HashMap::new(), HashMap::new());
        Self { host, view, found, settled, later, told: HashSet::new(), away: HashMap::new() }
    }

    /// One look at all virtual nodes of a member that answers.
    pub(super) async fn tend(
        &mut self,
        member: &str,
        mode: NodeMode,
        state: &MemberState<'_>,
        kubelet_api: Option<&KubeletAddress>,
    ) {
        self.away.clear();
        let names = std::iter::once(member).chain(state.aliases.iter().map(String::as_str));
        let of_name = |name| self.view.nodes.of(name).into_iter().filter(move |node| is_of_clustertree(node, name));
        let of_clustertree: Vec<_> = names.flat_map(of_name).collect();
        let ours = of_clustertree.is_empty() && !state.clustertree;
        let mut virtual_nodes = if ours { virtual_nodes(member, mode, state) } else { Vec::new() };
        let has_node = |one: &VirtualNodeId| self.has_node_of(one);
        if let Some(message) = plan::ambiguous(&state.longer_names, &mut virtual_nodes, has_node) {
            self.tell_of_all("NameTaken", message, &virtual_nodes).await;
        }
        if let Some(message) = plan::limit(member, &mut virtual_nodes) {
            self.tell_of_all("TooManyNodes", message, &virtual_nodes).await;
        }
        for theirs in of_clustertree {
            let name = text(&theirs, "/metadata/name").to_owned();
            let node = (mode == NodeMode::Node).then(|| name.clone());
            let virtual_node = VirtualNodeId { member: member.to_owned(), node };
            let ended = self.converge(&virtual_node, &name, state, None, self.view.node_with_csi_node(&name)).await;
            told(&name, ended.map(drop));
        }
        for virtual_node in &virtual_nodes {
            let name = virtual_node.name();
            told(&name, self.keep(virtual_node, &name, state, kubelet_api).await);
        }
        let stay: BTreeSet<&VirtualNodeId> = virtual_nodes.iter().collect();
        for node in self.view.nodes.of(member) {
            let Some(virtual_node) = virtual_node_of(&node).filter(|virtual_node| !stay.contains(virtual_node)) else {
                continue;
            };
            let message = plan::departed(&virtual_node, ours, !state.nodes.of(&virtual_node).is_empty());
            self.retire(&node, Health { ready: false, reason: "Departed", message }).await;
        }
    }

    fn has_node_of(&self, virtual_node: &VirtualNodeId) -> bool {
        let node = self.view.nodes.get(&Place { namespace: String::new(), name: virtual_node.name() });
        node.is_some_and(|node| virtual_node_of(&node).as_ref() == Some(virtual_node))
    }

    /// By an event on the first of them, once its Node is there; in the log alone where all are left out.
    async fn tell_of_all(&mut self, reason: &'static str, message: String, virtual_nodes: &[VirtualNodeId]) {
        let name = virtual_nodes.first().map(VirtualNodeId::name);
        let place = name.map(|name| Place { namespace: String::new(), name });
        let node = place.as_ref().and_then(|place| self.view.nodes.get(place));
        if (node.is_some() || place.is_none()) && self.told.insert(message.clone()) {
            tracing::error!("{message}");
            if let Some(node) = node {
                host::events::tell_of(&self.host, &about(&node), &News { reason, message, warning: true }).await;
            }
        }
    }

    async fn keep(
        &mut self,
        virtual_node: &VirtualNodeId,
        name: &str,
        state: &MemberState<'_>,
        kubelet_api: Option<&KubeletAddress>,
    ) -> kube::Result<()> {
        self.view.record_heartbeat(&virtual_node.member);
        if self.later.get(name).is_some_and(|later| *later > Instant::now()) {
            return Ok(());
        }
        let (node, csi_node) = self.view.node_with_csi_node(name);
        let (health, found) = (health(virtual_node, state), self.found(virtual_node, name, state, kubelet_api));
        let seen = Seen { of: virtual_node.clone(), node, csi_node, health, found };
        if self.settled.get(name).is_some_and(|settled| settled.is(&seen)) {
            return Ok(());
        }
        let told_last = (seen.node.clone(), seen.csi_node.clone());
        let node = self.converge(virtual_node, name, state, Some(&seen.found.architecture), told_last).await?;
        let Some(node) = node else { return Ok(()) };
        if !self.say(&node, &seen.health, Some(&seen.found)).await? && seen.is_of(&node) {
            self.settled.insert(name.to_owned(), seen);
        }
        Ok(())
    }

    fn found(
        &mut self,
        virtual_node: &VirtualNodeId,
        name: &str,
        state: &MemberState<'_>,
        kubelet_api: Option<&KubeletAddress>,
    ) -> ObservedStatus {
        if let Some(found) = self.found.get(name) {
            return found.clone();
        }
        let nodes = state.nodes.of(virtual_node);
        let open: Vec<&Value> = nodes.iter().copied().filter(|node| is_open(node)).collect();
        let on_them = open.iter().flat_map(|node| state.foreign_pods.of(name_of(node)));
        let architecture = nodes.iter().map(|node| text(node, "/status/nodeInfo/architecture"));
        let architecture = architecture.filter(|known| is_label(known, LONGEST_LABEL));
        let found = ObservedStatus {
            room: room::left(&open, on_them),
            version: state.version.clone(),
            architecture: architecture.min().unwrap_or("amd64").to_owned(),
            kubelet_api: kubelet_api.map(|kubelet_api| kubelet_api.of(name, &self.view)),
            features: features::of_all(&open),
        };
        self.found.put(name, found.clone());
        found
    }

    /// Takes steps until the Node is as it should be. The Node then; none where it is not ours, or goes away. `architecture`: none for a
    /// node of clustertree, to which only what it lacks is added. Node and CSINode are those that the watches told last, as its caller has seen them.
    async fn converge(
        &mut self,
        virtual_node: &VirtualNodeId,
        name: &str,
        state: &MemberState<'_>,
        architecture: Option<&str>,
        (node, csi_node): (Option<Arc<Value>>, Option<Arc<Value>>),
    ) -> kube::Result<Option<Arc<Value>>> {
        let decide = |node: Option<&Value>, csi_node: Option<&Value>| match (architecture, node) {
            (Some(architecture), node) => plan::step(virtual_node, architecture, node, csi_node),
            (None, Some(node)) => plan::clustertree_step(virtual_node, node, csi_node),
            (None, None) => NodeStep::Wait,
        };
        if decide(node.as_deref(), csi_node.as_deref()) == NodeStep::Done {
            return Ok(node);
        }
        let (nodes, csi_nodes) = (object::nodes(&self.host.client), object::csi_nodes(&self.host.client));
        for _ in 0..STEPS {
            let (node, csi_node) = (read(&nodes, name).await?, read(&csi_nodes, name).await?);
            let step = decide(node.as_ref(), csi_node.as_ref());
            match step {
                NodeStep::CreateNode(made) => create(&nodes, made).await?,
                NodeStep::PatchNode(change) => patch(&nodes, name, &change).await?,
                NodeStep::CreateCsiNode(made) => create(&csi_nodes, made).await?,
                NodeStep::PatchCsiNode(change) => patch(&csi_nodes, name, &change).await?,
                NodeStep::Uncordon(change) => {
                    if !self.is_named(state).await? {
                        return Ok(None);
                    }
                    patch(&nodes, name, &change).await?;
                }
                NodeStep::Foreign(said) => {
                    self.later.insert(name.to_owned(), Instant::now() + BELIEVED);
                    self.refuse(node.as_ref(), said).await;
                    return Ok(None);
                }
                NodeStep::Wait => return Ok(None),
                NodeStep::Done => return Ok(node.map(Arc::new)),
            }
        }
        Ok(None)
    }

    /// Whether a member has not left: who takes its Secret away marks its nodes then, and may be heard of that before.
    async fn is_named(&self, state: &MemberState<'_>) -> kube::Result<bool> {
        let Some(secret) = &state.secret else { return Ok(true) };
        Ok(read(&object::secrets(&self.host.client, &self.host.namespace), secret).await?.is_some())
    }

    async fn refuse(&mut self, node: Option<&Value>, message: String) {
        if let Some(node) = node.filter(|_| self.told.insert(message.clone())) {
            tracing::error!("{message}");
            let news = News { reason: "NotOurs", message, warning: true };
            host::events::tell_of(&self.host, &about(node), &news).await;
        }
    }

    /// Whether there was anything to say.
    async fn say(&self, node: &Value, health: &Health, found: Option<&ObservedStatus>) -> kube::Result<bool> {
        let Some(change) = status::change(node, health, found, &now()) else { return Ok(false) };
        let name = text(node, "/metadata/name");
        let turned = items(node, "/status/conditions").find(|one| one["type"] == "Ready");
        if turned.is_none_or(|before| (before["status"] == "True") != health.ready) {
            let ready = if health.ready { "ready" } else { "not ready" };
            tracing::info!(node = name, reason = health.reason, "the virtual node is {ready}: {}", health.message);
        }
        let nodes = object::nodes(&self.host.client);
        let said = nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(change)).await.map(drop);
        ignore_conflict(said).map(|()| true)
    }

    /// One look at a Node that is to go: closed first, and removed once no pod is bound to it.
    pub(super) async fn retire(&mut self, node: &Value, health: Health) {
        let name = text(node, "/metadata/name").to_owned();
        self.settled.remove(&name);
        told(&name, self.try_retire(node, &name, &health).await);
    }

    async fn try_retire(&mut self, node: &Value, name: &str, health: &Health) -> kube::Result<()> {
        let nodes = object::nodes(&self.host.client);
        if object::is_leaving(node) {
            return Ok(());
        }
        match plan::leave(node) {
            Leave::Cordon(change) => {
                tracing::info!(node = name, "the virtual node takes no new pods: {}", health.message);
                patch(&nodes, name, &change).await
            }
            Leave::Remove if items(node, "/status/volumesInUse").next().is_some() => {
                let message = format!("{}; {IN_USE}", health.message);
                self.say(node, &Health { message, ..health.clone() }, None).await.map(drop)
            }
            Leave::Remove if self.has_pods(name).await? => self.say(node, health, None).await.map(drop),
            Leave::Remove => {
                tracing::info!(node = name, "the virtual node is removed: {}", health.message);
                remove(&nodes, node).await
            }
        }
    }

    /// Those of DaemonSets come and go with the node.
    async fn has_pods(&self, node: &str) -> kube::Result<bool> {
        if self.view.has_pod_on(node, |pod| !is_of_daemon_set(pod)) {
            return Ok(true);
        }
        let bound = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let pods = object::all_pods(&self.host.client).list(&bound).await?;
        Ok(pods.items.into_iter().map(whole).any(|pod| !is_of_daemon_set(&pod)))
    }
}

pub(super) fn is_of_daemon_set(pod: &Value) -> bool {
    items(pod, "/metadata/ownerReferences").any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true)
}

/// The nodes that should be.
fn virtual_nodes(member: &str, mode: NodeMode, state: &MemberState<'_>) -> Vec<VirtualNodeId> {
    let virtual_node = |node| VirtualNodeId { member: member.to_owned(), node };
    match mode {
        NodeMode::Member => vec![virtual_node(None)],
        NodeMode::Node => {
            let names: BTreeSet<&str> = state.nodes.names().collect();
            let all = names.into_iter().map(|name| virtual_node(Some(name.to_owned())));
            // What is no name of a node would be refused by the host again and again.
            all.filter(|virtual_node| NodeId::parse(&virtual_node.id()).is_some()).collect()
        }
    }
}

fn health(virtual_node: &VirtualNodeId, state: &MemberState<'_>) -> Health {
    let ready = state.nodes.of(virtual_node).into_iter().any(object::is_ready);
    let member = &virtual_node.member;
    let (reason, message) = match (ready, &virtual_node.node) {
        (true, _) => ("MemberReady", format!("member {member} answers")),
        (false, None) => ("NoReadyNode", format!("member {member} answers, but none of its nodes is ready")),
        (false, Some(node)) => ("NodeNotReady", format!("node {node} of member {member} is not ready")),
    };
    Health { ready, reason, message }
}

pub(super) fn about(object: &Value) -> About {
    let place = Place::of(object);
    let kind = if place.namespace.is_empty() { "Node" } else { "Pod" };
    About { kind, namespace: place.namespace, name: place.name, uid: text(object, "/metadata/uid").to_owned() }
}

/// The time as objects carry it.
pub(super) fn now() -> String {
    format!("{:.0}", Timestamp::now())
}

fn told(node: &str, ended: kube::Result<()>) {
    if let Err(error) = ended {
        tracing::warn!(node, error = with_causes(&error), "a virtual node cannot be kept up to date");
    }
}
