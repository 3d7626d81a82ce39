//! The owner's side of the guardian: starts it, asks it, and ends it by letting go.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;

use super::guard::SOCKET;
use super::process::told;
use super::protocol::{Answer, Exit, Greeting, Request, Spawn, Started, build};
use super::wait::wait_blocking;

const PATIENCE: Duration = Duration::from_secs(30);

/// How to reach a guardian.
#[derive(Debug, Clone)]
pub struct Guardian {
    pub started: Started,
}

/// Holds the guardian's standard input. When this is dropped, or its process dies, the fleet ends.
#[derive(Debug)]
pub struct Owner {
    guardian: Child,
}

impl Guardian {
    /// Starts a guardian with a fleet's empty namespaces. A name is for fleets that persons start.
    pub fn start(name: Option<&str>) -> Result<(Self, Owner)> {
        let mut command = Command::new(program()?);
        command.arg("guard");
        if let Some(name) = name {
            command.args(["--name", name]);
        }
        let mut guardian = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("start the guardian")?;
        let output = guardian.stdout.take().context("the guardian has no output")?;
        let owner = Owner { guardian };
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("read the guardian's greeting")?;
        match serde_json::from_str(&line).context("understand the guardian's greeting")? {
            Greeting::Ready(started) => {
                ensure!(started.build == build(), "{} is of another build: {BUILD_IT}", program()?.display());
                Ok((Self { started }, owner))
            }
            Greeting::Failed { reason } => bail!(reason),
        }
    }

    /// The guardian of a fleet that is up already.
    pub fn find(folder: &Path) -> Result<Self> {
        let socket = folder.join(SOCKET);
        match ask(&socket, &Request::About)? {
            Answer::About(started) => Ok(Self { started }),
            other => bail!("the guardian answered {other:?}"),
        }
    }

    pub fn spawn(&self, spawn: &Spawn) -> Result<i32> {
        match self.ask(&Request::Spawn(spawn.clone()))? {
            Answer::Spawned { process } => Ok(process),
            other => bail!("start {}: the guardian answered {other:?}", spawn.name),
        }
    }

    pub fn signal(&self, process: i32, signal: Signal) -> Result<()> {
        self.ask(&Request::Signal { process, signal: signal as i32 }).map(drop)
    }

    /// How a process ended, if it has.
    pub fn status(&self, process: i32) -> Result<Option<Exit>> {
        match self.ask(&Request::Status { process })? {
            Answer::Exited(exit) => Ok(Some(exit)),
            _ => Ok(None),
        }
    }

    /// Runs a short command in the namespaces of a process to its end and returns what it prints.
    pub async fn exec(&self, namespaces_of: i32, program: &str, arguments: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new("nsenter")
            .arg(format!("--target={namespaces_of}"))
            .args(["--mount", "--net", "--uts", "--ipc", "--pid", "--", program])
            .args(arguments)
            .env("HOME", &self.started.folder)
            .kill_on_drop(true)
            .output()
            .await
            .context("run nsenter: is util-linux installed?")?;
        told(&output, &format!("{program} {}", arguments.join(" ")))
    }

    /// A port on this machine's loopback that leads to an address in the fleet.
    pub fn forward(&self, address: SocketAddr) -> Result<u16> {
        match self.ask(&Request::Forward { address })? {
            Answer::Forwarded { port } => Ok(port),
            other => bail!("forward to {address}: the guardian answered {other:?}"),
        }
    }

    /// Lets the fleet outlive its owner.
    pub fn detach(&self) -> Result<()> {
        self.ask(&Request::Detach).map(drop)
    }

    /// Asks for the end, and waits for it. Returns the processes that ran.
    pub fn end(&self) -> Result<Vec<String>> {
        let Answer::Ending { processes } = self.ask(&Request::End)? else {
            bail!("the guardian does not end");
        };
        let folder = &self.started.folder;
        let what = format!("{} is gone", folder.display());
        wait_blocking(&what, PATIENCE, || Ok((!folder.exists()).then_some(())))?;
        Ok(processes)
    }

    fn ask(&self, request: &Request) -> Result<Answer> {
        match ask(&self.started.folder.join(SOCKET), request)? {
            Answer::Failed { reason } => bail!(reason),
            answer => Ok(answer),
        }
    }
}

impl Owner {
    /// The guardian's process.
    pub fn pid(&self) -> i32 {
        self.guardian.id().cast_signed()
    }

    /// Lets go, and waits until nothing of the fleet is left.
    fn end(&mut self) -> Result<()> {
        drop(self.guardian.stdin.take());
        let what = format!("the fleet's guardian, process {}, ends", self.pid());
        wait_blocking(&what, PATIENCE, || Ok(self.guardian.try_wait()?)).map(drop)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

const BUILD_IT: &str = "run `cargo build --example clusters` with the same profile (`make test` does)";

/// The program with the hidden commands `guard` and `init`: the example `clusters`, which cargo puts beside the tests.
pub fn program() -> Result<PathBuf> {
    let program = profile_folder()?.join("examples/clusters");
    ensure!(program.exists(), "{} is missing: {BUILD_IT}", program.display());
    Ok(program)
}

/// Where cargo puts what it builds in this profile: tests are in `deps` below it, examples in `examples`.
pub fn profile_folder() -> Result<PathBuf> {
    let this = env::current_exe().context("find this program")?;
    let folder = this.parent().and_then(Path::parent);
    Ok(folder.context("this program lies outside of cargo's target folder")?.to_owned())
}

fn ask(socket: &Path, request: &Request) -> Result<Answer> {
    let mut connection = UnixStream::connect(socket).context("reach the guardian: has the fleet ended?")?;
    writeln!(connection, "{}", serde_json::to_string(request)?).context("ask the guardian")?;
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line).context("hear the guardian's answer")?;
    serde_json::from_str(&line).context("understand the guardian's answer")
}
