//! Virtual nodes whose member does not answer. They stay where pods are bound to them: those of a Node that is gone, the host deletes by force,
//! and what owns them makes others, while the copies run on.

use std::sync::Arc;

use serde_json::Value;
use tokio::time::Instant;

use super::{BELIEVED, Health, Nodes, is_of_daemon_set, plan, told, writes::create};
use crate::{
    object::{self, Objects, mark, read, text},
    virtual_node::{VirtualNodeId, virtual_node_of},
};

const ARCHITECTURE: &str = "kubernetes.io/arch";

/// One that was told to be down.
#[derive(Debug)]
pub(super) struct Away {
    of: VirtualNodeId,
    /// As the watch told it last.
    node: Arc<Value>,
    /// When it was to be made again last, since then.
    tried: Option<Instant>,
}

impl Nodes {
    /// Says of all virtual nodes of a member that it does not answer. One that somebody has deleted since that was said first, as a cloud's
    /// controller does that knows no machine of its name, is made again.
    pub(crate) async fn tell_down(&mut self, member: &str, reason: &str) {
        let message = format!("member {member}: {reason}");
        let health = Health { ready: false, reason: "MemberUnreachable", message };
        for node in self.view.nodes.of(member) {
            self.view.record_heartbeat(member);
            let Some(of) = virtual_node_of(&node) else { continue };
            let name = text(&node, "/metadata/name").to_owned();
            told(&name, self.say(&node, &health, None).await.map(drop));
            if of.name() == name {
                self.away.insert(name, Away { of, node, tried: None });
            }
        }
        self.make_again().await;
    }

    async fn make_again(&mut self) {
        let (nodes, view) = (object::nodes(&self.host.client), &self.view);
        // Those of DaemonSets have no copies, and come and go with the node.
        let has_pods = |name: &str| view.has_pod_on(name, |pod| !is_of_daemon_set(pod));
        for (name, away) in self.away.iter_mut().filter(|(name, _)| view.node(name).is_none()) {
            let is_due = away.tried.is_none_or(|tried| tried.elapsed() >= BELIEVED);
            if is_due && has_pods(name) {
                away.tried = Some(Instant::now());
                told(name, make(&nodes, name, away).await);
            }
        }
    }
}

/// Unless it is there, and somebody has taken the label off by which it is watched.
async fn make(nodes: &Objects, name: &str, away: &Away) -> kube::Result<()> {
    if read(nodes, name).await?.is_some() {
        return Ok(());
    }
    tracing::warn!(
        node = name,
        "somebody deleted the virtual node while its member does not answer: the agent makes it again, as pods are bound to it"
    );
    create(nodes, again(away)).await
}

/// What copies mount there stays attached only while the node says so, and nobody can ask the member now.
fn again(away: &Away) -> Value {
    let mut made = plan::manifest(&away.of, mark(&away.node, "labels", ARCHITECTURE));
    if let Some(in_use) = away.node.pointer("/status/volumesInUse") {
        made["status"]["volumesInUse"] = in_use.clone();
    }
    made
}
