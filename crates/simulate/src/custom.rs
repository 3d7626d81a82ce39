//! Kinds that a CustomResourceDefinition adds while the cluster runs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    resources::Kind,
    store::{Store, key_of, text},
};

pub const RESOURCE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Serves what a definition says, or no longer, after it was written or removed.
pub fn follow(store: &mut Store, resource: &str, definition: &Arc<Value>) {
    if resource != RESOURCE {
        return;
    }
    let (namespace, name) = key_of(definition);
    if store.get(RESOURCE, &namespace, &name).is_none() {
        store.drop_kind(&name);
        return;
    }
    if serve(store, definition) && text(definition, "/status/acceptedNames/kind").is_empty() {
        let mut established = Value::clone(definition);
        established["status"] = status(definition);
        store.put(RESOURCE, established);
    }
}

/// Whether the definition can be served.
pub fn serve(store: &mut Store, definition: &Value) -> bool {
    let Some(kind) = Kind::of_definition(definition) else { return false };
    store.add_kind(Arc::new(kind));
    true
}

fn status(definition: &Value) -> Value {
    let since = text(definition, "/metadata/creationTimestamp");
    let stored = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<&Value> =
        stored.filter(|version| version["storage"] == json!(true)).map(|version| &version["name"]).collect();
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": since, "reason": reason, "message": message});
    let approval = definition["metadata"]["annotations"]["api-approved.kubernetes.io"].as_str();
    let approved = approval.map(|place| {
        condition("KubernetesAPIApprovalPolicyConformant", "ApprovedAnnotation", &format!("approved in {place}"))
    });
    let accepted = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    json!({
        "conditions": approved.into_iter().chain(accepted).collect::<Vec<_>>(),
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored,
    })
}
