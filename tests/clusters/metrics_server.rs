//! metrics-server as published: it asks the kubelets of a cluster what pods use, and serves that as `metrics.k8s.io`.

use std::{fs, time::Duration};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::namespaces::BRIDGE_ADDRESS;
use super::wait::wait_for;

const NAME: &str = "metrics-server";
const NAMESPACE: &str = "kube-system";
const API_SERVICE: &str = "v1beta1.metrics.k8s.io";
const PATIENCE: Duration = Duration::from_mins(1);

impl Cluster {
    /// Starts metrics-server, until `remove_metrics_server`.
    pub async fn install_metrics_server(&self) -> Result<()> {
        let port = self.place().metrics_port();
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": rights()}).to_string()).await?;
        let kubeconfig = self.folder().join(format!("{NAME}.kubeconfig"));
        fs::write(&kubeconfig, self.kubeconfig_for(NAMESPACE, NAME).await?).context("write its kubeconfig")?;
        let kubeconfig = kubeconfig.display();
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--cert-dir={}", self.folder().join(NAME).display()),
            format!("--secure-port={port}"),
            "--kubelet-insecure-tls".into(),
            "--kubelet-use-node-status-port".into(),
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--kubelet-request-timeout=8s".into(), // less than the next, which is the least it takes
            "--metric-resolution=10s".into(),
        ];
        self.start(NAME, arguments.to_vec())?;
        self.apply(&json!({"apiVersion": "v1", "kind": "List", "items": service(port)}).to_string()).await?;
        wait_for(&format!("metrics-server of {} serves", self.name()), PATIENCE, || async {
            self.alive(NAME)?;
            let path = "{.status.conditions[?(@.type==\"Available\")].status}";
            let served = self.kubectl(&["get", "apiservice", API_SERVICE, "-o", &format!("jsonpath={path}")]).await?;
            Ok((served == "True").then_some(()))
        })
        .await
    }

    /// With what it serves: namespaces cannot go while that is not answered.
    pub async fn remove_metrics_server(&self) -> Result<()> {
        self.kubectl(&["delete", "apiservice", API_SERVICE, "--ignore-not-found"]).await?;
        self.stop(NAME).await
    }
}

fn rights() -> [Value; 6] {
    let rbac = |kind: &str, name: &str, mut rest: Value| {
        rest["apiVersion"] = json!("rbac.authorization.k8s.io/v1");
        rest["kind"] = json!(kind);
        rest["metadata"] = json!({"name": name});
        rest
    };
    let account = json!({"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE});
    let bound = |kind: &str, role: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": [account]});
    let rules = json!({"rules": [
        {"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["get", "list", "watch"]},
    ]});
    let readers =
        json!({"rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["pods", "nodes"], "verbs": ["get", "list"]}]});
    let mut authentication = rbac("RoleBinding", NAME, bound("Role", "extension-apiserver-authentication-reader"));
    authentication["metadata"]["namespace"] = json!(NAMESPACE);
    [
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": NAME, "namespace": NAMESPACE}}),
        rbac("ClusterRole", "system:metrics-server", rules),
        rbac("ClusterRole", "system:metrics-readers", readers),
        rbac("ClusterRoleBinding", "system:metrics-server", bound("ClusterRole", "system:metrics-server")),
        rbac(
            "ClusterRoleBinding",
            "metrics-server:system:auth-delegator",
            bound("ClusterRole", "system:auth-delegator"),
        ),
        authentication,
    ]
}

/// The API server finds it by the addresses of a Service, as there is nobody who serves Services.
fn service(port: u16) -> [Value; 3] {
    let metadata = json!({"name": NAME, "namespace": NAMESPACE});
    let mut of_service = metadata.clone();
    of_service["labels"] = json!({"kubernetes.io/service-name": NAME});
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata,
            "spec": {"ports": [{"name": "https", "port": 443, "targetPort": port}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": of_service, "addressType": "IPv4",
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
            "endpoints": [{"addresses": [BRIDGE_ADDRESS], "conditions": {"ready": true}}]}),
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": API_SERVICE},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"name": NAME, "namespace": NAMESPACE, "port": 443}}}),
    ]
}
