//! A node without a machine: the objects that a kubelet would write, written by the test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::cluster::Cluster;
use super::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(30);
/// As often as a kubelet: without it the node is taken for dead after 50 s.
const HEARTBEAT: Duration = Duration::from_secs(10);
const LEASES: &str = "kube-node-lease";

/// Beats until dropped. The objects stay until `delete`.
pub struct VirtualNode {
    name: String,
    client: Client,
    heartbeat: JoinHandle<()>,
}

/// The CSI driver of a node, as its `CSINode` says.
#[derive(Debug, Clone, Copy)]
pub struct NodeDriver<'a> {
    pub name: &'a str,
    pub node_id: &'a str,
    pub topology_keys: &'a [&'a str],
}

impl Cluster {
    /// A node to which pods are bound that tolerate `kosmos.io/node`, and on which nothing runs them.
    pub async fn virtual_node(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        driver: NodeDriver<'_>,
    ) -> Result<VirtualNode> {
        let client = self.client().await?;
        apply::<Node>(&client, name, node(name, labels)).await?;
        apply::<CSINode>(&client, name, csi_node(name, driver)).await?;
        beat(&client, name).await?;
        let nodes: Api<Node> = Api::all(client.clone());
        let status = Patch::Merge(status());
        nodes.patch_status(name, &PatchParams::default(), &status).await.context("set the node's status")?;
        let heartbeat = tokio::spawn(keep_beating(client.clone(), name.to_owned()));
        let virtual_node = VirtualNode { name: name.to_owned(), client, heartbeat };
        let what = format!("the virtual node {name} takes pods");
        wait_for(&what, PATIENCE, || async { Ok(takes_pods(&nodes.get(name).await?).then_some(())) }).await?;
        Ok(virtual_node)
    }
}

impl VirtualNode {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Removes the objects too.
    pub async fn delete(self) -> Result<()> {
        self.heartbeat.abort();
        let now = DeleteParams::default();
        Api::<CSINode>::all(self.client.clone()).delete(&self.name, &now).await?;
        Api::<Node>::all(self.client.clone()).delete(&self.name, &now).await?;
        Ok(())
    }
}

impl Drop for VirtualNode {
    fn drop(&mut self) {
        self.heartbeat.abort();
    }
}

fn node(name: &str, labels: &[(&str, &str)]) -> Value {
    let mut labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    labels.insert("kubernetes.io/hostname", name);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": labels,
            // There from the start, or no VolumeAttachment is ever made for the node.
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"taints": [{"key": "kosmos.io/node", "value": "true", "effect": "NoSchedule"}]},
    })
}

fn csi_node(name: &str, driver: NodeDriver<'_>) -> Value {
    let driver = json!({"name": driver.name, "nodeID": driver.node_id, "topologyKeys": driver.topology_keys});
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    })
}

fn status() -> Value {
    let now = Timestamp::now().to_string();
    let ready = json!({"type": "Ready", "status": "True", "reason": "Virtual", "message": "made by a test",
        "lastHeartbeatTime": now, "lastTransitionTime": now});
    let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
    json!({"status": {"conditions": [ready], "capacity": room, "allocatable": room}})
}

/// A new node is tainted until the controller-manager has seen it ready.
fn takes_pods(node: &Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    !taints.into_iter().flatten().any(|taint| taint.key.starts_with("node.kubernetes.io/"))
}

async fn keep_beating(client: Client, name: String) {
    let mut beats = interval(HEARTBEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        beats.tick().await;
        beat(&client, &name).await.ok(); // the API server may be stopped by the test
    }
}

async fn beat(client: &Client, name: &str) -> Result<()> {
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format!("{:.6}", Timestamp::now())},
    });
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    leases.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(lease)).await.context("renew the lease")?;
    Ok(())
}

async fn apply<K>(client: &Client, name: &str, object: Value) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::all(client.clone());
    api.patch(name, &PatchParams::apply("test").force(), &Patch::Apply(object)).await.context("apply an object")?;
    Ok(())
}
