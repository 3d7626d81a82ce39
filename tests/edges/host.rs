//! What plays the host: an API server that says who it is, keeps the Lease that it is given, and has no record of members, no Secrets and no
//! kinds of others; every other question it leaves without an answer.

use std::path::Path;

use axum::{
    Router,
    extract::{self, RawQuery, State},
    http::{HeaderName, StatusCode, Uri, header::CONTENT_TYPE},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time::timeout};

use super::{NOWHERE, PATIENCE};

pub fn kubeconfig(server: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: h, cluster: {{server: '{server}'}}}}]\n\
         users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: c, context: {{cluster: h, user: u}}}}]\n"
    )
}

/// Writes a kubeconfig; the flag that names it.
pub fn write(folder: &Path, server: &str) -> String {
    let path = folder.join("host.kubeconfig");
    std::fs::write(&path, kubeconfig(server)).unwrap();
    format!("--kubeconfig={}", path.display())
}

pub struct Host {
    pub flag: String,
    asked: watch::Receiver<Vec<String>>,
    /// Who holds the Lease; nothing where it was never asked for.
    pub holder: watch::Receiver<Option<String>>,
    serving: JoinHandle<()>,
}

impl Host {
    /// The flag for a host that cannot be reached.
    pub fn nowhere(folder: &Path) -> String {
        write(folder, NOWHERE)
    }

    pub async fn start(folder: &Path) -> Self {
        let (asking, asked) = watch::channel(Vec::new());
        let (holding, holder) = watch::channel(None);
        let leases = Router::new()
            .route("/apis/coordination.k8s.io/v1/namespaces/kosmos-csi/leases", post(lease_written))
            .route(
                "/apis/coordination.k8s.io/v1/namespaces/kosmos-csi/leases/{name}",
                get(no_record).patch(lease_written),
            )
            .with_state(holding);
        let routes = Router::new()
            .route("/api/v1/namespaces/kube-system", get(kube_system))
            .route("/api/v1/namespaces/kosmos-csi/configmaps/{name}", get(no_record))
            .route("/api/v1/namespaces/kosmos-csi/secrets", get(no_secrets))
            .route("/apis", get(no_groups))
            .fallback(silence)
            .with_state(asking)
            .merge(leases);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let flag = write(folder, &format!("http://{}", listener.local_addr().unwrap()));
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { flag, asked, holder, serving }
    }

    /// Waits until something was asked that stays without an answer.
    pub async fn asked_for(&self, what: &str) {
        let mut asked = self.asked.clone();
        let wanted = asked.wait_for(|asked| asked.iter().any(|path| path.contains(what)));
        timeout(PATIENCE, wanted).await.unwrap_or_else(|_| panic!("nobody asks for {what}")).unwrap();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

type Answer = ([(HeaderName, &'static str); 1], String);

fn answer(object: &Value) -> Answer {
    ([(CONTENT_TYPE, "application/json")], object.to_string())
}

async fn kube_system() -> Answer {
    let metadata = json!({"name": "kube-system", "uid": "6f9a2b0e-0000-4000-8000-000000000000"});
    answer(&json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}))
}

async fn no_record(extract::Path(name): extract::Path<String>) -> (StatusCode, Answer) {
    let details = json!({"name": name, "kind": "configmaps"});
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound",
        "message": format!("configmaps \"{name}\" not found"), "details": details});
    (StatusCode::NOT_FOUND, answer(&status))
}

async fn lease_written(State(holding): State<watch::Sender<Option<String>>>, written: String) -> Answer {
    let written: Value = serde_json::from_str(&written).unwrap();
    let holder = written["spec"]["holderIdentity"].as_str().map(str::to_owned);
    holding.send_replace(holder.clone());
    let metadata = json!({"name": "kosmos-csi-leader", "namespace": "kosmos-csi", "resourceVersion": "1"});
    answer(
        &json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {"holderIdentity": holder}}),
    )
}

async fn no_secrets(RawQuery(query): RawQuery) -> Answer {
    if query.unwrap_or_default().contains("watch=true") {
        std::future::pending::<()>().await;
    }
    answer(&json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {"resourceVersion": "1"}, "items": []}))
}

async fn no_groups() -> Answer {
    answer(&json!({"apiVersion": "v1", "kind": "APIGroupList", "groups": []}))
}

async fn silence(State(asking): State<watch::Sender<Vec<String>>>, uri: Uri) {
    asking.send_modify(|asked| asked.push(uri.to_string()));
    std::future::pending::<()>().await;
}
