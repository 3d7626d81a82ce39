//! What becomes of the source of a move that has succeeded, as its user has said, and as its condition tells.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::ResourceExt;

use super::{SOURCE_DELETED, StatusChange, VolumeMove, change, moves_in};
use crate::{Host, unread};
use domain::{
    error::{Error, Result},
    volume::moving::Phase,
};

/// Reasons of its condition.
pub const KEPT: &str = "Kept";
pub const DELETING: &str = "Deleting";
pub const DELETED: &str = "Deleted";
/// Somebody else has removed it.
pub const GONE: &str = "Gone";
/// The host was told that its member is gone for good, and asks nobody there any more.
pub const FORGOTTEN: &str = "MemberForgotten";
/// It is a leaf where it was before the move, as where its member was restored from a backup.
pub const BACK: &str = "Back";

/// Whether the time has passed for which its source was to be kept, and it is not seen to be gone yet.
pub fn source_is_due(of: &VolumeMove) -> bool {
    let has_passed = || source_is_kept_until(of).is_some_and(|due| due <= Timestamp::now() || is_not_to_be_kept(of));
    is_deleting_source(of) || of.metadata.deletion_timestamp.is_none() && has_passed()
}

/// Where it is not to be kept at all, no clock is asked: the one that told the end of the move may have been ahead.
fn is_not_to_be_kept(of: &VolumeMove) -> bool {
    of.spec.keeps_source_for().is_ok_and(|after| after.is_some_and(|after| after.is_zero()))
}

/// The clock by which it is due here may be days ahead. That of the host's API server has to say so as well, where anything tells that.
pub async fn is_due_in_host(host: &Host, of: &VolumeMove) -> Result<()> {
    let time = time_in(host, of).await?;
    time.and_then(|now| still_kept(of, now)).map_or(Ok(()), |why| Err(Error::Refused(why)))
}

/// The same of the clock that tells the end of a move: it may be days behind, and the source would be due at once by any other.
pub async fn succeeded(host: &Host, of: &VolumeMove) -> Result<StatusChange> {
    let time = time_in(host, of).await?;
    let here = Timestamp::now();
    Ok(change::succeeded(of, [here, time.unwrap_or(here)]))
}

async fn time_in(host: &Host, of: &VolumeMove) -> Result<Option<Timestamp>> {
    let (namespace, name) = (of.namespace().unwrap_or_default(), of.name_any());
    let time = cluster::time_of(&host.client, moves_in(host, &namespace).resource_url(), &name).await;
    time.map_err(|error| unread("ask for the time", &error))
}

fn still_kept(of: &VolumeMove, now: Timestamp) -> Option<String> {
    let until = source_is_kept_until(of).filter(|until| *until > now && !is_not_to_be_kept(of))?;
    Some(format!(
        "it is to be kept until {until:.0}, and by the clock of the host's API server that time has not passed: the \
         clock of the machine on which this replica runs is ahead. Set both clocks right"
    ))
}

/// Its member was told to: nobody can take that back.
pub fn is_deleting_source(of: &VolumeMove) -> bool {
    told_of_source(of).is_some_and(|told| told.reason == DELETING)
}

/// It is not in its member any more, as was seen there.
pub fn source_is_gone(of: &VolumeMove) -> bool {
    told_of_source(of).is_some_and(|told| told.status == "True")
}

/// It stays where nobody looks for it.
pub fn source_is_forgotten(of: &VolumeMove) -> bool {
    told_of_source(of).is_some_and(|told| told.reason == FORGOTTEN)
}

pub fn source_is_back(of: &VolumeMove) -> bool {
    told_of_source(of).is_some_and(|told| told.reason == BACK)
}

/// It is among what its member keeps, as far as is known.
pub fn source_is_kept(of: &VolumeMove) -> bool {
    !source_is_forgotten(of) && !source_is_back(of)
}

/// What it is in its member, for people; none before the move has begun.
pub fn source_in_words(of: &VolumeMove) -> Option<String> {
    let status = of.status.as_ref()?;
    let (source, from) = (status.source.as_ref()?, status.from.as_ref()?);
    Some(format!("volume {} of member {}", source.name, from.member))
}

/// What its condition says where its member is forgotten.
pub fn told_of_forgotten(of: &VolumeMove) -> String {
    let source = source_in_words(of).unwrap_or_else(|| "it".to_owned());
    format!("the source stays as it is, in a member that the host has forgotten: {source}")
}

fn told_of_source(of: &VolumeMove) -> Option<&Condition> {
    of.status.iter().flat_map(|status| &status.conditions).find(|one| one.type_ == SOURCE_DELETED)
}

fn source_is_kept_until(of: &VolumeMove) -> Option<Timestamp> {
    let status = of.status.as_ref().filter(|status| status.phase == Some(Phase::Succeeded))?;
    let after = of.spec.keeps_source_for().ok().flatten().filter(|_| !source_is_gone(of))?;
    status.completion_time.as_ref()?.0.checked_add(after).ok()
}

/// Whether it has succeeded longer ago than this.
pub fn has_succeeded_before(of: &VolumeMove, ago: Duration) -> bool {
    let since = of.status.as_ref().and_then(|status| status.completion_time.as_ref());
    since.is_some_and(|since| since.0.checked_add(ago).is_ok_and(|until| until < Timestamp::now()))
}

/// What becomes of the source of one that has succeeded, in words: it `is kept until` then.
pub fn fate_of_source(of: &VolumeMove) -> String {
    let told_now = |told: &Condition| told.message.trim_start_matches("the source ").to_owned();
    match (told_of_source(of), source_is_kept_until(of)) {
        (Some(told), _) if told.status == "True" => format!("is gone: {}", told.message),
        (Some(told), _) if told.reason == DELETING => format!("is being removed: {}", told.message),
        (Some(told), _) if told.reason == BACK => told_now(told),
        (Some(told), Some(until)) if told.reason == FORGOTTEN => {
            let now = told_now(told);
            format!("{now}; if that member is added again, the driver removes it with its data from {until:.0} on")
        }
        (Some(told), None) if told.reason == FORGOTTEN => told_now(told),
        (Some(told), Some(_)) if source_is_due(of) => told_now(told),
        (_, Some(until)) => format!("is kept until {until:.0}, and then removed with its data"),
        (_, None) => "is kept until somebody discards it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;

    fn succeeded(at: &str, after: Option<&str>, conditions: &[Value]) -> VolumeMove {
        let spec = json!({"claimName": "data", "to": {"member": "m1"}, "deleteSourceAfter": after});
        let status = json!({"phase": "Succeeded", "completionTime": at, "conditions": conditions});
        let metadata = json!({"name": "to", "namespace": "shop"});
        let kind = json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove", "metadata": metadata, "spec": spec, "status": status});
        serde_json::from_value(kind).unwrap()
    }

    #[test]
    fn move_has_succeeded_before_by_the_time_that_it_says() {
        let hour = Duration::from_hours(1);
        for (at, is_before) in [(Timestamp::now() - hour * 2, true), (Timestamp::now() - hour / 2, false)] {
            assert_eq!(has_succeeded_before(&succeeded(&at.to_string(), None, &[]), hour), is_before, "{at}");
        }
    }

    #[test]
    fn source_that_is_not_to_be_kept_is_due_whatever_the_clock_says() {
        let hour = Duration::from_hours(1);
        let [past, future] = [Timestamp::now() - hour, Timestamp::now() + hour].map(|at| at.to_string());
        for (at, after, is_due) in [
            (&past, Some("0s"), true),
            (&future, Some("0s"), true),
            (&past, Some("30m"), true),
            (&future, Some("30m"), false),
            (&past, Some("72h"), false),
            (&past, None, false),
        ] {
            assert_eq!(source_is_due(&succeeded(at, after, &[])), is_due, "{after:?} after {at}");
        }
    }

    #[test]
    fn source_is_kept_until_the_other_clock_has_come_there_too() {
        let at = "2026-01-01T00:00:00Z";
        let [before, then] = ["2026-01-03T23:59:59Z", "2026-01-04T00:00:00Z"].map(|now| now.parse().unwrap());
        let of = succeeded(at, Some("72h"), &[]);
        let why = still_kept(&of, before).unwrap();
        assert!(why.contains("until 2026-01-04T00:00:00Z"), "{why}");
        assert_eq!(still_kept(&of, then), None);
        assert_eq!(still_kept(&succeeded(at, Some("0s"), &[]), before), None, "it is not to be kept at all");
    }

    #[test]
    fn fate_of_a_source_in_a_member_that_is_forgotten_says_when_it_would_be_removed_all_the_same() {
        let of = |after| {
            let at = "2026-01-01T00:00:00Z";
            let told = json!({"type": SOURCE_DELETED, "status": "False", "reason": FORGOTTEN, "message": "the source stays as it is",
                "lastTransitionTime": at});
            succeeded(at, after, &[told])
        };
        assert_eq!(fate_of_source(&of(None)), "stays as it is");
        let fate = fate_of_source(&of(Some("72h")));
        assert!(fate.starts_with("stays as it is; ") && fate.ends_with("from 2026-01-04T00:00:00Z on"), "{fate}");
    }
}
