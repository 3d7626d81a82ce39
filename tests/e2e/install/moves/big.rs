//! Moves that carry so much that something can happen meanwhile: how fast they are, and members whose API servers go away.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use domain::volume::moving::Phase;
use futures::future::try_join_all;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{
    MOVED, NAMESPACE, POD, ask, begin, claim, end, nothing_is_lost, other_than, running, stops, waits_for_pods, writer,
};
use crate::clusters::{Cluster, Fleet, wait_for};

const MEBIBYTES: u32 = 1024;
const FILES: u32 = 5_000;
/// In members, of movers alone.
const YARD: &str = "kosmos-csi-movers";
/// Longer than every lease, and than most retries.
const AWAY: Duration = Duration::from_mins(1);
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// Whose API server goes away when the move has come to a phase, and until when.
#[derive(Clone, Copy, Debug)]
enum Outage {
    Source(Phase),
    Copy(Phase),
    /// It comes back when the pod has been seen to run in the other member.
    SourceUntilThePodRuns(Phase),
}

/// There and back, with nothing beside: what is carried in a second, from the phase until the copy is judged.
pub async fn much_data_moves(fleet: &Fleet) -> Result<()> {
    trips(fleet, &[None, None]).await
}

pub async fn members_go_away(fleet: &Fleet) -> Result<()> {
    let outages = [
        Outage::Source(Phase::Isolating),
        Outage::Source(Phase::Copying),
        Outage::Copy(Phase::Copying),
        Outage::Copy(Phase::Placing),
        Outage::Source(Phase::Finishing),
        Outage::SourceUntilThePodRuns(Phase::Switching),
    ];
    trips(fleet, &outages.map(Some)).await?;
    try_join_all(fleet.members().iter().map(Cluster::resume)).await.map(drop)
}

async fn trips(fleet: &Fleet, outages: &[Option<Outage>]) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    host.apply(&writer()).await?;
    let mut at = running(host, None).await?;
    let (sum, before) = (fill(host).await?, claim(host).await?);
    for (number, outage) in outages.iter().enumerate() {
        let to = other_than(&at);
        let name = format!("big-{number}");
        let acknowledged = trip(fleet, &name, (&at, to), *outage)
            .await
            .with_context(|| format!("{name}, {at} to {to}, {outage:?}"))?;
        nothing_is_lost(host, acknowledged).await?;
        ensure!(claim(host).await? == before && sum_of(host).await? == sum, "it is not what it was");
        to.clone_into(&mut at);
    }
    end(fleet, outages.len(), None).await
}

/// Nothing that could be packed, in one large file and many small ones; and what it is.
async fn fill(host: &Cluster) -> Result<String> {
    let large = format!("dd if=/dev/urandom of=/data/large bs=1M count={MEBIBYTES}");
    let small =
        format!("mkdir /data/small; cd /data/small; i=0; while [ $i -lt {FILES} ]; do echo $i >$i; i=$((i + 1)); done");
    host.kubectl(&["-n", NAMESPACE, "exec", POD, "--", "sh", "-c", &format!("{large}; {small}; sync")]).await?;
    sum_of(host).await
}

async fn sum_of(host: &Cluster) -> Result<String> {
    let sum = "cd /data; (sha256sum large; cat small/* | sha256sum; ls small | wc -l)";
    host.kubectl(&["-n", NAMESPACE, "exec", POD, "--", "sh", "-c", sum]).await
}

/// How many lines were acknowledged before the pod was gone.
async fn trip(fleet: &Fleet, name: &str, (from, to): (&str, &str), outage: Option<Outage>) -> Result<usize> {
    let host = fleet.host();
    ask(host, name, to).await?;
    waits_for_pods(host, name).await?;
    let (acknowledged, began) = stops(host).await?;
    let runs = async { running(host, Some(to)).await.map(|_| began.elapsed()) };
    // An attempt that a fault ends is not what is measured.
    let rates = async { if outage.is_none() { rates(host, name, fleet.member(to)).await.map(Some) } else { Ok(None) } };
    // Whatever fails, the member comes back.
    let (faulted, copied, runs, rates) =
        tokio::join!(faulted(fleet, name, (from, to), outage), copied(host, name), runs, rates);
    let ((), copied, down, rates) = (faulted?, copied?, runs?.as_secs_f64(), rates?);
    reached(host, name, Phase::Succeeded).await?;
    eprintln!(
        "{name}: {from} to {to}, {outage:?}: without a pod for {down:.1} s; copied and judged in {:.1} s, {}",
        copied.as_secs_f64(),
        progress(host, name).await?
    );
    if let Some([relay, judge]) = rates {
        eprintln!(
            "figure: {name}: {MEBIBYTES} MiB and {FILES} small files from {from} to {to}: relay {relay:.0} MB/s, judge {judge:.0} MB/s, \
             {down:.1} s without a pod"
        );
    }
    Ok(acknowledged)
}

/// A member goes away, if one is to, and comes back.
async fn faulted(fleet: &Fleet, name: &str, (from, to): (&str, &str), outage: Option<Outage>) -> Result<()> {
    let host = fleet.host();
    let (member, phase) = match outage {
        None => return Ok(()),
        Some(Outage::Source(phase) | Outage::SourceUntilThePodRuns(phase)) => (fleet.member(from), phase),
        Some(Outage::Copy(phase)) => (fleet.member(to), phase),
    };
    let seen = Box::pin(seen_in(host, name, phase)).await?;
    member.stop_api_server().await?;
    // Whatever fails, it comes back.
    let now = reached(host, name, phase).await;
    eprintln!("{name}: the API server of {} goes away in {seen:?}, and it is {now:?} then", member.name());
    let ended = if matches!(outage, Some(Outage::SourceUntilThePodRuns(_))) {
        running(host, Some(to)).await.map(drop)
    } else {
        sleep(AWAY).await;
        Ok(())
    };
    member.start_api_server().await?;
    let now = now?;
    ensure!(now < Phase::Succeeded, "it was over before that was away");
    ended
}

/// As soon as it has come to a phase, or past it, and carries something where it is to copy: some take less than a second.
async fn seen_in(host: &Cluster, name: &str, wanted: Phase) -> Result<Phase> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("kosmos.csi.io", "v1alpha1", "VolumeMove"));
    let moves: Api<DynamicObject> = Api::namespaced_with(host.client().await?, NAMESPACE, &kind);
    let seen = async {
        loop {
            let status = moves.get(name).await?.data["status"].clone();
            let phase: Option<Phase> = serde_json::from_value(status["phase"].clone()).ok();
            let carries =
                wanted != Phase::Copying || status["progress"]["bytes"].as_u64().is_some_and(|bytes| bytes > 0);
            if let Some(phase) = phase.filter(|phase| carries && (wanted..=Phase::Succeeded).contains(phase)) {
                return anyhow::Ok(phase);
            }
            sleep(BETWEEN_LOOKS).await;
        }
    };
    timeout(MOVED, seen).await.with_context(|| format!("{name} does not come to {wanted:?}"))?
}

/// How long it was copied and judged.
async fn copied(host: &Cluster, name: &str) -> Result<Duration> {
    reached(host, name, Phase::Copying).await?;
    let began = Instant::now();
    reached(host, name, Phase::Placing).await?;
    Ok(began.elapsed())
}

/// Waits until it has come to a phase, or past it.
pub(super) async fn reached(host: &Cluster, name: &str, wanted: Phase) -> Result<Phase> {
    let get = ["-n", NAMESPACE, "get", "volumemove", name, "-o"];
    wait_for(&format!("{name} is {wanted:?}"), MOVED, || async {
        let phase = host.kubectl(&[&get[..], &["jsonpath={.status.phase}"]].concat()).await?;
        let now: Option<Phase> = serde_json::from_value(json!(phase)).ok();
        let there = now.filter(|now| (wanted..=Phase::Succeeded).contains(now));
        ensure!(there.is_some(), "it is {phase:?}: {}", host.kubectl(&[&get[..], &["wide"]].concat()).await?);
        Ok(there)
    })
    .await
}

/// How many megabytes were carried in a second, and how many judged, by what the receiver has logged.
async fn rates(host: &Cluster, name: &str, to: &Cluster) -> Result<[f64; 2]> {
    reached(host, name, Phase::Copying).await?;
    let pods = to.kubectl(&["-n", YARD, "get", "pods", "-o", "name"]).await?;
    let receiver = pods.lines().find(|pod| pod.starts_with("pod/receive-"));
    let receiver = receiver.with_context(|| format!("{} has no receiver, but {pods:?}", to.name()))?;
    let log = to.kubectl(&["-n", YARD, "logs", "--follow", receiver]).await?;
    let at = |words: &str| {
        let line = log.lines().find(|line| line.contains(words));
        line.and_then(second_of_day).with_context(|| format!("no line says when {words:?}: {log}"))
    };
    let [copies, compares, ends] = [at("rsync copies")?, at("comparing source and copy")?, at("are the same")?];
    let megabytes = f64::from(MEBIBYTES) * 1.048_576;
    Ok([megabytes / (compares - copies), megabytes / (ends - compares)])
}

/// That a line of a log begins with.
fn second_of_day(line: &str) -> Option<f64> {
    let time = line.split(['T', 'Z']).nth(1)?;
    time.split(':').try_fold(0.0, |sum, part| Some(sum * 60.0 + part.parse::<f64>().ok()?))
}

async fn progress(host: &Cluster, name: &str) -> Result<String> {
    let words = "jsonpath={.status.progress.bytes} bytes at {.status.progress.bytesPerSecond} bytes a second";
    host.kubectl(&["-n", NAMESPACE, "get", "volumemove", name, "-o", words]).await
}
