//! The same driver behind the real external-provisioner, which has its part of a processor as well: claims of the host that are made at
//! once, until each has its volume.

use std::{
    collections::HashSet,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::TryStreamExt;
use kube::ResourceExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::time::{sleep, timeout};

use super::{
    PATIENCE,
    again::answered,
    measure::{Figures, RATE, TURN},
    process::{Apart, megabytes, memory},
    provisioner::{Host, HostClaim},
    subject::{Subject, Terms},
    turn::Stage,
};

pub const CLAIMS: usize = 300;
const LOOK: Duration = Duration::from_millis(50);

/// What the chart gives it, but for what concerns several replicas, health and capacity.
const FLAGS: [&str; 7] = [
    "--kube-api-qps=200",
    "--kube-api-burst=400",
    "--timeout=60s",
    "--retry-interval-start=500ms",
    "--retry-interval-max=15s",
    "--extra-create-metadata",
    "--worker-threads=1000",
];

impl Stage {
    /// The program is external-provisioner's.
    pub async fn turn_behind(&self, program: &Path, terms: &Terms, tag: &str) -> Result<Figures> {
        let whole = Instant::now();
        let subject = Subject::start(terms, &self.place).await?;
        let first = self.host.claims(&format!("{tag}-first"), 1, &subject.driver).await?;
        let claim = first.first().context("a claim was made")?;
        let made = subject.serves(claim).await?;
        self.host.volume(claim, &subject.driver, &made).await?;
        self.host.release(&first).await?;
        subject.delete(&made.volume_id).await?;
        self.host.remove(&first).await?;
        self.host.class(&subject.driver, &subject.terms.parameters, &subject.terms.topology).await?;
        let sidecar = self.start_sidecar(program, &subject)?;
        // Once it has made one, it has read all that it goes by.
        let mut all = self.host.claims(&format!("{tag}-ready"), 1, &subject.driver).await?;
        all_have_volumes(&self.host, &all).await?;
        let mut meters = self.meters.with(subject.id());
        meters.add("… of external-provisioner", sidecar.id());
        let (before, begun) = (meters.read()?, Instant::now());
        let claims = self.host.claims(tag, CLAIMS, &subject.driver).await?;
        all_have_volumes(&self.host, &claims).await?;
        let mut figures = meters.spent(&before, CLAIMS)?;
        figures.push((RATE, CLAIMS as f64 / begun.elapsed().as_secs_f64()));
        figures.push(("memory of external-provisioner (MB)", megabytes(memory(sidecar.id())?.0)));
        all.extend(claims);
        self.host.bind(&all).await?;
        let begun = Instant::now();
        self.host.release(&all).await?;
        all_are_gone(&self.host, &all).await?;
        figures.push(("deletes a second", all.len() as f64 / begun.elapsed().as_secs_f64()));
        drop(sidecar);
        subject.stop().await?;
        figures.push((TURN, whole.elapsed().as_secs_f64()));
        Ok(figures)
    }

    fn start_sidecar(&self, program: &Path, subject: &Subject) -> Result<Apart> {
        let log = std::fs::File::create(self.place.folder.join("external-provisioner.log")).context("make a log")?;
        let mut command = Apart::command(program);
        command
            .arg(format!("--kubeconfig={}", self.place.host().display()))
            .arg(format!("--csi-address={}", subject.socket.display()))
            .args(FLAGS)
            // Lists are asked for plainly, as older API servers need it.
            .env("KUBE_FEATURE_WatchListClient", "false")
            .stdout(log.try_clone()?)
            .stderr(log);
        Apart::run(&mut command).with_context(|| format!("start {}", program.display()))
    }
}

async fn all_have_volumes(host: &Host, claims: &[HostClaim]) -> Result<()> {
    let mut missing: HashSet<String> = claims.iter().map(HostClaim::volume).collect();
    let volumes = host.of_volumes();
    let seen = async {
        while !missing.is_empty() {
            let mut events = std::pin::pin!(volumes.watch(&WatchParams::default(), "0").await?);
            while let Some(event) = events.try_next().await? {
                if let WatchEvent::Added(volume) | WatchEvent::Modified(volume) = event
                    && missing.remove(&volume.name_any())
                    && missing.is_empty()
                {
                    break;
                }
            }
        }
        anyhow::Ok(())
    };
    timeout(PATIENCE, seen).await.context("wait until all claims have volumes")?
}

/// Looked at as often as the time that is told has to be right.
async fn all_are_gone(host: &Host, claims: &[HostClaim]) -> Result<()> {
    let (volumes, all) = (host.of_volumes(), ListParams::default());
    let ours: HashSet<String> = claims.iter().map(HostClaim::volume).collect();
    let gone = async {
        loop {
            let left = answered(|| volumes.list_metadata(&all)).await?;
            if !left.items.iter().any(|volume| ours.contains(&volume.name_any())) {
                return anyhow::Ok(());
            }
            sleep(LOOK).await;
        }
    };
    timeout(PATIENCE, gone).await.context("wait until all volumes are gone from the host")?
}
