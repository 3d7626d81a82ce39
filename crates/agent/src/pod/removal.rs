//! Copies that are deleted in a member, and pods of the host whose copies have ended.

use kube::api::{DeleteParams, Preconditions};
use serde_json::Value;

use super::{
    super::{
        node::{ignore_conflict, now},
        object::{self, Place, text},
    },
    MUCH_LATER, Next, Pods, elsewhere, failure,
    status::{self, Source},
};

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
    tracing::info!(member = pods.member.name, pod = %place, "the copy is deleted");
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
    if is_held && !object::is_over(pod) {
        // Whoever holds it wants to know that before he lets it go.
        return pods.write(pod, end(pods, pod)).await.map(|_| Next::Settled);
    }
    let parameters = DeleteParams { grace_period_seconds: Some(0), ..with_uid(pod) };
    let there = object::pods(&pods.host.client, &place.namespace);
    ignore_conflict(there.delete(&place.name, &parameters).await.map(drop))?;
    Ok(Next::After(MUCH_LATER))
}

/// As its copy has told it, where that had come so far.
fn end(pods: &Pods<'_>, pod: &Value) -> Value {
    let said = pods.endings.said(pod, &pods.host.id.0);
    let networks = pods.member.policy().borrow().pod_networks.clone();
    let who = Source { member: &pods.member.name, networks: &networks };
    let told = said.and_then(|said| status::mirrored(pod, &said, who, &now()));
    told.unwrap_or_else(|| failure::terminated(pod, &now()))
}

/// This object and no other one of its name.
pub(super) fn with_uid(seen: &Value) -> DeleteParams {
    let uid = Some(text(seen, "/metadata/uid").to_owned());
    DeleteParams { preconditions: Some(Preconditions { uid, resource_version: None }), ..DeleteParams::default() }
}
