//! A way to the port at which a mover listens, on the loopback of its pod alone: by a port-forward of its member's API server.

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, api::Portforwarder};
use tokio::io::DuplexStream;

use super::ends::Mover;
use crate::MemberClient;
use domain::{
    error::{Error, Result},
    volume::moving::YARD,
};

/// Where a mover listens.
const PORT: u16 = 7740;

/// It ends with this.
pub struct ToMover {
    pub stream: DuplexStream,
    forwarder: Portforwarder,
}

impl Drop for ToMover {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl std::fmt::Debug for ToMover {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ToMover").finish_non_exhaustive()
    }
}

/// By a client for long conversations.
pub async fn reach(leaf: &MemberClient, client: Client, mover: &Mover) -> Result<ToMover> {
    let pods = Api::<Pod>::namespaced(client, YARD);
    let opened = pods.portforward(&mover.name, &[PORT]).await;
    let mut forwarder = opened.map_err(|error| leaf.outcome(&format!("forward to pod {}", mover.name), &error))?;
    let stream = forwarder.take_stream(PORT);
    let unopened = || Error::InProgress(format!("member {}: pod {} was not reached", leaf.member, mover.name));
    Ok(ToMover { stream: stream.ok_or_else(unopened)?, forwarder })
}
