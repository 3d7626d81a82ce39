//! A StatefulSet's volume moves between storage of two drivers, there and back five times, by the end of its pod alone: folders that are made
//! once a pod waits for them, and a CSI driver that makes volumes at once and has to attach them. What was photographed before a move is
//! restored where it was taken.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use domain::volume::moving::Phase;
use futures::future::try_join_all;
use kube::Api;
use serde_json::json;

use super::{
    CLAIM, MOVED, NAMESPACE, ask, begin,
    big::reached,
    claim, end,
    many::{claim_of, ended, pod},
    nothing_is_lost, other_than, photograph, running, said, stops,
    told::Told,
    waits_for_pods, writer,
};
use crate::{
    clusters::{AuditEntry, AuditMark, Cluster, Fleet, member_driver::DRIVER, wait_for},
    install::{release::PATIENCE, volumes::GROWING},
    lost::{MOST, lost_while},
};

const CLASS: &str = "two-drivers";
/// Its volumes are of the CSI driver; those of the other member are folders.
const WITH_CSI: &str = "cluster38";
/// There and back, five times.
const TRIPS: usize = 10;
const PHOTO: &str = "before-it-moves";
const RESTORED: &str = "restored";
/// With this the driver's accounts begin.
const OURS: &str = "system:serviceaccount:kosmos-csi:";
/// What goes on whether anything moves or not.
const BACKGROUND: [&str; 3] = ["leases", "csistoragecapacities", "resourcequotas"];

pub async fn storage_of_two_drivers(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    host.apply(&class()).await?;
    host.apply(&writer().replace("openebs-hostpath", CLASS)).await?;
    let mut at = running(host, None).await?;
    let (before, told) = (claim(host).await?, Told::begin(fleet).await?);
    is_held(fleet, &at).await?;
    let mut times_lost = 0;
    for number in 1..=TRIPS {
        let (name, to) = (format!("drivers-{number}"), other_than(&at));
        wait_for("it writes", PATIENCE, || async { Ok((said(host).await? > 0).then_some(())) }).await?;
        // One of the first two begins there.
        let photographed = if number <= 2 && at == WITH_CSI { Some(photo(host).await?) } else { None };
        let trip = Box::pin(goes(fleet, &name, to));
        let (down, lost) = lost_while(Api::namespaced(host.client().await?, NAMESPACE), CLAIM, trip).await?;
        eprintln!(
            "figure: {name}: {:.1} s from the end of the pod in {at} until one runs in {to}, with storage of another driver; its claim was \
             lost for {lost:?}",
            down.as_secs_f64()
        );
        ensure!(claim(host).await? == before, "the claim was {before:?}");
        ensure!(lost.iter().all(|time| *time <= MOST), "its claim was lost for {lost:?}");
        times_lost += lost.len();
        is_held(fleet, to).await?;
        if let Some(acknowledged) = photographed {
            is_restored(host, acknowledged).await?;
        }
        to.clone_into(&mut at);
    }
    ensure!(times_lost > 0, "nobody has seen that its claim was lost");
    told.nobody_deletes_it(host).await?;
    end(fleet, TRIPS, None).await?;
    told.has_seen_the_end(host).await?;
    host.kubectl(&["delete", "storageclass", CLASS]).await.map(drop)
}

fn class() -> String {
    let there = format!("leafStorageClass.{WITH_CSI}");
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "kosmos.csi.io", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        "parameters": {"leafStorageClass": "openebs-hostpath", there: GROWING}})
    .to_string()
}

/// For how long there was no pod.
async fn goes(fleet: &Fleet, name: &str, to: &str) -> Result<Duration> {
    let host = fleet.host();
    let (since, asked) = (marks(fleet).await?, Instant::now());
    ask(host, name, to).await?;
    waits_for_pods(host, name).await?;
    let (acknowledged, began) = stops(host).await?;
    running(host, Some(to)).await?;
    let down = began.elapsed();
    reached(host, name, Phase::Succeeded).await?;
    tell_of_requests(fleet, name, &since, asked.elapsed()).await?;
    nothing_is_lost(host, acknowledged).await?;
    Ok(down)
}

async fn marks(fleet: &Fleet) -> Result<Vec<AuditMark>> {
    try_join_all(fleet.clusters().map(Cluster::audit_mark)).await
}

/// Of the driver's, not of its sidecars and agents.
fn is_counted(entry: &AuditEntry) -> bool {
    let is_ours = entry.user.starts_with(OURS) && !entry.user.contains("virtual-node");
    let is_work = !entry.resource.is_empty() && !BACKGROUND.contains(&entry.resource.as_str());
    is_ours && is_work && entry.verb != "watch" && entry.subresource != "log" && !entry.user_agent.starts_with("csi-")
}

async fn tell_of_requests(fleet: &Fleet, name: &str, since: &[AuditMark], took: Duration) -> Result<()> {
    let mut told = Vec::new();
    for (cluster, since) in fleet.clusters().zip(since) {
        let entries = cluster.audit_since(*since).await?;
        told.push(format!("{} to {}", entries.iter().filter(|entry| is_counted(entry)).count(), cluster.name()));
    }
    eprintln!(
        "figure: requests of {name} by the audit logs, with what goes on beside in {:.0} s: {}",
        took.as_secs_f64(),
        told.join(", ")
    );
    Ok(())
}

/// The leaf is of that member's storage.
async fn is_held(fleet: &Fleet, member: &str) -> Result<()> {
    let cluster = fleet.member(member);
    let leaf = ["-n", NAMESPACE, "get", "pvc", CLAIM, "-o", "jsonpath={.spec.volumeName}"];
    let leaf = cluster.kubectl(&leaf).await?;
    let driver = cluster.kubectl(&["get", "pv", &leaf, "-o", "jsonpath={.spec.csi.driver}"]).await?;
    let expected = if member == WITH_CSI { DRIVER } else { "" };
    ensure!(driver == expected, "leaf volume {leaf} of {member} is of driver {driver:?}, and not of {expected:?}");
    Ok(())
}

/// What was acknowledged before it was taken.
async fn photo(host: &Cluster) -> Result<usize> {
    let acknowledged = said(host).await?;
    photograph(host, CLAIM, PHOTO).await?;
    Ok(acknowledged)
}

/// Though the volume is in the other member by now.
async fn is_restored(host: &Cluster, acknowledged: usize) -> Result<()> {
    let mut restored = claim_of(RESTORED, CLASS, "64Mi");
    restored["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": PHOTO});
    let reads = pod(RESTORED, WITH_CSI, &format!("head -n {acknowledged} /data/log | tail -n 1"));
    let items = [restored, reads];
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    let read = ended(host, RESTORED).await?;
    ensure!(read.trim() == acknowledged.to_string(), "line {acknowledged} of the restored volume is {read:?}");
    host.kubectl(&["-n", NAMESPACE, "delete", "pvc", RESTORED, "--timeout=90s"]).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "volumesnapshot", PHOTO, "--timeout=90s"]).await?;
    wait_for("the restored volume is gone", MOVED, || async {
        let left = host.kubectl(&["get", "pv", "-o", "jsonpath={.items[*].spec.claimRef.name}"]).await?;
        ensure!(!left.split_whitespace().any(|name| name == RESTORED), "{left}");
        Ok(Some(()))
    })
    .await
}
