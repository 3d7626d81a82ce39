//! What the kernel tells of a process.

use std::{
    ffi::OsStr,
    fs,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    time::{ClockId, clock_getcpuclockid, clock_gettime},
    unistd::Pid,
};

/// What all processes of the machine read as the time.
pub fn now() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_MONOTONIC).context("read the clock")?.into())
}

/// A process that ends with this one, however that ends.
#[derive(Debug)]
pub struct Apart(Child);

impl Apart {
    /// What starts this program, and has it killed where this process is.
    pub fn command(program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    }

    pub fn run(command: &mut Command) -> Result<Self> {
        Ok(Self(command.stdin(Stdio::null()).spawn()?))
    }

    /// A part of the bench itself.
    pub fn start<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Result<Self> {
        let program = std::env::current_exe().context("find this program")?;
        Self::run(Self::command(program).args(arguments)).context("start a part of the bench")
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// As a kubelet ends a container, at first.
    pub fn terminate(&self) -> Result<()> {
        kill(Pid::from_raw(self.id().cast_signed()), Signal::SIGTERM).context("ask a process to end")
    }

    /// How, if it has ended.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.0.try_wait()?)
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// What it has used of processors so far, to the nanosecond, those of its threads that have ended included.
pub fn processor_time(process: u32) -> Result<Duration> {
    let clock = clock_getcpuclockid(Pid::from_raw(process.cast_signed())).context("find a process's clock")?;
    Ok(clock_gettime(clock).context("read a process's clock")?.into())
}

/// For how long the threads that it has now were ready to run and had no processor.
pub fn waited(process: u32) -> Result<Duration> {
    let mut waited = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).context("look at a process's threads")? {
        // One that has ended since has no file.
        let Ok(told) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        let nanoseconds = told.split_whitespace().nth(1).context("a thread's waiting is not told")?;
        waited += nanoseconds.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(waited))
}

/// Its resident memory in bytes, now and at most.
pub fn memory(process: u32) -> Result<(u64, u64)> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).context("read a process's memory")?;
    let kibibytes = |key: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(key)).context("its memory is not told")?;
        Ok(line.trim_matches([':', ' ', '\t', 'k', 'B']).parse::<u64>()? * 1024)
    };
    Ok((kibibytes("VmRSS")?, kibibytes("VmHWM")?))
}

/// As they are told.
pub fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

pub fn open_files(process: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{process}/fd")).context("look at a process's files")?.count())
}

/// The process that runs this program with an argument that has these words in it.
pub fn find(program: &str, words: &str) -> Result<u32> {
    for entry in fs::read_dir("/proc").context("look at all processes")? {
        let entry = entry?;
        let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // One that has ended since has no file.
        let Ok(line) = fs::read_to_string(entry.path().join("cmdline")) else { continue };
        let mut arguments = line.split('\0');
        let name = arguments.next().and_then(|path| Path::new(path).file_name());
        if name == Some(OsStr::new(program)) && arguments.any(|argument| argument.contains(words)) {
            return Ok(process);
        }
    }
    bail!("no {program} runs that is told {words}")
}
