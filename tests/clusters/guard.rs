//! The guardian: a process of its own that makes a fleet's namespaces, starts its processes and ends everything when
//! its owner goes away, however that happens: the owner holds the other end of the guardian's standard input.
//! If the guardian itself is killed, the fleet's first process sees that in the same way and takes every process with
//! it; what is left on the machine is removed by the next guardian.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, setsid};

use super::protocol::{Answer, Exit, Greeting, Request, Spawn, Started, build};
use super::{forward, namespaces, remains};

/// The guardian's socket in the fleet's folder.
pub const SOCKET: &str = "guardian.sock";

enum Notice {
    OwnerGone,
    Detached,
    EndAsked,
}

/// Everything the threads that answer requests share.
struct Guardian {
    started: Started,
    processes: Mutex<Vec<Arc<Ward>>>,
    notices: Sender<Notice>,
}

/// A process of the fleet. It is buried only under the lock, so that a signal never meets a stranger that got
/// the number of the dead.
struct Ward {
    name: String,
    number: i32,
    exit: Mutex<Option<ExitStatus>>,
}

/// Runs a guardian to its end. The first line on standard output says whether the fleet's namespaces are ready.
pub fn guard(name: Option<&str>) -> Result<()> {
    setsid().ok(); // an interrupt from the keyboard is for the owner; what is to end is seen from its end
    let (folder, lock) = match remains::claim_folder(name) {
        Ok(claimed) => claimed,
        Err(error) => {
            return greet(&Greeting::Failed { reason: format!("{error:#}") });
        }
    };
    let result = run(&folder);
    if let Err(error) = &result {
        greet(&Greeting::Failed { reason: format!("{error:#}") })?;
    }
    remains::remove(&folder)?;
    drop(lock);
    result
}

fn run(folder: &Path) -> Result<()> {
    let (mut first, init) = start_namespaces()?;
    let listener = UnixListener::bind(folder.join(SOCKET)).context("listen on the guardian's socket")?;
    let (notices, inbox) = channel();
    let started = Started { folder: folder.to_owned(), init, build: build() };
    greet(&Greeting::Ready(started.clone()))?;
    watch_owner(notices.clone());
    let guardian = Arc::new(Guardian { started, processes: Mutex::default(), notices });
    thread::spawn(move || serve(&listener, &guardian));
    wait_for_end(&inbox);
    drop(first.stdin.take());
    first.wait().context("wait for the fleet's first process")?;
    Ok(())
}

fn greet(greeting: &Greeting) -> Result<()> {
    let line = serde_json::to_string(greeting).context("write the greeting")?;
    writeln!(io::stdout(), "{line}").context("greet the owner")
}

fn start_namespaces() -> Result<(Child, i32)> {
    let program = env::current_exe().context("find this program")?;
    let mut first = Command::new("unshare")
        .args(namespaces::unshare_arguments(namespaces::UNSHARE_FLEET))
        .arg(program)
        .arg("init")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("run unshare: is util-linux installed?")?;
    let mut line = String::new();
    if let Some(output) = first.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("read from the fleet's first process")?;
    }
    if line.trim() != "ready" {
        let mut problem = String::new();
        first.stderr.take().map(|mut errors| errors.read_to_string(&mut problem));
        bail!("make the fleet's namespaces (this needs root): {problem}");
    }
    let init = namespaces::child_of(first.id().cast_signed())?;
    Ok((first, init))
}

fn watch_owner(notices: Sender<Notice>) {
    thread::spawn(move || {
        io::stdin().read_to_end(&mut Vec::new()).ok();
        notices.send(Notice::OwnerGone).ok();
    });
}

fn wait_for_end(inbox: &Receiver<Notice>) {
    let mut owned = true;
    for notice in inbox {
        match notice {
            Notice::Detached => owned = false,
            Notice::OwnerGone if owned => return,
            Notice::OwnerGone => {}
            Notice::EndAsked => return,
        }
    }
}

fn serve(listener: &UnixListener, guardian: &Arc<Guardian>) {
    for connection in listener.incoming().flatten() {
        let guardian = Arc::clone(guardian);
        thread::spawn(move || converse(&connection, &guardian));
    }
}

fn converse(connection: &UnixStream, guardian: &Guardian) -> Result<()> {
    let mut line = String::new();
    BufReader::new(connection).read_line(&mut line)?;
    let answer = serde_json::from_str(&line)
        .context("understand the request")
        .and_then(|request| guardian.answer(request))
        .unwrap_or_else(|error| Answer::Failed { reason: format!("{error:#}") });
    let mut connection = connection;
    writeln!(connection, "{}", serde_json::to_string(&answer)?)?;
    Ok(())
}

impl Guardian {
    fn answer(&self, request: Request) -> Result<Answer> {
        match request {
            Request::About => Ok(Answer::About(self.started.clone())),
            Request::Spawn(spawn) => self.spawn(spawn),
            Request::Signal { process, signal } => self.find(process)?.signal(Signal::try_from(signal)?),
            Request::Status { process } => Ok(self.find(process)?.status()),
            Request::Forward { address } => {
                let port = forward::forward(address, self.started.init, &self.started.folder)?;
                Ok(Answer::Forwarded { port })
            }
            Request::Detach => self.notify(Notice::Detached, Answer::Done),
            Request::End => {
                let processes = self.living();
                self.notify(Notice::EndAsked, Answer::Ending { processes })
            }
        }
    }

    fn spawn(&self, spawn: Spawn) -> Result<Answer> {
        let name = spawn.name.clone();
        // In a thread that enters the namespaces and ends: it could start no further thread there.
        let home = self.started.folder.clone();
        let child =
            thread::spawn(move || start(spawn, &home)).join().ok().context("the starting thread panicked")??;
        let number = child.id().cast_signed();
        let ward = Arc::new(Ward { name, number, exit: Mutex::default() });
        let mut processes = self.lock();
        processes.retain(|old| old.number != number); // the number of a dead one may come again
        processes.push(Arc::clone(&ward));
        thread::spawn(move || ward.bury(child));
        Ok(Answer::Spawned { process: number })
    }

    fn find(&self, process: i32) -> Result<Arc<Ward>> {
        let found = self.lock().iter().find(|ward| ward.number == process).cloned();
        found.with_context(|| format!("{process} is no process of this fleet"))
    }

    fn living(&self) -> Vec<String> {
        let processes = self.lock();
        let living = processes.iter().filter(|ward| matches!(ward.status(), Answer::Running));
        living.map(|ward| ward.name.clone()).collect()
    }

    fn notify(&self, notice: Notice, answer: Answer) -> Result<Answer> {
        self.notices.send(notice).context("the guardian is ending")?;
        Ok(answer)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Ward>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(spawn: Spawn, home: &Path) -> Result<Child> {
    let log = fs::File::options().create(true).append(true).open(&spawn.log);
    let log = log.with_context(|| format!("open {}", spawn.log.display()))?;
    let errors = log.try_clone().context("share the log")?;
    namespaces::enter(spawn.namespaces_of)?;
    Command::new(&spawn.program)
        .args(spawn.arguments)
        .env("HOME", home) // what programs keep there goes with the fleet
        .envs(spawn.environment)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {}", spawn.program.display()))
}

impl Ward {
    fn bury(&self, mut child: Child) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::Pid(Pid::from_raw(self.number)), flags).ok();
        let mut exit = self.lock();
        *exit = child.wait().ok();
    }

    fn signal(&self, signal: Signal) -> Result<Answer> {
        let exit = self.lock();
        if exit.is_none() {
            kill(Pid::from_raw(self.number), signal).with_context(|| format!("send {signal} to {}", self.name))?;
        }
        Ok(Answer::Done)
    }

    fn status(&self) -> Answer {
        match *self.lock() {
            Some(exit) => Answer::Exited(Exit { code: exit.code(), signal: exit.signal() }),
            None => Answer::Running,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<ExitStatus>> {
        self.exit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
