//! Leaves that may have been given out, as far as anybody can tell: their label was written, its answer was lost, and then
//! everybody forgot them; or they do not say for whom they were made. Nobody removes such a one by himself. It is told of, and a
//! person removes it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use csi::v1::DeleteVolumeRequest;
use domain::volume::{VolumeHash, VolumeId};
use serde_json::Value;
use simulate::text;
use tokio::time::sleep;

use crate::{
    bench::{Bench, lock},
    history::made_for,
};

/// Between two tries of the person.
const PAUSE: Duration = Duration::from_secs(10);
const TRIES: usize = 60;

/// Leaf claims that no volume of the host has, and no claim there waits for, each with its member and handle.
pub fn unknown(bench: &Bench) -> Vec<(usize, String, Arc<Value>)> {
    let volumes = bench.host.list("persistentvolumes");
    let claims = bench.host.list("persistentvolumeclaims");
    let is_in_host = |leaf: &Value, handle: &str| {
        let moved = leaf["metadata"]["annotations"]["kosmos.csi.io/handle"].as_str().unwrap_or(handle);
        // A claim that has a volume waits for none: its leaf is elsewhere, and this one came late.
        let is_awaited = |claim: &Arc<Value>| {
            made_for(leaf).ends_with(text(claim, "/metadata/uid")) && text(claim, "/spec/volumeName").is_empty()
        };
        let has = |volume: &Arc<Value>| [handle, moved].contains(&text(volume, "/spec/csi/volumeHandle"));
        volumes.iter().any(has) || claims.iter().any(is_awaited)
    };
    let stray = |at: usize, leaf: Arc<Value>| {
        let history = lock(&bench.guard.history);
        let hash = history.volume_of(&leaf).filter(|_| !history.was_planted(&leaf)).and_then(VolumeHash::parse)?;
        drop(history);
        let (namespace, name) = (text(&leaf, "/metadata/namespace"), text(&leaf, "/metadata/name"));
        let handle = VolumeId::new(bench.members[at].name(), namespace, name, hash).to_string();
        (!is_in_host(&leaf, &handle)).then_some((at, handle, leaf))
    };
    let leaves = |at: usize| bench.members[at].list("persistentvolumeclaims").into_iter().map(move |leaf| (at, leaf));
    (0..bench.members.len()).flat_map(leaves).filter_map(|(at, leaf)| stray(at, leaf)).collect()
}

/// As far as anybody can tell: what cannot is withdrawn.
pub fn may_be_given_out(bench: &Bench, at: usize, leaf: &Value) -> bool {
    let note = |key: &str| leaf["metadata"]["annotations"][format!("kosmos.csi.io/{key}")].as_str();
    let volume = bench.members[at].get("persistentvolumes", "", text(leaf, "/spec/volumeName"));
    let is_labelled = volume.as_ref().is_some_and(|volume| lock(&bench.guard.history).volume_of(volume).is_some());
    let is_deferred =
        note("request").is_some_and(|request| request.contains("deferred") && !request.contains("\"source\""));
    is_labelled || note("claim").is_none() || note("former").is_some() || is_deferred && volume.is_some()
}

/// Those of them that stay until a person removes them, each by its member and handle.
fn found(bench: &Bench) -> Vec<(usize, String)> {
    let mut unknown = unknown(bench);
    unknown.retain(|(at, _, leaf)| may_be_given_out(bench, *at, leaf));
    unknown.into_iter().map(|(at, handle, _)| (at, handle)).collect()
}

/// The person reads what the driver says, and has done away with what it names.
pub async fn are_told_and_removed(bench: &Bench) {
    let found = are_told(bench);
    remove_all(bench, found).await;
}

/// The driver has counted them all.
pub fn are_told(bench: &Bench) -> Vec<(usize, String)> {
    let found = found(bench);
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, _) in &found {
        *counts.entry(*at).or_default() += 1;
    }
    for (at, count) in counts {
        if told(bench, at) != Some(count) {
            bench
                .guard
                .report(format!("I1: m{at} has {count} leaves that no volume of the host has, and nobody is told"));
        }
    }
    found
}

/// The same for as long as users wait: somebody's snapshot may be held by such a leaf.
pub async fn are_removed_when_told(bench: &Bench, pause: Duration) {
    loop {
        sleep(pause).await;
        let found = found(bench).into_iter().filter(|(at, _)| told(bench, *at).is_some_and(|count| count > 0));
        remove_all(bench, found.collect()).await;
    }
}

/// How many the driver has counted in a member.
pub fn told(bench: &Bench, at: usize) -> Option<usize> {
    let metrics = bench.metrics();
    let key = format!("kosmos_csi_member_volumes{{member=\"m{at}\",state=\"stray\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&key)?.parse().ok())
}

async fn remove_all(bench: &Bench, found: Vec<(usize, String)>) {
    for (_, handle) in found {
        bench.guard.note(|| format!("a person removes {handle}, which no volume of the host has"));
        remove(bench, handle).await;
    }
}

async fn remove(bench: &Bench, handle: String) {
    for _ in 0..TRIES {
        let request = DeleteVolumeRequest { volume_id: handle.clone(), ..DeleteVolumeRequest::default() };
        if bench.delete(request).await.is_ok() {
            return;
        }
        sleep(PAUSE).await;
    }
}
