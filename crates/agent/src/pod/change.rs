//! What is changed of a pod that runs is changed of its copy too, or the pod says why not.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        node::{now, patch_of},
        object::{self, Objects, Place, items, read, text},
    },
    AGAIN, MUCH_LATER, Next, PATIENCE, Pods, ephemeral,
    given::{change, is_due, is_same, words},
    hold::is_refusal,
    level::refused_namespace,
    refusal::refusal,
    rejection::PodRejection,
    status::{condition, with},
};
use cluster::with_causes;

/// Between two changes of one copy: some pods are marked again and again.
const APART: Duration = Duration::from_secs(5);
/// And after one that the member refused, or undid.
const REFUSED: Duration = Duration::from_mins(1);
/// What is said of a pod that asks for other resources, or whose containers do.
const RESIZED: &str =
    "it asks for other resources than before, which its copy in the member does not get: recreate the pod";
/// As a kubelet says it of a pod that cannot have the resources which it asks for: a controller that resizes pods makes that one again, and a scheduler
/// counts what it has.
const PENDING: &str = "PodResizePending";
const INFEASIBLE: &str = "Infeasible";
/// What the member does not take.
const CHANGED: &str = "the change of the pod";
/// And where it has put that back.
const UNDONE: &str = "something there undoes it at once";

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
    if change.is_resized && !tell_resized(pods, pod, there).await? {
        return Ok(Next::After(AGAIN));
    }
    let patch = serde_json::from_value(change.patch.clone()).map_err(kube::Error::SerdeError)?;
    let copies = object::pods(pods.client, &place.namespace);
    match copies.patch(&place.name, &PatchParams::default(), &Patch::<()>::Json(patch)).await {
        Ok(changed) => {
            if is_due(pod, &object::whole(changed)) {
                return Ok(wait(pods, pod, &PodRejection::of_member(member, CHANGED, UNDONE)).await);
            }
            tracing::info!(member, pod = %place, what = words(&change), "the agent changed the pod's copy like the pod");
            pods.turns.next(&place, APART);
            Ok(Next::Settled)
        }
        Err(kube::Error::Api(status)) if [400, 403, 422].contains(&status.code) => {
            // So is a patch answered whose tests fail.
            if status.code == 422 && !is_as_seen(&copies, there).await? {
                pods.turns.next(&place, APART);
                return Ok(Next::After(AGAIN));
            }
            let why = PodRejection::of_member(member, CHANGED, &status.message);
            Ok(wait(pods, pod, &why).await)
        }
        // It may have gone just then.
        Err(error) => {
            tracing::warn!(member, pod = %place, error = with_causes(&error), "the agent cannot change the pod's copy");
            if looks >= PATIENCE && !has_gone(&error) {
                // It may be the first time: who has a pod marked again and again has it looked at as often.
                let why = PodRejection::of_member(member, CHANGED, &with_causes(&error));
                pods.warn(pod, &why).await;
            }
            pods.turns.next(&place, APART);
            Ok(Next::After(AGAIN))
        }
    }
}

/// False: the pod has changed, or gone, since it was seen. A host that does not take it keeps nothing else of the change back.
async fn tell_resized(pods: &Pods<'_>, pod: &Value, there: &Value) -> kube::Result<bool> {
    if let Some(change) = resized(pod, there, &now()) {
        match pods.write(pod, change).await {
            Ok(true) => {}
            Err(error) if is_refusal(&error) => {}
            unwritten => return unwritten,
        }
    }
    if !has_all(pod, there) {
        pods.warn(pod, &PodRejection::new("ResizeNotCopied", RESIZED)).await;
    }
    Ok(true)
}

/// The change by which it is said, or taken back where the pod asks again for what its copy has; none where it is so.
fn resized(pod: &Value, there: &Value, now: &str) -> Option<Value> {
    let said = || items(pod, "/status/conditions").filter(|one| one["type"] == PENDING && one["message"] == RESIZED);
    let conditions: Value = if has_all(pod, there) {
        said().next()?;
        items(pod, "/status/conditions").filter(|one| said().all(|said| said != *one)).cloned().collect()
    } else {
        with(pod, vec![condition(pod, PENDING, true, INFEASIBLE, RESIZED, now)])
    };
    (pod["status"].get("conditions") != Some(&conditions))
        .then(|| patch_of(pod, json!({"status": {"conditions": conditions}})))
}

/// A member may have given the copy others from the beginning: then it stays said.
fn has_all(pod: &Value, there: &Value) -> bool {
    let given = |list: &str, wanted: &Value| {
        let container = items(there, list).find(|one| one["name"] == wanted["name"]);
        container.is_some_and(|one| one["resources"] == wanted["resources"])
    };
    let in_list = |list: &&str| items(pod, list).all(|one| given(list, one));
    ["/spec/initContainers", "/spec/containers"].iter().all(in_list)
        && pod["spec"].get("resources") == there["spec"].get("resources")
}

/// The copy, or as it was when that was decided.
fn has_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if [404, 409].contains(&status.code))
}

/// An earlier change of which no answer came may have been made since: nobody in the member refuses anything then.
async fn is_as_seen(copies: &Objects, there: &Value) -> kube::Result<bool> {
    let copy = read(copies, text(there, "/metadata/name")).await?;
    Ok(copy.is_some_and(|copy| is_same(&copy, there)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(cpu: &str, conditions: &Value) -> Value {
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "status": {"conditions": conditions},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}, {"name": "d"}]}})
    }

    #[test]
    fn pod_that_asks_for_what_its_copy_has_not_says_so_until_it_asks_for_that_again() {
        let scheduled = json!({"type": "PodScheduled", "status": "True"});
        let (small, copy) = (pod("1", &json!([scheduled])), pod("1", &json!([])));
        assert_eq!(resized(&small, &copy, "1"), None);
        let large = pod("2", &json!([scheduled]));
        let told = resized(&large, &copy, "1").unwrap();
        assert_eq!(told["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        let conditions = &told["status"]["conditions"];
        assert_eq!((&conditions[0], text(conditions, "/1/type")), (&scheduled, "PodResizePending"));
        assert_eq!((text(conditions, "/1/status"), text(conditions, "/1/reason")), ("True", "Infeasible"));
        assert_eq!(resized(&pod("2", conditions), &copy, "2"), None, "it is told once");
        let back = resized(&pod("1", conditions), &copy, "2").unwrap();
        assert_eq!(back["status"]["conditions"], json!([scheduled]));
        let of_kubelet = json!([{"type": "PodResizePending", "status": "True", "reason": "Deferred", "message": "m"}]);
        assert_eq!(resized(&pod("1", &of_kubelet), &copy, "2"), None, "what the member says of its copy stays");
    }

    #[test]
    fn pod_as_a_whole_has_what_it_asks_for_where_its_copy_asks_for_the_same() {
        let (mut asks, mut copy) = (pod("1", &json!([])), pod("1", &json!([])));
        asks["spec"]["resources"] = json!({"requests": {"cpu": "4"}});
        assert!(!has_all(&asks, &copy));
        copy["spec"]["resources"] = asks["spec"]["resources"].clone();
        assert!(has_all(&asks, &copy));
        copy["spec"]["containers"] = json!([]);
        assert!(!has_all(&asks, &copy));
    }
}
