//! The host and its members, as every role that works on both finds them.

use std::path::{Path, PathBuf};

use backon::BackoffBuilder;
use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig, NamedCluster},
};
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use super::{Misuse, kubeconfig};
use crate::args::KosmosClusters;
use cluster::{
    Answers, Dial,
    metrics::{HOST, Metrics},
    with_causes,
};
use host::Host;
use member::{
    Registry, Scope,
    registry::RegistryLoop,
    source::{Account, MemberDefinitions, MemberUpdates, clusters, directory, secrets},
};

/// Where they are.
#[derive(Debug)]
pub struct Clusters {
    pub host: Config,
    pub dial: Dial,
    pub members_dir: Option<PathBuf>,
    pub members_namespace: String,
    pub kosmos_clusters: KosmosClusters,
    pub metrics: Metrics,
}

impl Clusters {
    /// Tries until the host answers; nothing can be decided without it. None: a stop was asked for before.
    pub async fn connect(&self, stop: &CancellationToken) -> anyhow::Result<Option<Host>> {
        let line = cluster::connect(HOST, self.host.clone(), Answers::OfAnySize, &self.dial, &self.metrics)
            .map_err(|error| Misuse(format!("the host's kubeconfig cannot be used: {}", with_causes(&error))))?;
        let mut pauses = cluster::pauses().build();
        loop {
            let connecting = Host::connect(line.probe.clone(), self.members_namespace.clone());
            match stop.run_until_cancelled(connecting).await {
                None => return Ok(None),
                Some(Ok(host)) => {
                    if *host.cluster != *host.id.0 {
                        tracing::info!(host = %host.id, cluster = %host.cluster, "this cluster has taken over the volumes of a former host, and is that host to its members");
                    }
                    return Ok(Some(host));
                }
                Some(Err(error)) => tracing::warn!(%error, "the host does not answer yet"),
            }
            let pause = tokio::time::sleep(pauses.next().unwrap_or(cluster::LONGEST_PAUSE));
            if stop.run_until_cancelled(pause).await.is_none() {
                return Ok(None);
            }
        }
    }

    /// Follows the members, with the credentials of one account; also whether every source of them has been read. `restored` changes
    /// when the host was restored from a backup.
    pub fn follow(
        self,
        host: &Host,
        account: Account,
        tracked: Scope,
        restored: &watch::Receiver<()>,
        tasks: &mut JoinSet<anyhow::Result<()>>,
    ) -> (Registry, watch::Receiver<bool>) {
        let (registry_loop, members) = RegistryLoop::new(host.clone(), self.dial, tracked, self.metrics);
        let sources = start_sources(self.members_dir, self.kosmos_clusters, account, host, restored, tasks);
        let (listed, all_listed) = watch::channel(false);
        tasks.spawn(async move {
            registry_loop.run(sources, listed).await;
            Ok(())
        });
        (members, all_listed)
    }
}

fn start_sources(
    folder: Option<PathBuf>,
    kosmos_clusters: KosmosClusters,
    account: Account,
    host: &Host,
    restored: &watch::Receiver<()>,
    tasks: &mut JoinSet<anyhow::Result<()>>,
) -> Vec<MemberUpdates> {
    let mut news = Vec::new();
    if let Some(folder) = folder {
        news.push(start_source(tasks, |sender| directory::follow(folder, account, sender)));
    }
    let (client, namespace) = (host.client.clone(), host.namespace.clone());
    news.push(start_source(tasks, |sender| secrets::follow(client, namespace, restored.clone(), sender)));
    if kosmos_clusters != KosmosClusters::Off {
        let (client, required) = (host.client.clone(), kosmos_clusters == KosmosClusters::On);
        news.push(start_source(tasks, |sender| clusters::follow(client, required, restored.clone(), sender)));
    }
    news
}

fn start_source<F>(
    tasks: &mut JoinSet<anyhow::Result<()>>,
    follow: impl FnOnce(watch::Sender<Option<MemberDefinitions>>) -> F,
) -> MemberUpdates
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

pub(super) fn check_folder(folder: Option<&Path>) -> Result<(), Misuse> {
    match folder {
        Some(folder) if !folder.is_dir() => {
            Err(Misuse(format!("--members-dir {} is not a folder: make it, or leave the flag out", folder.display())))
        }
        _ => Ok(()),
    }
}

pub async fn host_config(kubeconfig: Option<&Path>) -> anyhow::Result<Config> {
    let Some(path) = kubeconfig else {
        return Config::incluster().map_err(|error| {
            Misuse(format!("no --kubeconfig given, and this is not a pod with a service account: {error}")).into()
        });
    };
    let misuse = |error| Misuse(format!("--kubeconfig {}: {}", path.display(), kubeconfig::refusal(&error)));
    let kubeconfig = Kubeconfig::read_from(path).map_err(misuse)?;
    let names_proxy = |named: &NamedCluster| named.cluster.as_ref().is_some_and(|cluster| cluster.proxy_url.is_some());
    let proxied = kubeconfig.clusters.iter().any(names_proxy);
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(misuse)?;
    if !proxied {
        config.proxy_url = None; // never one from the environment
    }
    Ok(config)
}
