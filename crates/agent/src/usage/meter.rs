//! What one member's metrics-server has said of what its pods use.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use kube::{
    api::{ListParams, ObjectList},
    core::Request,
};
use tokio::time::{Instant, timeout};

use super::{
    super::{
        HOST,
        object::{Object, whole},
        view::HostCache,
    },
    PATIENCE,
    counters::{Counters, STALE},
    reading,
};
use cluster::{Aside, with_causes};
use domain::{error::Result, volume::HostId};
use member::Member;

const METRICS: &str = "/apis/metrics.k8s.io/v1beta1/pods";

#[derive(Debug, Default)]
pub(super) struct Meter {
    pub(super) asked: Option<Instant>,
    pub(super) counters: Counters,
    /// Why it says nothing.
    pub(super) error: Option<String>,
}

impl Meter {
    /// Asks the member, and says once why it does not tell.
    pub(super) async fn ask(&mut self, name: &str, member: Result<Arc<Member>>, host: &HostId, view: &HostCache) {
        self.asked = Some(Instant::now());
        let said = match member {
            Ok(member) => said(&member, host).await,
            Err(error) => Err(error.to_string()),
        };
        let error = match said {
            Ok(metrics) => {
                let readings: Vec<_> = metrics.iter().flat_map(reading::of_pod).collect();
                let now = Timestamp::now();
                self.counters.take(&readings, &view.nodes_of(name), &view.kept_pods_for(name), now);
                let old =
                    "its metrics of pods are minutes old: its clock is behind, or its metrics-server stands still";
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
                    "the member tells no metrics of its pods, so kubectl top shows nothing of them"
                );
            }
            None if self.error.is_some() => tracing::info!(member = name, "the member tells metrics of its pods again"),
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
    let listed = timeout(PATIENCE, client.request::<ObjectList<Object>>(request)).await;
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
