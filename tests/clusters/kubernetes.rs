//! How tests speak to an API server.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;

const HEAD_OF_ANSWER: Duration = Duration::from_secs(15);

/// A client that fails instead of trying again, and does not wait for ever for a silent server. Watches stay open.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let builder = ClientBuilder::try_from(config).context("make a client")?;
    Ok(builder.with_layer(&TimeoutLayer::new(HEAD_OF_ANSWER)).build())
}
