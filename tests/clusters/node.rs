//! A cluster's real node: containerd and kubelet in namespaces of their own, at the usual paths.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use serde_json::json;

use super::cluster::Cluster;
use super::guardian;
use super::images::PAUSE;
use super::namespaces::{BRIDGE, BRIDGE_ADDRESS, UNSHARE_NODE, child_of, unshare_arguments};
use super::packages;
use super::process::{Process, told};
use super::remains::{cgroup_hierarchies, cgroup_name};
use super::wait::wait_for;

const PATIENCE: Duration = Duration::from_mins(1);
/// The process that holds the node's namespaces; with it everything in the node ends.
const HOLDER: &str = "node";
const CONTAINERD: &str = "containerd";
const KUBELET: &str = "kubelet";
/// What a machine has in memory alone.
const RUN: &str = "run";

impl Cluster {
    pub fn node_name(&self) -> String {
        format!("{}-n1", self.name())
    }

    pub fn node_address(&self) -> Result<IpAddr> {
        self.place().node_address().parse().context("read the node's address")
    }

    /// The node's `/var/lib/kubelet`, seen from outside. What is mounted in the node shows as an empty folder here.
    pub fn node_folder(&self) -> PathBuf {
        self.folder().join("lib/kubelet")
    }

    /// Runs a command in the node to its end and returns what it prints.
    pub async fn node_exec(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.guardian().exec(self.node_init()?, program, arguments).await
    }

    /// Starts a process in the node, with its log in the cluster's folder.
    pub fn spawn_in_node(
        &self,
        name: &str,
        program: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let environment = environment.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        self.spawn_in(self.node_init()?, name, program, arguments, environment)
    }

    pub(super) fn node_init(&self) -> Result<i32> {
        child_of(self.pid(HOLDER)?).with_context(|| format!("{} has no node", self.name()))
    }

    /// All that runs in the node ends at once, and its mounts and its network are gone. What is on its disk stays.
    pub async fn power_off(&self) -> Result<()> {
        for process in [HOLDER, KUBELET, CONTAINERD] {
            self.stop(process).await?;
        }
        // The kernel takes it away as well, whenever it comes to that.
        let cable = format!("ip link delete {} 2>/dev/null || true", self.name());
        run_in_network(self.guardian().started.init, &cable).await
    }

    /// Until its kubelet says that it is ready. What people have started in the node is theirs to start again.
    pub async fn power_on(&self) -> Result<()> {
        let run = self.folder().join(RUN);
        fs::remove_dir_all(&run).with_context(|| format!("empty {}", run.display()))?;
        let init = start_namespaces(self).await?;
        connect(self, init).await?;
        start_containerd(self, init, &[]).await?;
        start_kubelet(self, init)?;
        ready(self).await
    }
}

/// Starts the node and waits until its kubelet says that it is ready.
pub async fn start(cluster: &Cluster, images: &[PathBuf]) -> Result<()> {
    let init = start_namespaces(cluster).await?;
    connect(cluster, init).await?;
    make_cgroups(cluster)?;
    start_containerd(cluster, init, images).await?;
    start_kubelet(cluster, init)?;
    ready(cluster).await
}

async fn start_namespaces(cluster: &Cluster) -> Result<i32> {
    let mut arguments = unshare_arguments(UNSHARE_NODE);
    let node = ["init", "--node", &cluster.node_name(), "--folder", &cluster.folder().display().to_string()];
    arguments.push(guardian::program()?.display().to_string());
    arguments.extend(node.map(str::to_owned));
    let log = cluster.folder().join(format!("{HOLDER}.log"));
    // What an earlier one has said is not this one's.
    if log.exists() {
        fs::remove_file(&log).context("remove the log of the node's earlier namespaces")?;
    }
    cluster.start_in(cluster.guardian().started.init, HOLDER, Path::new("unshare"), arguments)?;
    wait_for("the node's namespaces are ready", PATIENCE, || async {
        cluster.alive(HOLDER)?;
        Ok(fs::read_to_string(&log)?.contains("ready").then_some(()))
    })
    .await?;
    child_of(cluster.pid(HOLDER)?)
}

/// A cable from the node to the fleet's bridge. Pods are reached through the node.
async fn connect(cluster: &Cluster, init: i32) -> Result<()> {
    let address = cluster.place().node_address();
    let (cable, pods) = (cluster.name(), cluster.place().pods());
    let (service, port) = (cluster.place().first_service(), cluster.place().api_port());
    let fleet = format!(
        "ip link add {cable} type veth peer name eth0 netns {init}; ip link set {cable} master {BRIDGE} up; \
         ip route replace {pods} via {address}"
    );
    // Nobody serves services here, and programs in pods look for the API server at its own.
    let node = format!(
        "ip address add {address}/24 dev eth0; ip link set eth0 up; ip route add default via {BRIDGE_ADDRESS}; \
         echo 1 >/proc/sys/net/ipv4/ip_forward; \
         iptables -w -t nat -A PREROUTING -d {service} -p tcp --dport 443 -j DNAT --to-destination {BRIDGE_ADDRESS}:{port}"
    );
    run_in_network(cluster.guardian().started.init, &fleet).await?;
    run_in_network(init, &node).await
}

/// Only the network: `ip` must take process numbers as the machine counts them.
async fn run_in_network(process: i32, script: &str) -> Result<()> {
    let mut command = tokio::process::Command::new("nsenter");
    command.args(["-t", &process.to_string(), "-n", "--", "sh", "-ec", script]);
    let output = command.output().await.context("run nsenter")?;
    told(&output, script).map(drop)
}

fn cgroup(cluster: &Cluster) -> String {
    let fleet = cgroup_name(&cluster.guardian().started.folder);
    format!("{fleet}/{}", cluster.name())
}

/// Kubelets must not share `/kubepods`: each has a cgroup of its own to put its pods in.
fn make_cgroups(cluster: &Cluster) -> Result<()> {
    for hierarchy in cgroup_hierarchies()? {
        let mut made = hierarchy.clone();
        for part in Path::new(&cgroup(cluster)) {
            delegate(&made)?;
            let parent = made.clone();
            made.push(part);
            fs::create_dir_all(&made).with_context(|| format!("make the cgroup {}", made.display()))?;
            inherit_processors(&parent, &made)?;
        }
        delegate(&made)?;
    }
    Ok(())
}

/// Version 1: a new cpuset is empty, and nothing can run in it.
fn inherit_processors(parent: &Path, made: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let is_version_1 = made.join("cpuset.cpu_exclusive").exists();
        if is_version_1 {
            let value = fs::read(parent.join(file)).with_context(|| format!("read {file}"))?;
            fs::write(made.join(file), value).with_context(|| format!("write {file}"))?;
        }
    }
    Ok(())
}

/// Version 2: a cgroup hands each controller on to those below it, or they do not have it.
fn delegate(cgroup: &Path) -> Result<()> {
    let Ok(controllers) = fs::read_to_string(cgroup.join("cgroup.controllers")) else {
        return Ok(());
    };
    let all: Vec<String> = controllers.split_whitespace().map(|controller| format!("+{controller}")).collect();
    fs::write(cgroup.join("cgroup.subtree_control"), all.join(" "))
        .with_context(|| format!("hand on the controllers of {}", cgroup.display()))
}

async fn start_containerd(cluster: &Cluster, init: i32, images: &[PathBuf]) -> Result<()> {
    let folder = cluster.folder().join("containerd");
    write_containerd_files(cluster, &folder)?;
    let arguments = vec!["--config".into(), folder.join("config.toml").display().to_string()];
    cluster.start_in(init, CONTAINERD, Path::new(CONTAINERD), arguments)?;
    let what = format!("containerd of {} answers", cluster.name());
    wait_for(&what, PATIENCE, || async {
        cluster.alive(CONTAINERD)?;
        cluster.guardian().exec(init, "ctr", &["version"]).await.map(Some)
    })
    .await?;
    for image in images {
        let image = image.display().to_string();
        cluster.guardian().exec(init, "ctr", &["-n", "k8s.io", "images", "import", &image]).await?;
    }
    Ok(())
}

fn write_containerd_files(cluster: &Cluster, folder: &Path) -> Result<()> {
    let network = folder.join("cni");
    fs::create_dir_all(&network).context("make containerd's folder")?;
    let network_folder = network.display();
    let plugins = packages::cni_plugins();
    let plugins = plugins.context("there are no CNI plugins: run `clusters packages`")?;
    let plugins = plugins.display();
    let optional = folder.join("opt").display().to_string();
    // restrict_oom_score_adj: a machine without CAP_SYS_RESOURCE may not lower it.
    let config = format!(
        r#"version = 2
[plugins."io.containerd.internal.v1.opt"]
  path = "{optional}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{network_folder}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#
    );
    fs::write(folder.join("config.toml"), config).context("configure containerd")?;
    let addresses = json!({"type": "host-local", "ranges": [[{"subnet": cluster.place().pods()}]],
        "routes": [{"dst": "0.0.0.0/0"}]});
    let bridge = json!({"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
        "ipam": addresses});
    let ports = json!({"type": "portmap", "capabilities": {"portMappings": true}});
    let pods = json!({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]});
    fs::write(network.join("10-pods.conflist"), pods.to_string()).context("configure the pods' network")
}

fn start_kubelet(cluster: &Cluster, init: i32) -> Result<()> {
    let folder = cluster.folder();
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": folder.join("pki/ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": folder.join("pki/kubelet-serving.crt"),
        "tlsPrivateKeyFile": folder.join("pki/kubelet-serving.key"),
        "failCgroupV1": false, // machines that have only version 1 will do
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", cgroup(cluster)),
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": "cluster.local",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "resolvConf": "",
        // A share of the disk would be gigabytes of a large one, which fills up with builds.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "100Mi", "imagefs.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
        // A volume that has grown is looked at with its pod, and measured with all others.
        "syncFrequency": "10s",
        "volumeStatsAggPeriod": "10s",
        // A volume is mounted once the node says that it is in use, and detached once the node says so no more: by itself it
        // comes to that every ten seconds. What has not changed is told as seldom as ever.
        "nodeStatusUpdateFrequency": "2s",
        "nodeStatusReportFrequency": "5m",
    });
    let file = folder.join("kubelet.json");
    fs::write(&file, config.to_string()).context("configure the kubelet")?;
    let arguments = vec![
        format!("--config={}", file.display()),
        format!("--kubeconfig={}", folder.join("kubelet.kubeconfig").display()),
        format!("--hostname-override={}", cluster.node_name()),
        format!("--node-ip={}", cluster.place().node_address()),
    ];
    cluster.start_in(init, KUBELET, &cluster.tools().path(KUBELET), arguments)
}

/// Waits until the node is ready, also after a restart of its kubelet.
pub async fn ready(cluster: &Cluster) -> Result<()> {
    let nodes: Api<Node> = Api::all(cluster.client().await?);
    let what = format!("the node {} is ready", cluster.node_name());
    wait_for(&what, PATIENCE, || async {
        cluster.alive(KUBELET)?;
        let node = nodes.get_opt(&cluster.node_name()).await?;
        let conditions = node.and_then(|node| node.status?.conditions).unwrap_or_default();
        let is_ready = conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        Ok(is_ready.then_some(()))
    })
    .await
}
