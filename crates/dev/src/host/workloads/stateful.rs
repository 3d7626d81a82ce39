//! StatefulSet to claims and pods, which are numbered from 0 and keep their names.

use k8s_openapi::api::{
    apps::v1::{StatefulSet, StatefulSetSpec},
    core::v1::Pod,
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{deployment::hash, is_active, is_ready, pod_of};

const REVISION: &str = "controller-revision-hash";

/// What shall be, next.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// Claims, where they are not there yet: they outlive their pods.
    pub(super) claims: Vec<Value>,
    pub(super) create: Vec<Value>,
    /// Pods by name.
    pub(super) delete: Vec<String>,
    pub(super) status: Value,
}

/// From a set and the pods it owns.
pub(super) fn plan(set: &StatefulSet, pods: &[Pod]) -> Option<Plan> {
    let spec = set.spec.as_ref()?;
    let (set_name, wanted) = (set.name_any(), spec.replicas.unwrap_or(1));
    let revision = format!("{set_name}-{}", hash(&spec.template));
    let of = |ordinal: i32| {
        let name = format!("{set_name}-{ordinal}");
        pods.iter().find(|pod| pod.name_any() == name)
    };
    let at_once = spec.pod_management_policy.as_deref() == Some("Parallel");
    let settled = |pod: &Pod| is_active(pod) && is_ready(pod);
    let mut plan = Plan { claims: Vec::new(), create: Vec::new(), delete: Vec::new(), status: Value::Null };
    for ordinal in 0..wanted {
        match of(ordinal) {
            None => {
                plan.claims.extend(claims(set, spec, ordinal));
                plan.create.push(pod(set, spec, ordinal, &revision)?);
            }
            // One that has ended makes way for its successor of the same name.
            Some(pod) if pod.metadata.deletion_timestamp.is_none() && !is_active(pod) => {
                plan.delete.push(pod.name_any());
            }
            Some(_) => {}
        }
        if !at_once && !of(ordinal).is_some_and(settled) {
            break;
        }
    }
    let current = |pod: &Pod| pod.labels().get(REVISION) == Some(&revision);
    plan.status = status(set, pods, &revision, wanted);
    if plan.create.is_empty() && plan.delete.is_empty() {
        plan.delete.extend(surplus(&set_name, wanted, pods, settled, current));
    }
    Some(plan)
}

/// The highest of those that are too many; otherwise the highest of an earlier template, once all run.
fn surplus(
    set_name: &str,
    wanted: i32,
    pods: &[Pod],
    settled: impl Fn(&Pod) -> bool,
    current: impl Fn(&Pod) -> bool,
) -> Option<String> {
    let ordinal = |pod: &Pod| pod.name_any().strip_prefix(&format!("{set_name}-"))?.parse::<i32>().ok();
    let mut numbered: Vec<(i32, &Pod)> = pods.iter().filter_map(|pod| Some((ordinal(pod)?, pod))).collect();
    numbered.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
    let (extra, kept): (Vec<_>, Vec<_>) = numbered.into_iter().partition(|(ordinal, _)| *ordinal >= wanted);
    if let Some((_, pod)) = extra.first() {
        return pod.metadata.deletion_timestamp.is_none().then(|| pod.name_any());
    }
    if !kept.iter().all(|(_, pod)| settled(pod)) {
        return None;
    }
    kept.iter().find(|(_, pod)| !current(pod)).map(|(_, pod)| pod.name_any())
}

fn claims(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32) -> Vec<Value> {
    let templates = spec.volume_claim_templates.iter().flatten();
    let claim = |template| {
        let mut claim = json!(template);
        claim["metadata"]["name"] = json!(claim_name(&claim, &set.name_any(), ordinal));
        claim["metadata"]["namespace"] = json!(set.namespace());
        claim["metadata"]["labels"] = json!(spec.selector.match_labels);
        claim["apiVersion"] = json!("v1");
        claim["kind"] = json!("PersistentVolumeClaim");
        if let Some(claim) = claim.as_object_mut() {
            claim.remove("status");
        }
        claim
    };
    templates.map(claim).collect()
}

fn claim_name(template: &Value, set: &str, ordinal: i32) -> String {
    format!("{}-{set}-{ordinal}", template["metadata"]["name"].as_str().unwrap_or_default())
}

fn pod(set: &StatefulSet, spec: &StatefulSetSpec, ordinal: i32, revision: &str) -> Option<Value> {
    let name = format!("{}-{ordinal}", set.name_any());
    let mut pod = pod_of(&json!(spec.template), set.metadata.namespace.as_deref(), &set.controller_owner_ref(&())?);
    pod["metadata"]["labels"][REVISION] = json!(revision);
    pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = json!(name);
    pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = json!(ordinal.to_string());
    pod["spec"]["hostname"] = json!(name);
    pod["spec"]["subdomain"] = json!(spec.service_name);
    pod["metadata"]["name"] = json!(name);
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for template in spec.volume_claim_templates.iter().flatten().map(|template| json!(template)) {
        let volume = &template["metadata"]["name"];
        volumes.retain(|other| other["name"] != *volume);
        let claim = claim_name(&template, &set.name_any(), ordinal);
        volumes.push(json!({"name": volume, "persistentVolumeClaim": {"claimName": claim}}));
    }
    pod["spec"]["volumes"] = json!(volumes);
    Some(pod)
}

fn status(set: &StatefulSet, pods: &[Pod], revision: &str, wanted: i32) -> Value {
    let active = || pods.iter().filter(|pod| is_active(pod));
    let ready = active().filter(|pod| is_ready(pod)).count();
    let updated = active().filter(|pod| pod.labels().get(REVISION).is_some_and(|own| own == revision)).count();
    let all = i32::try_from(updated).is_ok_and(|updated| updated == wanted);
    let before = set.status.as_ref().and_then(|status| status.current_revision.clone());
    json!({
        "observedGeneration": set.metadata.generation,
        "replicas": active().count(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "currentReplicas": updated,
        "updatedReplicas": updated,
        "updateRevision": revision,
        "currentRevision": before.filter(|_| !all).unwrap_or_else(|| revision.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn set(replicas: i32, policy: &str, image: &str) -> StatefulSet {
        let template =
            json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": image}]}});
        let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}});
        let spec = json!({"replicas": replicas, "serviceName": "db", "podManagementPolicy": policy,
            "selector": {"matchLabels": {"app": "db"}}, "template": template, "volumeClaimTemplates": [claim]});
        from_value(json!({"metadata": {"namespace": "x", "name": "db", "uid": "s"}, "spec": spec})).unwrap()
    }

    /// The pods that a plan makes, running or not.
    fn made(plan: &Plan, running: bool) -> Vec<Pod> {
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": if running { "True" } else { "False" }}]});
        let pods = plan.create.iter().map(|pod| {
            let mut pod = pod.clone();
            pod["status"] = ready.clone();
            from_value(pod).unwrap()
        });
        pods.collect()
    }

    fn names(objects: &[Value]) -> Vec<&str> {
        objects.iter().map(|object| object["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn pods_are_made_one_after_the_other_each_with_its_claim() {
        let set = set(2, "OrderedReady", "a");
        let first = plan(&set, &[]).unwrap();
        assert_eq!((names(&first.create), names(&first.claims)), (vec!["db-0"], vec!["data-db-0"]));
        assert_eq!(first.create[0]["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-0");
        assert_eq!(first.claims[0]["kind"], "PersistentVolumeClaim");
        assert!(plan(&set, &made(&first, false)).unwrap().create.is_empty());
        assert_eq!(names(&plan(&set, &made(&first, true)).unwrap().create), ["db-1"]);
    }

    #[test]
    fn those_that_need_not_wait_are_made_at_once() {
        let plan = plan(&set(3, "Parallel", "a"), &[]).unwrap();
        assert_eq!(names(&plan.create), ["db-0", "db-1", "db-2"]);
    }

    #[test]
    fn highest_goes_first_and_claims_stay() {
        let all = made(&plan(&set(3, "Parallel", "a"), &[]).unwrap(), true);
        let fewer = plan(&set(1, "OrderedReady", "a"), &all).unwrap();
        assert_eq!((fewer.delete, fewer.claims.len()), (vec!["db-2".to_owned()], 0));
    }

    #[test]
    fn another_template_replaces_one_pod_after_the_other() {
        let all = made(&plan(&set(2, "Parallel", "a"), &[]).unwrap(), true);
        assert_eq!(plan(&set(2, "OrderedReady", "b"), &all).unwrap().delete, ["db-1"]);
        let waiting = made(&plan(&set(2, "Parallel", "a"), &[]).unwrap(), false);
        assert!(plan(&set(2, "OrderedReady", "b"), &waiting).unwrap().delete.is_empty());
    }
}
