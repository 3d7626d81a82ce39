//! Virtual nodes whose member has left. One that this agent has never had is none of them: an agent of another namespace has it, and whatever
//! Kubernetes does of a Node that is not ready, it would do to pods that run.

use serde_json::Value;
use tokio::time::Instant;

use super::{BELIEVED, CORDONED, Health, Nodes};
use crate::{
    object::{mark, text},
    virtual_node::virtual_node_of,
};
use host::pins;
use member::Registry;

/// Nodes whose member has left, as the complete list of members says, go as well. That is asked for each: others take a while, and a member
/// may come back meanwhile.
pub(crate) async fn retire_departed(nodes: &mut Nodes, registry: &Registry) {
    let has_left = |member: &str| registry.all().is_ok_and(|members| !members.contains_key(member));
    for node in nodes.view.nodes.all() {
        let Some(virtual_node) = virtual_node_of(&node).filter(|virtual_node| has_left(&virtual_node.member)) else {
            continue;
        };
        let member = &virtual_node.member;
        nodes.view.record_heartbeat(member);
        if nodes.is_anothers(&node, member).await {
            continue;
        }
        let message = format!("member {member} has left: the agent has no kubeconfig of it any more");
        nodes.retire(&node, Health { ready: false, reason: "MemberLeft", message }).await;
    }
}

impl Nodes {
    /// Whether this agent has never had the member, as where its namespace is another one than before.
    async fn is_anothers(&mut self, node: &Value, member: &str) -> bool {
        // That it goes was decided before.
        if !mark(node, "annotations", CORDONED).is_empty() {
            return false;
        }
        let name = text(node, "/metadata/name");
        if self.later.get(name).is_some_and(|later| *later > Instant::now()) {
            return true;
        }
        match pins::has_known(&self.host, member).await {
            Ok(true) => return false,
            Ok(false) => self.refuse(Some(node), anothers(name, member, &self.host.namespace)).await,
            Err(error) => {
                tracing::warn!(node = name, %error, "the agent cannot read whether it has had the member: the virtual node stays as it is");
            }
        }
        self.later.insert(name.to_owned(), Instant::now() + BELIEVED);
        true
    }
}

fn anothers(name: &str, member: &str, namespace: &str) -> String {
    format!(
        "Node {name} stands for member {member}, but in namespace {namespace} the agent has neither a kubeconfig nor a record of it: an agent of \
         another namespace has made the Node. It stays as it is with its pods, and pods that come to it wait. If virtualNode.namespace was \
         changed, change it back. If this agent is to have the member, type kosmos-csi member add. If the member has gone, delete the Node \
         once its pods have ended"
    )
}
