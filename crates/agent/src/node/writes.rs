//! What is written on Nodes, CSINodes and Leases. Each write tests what it was decided on.

use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};

use crate::object::{Objects, parsed, text};

/// As long as a kubelet's is believed.
const LEASE_SECONDS: u32 = 40;
const LEASES: &str = "kube-node-lease";

pub(super) async fn create(objects: &Objects, object: Value) -> kube::Result<()> {
    ignore_conflict(objects.create(&PostParams::default(), &parsed(object)?).await.map(drop))
}

pub(super) async fn patch(objects: &Objects, name: &str, change: &Value) -> kube::Result<()> {
    ignore_conflict(objects.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.map(drop))
}

/// As long as it is as it was seen.
pub(super) async fn remove(nodes: &Objects, node: &Value) -> kube::Result<()> {
    let field = |pointer| Some(text(node, pointer).to_owned());
    let seen = Preconditions { uid: field("/metadata/uid"), resource_version: field("/metadata/resourceVersion") };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
    ignore_conflict(nodes.delete(text(node, "/metadata/name"), &parameters).await.map(drop))
}

/// What was decided on has changed since: the next look decides anew.
pub(crate) fn ignore_conflict(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
            tracing::debug!(message = status.message, "somebody else was quicker");
            Ok(())
        }
        other => other,
    }
}

pub(super) async fn renew(client: &Client, name: &str, uid: &str) -> kube::Result<()> {
    let leases = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(client.clone(), LEASES);
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let lease = json!({
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{:.6}", Timestamp::now()),
        },
    });
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(&lease)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let made = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            ignore_conflict(leases.create(&PostParams::default(), &made).await.map(drop))
        }
        other => other.map(drop),
    }
}
