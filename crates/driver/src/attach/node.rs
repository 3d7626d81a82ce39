//! Whether a node may have a volume at all: is there such a node, is it of the volume's member, has it room.

use domain::{
    error::{Error, Result},
    volume::NodeId,
};
use host::Host;
use member::Registry;

/// A virtual node stands for a member, so it can have that member's volumes alone, and as many as the member's own
/// scheduler allows. A real one is as its kubelet has registered it.
pub async fn check(node: &NodeId, volume_in: &str, members: &Registry, host: &Host) -> Result<()> {
    match node {
        NodeId::Virtual { member, .. } if member == volume_in => Ok(()),
        NodeId::Virtual { member, .. } => {
            let serving = members.get_for_new(member).await.map_err(|error| unknown(node, error))?;
            if serving.name == volume_in {
                return Ok(());
            }
            Err(Error::Refused(format!(
                "node {node} runs its pods in member {member}, and the volume is in member {volume_in}: a pod that uses it \
                 must go to a node of that member"
            )))
        }
        NodeId::Real(name) => {
            let Some(limit) = host::node::registered(host, name, &node.to_string()).await? else {
                let reason = Error::NotFound(format!("no CSINode {name} of the host names it"));
                return Err(unknown(node, reason));
            };
            has_room(node, limit, members)
        }
    }
}

/// The scheduler counts as well, but what it counts may be old by the time a volume comes.
fn has_room(node: &NodeId, limit: Option<usize>, members: &Registry) -> Result<()> {
    let Some(limit) = limit else { return Ok(()) };
    let id = node.to_string();
    let members = members.all()?;
    let leaves = members.values().filter_map(|member| member.last_known());
    let there: usize = leaves.map(|leaf| leaf.rows.published_on(&id)).sum();
    if there < limit {
        return Ok(());
    }
    Err(Error::NoPlace(format!("node {node} has {there} volumes of this driver, and its limit is {limit}")))
}

fn unknown(node: &NodeId, error: Error) -> Error {
    match error {
        Error::NotFound(reason) => Error::NotFound(format!("there is no node {node}: {reason}")),
        other => other,
    }
}
