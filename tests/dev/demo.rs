//! The demo: a claim, a Deployment, and the pod that writes into a member's volume.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::process::{Cluster, items};

pub const CLAIMS: &str = "/api/v1/namespaces/test-new/persistentvolumeclaims";
pub const CLAIM: &str = "/api/v1/namespaces/test-new/persistentvolumeclaims/nginx-pvc";
pub const PODS: &str = "/api/v1/namespaces/test-new/pods";
pub const VOLUMES: &str = "/api/v1/persistentvolumes";
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/test-new/deployments";
pub const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/test-new/deployments/nginx-new";

pub fn claim() -> Value {
    let resources = json!({"requests": {"storage": "1Gi"}});
    let spec =
        json!({"storageClassName": "openebs-hostpath", "accessModes": ["ReadWriteOnce"], "resources": resources});
    json!({"metadata": {"name": "nginx-pvc"}, "spec": spec})
}

/// The pods' own part, for a virtual node.
pub fn template(node: &str, volumes: &Value) -> Value {
    let hostname = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [hostname]}]});
    let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    let toleration = json!({"key": "kosmos.io/node", "operator": "Equal", "value": "true", "effect": "NoSchedule"});
    let mount = json!({"name": "data", "mountPath": "/data"});
    let container = json!({"name": "nginx", "image": "nginx:alpine", "volumeMounts": [mount]});
    let spec =
        json!({"affinity": affinity, "tolerations": [toleration], "containers": [container], "volumes": volumes});
    json!({"metadata": {"labels": {"app": "nginx"}}, "spec": spec})
}

pub fn deployment(node: &str) -> Value {
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "nginx-pvc"}}]);
    let selector = json!({"matchLabels": {"app": "nginx"}});
    let spec = json!({"replicas": 1, "selector": selector, "template": template(node, &volumes)});
    json!({"metadata": {"name": "nginx-new"}, "spec": spec})
}

pub async fn apply(host: &Cluster) {
    host.create(CLAIMS, &claim()).await;
    host.create(DEPLOYMENTS, &deployment("kosmos-cluster38")).await;
}

pub fn is_bound(claim: &Value) -> bool {
    claim["status"]["phase"] == "Bound"
}

pub fn is_available(deployment: &Value) -> bool {
    let conditions = deployment["status"]["conditions"].as_array().into_iter().flatten();
    let current = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
    current && conditions.into_iter().any(|condition| condition["type"] == "Available" && condition["status"] == "True")
}

/// A pod or a node.
pub fn is_ready(object: &Value) -> bool {
    let mut conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The one pod of a list, if it runs.
pub fn running(pods: &Value) -> Option<&Value> {
    match items(pods) {
        [pod] => {
            (is_ready(pod) && pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
                .then_some(pod)
        }
        _ => None,
    }
}

/// Where the data of the member's claim lies on this machine.
pub async fn folder_of_the_leaf(member: &Cluster) -> PathBuf {
    folder_of(member, CLAIM).await
}

pub async fn folder_of(member: &Cluster, claim: &str) -> PathBuf {
    let leaf = member.until(claim, "bound", is_bound).await;
    let volume = member.get(&format!("{VOLUMES}/{}", leaf["spec"]["volumeName"].as_str().unwrap())).await.unwrap();
    let place = volume["spec"]["csi"]["volumeAttributes"]["directory"].as_str();
    PathBuf::from(place.unwrap_or_else(|| panic!("no path: {volume:#}")))
}
