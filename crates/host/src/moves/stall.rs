//! What stands in the way of a move, as its user is told in a condition of it, and since when.

use std::time::Duration;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};

use super::{GOES_ON, STALLED, VolumeMove, is_over};

/// What stands in its way, where something does.
pub fn stall(of: &VolumeMove) -> Option<&Condition> {
    let conditions = of.status.as_ref()?.conditions.iter();
    conditions.into_iter().find(|one| one.type_ == STALLED && one.status == "True").filter(|_| !is_over(of))
}

/// What is waited for, where nothing stands in its way.
pub fn awaited(of: &VolumeMove) -> Option<&str> {
    let mut conditions = of.status.as_ref()?.conditions.iter();
    let waits = conditions.find(|one| one.type_ == STALLED && one.status == "False")?;
    Some(waits.message.as_str()).filter(|message| *message != GOES_ON)
}

/// Since when it is stalled for this reason, as its user is told in these words; none where he is not. His message is the only place in which
/// that outlives a process: a condition's own time is that of its status, which may be stalled longer for another reason.
pub fn told_since(of: &VolumeMove, reason: &str, words: &str) -> Option<String> {
    let told = stall(of).filter(|stall| stall.reason == reason && stall.message.contains(words))?;
    Some(told.message.rsplit_once("(since ")?.1.split_once(')')?.0.to_owned())
}

/// For `(since …)`.
pub fn now_in_words() -> String {
    format!("{:.0}", Timestamp::now())
}

/// For how long.
pub(super) fn stalled_since(of: &VolumeMove) -> Option<Duration> {
    let since = stall(of)?.last_transition_time.0;
    Some(Timestamp::now().duration_since(since).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::moves::KIND;

    #[test]
    fn who_goes_on_tells_the_same_time_since_when_a_move_is_stalled() {
        let message = "member m0: no answer (since noon). `forget m0` ends it (since 2026-01-01T00:00:00Z). More";
        let stalled = json!([{"type": STALLED, "status": "True", "reason": "Silent", "message": message,
            "lastTransitionTime": "2026-01-01T00:01:00Z"}]);
        let spec = json!({"claimName": "data", "to": {"member": "m1"}});
        let of: VolumeMove = serde_json::from_value(json!({"apiVersion": "kosmos.csi.io/v1alpha1", "kind": KIND,
            "metadata": {"name": "to"}, "spec": spec, "status": {"phase": "Ready", "conditions": stalled}}))
        .unwrap();
        assert_eq!(told_since(&of, "Silent", "`forget m0`").as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!((told_since(&of, "Other", "`forget m0`"), told_since(&of, "Silent", "`forget m1`")), (None, None));
    }
}
