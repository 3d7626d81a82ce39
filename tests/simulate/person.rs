//! Somebody with a simulated cluster and kubectl.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use serde_json::Value;
use simulate::{Cluster, controllers, serve, storage};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, ChildStdout, Command},
    task::JoinSet,
    time::timeout,
};

use crate::tools::tool;

/// Nothing here takes longer, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub struct Person {
    pub cluster: Cluster,
    folder: TempDir,
    kubectl: PathBuf,
    running: JoinSet<()>,
}

/// What a command said.
#[derive(Debug)]
pub struct Said {
    pub done: bool,
    pub text: String,
    pub complaint: String,
}

impl Said {
    pub fn lines(&self) -> Vec<&str> {
        self.text.lines().collect()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

impl Person {
    /// With a cluster in which nothing happens by itself.
    pub async fn new() -> Self {
        let cluster = Cluster::new("simulated", 1);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let folder = tempfile::Builder::new().prefix("simulated-").tempdir_in("/tmp").unwrap();
        fs::write(folder.path().join("config"), kubeconfig(listener.local_addr().unwrap())).unwrap();
        let mut running = JoinSet::new();
        running.spawn(serve(cluster.clone(), listener));
        Self { cluster, folder, kubectl: tool("kubectl").unwrap(), running }
    }

    /// With one that has controllers, storage and a node.
    pub async fn with_life() -> Self {
        let mut person = Self::new().await;
        person.running.spawn(controllers::run(person.cluster.clone()));
        person.running.spawn(storage::run(person.cluster.clone(), storage::Settings::default()));
        person
    }

    /// Writes a manifest down.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.kubectl);
        let folder: &Path = self.folder.path();
        command.args(words(line)).env_clear().current_dir(folder).env("PATH", "/usr/bin:/bin").env("HOME", folder);
        command.env("KUBECONFIG", folder.join("config")).stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    pub async fn tries(&self, line: &str) -> Said {
        self.runs(self.command(line), line).await
    }

    async fn runs(&self, mut command: Command, line: &str) -> Said {
        let output = timeout(PATIENCE, command.output()).await.unwrap_or_else(|_| panic!("it hangs: {line}")).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { done: output.status.success(), text: text(output.stdout), complaint: text(output.stderr) }
    }

    /// A command that must be done.
    pub async fn does(&self, line: &str) -> Said {
        let said = self.tries(line).await;
        assert!(said.done, "kubectl {line}\n{}{}", said.text, said.complaint);
        said
    }

    /// One that must be refused; the complaint.
    pub async fn is_refused(&self, line: &str) -> String {
        let said = self.tries(line).await;
        assert!(!said.done, "kubectl {line}\n{}", said.text);
        said.complaint
    }

    /// Edits an object with an editor that is a command.
    pub async fn edits(&self, line: &str, editor: &str) -> Said {
        let mut command = self.command(line);
        command.env("EDITOR", editor);
        self.runs(command, line).await
    }

    pub fn follows(&self, line: &str) -> Following {
        let mut process = self.command(line).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        Following { _process: process, said }
    }
}

/// A command that goes on telling.
pub struct Following {
    _process: Child,
    said: BufReader<ChildStdout>,
}

impl Following {
    pub async fn line(&mut self) -> String {
        let mut line = String::new();
        timeout(PATIENCE, self.said.read_line(&mut line)).await.expect("nothing is told").unwrap();
        line.trim_end().to_owned()
    }
}

fn kubeconfig(address: SocketAddr) -> String {
    let named = |field: &str, value: Value| serde_json::json!([{"name": "simulated", field: value}]);
    serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "simulated",
        "clusters": named("cluster", serde_json::json!({"server": format!("http://{address}")})),
        "users": named("user", serde_json::json!({})),
        "contexts": named("context", serde_json::json!({"cluster": "simulated", "user": "simulated"})),
    })
    .to_string()
}

/// A line as a shell takes it apart, as far as it is needed: words, and what is in single quotes as one.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for letter in line.chars() {
        match letter {
            '\'' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            other => words.last_mut().unwrap().push(other),
        }
    }
    words
}
