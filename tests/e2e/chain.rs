//! The whole chain, from a claim in the host to its being bound, beside the chain that the member has anyway. A measurement:
//! `make bench-chain` runs it.
#![allow(
    dead_code,
    clippy::cast_precision_loss,
    clippy::print_stdout,
    reason = "parts of the bench, which tells a person of small numbers"
)]

#[path = "../bench/conditions.rs"]
mod conditions;
#[path = "../bench/measure.rs"]
mod measure;
#[path = "../bench/report.rs"]
mod report;
#[path = "../bench/sheet.rs"]
mod sheet;

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use futures::{StreamExt, future::try_join_all};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, ResourceExt,
    api::ListParams,
    runtime::{
        WatchStreamExt,
        watcher::{self, watcher},
    },
};
use serde_json::json;

use self::{
    report::{Row, print},
    sheet::Sheet,
};
use crate::{
    clusters::{Fleet, guardian::profile_folder, wait_for},
    driver::Launch,
    objects::{Place, nothing_of_ours},
    pool::on_fleet,
    rig::{NOW, PATIENCE, Rig},
};

const NAMESPACE: &str = "chain";
const CLASS: &str = "chain";
const MEMBER: &str = "cluster38";
/// One after the other.
const ALONE: usize = 20;
const TOGETHER: usize = 100;
const ROUNDS: usize = 5;
const RESULTS: &str = "bench-chain.json";
const MIDDLE: &str = "bound after, middle (ms)";
const LAST: &str = "bound after, last (ms)";
const OF_MIDDLE: &str = "middle, times the member's own";
const OF_LAST: &str = "last, times the member's own";
const HOST: &str = "host";
/// How claims come, how many, and how many of them at once.
const LOADS: [(&str, usize, usize); 2] = [("one by one", ALONE, 1), ("100 at once", TOGETHER, TOGETHER)];
/// So many times as long as the member's own, at most.
const GOAL: f64 = 2.0;

const UNLIKE_LIFE: [&str; 3] = [
    "A host and two members with all their controllers, nodes and sidecars share the processors with the driver.",
    "etcd does not wait for the disk (--unsafe-no-fsync), and the API servers write an audit log without bodies.",
    "The member's storage is that of the tests, which makes a volume at once; claims bind without a pod.",
];

/// How long claims took from their creation until the cluster said that they are bound, shortest first.
async fn time(place: &Place<'_>, class: &str, names: &[String]) -> Result<Vec<Duration>> {
    let watched = Api::<PersistentVolumeClaim>::namespaced(place.client.clone(), &place.namespace);
    // An API server ends a watch when it likes.
    let claims = watcher(watched, watcher::Config::default()).default_backoff().applied_objects();
    let bound = async {
        let (mut claims, mut bound) = (std::pin::pin!(claims), HashMap::new());
        while bound.len() < names.len() {
            if let Ok(claim) = claims.next().await.context("the claims are followed for ever")?
                && names.contains(&claim.name_any())
                && claim.status.and_then(|status| status.phase).as_deref() == Some("Bound")
            {
                bound.entry(claim.metadata.name.unwrap_or_default()).or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(bound)
    };
    let making = try_join_all(names.iter().map(async |name| {
        let begun = Instant::now();
        place.claim(name, class).await?;
        anyhow::Ok((name, begun))
    }));
    let (begun, bound) = tokio::try_join!(making, async { tokio::time::timeout(PATIENCE, bound).await? })?;
    let mut times: Vec<Duration> = begun.iter().map(|(name, begun)| bound[*name].duration_since(*begun)).collect();
    times.sort_unstable();
    Ok(times)
}

async fn remove_all(place: &Place<'_>) -> Result<()> {
    let claims = place.claims().list(&ListParams::default()).await?;
    try_join_all(claims.iter().map(async |claim| place.delete_claim(&claim.name_any()).await)).await?;
    wait_for("all claims are gone", PATIENCE, || async {
        Ok(place.claims().list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
}

/// The middle one and the last.
async fn bound(place: &Place<'_>, class: &str, count: usize, at_once: usize) -> Result<(Duration, Duration)> {
    let mut times = Vec::new();
    let names: Vec<String> = (0..count).map(|number| format!("{}-{number}", place.cluster.name())).collect();
    for part in names.chunks(at_once) {
        times.extend(time(place, class, part).await?);
    }
    remove_all(place).await?;
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() - 1]))
}

/// In tests it says each of its steps, which takes time.
async fn logs_as_by_default(rig: &Rig) -> Result<()> {
    let environment = vec![("RUST_LOG", "warn,kosmos_csi=info,kube_client=off".to_owned())];
    rig.driver.launch_with(Launch { environment, ..Launch::default() }).await;
    rig.driver.kill().await?;
    rig.driver.ensure(&rig.fleet).await
}

/// What is kept of it at each round may be read where it is ended before.
fn begin(fleet: &Fleet) -> Result<Sheet> {
    let mut head = conditions::conditions(&UNLIKE_LIFE);
    let [api, etcd, provisioner] =
        ["kube-apiserver", "etcd", "csi-provisioner"].map(|binary| fleet.tools().version(binary).to_owned());
    head["servers"] = json!(format!("Kubernetes {api}, etcd {etcd}, external-provisioner {provisioner}"));
    Sheet::begin(&profile_folder()?.with_file_name(RESULTS), false, head, conditions::now())
}

fn note(sheet: &mut Sheet, load: &str, alone: (Duration, Duration), whole: (Duration, Duration)) {
    let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
    let figures = |times: (Duration, Duration)| vec![(MIDDLE, milliseconds(times.0)), (LAST, milliseconds(times.1))];
    let mut of_host = figures(whole);
    of_host.push((OF_MIDDLE, whole.0.as_secs_f64() / alone.0.as_secs_f64()));
    of_host.push((OF_LAST, whole.1.as_secs_f64() / alone.1.as_secs_f64()));
    println!("{load}: in the member alone {:.1?}, through the host {:.1?}", alone.0, whole.0);
    sheet.add(load, "member alone", &figures(alone));
    sheet.add(load, HOST, &of_host);
}

fn tell(sheet: &Sheet) {
    conditions::print(sheet.head());
    sheet.print();
    let goal = |(load, ..): (&'static str, usize, usize)| {
        Some(Row::at_most(format!("{load}: {OF_MIDDLE}"), Some(GOAL), sheet.middle(load, HOST, OF_MIDDLE)?))
    };
    print(&LOADS.into_iter().filter_map(goal).collect::<Vec<Row>>());
}

#[test]
#[ignore = "a measurement, which `make bench-chain` runs"]
fn chain_of_the_host_beside_that_of_its_member() {
    on_fleet("chain", async |rig| {
        let member = Place::new(rig.fleet.member(MEMBER), NAMESPACE).await?;
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        host.class(CLASS, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        logs_as_by_default(rig).await?;
        let mut sheet = begin(&rig.fleet)?;
        for round in 0..=ROUNDS {
            for (load, count, at_once) in LOADS {
                let alone = bound(&member, NOW, count, at_once).await?;
                let whole = bound(&host, CLASS, count, at_once).await?;
                nothing_of_ours(member.cluster, NAMESPACE).await?;
                // The first round warms connections and caches.
                if round > 0 {
                    note(&mut sheet, load, alone, whole);
                }
            }
            sheet.write()?;
        }
        tell(&sheet);
        Ok(())
    });
}
