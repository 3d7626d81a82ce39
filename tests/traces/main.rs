//! Traces, by a program that was built for them: what a collector gets of a call, and that nobody waits for one that does not answer.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

#[path = "../secrets/bytes.rs"]
mod bytes;
mod collector;
#[allow(dead_code, reason = "who tests the process itself asks for more")]
#[path = "../edges/driver.rs"]
mod driver;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use collector::{Collector, Span};
use csi::{
    client::{CallError, Client},
    v1::{CapacityRange, CreateVolumeRequest, VolumeCapability, volume_capability as capability},
};
use driver::Driver;
use nix::sys::signal::Signal;
use serde_json::json;
use simulate::{
    Cluster,
    storage::{Binding, Class, Settings, Storage},
};
use tokio::{net::TcpListener, task::JoinSet};

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);
const SECRET: &str = "canary-of-a-request";
const TOKEN: &str = "canary-of-a-kubeconfig";
/// A call that waits for a collector takes longer: who exports gives it ten.
const SOON: Duration = Duration::from_secs(5);
const TOLD: &str = "the collector takes no traces";

/// A host and its member m0, and the driver between them.
struct World {
    folder: tempfile::TempDir,
    driver: Driver,
    inside: JoinSet<()>,
}

impl World {
    async fn start(collector: &str) -> Self {
        let (folder, mut inside) = (tempfile::tempdir().unwrap(), JoinSet::new());
        let host = cluster("host", 1, &mut inside);
        let member = cluster("m0", 2, &mut inside);
        let settings = Settings { classes: vec![Class::new("now", Binding::Immediate)], ..Settings::default() };
        let storage = Storage::new(member.clone(), settings);
        inside.spawn(async move { storage.run().await });
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("members")).unwrap();
        std::fs::write(at("host.kubeconfig"), served(&host, &mut inside).await).unwrap();
        std::fs::write(at("members/m0.kubeconfig"), served(&member, &mut inside).await).unwrap();
        let flag = |name: &str, file: &str| format!("--{name}={}", at(file).display());
        let flags = [
            flag("kubeconfig", "host.kubeconfig"),
            flag("members-dir", "members"),
            format!("--endpoint=unix://{}", socket(folder.path())),
            format!("--otlp-endpoint={collector}"),
        ];
        let mut driver = Driver::start(&flags.each_ref().map(String::as_str), folder.path());
        let is_known = "kosmos_csi_member_state{member=\"m0\",state=\"ok\"} 1";
        let begun = Instant::now();
        driver.line_with("kosmos-csi is ready").await;
        while !driver::metric(driver.admin, "kosmos_csi_member_state").await.iter().any(|line| line == is_known) {
            assert!(begun.elapsed() < PATIENCE, "the member is not known");
        }
        Self { folder, driver, inside }
    }

    async fn create(&self) -> Result<String, CallError> {
        let mode = capability::access_mode::Mode::SingleNodeWriter;
        let request = CreateVolumeRequest {
            name: "volume-1".to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
            volume_capabilities: vec![VolumeCapability {
                access_type: Some(capability::AccessType::Mount(capability::MountVolume::default())),
                access_mode: Some(capability::AccessMode { mode: mode.into() }),
            }],
            parameters: [("leafStorageClass", "now"), ("member", "m0")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            secrets: [("password".to_owned(), SECRET.to_owned())].into(),
            ..CreateVolumeRequest::default()
        };
        let client = Client::new(Path::new(&socket(self.folder.path()))).unwrap();
        client.create_volume(request, PATIENCE).await.map(|volume| volume.volume_id)
    }

    /// Stops the driver as Kubernetes does; its log.
    async fn end(mut self) -> Vec<String> {
        self.driver.signal(Signal::SIGTERM);
        assert_eq!(self.driver.end().await, Some(0));
        self.inside.shutdown().await;
        self.driver.seen
    }
}

fn socket(folder: &Path) -> String {
    folder.join("csi.sock").display().to_string()
}

fn cluster(name: &str, seed: u64, inside: &mut JoinSet<()>) -> Cluster {
    let cluster = Cluster::new(name, seed);
    cluster.create("namespaces", json!({"metadata": {"name": "kosmos-csi"}})).unwrap();
    inside.spawn(simulate::controllers::run(cluster.clone()));
    cluster
}

/// Its kubeconfig.
async fn served(cluster: &Cluster, inside: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    inside.spawn(simulate::serve(cluster.clone(), listener));
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

fn parent<'a>(spans: &'a [Span], of: &Span) -> Option<&'a Span> {
    spans.iter().find(|span| span.trace == of.trace && span.id == of.parent)
}

#[tokio::test(flavor = "multi_thread")]
async fn volume_that_is_made_is_one_trace_with_its_steps_and_requests() {
    let (collector, mut inside) = (Collector::default(), JoinSet::new());
    let address = collector.serve(&mut inside).await;
    let world = World::start(&address).await;
    let volume = world.create().await.unwrap();
    // Sooner than it would send them by itself.
    world.end().await;

    let spans = collector.spans();
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "CreateVolume").collect();
    let [call] = calls.as_slice() else { panic!("{spans:#?}") };
    assert!(call.kind == Span::SERVER && call.parent.is_empty() && !call.failed, "{call:#?}");
    assert_eq!(call.process, "kosmos-csi-controller");
    let said = ["volume.name", "volume.id", "rpc.grpc.status_code"].map(|key| call.says(key));
    assert_eq!(said, [Some("volume-1"), Some(volume.as_str()), Some("0")]);
    for step in ["choose member", "make leaf claim", "wait until bound", "mark"] {
        let step = spans.iter().find(|span| span.name == step).unwrap_or_else(|| panic!("no {step}: {spans:#?}"));
        assert_eq!(parent(&spans, step), Some(*call), "{step:#?}");
    }
    let post = spans.iter().find(|span| span.name == "create persistentvolumeclaims").unwrap();
    let said = ["cluster", "verb", "resource", "code"].map(|key| post.says(key));
    assert_eq!(said, [Some("m0"), Some("create"), Some("persistentvolumeclaims"), Some("201")]);
    assert_eq!(parent(&spans, post).unwrap().name, "make leaf claim");
    for span in &spans {
        let is_request = span.says("verb").is_some();
        assert_eq!(is_request, span.kind == Span::CLIENT, "{span:#?}");
        assert!(!is_request || parent(&spans, span).is_some(), "of nothing: {span:#?}");
        assert!(span.says("verb") != Some("watch") && span.events == 0, "{span:#?}");
    }
    let text = collector.text();
    assert!(text.contains("volume-1") && ![SECRET, TOKEN].iter().any(|secret| text.contains(secret)), "{text}");
}

/// One that is not there, and one that takes connections and says nothing.
#[tokio::test(flavor = "multi_thread")]
async fn collector_that_does_not_answer_delays_no_call_and_no_stop_and_is_told_of_once() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (address, is_refused) in [(silent.local_addr().unwrap(), false), (nobody, true)] {
        let mut world = World::start(&format!("http://{address}")).await;
        let begun = Instant::now();
        world.create().await.unwrap();
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        if is_refused {
            world.driver.line_with(TOLD).await;
            world.create().await.unwrap();
        }
        let begun = Instant::now();
        let log = world.end().await;
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        let told = log.iter().filter(|line| line.contains("collector") && line.contains("WARN")).count();
        assert_eq!(told, usize::from(is_refused), "{log:#?}");
    }
}
