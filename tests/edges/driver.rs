//! The command as a process, with a deadline on whatever it is asked for.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::atomic::{AtomicU16, Ordering},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpStream, UnixStream},
    process::{Child, ChildStderr, Command},
    time::{Instant, timeout, timeout_at},
};
use tonic::transport::{Channel, Endpoint};

use super::PATIENCE;

const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments);
    piped(command, folder)
}

fn piped(mut command: Command, folder: &Path) -> Command {
    command.env_clear().current_dir(folder);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs to its end: the exit code, and all that was printed.
pub async fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String) {
    let mut command = command(arguments, Path::new("/"));
    let output = timeout(PATIENCE, command.envs(environment.iter().copied()).output()).await;
    let output = output.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&printed).into_owned())
}

/// The same, where what it prints goes into a file that is there: the exit code, and what it says beside that.
pub async fn run_into(file: &str, arguments: &[&str]) -> (i32, String) {
    let file = std::fs::OpenOptions::new().write(true).open(file).unwrap();
    let running = command(arguments, Path::new("/")).stdout(file).spawn().unwrap();
    let ended = timeout(PATIENCE, running.wait_with_output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("{arguments:?} does not end")).unwrap();
    (ended.status.code().unwrap_or(-1), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// A command, running, whatever these tests themselves are told to ignore.
pub fn begin(arguments: &[&str]) -> Child {
    begin_with("--default-signal=HUP", arguments)
}

/// The same as `nohup` starts it.
pub fn begin_without_terminal(arguments: &[&str]) -> Child {
    begin_with("--ignore-signal=HUP", arguments)
}

fn begin_with(signals: &str, arguments: &[&str]) -> Child {
    let mut started = Command::new("env");
    started.arg(signals).arg(PROGRAM).args(arguments);
    piped(started, Path::new("/")).spawn().unwrap()
}

/// Its exit code, and what it says, when a signal ends it.
pub async fn end_by(signal: Signal, running: Child) -> (i32, String) {
    kill(Pid::from_raw(running.id().unwrap().cast_signed()), signal).unwrap();
    let ended = timeout(PATIENCE, running.wait_with_output()).await;
    let ended = ended.unwrap_or_else(|_| panic!("it does not end by {signal}")).unwrap();
    (ended.status.code().unwrap_or(-1), String::from_utf8_lossy(&ended.stderr).into_owned())
}

/// `kosmos-csi controller`, running.
pub struct Driver {
    pub admin: SocketAddr,
    /// The lines of its log so far.
    pub seen: Vec<String>,
    process: Child,
    log: Option<Lines<BufReader<ChildStderr>>>,
}

impl Driver {
    pub fn start(flags: &[&str], folder: &Path) -> Self {
        Self::begin(flags, |arguments| command(arguments, folder))
    }

    /// With so many open files to begin with, as on many nodes.
    pub fn start_with_files(files: u32, flags: &[&str], folder: &Path) -> Self {
        Self::begin(flags, |arguments| {
            let mut limited = Command::new("sh");
            limited.args(["-c", &format!("ulimit -Sn {files} && exec \"$0\" \"$@\""), PROGRAM]).args(arguments);
            piped(limited, folder)
        })
    }

    fn begin(flags: &[&str], command: impl Fn(&[&str]) -> Command) -> Self {
        let admin = admin_address();
        let flag = format!("--admin-address={admin}");
        let arguments = [&["controller", &flag], flags].concat();
        let mut process = command(&arguments).spawn().unwrap();
        let log = Some(BufReader::new(process.stderr.take().unwrap()).lines());
        Self { admin, seen: Vec::new(), process, log }
    }

    /// Waits for a line of the log.
    pub async fn line_with(&mut self, words: &str) -> String {
        self.lines_with(&[words]).await.remove(0)
    }

    /// Waits until each of these has been said, in any order.
    pub async fn lines_with(&mut self, words: &[&str]) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        let mut missing = words.to_vec();
        let mut found = Vec::new();
        while !missing.is_empty() {
            let Ok(Ok(Some(line))) = timeout_at(deadline, self.next_line()).await else {
                panic!("nothing says {missing:?}: {:#?}", self.seen);
            };
            self.seen.push(line.clone());
            if let Some(place) = missing.iter().position(|words| line.contains(words)) {
                missing.remove(place);
                found.push(line);
            }
        }
        found
    }

    /// All that it says in a time.
    pub async fn lines_within(&mut self, time: Duration) -> Vec<String> {
        let deadline = Instant::now() + time;
        let mut lines = Vec::new();
        while let Ok(Ok(Some(line))) = timeout_at(deadline, self.next_line()).await {
            lines.push(line);
        }
        self.seen.extend(lines.iter().cloned());
        lines
    }

    async fn next_line(&mut self) -> std::io::Result<Option<String>> {
        match &mut self.log {
            Some(log) => log.next_line().await,
            None => Ok(None),
        }
    }

    /// As when whoever read the log has ended.
    pub fn close_log(&mut self) {
        self.log = None;
    }

    pub fn signal(&self, signal: Signal) {
        let process = self.process.id().unwrap().cast_signed();
        kill(Pid::from_raw(process), signal).unwrap();
    }

    /// Its exit code; the rest of its log is read.
    pub async fn end(&mut self) -> Option<i32> {
        let ended = timeout(PATIENCE, self.process.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("it does not end: {:#?}", self.seen)).unwrap();
        while let Ok(Some(line)) = self.next_line().await {
            self.seen.push(line);
        }
        assert!(!self.seen.iter().any(|line| line.contains("panicked")), "{:#?}", self.seen);
        status.code()
    }
}

/// Loopback has room for an address per process, so that no port can be taken.
fn admin_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(9808);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::from(([127, 64, high, low], NEXT.fetch_add(1, Ordering::Relaxed)))
}

/// The status that the admin endpoint answers with.
pub async fn get(admin: SocketAddr, path: &str) -> u16 {
    let answer = answer(admin, path).await;
    answer.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{path}: {answer:?}"))
}

/// Waits until the admin endpoint answers so.
pub async fn comes_to(admin: SocketAddr, path: &str, code: u16) {
    let asking = async { while get(admin, path).await != code {} };
    timeout(PATIENCE, asking).await.unwrap_or_else(|_| panic!("{path} never answers {code}"));
}

/// The lines of one metric.
pub async fn metric(admin: SocketAddr, name: &str) -> Vec<String> {
    let answer = answer(admin, "/metrics").await;
    answer.lines().filter(|line| line.starts_with(name)).map(str::to_owned).collect()
}

/// A plain request without an HTTP client: head and body as they come.
async fn answer(admin: SocketAddr, path: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(admin).await?;
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("{path}: no answer")).unwrap()
}

/// A connection to the socket, made when it is first used.
pub fn channel(socket: PathBuf) -> Channel {
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    }))
}
