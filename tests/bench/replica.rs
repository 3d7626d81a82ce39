//! A replica of the controller among simulated members, as a process.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use csi::v1::Volume;
use domain::volume::MEMBER_KEY;
use tokio::time::{sleep, timeout};

use super::{
    PATIENCE,
    measure::{Figures, PROCESSOR, RATE, closed_loop},
    metrics::Metrics,
    process::{megabytes, memory, open_files, processor_time},
    provisioner::{Host, HostClaim},
    subject::{Subject, Terms},
    world::World,
};

pub const SERVE_AFTER: &str = "members that are alive serve after (s)";
pub const MEMORY: &str = "memory (MB)";
pub const FILES: &str = "files and connections open";
/// After the start, before anything is measured.
pub const SETTLED: Duration = Duration::from_secs(20);
/// Between two looks at how many members serve.
const LOOK: Duration = Duration::from_millis(500);
pub const CALLERS: usize = 16;
pub const VOLUMES: usize = 1000;

pub struct Replica {
    pub role: &'static str,
    pub subject: Subject,
    pub metrics: Metrics,
}

impl Replica {
    /// Until so many members serve; and how that was. It is started by another command, where one is given, which becomes it.
    pub async fn start(world: &World, role: &'static str, serving: usize, by: Vec<String>) -> Result<(Self, Figures)> {
        let metrics = Metrics::at_a_free_port()?;
        let place = |name: &String| HashMap::from([(MEMBER_KEY.to_owned(), name.clone())]);
        let topology = world.names.iter().map(place).collect();
        let terms = Terms::own()?.of_replica(role, format!("--admin-address={}", metrics.address), topology);
        let terms = if by.is_empty() { terms } else { terms.by(by) };
        let begun = Instant::now();
        let mut subject = Subject::start(&terms, &world.place).await?;
        let all_serve = async {
            while !metrics.serving().await.is_ok_and(|now| now >= serving) {
                subject.lives()?;
                sleep(LOOK).await;
            }
            anyhow::Ok(())
        };
        timeout(PATIENCE, all_serve).await.with_context(|| format!("wait until {serving} members serve"))??;
        let took = begun.elapsed().as_secs_f64();
        println!("  {role}: {serving} members serve after {took:.1} s");
        let spent = processor_time(subject.id())?.as_secs_f64();
        let figures = vec![(SERVE_AFTER, took), ("processor seconds until then", spent)];
        Ok((Self { role, subject, metrics }, figures))
    }

    pub fn size(&self) -> Result<Figures> {
        let (now, most) = memory(self.subject.id())?;
        let files = open_files(self.subject.id())? as f64;
        Ok(vec![(MEMORY, megabytes(now)), ("most memory so far (MB)", megabytes(most)), (FILES, files)])
    }

    /// What it has used, and asked of members and of the host.
    pub async fn so_far(&self) -> Result<[f64; 3]> {
        let [members, host] = self.metrics.requests().await?;
        Ok([processor_time(self.subject.id())?.as_secs_f64(), members, host])
    }

    /// A thousand volumes over all members in turn, which go again. The tag is part of their claims' names.
    pub async fn volumes(&self, world: &World, tag: &str) -> Result<Figures> {
        let (host, subject) = (Host::new(&world.place.host()).await?, &self.subject);
        let claims = host.claims(tag, VOLUMES, &subject.driver).await?;
        let before = processor_time(subject.id())?;
        let made = closed_loop(CALLERS, VOLUMES, |number| {
            let claim = &claims[number];
            async move { Ok((claim, subject.create(claim).await?.0)) }
        });
        let made = made.await?;
        let used = processor_time(subject.id())?.saturating_sub(before).as_secs_f64();
        println!("  {tag}: {VOLUMES} volumes in {} members, {:.0} a second", world.names.len(), made.rate());
        let deleting = self.let_go(&host, &made.calls).await?.as_secs_f64();
        let per_thousand = 1000.0 / VOLUMES as f64;
        Ok(vec![
            (RATE, made.rate()),
            (PROCESSOR, used * per_thousand),
            ("processor seconds per 1000 deleted", deleting * per_thousand),
        ])
    }

    /// The host has these volumes, their claims go, and then they do. What the driver's deletions took of a processor.
    pub async fn let_go(&self, host: &Host, made: &[(&HostClaim, Volume)]) -> Result<Duration> {
        let subject = &self.subject;
        for (claim, volume) in made {
            host.volume(claim, &subject.driver, volume).await?;
        }
        let claims: Vec<HostClaim> = made.iter().map(|(claim, _)| HostClaim::clone(claim)).collect();
        host.release(&claims).await?;
        let before = processor_time(subject.id())?;
        closed_loop(CALLERS, made.len(), |number| subject.delete(&made[number].1.volume_id)).await?;
        let deleting = processor_time(subject.id())?.saturating_sub(before);
        host.remove(&claims).await?;
        Ok(deleting)
    }
}

/// One that leads and one that stands by, when all that a start brings with it is done.
pub async fn pair(world: &World) -> Result<[Replica; 2]> {
    let all = world.names.len();
    let (leader, _) = Replica::start(world, "leader", all, Vec::new()).await?;
    world.leads().await?;
    let (standby, _) = Replica::start(world, "standby", all, Vec::new()).await?;
    sleep(SETTLED).await;
    Ok([leader, standby])
}
