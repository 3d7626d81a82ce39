//! The driver itself, whatever process, socket and flags are around it: the host, the members, and the service that
//! answers from them.

use std::{path::PathBuf, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use kube::Config;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::Misuse;
use crate::{
    args::KosmosClusters,
    cluster::{self, Dial, with_causes},
    csi::{controller::Controller, inflight::InFlight},
    follow::Follower,
    host::Host,
    lease::Lease,
    member::{
        registry::Keeper,
        source::{Definitions, News, clusters, directory, secrets},
    },
    metrics::Metrics,
    provision::Provisioner,
};

/// The host as it is called in messages and metrics.
const HOST: &str = "(host)";

/// What a driver is made from.
#[derive(Debug)]
pub struct Driver {
    /// Where the host is.
    pub host: Config,
    pub dial: Dial,
    pub members_dir: Option<PathBuf>,
    pub members_namespace: String,
    pub kosmos_clusters: KosmosClusters,
    pub leaf_namespace: String,
    pub metrics: Metrics,
}

/// What is told of a driver at work.
#[derive(Debug)]
pub struct Started {
    pub controller: Controller,
    /// True once every source of members has been read.
    pub listed: watch::Receiver<bool>,
}

impl Driver {
    /// Waits for the host, and starts the work behind the service. None: a stop was asked for before.
    pub async fn start(
        self,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Started>> {
        let Some(host) = self.connect(stop).await? else {
            return Ok(None);
        };
        let (keeper, members) = Keeper::new(host.clone(), self.dial, self.metrics);
        let sources = start_sources(self.members_dir, self.kosmos_clusters, &host, tasks);
        let (listed, all_listed) = watch::channel(false);
        tasks.spawn(async move {
            keeper.run(sources, listed).await;
            Ok(())
        });
        let lease = Lease::new(host.client.clone(), &host.namespace);
        let follower = Follower::new(host.clone(), members.clone());
        tasks.spawn(async move {
            lease.lead(|| follower.clone().run()).await;
            Ok(())
        });
        let provisioner = Provisioner { host, members, leaf_namespace: self.leaf_namespace }.into();
        let controller = Controller { provisioner, in_flight: InFlight::default() };
        Ok(Some(Started { controller, listed: all_listed }))
    }

    /// Tries until the host answers; nothing can be decided without it.
    async fn connect(&self, stop: &CancellationToken) -> anyhow::Result<Option<Host>> {
        let line = cluster::connect(HOST, self.host.clone(), &self.dial, &self.metrics)
            .map_err(|error| Misuse(format!("the host's kubeconfig cannot be used: {}", with_causes(&error))))?;
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(300))
            .with_max_delay(Duration::from_secs(5))
            .with_jitter()
            .without_max_times()
            .build();
        loop {
            let connecting = Host::connect(line.probe.clone(), self.members_namespace.clone());
            match stop.run_until_cancelled(connecting).await {
                None => return Ok(None),
                Some(Ok(host)) => return Ok(Some(host)),
                Some(Err(error)) => tracing::warn!(%error, "the host does not answer yet"),
            }
            let pause = tokio::time::sleep(pauses.next().unwrap_or(Duration::from_secs(5)));
            if stop.run_until_cancelled(pause).await.is_none() {
                return Ok(None);
            }
        }
    }
}

fn start_sources(
    folder: Option<PathBuf>,
    kosmos_clusters: KosmosClusters,
    host: &Host,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> Vec<News> {
    let mut news = Vec::new();
    if let Some(folder) = folder {
        news.push(start_source(tasks, |sender| directory::follow(folder, sender)));
    }
    let (client, namespace) = (host.client.clone(), host.namespace.clone());
    news.push(start_source(tasks, |sender| secrets::follow(client, namespace, sender)));
    if kosmos_clusters != KosmosClusters::Off {
        let (client, required) = (host.client.clone(), kosmos_clusters == KosmosClusters::On);
        news.push(start_source(tasks, |sender| clusters::follow(client, required, sender)));
    }
    news
}

fn start_source<F>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    follow: impl FnOnce(watch::Sender<Option<Definitions>>) -> F,
) -> News
where
    F: Future<Output = ()> + Send + 'static,
{
    let (sender, receiver) = watch::channel(None);
    let following = follow(sender);
    tasks.spawn(async move {
        following.await;
        Ok(())
    });
    receiver
}
