//! The driver itself, whatever process, socket and flags are around it: the host, the members, and the service that
//! answers from them.

use std::{path::PathBuf, sync::Arc};

use kube::Config;
use tokio::{
    sync::{Semaphore, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use super::clusters::Clusters;
use crate::args::KosmosClusters;
use cluster::{
    Dial,
    lease::{self, Lease},
    metrics::Metrics,
};
use csi::{controller::Controller, inflight::InFlight};
use driver::{moving::Movers, provision::Provisioner, reconcile::Reconciler};
use host::{Host, shared_handles::SharedHandles, volumes::HostVolumes};
use member::{Scope, source::Account};

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
    /// Of the movers' pods; with it, volumes are moved to other members.
    pub mover_image: Option<String>,
    pub moves_at_once: u16,
    pub metrics: Metrics,
}

/// What is told of a driver at work.
#[derive(Debug)]
pub struct Started {
    pub controller: Controller,
    /// True once every source of members has been read.
    pub listed: watch::Receiver<bool>,
    /// What there is to show people.
    pub shown: ui::Sources,
    /// To be given back once its tasks have ended.
    pub lease: Arc<Lease>,
}

impl Driver {
    /// Waits for the host, and starts the work behind the service. None: a stop was asked for before.
    pub async fn start(
        self,
        tasks: &mut JoinSet<anyhow::Result<()>>,
        stop: &CancellationToken,
    ) -> anyhow::Result<Option<Started>> {
        let clusters = Clusters {
            host: self.host,
            dial: self.dial,
            members_dir: self.members_dir,
            members_namespace: self.members_namespace,
            kosmos_clusters: self.kosmos_clusters,
            metrics: self.metrics.clone(),
        };
        let Some(host) = clusters.connect(stop).await? else {
            return Ok(None);
        };
        let lease = Arc::new(Lease::new(host.client.clone(), &host.namespace, lease::CONTROLLER));
        let (members, all_listed) = clusters.follow(&host, Account::Driver, Scope::Leaves, &lease.restored(), tasks);
        let movers = self.mover_image.map(|image| Movers {
            host: host.clone(),
            members: members.clone(),
            image,
            leaf_namespace: self.leaf_namespace.clone(),
            known: Arc::default(),
            slots: Arc::new(Semaphore::new(self.moves_at_once.into())),
            obstacles: Arc::default(),
        });
        if let Some(movers) = &movers {
            let known = Arc::clone(&movers.known);
            self.metrics.read_moves_from(move || known.now());
        }
        let known_moves = movers.as_ref().map(|movers| Arc::clone(&movers.known));
        let volumes = follow_volumes(&host, &lease, tasks);
        let reconciler = Reconciler::new(host.clone(), members.clone(), Arc::clone(&volumes), movers);
        let shared_handles = Arc::new(SharedHandles::new(Arc::clone(&volumes), lease.leads()));
        let shown = ui::Sources {
            replica: std::env::var("HOSTNAME").unwrap_or_else(|_| "this process".to_owned()),
            host: host.id.clone(),
            members: members.clone(),
            volumes,
            leads: lease.leads(),
            waiting: self.metrics.waiting(),
            moves: known_moves,
            lately: host.lately.clone(),
        };
        let leading = Arc::clone(&lease);
        tasks.spawn(async move {
            leading.lead(|| Box::pin(reconciler.clone().run())).await;
            Ok(())
        });
        let leaf_namespace = self.leaf_namespace;
        let provisioner = Provisioner { host, members, leaf_namespace, shared_handles }.into();
        let controller = Controller { provisioner, in_flight: InFlight::default(), waiting: self.metrics.waiting() };
        Ok(Some(Started { controller, listed: all_listed, shown, lease }))
    }
}

/// Every replica follows the host's volumes: whoever takes over has them.
fn follow_volumes(host: &Host, lease: &Lease, tasks: &mut JoinSet<anyhow::Result<()>>) -> Arc<HostVolumes> {
    let volumes = Arc::<HostVolumes>::default();
    let (host, followed) = (host.clone(), Arc::clone(&volumes));
    let (restored, leads, recent) = (lease.restored(), lease.leads(), lease.recent());
    tasks.spawn(async move {
        host::volumes::keep(&host, &followed, restored, leads, &recent).await;
        Ok(())
    });
    volumes
}
