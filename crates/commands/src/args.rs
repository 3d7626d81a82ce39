//! The command line. Every flag has a twin in the environment; values are checked here, at the edge.

mod address;
pub mod mover;
pub mod operator;
pub mod volume_stats;

use std::{
    net::{IpAddr, SocketAddr},
    num::NonZeroU16,
    path::PathBuf,
    time::Duration,
};

use clap::Subcommand;

use crate::telemetry::{LogFormat, collector};
use address::{address_and_port, https_address, loopback_and_port};
use domain::volume::{
    DRIVER,
    id::{is_label, is_member_name, is_subdomain},
};
use mount::source::is_server;

#[derive(Debug, Subcommand)]
pub enum Role {
    /// Serve Identity and Controller beside the sidecars, in the host
    Controller(Controller),
    /// Keep a virtual node in the host for each member, and run in the member the pods that are bound to it
    ///
    /// If Kosmos clustertree keeps the virtual nodes, this role adds what they lack, and clustertree runs the pods.
    VirtualNode(VirtualNode),
    /// Serve Identity and Node on a node of the host, and make the driver known to its kubelet
    ///
    /// It needs root, and the kubelet's folder mounted with bidirectional propagation. It asks no cluster: the controller
    /// sends what it has to know with each volume.
    Node(Node),
    /// Copy a volume's files to another member; the driver runs this in pods of its own
    #[command(subcommand)]
    Mover(mover::Mover),
    /// Report from a pod in a member how full the volumes of a host's pods are; `member add --volume-stats` creates that pod
    VolumeStats(volume_stats::VolumeStats),
    #[command(flatten)]
    Operator(operator::Command),
}

/// What every role that serves a socket has.
#[derive(Debug, clap::Args)]
pub struct Common {
    /// The socket to serve, such as `unix:///csi/csi.sock`; CSI_ENDPOINT is read as well
    #[arg(long, env = "KOSMOS_CSI_ENDPOINT", value_parser = socket_path, value_name = "unix:///PATH")]
    pub endpoint: Option<PathBuf>,

    /// Kubeconfig of the host cluster; without it, the pod's own service account
    #[arg(long, env = "KOSMOS_CSI_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub process: Process,
}

/// What every role that goes on has.
#[derive(Debug, clap::Args)]
pub struct Process {
    /// The address at which to serve /livez, /readyz and /metrics; without it, they are not served
    #[arg(long, env = "KOSMOS_CSI_ADMIN_ADDRESS", value_name = "ADDRESS:PORT")]
    pub admin_address: Option<SocketAddr>,

    /// After a signal to stop, how long requests under way may take to finish
    #[arg(long, env = "KOSMOS_CSI_SHUTDOWN_GRACE", default_value = "30s", value_parser = humantime::parse_duration, value_name = "TIME")]
    pub shutdown_grace: Duration,

    /// How log lines are written
    #[arg(long, env = "KOSMOS_CSI_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,

    /// Where to send traces of what this process does: the OTLP/gRPC port of an OpenTelemetry collector, such as
    /// http://collector.monitoring:4317; OTEL_EXPORTER_OTLP_ENDPOINT is read as well. Without either, none are sent
    #[arg(long, env = "KOSMOS_CSI_OTLP_ENDPOINT", value_parser = collector, value_name = "http://HOST:PORT")]
    pub otlp_endpoint: Option<String>,
}

#[derive(Debug, clap::Args)]
pub struct Controller {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    pub members: Members,

    /// The driver's namespace in the host: member Secrets (label kosmos.csi.io/member, key kubeconfig) and the record of
    /// which member is which cluster
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_NAMESPACE", default_value = "kosmos-csi", value_parser = namespace, value_name = "NAMESPACE")]
    pub members_namespace: String,

    /// Namespace in the members for volumes whose claim the provisioner does not name
    #[arg(long, env = "KOSMOS_CSI_LEAF_NAMESPACE", default_value = "kosmos-csi", value_parser = namespace, value_name = "NAMESPACE")]
    pub leaf_namespace: String,

    /// Image of the movers, pods in the members that copy a volume's files; with it, the driver moves volumes to other members
    /// as VolumeMoves ask
    #[arg(long, env = "KOSMOS_CSI_MOVER_IMAGE", value_name = "IMAGE")]
    pub mover_image: Option<String>,

    /// How many moves copy at the same time; the others wait, and their pods go on meanwhile
    #[arg(long, env = "KOSMOS_CSI_MOVES_AT_ONCE", default_value = "2", value_name = "COUNT")]
    pub moves_at_once: NonZeroU16,

    /// The address at which to show members and volumes in a browser; only one of this machine alone, such as 127.0.0.1:9813.
    /// Without it, there is no such page
    #[arg(long, env = "KOSMOS_CSI_UI_ADDRESS", value_parser = loopback_and_port, value_name = "ADDRESS:PORT")]
    pub ui_address: Option<SocketAddr>,
}

/// Where the members are named.
#[derive(Debug, clap::Args)]
pub struct Members {
    /// Folder of <name>.kubeconfig files, one per member; <name>.cordon closes a member to new volumes,
    /// <name>.virtual-node.kubeconfig is for running pods there, and <name>.privileged-pods lets pods there ask for more than baseline
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_DIR", value_name = "FOLDER")]
    pub members_dir: Option<PathBuf>,

    /// Whether Kosmos Cluster objects of the host are members too; auto: if the host has their CRD, now or later
    #[arg(long, env = "KOSMOS_CSI_KOSMOS_CLUSTERS", value_enum, default_value = "auto", value_name = "auto|on|off")]
    pub kosmos_clusters: KosmosClusters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KosmosClusters {
    Auto,
    /// Wait for their CRD
    On,
    Off,
}

#[derive(Debug, clap::Args)]
pub struct VirtualNode {
    /// Kubeconfig of the host cluster; without it, the pod's own service account
    #[arg(long, env = "KOSMOS_CSI_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub members: Members,

    /// The agent's own namespace in the host, which the driver's account cannot read: member Secrets (label
    /// kosmos.csi.io/member, key kubeconfig), each with an account for pods, and the record of which member is which cluster
    #[arg(long, env = "KOSMOS_CSI_MEMBERS_NAMESPACE", default_value = "kosmos-csi-pods", value_parser = namespace, value_name = "NAMESPACE")]
    pub members_namespace: String,

    /// What a virtual node stands for; one choice for the whole host
    #[arg(long, env = "KOSMOS_CSI_NODE_MODE", value_enum, default_value = "member")]
    pub node_mode: NodeMode,

    #[command(flatten)]
    pub kubelet_api: KubeletApi,

    /// The address by which pods in members reach the host's API server; without it, such pods must know it themselves
    #[arg(long, env = "KOSMOS_CSI_HOST_ADDRESS", value_parser = https_address, value_name = "https://HOST:PORT")]
    pub host_address: Option<(String, u16)>,

    #[command(flatten)]
    pub process: Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum NodeMode {
    /// One virtual node for each member: kosmos-<member>
    Member,
    /// One virtual node for each node of a member: kosmos-<member>-<node>
    Node,
}

#[derive(Debug, clap::Args)]
pub struct Node {
    /// The socket to serve; CSI_ENDPOINT is read as well. Without either: plugins/kosmos.csi.io/csi.sock in --kubelet-dir
    #[arg(long, env = "KOSMOS_CSI_ENDPOINT", value_parser = socket_path, value_name = "unix:///PATH")]
    pub endpoint: Option<PathBuf>,

    /// This node's name in the host
    #[arg(long, env = "KOSMOS_CSI_NODE_NAME", value_parser = node_name, value_name = "NAME")]
    pub node_name: String,

    /// The member whose volumes this node can use
    #[arg(long, env = "KOSMOS_CSI_MEMBER", value_parser = member_name, value_name = "NAME")]
    pub member: String,

    /// Who registers the driver with the kubelet: this process (kubelet), or a node-driver-registrar beside it (none)
    #[arg(long, env = "KOSMOS_CSI_REGISTRATION", value_enum, default_value = "kubelet")]
    pub registration: Registration,

    /// The kubelet's folder, under the same path as the kubelet sees it
    #[arg(long, env = "KOSMOS_CSI_KUBELET_DIR", default_value = "/var/lib/kubelet", value_parser = absolute, value_name = "FOLDER")]
    pub kubelet_dir: PathBuf,

    /// Where attached disks are found by their ids
    #[arg(long, env = "KOSMOS_CSI_DEVICE_DIR", default_value = "/dev/disk/by-id", value_parser = absolute, value_name = "FOLDER")]
    pub device_dir: PathBuf,

    /// A storage driver of this node that the plugin calls to mount the member's volumes; may be repeated, none by default
    #[arg(long = "leaf-driver", env = "KOSMOS_CSI_LEAF_DRIVER", value_delimiter = ',', value_parser = leaf_driver, value_name = "NAME")]
    pub leaf_drivers: Vec<String>,

    /// An NFS server, as the member's PersistentVolumes name it, whose exports the plugin mounts; may be repeated, none by
    /// default
    #[arg(long = "nfs-server", env = "KOSMOS_CSI_NFS_SERVER", value_delimiter = ',', value_parser = nfs_server, value_name = "HOST")]
    pub nfs_servers: Vec<String>,

    /// A folder of this node that contains local volumes of the member, or their devices; may be repeated, none by default
    #[arg(long = "local-folder", env = "KOSMOS_CSI_LOCAL_FOLDER", value_delimiter = ',', value_parser = absolute, value_name = "FOLDER")]
    pub local_folders: Vec<PathBuf>,

    /// How many volumes this node can have at once, such as the disks its virtual machine takes; 0: any number
    #[arg(long, env = "KOSMOS_CSI_MAX_VOLUMES", default_value_t = 0, value_name = "COUNT")]
    pub max_volumes: u32,

    #[command(flatten)]
    pub process: Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Registration {
    Kubelet,
    None,
}

/// The endpoint at which the host's API server finds a kubelet behind virtual nodes.
#[derive(Debug, clap::Args)]
pub struct KubeletApi {
    /// The address at which the host's API server reaches this process for logs, exec, attach and port-forward of pods on virtual
    /// nodes; without it, these are not served
    #[arg(long, env = "KOSMOS_CSI_KUBELET_ADDRESS", value_parser = address_and_port, value_name = "ADDRESS:PORT")]
    pub kubelet_address: Option<SocketAddr>,

    /// The address that virtual nodes report instead, with the same port, such as that of a Service in front of all replicas;
    /// the certificate must contain it
    #[arg(long, env = "KOSMOS_CSI_KUBELET_ADVERTISE_ADDRESS", requires_all = ["kubelet_address", "kubelet_certificate"], value_name = "ADDRESS")]
    pub kubelet_advertise_address: Option<IpAddr>,

    /// How many of the ports after that of --kubelet-address to use, one for each virtual node: there a node reports what its pods use,
    /// for `kubectl top`, autoscalers and Prometheus; 0: no node reports it
    #[arg(
        long,
        env = "KOSMOS_CSI_KUBELET_NODE_PORTS",
        requires = "kubelet_address",
        default_value_t = 0,
        value_name = "COUNT"
    )]
    pub kubelet_node_ports: u16,

    /// Certificates (PEM) of the authority that signs the API server's client certificate; without it, those in the host's
    /// ConfigMap kube-system/extension-apiserver-authentication
    #[arg(long, env = "KOSMOS_CSI_KUBELET_CLIENT_CA", requires = "kubelet_address", value_name = "FILE")]
    pub kubelet_client_ca: Option<PathBuf>,

    /// The certificate (PEM) to show to the API server; without it, this process makes and signs one itself, which an API server
    /// with --kubelet-certificate-authority does not accept
    #[arg(long, env = "KOSMOS_CSI_KUBELET_CERTIFICATE", requires_all = ["kubelet_address", "kubelet_key"], value_name = "FILE")]
    pub kubelet_certificate: Option<PathBuf>,

    /// The private key (PEM) of that certificate
    #[arg(long, env = "KOSMOS_CSI_KUBELET_KEY", requires_all = ["kubelet_address", "kubelet_certificate"], value_name = "FILE")]
    pub kubelet_key: Option<PathBuf>,
}

/// A socket's path; the kernel takes at most 107 bytes.
pub fn socket_path(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:")).unwrap_or(text);
    if !path.starts_with('/') {
        return Err("it must be unix:// and an absolute path, such as unix:///csi/csi.sock".to_owned());
    }
    if path.len() > 107 {
        return Err(format!(
            "the path has {} bytes and the kernel takes at most 107: choose a shorter one",
            path.len()
        ));
    }
    Ok(PathBuf::from(path))
}

fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("it must be an absolute path".to_owned()) }
}

fn node_name(text: &str) -> Result<String, String> {
    if is_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err("it is not the name of a node (lower-case letters, digits, dashes and dots, at most 253)".to_owned())
}

fn leaf_driver(text: &str) -> Result<String, String> {
    if is_subdomain(text) && text != DRIVER {
        return Ok(text.to_owned());
    }
    Err("it is not the name of another CSI driver (lower-case letters, digits, dashes and dots, at most 253)"
        .to_owned())
}

fn nfs_server(text: &str) -> Result<String, String> {
    if is_server(text) {
        return Ok(text.to_owned());
    }
    Err("it is neither a host's name nor an address, such as filer.example.org or 10.0.0.5".to_owned())
}

fn member_name(text: &str) -> Result<String, String> {
    if is_member_name(text) {
        return Ok(text.to_owned());
    }
    Err("it is not the name of a member (a DNS label of at most 40 characters)".to_owned())
}

fn namespace(text: &str) -> Result<String, String> {
    if is_label(text, 63) {
        return Ok(text.to_owned());
    }
    Err("it is not a namespace (lower-case letters, digits and dashes, at most 63)".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn kubelet_endpoint_has_a_certificate_and_its_key_or_neither() {
        #[derive(Debug, Parser)]
        struct Alone {
            #[command(flatten)]
            kubelet_api: KubeletApi,
        }
        let address = "--kubelet-address=0.0.0.0:10250";
        let all = ["--kubelet-client-ca=ca", "--kubelet-certificate=crt", "--kubelet-key=key"];
        let whole = Alone::try_parse_from(["x", address].into_iter().chain(all)).unwrap();
        assert!(whole.kubelet_api.kubelet_address.is_some());
        for missing in &all[1..] {
            let others = all.iter().filter(|flag| *flag != missing);
            let refused = Alone::try_parse_from(["x", address].iter().chain(others)).unwrap_err().to_string();
            assert!(refused.contains(missing.split_once('=').unwrap().0), "{missing}: {refused}");
        }
        for alone in all.into_iter().chain(["--kubelet-advertise-address=10.96.0.50"]) {
            let refused = Alone::try_parse_from(["x", alone]).unwrap_err().to_string();
            assert!(refused.contains("--kubelet-address"), "{alone}: {refused}");
        }
        assert!(Alone::try_parse_from(["x", address]).unwrap().kubelet_api.kubelet_certificate.is_none());
        assert!(Alone::try_parse_from(["x"]).unwrap().kubelet_api.kubelet_address.is_none());
    }

    #[test]
    fn real_node_uses_no_storage_of_its_own_that_is_not_named_and_never_the_driver_itself() {
        #[derive(Debug, Parser)]
        struct Alone {
            #[command(flatten)]
            node: Node,
        }
        let node = |more: &[&str]| {
            let all = ["x", "--node-name=worker", "--member=cluster38"].iter().chain(more);
            Alone::try_parse_from(all).map(|alone| alone.node)
        };
        let bare = node(&[]).unwrap();
        assert!(bare.leaf_drivers.is_empty() && bare.nfs_servers.is_empty() && bare.local_folders.is_empty());
        let named = node(&["--leaf-driver=a.example", "--leaf-driver=b.example,c.example"]).unwrap();
        assert_eq!(named.leaf_drivers, ["a.example", "b.example", "c.example"]);
        for slip in
            ["--leaf-driver=kosmos.csi.io", "--leaf-driver=", "--nfs-server=filer:/export", "--local-folder=disks"]
        {
            let refused = node(&[slip]).unwrap_err().to_string();
            assert!(refused.contains(slip.split_once('=').unwrap().0), "{slip}: {refused}");
        }
    }

    #[test]
    fn socket_is_an_absolute_path_short_enough_for_the_kernel() {
        assert_eq!(socket_path("unix:///csi/csi.sock").unwrap(), PathBuf::from("/csi/csi.sock"));
        assert_eq!(socket_path("/csi/csi.sock").unwrap(), PathBuf::from("/csi/csi.sock"));
        for text in ["", "csi.sock", "unix://csi.sock", "tcp://127.0.0.1:1", &format!("/{}", "a".repeat(107))] {
            assert!(socket_path(text).is_err(), "{text}");
        }
    }
}
