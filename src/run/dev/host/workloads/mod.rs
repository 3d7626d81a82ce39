//! Plays the controllers of Deployments, ReplicaSets and StatefulSets: so much of them that the usual commands
//! (`rollout status`, `scale`, `wait`, `delete`) do what they do elsewhere.

mod deployment;
mod replicas;
mod rollout;
mod stateful;

use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::OwnerReference};
use serde_json::{Value, json};

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A pod as its owner's template says, still without a name.
fn pod_of(template: &Value, namespace: Option<String>, owner: &OwnerReference) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    })
}
