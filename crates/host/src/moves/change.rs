//! What is written of a move's status.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::PersistentVolume,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use serde_json::{Value, json};

use super::{GOES_ON, PROGRESSING, PinnedLeaf, PinnedVolume, Progress, SOURCE_DELETED, STALLED, Side, VolumeMove};
use crate::replacement::Replacing;
use domain::{
    printable::one_line,
    volume::moving::{Phase, Sum},
};

/// Characters of a condition: what members say is in it.
const MOST_SAID: usize = 4096;
const HAS_ENDED: &str = "it has ended";

/// What is to be written of a status.
#[derive(Debug)]
pub struct StatusChange(pub(super) Value);

/// Says of a move what stands in its way, or that nothing does.
pub fn condition(of: &VolumeMove, reason: &str, message: &str) -> StatusChange {
    StatusChange(json!({"conditions": conditions(of, reason, message)}))
}

fn conditions(of: &VolumeMove, reason: &str, message: &str) -> Vec<Condition> {
    with_condition(of, STALLED, reason != PROGRESSING, (reason, message))
}

/// All that it has, with this one as it is now.
fn with_condition(of: &VolumeMove, kind: &str, holds: bool, (reason, message): (&str, &str)) -> Vec<Condition> {
    let status = if holds { "True" } else { "False" };
    let there = of.status.iter().flat_map(|status| &status.conditions);
    let (before, others): (Vec<_>, Vec<_>) = there.cloned().partition(|one| one.type_ == kind);
    let since = before.into_iter().find(|before| before.status == status).map(|before| before.last_transition_time);
    let now = Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message: one_line(message).chars().take(MOST_SAID).collect(),
        last_transition_time: since.unwrap_or_else(|| Time(Timestamp::now())),
        observed_generation: of.metadata.generation,
    };
    others.into_iter().chain([now]).collect()
}

/// Whether the source is gone, and else why not. None: its condition says so already.
pub fn source_deleted(of: &VolumeMove, is_gone: bool, reason: &str, message: &str) -> Option<StatusChange> {
    let conditions = with_condition(of, SOURCE_DELETED, is_gone, (reason, message));
    let now = conditions.last()?;
    let is_same = |one: &Condition| {
        one.type_ == now.type_ && one.status == now.status && one.reason == now.reason && one.message == now.message
    };
    let mut before = of.status.iter().flat_map(|status| &status.conditions);
    (!before.any(is_same)).then(|| StatusChange(json!({"conditions": conditions})))
}

/// With all that it is about.
pub fn begun(of: &VolumeMove, volume: &PinnedVolume, [from, to]: [&Side; 2], source: &PinnedLeaf) -> StatusChange {
    let StatusChange(mut change) = phase(of, Phase::Preparing);
    change["volume"] = json!(volume);
    change["from"] = json!(from);
    change["to"] = json!(to);
    change["source"] = json!(source);
    change["attempt"] = json!(0);
    StatusChange(change)
}

pub fn refused(of: &VolumeMove, why: &str) -> StatusChange {
    StatusChange(json!({"phase": Phase::Refused, "conditions": conditions(of, "Refused", why)}))
}

/// What stood in its way, or was waited for, does and is not any more.
pub fn phase(of: &VolumeMove, phase: Phase) -> StatusChange {
    let mut change = json!({"phase": phase});
    if of.status.as_ref().is_some_and(|status| !status.conditions.is_empty()) {
        let message = if phase.is_over() { HAS_ENDED } else { GOES_ON };
        change["conditions"] = json!(conditions(of, PROGRESSING, message));
    }
    StatusChange(change)
}

/// From then on its source is kept for as long as its user has said. Either clock may be behind, and nobody knows which: the later one is gone by.
pub(super) fn succeeded(of: &VolumeMove, [here, in_host]: [Timestamp; 2]) -> StatusChange {
    let StatusChange(mut change) = phase(of, Phase::Succeeded);
    change["completionTime"] = json!(Time(here.max(in_host)));
    StatusChange(change)
}

/// With the copy's volume, which is made to stay by then.
pub fn prepared(of: &VolumeMove, copy: &PinnedLeaf) -> StatusChange {
    let StatusChange(mut change) = phase(of, Phase::Closing);
    change["copy"] = json!(copy);
    StatusChange(change)
}

pub fn attempt(attempt: u32) -> StatusChange {
    StatusChange(json!({"attempt": attempt}))
}

/// With a condition of what is waited for.
pub fn progress(of: &VolumeMove, progress: Progress, reason: &str, message: &str) -> StatusChange {
    StatusChange(json!({"progress": progress, "conditions": conditions(of, reason, message)}))
}

pub fn verified(sum: &Sum, progress: Option<Progress>) -> StatusChange {
    match progress {
        Some(progress) => StatusChange(json!({"verified": sum, "progress": progress})),
        None => StatusChange(json!({"verified": sum})),
    }
}

/// The one write that decides.
pub fn switching(of: &VolumeMove, replacing: &Replacing) -> StatusChange {
    let StatusChange(mut change) = phase(of, Phase::Switching);
    change["switch"] = json!(replacing.volume);
    StatusChange(change)
}

/// With what people have written on the former volume since.
pub fn switching_with(of: &VolumeMove, volume: &PersistentVolume) -> StatusChange {
    let before = of.status.as_ref().and_then(|status| status.switch.as_ref()).map(|volume| &volume.metadata);
    let now = &volume.metadata;
    let labels = in_place_of(before.and_then(|before| before.labels.as_ref()), now.labels.as_ref());
    let annotations = in_place_of(before.and_then(|before| before.annotations.as_ref()), now.annotations.as_ref());
    let metadata = json!({"labels": labels, "annotations": annotations, "finalizers": now.finalizers});
    let spec = volume.spec.as_ref();
    let options = spec.and_then(|spec| spec.mount_options.as_ref());
    let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy.as_ref());
    let spec = json!({"mountOptions": options, "persistentVolumeReclaimPolicy": policy});
    StatusChange(json!({"switch": {"metadata": metadata, "spec": spec}}))
}

/// As it is merged: a key that has gone has to be named.
fn in_place_of(before: Option<&BTreeMap<String, String>>, now: Option<&BTreeMap<String, String>>) -> Value {
    let Some(now) = now else { return Value::Null };
    let gone = before.into_iter().flatten().map(|(key, _)| (key.clone(), Value::Null));
    let there = now.iter().map(|(key, value)| (key.clone(), json!(value)));
    Value::Object(gone.chain(there).collect())
}
