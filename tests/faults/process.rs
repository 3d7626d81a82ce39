//! The same with the real process: it reaches the clusters over loopback, and SIGKILL ends it.

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use csi::client::Client;
use simulate::Cluster;
use tokio::{
    net::{TcpListener, UnixStream},
    process::{Child, Command},
    task::JoinSet,
    time::sleep,
};

use crate::{crash, extent, fixture, virtual_time};

const PATIENCE: Duration = Duration::from_secs(30);
/// Stories at a time: nearly all of their time is waiting.
const AT_ONCE: usize = 8;
const SOME_POINTS: usize = 10;
const MANY_POINTS: usize = 50;

/// Where the process finds its clusters, and is found.
pub struct Outside {
    folder: tempfile::TempDir,
}

/// The process at work. It dies with this.
pub struct Process {
    pub client: Client,
    child: Child,
}

impl Outside {
    /// Serves the clusters, the host first, and writes their kubeconfigs down.
    pub async fn serve(clusters: &[Cluster], inside: &mut JoinSet<()>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("members")).unwrap();
        for (at, cluster) in clusters.iter().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = format!("http://{}", listener.local_addr().unwrap());
            let place = if at == 0 { String::new() } else { "members/".to_owned() };
            let path = folder.path().join(format!("{place}{}.kubeconfig", cluster.name()));
            std::fs::write(path, fixture::kubeconfig_text(&server)).unwrap();
            inside.spawn(simulate::serve(cluster.clone(), listener));
        }
        Self { folder }
    }

    pub fn start(&self) -> Process {
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log")).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"))
            .args(["controller", &format!("--endpoint=unix://{}", at("csi.sock"))])
            .args([format!("--kubeconfig={}", at("host.kubeconfig")), format!("--members-dir={}", at("members"))])
            .arg("--leaf-namespace=kosmos-csi-leaves")
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn();
        Process { client: Client::new(&self.socket()).unwrap(), child: child.unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    pub async fn serves(&self) {
        let began = Instant::now();
        while UnixStream::connect(self.socket()).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "the process does not serve its socket");
            sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Process {
    pub fn kill(mut self) {
        self.child.start_kill().unwrap();
    }
}

#[test]
fn nothing_is_lost_or_left_wherever_the_process_is_killed() {
    let mut points = crash::single_points();
    points.retain(|(case, _)| case.is_for_a_process());
    fastrand::Rng::with_seed(1).shuffle(&mut points);
    points.truncate(if extent::is_thorough() { MANY_POINTS } else { SOME_POINTS });
    let count = points.len();
    let wrong = virtual_time::each(AT_ONCE, points, |(case, point)| crash::play_outside(&case, point));
    assert!(wrong.is_empty(), "{} of {count}, such as: {}", wrong.len(), wrong[0]);
}
