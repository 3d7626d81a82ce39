//! The project's own storage driver on a member's node, with the real sidecars beside it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use serde_json::{Value, json};

use super::{cluster::Cluster, fleet::Fleet, guardian::profile_folder, process::Process, wait::wait_for};

pub const DRIVER: &str = "storage.kosmos-csi.test";
const PATIENCE: Duration = Duration::from_secs(90);
pub const TOPOLOGY: &str = "--feature-gates=Topology=true";
pub const GROUPS: &str = "--feature-gates=CSIVolumeGroupSnapshot=true";
const PROGRAM: &str = "member-driver";
/// By itself a sidecar asks five times a second, which is what one volume takes; and one that has failed for a minute may wait for as
/// long again before it tries once more, and for up to five.
pub const QUICK: [&str; 3] = ["--retry-interval-max=5s", "--kube-api-qps=100", "--kube-api-burst=200"];

/// The driver and its sidecars; they end when this is dropped.
#[derive(Debug)]
pub struct MemberStorage {
    driver: Process,
    sidecars: Vec<Process>,
}

impl MemberStorage {
    /// Where the node was without power: the driver has ended, and its sidecars end as well, one that was not needed meanwhile only with its
    /// next call.
    pub async fn begin_again(&mut self, cluster: &Cluster) -> Result<()> {
        let socket = cluster.member_driver_folder().join("csi.sock");
        std::fs::remove_file(&socket).with_context(|| format!("remove {}", socket.display()))?;
        self.driver.start_again_in(cluster.node_init()?)?;
        wait_for("the member's storage driver listens", PATIENCE, || async { Ok(socket.exists().then_some(())) })
            .await?;
        for sidecar in &mut self.sidecars {
            sidecar.kill()?;
            sidecar.wait(PATIENCE).await?;
            sidecar.start_again()?;
        }
        Ok(())
    }
}

impl Fleet {
    /// Starts the driver on the member's node and makes the given StorageClasses for it.
    pub async fn install_member_driver(&self, cluster: &Cluster, classes: &[Value]) -> Result<MemberStorage> {
        let program = profile_folder()?.join(PROGRAM);
        ensure!(program.exists(), "{} is missing: run cargo build --workspace", program.display());
        cluster.install_snapshot_crds().await?;
        cluster.apply(&csi_driver().to_string()).await?;
        for class in classes {
            cluster.apply(&class.to_string()).await?;
        }
        let folder = format!("/var/lib/kubelet/plugins/{DRIVER}");
        let arguments = [
            format!("--endpoint={folder}/csi.sock"),
            format!("--registration=/var/lib/kubelet/plugins_registry/{DRIVER}-reg.sock"),
            format!("--node-name={}", cluster.node_name()),
            format!("--state={folder}/state"),
            "--capacity=20Gi".to_owned(),
        ];
        std::fs::create_dir_all(cluster.member_driver_folder().join("state")).context("make the driver's folder")?;
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let driver = cluster.spawn_in_node(PROGRAM, &program, &arguments, &[])?;
        registered(cluster).await?;
        let socket = cluster.member_driver_folder().join("csi.sock");
        let (provisioner, snapshots) = ([&[TOPOLOGY], &QUICK[..]].concat(), [&[GROUPS], &QUICK[..]].concat());
        let sidecars = vec![
            self.provisioner(cluster, &socket, &provisioner)?,
            self.attacher(cluster, &socket, &QUICK)?,
            self.resizer(cluster, &socket, &QUICK)?,
            self.snapshotter(cluster, &socket, &snapshots)?,
            self.snapshot_controller(cluster, &snapshots)?,
        ];
        Ok(MemberStorage { driver, sidecars })
    }
}

impl Cluster {
    /// The driver's socket and state, seen from outside.
    pub fn member_driver_folder(&self) -> PathBuf {
        self.node_folder().join("plugins").join(DRIVER)
    }
}

/// The kubelet writes the driver into the node's CSINode once it has registered.
async fn registered(cluster: &Cluster) -> Result<()> {
    let nodes: Api<CSINode> = Api::all(cluster.client().await?);
    let what = format!("the kubelet of {} knows {DRIVER}", cluster.name());
    wait_for(&what, PATIENCE, || async {
        let node = nodes.get(&cluster.node_name()).await?;
        Ok(node.spec.drivers.iter().any(|driver| driver.name == DRIVER).then_some(()))
    })
    .await
}

fn csi_driver() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": DRIVER},
        "spec": {"attachRequired": true, "podInfoOnMount": false, "fsGroupPolicy": "File"},
    })
}

/// A StorageClass of the driver.
pub fn storage_class(name: &str, binding: &str, parameters: &Value) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": DRIVER,
        "volumeBindingMode": binding,
        "allowVolumeExpansion": true,
        "parameters": parameters,
    })
}
