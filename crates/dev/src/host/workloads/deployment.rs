//! Deployment to ReplicaSets, by the template of its pods.

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet},
        core::v1::PodTemplateSpec,
    },
    apimachinery::pkg::apis::meta::v1::LabelSelector,
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    fingerprint,
    rollout::{self, Bounds, Size},
};

pub(super) const HASH: &str = "pod-template-hash";
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";

/// What shall be, next.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The set for the present template, where there is none yet.
    pub(super) create: Option<Value>,
    /// Sets by name whose size changes.
    pub(super) scale: Vec<(String, i32)>,
    /// The revision of the present template, and the set that has it.
    pub(super) revision: (String, i64),
    /// Without its conditions' times.
    pub(super) status: Value,
}

/// From a Deployment and the sets it owns.
pub(super) fn plan(deployment: &Deployment, sets: &[ReplicaSet]) -> Option<Plan> {
    let spec = deployment.spec.as_ref()?;
    let wanted = spec.replicas.unwrap_or(1);
    let hash = hash(&spec.template);
    let (new, old): (Vec<&ReplicaSet>, Vec<&ReplicaSet>) =
        sets.iter().partition(|set| set.labels().get(HASH) == Some(&hash));
    let new = new.first().copied();
    let bounds = Bounds::of(deployment, wanted);
    let old_sizes: Vec<Size> = old.iter().map(|set| size(set)).collect();
    let (grown, shrunk) = rollout::next(wanted, bounds, new.map(size).unwrap_or_default(), &old_sizes);
    let name = format!("{}-{hash}", deployment.name_any());
    let revision = next_revision(new, &old);
    let changed = |set: &ReplicaSet, next: i32| (size(set).desired != next).then(|| (set.name_any(), next));
    let old_changes = old.iter().zip(&shrunk).filter_map(|(set, next)| changed(set, *next));
    Some(Plan {
        create: new.is_none().then(|| manifest(deployment, &name, &hash, grown, revision)),
        scale: new.and_then(|set| changed(set, grown)).into_iter().chain(old_changes).collect(),
        revision: (name, revision),
        status: status(deployment, new, sets, wanted - bounds.unavailable()),
    })
}

/// Ten characters that change with the template, in letters that make no words.
pub(super) fn hash(template: &PodTemplateSpec) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut hash = fingerprint(&json!(template).to_string());
    let mut letters = String::new();
    let count = LETTERS.len() as u64;
    while letters.len() < 10 {
        let place = usize::try_from(hash % count).unwrap_or_default();
        letters.extend(LETTERS.get(place).map(|letter| char::from(*letter)));
        hash /= count;
    }
    letters
}

fn size(set: &ReplicaSet) -> Size {
    let status = set.status.as_ref();
    Size {
        desired: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        pods: status.map_or(0, |status| status.replicas),
        available: status.and_then(|status| status.available_replicas).unwrap_or_default(),
    }
}

fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// The highest, also where an earlier template has come back.
fn next_revision(new: Option<&ReplicaSet>, old: &[&ReplicaSet]) -> i64 {
    let highest = old.iter().map(|set| revision(set)).max().unwrap_or_default();
    new.map(revision).filter(|revision| *revision > highest).unwrap_or(highest + 1)
}

fn manifest(deployment: &Deployment, name: &str, hash: &str, replicas: i32, revision: i64) -> Value {
    let spec = deployment.spec.clone().unwrap_or_default();
    let with_hash = |selector: LabelSelector| {
        let mut labels = selector.match_labels.unwrap_or_default();
        labels.insert(HASH.to_owned(), hash.to_owned());
        LabelSelector { match_labels: Some(labels), ..selector }
    };
    let mut template = json!(spec.template);
    template["metadata"]["labels"][HASH] = json!(hash);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment.namespace(),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": [deployment.controller_owner_ref(&())],
        },
        "spec": {"replicas": replicas, "selector": with_hash(spec.selector), "template": template},
    })
}

fn status(deployment: &Deployment, new: Option<&ReplicaSet>, sets: &[ReplicaSet], must_run: i32) -> Value {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let all: Vec<Size> = sets.iter().map(size).collect();
    let sum = |count: fn(&Size) -> i32| all.iter().map(count).sum::<i32>();
    let ready = sets.iter().filter_map(|set| set.status.as_ref()?.ready_replicas).sum::<i32>();
    let (pods, available) = (sum(|size| size.pods), sum(|size| size.available));
    let updated = new.map(size).unwrap_or_default();
    let enough = available >= must_run;
    let done = updated.pods == wanted && pods == wanted && available == wanted;
    let name = new.map(ResourceExt::name_any).unwrap_or_default();
    json!({
        "observedGeneration": deployment.metadata.generation,
        "replicas": pods,
        "updatedReplicas": updated.pods,
        "readyReplicas": ready,
        "availableReplicas": available,
        "unavailableReplicas": (sum(|size| size.desired) - available).max(0),
        "conditions": [
            {
                "type": "Available",
                "status": if enough { "True" } else { "False" },
                "reason": if enough { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" },
                "message": format!("{available} of at least {must_run} pods run"),
            },
            {
                "type": "Progressing",
                "status": "True",
                "reason": if done { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" },
                "message": format!("{} of {wanted} pods are of ReplicaSet {name}", updated.pods),
            },
        ],
    })
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    fn deployment(replicas: i32, image: &str) -> Deployment {
        let template = json!({"metadata": {"labels": {"app": "nginx"}},
            "spec": {"containers": [{"name": "nginx", "image": image}]}});
        let selector = json!({"matchLabels": {"app": "nginx"}});
        let spec = json!({"replicas": replicas, "selector": selector, "template": template});
        let metadata = json!({"namespace": "test-new", "name": "nginx-new", "uid": "d", "generation": 3});
        from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
    }

    /// The set that a plan makes, with so many pods that all run.
    fn made(plan: &Plan, running: i32) -> ReplicaSet {
        let mut set = plan.create.clone().unwrap();
        set["status"] = json!({"replicas": running, "readyReplicas": running, "availableReplicas": running});
        from_value(set).unwrap()
    }

    fn condition<'a>(plan: &'a Plan, kind: &str) -> &'a Value {
        plan.status["conditions"].as_array().unwrap().iter().find(|condition| condition["type"] == kind).unwrap()
    }

    #[test]
    fn set_for_the_template_is_made_and_its_pods_can_be_told_by_the_hash() {
        let plan = plan(&deployment(2, "nginx"), &[]).unwrap();
        let set = plan.create.as_ref().unwrap();
        let hash = &set["metadata"]["labels"][HASH];
        assert_eq!(set["metadata"]["name"], format!("nginx-new-{}", hash.as_str().unwrap()));
        assert_eq!(set["spec"]["replicas"], 2);
        assert_eq!(set["spec"]["selector"]["matchLabels"], json!({"app": "nginx", HASH: hash}));
        assert_eq!(set["spec"]["template"]["metadata"]["labels"], json!({"app": "nginx", HASH: hash}));
        assert_eq!(set["metadata"]["ownerReferences"][0]["uid"], "d");
        assert_eq!(condition(&plan, "Available")["status"], "False");
    }

    #[test]
    fn once_all_pods_run_there_is_nothing_to_do() {
        let first = plan(&deployment(2, "nginx"), &[]).unwrap();
        let then = plan(&deployment(2, "nginx"), &[made(&first, 2)]).unwrap();
        assert_eq!((&then.create, then.scale.len()), (&None, 0));
        assert_eq!(then.revision, first.revision);
        assert_eq!(then.status["availableReplicas"], 2);
        assert_eq!(then.status["observedGeneration"], 3);
        assert_eq!(condition(&then, "Available")["status"], "True");
        assert_eq!(condition(&then, "Progressing")["reason"], "NewReplicaSetAvailable");
    }

    #[test]
    fn another_template_is_another_set_and_an_earlier_one_comes_back_with_a_new_revision() {
        let first = plan(&deployment(1, "nginx:1"), &[]).unwrap();
        let second = plan(&deployment(1, "nginx:2"), &[made(&first, 1)]).unwrap();
        assert_ne!(first.revision.0, second.revision.0);
        assert_eq!((first.revision.1, second.revision.1), (1, 2));
        let back = plan(&deployment(1, "nginx:1"), &[made(&first, 1), made(&second, 1)]).unwrap();
        assert_eq!(back.create, None);
        assert_eq!(back.revision, (first.revision.0, 3));
        assert_eq!(back.scale, [(second.revision.0, 0)]);
    }

    #[test]
    fn deployment_is_scaled_by_its_set() {
        let first = plan(&deployment(1, "nginx"), &[]).unwrap();
        let then = plan(&deployment(3, "nginx"), &[made(&first, 1)]).unwrap();
        assert_eq!(then.scale, [(first.revision.0, 3)]);
    }
}
