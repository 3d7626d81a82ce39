//! Secrets stay where they are: every RPC of the interface that this process serves gets one in each of its `secrets`, with
//! good requests and bad ones, the members' kubeconfigs hold tokens, a volume moves by keys that are made for it, and the driver writes all
//! the log it can. Then logs, metrics, answers, the archive for who helps and every object of every cluster are searched.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, reason = "its helpers are part of tests")]

mod bytes;
mod call;
#[allow(dead_code, reason = "spans are looked at by who tests traces")]
#[path = "../traces/collector.rs"]
mod collector;
mod fill;
mod moves;
mod process;
#[path = "../provisioner.rs"]
mod provisioner;

use std::time::Duration;

use csi::v1;
use serde_json::json;
use simulate::{
    Cluster,
    storage::{Binding, Class, Settings, Storage},
};
use tokio::{net::TcpListener, task::JoinSet};

/// What is in `secrets`, and what is in kubeconfigs.
const SECRET: &str = "canary-of-a-request";
const TOKEN: &str = "canary-of-a-kubeconfig";
const HOST_TOKEN: &str = "canary-of-the-host";
const SHOP: &str = "shop";

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_never_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut inside = JoinSet::new();
    let host = cluster("host", &mut inside);
    let [member, other] = ["m0", "m4"].map(|name| with_storage(name, &mut inside));
    moves::prepare(&host, [&member, &other]);
    let mut servers = Vec::new();
    for cluster in [&host, &member, &other] {
        servers.push(serve(cluster, &mut inside).await);
    }
    let by_secret = json!({
        "metadata": {"name": "m1", "namespace": "kosmos-csi", "labels": {"kosmos.csi.io/member": "m1"}},
        "data": {"kubeconfig": base64(&kubeconfig("http://m1", TOKEN))},
    });
    host.create("secrets", by_secret).unwrap();
    let members = [&servers[1], &servers[2]].map(|server| kubeconfig(server, TOKEN));
    let collector = collector::Collector::default();
    let traces = format!("--otlp-endpoint={}", collector.serve(&mut inside).await);
    // Any other program refuses it.
    let more: &[String] = if cfg!(feature = "otlp") { &[traces] } else { &[] };
    let driver = process::Driver::start(folder.path(), &kubeconfig(&servers[0], HOST_TOKEN), &members, more);
    for name in ["m0", "m4"] {
        driver.sees_member(name).await;
    }

    let mut told = call::everything(&driver.socket()).await;
    let (keys, meanwhile) = moves::keys(&driver.socket(), &host, [&member, &other]).await;
    told.extend(meanwhile);
    told.push(("metrics".to_owned(), driver.metrics().await));
    let bundle = driver.support_bundle().await;
    assert!(bundle.contains("\"cluster\": \"") && bundle.contains("\"kind\": \"StorageClass\""), "{bundle}");
    told.push(("support bundle".to_owned(), bundle));
    let log = driver.end().await;
    assert!(log.lines().count() > 500 && log.contains("TRACE"), "the log is not all there is:\n{log}");
    told.push(("log".to_owned(), log));
    let traces = collector.text();
    assert_eq!(traces.contains("CreateVolume") && traces.contains("step of a move"), cfg!(feature = "otlp"));
    told.push(("traces".to_owned(), traces));
    for cluster in [&host, &member, &other] {
        told.extend(told_by(cluster));
    }
    let secrets = [SECRET, TOKEN, HOST_TOKEN].map(|secret| [secret.to_owned(), base64(secret)]).concat();
    for (place, text) in &told {
        for secret in secrets.iter().chain(&keys) {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "{secret} is told in {place}: {line:?}");
        }
    }
}

fn cluster(name: &str, inside: &mut JoinSet<()>) -> Cluster {
    // Each is a cluster of its own.
    let cluster = Cluster::new(name, name.bytes().map(u64::from).sum());
    for namespace in ["kosmos-csi", SHOP] {
        cluster.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    }
    inside.spawn(simulate::controllers::run(cluster.clone()));
    cluster
}

fn with_storage(name: &str, inside: &mut JoinSet<()>) -> Cluster {
    let member = cluster(name, inside);
    let settings = Settings { classes: vec![Class::new("now", Binding::Immediate)], ..Settings::default() };
    let storage = Storage::new(member.clone(), settings);
    inside.spawn(async move { storage.run().await });
    member
}

/// What its objects say, but for Secrets.
fn told_by(cluster: &Cluster) -> Vec<(String, String)> {
    let objects = cluster.objects().into_iter().filter(|(resource, _)| resource != "secrets");
    objects.map(|(resource, object)| (format!("{} of {}", resource, cluster.name()), object.to_string())).collect()
}

async fn serve(cluster: &Cluster, inside: &mut JoinSet<()>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    inside.spawn(simulate::serve(cluster.clone(), listener));
    server
}

fn kubeconfig(server: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: {token}}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

/// As Kubernetes writes bytes.
fn base64(text: &str) -> String {
    let bytes = k8s_openapi::ByteString(text.as_bytes().to_vec());
    json!(bytes).as_str().unwrap().trim_end_matches('=').to_owned()
}

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The RPCs that a controller's socket serves.
fn methods() -> impl Iterator<Item = &'static &'static str> {
    v1::METHODS.iter().filter(|path| !path.starts_with("/csi.v1.Node/") && !path.contains("SnapshotMetadata"))
}
