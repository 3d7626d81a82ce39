//! Virtual nodes whose member does not answer. They stay where pods are bound to them: those of a Node that is gone, the host deletes by force,
//! and what owns them makes others, while the copies run on.

use super::{Health, Nodes, plan, told, writes::create};
use crate::{
    object::{self, mark, text},
    virtual_node::virtual_node_of,
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
                self.away.insert(name, (virtual_node, mark(&node, "labels", ARCHITECTURE).to_owned()));
            }
        }
        self.make_again().await;
    }

    async fn make_again(&self) {
        let nodes = object::nodes(&self.host.client);
        let is_gone = |name: &str| self.view.node(name).is_none() && !self.view.pods.kept_of(name).is_empty();
        for (name, (virtual_node, architecture)) in self.away.iter().filter(|(name, _)| is_gone(name)) {
            tracing::warn!(
                node = name,
                "the virtual node was deleted while its member is away: it is made again, as pods are bound to it"
            );
            told(name, create(&nodes, plan::manifest(virtual_node, architecture)).await);
        }
    }
}
