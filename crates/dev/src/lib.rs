//! The dev role: a host and members simulated in this process, behind real HTTP, and between them the real controller
//! on its socket and the real agent behind the virtual nodes. What is played around them is in `host` and `movers`.
//!
//! Never a production mode: there are no credentials, no TLS and no rights, and volumes are plain folders.
//!
//! Its page: `docs/design/simulator.md`.

mod agent;
mod folder;
mod host;
mod leaf;
mod movers;
mod node;
mod objects;
mod report;

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::SocketAddr,
    num::NonZeroU16,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::Context;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;

use commands::{
    args::{Common, Controller, KosmosClusters, Members, Process},
    run::{Misuse, Signals, bounded, controller},
    telemetry::Traces,
};
use csi::{client::Client, server::Socket};
use simulate::{Cluster, storage::Settings};

use self::{folder::Folder, movers::Yard};

/// The host as it is called here.
const HOST: &str = "host";
/// The first member's number, as in the documents this driver began with.
const FIRST: u8 = 38;

/// As a controller has it where nobody says otherwise.
const MOVES_AT_ONCE: NonZeroU16 = NonZeroU16::MIN.saturating_add(1);

/// The command line of the role.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where kubeconfigs, the socket, the volumes and all that the clusters hold are kept
    ///
    /// Started again on it, everything is still there. Its path must be short: those of the sockets in it may have 107
    /// bytes at most.
    #[arg(long, env = "KOSMOS_CSI_DIR", default_value_os_t = default_folder(), value_name = "FOLDER")]
    pub dir: PathBuf,

    /// How many members: cluster38, cluster39 and so on
    #[arg(long, env = "KOSMOS_CSI_MEMBERS", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=20), value_name = "COUNT")]
    pub members: u8,

    #[command(flatten)]
    pub process: Process,
}

/// Below the system's folder for what is temporary: its path is short, and it belongs to no checkout.
fn default_folder() -> PathBuf {
    std::env::temp_dir().join("kosmos-csi-dev")
}

pub async fn run(arguments: Arguments, traces: Traces) -> anyhow::Result<()> {
    let signals = Signals::new()?;
    let folder = Folder::open(&arguments.dir)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), dir = %folder.path().display(), "kosmos-csi dev starts");
    let socket = Socket::bind(&folder.socket()).await.map_err(Misuse)?;
    let stop = CancellationToken::new();
    let grace = arguments.process.shutdown_grace;
    bounded(signals, stop.clone(), grace, traces, play(arguments, &folder, socket, stop)).await?;
    tracing::info!("kosmos-csi dev has stopped");
    Ok(())
}

async fn play(arguments: Arguments, folder: &Folder, socket: Socket, stop: CancellationToken) -> anyhow::Result<()> {
    let members: Vec<String> =
        (0..arguments.members).map(|number| format!("cluster{}", u16::from(FIRST) + u16::from(number))).collect();
    let mut tasks = JoinSet::new();
    let mut started = Started::default();
    for (number, name) in [HOST.to_owned()].into_iter().chain(members.iter().cloned()).enumerate() {
        started.start(folder, name, number, &mut tasks).await?;
    }
    let host = started.clusters.remove(HOST).context("the host was not started")?;
    objects::prepare(&host, &members).context("the host's first objects")?;
    folder.link_members(&members)?;
    folder.write_environment()?;
    let driver = Client::new(&folder.socket()).map_err(Misuse)?;

    let yards = started.clusters.iter();
    let yards = yards.map(|(name, member)| Yard { member: member.clone(), volumes: folder.volumes(name) });
    tasks.spawn(movers::run(yards.collect()));
    let ready = watch::Sender::new(false);
    let ui = folder.listen_for_people().await.context("a port for the page")?;
    let page = ui.local_addr()?;
    let report = report::text(folder, &started.addresses, page, &folder.asleep(&members)?);
    let driving = controller::serve(flags(arguments.process, folder), socket, Some(ui), ready.clone(), stop.clone());
    let driving = Box::pin(driving);
    let told = tell(ready.subscribe(), agent::all_take_pods(host.clone(), members.clone()), &report);
    let playing = host::run(host, driver);
    let keeping = Box::pin(agent::run(folder, stop.clone()));
    let sockets = folder.node().bind().await?;
    let mounting = node::run(folder.node(), sockets, members.into_iter().next().unwrap_or_default(), stop.clone());
    let mounting = Box::pin(mounting);
    tokio::pin!(driving);
    tokio::select! {
        ended = &mut driving => return ended,
        ended = playing => ended?,
        ended = mounting => ended?,
        ended = keeping => ended?,
        Some(ended) = tasks.join_next() => anyhow::bail!("a simulated cluster has ended: {ended:?}"),
        never = told => match never {},
        () = stop.cancelled() => {}
    }
    // Nobody calls any more, and the clusters still answer what the driver asks while it ends.
    driving.await
}

/// The clusters as they are started.
#[derive(Default)]
struct Started {
    clusters: BTreeMap<String, Cluster>,
    addresses: Vec<(String, SocketAddr)>,
}

impl Started {
    async fn start(
        &mut self,
        folder: &Folder,
        name: String,
        number: usize,
        tasks: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        let state = folder.state(&name);
        let cluster =
            simulate::persist::kept(&name, seed(number), &state).with_context(|| state.display().to_string())?;
        let (listener, address) = folder.listen(&name).await.with_context(|| format!("a port for {name}"))?;
        tasks.spawn(simulate::controllers::run(cluster.clone()));
        if name != HOST {
            let volumes = folder.volumes(&name);
            std::fs::create_dir_all(&volumes).with_context(|| volumes.display().to_string())?;
            let mut settings = Settings { folder: Some(volumes), ..Settings::default() };
            // For classes of the host that name none of a member's.
            if let Some(usual) = settings.classes.iter_mut().find(|class| class.name == objects::CLASS) {
                usual.is_default = true;
            }
            objects::prepare_member(&cluster, &settings.provisioner).with_context(|| format!("the kinds of {name}"))?;
            tasks.spawn(simulate::storage::run(cluster.clone(), settings));
        }
        tasks.spawn(simulate::serve(cluster.clone(), listener));
        self.addresses.push((name.clone(), address));
        self.clusters.insert(name, cluster);
        Ok(())
    }
}

/// Another one at each start and for each cluster: the same seed would draw the same UIDs again.
fn seed(number: usize) -> u64 {
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_nanos();
    u64::try_from(time & u128::from(u64::MAX)).unwrap_or_default() ^ (u64::try_from(number).unwrap_or_default() << 48)
}

/// As if the controller had been started with these.
fn flags(process: Process, folder: &Folder) -> Controller {
    Controller {
        common: Common { endpoint: Some(folder.socket()), kubeconfig: Some(folder.kubeconfig(HOST)), process },
        members: Members { members_dir: Some(folder.members()), kosmos_clusters: KosmosClusters::Off },
        members_namespace: "kosmos-csi".to_owned(),
        leaf_namespace: "kosmos-csi".to_owned(),
        mover_image: Some("kosmos-csi-mover".to_owned()),
        moves_at_once: MOVES_AT_ONCE,
        ui_address: None,
    }
}

/// Before the person is told in any case: a node that somebody else has made may never take pods.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tells the person, once, that everything is up.
async fn tell(
    mut ready: watch::Receiver<bool>,
    nodes: impl Future<Output = ()>,
    report: &str,
) -> std::convert::Infallible {
    if ready.wait_for(|ready| *ready).await.is_ok() {
        tokio::time::timeout(PATIENCE, nodes).await.ok();
        // Who has closed the other end does not want to know.
        let _ = writeln!(std::io::stdout(), "{report}\nready");
    }
    std::future::pending().await
}
