//! rancher's local-path-provisioner as published: volumes are folders of a node, made and removed by helper pods.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::images::BUSYBOX;

const PROVISIONER: &str = "local-path-provisioner";
const NAMESPACE: &str = "local-path-storage";
/// Its own default, which it gives to its helper pods.
const ACCOUNT: &str = "local-path-provisioner-service-account";
const CONFIG_MAP: &str = "local-path-config";
/// Below the kubelet's folder, so that the volumes can be looked at from outside.
const FOLDER: &str = "local-path";

impl Cluster {
    /// Starts the provisioner, if it does not run yet, and makes a `StorageClass` for it.
    pub async fn install_local_path(&self, class: &str) -> Result<()> {
        let config = json!({"nodePathMap": [{
            "node": "DEFAULT_PATH_FOR_NON_LISTED_NODES",
            "paths": [format!("/var/lib/kubelet/{FOLDER}")],
        }]});
        let objects = [namespace(), account(), config_map(&config), storage_class(class)];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        self.apply(&list.to_string()).await?;
        if self.alive(PROVISIONER).is_ok() {
            return Ok(());
        }
        let write = |file: &str, content: &Value| {
            let path = self.folder().join(file);
            fs::write(&path, content.to_string()).with_context(|| format!("write {file}"))?;
            anyhow::Ok(path.display().to_string())
        };
        let arguments = [
            "start".to_owned(),
            format!("--kubeconfig={}", self.kubeconfig_inside().display()),
            format!("--config={}", write("local-path.json", &config)?),
            format!("--helper-pod-file={}", write("local-path-helper.json", &helper_pod())?),
            format!("--helper-image={BUSYBOX}"),
            format!("--namespace={NAMESPACE}"),
            format!("--configmap-name={CONFIG_MAP}"),
        ];
        self.start(PROVISIONER, arguments.to_vec())
    }

    /// The folders of the local-path volumes, seen from outside.
    pub fn local_path_folder(&self) -> PathBuf {
        self.node_folder().join(FOLDER)
    }
}

fn namespace() -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
}

fn account() -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT, "namespace": NAMESPACE}})
}

fn config_map(config: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": CONFIG_MAP, "namespace": NAMESPACE},
        "data": {
            "config.json": config.to_string(),
            "setup": "#!/bin/sh\nset -eu\nmkdir -m 0777 -p \"$VOL_DIR\"\n",
            "teardown": "#!/bin/sh\nset -eu\nrm -rf \"$VOL_DIR\"\n",
            "helperPod.yaml": helper_pod().to_string(),
        },
    })
}

fn helper_pod() -> Value {
    let container = json!({"name": "helper-pod", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent"});
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "helper-pod"},
        "spec": {"priorityClassName": "system-node-critical", "containers": [container]},
    })
}

fn storage_class(name: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "rancher.io/local-path",
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    })
}
