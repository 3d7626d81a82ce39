//! What makes pods.

use serde_json::{Value, json};

use super::{causes::Causes, fill, metadata, pods};
use crate::store::text;

pub(super) fn defaults(resource: &str, object: &mut Value) {
    let spec = &mut object["spec"];
    if resource != "daemonsets.apps" {
        fill(spec, "replicas", json!(1));
    }
    if resource != "replicasets.apps" {
        fill(spec, "revisionHistoryLimit", json!(10));
    }
    match resource {
        "deployments.apps" => {
            fill(spec, "progressDeadlineSeconds", json!(600));
            let shares = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
            strategy(spec, "strategy", &shares);
        }
        "daemonsets.apps" => strategy(spec, "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1})),
        "statefulsets.apps" => {
            strategy(spec, "updateStrategy", &json!({"partition": 0}));
            fill(spec, "podManagementPolicy", json!("OrderedReady"));
            let kept = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            fill(spec, "persistentVolumeClaimRetentionPolicy", kept);
            let templates = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
            templates.into_iter().flatten().for_each(claim_template);
        }
        _ => {}
    }
    if spec["template"]["spec"].is_object() {
        pods::defaults(&mut spec["template"]["spec"]);
    }
}

fn strategy(spec: &mut Value, name: &str, rolling: &Value) {
    fill(&mut spec[name], "type", json!("RollingUpdate"));
    if spec[name]["type"] == "RollingUpdate" {
        for (field, value) in rolling.as_object().into_iter().flatten() {
            fill(&mut spec[name]["rollingUpdate"], field, value.clone());
        }
    }
}

fn claim_template(template: &mut Value) {
    fill(template, "apiVersion", json!("v1"));
    fill(template, "kind", json!("PersistentVolumeClaim"));
    fill(&mut template["spec"], "volumeMode", json!("Filesystem"));
    template["status"] = json!({"phase": "Pending"});
}

pub(super) fn made(resource: &str, object: &mut Value) {
    object["status"] = match resource {
        "replicasets.apps" => json!({"replicas": 0}),
        "statefulsets.apps" => json!({"availableReplicas": 0, "replicas": 0}),
        "daemonsets.apps" => json!({"currentNumberScheduled": 0, "desiredNumberScheduled": 0,
            "numberMisscheduled": 0, "numberReady": 0}),
        _ => json!({}),
    };
    if resource == "daemonsets.apps" {
        object["metadata"]["annotations"]["deprecated.daemonset.template.generation"] = json!("1");
    }
}

pub(super) fn check(object: &Value, causes: &mut Causes) {
    let spec = &object["spec"];
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        causes.invalid("spec.replicas", &spec["replicas"], "must be greater than or equal to 0");
    }
    if !spec["selector"].is_object() {
        causes.required("spec.selector", "");
    }
    let labels = &spec["template"]["metadata"]["labels"];
    metadata::labels("spec.template.labels", labels, causes);
    let wanted = spec.pointer("/selector/matchLabels").and_then(Value::as_object);
    let fits =
        spec["selector"].is_object() && wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    if !fits {
        causes.invalid("spec.template.metadata.labels", labels, "`selector` does not match template `labels`");
    }
    let template = with_own_claims(spec);
    pods::check("spec.template.spec", &template, causes);
    if ["Never", "OnFailure"].contains(&text(&template, "/restartPolicy")) {
        causes.unsupported("spec.template.spec.restartPolicy", &template["restartPolicy"], &["Always"]);
    }
}

/// The specification of the pods, which can mount the claims that are made for each of them.
fn with_own_claims(spec: &Value) -> Value {
    let mut template = spec["template"]["spec"].clone();
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let volumes: Vec<Value> = claims.map(|claim| json!({"name": claim["metadata"]["name"]})).collect();
    if let Some(own) = template.get("volumes").and_then(Value::as_array) {
        template["volumes"] = json!([own.as_slice(), &volumes].concat());
    } else {
        template["volumes"] = json!(volumes);
    }
    template
}

const STATEFUL: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn check_change(resource: &str, old: &Value, new: &Value, causes: &mut Causes) {
    let (old, new) = (&old["spec"], &new["spec"]);
    if resource != "statefulsets.apps" {
        causes.immutable("spec.selector", old.get("selector"), new.get("selector"));
        return;
    }
    let fixed = |spec: &Value| {
        let mut spec = spec.as_object().cloned().unwrap_or_default();
        spec.retain(|field, _| !STATEFUL.contains(&field.as_str()));
        spec
    };
    if fixed(old) != fixed(new) {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
            'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' \
            are forbidden";
        causes.forbidden("spec", detail);
    }
}
