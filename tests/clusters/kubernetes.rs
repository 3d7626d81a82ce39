//! Small helpers around waiting and clients.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;

const PAUSE: Duration = Duration::from_millis(100);
const HEAD_OF_ANSWER: Duration = Duration::from_secs(15);

/// Asks again and again until there is a value. An error counts as "not yet": it is told when the time is up.
pub async fn wait_for<T, F, Condition>(what: &str, deadline: Duration, mut condition: Condition) -> Result<T>
where
    F: Future<Output = Result<Option<T>>>,
    Condition: FnMut() -> F,
{
    let end = Instant::now() + deadline;
    loop {
        let problem = match condition().await {
            Ok(Some(value)) => return Ok(value),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        if Instant::now() >= end {
            let waited = format!("waited {} s until {what}", deadline.as_secs_f32());
            return match problem {
                Some(error) => Err(error.context(waited)),
                None => bail!(waited),
            };
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// A client that fails instead of trying again, and does not wait for ever for a silent server. Watches stay open.
pub async fn client(kubeconfig: &Path) -> Result<Client> {
    let read = Kubeconfig::read_from(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let mut config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let builder = ClientBuilder::try_from(config).context("make a client")?;
    Ok(builder.with_layer(&TimeoutLayer::new(HEAD_OF_ANSWER)).build())
}
