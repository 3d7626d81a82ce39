//! Pods of the host that are bound to a node of somewhere else, though a copy of theirs is here: their host was restored from a backup of before
//! they were bound, and its scheduler has chosen again. That copy is one of no pod here, and nobody else would end it.

use serde_json::Value;

use super::{
    super::{
        PREFIX,
        object::{is_leaving, is_over, text},
        virtual_node::{VirtualNodeId, virtual_node_of},
    },
    MUCH_LATER, Next, Pods,
    step::copy_of,
};

/// As far as watches tell. One that is to end has its copy ended wherever it is.
pub(super) fn is_elsewhere(pods: &Pods<'_>, pod: &Value) -> bool {
    let node = text(pod, "/spec/nodeName");
    if node.is_empty() || is_leaving(pod) {
        return false;
    }
    match pods.view.member_of_node(node) {
        Some(member) => member != pods.member.name,
        // Those of members are called so, also where one is not there just now.
        None => !node.starts_with(PREFIX),
    }
}

/// Whether the copy may be the one that the pod is to have: the member that its node stands for may be this one, by another name. What that
/// node is, may have changed since it was decided to remove the copy.
pub(super) async fn may_be_its_own(pods: &Pods<'_>, pod: &Value, there: &Value) -> kube::Result<bool> {
    let is_its = copy_of(there, &pods.host.id.0) == Some(text(pod, "/metadata/uid"));
    // One that runs although its pod has ended is ended wherever that was.
    let outlives = is_over(pod) && !is_over(there);
    if !is_its || outlives || is_leaving(pod) {
        return Ok(false);
    }
    let node = text(pod, "/spec/nodeName");
    // Somebody may have written on a node what another one stands for.
    let at = pods.view.node(node).and_then(|at| virtual_node_of(&at)).filter(|at| at.name() == node);
    let Some(VirtualNodeId { member: other, .. }) = at else {
        return Ok(node.is_empty() || node.starts_with(PREFIX));
    };
    let pins = host::pins::pins(pods.host).await.map_err(|error| kube::Error::Service(error.into()))?;
    let (own, other) = (pins.get(&pods.member.name), pins.get(&other));
    Ok(own.is_none() || other.is_none() || own == other)
}

/// Where nothing is to be done. To which node a pod with a copy is bound, no watch tells where that is none of a member.
pub(super) fn next(pod: Option<&Value>, there: Option<&Value>) -> Next {
    let is_unbound = pod.is_some_and(|pod| text(pod, "/spec/nodeName").is_empty());
    if is_unbound && there.is_some() { Next::After(MUCH_LATER * 4) } else { Next::Settled }
}
