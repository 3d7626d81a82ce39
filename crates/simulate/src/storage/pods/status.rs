//! What a scheduler and a kubelet tell of a pod. Pure.

use serde_json::{Value, json};

use crate::object::{items, set, text};

/// A condition changes its time only with its status.
pub(super) fn set_condition(object: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = items(object, "/status/conditions");
    let before = conditions.iter().find(|condition| text(condition, "/type") == kind);
    let since =
        before.filter(|before| text(before, "/status") == status).map(|before| text(before, "/lastTransitionTime"));
    let mut told = json!({
        "type": kind, "status": status, "lastProbeTime": null, "lastTransitionTime": since.unwrap_or(now),
    });
    if !reason.is_empty() {
        told["reason"] = json!(reason);
        told["message"] = json!(message);
    }
    let mut conditions: Vec<Value> =
        conditions.iter().filter(|condition| text(condition, "/type") != kind).cloned().collect();
    conditions.push(told);
    set(object, &["status", "conditions"], json!(conditions));
}

/// Runs, as far as images are there: nothing is loaded on a simulated node, so that what may not pull stays waiting.
pub(super) fn run(pod: &mut Value, address: &str, host: &str, now: &str) {
    let containers: Vec<Value> =
        items(pod, "/spec/containers").iter().map(|container| running(container, pod, now)).collect();
    let ready = containers.iter().all(|container| container["ready"] == json!(true));
    let (status, reason) = if ready { ("True", "") } else { ("False", "ContainersNotReady") };
    set_condition(pod, "Initialized", "True", "", "", now);
    set_condition(pod, "PodReadyToStartContainers", "True", "", "", now);
    set_condition(pod, "ContainersReady", status, reason, "an image is not there", now);
    set_condition(pod, "Ready", status, reason, "an image is not there", now);
    for (field, value) in [
        ("phase", json!(if ready { "Running" } else { "Pending" })),
        ("containerStatuses", json!(containers)),
        ("podIP", json!(address)),
        ("podIPs", json!([{"ip": address}])),
        ("hostIP", json!(host)),
        ("hostIPs", json!([{"ip": host}])),
        ("startTime", json!(now)),
    ] {
        set(pod, &["status", field], value);
    }
}

fn running(container: &Value, pod: &Value, now: &str) -> Value {
    let there = text(container, "/imagePullPolicy") != "Never";
    let mut status = json!({
        "name": name_of(container),
        "image": text(container, "/image"),
        "imageID": "",
        "ready": there,
        "started": there,
        "restartCount": 0,
        "state": {"waiting": {"reason": "ErrImageNeverPull", "message": "the image is not on the node"}},
        "lastState": {},
    });
    if there {
        status["state"] = json!({"running": {"startedAt": now}});
        status["imageID"] = json!(format!("simulated://{}", text(container, "/image")));
        status["containerID"] = json!(format!("simulated://{}/{}", text(pod, "/metadata/uid"), name_of(container)));
    }
    status
}

fn name_of(container: &Value) -> &str {
    text(container, "/name")
}

/// Every container has ended well.
pub(super) fn stop(pod: &mut Value, now: &str) {
    let mut containers = items(pod, "/status/containerStatuses").to_vec();
    for container in &mut containers {
        container["ready"] = json!(false);
        container["started"] = json!(false);
        container["state"] = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": now}});
    }
    set(pod, &["status", "containerStatuses"], json!(containers));
    set(pod, &["status", "phase"], json!("Succeeded"));
    set_condition(pod, "Ready", "False", "PodCompleted", "", now);
    set_condition(pod, "ContainersReady", "False", "PodCompleted", "", now);
}

/// An address of its own for each pod, as long as there are not too many.
pub(super) fn address(number: u32) -> String {
    let [_, high, middle, low] = (number % 0x00fe_fffe + 1).to_be_bytes();
    format!("10.{}.{middle}.{low}", 1 + u32::from(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_while_its_status_stays() {
        let mut pod = json!({});
        set_condition(&mut pod, "PodScheduled", "False", "Unschedulable", "why", "1");
        set_condition(&mut pod, "PodScheduled", "False", "Unschedulable", "other", "2");
        assert_eq!(text(&pod, "/status/conditions/0/lastTransitionTime"), "1");
        set_condition(&mut pod, "PodScheduled", "True", "", "", "3");
        assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1);
        assert_eq!(text(&pod, "/status/conditions/0/lastTransitionTime"), "3");
    }

    #[test]
    fn what_may_not_pull_its_image_does_not_run() {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "x", "imagePullPolicy": "Never"}]}});
        run(&mut pod, "10.0.0.1", "192.0.2.1", "1");
        assert_eq!(text(&pod, "/status/phase"), "Pending");
        assert_eq!(text(&pod, "/status/containerStatuses/0/state/waiting/reason"), "ErrImageNeverPull");
    }

    #[test]
    fn addresses_are_distinct() {
        let addresses: std::collections::BTreeSet<String> = (0..70_000).map(address).collect();
        assert_eq!((addresses.len(), address(0)), (70_000, "10.1.0.1".to_owned()));
    }
}
