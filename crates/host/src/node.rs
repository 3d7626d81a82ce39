//! The host's nodes: as the driver is registered on them, and which machines they are.

use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::{Api, ResourceExt, api::ListParams};

use super::{Host, unread};
use domain::{
    error::Result,
    volume::{DRIVER, MEMBER_KEY, NODE_KEY},
};

/// Written by an administrator: a kubelet may not write labels with this prefix on its own node.
pub const MEMBER_NODE: &str = "kosmos.node-restriction.kubernetes.io/member-node";
pub const VIRTUAL_MACHINE: &str = "kosmos.node-restriction.kubernetes.io/virtual-machine";

/// A real node of the host, by what tells which machine it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    pub name: String,
    pub system: String,
    pub machine: String,
    pub provider: String,
    /// What the administrator says it is in the member.
    pub member_node: Option<String>,
    pub virtual_machine: Option<String>,
}

impl Machine {
    fn new(node: Node) -> Self {
        let name = node.name_any();
        let label = |key: &str| node.labels().get(key).filter(|value| !value.is_empty()).cloned();
        let (member_node, virtual_machine) = (label(MEMBER_NODE), label(VIRTUAL_MACHINE));
        let info = node.status.and_then(|status| status.node_info).unwrap_or_default();
        Self {
            name,
            system: info.system_uuid,
            machine: info.machine_id,
            provider: node.spec.and_then(|spec| spec.provider_id).unwrap_or_default(),
            member_node,
            virtual_machine,
        }
    }
}

/// The number of volumes that a node takes, where it has one; none at all where the driver is not registered there
/// under this id.
pub async fn registered(host: &Host, node: &str, id: &str) -> Result<Option<Option<usize>>> {
    let nodes = Api::<CSINode>::all(host.client.clone());
    let found = cluster::read(nodes.get(node).await, node);
    let found = found.map_err(|error| unread(&format!("get csinode {node}"), &error))?;
    let drivers = found.into_iter().flat_map(|node| node.spec.drivers);
    let mut ours = drivers.filter(|driver| driver.name == DRIVER && driver.node_id == id);
    let limit = |count: i32| usize::try_from(count).ok();
    Ok(ours.next().map(|driver| driver.allocatable.and_then(|room| room.count).and_then(limit)))
}

pub async fn machine(host: &Host, node: &str) -> Result<Option<Machine>> {
    let found = cluster::read(Api::<Node>::all(host.client.clone()).get(node).await, node);
    let found = found.map_err(|error| unread(&format!("get node {node}"), &error))?;
    Ok(found.map(Machine::new))
}

/// What a label of a node says; nothing where there is no such label, or no such node.
pub async fn label_of(host: &Host, node: &str, label: &str) -> Result<Option<String>> {
    let found = cluster::read(Api::<Node>::all(host.client.clone()).get_metadata(node).await, node);
    let found = found.map_err(|error| unread(&format!("get node {node}"), &error))?;
    Ok(found.and_then(|node| node.labels().get(label).cloned()))
}

/// Whether some that stand for this member stand for single nodes of it.
pub async fn stand_for_nodes_of(host: &Host, member: &str) -> Result<bool> {
    let wanted = ListParams::default().labels(&format!("{MEMBER_KEY}={member},{NODE_KEY}")).limit(1);
    let nodes = Api::<Node>::all(host.client.clone()).list_metadata(&wanted).await;
    Ok(!nodes.map_err(|error| unread("list nodes", &error))?.items.is_empty())
}

/// The nodes that carry a label with this value.
pub async fn all_with(host: &Host, label: &str, value: &str) -> Result<Vec<String>> {
    let wanted = ListParams::default().labels(&format!("{label}={value}"));
    let nodes = Api::<Node>::all(host.client.clone()).list_metadata(&wanted).await;
    let nodes = nodes.map_err(|error| unread("list nodes", &error))?;
    Ok(nodes.iter().map(ResourceExt::name_any).collect())
}
