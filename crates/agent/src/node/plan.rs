//! What a virtual node must be, and the next step from what it is. Pure.
//!
//! The order is the point: a pod that lands before CSINode knows the node would wait for ever, and a topology label
//! without it sends the provisioner round in circles. So: the Node, which Kubernetes holds for not ready; its CSINode; the
//! label; and only then the status that says ready.

use serde_json::{Map, Value, json};

use super::super::{
    LABEL, LABEL_VALUE, MANAGED_BY,
    object::{is_leaving, items, mark, text},
    virtual_node::{ID, VirtualNodeId, may_be_called, virtual_node_of},
};
use domain::volume::DRIVER;

/// Of one member's nodes.
const MOST_OF_A_MEMBER: usize = 1000;
/// On a Node of ours that this program, and no person, has closed to new pods while its member is away.
pub const CORDONED: &str = "kosmos.csi.io/cordoned";
/// Without it no VolumeAttachment is made for the node.
const ATTACHED_BY_CONTROLLER: &str = "volumes.kubernetes.io/controller-managed-attach-detach";

/// Nobody answers at ports of Services on a virtual node: its address is the agent's.
const NO_BALANCER: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// The next thing to do. Patches carry the version of what they were decided on.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum NodeStep {
    CreateNode(Value),
    PatchNode(Value),
    CreateCsiNode(Value),
    PatchCsiNode(Value),
    /// Only while its member has not left, which may not have been heard of yet.
    Uncordon(Value),
    /// Somebody else's: it is left alone, and this is said.
    Foreign(String),
    /// It goes away, and is recreated then.
    Wait,
    Done,
}

pub(super) fn step(
    virtual_node: &VirtualNodeId,
    architecture: &str,
    node: Option<&Value>,
    csi_node: Option<&Value>,
) -> NodeStep {
    let Some(node) = node else { return NodeStep::CreateNode(manifest(virtual_node, architecture)) };
    let kept_for = virtual_node_of(node);
    if kept_for.as_ref() != Some(virtual_node) {
        return NodeStep::Foreign(foreign(virtual_node, kept_for.as_ref()));
    }
    if is_leaving(node) {
        return NodeStep::Wait;
    }
    if let Some(patch) = mended(virtual_node, architecture, node) {
        return NodeStep::PatchNode(patch);
    }
    if let Some(step) = csi_step(virtual_node, node, csi_node) {
        return step;
    }
    let labelled = labelled(virtual_node, node).map(NodeStep::PatchNode);
    labelled.or_else(|| uncordoned(node).map(NodeStep::Uncordon)).unwrap_or(NodeStep::Done)
}

fn foreign(virtual_node: &VirtualNodeId, kept_for: Option<&VirtualNodeId>) -> String {
    let (name, member) = (virtual_node.name(), &virtual_node.member);
    match kept_for {
        Some(other) => format!(
            "Node {name} already stands for a node of member {}, and a node of member {member} would get the same name, so no pods of this host \
             run on the latter. Give one of the two members, or one of the two nodes, another name",
            other.member
        ),
        None => format!(
            "Node {name} already exists and was not made for member {member} by {DRIVER} (it lacks the annotation {ID}: {}), so the agent leaves it \
             untouched and runs no pods of it. Delete the Node, and the agent makes a new one",
            virtual_node.id()
        ),
    }
}

/// The same for a node that clustertree keeps: only what it lacks is added.
pub(super) fn clustertree_step(virtual_node: &VirtualNodeId, node: &Value, csi_node: Option<&Value>) -> NodeStep {
    if is_leaving(node) {
        return NodeStep::Wait;
    }
    if node["metadata"]["annotations"].get(ATTACHED_BY_CONTROLLER).is_none() {
        let annotations = json!({ATTACHED_BY_CONTROLLER: "true"});
        return NodeStep::PatchNode(patch_of(node, json!({"metadata": {"annotations": annotations}})));
    }
    csi_step(virtual_node, node, csi_node)
        .unwrap_or_else(|| labelled(virtual_node, node).map_or(NodeStep::Done, NodeStep::PatchNode))
}

/// For each node that a member says it has, a Node, its Lease and its status are written in the host: it is not to say how many there
/// are. What is told where it says more than that.
pub(super) fn limit(member: &str, virtual_nodes: &mut Vec<VirtualNodeId>) -> Option<String> {
    let count = virtual_nodes.len();
    virtual_nodes.truncate(MOST_OF_A_MEMBER);
    (count > MOST_OF_A_MEMBER).then(|| {
        format!("member {member} reports more than {MOST_OF_A_MEMBER} nodes: only the first by name get virtual nodes")
    })
}

/// A member names its nodes as it likes, also so that one would have the name of another member's: that one gets it whose own name is
/// longer. Who has the Node already keeps it, as its pods are there. What is told of those that are left out.
pub(super) fn ambiguous(
    longer_names: &[String],
    virtual_nodes: &mut Vec<VirtualNodeId>,
    is_there: impl Fn(&VirtualNodeId) -> bool,
) -> Option<String> {
    let other = |virtual_node: &VirtualNodeId| {
        let other = longer_names.iter().find(|other| may_be_called(other, &virtual_node.name()));
        other.filter(|_| !is_there(virtual_node))
    };
    let (first, owner) = virtual_nodes.iter().find_map(|one| Some((one.clone(), other(one)?)))?;
    virtual_nodes.retain(|one| other(one).is_none());
    Some(format!(
        "node {} of member {} gets no virtual node, as its name here would be {}, which a node of member {owner} might have too; the same holds \
         for others like it. Give one of the two members, or that node, another name",
        first.node.as_deref().unwrap_or_default(),
        first.member,
        first.name()
    ))
}

/// What is to be done with a Node whose member, or member node, is not there any more.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Leave {
    /// First of all no new pods.
    Cordon(Value),
    /// Once no pod is bound to it.
    Remove,
}

/// Why a Node is to go. `ours`: clustertree keeps no nodes of the member; `is_there`: the member has that node still.
pub(super) fn departed(virtual_node: &VirtualNodeId, ours: bool, is_there: bool) -> String {
    let member = &virtual_node.member;
    match &virtual_node.node {
        _ if !ours => format!("Kosmos clustertree keeps the nodes of member {member}"),
        Some(gone) if !is_there => format!("member {member} has no node {gone} any more"),
        _ => format!("other virtual nodes stand for member {member} now"),
    }
}

pub(super) fn leave(node: &Value) -> Leave {
    if node["spec"]["unschedulable"] == true {
        return Leave::Remove;
    }
    let change = json!({"metadata": {"annotations": {CORDONED: "true"}}, "spec": {"unschedulable": true}});
    Leave::Cordon(patch_of(node, change))
}

/// A change that holds only for the object that was seen.
pub(crate) fn patch_of(seen: &Value, mut change: Value) -> Value {
    for field in ["uid", "resourceVersion"] {
        change["metadata"][field] = seen["metadata"][field].clone();
    }
    change
}

fn labels(virtual_node: &VirtualNodeId, architecture: &str) -> Value {
    json!({
        LABEL: LABEL_VALUE,
        "kubernetes.io/hostname": virtual_node.name(),
        "kubernetes.io/role": "agent",
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        NO_BALANCER: "true",
        MANAGED_BY: DRIVER,
    })
}

fn taint() -> Value {
    json!({"key": LABEL, "value": LABEL_VALUE, "effect": "NoSchedule"})
}

pub(super) fn manifest(virtual_node: &VirtualNodeId, architecture: &str) -> Value {
    json!({
        "metadata": {
            "name": virtual_node.name(),
            "labels": labels(virtual_node, architecture),
            "annotations": {ID: virtual_node.id(), ATTACHED_BY_CONTROLLER: "true"},
        },
        "spec": {"taints": [taint()]},
    })
}

/// What somebody has damaged is put right; what somebody has added stays.
fn mended(virtual_node: &VirtualNodeId, architecture: &str, node: &Value) -> Option<Value> {
    let mut change = json!({});
    let missing = differing(&labels(virtual_node, architecture), &node["metadata"]["labels"]);
    if !missing.is_empty() {
        change["metadata"]["labels"] = json!(missing);
    }
    if node["metadata"]["annotations"].get(ATTACHED_BY_CONTROLLER).is_none() {
        change["metadata"]["annotations"] = json!({ATTACHED_BY_CONTROLLER: "true"});
    }
    let is_ours = |there: &Value| ["key", "value", "effect"].iter().all(|field| there[field] == taint()[field]);
    if !items(node, "/spec/taints").any(is_ours) {
        let others =
            items(node, "/spec/taints").filter(|there| there["key"] != LABEL || there["effect"] != "NoSchedule");
        change["spec"]["taints"] = others.cloned().chain([taint()]).collect();
    }
    (change != json!({})).then(|| patch_of(node, change))
}

fn differing(wanted: &Value, there: &Value) -> Map<String, Value> {
    let wanted = wanted.as_object().into_iter().flatten();
    wanted
        .filter(|(key, value)| there.get(key) != Some(value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn csi_step(virtual_node: &VirtualNodeId, node: &Value, csi_node: Option<&Value>) -> Option<NodeStep> {
    let keys: Vec<&str> = virtual_node.topology().into_iter().map(|(key, _)| key).collect();
    let entry = json!({"name": DRIVER, "nodeID": virtual_node.id(), "topologyKeys": keys});
    let name = text(node, "/metadata/name");
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]});
    let Some(there) = csi_node else {
        let metadata = json!({"name": name, "ownerReferences": [owner]});
        return Some(NodeStep::CreateCsiNode(json!({"metadata": metadata, "spec": {"drivers": [entry]}})));
    };
    if is_leaving(there) {
        return Some(NodeStep::Wait);
    }
    let others = || items(there, "/spec/drivers").filter(|driver| driver["name"] != DRIVER).cloned();
    let ours = items(there, "/spec/drivers").find(|driver| driver["name"] == DRIVER);
    let mut change = json!({});
    match ours {
        None => change["spec"]["drivers"] = others().chain([entry]).collect(),
        // An entry cannot be changed: it is taken away, and the next look puts it back.
        Some(ours) if ["nodeID", "topologyKeys"].iter().any(|field| ours[field] != entry[field]) => {
            change["spec"]["drivers"] = others().collect();
        }
        Some(_) => {}
    }
    // That of an earlier Node of this name would have it collected as garbage.
    let is_node = |reference: &&Value| reference["kind"] == "Node";
    if items(there, "/metadata/ownerReferences").find(is_node).map(|reference| &reference["uid"]) != Some(&owner["uid"])
    {
        let rest = items(there, "/metadata/ownerReferences").filter(|reference| !is_node(reference)).cloned();
        change["metadata"]["ownerReferences"] = rest.chain([owner]).collect();
    }
    (change != json!({})).then(|| NodeStep::PatchCsiNode(patch_of(there, change)))
}

fn labelled(virtual_node: &VirtualNodeId, node: &Value) -> Option<Value> {
    let wanted: Map<String, Value> =
        virtual_node.topology().into_iter().map(|(key, value)| (key.to_owned(), json!(value))).collect();
    let missing = differing(&Value::Object(wanted), &node["metadata"]["labels"]);
    (!missing.is_empty()).then(|| patch_of(node, json!({"metadata": {"labels": missing}})))
}

/// A cordon of a person's stays.
fn uncordoned(node: &Value) -> Option<Value> {
    let ours = !mark(node, "annotations", CORDONED).is_empty();
    let change = json!({"metadata": {"annotations": {CORDONED: null}}, "spec": {"unschedulable": null}});
    ours.then(|| patch_of(node, change))
}

#[cfg(test)]
mod tests;
