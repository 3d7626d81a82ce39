//! The labels on leaf claims by which a group of snapshots chooses them, for as long as the member needs to cut it.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use serde_json::{Value, json};

use crate::{
    MemberClient,
    marks::{MEMBER_OF, label_path},
    row::ClaimRow,
};
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::VolumeHash,
};

fn path_of(group: VolumeHash) -> String {
    label_path(&format!("{MEMBER_OF}{group}"))
}

/// Puts a group's label on a claim of ours, or takes it off.
pub async fn label_for_group(client: &MemberClient, claim: &ClaimRow, group: VolumeHash, on: bool) -> Result<()> {
    let path = path_of(group);
    let change =
        if on { json!({"op": "add", "path": path, "value": "yes"}) } else { json!({"op": "remove", "path": path}) };
    change_labels(client, claim, &[change]).await.or_else(|error| match error {
        // It carried none, or the claim is gone.
        Error::Refused(_) | Error::NotFound(_) if !on => Ok(()),
        error => Err(error),
    })
}

/// Takes a group's label off a claim on which nobody has written since it was read.
pub async fn leave_group(client: &MemberClient, claim: &ClaimRow, group: VolumeHash) -> Result<()> {
    let unchanged = json!({"op": "test", "path": "/metadata/resourceVersion", "value": claim.version_text()});
    change_labels(client, claim, &[unchanged, json!({"op": "remove", "path": path_of(group)})]).await
}

async fn change_labels(client: &MemberClient, claim: &ClaimRow, changes: &[Value]) -> Result<()> {
    let this = json!({"op": "test", "path": "/metadata/uid", "value": claim.uid});
    let operations = [&[this], changes].concat();
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &claim.place.namespace);
    let patched = json_patch::send_unread(claims, &claim.place.claim, &operations).await;
    let doing = format!("label claim {} for a group", claim.place);
    patched.map_err(|error| client.outcome(&doing, &error))
}
