//! A fleet, as tests hold it: `host` and members `cluster38`, `cluster39`, …, in namespaces of its own. Gone when dropped.
//!
//! Several tests of one file can share a fleet in a static `tokio::sync::OnceCell`: statics are not dropped, and the
//! guardian sees the process end.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use futures::future::try_join_all;
use tokio::sync::Mutex;

use super::cluster::Cluster;
use super::control_plane::{self, Place};
use super::guardian::{Guardian, Owner};
use super::images::images;
use super::logs;
use super::namespaces;
use super::node;
use super::process::Process;
use super::protocol::Spawn;
use super::tools::{Tools, tools};

const FIRST_MEMBER: usize = 38;

/// A fleet that comes up takes all processors: one at a time is sooner ready than several.
static COMES_UP: Mutex<()> = Mutex::const_new(());

#[derive(Debug, Clone, Copy)]
pub struct Spec {
    pub members: usize,
    /// Real nodes, one per cluster, where pods run.
    pub nodes: bool,
}

/// Dropped in this order: the processes, then whatever is left of the fleet.
#[derive(Debug)]
pub struct Fleet {
    host: Cluster,
    members: Vec<Cluster>,
    guardian: Guardian,
    tools: Arc<Tools>,
    _owner: Owner,
}

impl Fleet {
    pub async fn start(spec: Spec) -> Result<Self> {
        Self::start_named(spec, None, |_| ()).await
    }

    /// Starts a fleet, with a name if a person is to find it again, and tells how far it is.
    pub async fn start_named(spec: Spec, name: Option<&str>, progress: impl Fn(&str)) -> Result<Self> {
        let _one_at_a_time = COMES_UP.lock().await;
        let tools = Arc::new(tools()?);
        let (guardian, owner) = Guardian::start(name)?;
        let prepare = |(place, name): (u16, &str)| Cluster::prepare(name, Place(place), &guardian, &tools);
        let members = (0..spec.members).map(|member| format!("cluster{}", FIRST_MEMBER + member));
        let members = (2..).zip(members).map(|(place, name)| prepare((place, &name)));
        let members = members.collect::<Result<Vec<_>>>()?;
        let host = prepare((1, "host"))?;
        let fleet = Self { host, members, guardian, tools, _owner: owner };
        if let Err(error) = fleet.run(spec.nodes, progress).await {
            let logs = logs::keep(&fleet, "start");
            return Err(error.context(format!("start a fleet (logs: {})", logs?.display())));
        }
        Ok(fleet)
    }

    async fn run(&self, nodes: bool, progress: impl Fn(&str)) -> Result<()> {
        let images = if nodes { images(&self.tools)? } else { Vec::new() };
        let begin = Instant::now();
        let tell = |what: String| {
            let seconds = begin.elapsed().as_secs_f32();
            progress(&format!("{what} after {seconds:.1} s"));
        };
        try_join_all(self.clusters().map(async |cluster| {
            control_plane::start(cluster).await?;
            tell(format!("{}: control plane ready", cluster.name()));
            if nodes {
                node::start(cluster, &images).await?;
                tell(format!("{}: node {} ready", cluster.name(), cluster.node_name()));
            }
            anyhow::Ok(())
        }))
        .await?;
        Ok(())
    }

    pub fn host(&self) -> &Cluster {
        &self.host
    }

    pub fn members(&self) -> &[Cluster] {
        &self.members
    }

    /// # Panics
    /// When the fleet has no such member.
    pub fn member(&self, name: &str) -> &Cluster {
        let found = self.members.iter().find(|member| member.name() == name);
        found.unwrap_or_else(|| panic!("the fleet has no member {name}"))
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        std::iter::once(&self.host).chain(&self.members)
    }

    /// Where everything of the fleet is. Sockets in it are reached from both sides.
    pub fn folder(&self) -> &Path {
        &self.guardian.started.folder
    }

    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Starts a process in the fleet's namespaces. Its log is `<name>.log` in the fleet's folder.
    pub fn spawn(
        &self,
        name: &str,
        program: impl AsRef<Path>,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Process> {
        let spawn = Spawn {
            name: name.to_owned(),
            program: program.as_ref().to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: environment.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            log: self.folder().join(format!("{name}.log")),
            namespaces_of: self.guardian.started.init,
        };
        Process::start(&self.guardian, spawn)
    }

    /// Runs a command in the fleet's namespaces to its end and returns what it prints.
    pub async fn exec(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.guardian.exec(self.guardian.started.init, program, arguments).await
    }

    /// A port on this machine's loopback that leads to an address in the fleet.
    pub fn forward(&self, address: &str) -> Result<u16> {
        self.guardian.forward(address.parse().context("read the address")?)
    }

    /// A socket of this process in the fleet's network.
    pub fn listen(&self, address: &str) -> Result<TcpListener> {
        let (address, init) = (address.parse::<SocketAddr>().context("read the address")?, self.guardian.started.init);
        let inside = thread::spawn(move || {
            namespaces::enter_network(init)?;
            TcpListener::bind(address).with_context(|| format!("listen on {address} in the fleet"))
        });
        inside.join().map_err(|_| anyhow!("the thread in the fleet's network has failed"))?
    }

    /// Ends it before it is dropped, and waits until nothing of it is left.
    pub fn end(&self) -> Result<()> {
        self.guardian.end().map(drop)
    }

    /// Lets the fleet live on after this process.
    pub fn detach(self) -> Result<()> {
        self.guardian.detach()?;
        std::mem::forget(self); // dropping it would kill its processes
        Ok(())
    }
}
