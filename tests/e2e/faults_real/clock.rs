//! The clock of our own programs, which a test sets while they run. They ask libc for the time, so a library that comes before it adds what
//! a file says. Programs of Go, as Kubernetes' own, ask the kernel's page themselves, and namespaces of time have no time of day.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::Api;
use tokio::process::Command;

use crate::{
    agent,
    clusters::{Cluster, process::told, wait_for},
    driver::Launch,
    rig::{DRIVER_NAMESPACE, LEASE, PATIENCE, PODS_NAMESPACE},
};

const SOURCE: &str = "tests/e2e/faults_real/clock.c";
const FILE: &str = "KOSMOS_CSI_AHEAD";
/// Between what a Lease says and now, in seconds.
const ROUGHLY: i64 = 60;

pub struct Clock {
    library: PathBuf,
    ahead: PathBuf,
}

impl Clock {
    /// It is right at first.
    pub async fn make(folder: &Path) -> Result<Self> {
        let clock = Self { library: folder.join("clock.so"), ahead: folder.join("ahead") };
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"]).arg(&clock.library);
        compiler.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(SOURCE));
        told(&compiler.output().await.context("run cc")?, "build a clock")?;
        fs::write(&clock.ahead, 0_i64.to_ne_bytes()).context("write how far the clock is ahead")?;
        Ok(clock)
    }

    /// Of a program that has it.
    pub fn launch(&self) -> Launch {
        let [library, ahead] = [&self.library, &self.ahead].map(|file| file.display().to_string());
        Launch { environment: vec![("LD_PRELOAD", library), (FILE, ahead)], ..Launch::default() }
    }

    /// In place: who has it in memory would not live through a shorter file.
    pub fn set(&self, seconds: i64) -> Result<()> {
        let file = File::options().write(true).open(&self.ahead).context("open what sets the clock")?;
        file.write_all_at(&seconds.to_ne_bytes(), 0).context("set the clock")
    }
}

/// Driver and agent say so in their Leases.
pub async fn is_felt(host: &Cluster, seconds: i64) -> Result<()> {
    for (namespace, name) in [(DRIVER_NAMESPACE, LEASE), (PODS_NAMESPACE, agent::ACCOUNT)] {
        let leases: Api<Lease> = Api::namespaced(host.client().await?, namespace);
        wait_for(&format!("the holder of Lease {name} has the clock that was set"), PATIENCE, || async {
            let renewed = leases.get(name).await?.spec.and_then(|spec| spec.renew_time);
            let ahead = renewed.context("it is renewed")?.0.as_second() - Timestamp::now().as_second();
            ensure!((ahead - seconds).abs() < ROUGHLY, "it was renewed {ahead} s from now");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn programs_have_the_clock_that_was_set() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::make(folder.path()).await.unwrap();
        for seconds in [0, 3_600, -3_600, 0] {
            clock.set(seconds).unwrap();
            let said = Command::new("date").arg("+%s").envs(clock.launch().environment).output().await.unwrap();
            let said: i64 = String::from_utf8(said.stdout).unwrap().trim().parse().unwrap();
            let ahead = said - Timestamp::now().as_second();
            assert!((ahead - seconds).abs() < ROUGHLY, "it is {ahead} s ahead, and not {seconds}");
        }
    }
}
