//! rancher's local-path-provisioner as published: volumes are folders of a node, made and removed by helper pods.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cluster::Cluster;
use super::images::BUSYBOX;
use super::process::Process;
use super::wait::{Hopeless, wait_blocking, wait_for};

const PROVISIONER: &str = "local-path-provisioner";
const NAMESPACE: &str = "local-path-storage";
/// Its own default, which it gives to its helper pods.
const ACCOUNT: &str = "local-path-provisioner-service-account";
const CONFIG_MAP: &str = "local-path-config";
/// The kubelet's own.
const NODE_FOLDER: &str = "/var/lib/kubelet";
/// Below it, so that the volumes can be looked at from outside.
const FOLDER: &str = "local-path";
const OWNERLESS: &str = "ownerless";
/// For the last pods that use it to end.
const PATIENCE: Duration = Duration::from_mins(1);
const AT_LAST: Duration = Duration::from_secs(5);

impl Cluster {
    /// Starts the provisioner, if it does not run yet, and makes a `StorageClass` for it.
    pub async fn install_local_path(&self, class: &str) -> Result<()> {
        let config = json!({"nodePathMap": [{
            "node": "DEFAULT_PATH_FOR_NON_LISTED_NODES",
            "paths": [format!("{NODE_FOLDER}/{FOLDER}")],
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

    /// From now on pods that begin have their local-path volumes on storage that keeps no owners: it `ignores` who is to have a file, or
    /// `refuses`. Pods that run keep what they have.
    pub async fn keep_no_owners(&self, how: &str) -> Result<Ownerless> {
        let folder = self.local_path_folder();
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let (folder, place) = (folder.display().to_string(), format!("{NODE_FOLDER}/{FOLDER}"));
        let program = self.tools().path(OWNERLESS);
        let storage = Ownerless(self.spawn_in_node(OWNERLESS, &program, &[how, &folder, &place], &[])?);
        let mounts = format!("/proc/{}/mountinfo", storage.0.pid());
        wait_for("the storage that keeps no owners is mounted", PATIENCE, || async {
            if !storage.0.is_running()? {
                bail!(Hopeless(format!("{OWNERLESS} has ended: {}", storage.0.log()?)));
            }
            Ok(fs::read_to_string(&mounts)?.contains(&format!(" fuse.{OWNERLESS} ")).then_some(()))
        })
        .await?;
        Ok(storage)
    }
}

/// Storage that keeps no owners, until this is dropped.
#[derive(Debug)]
pub struct Ownerless(Process);

impl Ownerless {
    /// Fails while somebody still uses it.
    pub async fn end(self) -> Result<()> {
        self.0.terminate()?;
        let exit = self.0.wait(PATIENCE).await?;
        ensure!(exit.code == Some(0), "{OWNERLESS} ended with {exit:?}: {}", self.0.log()?);
        Ok(())
    }
}

impl Drop for Ownerless {
    fn drop(&mut self) {
        // Killed before it has unmounted, it would leave a folder that nobody can read.
        if self.0.terminate().is_ok() {
            wait_blocking("it ends", AT_LAST, || Ok((!self.0.is_running()?).then_some(()))).ok();
        }
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
