//! Of several moves of one claim one is carried out.

use kube::ResourceExt;

use super::{VolumeMove, claim_of, is_held, is_over, list, name, phase_of};
use crate::Host;
use domain::error::{Error, Result};

/// Another move of the same claim, or of its volume under another claim, which has begun or comes first. Whoever asks holds his own by
/// then, so that others see it.
pub async fn rival(host: &Host, of: &VolumeMove, volume: Option<&str>) -> Result<Option<VolumeMove>> {
    let all = list(host).await?;
    Ok(first_before(of, &all, volume)?.cloned())
}

fn first_before<'a>(of: &VolumeMove, all: &'a [VolumeMove], volume: Option<&str>) -> Result<Option<&'a VolumeMove>> {
    let age = |one: &VolumeMove| (one.creation_timestamp().map(|made| made.0), one.uid());
    let is_first = |one: &VolumeMove| match phase_of(one) {
        // One that is held may still write.
        Some(_) => !is_over(one),
        None => age(one) < age(of),
    };
    let pinned = |one: &VolumeMove| Some(one.status.as_ref()?.volume.as_ref()?.name.clone());
    let is_of_same = |one: &VolumeMove| {
        claim_of(one) == claim_of(of) || pinned(one).is_some_and(|pinned| Some(pinned.as_str()) == volume)
    };
    let others: Vec<&VolumeMove> = all.iter().filter(|one| one.uid() != of.uid() && is_of_same(one)).collect();
    let first = others.iter().copied().find(|one| is_first(one));
    // Times of creation are those of seconds. It may have looked before this one was there, and begins then; else it is refused.
    let undecided = others.iter().find(|one| phase_of(one).is_none() && is_held(one));
    match (first, undecided) {
        (None, Some(other)) => Err(Error::InProgress(format!("the driver decides on {} first", name(other)))),
        (first, _) => Ok(first),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    const SECOND: &str = "2026-01-01T00:00:00Z";
    const NEXT: &str = "2026-01-01T00:00:01Z";

    /// Of one claim.
    fn asked(uid: &str, made: &str, is_held: bool, phase: Option<&str>) -> VolumeMove {
        let finalizers = if is_held { json!(["kosmos.csi.io/move"]) } else { json!([]) };
        let spec = json!({"claimName": "data", "to": {"member": "m1"}});
        from_value(json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": "VolumeMove",
            "metadata": {"namespace": "shop", "name": uid, "uid": uid, "creationTimestamp": made, "finalizers": finalizers},
            "spec": spec, "status": {"phase": phase}}))
        .unwrap()
    }

    fn before(of: &VolumeMove, other: VolumeMove) -> Result<Option<String>> {
        let all = [of.clone(), other];
        first_before(of, &all, None).map(|found| found.and_then(ResourceExt::uid))
    }

    #[test]
    fn move_that_has_begun_or_was_asked_for_before_comes_first() {
        let of = asked("b", SECOND, true, None);
        for (name, at, is_held, phase) in [
            ("a", SECOND, false, None),
            ("a", SECOND, true, None),
            ("z", "2025-12-31T23:59:59Z", true, None),
            ("z", NEXT, true, Some("Preparing")),
            ("z", NEXT, true, Some("Refused")),
        ] {
            let other = asked(name, at, is_held, phase);
            assert_eq!(before(&of, other.clone()), Ok(other.uid()));
        }
        assert_eq!(before(&of, asked("a", SECOND, false, Some("Succeeded"))), Ok(None));
    }

    /// By its UID it comes later, and was asked for before in the same second: it may not have seen this one.
    #[test]
    fn move_that_may_have_looked_before_another_was_asked_for_is_waited_for() {
        let of = asked("b", SECOND, true, None);
        assert!(matches!(before(&of, asked("c", SECOND, true, None)), Err(Error::InProgress(_))));
        assert_eq!(before(&of, asked("c", SECOND, false, None)), Ok(None), "it sees this one when it looks");
        assert_eq!(before(&of, asked("c", SECOND, true, Some("Preparing"))), Ok(Some("c".to_owned())));
    }
}
