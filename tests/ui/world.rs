//! A driver between simulated clusters in this process, and the page that it serves, as a browser asks for it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use cluster::{Dial, Transport, metrics::Metrics};
use commands::{args::KosmosClusters, run::driver::Driver};
use domain::volume::{HostId, VolumeHash, VolumeId};
use http_body_util::BodyExt;
use k8s_openapi::ByteString;
use kube::{Config, client::DynBody};
use serde_json::{Value, json};
use simulate::Cluster;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt};
use ui::Sources;

use super::{authority::AUTHORITY, leaves};

/// In every member's kubeconfig, and nowhere else.
pub const TOKEN: &str = "t0k3n-0f-n0b0dy";
const NAMESPACE: &str = "kosmos-csi";
const PATIENCE: Duration = Duration::from_mins(1);

pub struct World {
    pub host: Cluster,
    pub sources: Sources,
    pub page: SocketAddr,
    /// Requests to any cluster.
    asked: Arc<AtomicU64>,
    _work: JoinSet<anyhow::Result<()>>,
}

/// What was answered.
pub struct Answer {
    pub status: u16,
    /// In lower case.
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Clusters to be filled before the driver sees them.
pub fn clusters(members: usize) -> (Cluster, Vec<Cluster>) {
    let host = Cluster::new("host", 1);
    host.create("namespaces", json!({"metadata": {"name": NAMESPACE}})).unwrap();
    let members: Vec<Cluster> =
        (0..members).map(|at| Cluster::new(&format!("m{at}"), u64::try_from(at + 2).unwrap())).collect();
    for member in &members {
        let name = member.name();
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: 'https://{name}',\n\
             certificate-authority-data: '{AUTHORITY}'}}}}]\n\
             users: [{{name: u, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
        );
        let metadata = json!({"name": name, "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": name}});
        let data = json!({"kubeconfig": ByteString(text.into_bytes())});
        host.create("secrets", json!({"metadata": metadata, "data": data})).unwrap();
    }
    (host, members)
}

pub fn host_id(host: &Cluster) -> HostId {
    let namespace = host.get("namespaces", "", "kube-system").unwrap();
    HostId(namespace["metadata"]["uid"].as_str().unwrap().to_owned())
}

/// Volumes from one number to another in a member, whole: leaf claim, leaf volume, and the host's.
pub fn fill(host: &Cluster, member: &mut Cluster, numbers: std::ops::Range<u32>) {
    let id = host_id(host);
    let mut whole = Vec::new();
    for number in numbers {
        let claim = leaves::claim(&id, number);
        let name = claim["metadata"]["name"].as_str().unwrap().to_owned();
        let namespace = leaves::namespace(number);
        whole.extend([("persistentvolumeclaims", claim), ("persistentvolumes", leaves::volume(&id, number))]);
        let handle = VolumeId::new(member.name(), &namespace, &name, VolumeHash::new(&id, &number.to_string()));
        host.create("persistentvolumes", host_volume(number, &handle.to_string(), &namespace, &name)).unwrap();
    }
    rewrite(member, whole, |_, _| ());
}

/// Puts objects into a cluster as they are, changes those that are there, and takes away what becomes null: none is looked at by an
/// API server, and all keep their UIDs.
pub fn rewrite(cluster: &mut Cluster, more: Vec<(&str, Value)>, change: impl Fn(&str, &mut Value)) {
    let more = more.into_iter().map(|(resource, object)| (resource.to_owned(), object));
    let before = cluster.objects().into_iter().map(|(resource, object)| (resource, Value::clone(&object)));
    let mut objects: Vec<(String, Value)> = before.chain(more).collect();
    for (resource, object) in &mut objects {
        change(resource, object);
    }
    objects.retain(|(_, object)| !object.is_null());
    *cluster = Cluster::restored(cluster.name(), cluster.seed(), objects);
}

pub fn host_volume(number: u32, handle: &str, namespace: &str, claim: &str) -> Value {
    json!({
        "metadata": {"name": format!("pvc-{number}")},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": namespace, "name": claim, "uid": format!("uid-{number}")},
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle},
        },
        "status": {"phase": "Bound"},
    })
}

impl World {
    /// The driver begins, has listed all, and leads.
    pub async fn start(host: Cluster, members: Vec<Cluster>) -> Self {
        let asked = Arc::<AtomicU64>::default();
        let (mut tasks, never) = (JoinSet::new(), CancellationToken::new());
        let driver = driver(&host, &members, &asked);
        let started = Box::pin(driver.start(&mut tasks, &never)).await.unwrap().unwrap();
        let sources = started.shown;
        sources.volumes.listed().await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = listener.local_addr().unwrap();
        let served = ui::serve(listener, sources.clone(), never);
        tasks.spawn(async move { Ok(served.await?) });
        let world = Self { host, sources, page, asked, _work: tasks };
        let begun = Instant::now();
        loop {
            let overview = world.get("/api/overview").await.json();
            let all = overview["complete"] == true && overview["leads"] == true;
            if all && overview["members"].as_array().unwrap().iter().all(|member| member["level"] == "well") {
                return world;
            }
            assert!(begun.elapsed() < PATIENCE, "it is never ready: {overview:#}");
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn requests(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "localhost").await
    }

    pub async fn ask(&self, method: &str, path: &str, host: &str) -> Answer {
        asked(self.page, method, path, host).await
    }

    /// The page of a replica that does not lead.
    pub async fn at_standby(&self, path: &str) -> Answer {
        let (_, leads) = watch::channel(false);
        self.page_of(&Sources { leads, ..self.sources.clone() }, path).await
    }

    /// The page of a replica that knows something else.
    pub async fn page_of(&self, sources: &Sources, path: &str) -> Answer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (page, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(ui::serve(listener, sources.clone(), stop.clone()));
        let answer = asked(page, "GET", path, "localhost").await;
        stop.cancel();
        serving.await.unwrap().unwrap();
        answer
    }

    /// The same as JSON, once it says so.
    pub async fn until(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let told = self.get(path).await.json();
            if holds(&told) {
                return told;
            }
            assert!(begun.elapsed() < PATIENCE, "{path}: {told:#}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn asked(page: SocketAddr, method: &str, path: &str, host: &str) -> Answer {
    let mut stream = TcpStream::connect(page).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

fn driver(host: &Cluster, members: &[Cluster], asked: &Arc<AtomicU64>) -> Driver {
    let clusters: Vec<Cluster> = std::iter::once(host).chain(members).cloned().collect();
    let asked = Arc::clone(asked);
    let dial = move |address: &http::Uri| -> Transport {
        let wanted = clusters.iter().find(|cluster| Some(cluster.name()) == address.host());
        let (service, asked) = (wanted.expect("one of these clusters").service("driver"), Arc::clone(&asked));
        let counted = service.map_request(move |request| {
            asked.fetch_add(1, Ordering::Relaxed);
            request
        });
        let whole = |answer: http::Response<_>| {
            answer.map(|body| -> Box<DynBody> { Box::new(BodyExt::map_err(body, BoxError::from)) })
        };
        counted.map_response(whole).map_err(Into::into).boxed()
    };
    Driver {
        host: Config::new("http://host".parse().unwrap()),
        dial: Dial::Within(Arc::new(dial)),
        members_dir: None,
        members_namespace: NAMESPACE.to_owned(),
        kosmos_clusters: KosmosClusters::Off,
        leaf_namespace: "kosmos-csi-leaves".to_owned(),
        mover_image: None,
        moves_at_once: 1,
        metrics: Metrics::new(),
    }
}
