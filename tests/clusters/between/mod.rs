//! A proxy with TLS between who asks and an API server, which breaks things by request. What it does to which requests is said
//! by rules (`rule.rs`), which a test gives it and takes away while it serves, and which count what they have done.
//!
//! It knows no fleet: whoever starts it says where it listens and where it leads.

mod answer;
mod body;
mod certificates;
mod events;
mod proxy;
mod rule;
mod upgraded;

use std::{net::TcpListener, path::Path, sync::Arc};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

#[allow(unused_imports, reason = "each test uses a part of it")]
pub use self::{
    answer::{Answer, GATEWAY_TIMEOUT, INTERNAL_ERROR, NO_SUCH_PAGE, UNAUTHORIZED, too_many_requests},
    body::{Delivery, Pieces},
    events::{Events, Fate, Then, Watched},
    proxy::{Upstream, Ways, readable},
    rule::{Action, Asked, Count, Decision, Rule, Rules, Which},
};
use self::{certificates::Certificates, proxy::Proxy};

/// Serves until it is dropped.
pub struct Between {
    port: u16,
    proxy: Arc<Proxy>,
    serving: JoinHandle<()>,
}

impl Between {
    /// The folder is for its keys.
    pub fn start(listener: TcpListener, ways: Ways, folder: &Path) -> Result<Self> {
        let certificates = Certificates::create(folder)?;
        listener.set_nonblocking(true).context("listen without blocking")?;
        let port = listener.local_addr().context("learn the proxy's port")?.port();
        let proxy = Arc::new(Proxy::new(ways, certificates));
        let listener = tokio::net::TcpListener::from_std(listener).context("listen")?;
        let serving = tokio::spawn(proxy::serve(Arc::clone(&proxy), listener));
        Ok(Self { port, proxy, serving })
    }

    /// The same user of the same cluster, by way of the proxy.
    pub fn kubeconfig(&self, direct: &str) -> Result<String> {
        let mut kubeconfig: Value = serde_json::from_str(direct).context("read a kubeconfig")?;
        let cluster = &mut kubeconfig["clusters"][0]["cluster"];
        cluster["server"] = json!(format!("https://127.0.0.1:{}", self.port));
        cluster["certificate-authority-data"] = json!(ByteString(self.proxy.authority().into_bytes()));
        Ok(kubeconfig.to_string())
    }

    /// From now on these rules hold and no others. What they say of connections and watches is met by those that are there
    /// already too: they are cut, as they are once such rules hold no more.
    pub fn play(&self, rules: &[Rule]) -> Vec<Count> {
        self.proxy.play(rules)
    }

    /// Certificate and authority are others from now on, also to who is connected: all connections are cut. Who has a kubeconfig of before
    /// does not know them.
    pub fn replace_certificate(&self) -> Result<()> {
        self.proxy.replace_certificate()
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many requests have come.
    pub fn asked(&self) -> usize {
        self.proxy.asked.get()
    }

    /// Waits until no write is held any more.
    pub async fn held_are_delivered(&self) {
        self.proxy.held_are_delivered().await;
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
