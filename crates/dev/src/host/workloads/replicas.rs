//! ReplicaSet to pods.

use k8s_openapi::api::{apps::v1::ReplicaSet, core::v1::Pod};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{is_active, is_ready, pod_of};

/// What shall be, next.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<Value>,
    /// Pods by name.
    pub(super) delete: Vec<String>,
    pub(super) status: Value,
}

/// From a set and the pods it owns.
pub(super) fn plan(set: &ReplicaSet, pods: &[Pod]) -> Option<Plan> {
    let spec = set.spec.as_ref()?;
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or_default();
    let mut active: Vec<&Pod> = pods.iter().filter(|pod| is_active(pod)).collect();
    // What has got furthest stays.
    active.sort_by_key(|pod| {
        let placed = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        (!is_ready(pod), !placed, pod.creation_timestamp().map(|time| time.0), pod.name_any())
    });
    let ready = active.iter().filter(|pod| is_ready(pod)).count();
    let missing = wanted.saturating_sub(active.len());
    let owner = set.controller_owner_ref(&())?;
    let template = json!(spec.template);
    let mut pod = pod_of(&template, set.metadata.namespace.as_deref(), &owner);
    pod["metadata"]["generateName"] = json!(format!("{}-", set.name_any()));
    Some(Plan {
        create: vec![pod; missing],
        delete: active.iter().skip(wanted).map(|pod| pod.name_any()).collect(),
        status: json!({
            "observedGeneration": set.metadata.generation,
            "replicas": active.len(),
            "fullyLabeledReplicas": active.len(),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn set(replicas: i32) -> ReplicaSet {
        let template = json!({"metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": []}});
        let spec = json!({"replicas": replicas, "selector": {}, "template": template});
        from_value(json!({"metadata": {"namespace": "x", "name": "set", "uid": "s"}, "spec": spec})).unwrap()
    }

    fn pod(name: &str, node: Option<&str>, phase: &str, leaving: bool) -> Pod {
        let ready = if phase == "Running" { "True" } else { "False" };
        let mut metadata = json!({"namespace": "x", "name": name});
        if leaving {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": ready}]});
        from_value(json!({"metadata": metadata, "spec": {"containers": [], "nodeName": node}, "status": status}))
            .unwrap()
    }

    #[test]
    fn missing_pods_are_made_from_the_template() {
        let plan = plan(&set(2), &[pod("a", Some("n"), "Running", false)]).unwrap();
        assert_eq!((plan.create.len(), plan.delete.len()), (1, 0));
        let made = &plan.create[0];
        assert_eq!(made["metadata"]["generateName"], "set-");
        assert_eq!(made["metadata"]["labels"]["app"], "nginx");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "s");
        assert_eq!(plan.status["readyReplicas"], 1);
    }

    #[test]
    fn pod_that_leaves_or_has_ended_is_replaced() {
        let pods = [pod("a", Some("n"), "Running", true), pod("b", Some("n"), "Failed", false)];
        assert_eq!(plan(&set(1), &pods).unwrap().create.len(), 1);
    }

    #[test]
    fn surplus_pods_go_beginning_with_those_that_do_least() {
        let pods = [
            pod("waits", None, "Pending", false),
            pod("runs", Some("n"), "Running", false),
            pod("starts", Some("n"), "Pending", false),
        ];
        assert_eq!(plan(&set(2), &pods).unwrap().delete, ["waits"]);
        assert_eq!(plan(&set(1), &pods).unwrap().delete, ["starts", "waits"]);
    }
}
