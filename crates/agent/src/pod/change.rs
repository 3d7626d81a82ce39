//! What is changed of a pod that runs is changed of its copy too, or the pod says why not.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::object::{self, Place, read, text},
    AGAIN, MUCH_LATER, Next, PATIENCE, Pods, ephemeral,
    given::{change, is_due, words},
    level::refused_namespace,
    refusal::refusal,
    rejection::PodRejection,
};
use cluster::with_causes;

/// Between two changes of one copy: some pods are marked again and again.
const APART: Duration = Duration::from_secs(5);
/// And after one that the member refused, or undid.
const REFUSED: Duration = Duration::from_mins(1);
/// What is said of a pod that asks for other resources, or whose containers do.
const RESIZED: &str =
    "it asks for other resources than before, which its copy in the member does not get: recreate the pod";
/// What the member does not take.
const CHANGED: &str = "what was changed of the pod";
/// And where it has put that back.
const UNDONE: &str = "what was changed of the pod: something there puts it back at once";

/// When copies may be changed again: whatever a member makes of them, it costs the host no more.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<HashMap<Place, Instant>>);

impl Turns {
    /// How long that is still to be waited for.
    pub(super) fn waits(&self, place: &Place) -> Option<Duration> {
        let until = self.all().get(place).copied()?;
        Some(until.saturating_duration_since(Instant::now())).filter(|wait| !wait.is_zero())
    }

    fn next(&self, place: &Place, after: Duration) {
        let (now, mut all) = (Instant::now(), self.all());
        if all.len() == all.capacity() {
            all.retain(|_, until| *until > now);
        }
        all.insert(place.clone(), now + after);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Place, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `looks`: how often the pod was looked at since.
pub(super) async fn pass_on(pods: &Pods<'_>, pod: &Value, there: &Value, looks: u32) -> kube::Result<Next> {
    let Some(change) = change(pod, there) else { return Ok(Next::Settled) };
    let (place, member) = (Place::of(pod), &pods.member.name);
    if let Some(why) = refused(pods, pod).await? {
        return Ok(wait(pods, pod, &why).await);
    }
    // Before the copy says that it was seen to.
    if change.is_resized {
        pods.warn(pod, &PodRejection::new("ResizeNotCopied", RESIZED)).await;
    }
    let patch = serde_json::from_value(change.patch.clone()).map_err(kube::Error::SerdeError)?;
    let copies = object::pods(pods.client, &place.namespace);
    match copies.patch(&place.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
        Ok(changed) => {
            if is_due(pod, &object::whole(changed)) {
                return Ok(wait(pods, pod, &PodRejection::of_member(member, UNDONE)).await);
            }
            tracing::info!(member, pod = %place, what = words(&change), "the copy is changed as its pod was");
            pods.turns.next(&place, APART);
            Ok(Next::Settled)
        }
        Err(kube::Error::Api(status)) if [400, 403, 422].contains(&status.code) => {
            let why = PodRejection::of_member(member, &format!("{CHANGED}: {}", status.message));
            Ok(wait(pods, pod, &why).await)
        }
        // It may have gone just then.
        Err(error) => {
            tracing::warn!(member, pod = %place, error = with_causes(&error), "the copy cannot be changed");
            if looks >= PATIENCE && !has_gone(&error) {
                // It may be the first time: who has a pod marked again and again has it looked at as often.
                let why = PodRejection::of_member(member, &format!("{CHANGED}: {}", with_causes(&error)));
                pods.warn(pod, &why).await;
            }
            pods.turns.next(&place, APART);
            Ok(Next::After(AGAIN))
        }
    }
}

/// The copy, or as it was when that was decided.
fn has_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [404, 409].contains(&status.code))
}

/// It may ask for more than it did, or its namespace take less.
async fn refused(pods: &Pods<'_>, pod: &Value) -> kube::Result<Option<PodRejection>> {
    let pod = ephemeral::without(pod);
    if let Some(why) = refusal(&pod, pods.here()) {
        return Ok(Some(why));
    }
    let namespace = read(&object::namespaces(pods.client), text(&pod, "/metadata/namespace")).await?;
    Ok(namespace.and_then(|namespace| refused_namespace(&pod, &namespace, pods.here())))
}

async fn wait(pods: &Pods<'_>, pod: &Value, why: &PodRejection) -> Next {
    pods.warn(pod, why).await;
    pods.turns.next(&Place::of(pod), REFUSED);
    Next::After(MUCH_LATER * 4)
}
