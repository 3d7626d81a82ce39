//! Copies that end as soon as they are there, as where no kubelet of the member takes them, or something there deletes each. Whatever owns
//! their pods makes others at once, and without end: Kubernetes holds no ReplicaSet back whose pods fail.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::{
    super::object::{is_leaving, items, text},
    COPIED, Next, Pods, failure,
    hold::is_refusal,
    rejection::PodRejection,
};

/// One that was there for longer has not ended at once.
const SHORT: Duration = Duration::from_mins(1);

/// Why no other copy of the owner's pods is made now.
pub(super) fn refusal(pods: &Pods<'_>, pod: &Value) -> Option<PodRejection> {
    let owner = owner(pod).filter(|owner| !pods.short_lived.is_left(text(owner, "/uid")))?;
    let message = format!(
        "copies of pods of {} {} have ended in member {} again and again within a minute of being made, so the agent waits up to five \
         minutes before it makes the next one. `kubectl describe` of the pods that have failed says why",
        text(owner, "/kind"),
        text(owner, "/name"),
        pods.member.name
    );
    Some(PodRejection::new("BackOff", message))
}

/// Its copy is gone, and not by this host. What that had done by itself before it was deleted there counts, if the host takes it.
pub(super) async fn fail(pods: &Pods<'_>, pod: &Value) -> kube::Result<Next> {
    if let Some(said) = pods.endings.said(pod, &pods.host.id.0).filter(|said| !is_leaving(said)) {
        let told = pods.tell(pod, &said).await;
        if !told.as_ref().is_err_and(is_refusal) {
            return told;
        }
    }
    let next = pods.fail(pod, failure::deleted(&pods.member.name)).await?;
    note_end(pods, pod);
    Ok(next)
}

/// The pod has failed, and not by this host. Once it says so: what the host does not take is tried again, and each time the same pod would count.
pub(super) fn note_end(pods: &Pods<'_>, pod: &Value) {
    if let Some(owner) = owner(pod).filter(|_| was_short(pod, Timestamp::now())) {
        pods.short_lived.take(text(owner, "/uid"));
    }
}

/// What makes another pod where this one has failed. One whose containers are not started again may fail by itself, and a Job counts that.
fn owner(pod: &Value) -> Option<&Value> {
    let is_always = text(pod, "/spec/restartPolicy") != "Never";
    items(pod, "/metadata/ownerReferences").find(|owner| is_always && owner["controller"] == true)
}

/// Also where nothing was told of its copy before that had ended. One that this host deletes may end as failed.
fn was_short(pod: &Value, now: Timestamp) -> bool {
    if is_leaving(pod) {
        return false;
    }
    let copied = items(pod, "/status/conditions").find(|one| one["type"] == COPIED && one["status"] == "True");
    copied.is_none_or(|one| {
        let since = text(one, "/lastTransitionTime").parse::<Timestamp>();
        since.is_ok_and(|since| now.duration_since(since).unsigned_abs() < SHORT)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pod_that_nothing_replaces_or_that_may_fail_by_itself_has_no_owner_here() {
        let pod = |policy: &str, controller: bool| json!({"metadata": {"ownerReferences": [{"uid": "o", "controller": controller}]}, "spec": {"restartPolicy": policy}});
        for (policy, controller, is_owned) in
            [("Always", true, true), ("OnFailure", true, true), ("Never", true, false), ("Always", false, false)]
        {
            assert_eq!(owner(&pod(policy, controller)).is_some(), is_owned, "{policy} {controller}");
        }
        assert_eq!(owner(&json!({"spec": {"restartPolicy": "Always"}})), None);
    }

    #[test]
    fn copy_was_short_lived_that_was_told_of_less_than_a_minute_ago_or_never() {
        let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
        let copied = |status: &str, since: &str| json!({"status": {"conditions": [{"type": COPIED, "status": status, "lastTransitionTime": since}]}});
        for (pod, short) in [
            (copied("True", "2026-01-01T00:59:01Z"), true),
            (copied("True", "2026-01-01T00:59:00Z"), false),
            (copied("False", "2026-01-01T00:00:00Z"), true),
            (json!({}), true),
            (copied("True", "?"), false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:59:59Z"}}), false),
        ] {
            assert_eq!(was_short(&pod, now), short, "{pod}");
        }
    }
}
