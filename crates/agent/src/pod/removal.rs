//! Copies that are deleted in a member, and pods of the host whose copies have ended.

use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;

use super::{
    super::{
        node::{ignore_conflict, now},
        object::{self, Place, text},
    },
    AGAIN, MUCH_LATER, Next, Pods, elsewhere, failure,
    hold::is_refusal,
    status::{self, Source},
};
use cluster::with_causes;

pub(super) async fn of_copy(
    pods: &Pods<'_>,
    pod: Option<&Value>,
    there: &Value,
    grace: Option<u64>,
) -> kube::Result<Next> {
    let place = Place::of(there);
    if let Some(pod) = pod
        && elsewhere::may_be_its_own(pods, pod, there).await?
    {
        return Ok(Next::Settled);
    }
    tracing::info!(member = pods.member.name, pod = %place, "the agent deletes the pod's copy");
    let parameters =
        DeleteParams { grace_period_seconds: grace.and_then(|seconds| u32::try_from(seconds).ok()), ..with_uid(there) };
    let copies = object::pods(pods.client, &place.namespace);
    ignore_conflict(copies.delete(&place.name, &parameters).await.map(drop))?;
    Ok(Next::After(MUCH_LATER))
}

/// As a kubelet does once a pod's containers have ended.
pub(super) async fn of_pod(pods: &Pods<'_>, pod: &Value) -> kube::Result<Next> {
    let place = Place::of(pod);
    let is_held = object::items(pod, "/metadata/finalizers").next().is_some();
    if is_held && object::is_over(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0 {
        // It goes once nobody holds it any more.
        return Ok(Next::Settled);
    }
    tracing::info!(member = pods.member.name, pod = %place, "the pod has ended");
    if !object::is_over(pod) {
        if !tell_end(pods, pod, is_held).await? {
            return Ok(Next::After(AGAIN));
        }
        if is_held {
            return Ok(Next::Settled);
        }
    }
    let parameters = DeleteParams { grace_period_seconds: Some(0), ..with_uid(pod) };
    let there = object::pods(&pods.host.client, &place.namespace);
    ignore_conflict(there.delete(&place.name, &parameters).await.map(drop))?;
    Ok(Next::After(MUCH_LATER))
}

/// As its copy has told it, where that had come so far: whoever follows the pod reads it last. Else something is said only of one that is held:
/// whoever does that wants to know of its end before he lets it go. What the host does not take keeps no pod there. False: the pod has changed,
/// or gone, since it was seen.
async fn tell_end(pods: &Pods<'_>, pod: &Value, is_held: bool) -> kube::Result<bool> {
    if let Some(change) = told(pods, pod) {
        match pods.write(pod, change).await {
            Err(error) if !is_held || is_refusal(&error) => {
                let (member, pod, error) = (&pods.member.name, Place::of(pod), with_causes(&error));
                tracing::warn!(member, %pod, error, "the host does not take how the pod's copy has ended");
            }
            written => return written,
        }
    }
    if is_held { pods.write(pod, failure::terminated(pod, &now())).await } else { Ok(true) }
}

fn told(pods: &Pods<'_>, pod: &Value) -> Option<Value> {
    let said = pods.endings.said(pod, &pods.host.id.0)?;
    let networks = pods.member.policy().borrow().pod_networks.clone();
    status::mirrored(pod, &said, Source { member: &pods.member.name, networks: &networks }, &now())
}

/// This object and no other one of its name.
pub(super) fn with_uid(seen: &Value) -> DeleteParams {
    let uid = Some(text(seen, "/metadata/uid").to_owned());
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}
