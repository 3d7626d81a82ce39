//! What the host is told of a pod: what its copy says, or why it is not run. Pure.

use serde_json::{Map, Value, json};

use super::{
    super::{
        node::patch_of,
        object::{items, text},
    },
    COPIED, address, bounds,
    ephemeral::{self, LIST},
    generation::{self, OBSERVED},
    rejection::PodRejection,
};
use member::policy::PodNetworks;

/// What the member says of a pod; the rest of the status stays the host's own.
const TOLD: [&str; 10] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "containerStatuses",
    "initContainerStatuses",
];
const EPHEMERAL: &str = "ephemeralContainerStatuses";
/// Of these, what is said of the containers in a list of the pod.
const OF_CONTAINERS: [(&str, &str); 2] =
    [("containerStatuses", "/spec/containers"), ("initContainerStatuses", "/spec/initContainers")];
/// Of these, what goes again when the member says nothing of it.
const MAY_GO: [&str; 2] = ["reason", "message"];
/// Of these, what has to lie where the host's administrator says that the member's pods are.
const ADDRESSES: [&str; 2] = ["podIP", "podIPs"];
/// The word of the host's own scheduler.
const SCHEDULED: &str = "PodScheduled";

/// Who tells of a pod, and which addresses of it are believed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) member: &'a str,
    pub(super) networks: &'a PodNetworks,
}

impl Source<'_> {
    /// Why the host is told no address of a copy.
    fn disbelief(&self, copy: &Value) -> Option<String> {
        let others = items(copy, "/status/podIPs").map(|one| text(one, "/ip"));
        let mut said = copy["status"]["podIP"].as_str().into_iter().chain(others);
        said.find_map(|one| self.networks.refusal(one).or_else(|| address::refusal(one)))
    }
}

/// The change by which the host says of a pod what the member says of its copy; none where it says so.
pub(super) fn mirrored(pod: &Value, copy: &Value, who: Source<'_>, now: &str) -> Option<Value> {
    let mut status = Map::new();
    let disbelief = who.disbelief(copy);
    for field in TOLD {
        let is_hidden = disbelief.is_some() && ADDRESSES.contains(&field);
        match said(pod, copy, field).filter(|_| !is_hidden) {
            Some(said) if pod["status"].get(field) != Some(&said) => drop(status.insert(field.to_owned(), said)),
            None if (is_hidden || MAY_GO.contains(&field)) && pod["status"].get(field).is_some() => {
                status.insert(field.to_owned(), Value::Null);
            }
            _ => {}
        }
    }
    let debugging = ephemeral::statuses(pod, copy).and_then(|said| bounds::of_containers(pod, LIST, &said));
    if let Some(said) = debugging.filter(|said| pod["status"].get(EPHEMERAL) != Some(said)) {
        status.insert(EPHEMERAL.to_owned(), said);
    }
    let copied = copied(copy, who.member, disbelief);
    let conditions_at = |generation| conditions(pod, copy, &copied, generation, now);
    let conditions = conditions_at(None);
    if pod["status"].get("conditions") != Some(&conditions) {
        status.insert("conditions".to_owned(), conditions);
    }
    let of_whole = bounds::of_whole(pod, copy, !status.is_empty());
    status.extend(of_whole);
    if let Some(generation) = generation::to_tell(pod, copy, !status.is_empty()) {
        status.insert(OBSERVED.to_owned(), generation.clone());
        status.insert("conditions".to_owned(), conditions_at(Some(generation)));
    }
    (!status.is_empty()).then(|| patch_of(pod, json!({"status": status})))
}

/// What the copy says in a field, as far as the host is told of it.
fn said(pod: &Value, copy: &Value, field: &str) -> Option<Value> {
    let said = copy["status"].get(field)?;
    match OF_CONTAINERS.iter().find(|(statuses, _)| *statuses == field) {
        Some((_, containers)) => bounds::of_containers(pod, containers, said),
        None if field == "startTime" && !bounds::is_time(said) => None,
        None => bounds::told(said),
    }
}

/// Why it waits; none where it says so already.
pub(super) fn pending(pod: &Value, why: &PodRejection, now: &str) -> Option<Value> {
    let copied = condition(pod, COPIED, false, why.reason, &why.message, now);
    let conditions = with(pod, vec![copied]);
    (pod["status"].get("conditions") != Some(&conditions))
        .then(|| patch_of(pod, json!({"status": {"conditions": conditions}})))
}

/// The copy's conditions, but for what the host knows better, and what only the host says. `generation`: of the pod, that they are of.
fn conditions(pod: &Value, copy: &Value, copied: &PodRejection, generation: Option<&Value>, now: &str) -> Value {
    let is_told = |one: &&Value| one["type"] != SCHEDULED && one["type"] != COPIED && !is_gate(pod, &one["type"]);
    let mut told = bounds::conditions(pod, items(copy, "/status/conditions").filter(is_told));
    for one in &mut told {
        // It counts the copy's changes.
        one.as_object_mut().map(|fields| fields.remove(OBSERVED));
        if one["type"] != "Ready" || one["status"] != "True" || !has_gates(pod) {
            continue;
        }
        if gates_are_open(pod) {
            // The copy may have been ready since before they were, and whoever counts for how long the pod has goes by this time.
            let known = condition(pod, "Ready", true, "", "", now);
            // Nor has the pod been ready for longer than the copy, which may have been unready meanwhile without a word to the host.
            if text(one, "/lastTransitionTime") < text(&known, "/lastTransitionTime") {
                one["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
        } else {
            *one = condition(pod, "Ready", false, "ReadinessGatesNotReady", "a readiness gate is closed", now);
        }
    }
    told.push(condition(pod, COPIED, true, copied.reason, &copied.message, now));
    if let Some(generation) = generation {
        for one in &mut told {
            one[OBSERVED] = generation.clone();
        }
    }
    with(pod, told)
}

/// Which copy it is, and what is amiss with it.
fn copied(copy: &Value, member: &str, disbelief: Option<String>) -> PodRejection {
    let unscheduled =
        items(copy, "/status/conditions").find(|one| one["type"] == SCHEDULED && one["status"] == "False");
    let uid = bounds::line(text(copy, "/metadata/uid"));
    match (unscheduled, disbelief) {
        (Some(why), _) => {
            let message = bounds::line(text(why, "/message"));
            PodRejection::new("Unschedulable", format!("member {member}: {message}"))
        }
        (None, Some(why)) => {
            let message = format!("member {member}, pod {uid}: Services of the host leave this pod out, because {why}");
            PodRejection::new("AddressNotTold", message)
        }
        (None, None) => PodRejection::new("Copied", format!("member {member}, pod {uid}")),
    }
}

/// The copy has none: who writes its condition there is somebody in the member.
fn is_gate(pod: &Value, kind: &Value) -> bool {
    items(pod, "/spec/readinessGates").any(|gate| gate["conditionType"] == *kind)
}

fn has_gates(pod: &Value) -> bool {
    items(pod, "/spec/readinessGates").next().is_some()
}

/// The host's controllers open them.
fn gates_are_open(pod: &Value) -> bool {
    items(pod, "/spec/readinessGates").all(|gate| {
        items(pod, "/status/conditions").any(|one| one["type"] == gate["conditionType"] && one["status"] == "True")
    })
}

/// The pod's conditions with these in place of those of the same types, in the order that they have.
pub(super) fn with(pod: &Value, mut new: Vec<Value>) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for one in items(pod, "/status/conditions") {
        match new.iter().position(|newer| newer["type"] == one["type"]) {
            Some(place) => list.push(generation::kept(new.swap_remove(place), one)),
            None => list.push(one.clone()),
        }
    }
    new.sort_by_key(|one| text(one, "/type").to_owned());
    list.extend(new);
    Value::Array(list)
}

pub(super) fn condition(pod: &Value, kind: &str, holds: bool, reason: &str, message: &str, now: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    let before = items(pod, "/status/conditions").find(|one| one["type"] == kind && one["status"] == status);
    let since = before.map_or_else(|| json!(now), |one| one["lastTransitionTime"].clone());
    let probed = before.map_or(Value::Null, |one| one["lastProbeTime"].clone());
    let mut written =
        json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since});
    if before.is_some_and(|one| one.get("lastProbeTime").is_some()) {
        written["lastProbeTime"] = probed;
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHO: Source<'static> = Source { member: "m", networks: &PodNetworks::Any };
    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn pod() -> Value {
        let scheduled = json!({"type": SCHEDULED, "status": "True", "lastTransitionTime": "0"});
        json!({"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [scheduled]}})
    }

    fn apply(pod: &mut Value, change: &Value) {
        for (field, value) in change["status"].as_object().unwrap() {
            pod["status"][field] = value.clone();
            if value.is_null() {
                pod["status"].as_object_mut().unwrap().remove(field);
            }
        }
    }

    fn copy() -> Value {
        let conditions = json!([
            {"type": SCHEDULED, "status": "True", "observedGeneration": 1},
            {"type": "Ready", "status": "True", "lastTransitionTime": SINCE, "observedGeneration": 1},
        ]);
        let containers = json!([{"name": "c", "state": {"running": {"startedAt": SINCE}}, "ready": true}]);
        json!({"metadata": {"uid": "c"}, "status": {"phase": "Running", "podIP": "10.0.0.1", "qosClass": "Guaranteed",
            "conditions": conditions, "containerStatuses": containers}})
    }

    #[test]
    fn status_is_the_members_but_for_the_schedulers_word_and_is_told_once() {
        let mut pod = pod();
        let change = mirrored(&pod, &copy(), WHO, "2").unwrap();
        assert_eq!(change["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
        apply(&mut pod, &change);
        assert_eq!((text(&pod, "/status/phase"), text(&pod, "/status/qosClass")), ("Running", "Burstable"));
        let conditions = pod["status"]["conditions"].as_array().unwrap();
        let types: Vec<&str> = conditions.iter().map(|one| text(one, "/type")).collect();
        assert_eq!(types, [SCHEDULED, "Ready", COPIED]);
        assert_eq!(conditions[0]["lastTransitionTime"], "0");
        assert_eq!(conditions[1], json!({"type": "Ready", "status": "True", "lastTransitionTime": SINCE}));
        assert_eq!(text(&conditions[2], "/message"), "member m, pod c");
        assert_eq!(mirrored(&pod, &copy(), WHO, "3"), None);
    }

    #[test]
    fn address_that_the_hosts_administrator_does_not_expect_is_not_told_and_goes_where_it_was() {
        let (mut pod, mut copy) = (pod(), copy());
        let change = mirrored(&pod, &copy, WHO, "1").unwrap();
        apply(&mut pod, &change);
        let networks = PodNetworks::Within(vec!["10.0.0.0/24".parse().unwrap()]);
        let who = Source { networks: &networks, ..WHO };
        assert_eq!(mirrored(&pod, &copy, who, "2"), None);
        for (field, said) in [("podIP", json!("10.0.1.1")), ("podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]))]
        {
            let mut pod = pod.clone();
            copy["status"][field] = said;
            let change = mirrored(&pod, &copy, who, "2").unwrap();
            assert!(change["status"]["podIP"].is_null() && change["status"].get("podIPs").is_none_or(Value::is_null));
            apply(&mut pod, &change);
            assert!(pod["status"].get("podIP").is_none() && text(&pod, "/status/phase") == "Running");
            let copied = items(&pod, "/status/conditions").find(|one| one["type"] == COPIED).unwrap();
            assert_eq!((text(copied, "/reason"), text(copied, "/status")), ("AddressNotTold", "True"));
            assert!(text(copied, "/message").contains("is in no network of kosmos.csi.io/pod-networks"), "{copied}");
            assert_eq!(mirrored(&pod, &copy, who, "3"), None);
            copy["status"]["podIP"] = json!("10.0.0.1");
        }
    }

    #[test]
    fn why_a_pod_waits_in_the_member_is_told() {
        let mut copy = copy();
        copy["status"] =
            json!({"phase": "Pending", "conditions": [{"type": SCHEDULED, "status": "False", "message": "0/1 nodes"}]});
        let change = mirrored(&pod(), &copy, WHO, "1").unwrap();
        let copied = items(&change, "/status/conditions").find(|one| one["type"] == COPIED).unwrap();
        assert_eq!((text(copied, "/reason"), text(copied, "/message")), ("Unschedulable", "member m: 0/1 nodes"));
    }

    #[test]
    fn hosts_own_word_of_the_copy_is_not_the_members_and_containers_of_others_are_not_told() {
        let mut copy = copy();
        let forged = json!({"type": COPIED, "status": "False", "message": "x"});
        copy["status"]["conditions"].as_array_mut().unwrap().push(forged);
        copy["status"]["initContainerStatuses"] = json!([{"name": "injected"}]);
        let change = mirrored(&pod(), &copy, WHO, "1").unwrap();
        let mut words = items(&change, "/status/conditions").filter(|one| one["type"] == COPIED);
        assert_eq!(words.next().map(|one| text(one, "/message")), Some("member m, pod c"));
        assert_eq!((words.next(), change["status"].get("initContainerStatuses")), (None, None));
    }

    #[test]
    fn what_the_member_says_no_more_goes() {
        let (mut pod, mut copy) = (pod(), copy());
        copy["status"]["message"] = json!("low on memory");
        let change = mirrored(&pod, &copy, WHO, "1").unwrap();
        apply(&mut pod, &change);
        copy["status"].as_object_mut().unwrap().remove("message");
        assert_eq!(mirrored(&pod, &copy, WHO, "2").unwrap()["status"], json!({"message": null}));
    }

    #[test]
    fn gate_of_the_hosts_keeps_a_pod_from_being_ready() {
        let mut pod = pod();
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.org/in-service"}]);
        let ready = |pod: &Value| {
            let change = mirrored(pod, &copy(), WHO, "1").unwrap();
            let ready = items(&change, "/status/conditions").find(|one| one["type"] == "Ready").cloned();
            text(&ready.unwrap(), "/status").to_owned()
        };
        assert_eq!(ready(&pod), "False");
        let open = json!({"type": "example.org/in-service", "status": "True"});
        pod["status"]["conditions"].as_array_mut().unwrap().push(open);
        assert_eq!(ready(&pod), "True");
    }

    /// A Deployment has it count as available only so long after that (`minReadySeconds`).
    #[test]
    fn pod_whose_gate_opens_late_is_ready_since_then_and_never_for_longer_than_its_copy() {
        let (mut pod, mut copy) = (pod(), copy());
        let at = |minute: u32| format!("2026-01-01T00:0{minute}:00Z");
        let since = |pod: &Value| {
            let ready = items(pod, "/status/conditions").find(|one| one["type"] == "Ready").unwrap();
            (text(ready, "/status").to_owned(), text(ready, "/lastTransitionTime").to_owned())
        };
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.org/in-service"}]);
        let change = mirrored(&pod, &copy, WHO, &at(1)).unwrap();
        apply(&mut pod, &change);
        let open = json!({"type": "example.org/in-service", "status": "True"});
        pod["status"]["conditions"].as_array_mut().unwrap().push(open);
        let change = mirrored(&pod, &copy, WHO, &at(2)).unwrap();
        apply(&mut pod, &change);
        assert_eq!(since(&pod), ("True".to_owned(), at(2)));
        assert_eq!(mirrored(&pod, &copy, WHO, &at(3)), None, "and stays so");
        copy["status"]["conditions"][1]["lastTransitionTime"] = json!(at(4));
        let change = mirrored(&pod, &copy, WHO, &at(5)).unwrap();
        apply(&mut pod, &change);
        assert_eq!(since(&pod), ("True".to_owned(), at(4)));
        assert_eq!(mirrored(&pod, &copy, WHO, &at(6)), None, "and stays so");
    }

    #[test]
    fn gate_of_the_hosts_is_not_opened_by_the_member() {
        let (mut pod, mut copy) = (pod(), copy());
        pod["spec"]["readinessGates"] = json!([{"conditionType": "example.org/in-service"}]);
        let open = json!({"type": "example.org/in-service", "status": "True"});
        copy["status"]["conditions"].as_array_mut().unwrap().push(open);
        let change = mirrored(&pod, &copy, WHO, "1").unwrap();
        let types: Vec<&str> = items(&change, "/status/conditions").map(|one| text(one, "/type")).collect();
        assert_eq!(types, [SCHEDULED, "Ready", COPIED]);
        assert_eq!(text(&change, "/status/conditions/1/status"), "False");
    }

    #[test]
    fn reason_for_waiting_is_told_once_and_since_when_stays() {
        let mut pod = pod();
        let why = |message: &str| PodRejection::new("NameTaken", message);
        let change = pending(&pod, &why("a"), "1").unwrap();
        apply(&mut pod, &change);
        assert_eq!(pending(&pod, &why("a"), "2"), None);
        let other = pending(&pod, &why("b"), "2").unwrap();
        let copied = items(&other, "/status/conditions").find(|one| one["type"] == COPIED).unwrap();
        assert_eq!((text(copied, "/lastTransitionTime"), text(copied, "/status")), ("1", "False"));
    }
}
