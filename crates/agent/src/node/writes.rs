//! What is written on Nodes and CSINodes. Each write tests what it was decided on.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::Value;

use crate::object::{Objects, parsed, text};

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

/// What was decided on has changed since: the next look decides again.
pub(crate) fn ignore_conflict(written: kube::Result<()>) -> kube::Result<()> {
    match written {
        Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
            tracing::debug!(message = status.message, "a write came after somebody else's, and nothing is written");
            Ok(())
        }
        other => other,
    }
}
