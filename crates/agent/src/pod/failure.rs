//! What the host is told of a pod that has failed, and whose copy has not told how. Pure.

use serde_json::{Value, json};

use super::{
    super::{
        node::patch_of,
        object::{items, text},
    },
    rejection::PodRejection,
    status::{condition, with},
};

/// Why a pod has failed whose copy somebody in the member has deleted.
const DELETED: &str = "DeletedInMember";
/// Kubernetes' word for a pod that was ended from outside, as by a drain: a Job may leave it out when it counts failures.
const DISRUPTED: &str = "DisruptionTarget";
/// Why nothing else is said of a container's end.
const UNTOLD: &str = "how the container ended is not known: the member no longer has the pod's copy";

/// The end of a pod that was to end, and whose copy has not told of it.
pub(super) fn terminated(pod: &Value, now: &str) -> Value {
    failed(pod, &PodRejection::new("Deleted", "the pod was deleted before it had ended"), now)
}

/// Why a pod has failed whose copy is gone.
pub(super) fn deleted(member: &str) -> PodRejection {
    let message = format!(
        "the pod's copy in member {member} was deleted there, not by this host. If a controller owns the pod, it creates another one"
    );
    PodRejection::new(DELETED, message)
}

/// The end of a pod, for this reason.
pub(super) fn failed(pod: &Value, why: &PodRejection, now: &str) -> Value {
    let told = |kind, holds| condition(pod, kind, holds, why.reason, &why.message, now);
    let mut new = vec![told("Ready", false), told("ContainersReady", false)];
    if why.reason == DELETED {
        new.push(told(DISRUPTED, true));
    }
    let conditions = with(pod, new);
    let mut status = json!({"phase": "Failed", "reason": why.reason, "message": why.message, "conditions": conditions});
    let is_initialized =
        items(pod, "/status/conditions").all(|one| one["type"] != "Initialized" || one["status"] != "False");
    for (list, all_began) in [
        ("containerStatuses", is_initialized),
        ("initContainerStatuses", is_initialized),
        ("ephemeralContainerStatuses", false),
    ] {
        if pod["status"][list].is_array() {
            let containers = items(&pod["status"], &format!("/{list}")).cloned();
            status[list] = containers.map(|container| ended(container, all_began, now)).collect();
        }
    }
    patch_of(pod, json!({"status": status}))
}

/// As a kubelet says it of a container that it has lost. One that waits for those before it has no code: by that a Job may fail for good.
fn ended(mut container: Value, all_began: bool, now: &str) -> Value {
    let began =
        all_began || container["state"].get("waiting").is_none() || !text(&container, "/containerID").is_empty();
    if began && container["state"].get("terminated").is_none() {
        container["state"] = json!({"terminated":
            {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": UNTOLD, "finishedAt": now}});
    }
    container["ready"] = json!(false);
    container["started"] = json!(false);
    container
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        let runs = json!({"name": "c", "state": {"running": {}}, "ready": true});
        let conditions = json!([{"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "1"}]);
        json!({"metadata": {"uid": "u", "resourceVersion": "7"},
            "status": {"phase": "Running", "conditions": conditions, "containerStatuses": [runs]}})
    }

    #[test]
    fn pod_whose_copy_was_deleted_has_failed_with_all_its_containers() {
        let change = failed(&pod(), &PodRejection::new("DeletedInMember", "somebody deleted it"), "2");
        assert_eq!((text(&change, "/status/phase"), text(&change, "/status/reason")), ("Failed", "DeletedInMember"));
        assert_eq!(change["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
        assert_eq!(change["metadata"], pod()["metadata"]);
        let ready = items(&change, "/status/conditions").find(|one| one["type"] == "Ready").unwrap();
        assert_eq!((text(ready, "/status"), text(ready, "/lastTransitionTime")), ("False", "2"));
    }

    #[test]
    fn pod_was_ended_from_outside_only_where_somebody_in_the_member_has_deleted_its_copy() {
        let disrupted = |change: &Value| {
            items(change, "/status/conditions").find(|one| one["type"] == DISRUPTED).map(|one| one["status"] == "True")
        };
        let why = |reason| PodRejection::new(reason, "why");
        assert_eq!(disrupted(&failed(&pod(), &why(DELETED), "1")), Some(true));
        assert_eq!(disrupted(&failed(&pod(), &why("VolumeMoved"), "1")), None);
        assert_eq!(disrupted(&terminated(&pod(), "1")), None);
    }

    #[test]
    fn container_that_had_not_begun_ends_with_no_code_and_one_that_was_added_ends_as_well() {
        let (waits, runs) = (json!({"waiting": {"reason": "PodInitializing"}}), json!({"running": {}}));
        let ended = json!({"terminated": {"exitCode": 3}});
        let named = |state: &Value| json!({"name": "c", "state": state});
        let crashed = json!({"name": "c", "state": waits, "containerID": "x"});
        let codes = |pod: &Value, list: &str| -> Vec<Option<u64>> {
            let change = terminated(pod, "2");
            let code = |one: &Value| one.pointer("/state/terminated/exitCode").and_then(Value::as_u64);
            items(&change, &format!("/status/{list}")).map(code).collect()
        };
        let mut pod = pod();
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            pod["status"][list] = json!([named(&waits), named(&runs), named(&ended), crashed]);
        }
        let (all, begun) = ([Some(137_u64), Some(137), Some(3), Some(137)], [None, Some(137), Some(3), Some(137_u64)]);
        assert_eq!(codes(&pod, "containerStatuses"), all);
        assert_eq!(codes(&pod, "ephemeralContainerStatuses"), begun);
        pod["status"]["conditions"][0]["status"] = json!("False");
        for list in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
            assert_eq!(codes(&pod, list), begun, "{list}");
        }
    }
}
