//! This machine as a node of the host, on a socket of its own: the real node service, and below it the played node plugin
//! of the members' storage. It has no Node in the host, for no pod can run on it; its CSINode makes it known to the driver.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::leaf::Leaf;
use cluster::metrics::Metrics;
use commands::run::{Misuse, node};
use csi::{
    identity::Identity,
    node::Info,
    server::{self, Socket},
};
use domain::volume::{DRIVER, MEMBER_KEY, NodeId};
use mount::{Linux, Machine, Permitted};

/// The node's name in the host.
pub(super) const NAME: &str = "this-machine";
/// How many volumes it takes.
const MOST: u32 = 16;
/// The storage driver of the simulated members.
const STORAGE: &str = "storage.simulated";

/// Where the node keeps what is its own.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) socket: PathBuf,
    pub(super) kubelet_dir: PathBuf,
    pub(super) device_dir: PathBuf,
    /// Of the members' storage.
    pub(super) volumes: PathBuf,
}

pub(super) fn csi_node() -> Value {
    let node_id = NodeId::Real(NAME.to_owned()).to_string();
    let entry =
        json!({"name": DRIVER, "nodeID": node_id, "topologyKeys": [MEMBER_KEY], "allocatable": {"count": MOST}});
    json!({"metadata": {"name": NAME}, "spec": {"drivers": [entry]}})
}

impl Places {
    fn own(&self, driver: &str) -> PathBuf {
        self.kubelet_dir.join("plugins").join(driver)
    }

    /// The sockets of the driver's node service and of the storage's.
    pub(super) async fn bind(&self) -> anyhow::Result<(Socket, Socket)> {
        for folder in [self.own(DRIVER), self.own(STORAGE)] {
            std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let socket = Socket::bind(&self.socket).await.map_err(Misuse)?;
        let storage = Socket::bind(&self.own(STORAGE).join("csi.sock")).await.map_err(Misuse)?;
        Ok((socket, storage))
    }
}

/// Serves both until the token is cancelled.
pub(super) async fn run(
    places: Places,
    (socket, leaf_socket): (Socket, Socket),
    member: String,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let permitted = Permitted { local_folders: vec![places.volumes.clone()], ..Permitted::default() };
    let (kubelet_dir, device_dir) = (places.kubelet_dir.clone(), places.device_dir.clone());
    let machine = Machine::new(Linux, places.own(STORAGE).join("volumes"), device_dir, kubelet_dir, permitted);
    let leaf = Leaf { machine: machine.into() };
    let info = Info { name: NAME.to_owned(), member, most: MOST };
    let permitted = Permitted { leaf_drivers: vec![STORAGE.to_owned()], ..Permitted::default() };
    let own = places.own(DRIVER);
    let service = node::service(info, places.kubelet_dir, places.device_dir, &own, permitted);
    let serving = server::serve_node(socket, Identity::default(), service, Metrics::new(), stop.clone());
    let playing = server::serve_node(leaf_socket, Identity(STORAGE), leaf, Metrics::new(), stop);
    tokio::try_join!(serving, playing).context("the node's sockets")?;
    Ok(())
}
