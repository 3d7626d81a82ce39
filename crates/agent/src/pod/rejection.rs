//! Why a pod is not run in a member, in words for its user.

use kube::core::Status;

use super::{
    super::{
        HOST, MANAGED_BY,
        object::{Place, short},
    },
    bounds::line,
    names::Kind,
};
use cluster::{exceeds_quota, is_of_what_ends, with_causes};
use domain::volume::DRIVER;

/// In bytes; an event takes 1024.
const LONGEST: usize = 800;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodRejection {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl PodRejection {
    /// What somebody in the member has called something may be in it, and the host keeps it with the pod.
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: line(&message.into()) }
    }

    /// What a member answers is as long as it likes, and stands in the host's pod.
    pub(super) fn of_member(member: &str, what: &str, answer: &str) -> Self {
        Self::new("RefusedByMember", format!("member {member} does not take {what}: {}", short(answer, LONGEST)))
    }

    pub(super) fn pod_refused(member: &str, answer: &str) -> Self {
        Self::of_member(member, "the pod", answer)
    }

    /// Whose answer it is, the member's or the host's, nobody knows any more.
    pub(super) fn not_copied(member: &str, error: &kube::Error) -> Self {
        let why = words(error);
        Self::new("NotCopied", format!("the agent cannot copy the pod to member {member}, and tries again: {why}"))
    }

    pub(super) fn not_removed(member: &str, error: &kube::Error) -> Self {
        let why = words(error);
        Self::new(
            "NotRemoved",
            format!("the agent cannot delete the pod's copy in member {member}, and tries again: {why}"),
        )
    }

    /// As of another version of Kubernetes, which says what this host's takes for wrong.
    pub(super) fn not_told(member: &str, error: &kube::Error) -> Self {
        let why = words(error);
        Self::new(
            "NotTold",
            format!(
                "the host does not take the status that member {member} reports for the pod, and the agent tries again: {why}"
            ),
        )
    }

    /// The member has taken that, and nobody there has ended it.
    pub(super) fn not_ended(member: &str) -> Self {
        let message = format!(
            "the pod's copy in member {member} was deleted, but still exists after its grace period; this pod goes once the copy is gone. \
             If the copy's machine is off for good, the member's administrator deletes the copy there with --force; if a finalizer keeps it, \
             he removes that finalizer"
        );
        Self::new("NotRemoved", message)
    }

    /// Nobody is told to remove what runs: its user decides.
    pub(super) fn without_labels(copy: &Place, member: &str, host: &str) -> Self {
        let Place { namespace, name } = copy;
        let message = format!(
            "the pod's copy in member {member} still runs, but somebody there has changed its labels, so the agent neither reports its status nor \
             deletes it; this pod stays until the copy is gone. Either label the copy there again (`kubectl -n {namespace} label --overwrite pod \
             {name} {MANAGED_BY}={DRIVER} {HOST}={host}`), or delete it there"
        );
        Self::new("LabelsChanged", message)
    }

    /// A copy that is being ended has `what` this pod is to have.
    pub(super) fn of_former(reason: &'static str, former: &Place, member: &str, what: &str) -> Self {
        let message = format!(
            "pod {former} of member {member} still has the {what} of this pod. It is the copy of a pod that is gone or has ended in this host, \
             and is being ended; if its machine is off for good, the member's administrator deletes it there with --force"
        );
        Self::new(reason, message)
    }

    /// The same of one that the agent does not end, as somebody there has taken its labels off.
    pub(super) fn of_disowned(former: &Place, member: &str, what: &str) -> Self {
        let message = format!(
            "pod {former} of member {member} still has the {what} of this pod. It says that it is the copy of a pod that is gone or has ended in \
             this host, but somebody there has changed its labels, so the agent does not end it: the member's administrator deletes it there"
        );
        Self::new("WaitsForVolume", message)
    }

    /// The copy of a pod that is gone was asked for with a volume that this pod is to have, and no answer has come.
    pub(super) fn of_late(asked_for: &Place, member: &str, volume: &str) -> Self {
        let message = format!(
            "the agent had asked member {member} for a copy of pod {asked_for}, which is gone or has ended in this host, and that copy may \
             still be created and use volume {volume}. The agent knows half a minute after the member answers"
        );
        Self::new("WaitsForVolume", message)
    }
}

fn words(error: &kube::Error) -> String {
    short(&with_causes(error), LONGEST)
}

/// What is in the way is said to the user who waits, and nothing of what the cluster has said.
pub(super) fn denied<T>(
    error: kube::Error,
    kind: Kind,
    namespace: &str,
    cluster: &str,
) -> kube::Result<Result<T, PodRejection>> {
    match error {
        kube::Error::Api(status) => match of_object(&status, kind, namespace, cluster) {
            Some(why) => Ok(Err(why)),
            None => Err(kube::Error::Api(status)),
        },
        other => Err(other),
    }
}

/// None where an answer says nothing of the object that was asked for.
fn of_object(status: &Status, kind: Kind, namespace: &str, cluster: &str) -> Option<PodRejection> {
    let not_taken = format!("{cluster} does not take a {kind} in namespace {namespace}");
    Some(match status.code {
        403 if exceeds_quota(status) => {
            let advice =
                format!("free some of it, or raise it: `kubectl -n {namespace} describe resourcequota` there names it");
            PodRejection::new("QuotaExceeded", format!("{not_taken}, as a quota there is used up: {advice}"))
        }
        403 if is_of_what_ends(status) => {
            PodRejection::new("WaitsForObject", format!("{not_taken}, which is being deleted there"))
        }
        403 => {
            let message = format!(
                "{cluster} gives the agent no right to a {kind} of namespace {namespace}: bind its ClusterRole there, as \
                 deploy/manifests/virtual-node.yaml and deploy/member-virtual-node.yaml show"
            );
            PodRejection::new("NoRight", message)
        }
        400 | 409 | 422 => PodRejection::new("WaitsForObject", format!("{not_taken}: {}", status.reason)),
        _ => return None,
    })
}

/// A cluster that says something of a Secret may say what is in it.
pub(super) fn without_words(error: kube::Error) -> kube::Error {
    match error {
        kube::Error::Api(mut status) => {
            status.message = std::mem::take(&mut status.reason);
            kube::Error::Api(status)
        }
        kube::Error::SerdeError(_) => kube::Error::Service("its answer cannot be read".into()),
        other => other,
    }
}

/// Whose copies are looked at, and in which member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Here<'a> {
    pub(super) host: &'a str,
    pub(super) member: &'a str,
    /// Whether the host's administrator lets pods ask there for more than the level `baseline`.
    pub(super) privileged: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_cluster_answers_about_a_secret_is_told_by_its_code_and_reason_alone() {
        let status = serde_json::json!({"code": 500, "reason": "InternalError", "message": "data canary-4711 is bad"});
        let answer = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
        let unread = kube::Error::SerdeError(serde_json::from_str::<u8>("\"canary-4711\"").unwrap_err());
        for (error, words) in [(answer, "HTTP 500: InternalError"), (unread, "cannot be read")] {
            let why = PodRejection::not_copied("m", &without_words(error));
            assert!(why.message.contains(words) && !why.message.contains("canary"), "{}", why.message);
        }
    }

    /// Its administrator decides what the API server of a member says.
    #[test]
    fn why_a_pod_waits_is_told_in_a_short_line_whatever_its_member_answers() {
        let reason = format!("a\n\u{1b}[2J{}", "x".repeat(1 << 20));
        let status = serde_json::json!({"code": 409, "reason": reason});
        let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
        let why = denied::<()>(error, Kind::ConfigMap, "shop", "m").unwrap().unwrap_err();
        assert!(why.message.contains("in namespace shop: a \u{fffd}[2Jx"), "{why:?}");
        assert!(why.message.len() <= 4 << 10, "{}", why.message.len());
    }

    #[test]
    fn each_refusal_of_an_object_has_its_own_advice_and_no_message_of_a_cluster_is_passed_on() {
        let told = |code: u16, message: &str| {
            let status =
                serde_json::json!({"code": code, "reason": "Why", "message": format!("{message}: canary-4711")});
            let error = kube::Error::Api(Box::new(serde_json::from_value(status).unwrap()));
            let why = denied::<()>(error, Kind::Secret, "shop", "m").map(Result::unwrap_err).ok()?;
            assert!(!why.message.contains("canary"), "{}", why.message);
            Some((why.reason, why.message))
        };
        for (code, message, reason, words) in [
            (422, "data is bad", "WaitsForObject", "m does not take a Secret in namespace shop: Why"),
            (403, "no right", "NoRight", "bind its ClusterRole there"),
            (403, "exceeded quota", "QuotaExceeded", "describe resourcequota"),
            (403, "it is being terminated", "WaitsForObject", "is being deleted there"),
        ] {
            let (seen, said) = told(code, message).unwrap();
            assert!(seen == reason && said.contains(words), "{message}: {seen} {said}");
        }
        assert_eq!(told(500, "etcd"), None);
    }
}
