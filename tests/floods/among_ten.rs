//! One member floods, and nine others do not. The driver is a process of its own here, and turns with and without a flood follow
//! one another; each flood is of a member of its own, because one that said too much is not listened to for a while.

use std::{
    fmt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use axum::{
    Router,
    body::Body as Answered,
    extract::{Request as Asked, State},
    response::Response as Answering,
};
use csi::{
    client::{CallError, Client},
    v1::{CapacityRange, CreateVolumeRequest, VolumeCapability, volume_capability as capability},
};
use domain::volume::HostId;
use futures::{StreamExt, stream};
use http::Uri;
use k8s_openapi::serde_json::json;
use simulate::{
    Cluster as Simulated,
    storage::{Binding, Class, Settings, Storage, Work},
};
use tokio::{
    net::TcpListener,
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{Answer, EVERY, Texts, claims, empty_list, endless, leaves, like, said};

/// What the chart gives the controller.
const LIMIT: u64 = 512 << 20;
const WELL: usize = 9;
const TURN: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_mins(1);
/// Of the rate without a flood, with the machine's other work in it; and where that has been kept away.
const KEPT: (f64, f64) = (0.5, 0.8);
/// The longest flood takes half a minute of a debug build: 200,000 claims are read before it is one.
const THOROUGH: &str = "KOSMOS_CSI_THOROUGH";

#[test]
fn member_that_floods_takes_neither_the_drivers_memory_nor_the_rate_of_nine_others() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = World::start().await;
        world.all_serve().await;
        let thorough = std::env::var_os(THOROUGH).is_some();
        let (mut quiet, mut flooded) = (Pace::default(), Pace::default());
        for (number, (flood, words)) in floods(&world.host).into_iter().enumerate().skip(usize::from(!thorough)) {
            quiet.add(world.during(async {}).await);
            world.floods[number].send_replace(Some(flood));
            flooded.add(world.during(world.is_closed(WELL + number, words)).await);
        }
        let most = world.memory.load(Ordering::Relaxed);
        println!("{quiet} without a flood, {flooded} beside one; at most {} MiB of memory", most >> 20);
        assert!(
            flooded.rate() >= quiet.rate() * if thorough { KEPT.1 } else { KEPT.0 },
            "{flooded} beside a flood, {quiet} without one"
        );
        assert!(most < LIMIT, "{} MiB were taken", most >> 20);
        let ended = world.driver.0.try_wait().unwrap();
        assert!(ended.is_none(), "the driver has ended: {ended:?}");
    });
}

const FLOODS: usize = 7;

/// Nothing: it is silent until it floods, or floods no more.
type Flood = Arc<dyn Fn(&Uri) -> Option<(u16, Texts)> + Send + Sync>;

/// What is said, and what of that its volumes' users are told.
fn floods(host: &HostId) -> [(Flood, &'static str); FLOODS] {
    let mut small = leaves::claim(host, 7);
    small.as_object_mut().unwrap().retain(|part, _| part == "metadata");
    let mut large = leaves::claim(host, 7);
    large["metadata"]["annotations"]["kosmos.csi.io/former"] = json!("x".repeat(1 << 20));
    let page = json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": []}).to_string();
    let all = |_: &Uri| Some(said(std::iter::once(r#"{"a":""#.to_owned()).chain(endless("x"))));
    let refusal = |_: &Uri| -> Option<(u16, Texts)> { Some((500, Box::new(endless("x")))) };
    let line = |uri: &Uri| Some(if watches(uri) { said(endless("x")) } else { empty_list() });
    let circles = |uri: &Uri| Some(if watches(uri) { empty_list() } else { said(std::iter::once(older(uri))) });
    let pages = move |_: &Uri| said(std::iter::once(page.clone()));
    [
        (listed_again(claims(like(&small, &EVERY))), "200000 objects of a kind"),
        (listed_again(claims(like(&large, &EVERY))), "labels have more than 64 MiB"),
        (listed_again(Arc::new(pages)), "more than 200000 objects"),
        (Arc::new(line), "a line of a watch is longer than 10 MiB"),
        (Arc::new(all), "what it answers at one time is more than 64 MiB"),
        (Arc::new(refusal), "what it answers at one time is more than 64 MiB"),
        (Arc::new(circles), "its claims and volumes are still being listed"),
    ]
}

/// A list that is empty, and a question for its version that tells of an older one, as after a backup was restored.
fn older(uri: &Uri) -> String {
    let version = if uri.query().unwrap_or_default().contains("fieldSelector") { "0" } else { "1" };
    json!({"metadata": {"resourceVersion": version}, "items": []}).to_string()
}

/// What is listed again is the flood.
fn listed_again(answer: Answer) -> Flood {
    Arc::new(move |uri| {
        let question = uri.query().unwrap_or_default().contains("fieldSelector");
        if question { Some(said(std::iter::once(older(uri)))) } else { (!watches(uri)).then(|| answer(uri)) }
    })
}

fn watches(uri: &Uri) -> bool {
    uri.query().unwrap_or_default().contains("watch=true")
}

/// How many volumes were made in which time.
#[derive(Clone, Copy, Default)]
struct Pace {
    volumes: usize,
    took: Duration,
}

impl Pace {
    fn add(&mut self, more: Self) {
        self.volumes += more.volumes;
        self.took += more.took;
    }

    #[expect(clippy::cast_precision_loss, reason = "hundreds")]
    fn rate(&self) -> f64 {
        self.volumes as f64 / self.took.as_secs_f64()
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} volumes in {:.1?} ({:.1}/s)", self.volumes, self.took, self.rate())
    }
}

/// Ends with the test.
struct Driver(Child);

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct World {
    host: HostId,
    client: Arc<Client>,
    driver: Driver,
    floods: Vec<watch::Sender<Option<Flood>>>,
    made: Arc<AtomicUsize>,
    memory: Arc<AtomicU64>,
    inside: JoinSet<()>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let members = folder.path().join("members");
        std::fs::create_dir(&members).unwrap();
        let mut inside = JoinSet::new();
        let host = Simulated::new("host", 1);
        host.create("namespaces", json!({"metadata": {"name": "kosmos-csi"}})).unwrap();
        let identity = host.get("namespaces", "", "kube-system").unwrap();
        let id = HostId(simulate::text(&identity, "/metadata/uid").to_owned());
        std::fs::write(folder.path().join("host.kubeconfig"), kubeconfig(&serve(host, &mut inside).await)).unwrap();
        for number in 0..WELL {
            let server = serve(member(number, &mut inside), &mut inside).await;
            std::fs::write(members.join(format!("m{number}.kubeconfig")), kubeconfig(&server)).unwrap();
        }
        let floods: Vec<_> = (0..FLOODS).map(|_| watch::Sender::new(None)).collect();
        for (number, flood) in floods.iter().enumerate() {
            let server = flooding(number, flood.subscribe());
            std::fs::write(members.join(format!("m{}.kubeconfig", WELL + number)), kubeconfig(&server)).unwrap();
        }
        let driver = driver(folder.path());
        let client = Arc::new(Client::new(&folder.path().join("csi.sock")).unwrap());
        let memory = Arc::default();
        inside.spawn(measured(driver.0.id(), Arc::clone(&memory)));
        let made = Arc::default();
        Self { host: id, client, driver, floods, made, memory, inside, _folder: folder }
    }

    /// From now on each of the nine has a caller.
    async fn all_serve(&mut self) {
        for number in 0..WELL {
            let (client, made) = (Arc::clone(&self.client), Arc::clone(&self.made));
            let member = format!("m{number}");
            let served = async { while create(&client, "first", &member).await.is_err() {} };
            timeout(PATIENCE, served).await.unwrap();
            self.inside.spawn(async move {
                for name in 0.. {
                    let Ok(handle) = create(&client, &format!("volume-{name}"), &member).await else { continue };
                    made.fetch_add(1, Ordering::Relaxed);
                    let _ = client.delete_volume(handle, PATIENCE).await;
                }
            });
        }
    }

    /// What the nine make until something has ended, and for a turn at least.
    async fn during(&self, what: impl Future<Output = ()>) -> Pace {
        let (before, begun) = (self.made.load(Ordering::Relaxed), Instant::now());
        tokio::join!(what, sleep(TURN));
        Pace { volumes: self.made.load(Ordering::Relaxed) - before, took: begun.elapsed() }
    }

    async fn is_closed(&self, number: usize, words: &str) {
        let begun = Instant::now();
        loop {
            let told = create(&self.client, "drowned", &format!("m{number}")).await.unwrap_err().message;
            if told.contains(words) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{words:?} is not said: {told}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn create(client: &Client, name: &str, member: &str) -> Result<String, CallError> {
    let mount = capability::AccessType::Mount(capability::MountVolume::default());
    let mode = capability::access_mode::Mode::SingleNodeWriter;
    let request = CreateVolumeRequest {
        name: format!("{member}-{name}"),
        capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![VolumeCapability {
            access_type: Some(mount),
            access_mode: Some(capability::AccessMode { mode: mode.into() }),
        }],
        parameters: [("leafStorageClass", "now"), ("member", member)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..CreateVolumeRequest::default()
    };
    client.create_volume(request, PATIENCE).await.map(|volume| volume.volume_id)
}

fn member(number: usize, inside: &mut JoinSet<()>) -> Simulated {
    let cluster = Simulated::new(&format!("m{number}"), 2 + number as u64);
    let step = || Work::takes(Duration::from_millis(50)..=Duration::from_millis(50));
    let (provisioning, deleting) = (step(), step());
    let classes = vec![Class::new("now", Binding::Immediate)];
    let storage = Storage::new(cluster.clone(), Settings { classes, provisioning, deleting, ..Settings::default() });
    inside.spawn(async move { storage.run().await });
    inside.spawn(simulate::controllers::run(cluster.clone()));
    cluster
}

async fn serve(cluster: Simulated, inside: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    inside.spawn(simulate::serve(cluster, listener));
    server
}

fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

/// One that may flood, with a thread of its own: what it says is not to slow down those who simulate the nine.
fn flooding(number: usize, news: watch::Receiver<Option<Flood>>) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::from_std(listener).unwrap();
            axum::serve(listener, Router::new().fallback(answer).with_state((number, news))).await.unwrap();
        });
    });
    server
}

/// Whoever asks who it is, is told. A watch of a quiet time ends with that.
async fn answer(State((number, mut news)): State<(usize, watch::Receiver<Option<Flood>>)>, asked: Asked) -> Answering {
    if asked.uri().path().ends_with("/namespaces/kube-system") {
        let who = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
            "metadata": {"name": "kube-system", "uid": format!("9d1f0c52-35c6-4f3a-8a07-{number:012x}")}});
        return Answering::new(Answered::from(who.to_string()));
    }
    let flood = news.borrow_and_update().clone();
    let quiet = || (!watches(asked.uri())).then(empty_list);
    let said = flood.map_or_else(quiet, |flood| flood(asked.uri()));
    let ended = async move { drop(news.changed().await) };
    let Some((status, texts)) = said else {
        let silence = stream::once(ended).filter_map(|()| std::future::ready(None::<Result<String, std::io::Error>>));
        return Answering::new(Answered::from_stream(silence));
    };
    let mut answer = Answering::new(Answered::from_stream(stream::iter(texts.map(Ok::<_, std::io::Error>))));
    *answer.status_mut() = status.try_into().unwrap();
    answer
}

fn driver(folder: &Path) -> Driver {
    let at = |name: &str| folder.join(name).display().to_string();
    let child = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
        .args(["controller", &format!("--endpoint=unix://{}", at("csi.sock"))])
        .args([format!("--kubeconfig={}", at("host.kubeconfig")), format!("--members-dir={}", at("members"))])
        .args(["--members-namespace=kosmos-csi", "--leaf-namespace=kosmos-csi-leaves"])
        .env_clear()
        .env("RUST_LOG", "warn")
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(folder.join("log")).unwrap())
        .spawn()
        .unwrap();
    Driver(child)
}

/// The most that a process takes, in bytes, without what is only mapped from files.
async fn measured(process: u32, most: Arc<AtomicU64>) {
    while let Ok(pages) = std::fs::read_to_string(format!("/proc/{process}/statm")) {
        let pages: Vec<u64> = pages.split_whitespace().filter_map(|pages| pages.parse().ok()).collect();
        let now = (pages[1] - pages[2]) * 4096;
        most.fetch_max(now, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
    }
}
