//! The whole chain, from a claim in the host to its being bound, beside the chain that the member has anyway. A measurement:
//! `make bench` runs it.
#![allow(clippy::print_stdout, reason = "a table for a person")]

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

use crate::{
    clusters::wait_for,
    objects::{Place, nothing_of_ours},
    pool::on_fleet,
    rig::{NOW, PATIENCE},
};

const NAMESPACE: &str = "chain";
const CLASS: &str = "chain";
const MEMBER: &str = "cluster38";
/// One after the other.
const ALONE: usize = 20;
const TOGETHER: usize = 100;
const ROUNDS: usize = 3;

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
async fn measure(place: &Place<'_>, class: &str, count: usize, at_once: usize) -> Result<(Duration, Duration)> {
    let mut times = Vec::new();
    let names: Vec<String> = (0..count).map(|number| format!("{}-{number}", place.cluster.name())).collect();
    for part in names.chunks(at_once) {
        times.extend(time(place, class, part).await?);
    }
    remove_all(place).await?;
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() - 1]))
}

#[test]
#[ignore = "a measurement, which `make bench` runs"]
fn chain_of_the_host_beside_that_of_its_member() {
    on_fleet("chain", async |rig| {
        let member = Place::new(rig.fleet.member(MEMBER), NAMESPACE).await?;
        let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
        host.class(CLASS, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        println!("\n{:<22}{:>14}{:>14}{:>12}{:>12}", "from claim to bound", "member alone", "host", "more", "times");
        for round in 0..=ROUNDS {
            for (what, count, at_once) in [("one by one", ALONE, 1), ("100 at once", TOGETHER, TOGETHER)] {
                let alone = measure(&member, NOW, count, at_once).await?;
                let whole = measure(&host, CLASS, count, at_once).await?;
                nothing_of_ours(member.cluster, NAMESPACE).await?;
                // The first round warms connections and caches.
                for (name, alone, whole) in [("middle", alone.0, whole.0), ("last", alone.1, whole.1)] {
                    if round > 0 {
                        let (more, times) = (whole.saturating_sub(alone), whole.as_secs_f64() / alone.as_secs_f64());
                        println!("{what:<14}{name:<8}{alone:>14.1?}{whole:>14.1?}{more:>12.1?}{times:>12.2}");
                    }
                }
            }
        }
        Ok(())
    });
}
