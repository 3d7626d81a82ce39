//! A real node of the host with the driver's node plugin, and on the same machine the node plugin of a member's storage
//! driver: the machine is a node of both clusters.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::Node, storage::v1::CSINode};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    clusters::{
        Cluster, Fleet, NodeDriver, Process, VirtualNode,
        guardian::profile_folder,
        member_driver::{GROUPS, QUICK, TOPOLOGY},
        wait_for,
    },
    rig::{DRIVER, DRIVER_NAMESPACE, MEMBER_KEY, PATIENCE, Rig, snapshot_classes},
};

/// Keeps what is meant for virtual nodes away from the machine, which tests make a node of a member: so a tolerant pod never
/// finds itself there. Key and value.
pub const TAINT: [&str; 2] = ["kosmos-csi.test/machine", "host"];
/// The member whose storage the node reaches.
pub const MEMBER: &str = "cluster38";
const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
/// What the controller needs in a member for real nodes.
const RIGHTS: &str = include_str!("../../deploy/member-attach.yaml");
const PASSWORD: &str = "open-sesame-4711";
const KUBELET: &str = "/var/lib/kubelet";

/// The storage driver that runs on the node.
#[derive(Clone, Copy, Debug)]
pub struct Storage {
    pub driver: &'static str,
    pub attach: bool,
    /// So many volumes of ours are on the node at most.
    pub most: u32,
}

/// Ends what it has started; the host's node is then as it was.
pub struct HostNode<'a> {
    fleet: &'a Fleet,
    storage: Storage,
    plugin: Option<Process>,
    processes: Vec<Process>,
    in_member: VirtualNode,
}

impl<'a> HostNode<'a> {
    pub async fn start(rig: &'a Rig, storage: Storage) -> Result<Self> {
        let (fleet, member) = (&rig.fleet, rig.fleet.member(MEMBER));
        let in_member = join_member(fleet, member, storage).await?;
        let processes = start_storage(fleet, member, storage)?;
        let mut node = Self { fleet, storage, plugin: None, processes, in_member };
        node.start_plugin()?;
        node.registered(storage.driver).await?;
        node.registered(DRIVER).await?;
        Ok(node)
    }

    pub fn name(&self) -> String {
        self.fleet.host().node_name()
    }

    /// The plugin's, seen from outside.
    pub fn socket(&self) -> PathBuf {
        self.fleet.host().node_folder().join("plugins").join(DRIVER).join("csi.sock")
    }

    /// Where the machine's disks are found.
    pub fn disks(&self) -> PathBuf {
        self.fleet.folder().join("by-id")
    }

    pub fn start_plugin(&mut self) -> Result<()> {
        let leaf_driver = format!("--leaf-driver={}", self.storage.driver);
        let folders = format!("--local-folder={}", self.fleet.folder().display());
        self.start_plugin_with(&[&leaf_driver, &folders])
    }

    fn start_plugin_with(&mut self, storage: &[&str]) -> Result<()> {
        let (name, disks) = (self.name(), format!("--device-dir={}", self.disks().display()));
        let most = format!("--max-volumes={}", self.storage.most);
        let usual = ["node", "--node-name", &name, "--member", MEMBER, &most, &disks, "--shutdown-grace=5s"];
        let log = [("RUST_LOG", "warn,kosmos_csi=debug")];
        let (program, arguments) = (PathBuf::from(PROGRAM), [&usual[..], storage].concat());
        self.plugin = Some(self.fleet.host().spawn_in_node("kosmos-csi-node", &program, &arguments, &log)?);
        Ok(())
    }

    /// The storage driver does not answer this call until [`Self::kill_within`] lets it go on.
    pub fn hold_up(&self, method: &str) -> Result<()> {
        std::fs::create_dir_all(self.held()).context("make the folder of what is held up")?;
        std::fs::write(self.held().join(method), "").context("hold up a call")
    }

    /// Kills the plugin while it waits for the storage driver in this call.
    pub async fn kill_within(&mut self, method: &str) -> Result<()> {
        wait_for(&format!("{method} waits for the storage driver"), PATIENCE, || async {
            let log = self.plugin.as_ref().context("the node plugin does not run")?.log()?;
            let asks = |line: &str| line.contains(method) && line.contains("the leaf driver is asked");
            Ok(log.lines().any(asks).then_some(()))
        })
        .await?;
        self.kill_plugin().await?;
        std::fs::remove_file(self.held().join(method)).context("let the call go on")
    }

    fn held(&self) -> PathBuf {
        self.fleet.host().node_folder().join("plugins").join(self.storage.driver).join("state/held")
    }

    /// SIGKILL, and a new one.
    pub async fn kill_plugin(&mut self) -> Result<()> {
        self.end_plugin().await?;
        self.start_plugin()
    }

    /// SIGKILL, and a new one that is told of no storage which it may use.
    pub async fn permit_nothing(&mut self) -> Result<()> {
        self.end_plugin().await?;
        self.start_plugin_with(&[])
    }

    pub fn signal_plugin(&self, signal: Signal) -> Result<()> {
        self.plugin.as_ref().context("the node plugin does not run")?.signal(signal)
    }

    /// As the machine counts, if it was started.
    pub fn plugin_pid(&self) -> Option<i32> {
        self.plugin.as_ref().map(Process::pid)
    }

    /// Where it has ended.
    pub fn plugin_begins_again(&mut self) -> Result<()> {
        let plugin = self.plugin.as_mut().context("the node plugin does not run")?;
        if plugin.is_running()? { Ok(()) } else { plugin.start_again() }
    }

    async fn end_plugin(&mut self) -> Result<()> {
        let plugin = self.plugin.take().context("the node plugin does not run")?;
        plugin.kill()?;
        plugin.wait(Duration::from_secs(10)).await.map(drop)
    }

    /// The kubelet knows a driver, and the node's labels say where it is.
    async fn registered(&self, driver: &str) -> Result<()> {
        let client = self.fleet.host().client().await?;
        let (entries, nodes): (Api<CSINode>, Api<Node>) = (Api::all(client.clone()), Api::all(client));
        wait_for(&format!("the host's kubelet knows {driver}"), PATIENCE, || async {
            let known = entries.get(&self.name()).await?.spec.drivers.iter().any(|entry| entry.name == driver);
            let labels = nodes.get(&self.name()).await?.metadata.labels.unwrap_or_default();
            Ok((known && (driver != DRIVER || labels.contains_key(MEMBER_KEY))).then_some(()))
        })
        .await
    }

    /// Where the machine was without power, and its kubelet has begun: the storage driver and the plugin do as well.
    pub async fn begin_again(&mut self) -> Result<()> {
        self.processes.clear();
        self.processes = start_storage(self.fleet, self.fleet.member(MEMBER), self.storage)?;
        self.start_plugin()?;
        self.registered(self.storage.driver).await?;
        self.registered(DRIVER).await
    }

    /// What is mounted on the node below a part of the kubelet's folder.
    pub async fn mounts(&self, part: &str) -> Result<Vec<String>> {
        let table = self.fleet.host().node_exec("cat", &["/proc/self/mountinfo"]).await?;
        Ok(table.lines().filter(|line| line.contains(part)).map(str::to_owned).collect())
    }

    /// No volume of ours has left anything on the node.
    pub async fn is_clean(&self) -> Result<()> {
        wait_for("nothing of a volume is left on the node", PATIENCE, || async {
            let mounted = self.mounts(&format!("plugins/kubernetes.io/csi/{DRIVER}/")).await?;
            ensure!(mounted.is_empty(), "still mounted: {mounted:#?}");
            let records = self.fleet.host().node_folder().join("plugins").join(DRIVER).join("volumes");
            let left = std::fs::read_dir(&records).map_or(0, Iterator::count);
            ensure!(left == 0, "{left} records are left in {}", records.display());
            Ok(Some(()))
        })
        .await
    }

    pub async fn end(self) -> Result<()> {
        let (host, name) = (self.fleet.host(), self.name());
        let Self { in_member, plugin, processes, .. } = self;
        drop((plugin, processes));
        leave(host, &name).await?;
        in_member.delete().await
    }
}

/// The node is no node of ours any more, whatever a test has left.
pub async fn leave(host: &Cluster, name: &str) -> Result<()> {
    let client = host.client().await?;
    let nodes: Api<Node> = Api::all(client.clone());
    for socket in [DRIVER, NEAR.driver, FAR.driver] {
        let file = host.node_folder().join("plugins_registry").join(format!("{socket}-reg.sock"));
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", file.display()));
            }
            _ => {}
        }
    }
    let entries: Api<CSINode> = Api::all(client);
    wait_for("the host's kubelet has forgotten the driver", PATIENCE, || async {
        let known =
            entries.get_opt(name).await?.is_some_and(|node| node.spec.drivers.iter().any(|entry| entry.name == DRIVER));
        Ok((!known).then_some(()))
    })
    .await?;
    let without = Patch::Merge(json!({"metadata": {"labels": {MEMBER_KEY: null}}}));
    nodes.patch(name, &PatchParams::default(), &without).await?;
    Ok(())
}

/// Storage that is attached first.
pub const FAR: Storage = Storage { driver: "far.kosmos-csi.test", attach: true, most: 4 };

/// Storage that needs no attaching.
pub const NEAR: Storage = Storage { driver: "near.kosmos-csi.test", attach: false, most: 4 };

/// The machine as a node of the member: the same machine, by what its kubelets say of it.
async fn join_member(fleet: &Fleet, member: &Cluster, storage: Storage) -> Result<VirtualNode> {
    member.apply(RIGHTS).await?;
    for role in ["kosmos-csi-secrets", "kosmos-csi-machines"] {
        member.apply(&bound(role).to_string()).await?;
    }
    let name = fleet.host().node_name();
    let key = format!("{}/node", storage.driver);
    let driver = NodeDriver { name: storage.driver, node_id: &name, topology_keys: &[&key] };
    let node = member.virtual_node(&name, &[(&key, &name)], driver).await?;
    let host: Api<Node> = Api::all(fleet.host().client().await?);
    let machine =
        host.get(&name).await?.status.and_then(|status| status.node_info).context("a kubelet tells its machine")?;
    let nodes: Api<Node> = Api::all(member.client().await?);
    let status = json!({"status": {"nodeInfo": machine}});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(node)
}

/// As the member's administrator says where the Secrets and the machines are.
fn bound(role: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": role, "namespace": DRIVER_NAMESPACE},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "kosmos-csi", "namespace": DRIVER_NAMESPACE}],
    })
}

/// The storage driver runs on the node; its sidecars are the member's.
fn start_storage(fleet: &Fleet, member: &Cluster, storage: Storage) -> Result<Vec<Process>> {
    let folder = format!("{KUBELET}/plugins/{}", storage.driver);
    let arguments = [
        format!("--endpoint={folder}/csi.sock"),
        format!("--registration={KUBELET}/plugins_registry/{}-reg.sock", storage.driver),
        format!("--driver-name={}", storage.driver),
        format!("--node-name={}", fleet.host().node_name()),
        format!("--state={folder}/state"),
        format!("--attach={}", if storage.attach { "on" } else { "off" }),
    ];
    let own = fleet.host().node_folder().join("plugins").join(storage.driver);
    std::fs::create_dir_all(own.join("state")).context("make the storage driver's folder")?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let program = profile_folder()?.join("member-driver");
    let driver = fleet.host().spawn_in_node(storage.driver, &program, &arguments, &[])?;
    let socket = own.join("csi.sock");
    let (provisioner, snapshotter) = ([&[TOPOLOGY], &QUICK[..]].concat(), [&[GROUPS], &QUICK[..]].concat());
    let mut processes = vec![driver, fleet.provisioner(member, &socket, &provisioner)?];
    processes.push(fleet.resizer(member, &socket, &QUICK)?);
    processes.push(fleet.snapshotter(member, &socket, &snapshotter)?);
    if storage.attach {
        processes.push(fleet.attacher(member, &socket, &QUICK)?);
    }
    Ok(processes)
}

/// Volumes that open for a Secret alone.
pub const LOCKED: &str = "locked";

/// Volumes that are folders: they grow without a mount.
pub const FOLDERS: &str = "folders";

/// The storage driver's objects in the member: a class for each filesystem it makes, by the filesystem's name (`far-` before it
/// where the storage is), and one of folders.
pub fn storage_objects(storage: Storage) -> Vec<Value> {
    let class = |name: &str, parameters: Value| {
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": storage.driver, "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
            "parameters": parameters,
        })
    };
    let of = |name: &str| if storage.attach { format!("far-{name}") } else { name.to_owned() };
    let disks = |filesystem: &str| class(&of(filesystem), json!({"csi.storage.k8s.io/fstype": filesystem}));
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": storage.driver},
        "spec": {"attachRequired": storage.attach, "podInfoOnMount": false, "fsGroupPolicy": "File"},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": LOCKED, "namespace": DRIVER_NAMESPACE},
        "stringData": {"password": PASSWORD},
    });
    let locked = json!({
        "password": PASSWORD,
        "csi.storage.k8s.io/node-stage-secret-name": LOCKED,
        "csi.storage.k8s.io/node-stage-secret-namespace": DRIVER_NAMESPACE,
        "csi.storage.k8s.io/node-publish-secret-name": LOCKED,
        "csi.storage.k8s.io/node-publish-secret-namespace": DRIVER_NAMESPACE,
    });
    let folders = class(&of(FOLDERS), json!({"kind": "shared"}));
    let [photo, group] = snapshot_classes(storage.driver, storage.driver, "Delete", true);
    vec![driver, disks("ext4"), disks("xfs"), secret, class(&of(LOCKED), locked), folders, photo, group]
}
