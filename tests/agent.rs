//! The agent behind the virtual nodes, in this process, between a simulated host and a simulated member. Time is tokio's, so
//! that hours pass in milliseconds; the agent can be killed at any request that writes.
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use agent::{KubeletAddress, NodeMode, Settings};
use authority::AUTHORITY;
use cluster::{lease::Lease, metrics::Metrics};
use commands::{
    args::KosmosClusters,
    run::{clusters::Clusters, virtual_node},
};
use kube::Config;
use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::Action,
    storage::{self, Pods},
    text,
};
use tokio::{sync::Notify, task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use within::within;

#[path = "authority.rs"]
mod authority;
#[path = "agent/changes.rs"]
mod changes;
#[path = "agent/debug.rs"]
mod debug;
#[path = "agent/elsewhere.rs"]
mod elsewhere;
#[path = "agent/ends.rs"]
mod ends;
#[path = "agent/events.rs"]
mod events;
#[path = "agent/failures.rs"]
mod failures;
#[path = "agent/given.rs"]
mod given;
#[path = "agent/idle.rs"]
mod idle;
#[path = "agent/in_use.rs"]
mod in_use;
#[path = "agent/late.rs"]
mod late;
#[path = "agent/left.rs"]
mod left;
#[path = "agent/level.rs"]
mod level;
#[path = "agent/long.rs"]
mod long;
#[path = "agent/missing.rs"]
mod missing;
#[path = "agent/node_mode.rs"]
mod node_mode;
#[path = "agent/planted.rs"]
mod planted;
#[path = "agent/reader.rs"]
mod reader;
#[path = "agent/replaced.rs"]
mod replaced;
#[path = "agent/restored.rs"]
mod restored;
#[path = "agent/takeover.rs"]
mod takeover;
#[path = "agent/tokens.rs"]
mod tokens;
#[path = "agent/unreadable.rs"]
mod unreadable;
#[path = "agent/usage.rs"]
mod usage;
#[path = "agent/volume_stats.rs"]
mod volume_stats;
#[path = "agent/volumes.rs"]
mod volumes;
#[path = "agent/ways.rs"]
mod ways;
#[path = "within.rs"]
mod within;

const NAMESPACE: &str = "kosmos-csi-pods";
const SHOP: &str = "shop";
const NODE: &str = "kosmos-m";
const STEP: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_mins(2);
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
const CSI_NODES: &str = "csinodes.storage.k8s.io";

const DEFINITION: &str = include_str!("kosmos/clusters.json");

fn kubeconfig() -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: m, cluster: {{server: 'https://m', certificate-authority-data: {AUTHORITY}}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

/// A request that writes, counted from the beginning, and whether it still does when the agent dies with it.
type Point = (u64, bool);

/// What the clusters know of the agent: who it is now, how much it has written, and when it is to die.
#[derive(Default)]
struct Life {
    name: String,
    writes: u64,
    dies_at: Option<Point>,
    dead: bool,
}

struct World {
    host: Cluster,
    member: Cluster,
    life: Arc<Mutex<Life>>,
    died: Arc<Notify>,
    agent: Mutex<JoinSet<anyhow::Result<()>>>,
    lease: Arc<Mutex<Option<Arc<Lease>>>>,
    /// Of the agent that was started last.
    metrics: Mutex<Metrics>,
    node_mode: NodeMode,
    _inside: JoinSet<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a story on a clock of its own.
fn story<T>(seed: u64, story: impl Future<Output = T>) -> T {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(story)
}

impl World {
    async fn new(seed: u64) -> Self {
        Self::whose_pods_stop_after(seed, Duration::from_millis(300)).await
    }

    async fn whose_pods_stop_after(seed: u64, stop: Duration) -> Self {
        Self::with_nodes(seed, stop, 1).await
    }

    /// Each of the member's nodes has a virtual node of its own where there are several.
    async fn with_nodes(seed: u64, stop: Duration, nodes: usize) -> Self {
        let (host, member) = (Cluster::new("host", seed), Cluster::new("m", seed + 1000));
        let mut inside = JoinSet::new();
        let start = Duration::from_millis(300);
        let pods = Pods { starts: start..=start, stops: stop..=stop, ..Pods::default() };
        let settings = storage::Settings { pods, nodes, ..storage::Settings::default() };
        inside.spawn(simulate::controllers::run(host.clone()));
        inside.spawn(simulate::controllers::run(member.clone()));
        inside.spawn(storage::run(member.clone(), settings));
        for namespace in [NAMESPACE, SHOP] {
            host.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
        }
        let world = Self {
            host,
            member,
            life: Arc::default(),
            died: Arc::default(),
            agent: Mutex::default(),
            lease: Arc::default(),
            metrics: Mutex::new(Metrics::new()),
            node_mode: if nodes > 1 { NodeMode::Node } else { NodeMode::Member },
            _inside: inside,
        };
        world.join();
        for cluster in [&world.host, &world.member] {
            let (life, died) = (Arc::clone(&world.life), Arc::clone(&world.died));
            cluster.faults().set(move |asked| {
                let mut life = lock(&life);
                if life.dead || asked.client != life.name {
                    return Action::Hang;
                }
                if !asked.verb.writes() {
                    return Action::Pass;
                }
                life.writes += 1;
                let Some((_, applied)) = life.dies_at.filter(|(at, _)| *at == life.writes) else { return Action::Pass };
                life.dead = true;
                died.notify_one();
                if applied { Action::ApplyThenHang } else { Action::Hang }
            });
        }
        sleep(Duration::from_secs(1)).await;
        world
    }

    fn join(&self) {
        let secret = k8s_openapi::api::core::v1::Secret {
            data: Some([("kubeconfig".to_owned(), k8s_openapi::ByteString(kubeconfig().into()))].into()),
            ..Default::default()
        };
        let mut secret = json!(secret);
        secret["metadata"] = json!({"name": "m", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": "m"}});
        self.host.create("secrets", secret).unwrap();
    }

    /// The same cluster as a Kosmos `Cluster` object.
    fn join_kosmos(&self, name: &str) {
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        self.host.create(definitions, serde_json::from_str(DEFINITION).unwrap()).unwrap();
        let kubeconfig = k8s_openapi::ByteString(kubeconfig().into());
        let cluster = json!({"metadata": {"name": name}, "spec": {"kubeconfig": kubeconfig}});
        self.host.create("clusters.kosmos.io", cluster).unwrap();
    }

    fn start(&self, name: &str) {
        self.start_at(name, None);
    }

    fn start_at(&self, name: &str, kubelet_api: Option<KubeletAddress>) {
        let dies_at = lock(&self.life).dies_at;
        *lock(&self.life) = Life { name: name.to_owned(), writes: 0, dies_at, dead: false };
        let clusters = self.clusters(name);
        let settings = Settings { node_mode: self.node_mode, kubelet_api, host_address: None };
        let mut work = JoinSet::new();
        let lease = Arc::clone(&self.lease);
        work.spawn(async move {
            let (mut tasks, never) = (JoinSet::new(), CancellationToken::new());
            let started = virtual_node::start(clusters, settings, None, &mut tasks, &never).await?;
            *lock(&lease) = started.map(|started| started.lease);
            tasks.join_next().await.unwrap()?
        });
        *lock(&self.agent) = work;
    }

    fn clusters(&self, name: &str) -> Clusters {
        *lock(&self.metrics) = Metrics::new();
        Clusters {
            host: Config::new("https://host".parse().unwrap()),
            dial: within([&self.host, &self.member], name),
            members_dir: None,
            members_namespace: NAMESPACE.to_owned(),
            kosmos_clusters: KosmosClusters::Auto,
            metrics: lock(&self.metrics).clone(),
        }
    }

    /// As SIGKILL: at once, with all that it knew.
    fn kill(&self) {
        lock(&self.life).dead = true;
        *lock(&self.agent) = JoinSet::new();
    }

    /// As SIGTERM.
    async fn stop(&self) {
        let mut agent = std::mem::take(&mut *lock(&self.agent));
        agent.shutdown().await;
        let lease = lock(&self.lease).take().unwrap();
        lease.give_back().await;
    }

    /// Kills the agent where it is to die, and starts another one after a while.
    async fn revive(&self) {
        self.died.notified().await;
        lock(&self.life).dies_at = None;
        self.kill();
        sleep(Duration::from_millis(700)).await;
        self.start("second");
        std::future::pending::<()>().await;
    }

    fn host_id(&self) -> String {
        text(&self.host.get("namespaces", "", "kube-system").unwrap(), "/metadata/uid").to_owned()
    }

    fn node(&self) -> Option<Arc<Value>> {
        self.host.get("nodes", "", NODE)
    }

    fn is_ready(&self) -> bool {
        self.node().is_some_and(|node| condition(&node, "Ready") == "True")
    }

    fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.host.get("pods", SHOP, name)
    }

    fn copy(&self, name: &str) -> Option<Arc<Value>> {
        self.member.get("pods", SHOP, name)
    }

    fn phase(&self, name: &str) -> String {
        self.pod(name).map(|pod| text(&pod, "/status/phase").to_owned()).unwrap_or_default()
    }

    /// Why the pod has no copy.
    fn says(&self, pod: &str, reason: &str, words: &str) -> bool {
        let pod = self.pod(pod).unwrap();
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["reason"] == reason && text(one, "/message").contains(words))
    }

    /// A namespace of the member's own, which takes pods of hosts.
    fn open_namespace(&self, name: &str) {
        let labels = json!({"kosmos.csi.io/pods": "baseline"});
        self.member.create("namespaces", json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    }

    /// A pod that the scheduler has bound to the virtual node, with a claim where one is named.
    fn run_pod(&self, name: &str, claim: Option<&str>) {
        let volumes = claim.map(|claim| json!([{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]));
        let spec = json!({
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}],
            "containers": [{"name": "c", "image": "i:1"}],
            "volumes": volumes.unwrap_or(json!([])),
        });
        self.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": name}, "spec": spec})).unwrap();
    }
}

fn condition(object: &Value, kind: &str) -> String {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.filter(|one| one["type"] == kind).map(|one| text(one, "/status").to_owned()).next().unwrap_or_default()
}

async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let begun = tokio::time::Instant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(STEP).await;
    }
}

/// A world with an agent at work and a node that takes pods.
async fn standing(seed: u64) -> World {
    let world = World::new(seed).await;
    world.start("first");
    until("the node is ready", || world.is_ready()).await;
    world
}

/// And a pod that runs on it.
async fn with_pod() -> World {
    let world = standing(1).await;
    world.run_pod("web", None);
    until("it runs", || world.phase("web") == "Running").await;
    world
}

#[test]
fn node_is_ready_only_once_pods_can_land_on_it() {
    story(1, async {
        let world = World::new(1).await;
        world.start("first");
        until("there is a node", || world.node().is_some()).await;
        let has = |node: &Value| !node["metadata"]["labels"]["topology.kosmos.csi.io/member"].is_null();
        until("the label is there", || {
            let node = world.node().unwrap();
            let known = world.host.get(CSI_NODES, "", NODE).is_some();
            assert!(known || !has(&node) && condition(&node, "Ready") != "True", "a pod could land too early: {node}");
            has(&node)
        })
        .await;
        until("it is ready", || world.is_ready()).await;
        let node = world.node().unwrap();
        assert_eq!(node["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"], "true");
        assert!(node["status"]["allocatable"]["cpu"].is_string(), "{node}");
        until("its lease is there", || world.host.get("leases.coordination.k8s.io", "kube-node-lease", NODE).is_some())
            .await;
    });
}

#[test]
fn node_that_is_damaged_or_deleted_is_put_right_at_once() {
    story(1, async {
        let world = standing(1).await;
        world.host.delete(CSI_NODES, "", NODE).unwrap();
        until("the CSINode is back", || world.host.get(CSI_NODES, "", NODE).is_some()).await;
        let before = world.node().unwrap();
        world.host.change("nodes", "", NODE, |node| node["metadata"]["labels"] = json!({})).unwrap();
        until("the labels are back", || world.node().unwrap()["metadata"]["labels"] == before["metadata"]["labels"])
            .await;
        world.host.delete("nodes", "", NODE).unwrap();
        until("the node is back", || {
            world.is_ready() && world.node().unwrap()["metadata"]["uid"] != before["metadata"]["uid"]
        })
        .await;
        let uid = world.node().unwrap()["metadata"]["uid"].clone();
        until("the CSINode is its own", || {
            let known = world.host.get(CSI_NODES, "", NODE);
            known.is_some_and(|known| known["metadata"]["ownerReferences"][0]["uid"] == uid)
        })
        .await;
    });
}

#[test]
fn node_of_somebody_else_is_left_alone_and_said() {
    story(1, async {
        let world = World::new(1).await;
        let theirs = json!({"metadata": {"name": NODE, "labels": {"kosmos.io/node": "true"}}});
        let theirs = world.host.create("nodes", theirs).unwrap();
        world.start("first");
        until("it is said", || world.host.list("events").iter().any(|event| event["reason"] == "NotOurs")).await;
        sleep(Duration::from_mins(1)).await;
        let now = world.node().unwrap();
        for path in ["/metadata/uid", "/metadata/labels", "/metadata/annotations"] {
            assert_eq!(now.pointer(path), theirs.pointer(path));
        }
        assert!(world.host.get(CSI_NODES, "", NODE).is_none());
        let said = world.host.list("events").iter().filter(|event| event["reason"] == "NotOurs").count();
        assert_eq!(said, 1, "once");
    });
}

#[test]
fn node_of_clustertree_gets_what_it_lacks_and_no_pod_is_copied() {
    story(1, async {
        let world = World::new(1).await;
        let annotations = json!({"kosmos-io/owned-by-cluster": "m"});
        let metadata = json!({"name": NODE, "labels": {"kosmos.io/node": "true"}, "annotations": annotations});
        world.host.create("nodes", json!({"metadata": metadata})).unwrap();
        world.start("first");
        world.run_pod("web", None);
        until("the label is there", || {
            world.node().unwrap()["metadata"]["labels"]["topology.kosmos.csi.io/member"] == "m"
        })
        .await;
        assert_eq!(world.host.get(CSI_NODES, "", NODE).unwrap()["spec"]["drivers"][0]["nodeID"], "virtual/m");
        sleep(Duration::from_secs(30)).await;
        assert!(world.copy("web").is_none());
    });
}

#[test]
fn member_that_does_not_answer_makes_its_node_not_ready_and_loses_nothing() {
    story(1, async {
        let world = with_pod().await;
        let (node, copy) = (world.node().unwrap(), world.copy("web").unwrap());
        let (life, cut) = (Arc::clone(&world.life), Arc::new(Mutex::new(true)));
        let is_cut = Arc::clone(&cut);
        world
            .member
            .faults()
            .set(move |_| if *lock(&is_cut) || lock(&life).dead { Action::Refuse } else { Action::Pass });
        let begun = tokio::time::Instant::now();
        until("it is not ready", || !world.is_ready()).await;
        assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(10)).await;
        assert_eq!(world.node().unwrap()["metadata"]["uid"], node["metadata"]["uid"]);
        assert!(!text(&world.pod("web").unwrap(), "/metadata/deletionTimestamp").is_empty(), "it waits for its copy");
        assert_eq!(world.copy("web").unwrap()["metadata"]["uid"], copy["metadata"]["uid"]);
        *lock(&cut) = false;
        let begun = tokio::time::Instant::now();
        until("it is ready again", || world.is_ready()).await;
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        until("both are gone", || world.pod("web").is_none() && world.copy("web").is_none()).await;
    });
}

#[test]
fn pod_of_somebody_else_is_left_alone_and_said() {
    story(1, async {
        let world = standing(1).await;
        world.open_namespace(SHOP);
        let theirs = json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        let theirs = world.member.create("pods", theirs).unwrap();
        world.run_pod("web", None);
        until("it is said", || world.host.list("events").iter().any(|event| event["reason"] == "NameTaken")).await;
        assert_eq!(world.phase("web"), "Pending");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the pod is gone", || world.pod("web").is_none()).await;
        let now = world.copy("web").unwrap();
        for path in ["/metadata/uid", "/metadata/labels", "/metadata/annotations", "/metadata/deletionTimestamp"] {
            assert_eq!(now.pointer(path), theirs.pointer(path));
        }
    });
}

#[test]
fn copy_that_somebody_deletes_fails_its_pod() {
    story(1, async {
        let world = with_pod().await;
        world.member.delete("pods", SHOP, "web").unwrap();
        until("it has failed", || world.phase("web") == "Failed").await;
        assert_eq!(world.pod("web").unwrap()["status"]["reason"], "DeletedInMember");
        assert_eq!(condition(&world.pod("web").unwrap(), "DisruptionTarget"), "True");
        sleep(Duration::from_mins(5)).await;
        assert!(world.copy("web").is_none(), "it is not recreated");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("the pod is gone", || world.pod("web").is_none()).await;
    });
}

#[test]
fn copy_without_a_pod_is_removed_and_that_of_another_host_stays() {
    story(1, async {
        let world = with_pod().await;
        world.kill();
        world.host.delete_now("pods", SHOP, "web").unwrap();
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "another"});
        let metadata = json!({"namespace": SHOP, "name": "other", "labels": labels,
            "annotations": {"kosmos.csi.io/pod-uid": "u"}});
        let spec = json!({"containers": [{"name": "c", "image": "i:1"}]});
        world.member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
        world.start("second");
        until("the orphan is gone", || world.copy("web").is_none()).await;
        assert!(world.copy("other").is_some());
    });
}

#[test]
fn config_map_goes_with_its_pod_and_follows_the_hosts() {
    story(1, async {
        let world = standing(1).await;
        let map = |value: &str| json!({"metadata": {"namespace": SHOP, "name": "settings"}, "data": {"a": value}});
        world.host.create("configmaps", map("1")).unwrap();
        let env = json!([{"configMapRef": {"name": "settings"}}]);
        let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1", "envFrom": env}]});
        world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
        let there = || world.member.get("configmaps", SHOP, "settings");
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(there().unwrap()["data"]["a"], "1");
        world.host.change("configmaps", SHOP, "settings", |map| map["data"] = json!({"b": "2"})).unwrap();
        until("it follows", || there().unwrap()["data"] == json!({"b": "2"})).await;
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(4)).await;
        assert!(there().is_none(), "nothing names it any more");
    });
}

/// The pod `web`, which needs the Secret `keys` and wants no token.
fn run_with_secret(world: &World) {
    let secret = json!({"metadata": {"namespace": SHOP, "name": "keys"}, "data": {"a": "YQ=="}});
    world.host.create("secrets", secret).unwrap();
    let volume = json!({"name": "keys", "secret": {"secretName": "keys"}});
    let spec = json!({"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}], "volumes": [volume],
        "automountServiceAccountToken": false});
    world.host.create("pods", json!({"metadata": {"namespace": SHOP, "name": "web"}, "spec": spec})).unwrap();
}

/// Whether the namespace says that members are given its Secrets.
fn give_secrets(world: &World, given: &str) {
    let say = |namespace: &mut Value| namespace["metadata"]["labels"]["kosmos.csi.io/secrets"] = json!(given);
    world.host.change("namespaces", "", SHOP, say).unwrap();
}

#[test]
fn secret_leaves_the_host_only_where_its_namespace_says_so() {
    story(1, async {
        let world = standing(1).await;
        run_with_secret(&world);
        until("it is said", || world.host.list("events").iter().any(|event| event["reason"] == "SecretsNotGiven"))
            .await;
        sleep(Duration::from_mins(1)).await;
        assert!(world.copy("web").is_none() && world.member.get("secrets", SHOP, "keys").is_none());
        give_secrets(&world, "true");
        until("it runs", || world.phase("web") == "Running").await;
        assert_eq!(world.member.get("secrets", SHOP, "keys").unwrap()["data"]["a"], "YQ==");
        world.host.delete("pods", SHOP, "web").unwrap();
        sleep(Duration::from_mins(5)).await;
        assert!(world.member.get("secrets", SHOP, "keys").is_none(), "the Secret is left in the member");
    });
}

#[test]
fn namespace_that_gives_secrets_no_more_ends_what_was_given_and_gives_it_again() {
    story(1, async {
        let world = standing(1).await;
        give_secrets(&world, "true");
        run_with_secret(&world);
        until("it runs", || world.phase("web") == "Running").await;
        let given = || world.member.get("secrets", SHOP, "keys").is_some_and(|secret| secret["data"]["a"] == "YQ==");
        assert!(given());
        give_secrets(&world, "false");
        until("nothing is left of it", || world.member.get("secrets", SHOP, "keys").is_none()).await;
        assert_eq!(world.phase("web"), "Running");
        let mark = format!("kosmos-csi.secrets.{}", world.host_id());
        until("nor the mark", || world.member.get("configmaps", SHOP, &mark).is_none()).await;
        give_secrets(&world, "true");
        until("its pod has it again", given).await;
        give_secrets(&world, "false");
        world.host.delete("pods", SHOP, "web").unwrap();
        until("it goes also with its pod", || !given() && world.pod("web").is_none()).await;
        until("the mark too", || world.member.get("configmaps", SHOP, &mark).is_none()).await;
    });
}
