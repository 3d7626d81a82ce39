//! Plays the controllers of Deployments, ReplicaSets, StatefulSets and the claims of single pods: so much of them that the usual commands
//! (`rollout status`, `scale`, `wait`, `delete`) do what they do elsewhere.

mod deployment;
pub(super) mod ephemeral;
mod replicas;
mod rollout;
mod stateful;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, ReplicaSet, StatefulSet},
        core::v1::Pod,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
    serde::de::DeserializeOwned,
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    all,
    conditions::{self, Condition},
    create,
    events::{Kind, Speaker},
    ignore_conflict, whenever_changed,
};
use simulate::{Cluster, text};

const SPEAKER: Speaker = Speaker("dev-workloads");
const DEPLOYMENTS: &str = "deployments.apps";
const REPLICA_SETS: &str = "replicasets.apps";
const STATEFUL_SETS: &str = "statefulsets.apps";

pub(super) async fn run(host: Cluster) {
    // Without its namespace's account no pod can be made.
    let followed = [DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, "pods", "serviceaccounts"];
    whenever_changed(&host, &followed, || pass(&host)).await;
}

fn pass(host: &Cluster) {
    for deployment in living::<Deployment>(host, DEPLOYMENTS) {
        let sets = owned(&deployment, all::<ReplicaSet>(host, REPLICA_SETS));
        if let Some(plan) = deployment::plan(&deployment, &sets) {
            carry_out_deployment(host, &deployment, plan);
        }
    }
    for set in living::<ReplicaSet>(host, REPLICA_SETS) {
        if let Some(plan) = replicas::plan(&set, &owned(&set, all::<Pod>(host, "pods"))) {
            make_and_delete(host, &set, plan.create, &plan.delete);
            put_status(host, REPLICA_SETS, &set, &plan.status);
        }
    }
    for set in living::<StatefulSet>(host, STATEFUL_SETS) {
        if let Some(plan) = stateful::plan(&set, &owned(&set, all::<Pod>(host, "pods"))) {
            make_claims(host, plan.claims);
            make_and_delete(host, &set, plan.create, &plan.delete);
            put_status(host, STATEFUL_SETS, &set, &plan.status);
        }
    }
    for pod in living::<Pod>(host, "pods") {
        make_claims(host, ephemeral::claims(&pod));
    }
}

/// Those that are not on their way out.
fn living<K: Resource + DeserializeOwned>(host: &Cluster, resource: &str) -> Vec<K> {
    let mut objects: Vec<K> = all(host, resource);
    objects.retain(|object| object.meta().deletion_timestamp.is_none());
    objects
}

/// Of some objects, those that another one owns.
fn owned<K: Resource>(owner: &impl Resource, mut objects: Vec<K>) -> Vec<K> {
    let uid = owner.meta().uid.clone().unwrap_or_default();
    let belongs = |object: &K| {
        object.owner_references().iter().any(|reference| reference.controller == Some(true) && reference.uid == uid)
    };
    objects.retain(belongs);
    objects
}

fn carry_out_deployment(host: &Cluster, deployment: &Deployment, plan: deployment::Plan) {
    let namespace = deployment.namespace().unwrap_or_default();
    let tell =
        |message: &str| SPEAKER.tell(host, deployment.object_ref(&()), Kind::Normal, "ScalingReplicaSet", message);
    if let Some(set) = plan.create {
        let made = ignore_conflict("a ReplicaSet", create(host, REPLICA_SETS, set));
        if let Some(set) = made {
            let message =
                format!("made ReplicaSet {} for {} pods", text(&set, "/metadata/name"), set["spec"]["replicas"]);
            tell(&message);
        }
    }
    for (name, replicas) in plan.scale {
        let edit = |set: &mut Value| set["spec"]["replicas"] = json!(replicas);
        if ignore_conflict("a size", host.change(REPLICA_SETS, &namespace, &name, edit)).is_some() {
            let message = format!("ReplicaSet {name} shall have {replicas} pods");
            tell(&message);
        }
    }
    let (set, revision) = plan.revision;
    let edit =
        |object: &mut Value| object["metadata"]["annotations"][deployment::REVISION] = json!(revision.to_string());
    ignore_conflict("a revision", host.change(REPLICA_SETS, &namespace, &set, edit));
    ignore_conflict("a revision", host.change(DEPLOYMENTS, &namespace, &deployment.name_any(), edit));
    put_status(host, DEPLOYMENTS, deployment, &plan.status);
}

fn make_claims(host: &Cluster, claims: Vec<Value>) {
    for claim in claims {
        let (namespace, name) =
            (text(&claim, "/metadata/namespace").to_owned(), text(&claim, "/metadata/name").to_owned());
        if host.get("persistentvolumeclaims", &namespace, &name).is_none() {
            ignore_conflict("a claim", create(host, "persistentvolumeclaims", claim));
        }
    }
}

fn make_and_delete<K: Resource<DynamicType = ()>>(host: &Cluster, owner: &K, pods: Vec<Value>, delete: &[String]) {
    let tell = |kind, reason, message: &str| SPEAKER.tell(host, owner.object_ref(&()), kind, reason, message);
    for pod in pods {
        match create(host, "pods", pod) {
            Ok(pod) => {
                let message = format!("made pod {}", text(&pod, "/metadata/name"));
                tell(Kind::Normal, "SuccessfulCreate", &message);
            }
            Err(refusal) => tell(Kind::Warning, "FailedCreate", &refusal.to_string()),
        }
    }
    for name in delete {
        let namespace = owner.meta().namespace.as_deref().unwrap_or_default();
        if ignore_conflict("a deletion", host.delete("pods", namespace, name)).is_some() {
            tell(Kind::Normal, "SuccessfulDelete", &format!("deleted pod {name}"));
        }
    }
}

/// Conditions keep the time of their last turn; a number that is zero is left out, as it is elsewhere.
fn put_status<K: Resource>(host: &Cluster, resource: &str, object: &K, status: &Value) {
    let now = host.stamp();
    let edit = |object: &mut Value| {
        for (field, value) in status.as_object().into_iter().flatten() {
            match value {
                Value::Array(list) if field == "conditions" => {
                    for told in list {
                        let condition = Condition {
                            kind: text(told, "/type"),
                            holds: text(told, "/status") == "True",
                            reason: text(told, "/reason"),
                            message: text(told, "/message"),
                        };
                        conditions::set(&mut object["status"]["conditions"], condition, &now);
                    }
                }
                value if value.is_null() || (*value == json!(0) && field != "replicas") => {
                    drop(object["status"].as_object_mut().map(|status| status.remove(field)));
                }
                value => object["status"][field] = value.clone(),
            }
        }
    };
    let namespace = object.meta().namespace.as_deref().unwrap_or_default();
    ignore_conflict("a status", host.change(resource, namespace, &object.name_any(), edit));
}

/// A number that changes with a text: FNV-1a, the same in every run.
pub(super) fn fingerprint(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

fn is_active(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A pod as its owner's template says, still without a name.
fn pod_of(template: &Value, namespace: Option<&str>, owner: &OwnerReference) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "labels": template["metadata"]["labels"],
            "annotations": template["metadata"]["annotations"],
            "ownerReferences": [owner],
        },
        "spec": template["spec"],
    })
}
