//! How kubelets are asked: as the API server of their cluster is, by the same account. A kubelet is told the account's token, so that may
//! do nothing but read what kubelets say.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    pin::pin,
};

use futures::AsyncBufReadExt;
use k8s_openapi::api::core::v1::Node;
use kube::{Config, api::GetParams, core::Request};

use super::{
    VolumeStats,
    summary::{Copies, Summary},
};
use cluster::{Answers, Dial, Reading, metrics::Metrics, with_causes};

/// Where one listens that does not say.
const PORT: u16 = 10250;

/// By what a kubelet's certificate is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// By the authority of the cluster.
    Cluster,
    /// By those of this file.
    Authority(PathBuf),
    /// By nothing.
    Anybody,
}

/// The way to all kubelets of a cluster.
#[derive(Clone, Debug)]
pub struct Kubelets {
    config: Config,
    dial: Dial,
    metrics: Metrics,
}

impl Kubelets {
    /// `cluster`: how its API server is asked.
    pub fn new(cluster: &Config, trust: Trust, dial: Dial) -> Self {
        let mut config = cluster.clone();
        match trust {
            Trust::Cluster => {}
            Trust::Authority(file) => config.root_cert_file = Some(file),
            Trust::Anybody => config.accept_invalid_certs = true,
        }
        Self { config, dial, metrics: Metrics::new() }
    }

    /// What the kubelet of this node says of these copies at `/stats/summary`.
    pub(super) async fn volumes(&self, node: &Node, copies: &Copies) -> Result<Vec<VolumeStats>, String> {
        let told = |error: kube::Error| with_causes(&error);
        let address = address(node).ok_or_else(|| "it tells no InternalIP".to_owned())?;
        let mut config = self.config.clone();
        config.cluster_url = format!("https://{address}").parse().map_err(|_| format!("{address} is no address"))?;
        let line = cluster::connect("(kubelet)", config, Answers::Bounded, &self.dial, &self.metrics).map_err(told)?;
        let request = Request::new("/stats").get("summary", &GetParams::default());
        let mut request = request.map_err(|error| error.to_string())?;
        request.extensions_mut().insert(Reading::InPieces);
        let mut page = pin!(line.probe.request_stream(request).await.map_err(told)?);
        let mut summary = Summary::of(copies);
        loop {
            let piece = page.fill_buf().await.map_err(|error| with_causes(&error))?;
            if piece.is_empty() {
                return summary.end();
            }
            let read = piece.len();
            summary.feed(piece)?;
            page.consume_unpin(read);
        }
    }
}

fn address(node: &Node) -> Option<SocketAddr> {
    let status = node.status.as_ref()?;
    let mut addresses = status.addresses.iter().flatten().filter(|one| one.type_ == "InternalIP");
    let address: IpAddr = addresses.find_map(|one| one.address.parse().ok())?;
    let told = status.daemon_endpoints.as_ref().and_then(|endpoints| endpoints.kubelet_endpoint.as_ref());
    let port = told.and_then(|endpoint| u16::try_from(endpoint.port).ok()).filter(|port| *port != 0);
    Some(SocketAddr::new(address, port.unwrap_or(PORT)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn kubelet_is_where_its_node_says() {
        let node = |status: &Value| -> Node {
            serde_json::from_value(json!({"metadata": {"name": "n"}, "status": status})).unwrap()
        };
        let named = json!([{"type": "Hostname", "address": "n"}, {"type": "ExternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]);
        let port = |port: i32| json!({"kubeletEndpoint": {"Port": port}});
        for (status, expected) in [
            (json!({"addresses": named, "daemonEndpoints": port(10255)}), Some("10.0.0.1:10255")),
            (json!({"addresses": named, "daemonEndpoints": port(0)}), Some("10.0.0.1:10250")),
            (json!({"addresses": [{"type": "InternalIP", "address": "fd00::1"}]}), Some("[fd00::1]:10250")),
            (json!({"addresses": [{"type": "InternalIP", "address": "evil.example/"}]}), None),
            (json!({}), None),
        ] {
            assert_eq!(address(&node(&status)).map(|there| there.to_string()).as_deref(), expected, "{status}");
        }
    }
}
