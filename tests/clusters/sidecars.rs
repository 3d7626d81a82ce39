//! The real CSI sidecars, as plain processes beside a driver. They end when their driver's socket goes away and nobody
//! starts them again: start them after the driver.

use std::path::Path;

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::fleet::Fleet;
use super::process::Process;

impl Fleet {
    /// external-provisioner for the driver at this socket.
    pub fn provisioner(&self, cluster: &Cluster, socket: &Path, extra: &[&str]) -> Result<Process> {
        self.sidecar(cluster, "csi-provisioner", Some(socket), &[&["--extra-create-metadata"], extra].concat())
    }

    pub fn attacher(&self, cluster: &Cluster, socket: &Path, extra: &[&str]) -> Result<Process> {
        self.sidecar(cluster, "csi-attacher", Some(socket), extra)
    }

    pub fn resizer(&self, cluster: &Cluster, socket: &Path, extra: &[&str]) -> Result<Process> {
        self.sidecar(cluster, "csi-resizer", Some(socket), extra)
    }

    /// Needs `Cluster::install_snapshot_crds`, as the controller does.
    pub fn snapshotter(&self, cluster: &Cluster, socket: &Path, extra: &[&str]) -> Result<Process> {
        self.sidecar(cluster, "csi-snapshotter", Some(socket), &[&["--extra-create-metadata"], extra].concat())
    }

    /// One per cluster, whatever the drivers.
    pub fn snapshot_controller(&self, cluster: &Cluster, extra: &[&str]) -> Result<Process> {
        self.sidecar(cluster, "snapshot-controller", None, extra)
    }

    fn sidecar(&self, cluster: &Cluster, tool: &str, socket: Option<&Path>, extra: &[&str]) -> Result<Process> {
        let mut arguments = vec![format!("--kubeconfig={}", cluster.kubeconfig_inside().display())];
        arguments.extend(socket.map(|socket| format!("--csi-address={}", socket.display())));
        arguments.extend(extra.iter().map(ToString::to_string));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let name = format!("{}-{tool}", cluster.name());
        // The provisioner keeps its CSIStorageCapacity objects in this namespace. Lists are asked for plainly, as older API
        // servers need it; in a release they come as the beginning of a watch.
        let environment = [("NAMESPACE", "kube-system"), ("KUBE_FEATURE_WatchListClient", "false")];
        self.spawn(&name, self.tools().path(tool), &arguments, &environment)
    }
}

impl Cluster {
    /// The definitions of snapshots and group snapshots, of the snapshot controller's own release.
    pub async fn install_snapshot_crds(&self) -> Result<()> {
        let files = self.tools().snapshot_crds()?;
        let files: Vec<&str> = files.iter().filter_map(|file| file.to_str()).collect();
        let files: Vec<&str> = files.into_iter().flat_map(|file| ["-f", file]).collect();
        self.kubectl(&[&["apply", "--server-side"], &files[..]].concat()).await?;
        let established = ["wait", "--for=condition=Established", "--timeout=30s"];
        let waited = self.kubectl(&[&established[..], &files[..]].concat()).await;
        waited.context("wait until the snapshot definitions are served").map(drop)
    }
}
