//! What is told of a pod whose copy somebody in the member has deleted, for as long as that is still there, as in a drain or on a
//! machine that is off. What the copy says meanwhile is not told: a pod that is stopped may end with code 0, and the host would take its
//! work for done.
//!
//! Of a copy whose labels somebody there has taken off, nothing that it says is told either: it is not known whose word that is.
//!
//! And of a pod that this host has deleted, whose copy does not end; and what a copy that is gone said of its end.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        cache::{Cached, Change},
        member_pod::MemberPod,
        node::{now, patch_of},
        object::{Place, is_leaving, short, text},
        view::HostCache,
    },
    COPIED, MUCH_LATER, Next, Pods,
    rejection::PodRejection,
    status::{condition, with},
};

/// In bytes: of a time, as a member says it.
const TIME: usize = 40;
/// How much longer a copy may take to end than it was given.
const LATE: Duration = Duration::from_mins(1);
/// In bytes: of what copies of one member have said of their end, and their pods do not say yet. A member says as much as it likes.
const ROOM: usize = 16 << 20;

#[derive(Debug, Default)]
pub(crate) struct Endings {
    /// Copies that this host has deleted, by their UIDs, and since when they are seen to end: whose clock is right nobody knows.
    since: Mutex<HashMap<Place, (String, Instant)>>,
    /// Copies that go, or are gone, and had ended by then, of pods that have not ended in the host. One that had ended before it was deleted is
    /// here as it was then.
    said: Mutex<HashMap<Place, Arc<MemberPod>>>,
}

impl Endings {
    /// How long a copy may still take.
    fn left(&self, there: &Value) -> Duration {
        let uid = text(there, "/metadata/uid");
        let grace = there["metadata"]["deletionGracePeriodSeconds"].as_u64().unwrap_or_default();
        let given = Duration::from_secs(u32::try_from(grace).unwrap_or(u32::MAX).into());
        let mut all = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, since) = all.entry(Place::of(there)).or_insert_with(|| (uid.to_owned(), Instant::now()));
        if *of != uid {
            (*of, *since) = (uid.to_owned(), Instant::now());
        }
        (given + LATE).saturating_sub(since.elapsed())
    }

    /// A kubelet tells the end of a pod in the moment in which it lets that go: the host may not have been told by then.
    pub(crate) fn note(&self, change: &Change<MemberPod>, view: &HostCache) {
        let is_awaited = |place: &Place, copy: &MemberPod| {
            let pod = view.pods.kept(place);
            pod.is_some_and(|pod| copy.copy_of() == Some(pod.uid()) && !pod.is_over())
        };
        let goes = change.after.as_ref().is_none_or(|after| after.is_leaving());
        let ended =
            change.before.as_ref().filter(|before| goes && before.is_over() && is_awaited(&change.place, before));
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ended) = ended {
            said.retain(|place, copy| is_awaited(place, copy));
            let taken: usize = said.values().map(|copy| copy.weight()).sum();
            if taken + ended.weight() <= ROOM {
                said.entry(change.place.clone()).or_insert_with(|| Arc::clone(ended));
            }
        } else if !goes {
            said.remove(&change.place);
        }
    }

    /// What the copy of this pod said last, which had ended and is gone.
    pub(super) fn said(&self, pod: &Value, host: &str) -> Option<Arc<Value>> {
        let place = Place::of(pod);
        let copy = self.said.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned()?;
        copy.is_copy_of(host, text(pod, "/metadata/uid")).then(|| MemberPod::read(&copy, &place))
    }

    pub(super) fn forget(&self, place: &Place) {
        self.since.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
        self.said.lock().unwrap_or_else(PoisonError::into_inner).remove(place);
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
    tell_why(pods, pod, &why(there, &pods.member.name)).await
}

/// `pod` and its copy were read just now. That the copy is gone, or has its labels again, a watch tells.
pub(super) async fn tell_of_labels(pods: &Pods<'_>, pod: &Value) -> kube::Result<Next> {
    tell_why(pods, pod, &PodRejection::without_labels(&Place::of(pod), &pods.member.name, &pods.host.id.0)).await
}

async fn tell_why(pods: &Pods<'_>, pod: &Value, why: &PodRejection) -> kube::Result<Next> {
    match change(pod, why, &now()) {
        Some(change) => pods.say(pod, change, why).await,
        None => Ok(Next::Settled),
    }
}

fn why(there: &Value, member: &str) -> PodRejection {
    let until = short(text(there, "/metadata/deletionTimestamp"), TIME);
    let message = format!(
        "the pod's copy in member {member} was deleted there, not by this host, and should be gone by {until}; then this pod fails, and its \
         controller creates another one. If the copy stays, for example because its machine is off, delete this pod: a Deployment \
         replaces it at once, a StatefulSet once the member's administrator has deleted the copy there with --force"
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
    use kube::runtime::watcher::Event;

    use super::{
        super::super::{
            HOST, MANAGED_BY,
            object::{is_over, parsed},
        },
        *,
    };
    use domain::volume::DRIVER;
    use leaf::ownership::COPY_OF;

    /// The copy of the pod `web`, as a watch tells it.
    fn copy(phase: &str, leaves: bool) -> Arc<MemberPod> {
        copy_that_says(&json!({"phase": phase}), leaves)
    }

    fn copy_that_says(status: &Value, leaves: bool) -> Arc<MemberPod> {
        let mut copy = json!({"metadata": {"namespace": "shop", "name": "web", "labels": {MANAGED_BY: DRIVER, HOST: "h"},
            "annotations": {COPY_OF: "u"}}, "status": status});
        if leaves {
            copy["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(MemberPod::of(&copy))
    }

    #[test]
    fn what_a_copy_said_of_its_end_is_known_when_it_is_gone_and_whether_it_had_ended_before_it_was_deleted() {
        let pod = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "u"}, "spec": {"nodeName": "kosmos-m"},
            "status": {"phase": "Running"}});
        let view = HostCache::default();
        view.pods.take(Event::Apply(parsed(pod.clone()).unwrap()), |_| true);
        let runs = ("Running", false);
        for (told, own) in [
            (vec![runs, ("Running", true), ("Succeeded", true)], Some(false)),
            // An API server says that it is deleted before it is gone.
            (vec![runs, ("Succeeded", false), ("Succeeded", true)], Some(true)),
            (vec![runs, ("Succeeded", false)], Some(true)),
            (vec![runs, ("Running", true)], None),
            (vec![runs], None),
        ] {
            let endings = Endings::default();
            let mut all: Vec<_> = told.iter().map(|(phase, leaves)| Some(copy(phase, *leaves))).collect();
            all.push(None);
            for pair in all.windows(2) {
                let place = Place::of(&pod);
                endings.note(&Change { place, before: pair[0].clone(), after: pair[1].clone() }, &view);
            }
            let said = endings.said(&pod, "h");
            assert_eq!(said.as_ref().map(|said| !is_leaving(said)), own, "{told:?}");
            assert!(said.is_none_or(|said| is_over(&said)), "{told:?}");
            let mut next = pod.clone();
            next["metadata"]["uid"] = json!("next");
            assert!(endings.said(&next, "h").is_none() && endings.said(&pod, "other").is_none());
            let again = Change { place: Place::of(&pod), before: None, after: Some(copy("Running", false)) };
            endings.note(&again, &view);
            assert!(endings.said(&pod, "h").is_none(), "another one runs");
        }
    }

    /// Their pods stay in the host for as long as it likes.
    #[test]
    fn what_copies_said_of_their_end_takes_no_more_than_its_room_and_none_once_their_pods_say_it() {
        let (view, endings) = (HostCache::default(), Endings::default());
        let pod = |name: &str| json!({"metadata": {"namespace": "shop", "name": name, "uid": "u"}});
        let tell = |name: &str, phase: &str| {
            let mut pod = pod(name);
            pod["status"]["phase"] = json!(phase);
            view.pods.take(Event::Apply(parsed(pod).unwrap()), |_| true);
        };
        let end = |name: &str| {
            tell(name, "Running");
            let said = copy_that_says(&json!({"phase": "Failed", "message": "x".repeat(ROOM / 2)}), false);
            endings.note(&Change { place: Place::of(&pod(name)), before: Some(said), after: None }, &view);
            endings.said(&pod(name), "h").is_some()
        };
        assert_eq!((end("a"), end("b"), end("a")), (true, false, true));
        tell("a", "Failed");
        assert_eq!((end("b"), endings.said(&pod("a"), "h").is_some()), (true, false));
    }

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
