//! The host's nodes, as the driver is registered on them.

use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;

use super::{Host, unread};
use crate::{cluster, error::Result, volume::DRIVER};

impl Host {
    /// The number of volumes that a node takes, where it has one; none at all where the driver is not registered there
    /// under this id.
    pub async fn registered(&self, node: &str, id: &str) -> Result<Option<Option<usize>>> {
        let nodes = Api::<CSINode>::all(self.client.clone());
        let found = cluster::read(nodes.get(node).await, node);
        let found = found.map_err(|error| unread(&format!("get csinode {node}"), &error))?;
        let drivers = found.into_iter().flat_map(|node| node.spec.drivers);
        let mut ours = drivers.filter(|driver| driver.name == DRIVER && driver.node_id == id);
        let limit = |count: i32| usize::try_from(count).ok();
        Ok(ours.next().map(|driver| driver.allocatable.and_then(|room| room.count).and_then(limit)))
    }
}
