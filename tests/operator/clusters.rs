//! A host and members in this process, and the files by which a person reaches them. What the simulated API server lacks is
//! answered here: tokens, what an account may do, and what pods tell.

use std::{
    collections::BTreeSet,
    fs,
    sync::{Arc, Mutex},
};

use crate::authority::AUTHORITY;
use clap::Parser;
use cluster::{Dial, Transport};
use commands::{
    args::operator::Command,
    run::operator::{self, Report},
};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, StreamBody};
use kube::client::{Body, DynBody};
use serde_json::{Value, json};
use simulate::Cluster;
use tempfile::TempDir;
use tower::{BoxError, ServiceExt, service_fn};

pub const CLAIMS: &str = "persistentvolumeclaims";
pub const VOLUMES: &str = "persistentvolumes";
pub const SECRETS: &str = "secrets";
pub const NAMESPACE: &str = "kosmos-csi";
/// The agent's.
pub const PODS_NAMESPACE: &str = "kosmos-csi-pods";
/// When every token ends: in the year 2100.
const END: i64 = 4_102_444_800;

#[derive(Parser)]
struct Typed {
    #[command(subcommand)]
    command: Command,
}

pub struct Clusters {
    pub host: Cluster,
    /// The one of before.
    pub former_host: Option<Cluster>,
    pub members: Vec<Cluster>,
    pub folder: TempDir,
    /// What no account may do, as "verb resource"; a group of kinds that no cluster serves, as its path; a list that never ends, as
    /// "the end of", the cluster and the list's path.
    pub denied: Arc<Mutex<BTreeSet<String>>>,
    /// Every request for a token.
    pub asked: Arc<Mutex<Vec<Value>>>,
}

impl Clusters {
    /// The host has the namespaces of driver and agent; its members are called m0, m1 and so on, and have not joined.
    pub fn new(members: usize) -> Self {
        let host = host(1);
        let seed = |at: usize| u64::try_from(at + 2).unwrap();
        let members = (0..members).map(|at| Cluster::new(&format!("m{at}"), seed(at))).collect();
        let folder = tempfile::tempdir().unwrap();
        let clusters = Self { host, former_host: None, members, folder, denied: Arc::default(), asked: Arc::default() };
        for cluster in std::iter::once(&clusters.host).chain(&clusters.members) {
            let text = kubeconfig(&format!("https://{}", cluster.name()));
            fs::write(clusters.file(cluster.name()), text).unwrap();
        }
        clusters
    }

    /// The host's cluster is lost with all that is in it, and another one has its address.
    pub fn rebuild_host(&mut self) {
        self.former_host = Some(std::mem::replace(&mut self.host, host(1_000)));
    }

    /// An administrator's kubeconfig.
    pub fn file(&self, cluster: &str) -> String {
        self.folder.path().join(format!("{cluster}.kubeconfig")).display().to_string()
    }

    /// Types a command. `$m0` stands for the administrator's kubeconfig of m0; the host's is added.
    pub async fn type_in(&self, words: &str) -> Result<Report, String> {
        let mut typed = vec!["kosmos-csi".to_owned()];
        typed.extend(words.split_whitespace().map(|word| match word.split_once('$') {
            Some((before, name)) => format!("{before}{}", self.file(name)),
            None => word.to_owned(),
        }));
        if !words.starts_with("release") {
            typed.push(format!("--kubeconfig={}", self.file("host")));
        }
        let typed = Typed::try_parse_from(typed).unwrap_or_else(|error| panic!("{error}"));
        operator::report(&typed.command, &self.dial()).await.map_err(|error| operator::in_words(&error))
    }

    /// The same, where all is well.
    pub async fn does(&self, words: &str) -> String {
        let report = self.type_in(words).await.unwrap_or_else(|error| panic!("{words}: {error}"));
        assert!(report.well, "{words}: {}", report.text);
        report.text
    }

    /// The same, where it is refused or something is wrong, with all of these words.
    pub async fn refuses(&self, words: &str, said: &[&str]) {
        let told = match self.type_in(words).await {
            Ok(report) if report.well => panic!("{words}: {}", report.text),
            Ok(report) => report.text,
            Err(error) => error,
        };
        for word in said {
            assert!(told.contains(word), "{words}: {word:?} in: {told}");
        }
    }

    /// As a controller does when it meets a member that nobody has recorded.
    pub fn pin(&self, name: &str, at: usize) {
        self.pin_in(NAMESPACE, name, at);
    }

    /// In the record of the controller or of the agent.
    pub fn pin_in(&self, namespace: &str, name: &str, at: usize) {
        let identity = identity(&self.members[at]);
        let made = self.host.create(
            "configmaps",
            json!({
                "metadata": {"name": "kosmos-csi-members", "namespace": namespace}, "data": {name: identity},
            }),
        );
        if made.is_err() {
            let add = |map: &mut Value| map["data"][name] = json!(identity);
            self.host.change("configmaps", namespace, "kosmos-csi-members", add).unwrap();
        }
    }

    pub async fn join(&self) {
        self.does("member add m0 --member-kubeconfig=$m0").await;
    }

    fn dial(&self) -> Dial {
        let clusters: Vec<Cluster> = std::iter::once(&self.host).chain(&self.members).cloned().collect();
        let (denied, asked) = (Arc::clone(&self.denied), Arc::clone(&self.asked));
        Dial::Within(Arc::new(move |address: &Uri| {
            // As through a tunnel of the administrator's.
            let name = address.host().map(|host| if host == "127.0.0.1" { "m0" } else { host });
            let wanted = clusters.iter().find(|cluster| Some(cluster.name()) == name).cloned();
            transport(wanted, Arc::clone(&denied), Arc::clone(&asked))
        }))
    }
}

fn host(seed: u64) -> Cluster {
    let host = Cluster::new("host", seed);
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        host.create("namespaces", json!({"metadata": {"name": namespace}})).unwrap();
    }
    host
}

pub fn identity(cluster: &Cluster) -> String {
    let namespace = cluster.get("namespaces", "", "kube-system").unwrap();
    namespace["metadata"]["uid"].as_str().unwrap().to_owned()
}

pub fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: m, cluster: {{server: '{server}',\n\
         certificate-authority-data: {AUTHORITY}}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: m, user: u}}}}]\n"
    )
}

/// Nobody answers where there is no cluster.
fn transport(
    cluster: Option<Cluster>,
    denied: Arc<Mutex<BTreeSet<String>>>,
    tokens: Arc<Mutex<Vec<Value>>>,
) -> Transport {
    let serve = move |request: Request<Body>| {
        let (cluster, denied, tokens) = (cluster.clone(), Arc::clone(&denied), Arc::clone(&tokens));
        async move {
            let cluster = cluster.ok_or("connection refused")?;
            if denied.lock().unwrap().contains(request.uri().path()) {
                return Ok(answer(
                    &json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "", "resources": []}),
                ));
            }
            if never_ends(cluster.name(), request.uri().path(), &denied.lock().unwrap()) {
                let body: Box<DynBody> = Box::new(StreamBody::new(futures::stream::pending()));
                return Ok(Response::new(body));
            }
            match request.uri().path().rsplit('/').next() {
                Some(told @ ("log" | "metrics")) if request.uri().path().contains("/pods/") => {
                    let asked = request.uri().query().unwrap_or_default();
                    Ok(text(format!("the {told} of {asked}: refused with canary-of-a-kubeconfig\n")))
                }
                Some("token") => {
                    let account = request.uri().path().to_owned();
                    let asked = request.into_body().collect().await?.to_bytes();
                    tokens.lock().unwrap().push(serde_json::from_slice(&asked)?);
                    Ok(answer(&token(&account)))
                }
                Some("selfsubjectaccessreviews") => {
                    let asked = request.into_body().collect().await?.to_bytes();
                    Ok(answer(&review(serde_json::from_slice(&asked)?, &denied.lock().unwrap())))
                }
                _ => {
                    let answer = cluster.service("test").oneshot(request).await.map_err(BoxError::from)?;
                    Ok::<_, BoxError>(
                        answer.map(|body| -> Box<DynBody> { Box::new(BodyExt::map_err(body, BoxError::from)) }),
                    )
                }
            }
        }
    };
    service_fn(serve).boxed()
}

fn never_ends(cluster: &str, path: &str, denied: &BTreeSet<String>) -> bool {
    let list = path.trim_start_matches("/apis/").trim_start_matches("/api/");
    denied.contains(&format!("the end of {cluster} {list}"))
}

fn answer(object: &Value) -> Response<Box<DynBody>> {
    let body = Body::from(object.to_string().into_bytes());
    let body: Box<DynBody> = Box::new(BodyExt::map_err(body, BoxError::from));
    Response::builder().status(201).header("content-type", "application/json").body(body).unwrap()
}

fn text(told: String) -> Response<Box<DynBody>> {
    let body: Box<DynBody> = Box::new(BodyExt::map_err(Body::from(told.into_bytes()), BoxError::from));
    Response::new(body)
}

fn token(asked: &str) -> Value {
    let account = asked.rsplit('/').nth(1).unwrap_or_default();
    let now = k8s_openapi::jiff::Timestamp::now().as_second();
    let claims =
        json!({"iat": now, "exp": END, "sub": format!("system:serviceaccount:kosmos-csi:{account}")}).to_string();
    let claims = serde_json::to_value(k8s_openapi::ByteString(claims.into_bytes())).unwrap();
    let claims = claims.as_str().unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_");
    json!({
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
        "spec": {"audiences": []},
        "status": {"token": format!("e30.{claims}.canary"), "expirationTimestamp": "2100-01-01T00:00:00Z"},
    })
}

fn review(mut review: Value, denied: &BTreeSet<String>) -> Value {
    let about = &review["spec"]["resourceAttributes"];
    let asked = format!("{} {}", about["verb"].as_str().unwrap(), about["resource"].as_str().unwrap());
    review["status"] = json!({"allowed": !denied.contains(&asked)});
    review
}
