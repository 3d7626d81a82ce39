//! Which machine of a member a node of the host is. The administrator says it with a label, or the names are the same; the
//! machine's own ids must agree, since a node that is taken for another one would get that one's volumes.

use domain::error::{Error, Result};
use host::{
    Host,
    node::{MEMBER_NODE, Machine, VIRTUAL_MACHINE},
};
use leaf::{MemberClient, backing::MemberNode, machine::Flavour};

/// The node of the host, as its kubelet tells of the machine.
async fn machine(host: &Host, node: &str) -> Result<Machine> {
    let found = host::node::machine(host, node).await?;
    found.ok_or_else(|| Error::NotFound(format!("there is no node {node} in the host")))
}

/// The member's node that a node of the host is.
pub async fn member_node(host: &Host, leaf: &MemberClient, node: &str) -> Result<MemberNode> {
    let machine = machine(host, node).await?;
    let wanted = claimed(host, MEMBER_NODE, machine.member_node.as_deref(), node).await?;
    let Some(found) = leaf::backing::member_node(leaf, &wanted).await? else {
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

/// The name of the virtual machine that a node of the host is, and the node by which that is to be proved.
pub async fn virtual_machine(host: &Host, node: &str) -> Result<(String, Machine)> {
    let machine = machine(host, node).await?;
    let name = claimed(host, VIRTUAL_MACHINE, machine.virtual_machine.as_deref(), node).await?;
    Ok((name, machine))
}

/// The name that a node which may have gone says or would say; none where nobody can know it any more.
pub async fn name_of(host: &Host, node: &str) -> Result<Option<String>> {
    let machine = host::node::machine(host, node).await?;
    Ok(machine.map(|machine| machine.virtual_machine.unwrap_or_else(|| node.to_owned())))
}

/// Whether the machine with this name and UUID is the node of the host.
pub fn check(node: &Machine, flavour: &Flavour, place: &str, name: &str, uuid: &str) -> Result<()> {
    is_machine(node, flavour, name, uuid).map_err(|why| {
        Error::Refused(format!(
            "node {} of the host is not virtual machine {place}: {why}. Correct the label {VIRTUAL_MACHINE} of the host's node",
            node.name
        ))
    })
}

fn is_machine(node: &Machine, flavour: &Flavour, name: &str, uuid: &str) -> Result<(), String> {
    let provider = node.provider.trim();
    match (flavour, provider.split_once("://")) {
        (Flavour::KubeVirt { .. }, Some(("kubevirt", machine))) if machine == name => Ok(()),
        (Flavour::KubeVirt { .. }, Some(("kubevirt", _))) => {
            Err(format!("its providerID is {provider:?}, and the machine is {name:?}"))
        }
        (Flavour::KubeVirt { .. }, _) if uuid.is_empty() => Ok(()),
        (Flavour::Operator { .. }, Some(("vsphere", id))) if same(id, uuid) => Ok(()),
        (Flavour::Operator { .. }, Some(("vsphere", _))) => {
            Err(format!("its providerID is {provider:?}, and the machine's biosUUID {uuid:?}"))
        }
        _ if same(&node.system, uuid) || same(&turned(&node.system), uuid) => Ok(()),
        _ => Err(format!("its systemUUID is {:?}, and the machine's {uuid:?}", node.system)),
    }
}

/// Firmware writes the first three parts of a UUID in either byte order.
fn turned(uuid: &str) -> String {
    let turn = |part: &str| {
        let pairs: Vec<&str> = (0..part.len() / 2).rev().filter_map(|at| part.get(2 * at..2 * at + 2)).collect();
        pairs.concat()
    };
    let parts = uuid.trim().split('-').enumerate();
    parts.map(|(at, part)| if at < 3 { turn(part) } else { part.to_owned() }).collect::<Vec<_>>().join("-")
}

fn same(one: &str, other: &str) -> bool {
    !one.trim().is_empty() && one.trim().eq_ignore_ascii_case(other.trim())
}

/// The name that a label gives, or the node's own. No other node may claim the same by its label.
async fn claimed(host: &Host, label: &str, value: Option<&str>, node: &str) -> Result<String> {
    let Some(value) = value else { return Ok(node.to_owned()) };
    let claiming = host::node::all_with(host, label, value).await?;
    match claiming.iter().find(|other| *other != node) {
        Some(other) => Err(Error::Refused(format!(
            "nodes {node} and {other} of the host both carry the label {label}={value}: take it from the wrong one"
        ))),
        None => Ok(value.to_owned()),
    }
}

/// One of the two ids is enough, as not every machine has both; one that differs is too much: machines that were made of one
/// template may share the other. In words where it is not proved.
fn is_same(host: &Machine, member: &MemberNode) -> Result<(), String> {
    let ids = [(&host.system, &member.system), (&host.machine, &member.machine)];
    let differs =
        |(here, there): (&String, &String)| !here.trim().is_empty() && !there.trim().is_empty() && !same(here, there);
    if ids.iter().any(|(here, there)| same(here, there)) && !ids.into_iter().any(differs) {
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
    fn virtual_machine_is_proved_by_the_provider_or_by_its_uuid() {
        let operator = Flavour::Operator { version: "v1alpha2".to_owned() };
        let kubevirt = Flavour::KubeVirt { version: "v1".to_owned(), by_request: true };
        let uuid = "4237a5b3-1c2d-3e4f-5061-728394a5b6c7";
        for (flavour, provider, system, told, proved) in [
            (&operator, "vsphere://4237A5B3-1C2D-3E4F-5061-728394A5B6C7 ", "", uuid, true),
            (&operator, "vsphere://4237a5b3", uuid, uuid, false),
            (&operator, "", uuid, uuid, true),
            (&operator, "", "b3a53742-2d1c-4f3e-5061-728394a5b6c7", uuid, true),
            (&operator, "", "", uuid, false),
            (&operator, "vsphere://", uuid, "", false),
            (&kubevirt, "kubevirt://vm-1", "", uuid, true),
            (&kubevirt, "kubevirt://vm-2", uuid, uuid, false),
            (&kubevirt, "", uuid, uuid, true),
            (&kubevirt, "", "other", uuid, false),
            (&kubevirt, "", "other", "", true),
        ] {
            let (system, provider) = (system.to_owned(), provider.to_owned());
            let node = Machine { name: "n".to_owned(), system, provider, ..Machine::default() };
            let answer = check(&node, flavour, "ns/vm-1", "vm-1", told);
            assert_eq!(answer.is_ok(), proved, "{node:?} {told:?}: {answer:?}");
        }
    }

    #[test]
    fn machine_is_the_same_by_either_of_its_ids_where_the_other_does_not_differ() {
        let pair = |host: (&str, &str), member: (&str, &str)| {
            let host = Machine { system: host.0.to_owned(), machine: host.1.to_owned(), ..Machine::default() };
            let (system, machine) = (member.0.to_owned(), member.1.to_owned());
            is_same(&host, &MemberNode { system, machine, ..MemberNode::default() })
        };
        assert!(pair(("A-1", "x"), (" a-1", "x")).is_ok());
        assert!(pair(("", "x"), ("", "x")).is_ok() && pair(("", "x"), ("a", "x")).is_ok());
        assert!(pair(("a", "x"), ("a", "y")).is_err() && pair(("a", "x"), ("b", "x")).is_err(), "of one template");
        assert!(pair(("", ""), ("", "")).is_err(), "nothing said is nothing proved");
        let why = pair(("a", "b"), ("c", "d")).unwrap_err();
        assert!(["\"a\"", "\"b\"", "\"c\"", "\"d\""].iter().all(|id| why.contains(id)), "{why}");
    }
}
