//! What pods on virtual nodes use and how full their volumes are, for those who ask a kubelet for it: metrics-server and so `kubectl top`
//! and autoscalers, Prometheus. The member is asked only while somebody asks here, for the copies of this host alone.

mod counters;
mod exposition;
mod meter;
mod pages;
mod ports;
mod reading;
mod volume_meter;
mod volume_pages;
mod volumes;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use k8s_openapi::jiff::Timestamp;
use tokio::{sync::Mutex, time::Instant};

use super::{object::text, view::HostCache, virtual_node::virtual_node_of};
use counters::{Counters, NodeUsage};
use domain::{
    error::{Error, Result},
    volume::HostId,
};
use member::Registry;
use meter::Meter;
pub use pages::Page;
pub use ports::Ports;
use volume_meter::VolumeMeter;
use volumes::VolumeUsage;

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
    meters: Meters<Meter>,
    volume_meters: Meters<VolumeMeter>,
}

/// What each member has said so far.
type Meters<T> = std::sync::Mutex<HashMap<String, Arc<Mutex<T>>>>;

impl Usage {
    pub fn new(ports: Ports) -> Self {
        Self { ports, view: std::sync::Mutex::default(), meters: Meters::default(), volume_meters: Meters::default() }
    }

    /// An agent begins its work, and knows nothing of what one before it has said.
    pub(super) fn begin(&self, view: &Arc<HostCache>) {
        *self.view.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(view);
        self.meters.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.volume_meters.lock().unwrap_or_else(PoisonError::into_inner).clear();
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
        let (view, member) = (&view, &virtual_node.member);
        let asking = || Asking {
            node: name.to_owned(),
            member: member.clone(),
            members: members.clone(),
            host: host.clone(),
            view: Arc::clone(view),
        };
        let (usage, volumes) = tokio::join!(
            asked(page.tells_usage(), asking().usage(meter_of(&self.meters, member))),
            asked(page.tells_volumes(), asking().volumes(meter_of(&self.volume_meters, member))),
        );
        let nothing = || (Counters::default().of_node(name, &[], Timestamp::now()), false);
        let (usage, failed) = usage?.unwrap_or_else(nothing);
        Ok(page.of(&usage, &volumes?.unwrap_or_default(), failed))
    }
}

fn meter_of<T: Default>(meters: &Meters<T>, member: &str) -> Arc<Mutex<T>> {
    let mut meters = meters.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(meters.entry(member.to_owned()).or_default())
}

/// On its own: whoever asks here may hang up, and the member is to be asked to the end. None where the page has nothing of it.
async fn asked<T: Send + 'static>(wanted: bool, asking: impl Future<Output = T> + Send + 'static) -> Result<Option<T>> {
    if !wanted {
        return Ok(None);
    }
    let asked = tokio::spawn(asking).await;
    asked.map(Some).map_err(|error| {
        Error::InProgress(format!("the agent could not read the metrics of the member's pods: {error}"))
    })
}

/// What it takes to ask a member for what is told of one node. Whoever asks keeps a meter no longer than that takes: others wait for it.
struct Asking {
    node: String,
    member: String,
    members: Registry,
    host: HostId,
    view: Arc<HostCache>,
}

impl Asking {
    /// What the member has said of what pods use there, not long ago, and whether it says nothing just now.
    async fn usage(self, meter: Arc<Mutex<Meter>>) -> (NodeUsage, bool) {
        let mut meter = meter.lock().await;
        if is_due(meter.asked) {
            let member = self.members.get(&self.member).await;
            meter.ask(&self.member, member, &self.host, &self.view).await;
        }
        let pods = self.view.pods.kept_of(&self.node);
        (meter.counters.of_node(&self.node, &pods, Timestamp::now()), meter.error.is_some())
    }

    /// And of volumes.
    async fn volumes(self, meter: Arc<Mutex<VolumeMeter>>) -> Vec<VolumeUsage> {
        let mut meter = meter.lock().await;
        if is_due(meter.asked) {
            let member = self.members.get(&self.member).await;
            meter.ask(&self.member, member, &self.host, &self.view).await;
        }
        meter.volumes.of_pods(&self.view.pods.kept_of(&self.node), Timestamp::now())
    }
}

fn is_due(asked: Option<Instant>) -> bool {
    asked.is_none_or(|asked| asked.elapsed() >= BELIEVED)
}
