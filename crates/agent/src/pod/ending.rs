//! What is told of a pod whose copy somebody in the member has deleted, for as long as that is still there, as in a drain or on a
//! machine that is off. What the copy says meanwhile is not told: a pod that is stopped may end with code 0, and the host would take its
//! work for done.
//!
//! And of a pod that this host has deleted, whose copy does not end.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        node::{now, patch_of},
        object::{Place, is_leaving, short, text},
    },
    COPIED, MUCH_LATER, Next, Pods,
    rejection::PodRejection,
    status::{condition, with},
};

/// In bytes: of a time, as a member says it.
const TIME: usize = 40;
/// How much longer a copy may take to end than it was given.
const LATE: Duration = Duration::from_mins(1);

/// Copies that this host has deleted, by their UIDs, and since when they are seen to end: whose clock is right nobody knows.
#[derive(Debug, Default)]
pub(crate) struct Endings(Mutex<HashMap<Place, (String, Instant)>>);

impl Endings {
    /// How long a copy may still take.
    fn left(&self, there: &Value) -> Duration {
        let uid = text(there, "/metadata/uid");
        let grace = there["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default();
        let given = Duration::from_secs(u32::try_from(grace).unwrap_or(u32::MAX).into());
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, since) = all.entry(Place::of(there)).or_insert_with(|| (uid.to_owned(), Instant::now()));
        if *of != uid {
            (*of, *since) = (uid.to_owned(), Instant::now());
        }
        (given + LATE).saturating_sub(since.elapsed())
    }

    pub(super) fn forget(&self, place: &Place) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
    }
}

/// Has a pod that this host has deleted say that its copy stays. Until then it is looked at again.
pub(super) async fn wait(pods: &Pods<'_>, pod: &Value, there: &Value) -> Next {
    if !is_leaving(pod) || !is_leaving(there) {
        return Next::Settled;
    }
    let left = pods.endings.left(there);
    if left.is_zero() {
        pods.warn(pod, &PodRejection::not_ended(&pods.member.name)).await;
        return Next::Settled;
    }
    Next::After(left.min(MUCH_LATER * 4))
}

/// `pod` and `there` were read just now: the watches may not have told yet that it is this host that ends it.
pub(super) async fn tell(pods: &Pods<'_>, pod: &Value, there: &Value) -> kube::Result<Next> {
    let why = why(there, &pods.member.name);
    match change(pod, &why, &now()) {
        Some(change) => pods.say(pod, change, &why).await,
        None => Ok(Next::Settled),
    }
}

fn why(there: &Value, member: &str) -> PodRejection {
    let until = short(text(there, "/metadata/deletionTimestamp"), TIME);
    let message = format!(
        "its copy in member {member} was deleted there, and not by this host, and is to be gone by {until}; then this pod fails, and a \
         controller that owns it makes another one. If the copy stays, as on a machine that is off: delete this pod, and a Deployment \
         makes another one at once; a StatefulSet does once the member's administrator has deleted the copy there with --force"
    );
    PodRejection::new("EndingInMember", message)
}

/// The change by which the host says so; none where it does.
fn change(pod: &Value, why: &PodRejection, now: &str) -> Option<Value> {
    let says = |kind, holds| condition(pod, kind, holds, why.reason, &why.message, now);
    // That it had a copy is known by this when that is gone.
    let conditions = with(pod, vec![says("Ready", false), says("ContainersReady", false), says(COPIED, true)]);
    let is_new = pod["status"].get("conditions") != Some(&conditions);
    is_new.then(|| patch_of(pod, json!({"status": {"conditions": conditions}})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_whose_copy_is_ended_there_is_not_ready_and_says_why_once_and_nothing_else_of_it_changes() {
        let of = |kind: &str, status: &str| json!({"type": kind, "status": status, "lastTransitionTime": "0"});
        let conditions = [("PodScheduled", "True"), ("Ready", "True"), (COPIED, "True")].map(|(kind, so)| of(kind, so));
        let mut pod = json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"phase": "Running", "conditions": conditions}});
        let there =
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:30Z\n"}, "status": {"phase": "Succeeded"}});
        let change = |pod: &Value, now: &str| change(pod, &why(&there, "m"), now);
        let told = change(&pod, "1").unwrap();
        assert_eq!(told["metadata"], pod["metadata"]);
        assert_eq!(told["status"].as_object().unwrap().len(), 1, "nothing but conditions");
        pod["status"]["conditions"] = told["status"]["conditions"].clone();
        let said: Vec<String> = pod["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| ["/type", "/status", "/lastTransitionTime", "/reason"].map(|field| text(one, field)).join(" "))
            .collect();
        assert_eq!(
            said,
            [
                "PodScheduled True 0 ",
                "Ready False 1 EndingInMember",
                "kosmos.csi.io/Copied True 0 EndingInMember",
                "ContainersReady False 1 EndingInMember",
            ]
        );
        let message = text(&pod, "/status/conditions/2/message");
        assert!(message.contains("by 2026-01-01T00:00:30Z") && message.len() < 800, "{message}");
        assert_eq!(change(&pod, "2"), None);
    }
}
