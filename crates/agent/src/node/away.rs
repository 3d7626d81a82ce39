//! Virtual nodes whose member does not answer. They stay where pods are bound to them: those of a Node that is gone, the host deletes by force,
//! and what owns them makes others, while the copies run on.

use serde_json::Value;

use super::{Health, Nodes, is_of_daemon_set, plan, told, writes::create};
use crate::{
    object::{self, mark, text},
    virtual_node::{VirtualNodeId, virtual_node_of},
};

const ARCHITECTURE: &str = "kubernetes.io/arch";

impl Nodes {
    /// Says of all virtual nodes of a member that it does not answer. One that somebody has deleted since that was said first, as a cloud's
    /// controller does that knows no machine of its name, is made again.
    pub(crate) async fn tell_down(&mut self, member: &str, reason: &str) {
        let message = format!("member {member}: {reason}");
        let health = Health { ready: false, reason: "MemberUnreachable", message };
        for node in self.view.nodes.of(member) {
            self.view.record_heartbeat(member);
            let Some(virtual_node) = virtual_node_of(&node) else { continue };
            let name = text(&node, "/metadata/name").to_owned();
            told(&name, self.say(&node, &health, None).await.map(drop));
            if virtual_node.name() == name {
                self.away.insert(name, (virtual_node, node));
            }
        }
        self.make_again().await;
    }

    async fn make_again(&self) {
        let nodes = object::nodes(&self.host.client);
        // Those of DaemonSets have no copies, and come and go with the node.
        let has_pods = |name: &str| self.view.has_pod_on(name, |pod| !is_of_daemon_set(pod));
        let is_gone = |name: &str| self.view.node(name).is_none() && has_pods(name);
        for (name, (virtual_node, before)) in self.away.iter().filter(|(name, _)| is_gone(name)) {
            tracing::warn!(
                node = name,
                "the virtual node was deleted while its member is away: it is made again, as pods are bound to it"
            );
            told(name, create(&nodes, again(virtual_node, before)).await);
        }
    }
}

/// What copies mount there stays attached only while the node says so, and nobody can ask the member now.
fn again(virtual_node: &VirtualNodeId, before: &Value) -> Value {
    let mut made = plan::manifest(virtual_node, mark(before, "labels", ARCHITECTURE));
    if let Some(in_use) = before.pointer("/status/volumesInUse") {
        made["status"]["volumesInUse"] = in_use.clone();
    }
    made
}
