//! One turn of one driver: it is started, makes so many volumes and deletes them, and ends. Nobody else's is up meanwhile, and
//! nothing is left of it for the next.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use csi::v1::Volume;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::ListParams};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinSet};

use super::{
    MEMBER, PATIENCE,
    clusters::{kubernetes, wait::Hopeless, wait_for},
    measure::{Figures, Load, OVER_BIND_LAST, OVER_BIND_MIDDLE, RATE, Run, TURN, closed_loop, percentile},
    meters::Meters,
    outside::ACCOUNT,
    process::{Apart, megabytes, memory, now, open_files, waited},
    provisioner::{Host, HostClaim},
    subject::{Place, Subject, Terms},
    told::Heard,
};

/// Made and deleted first, not counted: connections are open then, and caches filled.
const WARM: usize = 64;

/// What a driver has let go, a member's controllers remove in that time.
const LEFT: Duration = Duration::from_mins(1);

/// Ports of the fleet's own network, at which the ways to the member begin that take longer: this and the milliseconds.
const LONG_WAYS: u16 = 10_000;

/// In a cluster's folder: how its administrator knows it.
const ADMIN: &str = "admin-inside.kubeconfig";

/// One answer.
struct Made<'a> {
    claim: &'a HostClaim,
    volume: Volume,
    took: Duration,
    answered: Duration,
    /// How often it was asked for.
    asked: u32,
}

/// Where all take their turns.
pub struct Stage {
    pub place: Place,
    pub host: Host,
    pub meters: Meters,
    /// Of the member.
    volumes: Api<PersistentVolume>,
    heard: Heard,
    _apart: Vec<Apart>,
}

impl Stage {
    /// In a fleet with this folder, whose member is so many milliseconds away.
    pub async fn new(fleet: &Path, delay: u16) -> Result<Self> {
        let folder = fleet.join(format!("bench-{delay}"));
        let read = |cluster: &str, file: &str| {
            let path = fleet.join(cluster).join(file);
            fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
        };
        let (direct, mut apart) = (fleet.join(MEMBER).join(ADMIN), Vec::new());
        let (mut member, mut account) = (read(MEMBER, ADMIN)?, read(MEMBER, ACCOUNT)?);
        if delay > 0 {
            let (way, server) = lengthened(&member, delay).await?;
            apart.push(way);
            (member, account) = (leads_to(&member, &server)?, leads_to(&account, &server)?);
        }
        let place = Place::new(&folder, &read("host", ADMIN)?, &[(MEMBER, member)])?;
        place.of_accounts(&read("host", ACCOUNT)?, &[(MEMBER, account)])?;
        let told = folder.join("bound.told");
        // What an earlier binder has told there is not this one's.
        drop(fs::remove_file(&told));
        let mut binder = Apart::start([Path::new("bind"), &direct, &told])?;
        let heard = wait_for("the binder works", PATIENCE, || {
            let (ended, told) = (binder.ended(), &told);
            async move {
                if let Some(status) = ended? {
                    bail!(Hopeless(format!("the binder has ended, {status}")));
                }
                Heard::from(told).map(Some)
            }
        });
        let heard = heard.await?;
        let meters = Meters::of_fleet(fleet, binder.id(), apart.first().map(Apart::id))?;
        apart.push(binder);
        let volumes = Api::all(kubernetes::client(&direct).await?);
        Ok(Self { host: Host::new(&place.host()).await?, place, heard, meters, volumes, _apart: apart })
    }

    /// The tag is part of the names of all that is made.
    pub async fn turn(&mut self, terms: &Terms, load: Load, tag: &str) -> Result<Figures> {
        let begun = Instant::now();
        let subject = Subject::start(terms, &self.place).await?;
        let mut warming = self.host.claims(&format!("{tag}-first"), 1, &subject.driver).await?;
        for first in &warming {
            subject.serves(first).await?;
        }
        let started = begun.elapsed();
        warming.extend(self.host.claims(&format!("{tag}-warm"), WARM, &subject.driver).await?);
        self.make_and_delete(&subject, WARM, &warming).await?;
        let claims = self.host.claims(tag, load.volumes, &subject.driver).await?;
        let mut figures = self.make_and_delete(&subject, load.callers, &claims).await?;
        figures.push(("from its start to a first volume (s)", started.as_secs_f64()));
        figures.push(("left in the member", self.left().await? as f64));
        subject.stop().await?;
        figures.push((TURN, begun.elapsed().as_secs_f64()));
        Ok(figures)
    }

    /// How many volumes there are that nobody wants any more. They are given some time, so that who comes next finds none.
    async fn left(&self) -> Result<usize> {
        let all = ListParams::default();
        let gone = wait_for("the member has no volumes", LEFT, || async {
            Ok(self.volumes.list_metadata(&all).await?.items.is_empty().then_some(()))
        });
        Ok(if gone.await.is_ok() { 0 } else { self.volumes.list_metadata(&all).await?.items.len() })
    }

    async fn make_and_delete(&mut self, subject: &Subject, callers: usize, claims: &[HostClaim]) -> Result<Figures> {
        let meters = self.meters.with(subject.id());
        let (before, had_waited) = (meters.read()?, waited(subject.id())?);
        let (made, mut posted) = self.make(subject, callers, claims).await?;
        let mut figures = meters.spent(&before, claims.len())?;
        let waited = waited(subject.id())?.saturating_sub(had_waited);
        figures.push(("waited for a processor (s per 1000)", waited.as_secs_f64() * 1000.0 / claims.len() as f64));
        let (memory, most) = memory(subject.id())?;
        figures.push(("memory (MB)", megabytes(memory)));
        figures.push(("memory at most (MB)", megabytes(most)));
        figures.push(("open files", open_files(subject.id())? as f64));
        while let Some(done) = posted.join_next().await {
            done??;
        }
        figures.extend(self.answers(subject, &made).await?);
        self.host.release(claims).await?;
        let before = meters.read()?;
        let deleted = closed_loop(callers, made.calls.len(), |number| delete(subject, &made.calls[number])).await?;
        figures.push(("deletes a second", deleted.rate()));
        figures.push(("delete, p50 (ms)", milliseconds(percentile(deleted.calls.clone(), 50))));
        figures.push(("delete, p99 (ms)", milliseconds(percentile(deleted.calls, 99))));
        let spent = meters.spent(&before, claims.len())?;
        figures.extend(spent.first().map(|(_, itself)| ("processor seconds per 1000 deleted", *itself)));
        self.host.remove(claims).await?;
        Ok(figures)
    }

    /// The host has a volume of each answer, made beside the next calls.
    async fn make<'a>(
        &self,
        subject: &Subject,
        callers: usize,
        claims: &'a [HostClaim],
    ) -> Result<(Run<Made<'a>>, JoinSet<Result<()>>)> {
        let posted = Mutex::new(JoinSet::new());
        let made = closed_loop(callers, claims.len(), |number| {
            let (claim, posted) = (&claims[number], &posted);
            async move {
                let begun = Instant::now();
                let (volume, asked) = subject.create(claim).await?;
                let made = Made { claim, volume, took: begun.elapsed(), answered: now()?, asked };
                let (host, claim, driver) = (self.host.clone(), claim.clone(), subject.driver.clone());
                let volume = made.volume.clone();
                let post = async move { host.volume(&claim, &driver, &volume).await };
                posted.lock().unwrap_or_else(PoisonError::into_inner).spawn(post);
                Ok(made)
            }
        });
        let made = made.await?;
        Ok((made, posted.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }

    async fn answers(&mut self, subject: &Subject, made: &Run<Made<'_>>) -> Result<Figures> {
        let took: Vec<Duration> = made.calls.iter().map(|made| made.took).collect();
        let again: u32 = made.calls.iter().map(|made| made.asked - 1).sum();
        let mut figures = vec![
            (RATE, made.rate()),
            ("answered after, p50 (ms)", milliseconds(percentile(took.clone(), 50))),
            ("answered after, p99 (ms)", milliseconds(percentile(took, 99))),
            ("asked again", f64::from(again)),
        ];
        let leaves: Vec<String> = made.calls.iter().filter_map(|made| subject.leaf(made.claim)).collect();
        if leaves.is_empty() {
            return Ok(figures);
        }
        let bound = self.heard.of(&leaves).await?;
        let answered = made.calls.iter().map(|made| made.answered);
        let early = answered.clone().zip(&bound).filter(|(answered, bound)| answered < *bound).count();
        let over: Vec<Duration> = answered.zip(bound).map(|(answered, bound)| answered.saturating_sub(bound)).collect();
        figures.push((OVER_BIND_MIDDLE, milliseconds(percentile(over.clone(), 50))));
        figures.push((OVER_BIND_LAST, milliseconds(percentile(over, 99))));
        figures.push(("answered before the bind was told (%)", early as f64 * 100.0 / leaves.len() as f64));
        Ok(figures)
    }
}

/// A way to the server of this kubeconfig that takes so many milliseconds, there and back, and where it begins.
async fn lengthened(kubeconfig: &str, delay: u16) -> Result<(Apart, String)> {
    let kubeconfig: Value = serde_json::from_str(kubeconfig).context("read a kubeconfig")?;
    let server = kubeconfig["clusters"][0]["cluster"]["server"].as_str();
    let to = server.and_then(|server| server.strip_prefix("https://")).context("a kubeconfig has a server")?;
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, LONG_WAYS + delay));
    let way = Apart::start(["delay", &listen.to_string(), to, &delay.to_string()])?;
    wait_for("the long way is open", PATIENCE, || async { Ok(TcpStream::connect(listen).await.map(|_| Some(()))?) })
        .await?;
    Ok((way, format!("https://{listen}")))
}

fn leads_to(kubeconfig: &str, server: &str) -> Result<String> {
    let mut kubeconfig: Value = serde_json::from_str(kubeconfig).context("read a kubeconfig")?;
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(server);
    Ok(kubeconfig.to_string())
}

async fn delete(subject: &Subject, made: &Made<'_>) -> Result<Duration> {
    let begun = Instant::now();
    subject.delete(&made.volume.volume_id).await?;
    Ok(begun.elapsed())
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
