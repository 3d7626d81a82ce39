//! The controller and its sidecars in the host, as processes that can be killed.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use tokio::sync::Mutex;

use crate::{
    clusters::{Fleet, Process, wait_for},
    rig::{DRIVER_NAMESPACE, PATIENCE},
};

const ADMIN: &str = "127.0.0.1:19808";
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const GROUPS: &str = "--feature-gates=CSIVolumeGroupSnapshot=true";

pub struct Driver {
    pub socket: PathBuf,
    kubeconfig: PathBuf,
    admin: u16,
    running: Mutex<Option<Running>>,
    /// By which controller and sidecars reach the host, if not straight.
    by: Mutex<Option<[PathBuf; 2]>>,
    launch: Mutex<Launch>,
}

/// What a program of ours is started with besides what it always has.
#[derive(Clone, Debug, Default)]
pub struct Launch {
    pub flags: Vec<String>,
    pub environment: Vec<(&'static str, String)>,
    /// In place of the one that was built with these tests.
    pub program: Option<PathBuf>,
}

impl Launch {
    pub fn spawn(&self, fleet: &Fleet, name: &str, usual: &[&str]) -> Result<Process> {
        let program = self.program.as_deref().unwrap_or_else(|| Path::new(PROGRAM));
        let arguments: Vec<&str> = usual.iter().copied().chain(self.flags.iter().map(String::as_str)).collect();
        let more = self.environment.iter().map(|(key, value)| (*key, value.as_str()));
        let environment: Vec<(&str, &str)> = [("RUST_LOG", "warn,kosmos_csi=debug")].into_iter().chain(more).collect();
        fleet.spawn(name, program, &arguments, &environment)
    }
}

struct Running {
    controller: Process,
    /// They end when the controller does.
    sidecars: [Process; 5],
}

impl Running {
    fn is_well(&self) -> Result<bool> {
        let all = std::iter::once(&self.controller).chain(&self.sidecars);
        let running = all.map(Process::is_running).collect::<Result<Vec<bool>>>()?;
        Ok(running.into_iter().all(|running| running))
    }

    /// SIGKILL, and its end: the next one has its socket and its port.
    async fn end(self) -> Result<()> {
        self.controller.kill()?;
        self.controller.wait(Duration::from_secs(10)).await.map(drop)
    }

    fn process(&mut self, name: &str) -> Result<&mut Process> {
        let mut all = std::iter::once(&mut self.controller).chain(&mut self.sidecars);
        all.find(|process| process.name() == name).with_context(|| format!("the driver has no process {name}"))
    }
}

impl Driver {
    pub async fn new(fleet: &Fleet) -> Result<Self> {
        let kubeconfig = fleet.folder().join("controller.kubeconfig");
        let text = fleet.host().kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi-controller").await?;
        std::fs::write(&kubeconfig, text).context("write the controller's kubeconfig")?;
        let admin = fleet.forward(ADMIN)?;
        let (socket, by, launch) = (fleet.folder().join("csi.sock"), Mutex::default(), Mutex::default());
        Ok(Self { socket, kubeconfig, admin, running: Mutex::default(), by, launch })
    }

    /// From its next start on the controller has this.
    pub async fn launch_with(&self, launch: Launch) {
        *self.launch.lock().await = launch;
    }

    /// What it has since then.
    pub async fn launch(&self) -> Launch {
        self.launch.lock().await.clone()
    }

    /// From their next start on controller and sidecars reach the host by these kubeconfigs; without any, straight.
    pub async fn reach_host_by(&self, kubeconfigs: Option<[String; 2]>) -> Result<()> {
        let names = ["controller-by.kubeconfig", "sidecars-by.kubeconfig"];
        let files = names.map(|name| self.kubeconfig.with_file_name(name));
        for (file, text) in files.iter().zip(kubeconfigs.iter().flatten()) {
            std::fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
        }
        *self.by.lock().await = kubeconfigs.map(|_| files);
        Ok(())
    }

    /// All run and answer.
    pub async fn ensure(&self, fleet: &Fleet) -> Result<()> {
        let mut running = self.running.lock().await;
        if running.as_ref().map(Running::is_well).transpose()? == Some(true) {
            return Ok(());
        }
        if let Some(former) = running.take() {
            former.end().await?;
        }
        let by = self.by.lock().await.clone();
        let [of_controller, of_sidecars] = by.as_ref().map_or([None, None], |files| files.each_ref().map(Some));
        let controller = self.start_controller(fleet, of_controller.unwrap_or(&self.kubeconfig)).await?;
        self.ready().await?;
        let sidecars = self.start_sidecars(fleet, of_sidecars.map(PathBuf::as_path))?;
        *running = Some(Running { controller, sidecars });
        Ok(())
    }

    async fn start_controller(&self, fleet: &Fleet, kubeconfig: &Path) -> Result<Process> {
        let endpoint = format!("--endpoint=unix://{}", self.socket.display());
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let admin = format!("--admin-address={ADMIN}");
        let namespace = format!("--members-namespace={DRIVER_NAMESPACE}");
        let arguments = ["controller", &endpoint, &kubeconfig, &admin, &namespace, "--shutdown-grace=5s"];
        self.launch.lock().await.spawn(fleet, "controller", &arguments)
    }

    /// They have a kubeconfig anyhow, and of two flags the last one counts.
    fn start_sidecars(&self, fleet: &Fleet, kubeconfig: Option<&Path>) -> Result<[Process; 5]> {
        let by = kubeconfig.map(|file| format!("--kubeconfig={}", file.display()));
        let all: Vec<&str> = by.as_deref().into_iter().collect();
        let quick = ["--retry-interval-start=500ms", "--kube-api-qps=100", "--kube-api-burst=200"];
        let flags = |own: &[&'static str]| [all.clone(), quick.to_vec(), own.to_vec()].concat();
        let (host, socket) = (fleet.host(), &self.socket);
        let provisioner = [
            "--feature-gates=Topology=true",
            "--timeout=30s",
            "--retry-interval-max=5s",
            "--enable-capacity",
            "--capacity-ownerref-level=-1",
            "--capacity-poll-interval=2s",
            "--kube-api-capacity-qps=100",
            "--kube-api-capacity-burst=200",
        ];
        Ok([
            fleet.provisioner(host, socket, &flags(&provisioner))?,
            fleet.attacher(host, socket, &flags(&["--retry-interval-max=5s", "--reconcile-sync=10s"]))?,
            fleet.resizer(host, socket, &flags(&["--retry-interval-max=5s"]))?,
            fleet.snapshotter(host, socket, &flags(&["--timeout=30s", "--retry-interval-max=5s", GROUPS]))?,
            fleet.snapshot_controller(host, &flags(&["--retry-interval-max=5s", GROUPS]))?,
        ])
    }

    pub async fn ready(&self) -> Result<()> {
        wait_for("the controller is ready", PATIENCE, || async {
            let answer = self.get("/readyz").await?;
            Ok(answer.starts_with("HTTP/1.1 200").then_some(()))
        })
        .await
    }

    pub async fn metrics(&self) -> Result<String> {
        self.get("/metrics").await
    }

    /// What a scraper gets that accepts these: the content type, and the text.
    pub async fn scraped(&self, accept: &str) -> Result<(String, String)> {
        let answer = self.ask("/metrics", &format!("Accept: {accept}\r\n")).await?;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head and a body")?;
        let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "));
        ensure!(!head.contains("chunked"), "{head}");
        Ok((content_type.context("it has a content type")?.to_owned(), body.to_owned()))
    }

    async fn get(&self, path: &str) -> Result<String> {
        self.ask(path, "").await
    }

    /// A plain request, without an HTTP client: head and body as they come.
    async fn ask(&self, path: &str, headers: &str) -> Result<String> {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", self.admin)).await?;
        stream
            .write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}Connection: close\r\n\r\n").as_bytes())
            .await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        ensure!(!answer.is_empty(), "no answer");
        Ok(answer)
    }

    /// SIGKILL; all begin again with `ensure`.
    pub async fn kill(&self) -> Result<()> {
        match self.running.lock().await.take() {
            Some(running) => running.end().await,
            None => Ok(()),
        }
    }

    /// To the controller or one of its sidecars, by the name of its process.
    pub async fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let mut running = self.running.lock().await;
        running.as_mut().context("the driver does not run")?.process(name)?.signal(signal)
    }

    /// A sidecar that has ended; the others go on.
    pub async fn begin_again(&self, name: &str) -> Result<()> {
        let mut running = self.running.lock().await;
        let process = running.as_mut().context("the driver does not run")?.process(name)?;
        if process.is_running()? { Ok(()) } else { process.start_again() }
    }

    /// All sidecars; the controller goes on.
    pub async fn replace_sidecars(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        for sidecar in &mut running.as_mut().context("the driver does not run")?.sidecars {
            // It may have ended by itself.
            sidecar.kill().ok();
            sidecar.wait(Duration::from_secs(10)).await?;
            sidecar.start_again()?;
        }
        Ok(())
    }

    /// Of the controller and each sidecar, as the machine counts, by the name of its process.
    pub async fn pids(&self) -> Vec<(String, i32)> {
        let running = self.running.lock().await;
        let all = running.iter().flat_map(|running| std::iter::once(&running.controller).chain(&running.sidecars));
        all.map(|process| (process.name().to_owned(), process.pid())).collect()
    }

    pub async fn log(&self) -> Result<String> {
        match &*self.running.lock().await {
            Some(running) => running.controller.log(),
            None => Ok(String::new()),
        }
    }
}
