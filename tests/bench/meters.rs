//! Whose processor time is told: of who is measured, and of all that works for it.

use std::{path::Path, time::Duration};

use anyhow::Result;

use super::{
    MEMBER,
    measure::{Figures, PROCESSOR},
    process::{find, processor_time},
};

/// By what is said of them, the processes.
#[derive(Clone, Debug)]
pub struct Meters(Vec<(&'static str, Vec<u32>)>);

impl Meters {
    /// All but who is measured, in a fleet with this folder.
    pub fn of_fleet(fleet: &Path, binder: u32, way: Option<u32>) -> Result<Self> {
        let servers = |cluster: &str| -> Result<Vec<u32>> {
            let folder = fleet.join(cluster).display().to_string();
            Ok(vec![find("kube-apiserver", &format!("{folder}/"))?, find("etcd", &format!("{folder}/"))?])
        };
        let all = [
            ("… of the member's API server and etcd", servers(MEMBER)?),
            ("… of the host's API server and etcd", servers("host")?),
            ("… of the member's controllers", vec![binder]),
            ("… of the callers", vec![std::process::id()]),
        ];
        let way = way.map(|way| ("… of the long way", vec![way]));
        Ok(Self(all.into_iter().chain(way).collect()))
    }

    /// Who is measured comes first.
    pub fn with(&self, measured: u32) -> Self {
        Self([(PROCESSOR, vec![measured])].into_iter().chain(self.0.clone()).collect())
    }

    pub fn add(&mut self, what: &'static str, process: u32) {
        self.0.push((what, vec![process]));
    }

    pub fn read(&self) -> Result<Vec<Duration>> {
        self.0.iter().map(|(_, processes)| processes.iter().map(|process| processor_time(*process)).sum()).collect()
    }

    /// For each thousand of so many.
    pub fn spent(&self, before: &[Duration], of: usize) -> Result<Figures> {
        let now = self.read()?;
        let spent = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before).as_secs_f64());
        Ok(self.0.iter().zip(spent).map(|((what, _), spent)| (*what, spent * 1000.0 / of as f64)).collect())
    }
}
