//! Leaves that may have been given out, as far as anybody can tell: their label was written, its answer was lost, and then
//! everybody forgot them. Nobody removes such a one by himself. It is told of, and a person removes it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kosmos_csi::{
    csi::v1::DeleteVolumeRequest,
    volume::{VolumeHash, VolumeId},
};
use serde_json::Value;
use simulate::text;
use tokio::time::sleep;

use crate::{
    bench::{Bench, lock},
    history::made_for,
    invariants::{Story, lives},
};

/// Between two tries of the person.
const PAUSE: Duration = Duration::from_secs(10);
const TRIES: usize = 60;

/// Those that claims have left which are gone, each by its member and handle.
fn found(bench: &Bench, stories: &[Story]) -> Vec<(usize, String)> {
    // A deferred one is given out without a label, and of one that does not say for which claim it is nobody can tell.
    let untold = |story: &Story| story.caller.is_deferred() || !story.caller.script().told;
    let gone = stories.iter().filter(|story| !lives(story));
    let gone: BTreeMap<&str, bool> = gone.map(|story| (story.caller.volume(), untold(story))).collect();
    let is_stray = |at: usize, leaf: &Arc<Value>| {
        let volume = bench.members[at].get("persistentvolumes", "", text(leaf, "/spec/volumeName"));
        let history = lock(&bench.guard.history);
        let is_labelled = volume.as_ref().is_some_and(|volume| history.volume_of(volume).is_some());
        let may_be_given_out = |untold: &bool| is_labelled || *untold && volume.is_some();
        !history.was_planted(leaf) && gone.get(made_for(leaf)).is_some_and(may_be_given_out)
    };
    let handle = |at: usize, leaf: &Value| {
        let hash = lock(&bench.guard.history).volume_of(leaf).and_then(VolumeHash::parse)?;
        let (namespace, name) = (text(leaf, "/metadata/namespace"), text(leaf, "/metadata/name"));
        Some((at, VolumeId::new(bench.members[at].name(), namespace, name, hash).to_string()))
    };
    let members = 0..bench.members.len();
    let leaves = |at: usize| bench.members[at].list("persistentvolumeclaims").into_iter().map(move |leaf| (at, leaf));
    members
        .flat_map(leaves)
        .filter(|(at, leaf)| is_stray(*at, leaf))
        .filter_map(|(at, leaf)| handle(at, &leaf))
        .collect()
}

/// The person reads what the driver says, and has done away with what it names.
pub async fn are_told_and_removed(bench: &Bench, stories: &[Story]) {
    let found = found(bench, stories);
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, _) in &found {
        *counts.entry(*at).or_default() += 1;
    }
    for (at, count) in counts {
        let told = format!("kosmos_csi_member_volumes{{member=\"m{at}\",state=\"stray\"}} {count}\n");
        if !bench.metrics().contains(&told) {
            bench
                .guard
                .report(format!("I1: m{at} has {count} leaves that no volume of the host has, and nobody is told"));
        }
    }
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
