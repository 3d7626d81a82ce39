//! `kosmos-csi dev` as a process of its own, and what its clusters say.

use std::{
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

/// Nothing here takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub struct Dev {
    pub folder: PathBuf,
    /// All that was printed, up to `ready`.
    pub report: String,
    process: Child,
    /// Kept open: writing to a closed one is no part of what is tested.
    _printing: BufReader<ChildStdout>,
    log: JoinHandle<Vec<u8>>,
}

fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"));
    command.arg("dev").arg("--dir").arg(folder).args(flags).env_clear().env("RUST_LOG", "warn,kosmos_csi=debug");
    command.env("HTTPS_PROXY", "http://127.0.0.1:1"); // as in many an office: it is not for what is on this machine
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

impl Dev {
    pub async fn start(folder: &Path) -> Self {
        Self::start_with(folder, &[]).await
    }

    pub async fn start_with(folder: &Path, flags: &[&str]) -> Self {
        let mut process = command(folder, flags).spawn().unwrap();
        let mut errors = process.stderr.take().unwrap();
        let log = tokio::spawn(async move {
            let mut log = Vec::new();
            tokio::io::copy(&mut errors, &mut log).await.unwrap();
            log
        });
        let mut printing = BufReader::new(process.stdout.take().unwrap());
        let mut report = String::new();
        let read = async {
            while !report.lines().any(|line| line == "ready") {
                if printing.read_line(&mut report).await.unwrap() == 0 {
                    return false;
                }
            }
            true
        };
        let ready = timeout(PATIENCE, read).await.unwrap_or(false);
        let dev = Self { folder: folder.to_owned(), report, process, _printing: printing, log };
        assert!(ready, "it is never ready: {}", dev.end(Signal::SIGKILL).await.1);
        dev
    }

    /// Runs to its end: the exit code, and all that was printed.
    pub async fn run(folder: &Path, flags: &[&str]) -> (i32, String) {
        let output = timeout(PATIENCE, command(folder, flags).output()).await.unwrap().unwrap();
        let printed = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&printed).into_owned())
    }

    /// Ends it: how it ended, and its log.
    pub async fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        let process = self.process.id().expect("it has ended by itself").cast_signed();
        kill(Pid::from_raw(process), signal).unwrap();
        let status = timeout(PATIENCE, self.process.wait()).await.expect("it does not end").unwrap();
        let log = String::from_utf8_lossy(&self.log.await.unwrap()).into_owned();
        assert!(!log.contains("panicked"), "{log}");
        (status, log)
    }

    pub async fn cluster(&self, name: &str) -> Cluster {
        let kubeconfig = Kubeconfig::read_from(self.folder.join(format!("{name}.kubeconfig"))).unwrap();
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
        Cluster { name: name.to_owned(), client: Client::try_from(config).unwrap() }
    }
}

/// A cluster, asked by the paths of its API.
pub struct Cluster {
    name: String,
    client: Client,
}

impl Cluster {
    /// An object or a list; none where there is none.
    pub async fn get(&self, path: &str) -> Option<Value> {
        self.ask("GET", path, None).await
    }

    pub async fn create(&self, path: &str, object: &Value) -> Value {
        self.ask("POST", path, Some(object)).await.unwrap_or_else(|| panic!("{}: {path} is not known", self.name))
    }

    pub async fn merge(&self, path: &str, change: &Value) -> Value {
        self.ask("PATCH", path, Some(change)).await.unwrap_or_else(|| panic!("{}: {path} is not known", self.name))
    }

    pub async fn delete(&self, path: &str) {
        self.ask("DELETE", path, None).await;
    }

    async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Value> {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let request =
            http::Request::builder().method(method).uri(path).header("content-type", kind).body(body).unwrap();
        match self.client.request::<Value>(request).await {
            Ok(answer) => Some(answer),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => panic!("{} {method} {path}: {error}", self.name),
        }
    }

    /// Waits until what is at a path is as it should be. An object that is not there is null.
    pub async fn until(&self, path: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let seen = self.get(path).await.unwrap_or(Value::Null);
            if holds(&seen) {
                return seen;
            }
            assert!(Instant::now() < deadline, "{}: {path} is never {what}: {seen:#}", self.name);
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_gone(&self, path: &str) {
        self.until(path, "gone", Value::is_null).await;
    }
}

/// The items of a list.
pub fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map(Vec::as_slice).unwrap_or_default()
}
