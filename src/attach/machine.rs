//! Which machine of a member a node of the host is. The administrator says it with a label, or the names are the same; the
//! machine's own ids must agree, since a node that is taken for another one would get that one's volumes.

use crate::{
    error::{Error, Result},
    host::{
        Host,
        node::{MEMBER_NODE, Machine},
    },
    leaf::{Cluster, backing::MemberNode},
};

/// The node of the host, as its kubelet tells of the machine.
pub(super) async fn machine(host: &Host, node: &str) -> Result<Machine> {
    let found = host.machine(node).await?;
    found.ok_or_else(|| Error::NotFound(format!("there is no node {node} in the host")))
}

/// The member's node that a node of the host is.
pub async fn member_node(host: &Host, leaf: &Cluster, node: &str) -> Result<MemberNode> {
    let machine = machine(host, node).await?;
    let wanted = claimed(host, MEMBER_NODE, machine.member_node.as_deref(), node).await?;
    let Some(found) = leaf.member_node(&wanted).await? else {
        return Err(Error::Refused(format!(
            "member {}: there is no node {wanted}, which node {node} of the host should be: if it has another name there, \
             label the host's node {MEMBER_NODE}=<that name>",
            leaf.member
        )));
    };
    is_same(&machine, &found).map_err(|why| {
        Error::Refused(format!(
            "node {node} of the host is not node {wanted} of member {}: {why}. Correct the label {MEMBER_NODE} of the host's \
             node",
            leaf.member
        ))
    })?;
    Ok(found)
}

/// The name that a label gives, or the node's own. No other node may claim the same by its label.
pub(super) async fn claimed(host: &Host, label: &str, value: Option<&str>, node: &str) -> Result<String> {
    let Some(value) = value else { return Ok(node.to_owned()) };
    let claiming = host.nodes_with(label, value).await?;
    match claiming.iter().find(|other| *other != node) {
        Some(other) => Err(Error::Refused(format!(
            "nodes {node} and {other} of the host both carry the label {label}={value}: take it from the wrong one"
        ))),
        None => Ok(value.to_owned()),
    }
}

/// One of the two ids is enough: not every machine has both. In words where neither agrees.
fn is_same(host: &Machine, member: &MemberNode) -> Result<(), String> {
    let same = |one: &str, other: &str| !one.trim().is_empty() && one.trim().eq_ignore_ascii_case(other.trim());
    if same(&host.system, &member.system) || same(&host.machine, &member.machine) {
        return Ok(());
    }
    Err(format!(
        "systemUUID {:?} and machineID {:?} here, {:?} and {:?} there",
        host.system, host.machine, member.system, member.machine
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_is_the_same_by_either_of_its_ids() {
        let pair = |host: (&str, &str), member: (&str, &str)| {
            let host = Machine { system: host.0.to_owned(), machine: host.1.to_owned(), ..Machine::default() };
            let (system, machine) = (member.0.to_owned(), member.1.to_owned());
            is_same(&host, &MemberNode { system, machine, ..MemberNode::default() })
        };
        assert!(pair(("A-1", "x"), (" a-1", "y")).is_ok());
        assert!(pair(("", "x"), ("", "x")).is_ok());
        assert!(pair(("", ""), ("", "")).is_err(), "nothing said is nothing proved");
        let why = pair(("a", "b"), ("c", "d")).unwrap_err();
        assert!(["\"a\"", "\"b\"", "\"c\"", "\"d\""].iter().all(|id| why.contains(id)), "{why}");
    }
}
