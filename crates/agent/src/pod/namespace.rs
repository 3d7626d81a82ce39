//! The member's namespace for a pod, which is made where it is missing.

use kube::{Api, api::PostParams};
use serde_json::Value;

use super::{
    super::{
        node::ignore_conflict,
        object::{self, read, text},
    },
    Pods, ephemeral,
    level::{ENFORCED, refused_namespace},
    rejection::PodRejection,
};
use leaf::ownership;
use member::policy::BASELINE;

/// Why it does not take the pod.
pub(super) async fn enter(pods: &Pods<'_>, pod: &Value) -> kube::Result<Option<PodRejection>> {
    let name = text(pod, "/metadata/namespace");
    let namespaces = object::namespaces(pods.client);
    let mut there = read(&namespaces, name).await?;
    if there.is_none() {
        make(pods, name).await?;
        // Somebody else may have been quicker.
        there = read(&namespaces, name).await?;
    }
    Ok(there.and_then(|there| refused_namespace(&ephemeral::without(pod), &there, pods.here())))
}

async fn make(pods: &Pods<'_>, name: &str) -> kube::Result<()> {
    let mut namespace = ownership::namespace(&pods.host.id, name);
    namespace.metadata.labels.get_or_insert_default().insert(ENFORCED.to_owned(), BASELINE.to_owned());
    let made = Api::all(pods.client.clone()).create(&PostParams::default(), &namespace).await;
    ignore_conflict(made.map(drop))
}
