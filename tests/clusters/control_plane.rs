//! A cluster's control plane: which processes, with which flags, in which order.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::certificates::{Authority, Credentials, kubeconfig};
use super::cluster::Cluster;
use super::images::BUSYBOX;
use super::namespaces::BRIDGE_ADDRESS;
use super::process::told;
use super::wait::wait_for;

const PATIENCE: Duration = Duration::from_mins(1);

pub const ETCD: &str = "etcd";
pub const API_SERVER: &str = "kube-apiserver";
pub const CONTROLLERS: &str = "kube-controller-manager";
pub const SCHEDULER: &str = "kube-scheduler";
const CANARY: &str = "canary";
/// Of etcd's folder.
const BACKUP: &str = "etcd-backup";

/// Ports and ranges follow from the cluster's place in the fleet: inside, nothing else uses them.
#[derive(Debug, Clone, Copy)]
pub struct Place(pub u16);

impl Place {
    fn port(self, offset: u16) -> u16 {
        20000 + 100 * self.0 + offset
    }

    pub fn api_port(self) -> u16 {
        self.port(43)
    }

    pub fn metrics_port(self) -> u16 {
        self.port(44)
    }

    pub fn services(self) -> String {
        format!("10.{}.0.0/16", 100 + self.0)
    }

    /// Where pods look for the API server.
    pub fn first_service(self) -> String {
        format!("10.{}.0.1", 100 + self.0)
    }

    pub fn pods(self) -> String {
        format!("10.{}.0.0/24", 120 + self.0)
    }

    /// The host's asks agents, whose certificates are of no authority.
    pub fn verifies_kubelets(self) -> bool {
        self.0 != 1
    }

    pub fn node_address(self) -> String {
        format!("10.200.0.{}", 10 + self.0)
    }
}

/// Writes certificates and kubeconfigs. Quick: no process is needed.
pub fn prepare(cluster: &Cluster, forwarded: u16) -> Result<()> {
    let authority = Authority::create(&cluster.folder().join("pki"), cluster.name())?;
    authority.token_keys()?;
    let service = cluster.place().first_service();
    let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let names = [&names[..], &["127.0.0.1", BRIDGE_ADDRESS, &service]].concat();
    authority.server("apiserver", &names)?;
    authority.server("kubelet-serving", &[&cluster.place().node_address()])?;
    authority.client("front-proxy", "front-proxy", None)?;
    let inside = format!("https://{BRIDGE_ADDRESS}:{}", cluster.place().api_port());
    let outside = format!("https://127.0.0.1:{forwarded}");
    let write = |file: &str, server: &str, credentials: &Credentials| {
        let text = kubeconfig(cluster.name(), server, authority.certificate(), credentials)?;
        fs::write(cluster.folder().join(file), text).with_context(|| format!("write {file}"))
    };
    let admin = authority.client("admin", "admin", Some("system:masters"))?;
    write("admin.kubeconfig", &outside, &admin)?;
    write("admin-inside.kubeconfig", &inside, &admin)?;
    for component in [CONTROLLERS, SCHEDULER] {
        let credentials = authority.client(component, &format!("system:{component}"), None)?;
        write(&format!("{component}.kubeconfig"), &inside, &credentials)?;
    }
    let node = cluster.node_name();
    let kubelet = authority.client("kubelet", &format!("system:node:{node}"), Some("system:nodes"))?;
    write("kubelet.kubeconfig", &inside, &kubelet)?;
    write_audit_policy(cluster)
}

/// Every request once, when it is answered, without the bodies.
fn write_audit_policy(cluster: &Cluster) -> Result<()> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata"}],
    });
    fs::write(cluster.folder().join("audit-policy.json"), policy.to_string()).context("write the audit policy")
}

pub async fn start(cluster: &Cluster) -> Result<()> {
    cluster.start(ETCD, etcd_arguments(cluster))?;
    cluster.start(API_SERVER, api_server_arguments(cluster))?;
    ready(cluster).await?;
    cluster.start(CONTROLLERS, controller_manager_arguments(cluster))?;
    cluster.start(SCHEDULER, scheduler_arguments(cluster))?;
    default_account(cluster).await
}

/// All that the cluster knew is lost; what comes in its place has its address and its authority, and is another cluster.
pub async fn start_empty(cluster: &Cluster) -> Result<()> {
    for process in [CONTROLLERS, SCHEDULER, API_SERVER, ETCD] {
        cluster.stop(process).await?;
    }
    fs::remove_dir_all(cluster.folder().join(ETCD)).context("remove what etcd had")?;
    for process in [ETCD, API_SERVER] {
        cluster.start_again(process)?;
    }
    ready(cluster).await?;
    for process in [CONTROLLERS, SCHEDULER] {
        cluster.start_again(process)?;
    }
    default_account(cluster).await
}

/// Programs of another version in place of those that run. What etcd has stays.
pub async fn replace(cluster: &Cluster, program: impl Fn(&str) -> PathBuf) -> Result<()> {
    for process in [CONTROLLERS, SCHEDULER, API_SERVER] {
        cluster.stop(process).await?;
    }
    let begins = |process: &str, arguments: Vec<String>| {
        cluster.start_in(cluster.guardian().started.init, process, &program(process), arguments)
    };
    begins(API_SERVER, api_server_arguments(cluster))?;
    ready(cluster).await?;
    begins(CONTROLLERS, controller_manager_arguments(cluster))?;
    begins(SCHEDULER, scheduler_arguments(cluster))
}

/// A copy of what etcd has, taken while nobody writes to it.
pub async fn back_up(cluster: &Cluster) -> Result<()> {
    for process in [API_SERVER, ETCD] {
        cluster.stop(process).await?;
    }
    let mut copies = tokio::process::Command::new("cp");
    copies.arg("--archive").args([ETCD, BACKUP].map(|folder| cluster.folder().join(folder)));
    told(&copies.output().await.context("run cp")?, "copy what etcd has")?;
    for process in [ETCD, API_SERVER] {
        cluster.start_again(process)?;
    }
    ready(cluster).await
}

/// The copy in place of what etcd has now. Whoever goes by what came since is to be begun again.
pub async fn restore(cluster: &Cluster) -> Result<()> {
    for process in [CONTROLLERS, SCHEDULER, API_SERVER, ETCD] {
        cluster.stop(process).await?;
    }
    let [now, then] = [ETCD, BACKUP].map(|folder| cluster.folder().join(folder));
    fs::remove_dir_all(&now).context("remove what etcd had")?;
    fs::rename(then, now).context("put the backup in its place")
}

/// Waits until the API server says that it is ready.
pub async fn ready(cluster: &Cluster) -> Result<()> {
    let what = format!("the API server of {} is ready", cluster.name());
    let answered = wait_for(&what, PATIENCE, || async {
        cluster.alive(API_SERVER)?;
        let request = http::Request::get("/readyz").body(Vec::new())?;
        let answer = cluster.client().await?.request_text(request).await?;
        Ok((answer == "ok").then_some(()))
    });
    answered.await
}

/// Who watches an API server that was away looks for it again after up to a minute, each watch for itself, and once more where it had
/// just been started. Begun again they look at once, and a scheduler gives no pod a node before it has all that it watches.
pub async fn begin_controllers_again(cluster: &Cluster) -> Result<()> {
    for process in [CONTROLLERS, SCHEDULER] {
        cluster.stop(process).await?;
        cluster.start_again(process)?;
    }
    let client = cluster.client().await?;
    let (sets, pods): (Api<ReplicaSet>, Api<Pod>) =
        (Api::default_namespaced(client.clone()), Api::default_namespaced(client));
    let set = sets.create(&PostParams::default(), &serde_json::from_value(canary(cluster))?).await?;
    let of_set = |pod: &Pod| pod.owner_references().iter().any(|owner| Some(&owner.uid) == set.metadata.uid.as_ref());
    let has_node = |pod: &Pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
    let labelled = ListParams::default().labels(&format!("app={CANARY}"));
    let what = format!("the own controllers of {} make a pod and give it a node", cluster.name());
    let given = wait_for(&what, PATIENCE, || async {
        Ok(pods.list(&labelled).await?.iter().any(|pod| of_set(pod) && has_node(pod)).then_some(()))
    })
    .await;
    sets.delete(&set.name_any(), &DeleteParams::background()).await?;
    given
}

/// Its pod goes with it, whether or not the node's kubelet has come back.
fn canary(cluster: &Cluster) -> Value {
    let labels = json!({"app": CANARY});
    let container = json!({"name": CANARY, "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", "1000"]});
    let pod = json!({
        "nodeSelector": {"kubernetes.io/hostname": cluster.node_name()},
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
    });
    json!({
        "metadata": {"generateName": format!("{CANARY}-")},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
    })
}

/// The controller-manager works once it has made the default service account, without which no pod can be made.
async fn default_account(cluster: &Cluster) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client().await?, "default");
    let what = format!("the controller-manager of {} has made the default account", cluster.name());
    wait_for(&what, PATIENCE, || async { Ok(accounts.get_opt("default").await?.map(drop)) }).await
}

fn etcd_arguments(cluster: &Cluster) -> Vec<String> {
    let place = cluster.place();
    let clients = format!("http://127.0.0.1:{}", place.port(1));
    let peers = format!("http://127.0.0.1:{}", place.port(2));
    vec![
        format!("--name={}", cluster.name()),
        format!("--data-dir={}", cluster.folder().join(ETCD).display()),
        "--log-level=warn".into(),
        "--unsafe-no-fsync".into(), // nobody needs the data after a power cut
        format!("--listen-client-urls={clients}"),
        format!("--advertise-client-urls={clients}"),
        format!("--listen-peer-urls={peers}"),
        format!("--initial-advertise-peer-urls={peers}"),
        format!("--initial-cluster={}={peers}", cluster.name()),
    ]
}

fn api_server_arguments(cluster: &Cluster) -> Vec<String> {
    let place = cluster.place();
    let folder = cluster.folder().display().to_string();
    let pki = format!("{folder}/pki");
    let verified = place.verifies_kubelets().then(|| format!("--kubelet-certificate-authority={pki}/ca.crt"));
    let always = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", place.port(1)),
        format!("--secure-port={}", place.api_port()),
        "--bind-address=0.0.0.0".into(),
        format!("--advertise-address={BRIDGE_ADDRESS}"), // must not be loopback
        format!("--tls-cert-file={pki}/apiserver.crt"),
        format!("--tls-private-key-file={pki}/apiserver.key"),
        format!("--client-ca-file={pki}/ca.crt"),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        "--allow-privileged".into(),
        "--enable-aggregator-routing".into(),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".into(),
        format!("--service-account-signing-key-file={pki}/tokens.key"),
        format!("--service-account-key-file={pki}/tokens.pub"),
        format!("--service-cluster-ip-range={}", place.services()),
        "--kubelet-preferred-address-types=InternalIP".into(), // nobody resolves the nodes' names
        format!("--kubelet-client-certificate={pki}/admin.crt"),
        format!("--kubelet-client-key={pki}/admin.key"),
        format!("--proxy-client-cert-file={pki}/front-proxy.crt"),
        format!("--proxy-client-key-file={pki}/front-proxy.key"),
        format!("--requestheader-client-ca-file={pki}/ca.crt"),
        "--requestheader-allowed-names=front-proxy".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--audit-policy-file={folder}/audit-policy.json"),
        format!("--audit-log-path={folder}/audit.log"),
        "--audit-log-maxsize=4096".into(), // never rotated: places in it stay valid
    ];
    always.into_iter().chain(verified).collect()
}

fn controller_manager_arguments(cluster: &Cluster) -> Vec<String> {
    let pki = cluster.folder().join("pki").display().to_string();
    let plugins = cluster.folder().join("volume-plugins");
    let own = [
        format!("--flex-volume-plugin-dir={}", plugins.display()), // else made on the machine
        "--use-service-account-credentials".into(),
        format!("--service-account-private-key-file={pki}/tokens.key"),
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--cluster-signing-cert-file={pki}/ca.crt"),
        format!("--cluster-signing-key-file={pki}/ca.key"),
        "--kube-api-qps=200".into(), // else it binds five claims a second
        "--kube-api-burst=400".into(),
    ];
    [component_arguments(cluster, CONTROLLERS, 57), own.to_vec()].concat()
}

fn scheduler_arguments(cluster: &Cluster) -> Vec<String> {
    component_arguments(cluster, SCHEDULER, 59)
}

fn component_arguments(cluster: &Cluster, component: &str, port: u16) -> Vec<String> {
    let folder = cluster.folder().display().to_string();
    let kubeconfig = format!("{folder}/{component}.kubeconfig");
    vec![
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--bind-address=127.0.0.1".into(),
        format!("--secure-port={}", cluster.place().port(port)),
        format!("--cert-dir={folder}/{component}"),
        "--leader-elect=false".into(),
    ]
}
