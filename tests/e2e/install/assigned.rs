//! A host that gives IDs to pods which name none, as OpenShift does out of a range for each namespace: here by a policy.

use anyhow::{Result, ensure};
use serde_json::json;

use super::helm::{NAMESPACE, PODS_NAMESPACE};
use crate::clusters::Cluster;

const NAME: &str = "assigned-ids";
/// Of such a range; the image's own user is another one.
const ID: &str = "1000650000";

pub async fn begin(host: &Cluster) -> Result<()> {
    let namespaces =
        json!({"key": "kubernetes.io/metadata.name", "operator": "In", "values": [NAMESPACE, PODS_NAMESPACE]});
    let pods = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let names_none = json!({"name": "names-none", "expression": "!has(object.spec.securityContext.runAsUser)"});
    let given = format!("Object.spec.securityContext{{runAsUser: {ID}, fsGroup: {ID}}}");
    let given = json!({"expression": format!("Object{{spec: Object.spec{{securityContext: {given}}}}}")});
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy", "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {"namespaceSelector": {"matchExpressions": [namespaces]}, "resourceRules": [pods]},
            "matchConditions": [names_none], "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": given}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": NAME}, "spec": {"policyName": NAME},
    });
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": [policy, binding]}).to_string()).await
}

/// All pods of the release have what they were given, and nothing else that they had to name.
pub async fn is_what_pods_run_as(host: &Cluster) -> Result<()> {
    let path = "jsonpath={range .items[*]}{.spec.securityContext.runAsUser} {.spec.securityContext.runAsGroup} {.spec.securityContext.fsGroup}\n{end}";
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        let told = host.kubectl(&["-n", namespace, "get", "pods", "-o", path]).await?;
        let mut pods = told.lines().map(|ids| ids.split_whitespace().collect::<Vec<_>>());
        ensure!(!told.is_empty() && pods.all(|ids| ids == [ID, ID]), "{namespace}: {told}");
    }
    Ok(())
}
