//! What every test stands on: a host and two members with storage, the controller and the provisioner in the host, and a
//! virtual node per member.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Event, Node, Secret},
    storage::v1::CSINode,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::{
    clusters::{
        Cluster, Fleet, NodeDriver, Spec, VirtualNode,
        member_driver::{self, MemberStorage, storage_class},
        wait_for,
    },
    driver::{Driver, Launch},
    host_node,
    pool::Need,
};

pub const DRIVER: &str = "kosmos.csi.io";
pub const MEMBER_KEY: &str = "topology.kosmos.csi.io/member";
pub const DRIVER_NAMESPACE: &str = "kosmos-csi";
pub const PODS_NAMESPACE: &str = "kosmos-csi-pods";
/// Of the replica that does the work in the background.
pub const LEASE: &str = "kosmos-csi-leader";
pub const PATIENCE: Duration = Duration::from_mins(1);
/// A member's own controllers look for their API server again after half a minute, or twice that, each watch for itself; and once
/// more where it had just been started, and did not know yet what they may do.
pub const RETURN: Duration = Duration::from_mins(3);
pub const MEMBERS: [&str; 2] = ["cluster38", "cluster39"];

/// The members' classes: rancher's local-path, and those of the project's own storage driver.
pub const LOCAL_PATH: &str = "openebs-hostpath";
pub const NOW: &str = "now";
pub const LATER: &str = "later";
/// Takes five seconds.
pub const DELAYED: &str = "delayed";
/// Folders, which are as large as it is said.
pub const SHARED: &str = "shared";
/// Never succeeds.
pub const STUCK: &str = "stuck";

/// The host's class of snapshots, and one for groups of them.
pub const SNAPSHOT_CLASS: &str = "photos";

pub const HOST_OBJECTS: &str = include_str!("../../deploy/host.yaml");
const MEMBER_OBJECTS: &str = include_str!("../../deploy/member.yaml");

/// The fleet and all that runs in it.
pub struct Rig {
    pub fleet: Fleet,
    pub driver: Driver,
    /// Of the members, one after the other.
    storage: Mutex<Vec<MemberStorage>>,
    /// Of the members, with their heartbeats, where nobody else keeps them.
    nodes: Mutex<Vec<VirtualNode>>,
    /// Somebody may have left it in disorder.
    disorder: Mutex<bool>,
}

impl Rig {
    pub async fn start() -> Result<Self> {
        let fleet = Fleet::start(Spec { members: MEMBERS.len(), nodes: true }).await?;
        let logs = fleet.test("start-of-the-rig");
        let prepared = Self::prepare(&fleet).await;
        let (storage, nodes, driver) = prepared.unwrap_or_else(|error| panic!("{error:#}"));
        drop(logs);
        let (storage, nodes, disorder) = (Mutex::new(storage), Mutex::new(nodes), Mutex::new(false));
        let rig = Self { fleet, driver, storage, nodes, disorder };
        rig.begin_again().await?;
        Ok(rig)
    }

    async fn prepare(fleet: &Fleet) -> Result<(Vec<MemberStorage>, Vec<VirtualNode>, Driver)> {
        let [key, value] = host_node::TAINT;
        let taint = format!("{key}={value}:NoSchedule");
        fleet.host().kubectl(&["taint", "node", &fleet.host().node_name(), &taint]).await?;
        install(fleet.host()).await?;
        let storage = try_join_all(fleet.members().iter().map(|member| prepare(fleet, member))).await?;
        let nodes = try_join_all(MEMBERS.map(|member| virtual_node(fleet.host(), member))).await?;
        Ok((storage, nodes, Driver::new(fleet).await?))
    }

    /// Whatever the tests before have left. Those that share a fleet leave nothing.
    pub async fn prepare_for(&self, need: Need) -> Result<()> {
        let mut disorder = self.disorder.lock().await;
        if *disorder {
            self.begin_again().await?;
        }
        *disorder = !matches!(need, Need::Shared | Need::Node);
        Ok(())
    }

    /// A driver that remembers nothing and knows the two members as they were, no node but theirs, and clusters of which all is at
    /// work.
    async fn begin_again(&self) -> Result<()> {
        self.driver.kill().await?;
        self.driver.reach_host_by(None).await?;
        self.driver.launch_with(Launch::default()).await;
        try_join_all(self.fleet.clusters().map(Cluster::resume)).await?;
        // It would hold for a quarter of a minute after a death that nobody announced.
        let leases = self.leases().await?;
        let led = leases.delete(LEASE, &DeleteParams::default()).await;
        ensure!(
            led.is_ok() || led.is_err_and(|error| matches!(error, kube::Error::Api(status) if status.is_not_found()))
        );
        host_node::leave(self.fleet.host(), &self.fleet.host().node_name()).await?;
        self.restore_nodes().await?;
        let secrets = self.secrets().await?;
        let known = secrets.list(&ListParams::default().labels("kosmos.csi.io/member")).await?;
        for name in known.iter().map(ResourceExt::name_any) {
            self.leave(&name).await?;
        }
        try_join_all(MEMBERS.map(|member| self.join(member))).await?;
        self.driver.ensure(&self.fleet).await
    }

    async fn leases(&self) -> Result<Api<Lease>> {
        Ok(Api::namespaced(self.fleet.host().client().await?, DRIVER_NAMESPACE))
    }

    /// Somebody does the work in the background again.
    pub async fn leads(&self) -> Result<()> {
        let leases = self.leases().await?;
        wait_for("the driver leads", PATIENCE, || async { Ok(leases.get_opt(LEASE).await?.map(drop)) }).await
    }

    /// Makes room for virtual nodes that somebody else keeps, and removes what he has kept. From now on no node lives by us.
    pub async fn remove_nodes(&self) -> Result<()> {
        self.nodes.lock().await.clear();
        let client = self.fleet.host().client().await?;
        let (nodes, csi_nodes): (Api<Node>, Api<CSINode>) = (Api::all(client.clone()), Api::all(client));
        for name in self.agents_nodes().await?.into_iter().chain(MEMBERS.map(|member| format!("kosmos-{member}"))) {
            wait_for(&format!("node {name} is gone"), PATIENCE, || async {
                // One may go with the other.
                for deleted in [
                    nodes.delete(&name, &DeleteParams::default()).await.err(),
                    csi_nodes.delete(&name, &DeleteParams::default()).await.err(),
                ] {
                    ensure!(
                        deleted.is_some_and(|error| matches!(error, kube::Error::Api(status) if status.is_not_found()))
                    );
                }
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Those that an agent has made, for whatever it has found in the members.
    async fn agents_nodes(&self) -> Result<Vec<String>> {
        let nodes: Api<Node> = Api::all(self.fleet.host().client().await?);
        let all = nodes.list_metadata(&ListParams::default()).await?.items;
        let of_agent = all.iter().filter(|node| node.annotations().contains_key("kosmos.csi.io/node-id"));
        Ok(of_agent.map(ResourceExt::name_any).collect())
    }

    /// The rig's own virtual nodes again and no others.
    async fn restore_nodes(&self) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.fleet.host().client().await?);
        let mut others = self.nodes.lock().await.is_empty() || !self.agents_nodes().await?.is_empty();
        for member in MEMBERS {
            others |= nodes.get_opt(&format!("kosmos-{member}")).await?.is_none();
        }
        if others {
            self.remove_nodes().await?;
            let own = try_join_all(MEMBERS.map(|member| virtual_node(self.fleet.host(), member))).await?;
            *self.nodes.lock().await = own;
        }
        Ok(())
    }

    /// Gives the driver a member's kubeconfig, as an operator would.
    pub async fn join(&self, member: &str) -> Result<()> {
        self.join_as(member, self.fleet.member(member)).await
    }

    /// A member under any name.
    pub async fn join_as(&self, name: &str, cluster: &Cluster) -> Result<()> {
        let kubeconfig = cluster.kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi").await?;
        self.join_with(name, &kubeconfig).await
    }

    pub async fn join_with(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": {"kosmos.csi.io/member": name}},
            "stringData": {"kubeconfig": kubeconfig},
        });
        let apply = PatchParams::apply("test").force();
        self.secrets().await?.patch(name, &apply, &Patch::Apply(secret)).await.context("write a member's Secret")?;
        Ok(())
    }

    pub async fn leave(&self, name: &str) -> Result<()> {
        self.secrets().await?.delete(name, &DeleteParams::default()).await?;
        let forget = ["delete", "secret", name, "-n", PODS_NAMESPACE, "--ignore-not-found"];
        self.fleet.host().kubectl(&forget).await.map(drop)
    }

    async fn secrets(&self) -> Result<Api<Secret>> {
        Ok(Api::namespaced(self.fleet.host().client().await?, DRIVER_NAMESPACE))
    }

    /// Waits for a warning on a host volume that contains the words.
    pub async fn event_of_volume(&self, volume: &str, words: &str) -> Result<String> {
        let events: Api<Event> = Api::all(self.fleet.host().client().await?);
        let about = ListParams::default().fields(&format!("involvedObject.name={volume},type=Warning"));
        wait_for(&format!("an event of volume {volume} says {words}"), PATIENCE, || async {
            let messages = events.list(&about).await?.items.into_iter().filter_map(|event| event.message);
            Ok(messages.into_iter().find(|message| message.contains(words)))
        })
        .await
    }

    /// The member's API server comes back, and the driver has noticed.
    pub async fn return_of(&self, member: &str) -> Result<()> {
        self.fleet.member(member).start_api_server().await?;
        wait_for("the member is served again", PATIENCE, || async {
            let line = format!("kosmos_csi_member_up{{member=\"{member}\"}} 1");
            Ok(self.driver.metrics().await?.contains(&line).then_some(()))
        })
        .await
    }

    /// The node of a member has power again: its storage driver and that one's sidecars begin.
    pub async fn storage_begins_again(&self, member: &str) -> Result<()> {
        let mut storage = self.storage.lock().await;
        let of_member = self.fleet.members().iter().zip(storage.iter_mut()).find(|(there, _)| there.name() == member);
        let (there, of_member) = of_member.context("the member has storage")?;
        of_member.begin_again(there).await
    }

    /// They have found it too: until then a claim that is deleted stays, one whose pod has gone counts as used, and no pod gets a node.
    /// Whoever leaves a fleet without this has it done before the next one comes.
    pub async fn own_controllers_return(&self, member: &str) -> Result<()> {
        self.fleet.member(member).resume().await
    }
}

/// What the driver needs in a host.
pub async fn install(host: &Cluster) -> Result<()> {
    host.apply(HOST_OBJECTS).await?;
    host.install_snapshot_crds().await?;
    for class in snapshot_classes(SNAPSHOT_CLASS, DRIVER, "Delete", false) {
        host.apply(&class.to_string()).await?;
    }
    Ok(())
}

/// Rights, storage and classes of a member.
async fn prepare(fleet: &Fleet, member: &Cluster) -> Result<MemberStorage> {
    member.apply(MEMBER_OBJECTS).await?;
    member.install_local_path(LOCAL_PATH).await?;
    let classes = [
        storage_class(NOW, "Immediate", &json!({})),
        storage_class(LATER, "WaitForFirstConsumer", &json!({})),
        storage_class(DELAYED, "Immediate", &json!({"createDelay": "5s"})),
        storage_class(SHARED, "Immediate", &json!({"kind": "shared"})),
        storage_class(STUCK, "Immediate", &json!({"createError": "INTERNAL"})),
    ];
    let storage = fleet.install_member_driver(member, &classes).await?;
    let usual = snapshot_classes("usual", member_driver::DRIVER, "Delete", true);
    let kept = snapshot_classes("kept", member_driver::DRIVER, "Retain", false);
    for class in usual.iter().chain(&kept) {
        member.apply(&class.to_string()).await?;
    }
    Ok(storage)
}

/// A class of snapshots, and one of groups, of a driver.
pub fn snapshot_classes(name: &str, driver: &str, policy: &str, default: bool) -> [Value; 2] {
    let class = |group: &str, kind: &str| {
        let mut class = json!({
            "apiVersion": format!("{group}.storage.k8s.io/v1"), "kind": kind, "metadata": {"name": name},
            "driver": driver, "deletionPolicy": policy,
        });
        if default {
            let key = format!("{group}.storage.kubernetes.io/is-default-class");
            class["metadata"]["annotations"] = json!({key: "true"});
        }
        class
    };
    [class("snapshot", "VolumeSnapshotClass"), class("groupsnapshot", "VolumeGroupSnapshotClass")]
}

async fn virtual_node(host: &Cluster, member: &str) -> Result<VirtualNode> {
    let driver = NodeDriver { name: DRIVER, node_id: &format!("virtual/{member}"), topology_keys: &[MEMBER_KEY] };
    host.virtual_node(&format!("kosmos-{member}"), &[(MEMBER_KEY, member), ("kosmos.io/node", "true")], driver).await
}
