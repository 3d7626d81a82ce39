//! A process of the fleet, as its owner sees it: signals, end, log. Killed when dropped.

use std::fs;
use std::path::PathBuf;
use std::process::Output;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;

use super::guardian::Guardian;
use super::protocol::{Exit, Spawn};
use super::wait::wait_for;

#[derive(Debug)]
pub struct Process {
    guardian: Guardian,
    spawn: Spawn,
    number: i32,
}

impl Process {
    pub fn start(guardian: &Guardian, spawn: Spawn) -> Result<Self> {
        let number = guardian.spawn(&spawn)?;
        Ok(Self { guardian: guardian.clone(), spawn, number })
    }

    /// The same command once more, after its end.
    pub fn start_again(&mut self) -> Result<()> {
        self.number = self.guardian.spawn(&self.spawn)?;
        Ok(())
    }

    /// Likewise, in the namespaces of another process.
    pub fn start_again_in(&mut self, namespaces_of: i32) -> Result<()> {
        self.spawn.namespaces_of = namespaces_of;
        self.start_again()
    }

    /// Its number on the machine.
    pub fn pid(&self) -> i32 {
        self.number
    }

    pub fn name(&self) -> &str {
        &self.spawn.name
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.guardian.signal(self.number, signal)
    }

    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::SIGKILL)
    }

    pub fn terminate(&self) -> Result<()> {
        self.signal(Signal::SIGTERM)
    }

    pub fn is_running(&self) -> Result<bool> {
        Ok(self.guardian.status(self.number)?.is_none())
    }

    pub async fn wait(&self, deadline: Duration) -> Result<Exit> {
        let what = format!("{} ends", self.spawn.name);
        wait_for(&what, deadline, || async { self.guardian.status(self.number) }).await
    }

    pub fn log_path(&self) -> PathBuf {
        self.spawn.log.clone()
    }

    pub fn log(&self) -> Result<String> {
        let log = fs::read(&self.spawn.log).with_context(|| format!("read {}", self.spawn.log.display()))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill().ok(); // the guardian may be gone, and the process with it
    }
}

/// What a command printed, or why it failed.
pub fn told(output: &Output, command: &str) -> Result<String> {
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command}: {}: {printed}{errors}", output.status);
    Ok(printed)
}
