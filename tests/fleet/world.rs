//! A host with many members, each with a virtual node, a pod and a volume.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use agent::{NodeMode, Settings};
use cluster::{Dial, lease::Lease, metrics::Metrics};
use commands::{
    args::KosmosClusters,
    run::{clusters::Clusters, virtual_node},
};
use kube::Config;
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Asked},
    text,
};
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;

use super::{authority::AUTHORITY, within::within};

const NAMESPACE: &str = "kosmos-csi-pods";
const SHOP: &str = "shop";
pub const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
/// So many objects take all changes, among however many others.
const CHANGED: usize = 20;
const APART: Duration = Duration::from_millis(1);
const SEEN: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_mins(5);

pub struct World {
    host: Cluster,
    members: Vec<Cluster>,
    agent: Mutex<Option<Agent>>,
    asked: Arc<AtomicUsize>,
    _inside: JoinSet<()>,
}

/// Runs a story on a clock of its own.
pub fn story<T>(story: impl Future<Output = T>) -> T {
    fastrand::seed(1);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(story)
}

fn kubeconfig(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: m, cluster: {{server: 'https://{name}', certificate-authority-data: {AUTHORITY}}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

fn spent() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

fn name(member: usize) -> String {
    format!("m{member:04}")
}

fn node(member: usize) -> String {
    format!("kosmos-{}", name(member))
}

impl World {
    pub async fn new(members: u32) -> Self {
        let host = Cluster::new("host", 1);
        let mut inside = JoinSet::new();
        inside.spawn(simulate::controllers::run(host.clone()));
        for namespace in [NAMESPACE, SHOP] {
            host.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let count = |asked: &Arc<AtomicUsize>| {
            let count = Arc::clone(asked);
            move |asked: &Asked| {
                count.fetch_add(usize::from(asked.resource != "leases.coordination.k8s.io"), Ordering::Relaxed);
                Action::Pass
            }
        };
        host.faults().set(count(&asked));
        let mut clusters = Vec::new();
        for member in 0..members as usize {
            let cluster = Cluster::new(&name(member), 1000 + member as u64);
            let ready = json!([{"type": "Ready", "status": "True"}]);
            let room = json!({"cpu": "8", "memory": "16Gi", "pods": "110"});
            cluster
                .create(
                    "nodes",
                    json!({"metadata": {"name": "n1"}, "status": {"conditions": ready, "allocatable": room}}),
                )
                .unwrap();
            cluster.faults().set(count(&asked));
            inside.spawn(simulate::controllers::run(cluster.clone()));
            let secret = k8s_openapi::api::core::v1::Secret {
                data: Some(
                    [("kubeconfig".to_owned(), k8s_openapi::ByteString(kubeconfig(&name(member)).into()))].into(),
                ),
                ..Default::default()
            };
            let mut secret = json!(secret);
            secret["metadata"] =
                json!({"name": name(member), "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": name(member)}});
            host.create("secrets", secret).unwrap();
            clusters.push(cluster);
        }
        sleep(Duration::from_secs(1)).await;
        Self { host, members: clusters, agent: Mutex::default(), asked, _inside: inside }
    }

    pub fn start(&self) {
        self.start_by(self.dial());
    }

    pub fn dial(&self) -> Dial {
        within(self.clusters(), "agent")
    }

    /// Reaches the clusters so.
    pub fn start_by(&self, dial: Dial) {
        *self.agent.lock().unwrap_or_else(PoisonError::into_inner) = Some(Agent::start(dial));
    }

    async fn all(&self, what: &str, is_so: impl Fn(usize) -> bool) {
        let begun = tokio::time::Instant::now();
        for member in 0..self.members.len() {
            while !is_so(member) {
                assert!(begun.elapsed() < PATIENCE, "member {member}: {what}");
                sleep(STEP).await;
            }
        }
    }

    /// Each has a node, and a pod on that.
    pub async fn all_run(&self) {
        self.all_ready().await;
        self.run_pods().await;
    }

    async fn all_ready(&self) {
        let is_ready = |node: &Value| {
            let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        self.all("its node is ready", |member| {
            self.host.get("nodes", "", &node(member)).is_some_and(|node| is_ready(&node))
        })
        .await;
    }

    /// One on each virtual node, with an attachment beside it.
    async fn run_pods(&self) {
        for member in 0..self.members.len() {
            let spec = json!({"nodeName": node(member), "containers": [{"name": "c", "image": "i:1"}]});
            self.host
                .create("pods", json!({"metadata": {"namespace": SHOP, "name": name(member)}, "spec": spec}))
                .unwrap();
            let source = json!({"persistentVolumeName": name(member)});
            let spec = json!({"attacher": "kosmos.csi.io", "nodeName": node(member), "source": source});
            self.host.create(ATTACHMENTS, json!({"metadata": {"name": name(member)}, "spec": spec})).unwrap();
        }
        self.all("its pod is copied", |member| self.members[member].get("pods", SHOP, &name(member)).is_some()).await;
    }

    /// Changes as many of them, one after the other, and has them seen.
    pub async fn change(&self, kind: &str, times: u32) {
        for time in 0..times as usize {
            let member = time % self.members.len().min(CHANGED);
            let (namespace, name) = match kind {
                "pods" => (SHOP, name(member)),
                "nodes" => ("", node(member)),
                _ => ("", name(member)),
            };
            self.host
                .change(kind, namespace, &name, |object| {
                    object["metadata"]["generation"] = json!(time);
                })
                .unwrap();
            sleep(APART).await;
        }
        sleep(SEEN).await;
    }

    /// What the processor has to do meanwhile, and how long that is on the clock of the world.
    pub async fn during(&self, what: impl Future<Output = ()>) -> (Duration, Duration) {
        let (before, began) = (spent(), tokio::time::Instant::now());
        what.await;
        (spent().saturating_sub(before), began.elapsed())
    }

    pub fn requests(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// The host comes first.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.host).chain(&self.members)
    }

    /// The host's node of each member.
    pub fn nodes(&self) -> Vec<Arc<Value>> {
        (0..self.members.len()).filter_map(|member| self.host.get("nodes", "", &node(member))).collect()
    }

    /// The version of the Lease by which each of them says that it lives.
    pub fn heartbeats(&self) -> Vec<String> {
        let lease = |member| self.host.get("leases.coordination.k8s.io", "kube-node-lease", &node(member));
        let version = |lease: Arc<Value>| text(&lease, "/metadata/resourceVersion").to_owned();
        (0..self.members.len()).map(|member| lease(member).map(version).unwrap_or_default()).collect()
    }

    /// How many copies of pods there are in each member.
    pub fn copies(&self) -> Vec<usize> {
        let of_shop = |pod: &&Arc<Value>| text(pod, "/metadata/namespace") == SHOP;
        self.members.iter().map(|member| member.list("pods").iter().filter(of_shop).count()).collect()
    }
}

/// Ends, as by SIGKILL, when it is dropped.
pub struct Agent {
    work: JoinSet<anyhow::Result<()>>,
    lease: Arc<Mutex<Option<Arc<Lease>>>>,
}

impl Agent {
    /// Reaches the clusters so.
    pub fn start(dial: Dial) -> Self {
        let clusters = Clusters {
            host: Config::new("https://host".parse().unwrap()),
            dial,
            members_dir: None,
            members_namespace: NAMESPACE.to_owned(),
            kosmos_clusters: KosmosClusters::Auto,
            metrics: Metrics::new(),
        };
        let settings = Settings { node_mode: NodeMode::Member, kubelet_api: None, host_address: None };
        let (mut work, lease) = (JoinSet::new(), Arc::<Mutex<Option<Arc<Lease>>>>::default());
        let told = Arc::clone(&lease);
        work.spawn(async move {
            let (mut tasks, never) = (JoinSet::new(), CancellationToken::new());
            let started = virtual_node::start(clusters, settings, None, &mut tasks, &never).await?;
            *told.lock().unwrap_or_else(PoisonError::into_inner) = started.map(|started| started.lease);
            tasks.join_next().await.unwrap()?
        });
        Self { work, lease }
    }

    /// As by SIGTERM.
    pub async fn stop(mut self) {
        self.work.shutdown().await;
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lease) = lease {
            lease.give_back().await;
        }
    }
}
