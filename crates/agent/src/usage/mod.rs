//! What pods on virtual nodes use, for those who ask a kubelet for it: metrics-server and so `kubectl top` and autoscalers,
//! Prometheus. The member is asked only while somebody asks here, for the copies of this host alone.

mod counters;
mod pages;
mod ports;
mod reading;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use kube::{
    api::{DynamicObject, ListParams, ObjectList},
    core::Request,
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout},
};

use super::{
    HOST,
    object::{text, whole},
    view::HostCache,
    virtual_node::virtual_node_of,
};
use cluster::{Aside, with_causes};
use counters::{Counters, STALE};
use domain::{
    error::{Error, Result},
    volume::HostId,
};
use member::{Member, Registry};
pub use pages::Page;
pub use ports::Ports;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1/pods";
/// How long a member's word is believed. metrics-server asks its kubelets every 15 s at the most often.
const BELIEVED: Duration = Duration::from_secs(10);
/// How long it is waited for: whoever asks here waits some ten seconds himself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Serves one process, whose agent may lead, or not, or no more.
#[derive(Debug)]
pub struct Usage {
    ports: Ports,
    /// Of the agent at work; gone with it.
    view: std::sync::Mutex<Weak<HostCache>>,
    meters: std::sync::Mutex<HashMap<String, Arc<Mutex<Meter>>>>,
}

/// What one member has said so far.
#[derive(Debug, Default)]
struct Meter {
    asked: Option<Instant>,
    counters: Counters,
    /// Why it says nothing.
    error: Option<String>,
}

impl Usage {
    pub fn new(ports: Ports) -> Self {
        Self { ports, view: std::sync::Mutex::default(), meters: std::sync::Mutex::default() }
    }

    /// An agent begins its work, and knows nothing of what one before it has said.
    pub(super) fn begin(&self, view: &Arc<HostCache>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(view);
        self.meters.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.ports.forget();
    }

    /// The port at which a node's kubelet is to be found; none where it has none of its own.
    pub(super) fn port_of(&self, node: &str, view: &HostCache) -> Option<u16> {
        self.ports.of(node, || {
            let told = |node: &serde_json::Value| {
                let port = node.pointer("/status/daemonEndpoints/kubeletEndpoint/Port")?.as_u64()?;
                Some((text(node, "/metadata/name").to_owned(), u16::try_from(port).ok()?))
            };
            view.nodes.all().iter().filter_map(|node| told(node)).collect()
        })
    }

    /// A page of the node that has this port. At the port that all share, nothing is wrong and nothing is known.
    pub async fn page(&self, page: Page, members: &Registry, host: &HostId, port: u16) -> Result<String> {
        let view = self.view.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let view = view.ok_or_else(|| Error::HostUnreachable("another replica keeps the virtual nodes".to_owned()))?;
        let node = self.ports.node_at(port).and_then(|name| view.node(&name));
        let stands_for = node.as_deref().and_then(|node| Some((text(node, "/metadata/name"), virtual_node_of(node)?)));
        let Some((name, virtual_node)) = stands_for else {
            return page.of_nobody().ok_or_else(|| Error::NotFound(format!("no virtual node has port {port}")));
        };
        if !page.tells_usage() {
            return Ok(page.of(&Counters::default().of_node(name, &[], Timestamp::now()), false));
        }
        let meter = self.meter(&virtual_node.member);
        let asking = Asking {
            member: virtual_node.member,
            members: members.clone(),
            host: host.clone(),
            view: Arc::clone(&view),
        };
        // On its own: whoever asks here may hang up, and the member is to be asked to the end.
        let meter = tokio::spawn(asking.ask(meter)).await;
        let meter = meter.map_err(|error| Error::InProgress(format!("what pods use is not told: {error}")))?;
        let usage = meter.counters.of_node(name, &view.pods.of(name), Timestamp::now());
        Ok(page.of(&usage, meter.error.is_some()))
    }

    fn meter(&self, member: &str) -> Arc<Mutex<Meter>> {
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(meters.entry(member.to_owned()).or_default())
    }
}

/// What it takes to ask a member.
struct Asking {
    member: String,
    members: Registry,
    host: HostId,
    view: Arc<HostCache>,
}

impl Asking {
    /// What the member has said, not long ago.
    async fn ask(self, meter: Arc<Mutex<Meter>>) -> OwnedMutexGuard<Meter> {
        let mut meter = meter.lock_owned().await;
        if meter.asked.is_none_or(|asked| asked.elapsed() >= BELIEVED) {
            let member = self.members.get(&self.member).await;
            meter.ask(&self.member, member, &self.host, &self.view).await;
        }
        meter
    }
}

impl Meter {
    /// Asks the member, and says once why it does not tell.
    async fn ask(&mut self, name: &str, member: Result<Arc<Member>>, host: &HostId, view: &HostCache) {
        self.asked = Some(Instant::now());
        let said = match member {
            Ok(member) => said(&member, host).await,
            Err(error) => Err(error.to_string()),
        };
        let error = match said {
            Ok(metrics) => {
                let readings: Vec<_> = metrics.iter().flat_map(reading::of_pod).collect();
                let now = Timestamp::now();
                self.counters.take(&readings, &view.nodes_of(name), &view.pods_for(name), now);
                let old = "what it says of its pods is older than minutes: its clock is behind, or its metrics-server stands still";
                let is_old = |reading: &reading::Reading| {
                    now.duration_since(reading.at).as_secs() >= STALE.as_secs().cast_signed()
                };
                (!readings.is_empty() && readings.iter().all(is_old)).then(|| old.to_owned())
            }
            Err(reason) => Some(reason),
        };
        match &error {
            Some(reason) if self.error != error => {
                tracing::warn!(
                    member = name,
                    reason,
                    "what pods use there is not known: kubectl top shows nothing of them"
                );
            }
            None if self.error.is_some() => tracing::info!(member = name, "what pods use there is known again"),
            _ => {}
        }
        self.error = error;
    }
}

/// `PodMetrics` of this host's copies, which have their labels. That this takes long says nothing of the member: what serves it is no part
/// of its API server.
async fn said(member: &Member, host: &HostId) -> Result<Vec<serde_json::Value>, String> {
    let client = member.leaf().map_err(|error| error.to_string())?.client.clone();
    let ours = ListParams::default().labels(&format!("{HOST}={}", host.0));
    let mut request = Request::new(METRICS).list(&ours).map_err(|error| error.to_string())?;
    request.extensions_mut().insert(Aside);
    let listed = timeout(PATIENCE, client.request::<ObjectList<DynamicObject>>(request)).await;
    let listed = listed.map_err(|_| format!("list pods.metrics.k8s.io: no answer within {} s", PATIENCE.as_secs()))?;
    let listed = listed.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 404 => {
            "it serves no metrics.k8s.io: metrics-server is not installed there".to_owned()
        }
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}: `kosmos-csi member add` gives the right", with_causes(&error))
        }
        _ => format!("list pods.metrics.k8s.io: {}", with_causes(&error)),
    })?;
    Ok(listed.items.into_iter().map(whole).collect())
}
