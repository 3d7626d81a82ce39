//! Two ends that run, and who joins them.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

/// More than anything here takes.
const LONG: Duration = Duration::from_mins(2);
const AGAIN: Duration = Duration::from_millis(20);
/// Who joins two ends that are measured is to take little of their processors.
const AT_ONCE: usize = 256 << 10;

/// Source, copy and keys.
pub struct Ground {
    folder: TempDir,
}

/// One end.
pub struct End {
    pub child: Child,
    pub address: SocketAddr,
    result: PathBuf,
    log: PathBuf,
}

/// How it ended, and what it left.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub result: Value,
    pub log: String,
}

impl Ground {
    pub fn new() -> Self {
        let ground = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["source", "copy", "sender", "receiver"] {
            fs::create_dir(ground.path(folder)).unwrap();
        }
        ground.make_keys("sender", "receiver");
        ground
    }

    pub fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// A pair of keys, each with the other's certificate.
    pub fn make_keys(&self, one: &str, other: &str) {
        let make = || {
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(["mover".to_owned()]).unwrap().self_signed(&key).unwrap();
            (certificate.pem(), key.serialize_pem())
        };
        let (of_one, of_other) = (make(), make());
        for (folder, own, others) in [(one, &of_one, &of_other), (other, &of_other, &of_one)] {
            fs::write(self.path(folder).join("tls.crt"), &own.0).unwrap();
            fs::write(self.path(folder).join("tls.key"), &own.1).unwrap();
            fs::write(self.path(folder).join("ca.crt"), &others.0).unwrap();
        }
    }

    pub fn sender(&self) -> End {
        End::start(&["send"], &self.path("source"), &self.path("sender"), None)
    }

    pub fn receiver(&self, arguments: &[&str]) -> End {
        self.receiver_into(&self.path("copy"), arguments)
    }

    pub fn receiver_into(&self, folder: &Path, arguments: &[&str]) -> End {
        End::start(&[&["receive"], arguments].concat(), folder, &self.path("receiver"), None)
    }
}

/// One of its own for each end, so that tests do not meet.
fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(127, high | 0x40, low, NEXT.fetch_add(1, Ordering::Relaxed)), 7740))
}

impl End {
    pub fn start(arguments: &[&str], folder: &Path, keys: &Path, programs: Option<&Path>) -> Self {
        let address = address();
        let (result, log) = (keys.join("result"), keys.join("log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_kosmos-csi"));
        command.arg("mover").args(arguments).arg("--folder").arg(folder).arg("--keys").arg(keys);
        command.arg("--listen").arg(address.to_string()).arg("--result").arg(&result);
        if let Some(programs) = programs {
            command.env("PATH", programs);
        }
        let written = fs::File::create(&log).unwrap();
        command.stdin(Stdio::null()).stdout(written.try_clone().unwrap()).stderr(written).kill_on_drop(true);
        Self { child: command.spawn().unwrap(), address, result, log }
    }

    pub async fn ended(&mut self) -> Ended {
        let status = timeout(LONG, self.child.wait()).await;
        let log = fs::read_to_string(&self.log).unwrap();
        let status = status.unwrap_or_else(|_| panic!("it does not end: {log}")).unwrap();
        let result = fs::read(&self.result).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Ended { status, result: result.unwrap_or_default(), log }
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Once it listens.
    pub async fn connect(&mut self) -> Option<TcpStream> {
        while !self.is_over() {
            if let Ok(stream) = TcpStream::connect(self.address).await {
                return Some(stream);
            }
            tokio::time::sleep(AGAIN).await;
        }
        None
    }
}

impl Ended {
    pub fn reason(&self) -> &str {
        self.result["failed"]["reason"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.result["failed"]["message"].as_str().unwrap_or_default()
    }
}

/// What a process has started, by whichever of its threads, and what that has.
pub fn started_by(process: i32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let mut found = Vec::new();
    for child in children.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()) {
        let child = child.parse().unwrap();
        found.push(child);
        found.extend(started_by(child));
    }
    found
}

/// Joins the two until one of them is over. Each line breaks after so many bytes from the sender; none: it does not.
pub async fn join(sender: &mut End, receiver: &mut End, mut breaks: impl FnMut() -> Option<u64>) {
    loop {
        let (Some(mut from), Some(mut to)) = (sender.connect().await, receiver.connect().await) else { return };
        match breaks() {
            None => drop(copy_bidirectional_with_sizes(&mut from, &mut to, AT_ONCE, AT_ONCE).await),
            Some(after) => pass(&mut from, &mut to, after).await,
        }
    }
}

/// Hands on so many bytes, of both directions together.
pub async fn pass(from: &mut TcpStream, to: &mut TcpStream, mut left: u64) {
    let (mut forth, mut back) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    while left > 0 {
        let (length, target) = tokio::select! {
            length = from.read(&mut forth) => (length, Some(&mut *to)),
            length = to.read(&mut back) => (length, None),
        };
        let length = length.unwrap_or(0);
        let written = match target {
            _ if length == 0 => return,
            Some(to) => to.write_all(&forth[..length]).await,
            None => from.write_all(&back[..length]).await,
        };
        left = left.saturating_sub(length as u64);
        if written.is_err() {
            return;
        }
    }
}

/// What of the last words does not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// The receiver's, what it has found.
    Judgement,
    /// The sender's that all is done.
    Agreement,
    /// The receiver's that it has heard that.
    Answer,
}

/// Joins the two by a line that breaks at the end, where the judgement is told or both have it: after that only these words are said.
pub async fn join_without_the_end(sender: &mut End, receiver: &mut End, lost: Lost) {
    let (mut from, mut to) = (sender.connect().await.unwrap(), receiver.connect().await.unwrap());
    let (mut forth, mut back) = (vec![0; 16 << 10], vec![0; 16 << 10]);
    let (mut is_judged, mut is_done) = (false, false);
    loop {
        let (length, is_forth) = tokio::select! {
            length = from.read(&mut forth) => (length.unwrap(), true),
            length = to.read(&mut back) => (length.unwrap(), false),
        };
        match (is_forth, lost) {
            (true, Lost::Agreement) if is_judged => return,
            (false, Lost::Answer) if is_done => return,
            (true, _) => to.write_all(&forth[..length]).await.unwrap(),
            (false, _) => {
                // It is in the log before it is said.
                is_judged |= fs::read_to_string(&receiver.log).unwrap().contains("are the same");
                if is_judged && lost == Lost::Judgement {
                    return;
                }
                from.write_all(&back[..length]).await.unwrap();
            }
        }
        is_done |= is_judged && is_forth;
    }
}
