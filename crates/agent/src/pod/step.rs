//! What to do about a pod of the host and the pod of that name in the member. Pure.

use serde_json::Value;

use super::{
    super::{
        HOST, MANAGED_BY,
        host_pod::had_copy,
        object::{Place, is_leaving, is_over, mark, text, way_out},
    },
    ephemeral, given,
    refusal::{refusal, refused_length, refused_number},
    rejection::{Here, PodRejection},
};
use domain::volume::DRIVER;
pub(crate) use leaf::ownership::COPY_OF;

/// In seconds. With none a member forgets a pod at once, while its containers run on; a kubelet never gives less.
const LEAST_GRACE: u64 = 1;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PodStep {
    Nothing,
    Copy,
    /// It is not run there, and why.
    Refuse(PodRejection),
    /// The copy goes, with this grace or its own.
    RemoveCopy(Option<u64>),
    /// The copy is gone, so the pod that was to end has ended.
    EndPod,
    /// Somebody in the member has deleted the copy, and it is there still.
    TellOfEnd,
    /// Somebody in the member has taken the labels off the copy, which runs on.
    TellOfLabels,
    /// It is gone.
    FailPod,
    /// An ephemeral container of the pod is not in its copy.
    AddContainer,
    /// The pod was changed since its copy was made.
    Change,
    Tell,
}

impl PodStep {
    /// Without what it is about.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Nothing => "Nothing",
            Self::Copy => "Copy",
            Self::Refuse(_) => "Refuse",
            Self::RemoveCopy(_) => "RemoveCopy",
            Self::EndPod => "EndPod",
            Self::TellOfEnd => "TellOfEnd",
            Self::TellOfLabels => "TellOfLabels",
            Self::FailPod => "FailPod",
            Self::AddContainer => "AddContainer",
            Self::Change => "Change",
            Self::Tell => "Tell",
        }
    }
}

/// The UID of the host's pod that a member's pod is a copy of; none where it is not one of ours.
pub(super) fn copy_of<'a>(there: &'a Value, host: &str) -> Option<&'a str> {
    let ours = mark(there, "labels", MANAGED_BY) == DRIVER && mark(there, "labels", HOST) == host;
    Some(mark(there, "annotations", COPY_OF)).filter(|uid| ours && !uid.is_empty())
}

/// Whether what has no labels of a copy says that it is this pod's all the same, and may write on its volumes.
fn is_disowned(there: &Value, pod: &Value) -> bool {
    let of = mark(there, "annotations", COPY_OF);
    !of.is_empty() && of == text(pod, "/metadata/uid") && !is_over(there)
}

fn waits(pod: &Value) -> bool {
    !is_leaving(pod) && !is_over(pod) && !had_copy(pod)
}

/// `served`: whether the pod is bound to a virtual node of ours for this member.
pub(super) fn step(pod: Option<&Value>, served: bool, there: Option<&Value>, here: Here<'_>) -> PodStep {
    let of = there.and_then(|there| copy_of(there, here.host));
    match (pod, there, of) {
        (Some(pod), Some(there), Some(of)) if text(pod, "/metadata/uid") == of => match with_copy(pod, there) {
            // Whoever makes pods in a member can write any pod's UID on them.
            PodStep::Tell | PodStep::TellOfEnd | PodStep::AddContainer | PodStep::Change if !served => PodStep::Nothing,
            step => step,
        },
        (pod, Some(there), Some(_)) => match (remove(there, None), pod) {
            (PodStep::Nothing, Some(pod)) if served && waits(pod) => {
                let former = Place::of(there);
                PodStep::Refuse(PodRejection::of_former("NameTaken", &former, here.member, "name"))
            }
            (step, _) => step,
        },
        (Some(pod), there, _) if served => without_copy(pod, there, here),
        _ => PodStep::Nothing,
    }
}

fn seconds(object: &Value, pointer: &str) -> Option<u64> {
    object.pointer(pointer).and_then(Value::as_u64)
}

fn with_copy(pod: &Value, there: &Value) -> PodStep {
    if is_leaving(pod) {
        let grace = seconds(pod, "/metadata/deletionGracePeriodSeconds").map(|grace| grace.max(LEAST_GRACE));
        return remove(there, grace);
    }
    // Not of what it says of its end: the host would take a pod that was stopped for one that has done its work.
    if is_leaving(there) && !is_over(pod) {
        return PodStep::TellOfEnd;
    }
    // What has ended in the host does not begin again.
    let same = text(pod, "/status/phase") == text(there, "/status/phase");
    match is_over(pod) {
        true if !same && !is_over(there) => remove(there, None),
        true if !same => PodStep::Nothing,
        false if !ephemeral::missing(pod, there).is_empty() => PodStep::AddContainer,
        false if given::is_due(pod, there) => PodStep::Change,
        _ => PodStep::Tell,
    }
}

/// A copy that goes already is told of, and hurried where the host is in a hurry.
fn remove(there: &Value, grace: Option<u64>) -> PodStep {
    let now = seconds(there, "/metadata/deletionGracePeriodSeconds");
    let has_none = seconds(there, "/spec/terminationGracePeriodSeconds") == Some(0);
    match (is_leaving(there), grace, now) {
        (true, Some(grace), Some(now)) if grace < now => PodStep::RemoveCopy(Some(grace)),
        (true, Some(_), _) => PodStep::Tell,
        (true, None, _) => PodStep::Nothing,
        (false, None, _) if has_none => PodStep::RemoveCopy(Some(LEAST_GRACE)),
        (false, ..) => PodStep::RemoveCopy(grace),
    }
}

fn without_copy(pod: &Value, there: Option<&Value>, here: Here<'_>) -> PodStep {
    let is_disowned = there.is_some_and(|there| is_disowned(there, pod));
    if is_leaving(pod) {
        return if is_disowned { PodStep::TellOfLabels } else { PodStep::EndPod };
    }
    if is_over(pod) {
        return PodStep::Nothing;
    }
    if had_copy(pod) {
        return if is_disowned { PodStep::TellOfLabels } else { PodStep::FailPod };
    }
    if let Some(refusal) = refusal(pod, here).or_else(|| refused_number(pod)).or_else(|| refused_length(pod)) {
        return PodStep::Refuse(refusal);
    }
    if let Some(there) = there {
        let message = format!(
            "member {} already has a pod {} that is not the copy of this pod: {}",
            here.member,
            Place::of(pod),
            way_out(there, here.host)
        );
        return PodStep::Refuse(PodRejection::new("NameTaken", message));
    }
    PodStep::Copy
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::COPIED, *};

    const HERE: Here<'static> = Here { host: "h", member: "m", privileged: false };

    fn pod(uid: &str, grace: Option<u64>, phase: &str) -> Value {
        let gone = grace.map(|_| "2026-01-01T00:00:00Z");
        json!({
            "metadata": {"uid": uid, "namespace": "shop", "name": "p", "deletionTimestamp": gone,
                "deletionGracePeriodSeconds": grace},
            "status": {"phase": phase},
        })
    }

    fn copied(mut pod: Value) -> Value {
        pod["status"]["conditions"] = json!([{"type": COPIED, "status": "True"}]);
        pod
    }

    fn copy(of: &str, grace: Option<u64>, phase: &str) -> Value {
        let mut copy = pod("c", grace, phase);
        copy["metadata"]["annotations"] = json!({COPY_OF: of});
        copy["metadata"]["labels"] = json!({MANAGED_BY: DRIVER, HOST: "h"});
        copy
    }

    #[test]
    fn pod_and_copy_come_and_go_together() {
        let (new, living) = (pod("u", None, "Pending"), copied(pod("u", None, "Running")));
        let (leaving, over) = (copied(pod("u", Some(30), "Running")), copied(pod("u", None, "Failed")));
        let unseen_leaving = pod("u", Some(30), "Pending");
        let (ours, going, former) =
            (copy("u", None, "Running"), copy("u", Some(30), "Running"), copy("old", None, "Running"));
        let slowly = copy("u", Some(300), "Running");
        let done = copy("u", None, "Succeeded");
        let foreign = pod("x", None, "Running");
        let debug = |mut pod: Value| {
            pod["spec"]["ephemeralContainers"] = json!([{"name": "debugger"}]);
            pod
        };
        let (debugged, debugged_over, debugged_leaving) =
            (debug(living.clone()), debug(over.clone()), debug(leaving.clone()));
        let mut of_other_host = copy("u", None, "Running");
        of_other_host["metadata"]["labels"][HOST] = json!("other");
        let mut of_the_driver = copy("u", None, "Running");
        of_the_driver["metadata"]["annotations"] = Value::Null;
        for (name, pod, there, expected) in [
            ("new", Some(&new), None, PodStep::Copy),
            ("running", Some(&living), Some(&ours), PodStep::Tell),
            ("not yet told", Some(&new), Some(&ours), PodStep::Tell),
            ("copy deleted", Some(&living), None, PodStep::FailPod),
            ("copy replaced", Some(&living), Some(&foreign), PodStep::FailPod),
            ("copy being deleted", Some(&living), Some(&going), PodStep::TellOfEnd),
            ("ended", Some(&over), None, PodStep::Nothing),
            ("ended otherwise", Some(&over), Some(&done), PodStep::Nothing),
            ("ended in the host alone", Some(&over), Some(&ours), PodStep::RemoveCopy(None)),
            ("former copy", Some(&new), Some(&former), PodStep::RemoveCopy(None)),
            ("former copy, told", Some(&living), Some(&former), PodStep::RemoveCopy(None)),
            ("pod deleted", Some(&leaving), Some(&ours), PodStep::RemoveCopy(Some(30))),
            ("on its way", Some(&leaving), Some(&going), PodStep::Tell),
            ("in a hurry", Some(&leaving), Some(&slowly), PodStep::RemoveCopy(Some(30))),
            ("gone", Some(&leaving), None, PodStep::EndPod),
            ("gone unseen", Some(&unseen_leaving), None, PodStep::EndPod),
            ("foreign in its place", Some(&leaving), Some(&foreign), PodStep::EndPod),
            ("orphan", None, Some(&ours), PodStep::RemoveCopy(None)),
            ("orphan going", None, Some(&going), PodStep::Nothing),
            ("stranger", None, Some(&foreign), PodStep::Nothing),
            ("another host's", None, Some(&of_other_host), PodStep::Nothing),
            ("debugged", Some(&debugged), Some(&ours), PodStep::AddContainer),
            ("debugged, and ended", Some(&debugged_over), Some(&done), PodStep::Nothing),
            ("debugged, and deleted", Some(&debugged_leaving), Some(&ours), PodStep::RemoveCopy(Some(30))),
            ("debugged, its copy being deleted", Some(&debugged), Some(&going), PodStep::TellOfEnd),
            ("a consumer of a claim", None, Some(&of_the_driver), PodStep::Nothing),
        ] {
            assert_eq!(step(pod, true, there, HERE), expected, "{name}");
        }
        for (there, words) in [
            (&foreign, "Remove it there, or"),
            (&of_other_host, "it belongs to another host cluster (other), so give yours another name"),
            (&of_the_driver, "Remove it there, or"),
        ] {
            let PodStep::Refuse(refusal) = step(Some(&new), true, Some(there), HERE) else { panic!("{there}") };
            assert!(refusal.reason == "NameTaken" && refusal.message.contains(words), "{refusal:?}");
            assert_eq!(refusal.message.contains("Remove"), words.contains("Remove"), "{refusal:?}");
        }
    }

    /// It runs, and writes on its volumes: the next pod of a StatefulSet would do so as well.
    #[test]
    fn pod_whose_copy_has_lost_its_labels_has_neither_failed_nor_ended_before_that_has() {
        let without = |label: &str, phase: &str| {
            let mut there = copy("u", None, phase);
            there["metadata"]["labels"][label] = json!("Helm");
            there
        };
        let (living, leaving) = (copied(pod("u", None, "Running")), copied(pod("u", Some(30), "Running")));
        let over = copied(pod("u", None, "Failed"));
        for label in [MANAGED_BY, HOST] {
            for (pod, phase, expected) in [
                (&living, "Running", PodStep::TellOfLabels),
                (&leaving, "Running", PodStep::TellOfLabels),
                (&over, "Running", PodStep::Nothing),
                (&living, "Succeeded", PodStep::FailPod),
                (&leaving, "Failed", PodStep::EndPod),
                (&copied(self::pod("other", None, "Running")), "Running", PodStep::FailPod),
            ] {
                let there = without(label, phase);
                assert_eq!(step(Some(pod), true, Some(&there), HERE), expected, "{pod} {there}");
            }
        }
        let unlabelled = without(MANAGED_BY, "Running");
        assert_eq!(step(Some(&living), false, Some(&unlabelled), HERE), PodStep::Nothing, "it is of another node");
        assert_eq!(step(None, true, Some(&unlabelled), HERE), PodStep::Nothing, "nothing without labels is touched");
    }

    #[test]
    fn copy_always_has_time_to_end_whatever_its_pod_is_given() {
        let (forced, hurried) = (copied(pod("u", Some(0), "Running")), copied(pod("u", Some(1), "Running")));
        let (ours, going, last) =
            (copy("u", None, "Running"), copy("u", Some(30), "Running"), copy("u", Some(1), "Running"));
        let mut given_none = ours.clone();
        given_none["spec"]["terminationGracePeriodSeconds"] = json!(0);
        for (name, pod, there, expected) in [
            ("by force", Some(&forced), &ours, PodStep::RemoveCopy(Some(1))),
            ("by force, its copy on its way", Some(&forced), &going, PodStep::RemoveCopy(Some(1))),
            ("by force, its copy in its last second", Some(&forced), &last, PodStep::Tell),
            ("a second", Some(&hurried), &ours, PodStep::RemoveCopy(Some(1))),
            ("orphan without time of its own", None, &given_none, PodStep::RemoveCopy(Some(1))),
        ] {
            assert_eq!(step(pod, true, Some(there), HERE), expected, "{name}");
        }
    }

    #[test]
    fn pod_waits_for_the_end_of_a_former_one_of_its_name_and_says_so() {
        let (new, former) = (pod("u", None, "Pending"), copy("old", None, "Running"));
        assert_eq!(step(Some(&new), true, Some(&former), HERE), PodStep::RemoveCopy(None));
        let going = copy("old", Some(30), "Running");
        let PodStep::Refuse(refusal) = step(Some(&new), true, Some(&going), HERE) else { panic!("without a word") };
        assert_eq!(refusal.reason, "NameTaken");
        assert!(
            refusal.message.starts_with("pod shop/p of member m still has the name of this pod"),
            "{}",
            refusal.message
        );
        // Of what it says, that it had a copy is not to be lost.
        let (living, over) = (copied(pod("u", None, "Running")), copied(pod("u", None, "Failed")));
        for (pod, served) in [(&new, false), (&living, true), (&over, true), (&pod("u", Some(30), "Pending"), true)] {
            assert_eq!(step(Some(pod), served, Some(&going), HERE), PodStep::Nothing, "{pod}");
        }
    }

    #[test]
    fn pod_that_names_too_many_objects_is_refused_only_where_it_has_no_copy_yet() {
        let mut many = pod("u", None, "Pending");
        let names = (0..201).map(|number| json!({"secretRef": {"name": format!("n{number}")}}));
        many["spec"]["containers"] = json!([{"envFrom": names.collect::<Vec<_>>()}]);
        let PodStep::Refuse(refusal) = step(Some(&many), true, None, HERE) else { panic!("it is copied") };
        assert_eq!(refusal.reason, "TooManyObjects");
        assert_eq!(step(Some(&many), true, Some(&copy("u", None, "Running")), HERE), PodStep::Tell);
        assert_eq!(step(Some(&copied(many)), true, None, HERE), PodStep::FailPod);
    }

    #[test]
    fn pod_on_another_node_has_no_copy_here() {
        let (new, leaving) = (pod("u", None, "Pending"), pod("u", Some(30), "Running"));
        for pod in [&new, &leaving] {
            assert_eq!(step(Some(pod), false, None, HERE), PodStep::Nothing);
            let former = copy("old", None, "Running");
            assert_eq!(step(Some(pod), false, Some(&former), HERE), PodStep::RemoveCopy(None));
        }
    }

    #[test]
    fn member_tells_nothing_of_a_pod_that_is_on_no_node_for_it() {
        let (living, leaving) = (copied(pod("u", None, "Running")), copied(pod("u", Some(30), "Running")));
        let (forged, going) = (copy("u", None, "Failed"), copy("u", Some(30), "Failed"));
        for (pod, there, expected) in [
            (&living, &forged, PodStep::Nothing),
            (&living, &going, PodStep::Nothing),
            (&leaving, &going, PodStep::Nothing),
            (&leaving, &forged, PodStep::RemoveCopy(Some(30))),
        ] {
            assert_eq!(step(Some(pod), false, Some(there), HERE), expected, "{pod} {there}");
        }
    }
}
