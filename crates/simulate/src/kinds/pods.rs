//! Pods and the templates of pods.

use serde_json::{Value, json};

use super::{Making, causes::Causes, fill, quantities, words};
use crate::{status_error::StatusError, store::text};

const TOKENS: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const LISTS: [&str; 2] = ["initContainers", "containers"];

/// What every specification of a pod is given, in a template too.
pub(super) fn defaults(spec: &mut Value) {
    fill(spec, "dnsPolicy", json!("ClusterFirst"));
    fill(spec, "restartPolicy", json!("Always"));
    fill(spec, "schedulerName", json!("default-scheduler"));
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", json!(30));
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        spec["serviceAccount"] = account;
    }
    for list in LISTS {
        spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(container);
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        for source in ["configMap", "secret", "projected", "downwardAPI"] {
            if volume.get(source).is_some_and(Value::is_object) {
                fill(&mut volume[source], "defaultMode", json!(420));
            }
        }
        if volume.get("hostPath").is_some_and(Value::is_object) {
            fill(&mut volume["hostPath"], "type", json!(""));
        }
    }
}

fn container(container: &mut Value) {
    let image = text(container, "/image").rsplit('/').next().unwrap_or_default().to_owned();
    let latest = !image.contains('@') && image.split_once(':').is_none_or(|(_, tag)| tag == "latest");
    fill(container, "imagePullPolicy", json!(if latest { "Always" } else { "IfNotPresent" }));
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", json!("/dev/termination-log"));
    fill(container, "terminationMessagePolicy", json!("File"));
    for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) {
            for (field, value) in
                [("failureThreshold", 3), ("periodSeconds", 10), ("successThreshold", 1), ("timeoutSeconds", 1)]
            {
                fill(probe, field, json!(value));
            }
            if probe.get("httpGet").is_some_and(Value::is_object) {
                fill(&mut probe["httpGet"], "scheme", json!("HTTP"));
            }
        }
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(field) = variable.pointer_mut("/valueFrom/fieldRef") {
            fill(field, "apiVersion", json!("v1"));
        }
    }
    let limits = container["resources"]["limits"].clone();
    for (resource, limit) in limits.as_object().into_iter().flatten() {
        fill(&mut container["resources"]["requests"], resource, limit.clone());
    }
    if container["resources"]["requests"].is_null() {
        container["resources"].as_object_mut().map(|resources| resources.remove("requests"));
    }
    if container["resources"]["limits"].is_null() {
        container["resources"].as_object_mut().map(|resources| resources.remove("limits"));
    }
}

/// What kubelets leave out and the types do not.
pub(super) fn status(status: &mut Value) {
    if let Some(address) = status.get("podIP").cloned() {
        fill(status, "podIPs", json!([{"ip": address}]));
    }
    for list in ["initContainerStatuses", "containerStatuses"] {
        let containers = status.get_mut(list).and_then(Value::as_array_mut);
        containers.into_iter().flatten().for_each(|container| {
            fill(container, "lastState", json!({}));
            fill(container, "state", json!({}));
        });
    }
}

/// What only pods have: an account, tolerations, a priority, a status.
pub(super) fn pod(object: &mut Value, making: &mut Making<'_>) -> Result<(), StatusError> {
    let namespace = text(object, "/metadata/namespace").to_owned();
    object["metadata"]["generation"] = json!(1);
    let spec = &mut object["spec"];
    fill(spec, "serviceAccountName", json!("default"));
    defaults(spec);
    fill(spec, "enableServiceLinks", json!(true));
    fill(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    fill(spec, "priority", json!(0));
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    tolerate_trouble(spec);
    let wanted = text(spec, "/serviceAccountName").to_owned();
    let accounts = (making.view)("serviceaccounts");
    let account = accounts
        .iter()
        .find(|account| text(account, "/metadata/namespace") == namespace && text(account, "/metadata/name") == wanted);
    if account.is_none() && !making.inside {
        let problem =
            format!("error looking up service account {namespace}/{wanted}: serviceaccount \"{wanted}\" not found");
        return Err(StatusError::forbidden("pods", text(object, "/metadata/name"), &problem));
    }
    // There are none here.
    let runtime_class = text(object, "/spec/runtimeClassName");
    if !runtime_class.is_empty() && !making.inside {
        let problem = format!("pod rejected: RuntimeClass \"{runtime_class}\" not found");
        return Err(StatusError::forbidden("pods", text(object, "/metadata/name"), &problem));
    }
    let automatic = account.map(|account| account["automountServiceAccountToken"].clone()).unwrap_or_default();
    let mounted = object["spec"].get("automountServiceAccountToken").unwrap_or(&automatic);
    if mounted != false {
        mount_token(&mut object["spec"], &suffix(making.random));
    }
    object["status"] = json!({"phase": "Pending", "qosClass": quality(&object["spec"])});
    Ok(())
}

/// Every pod stays a while on a node that is in trouble.
pub(super) fn tolerate_trouble(spec: &mut Value) {
    for taint in ["not-ready", "unreachable"] {
        tolerate(spec, &format!("node.kubernetes.io/{taint}"));
    }
}

fn tolerate(spec: &mut Value, key: &str) {
    let own = json!({"effect": "NoExecute", "key": key, "operator": "Exists", "tolerationSeconds": 300});
    let tolerations = &mut spec["tolerations"];
    let covers = |one: &Value| {
        let effect = one.get("effect").is_none_or(|effect| effect == "" || effect == "NoExecute");
        let any = one["operator"] == "Exists" && text(one, "/key").is_empty();
        effect && (any || one["key"] == key)
    };
    match tolerations.as_array_mut() {
        Some(list) if list.iter().any(covers) => {}
        Some(list) => list.push(own),
        None => *tolerations = json!([own]),
    }
}

fn suffix(random: &mut dyn FnMut() -> u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut letter = || {
        let index = usize::try_from(random() % LETTERS.len() as u64).unwrap_or_default();
        char::from(LETTERS.get(index).copied().unwrap_or(b'x'))
    };
    (0..5).map(|_| letter()).collect()
}

fn mount_token(spec: &mut Value, suffix: &str) {
    let name = format!("kube-api-access-{suffix}");
    let mount = json!({"name": name, "mountPath": TOKENS, "readOnly": true});
    for list in LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            append(&mut container["volumeMounts"], mount.clone());
        }
    }
    let namespace = json!({"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}});
    let sources = json!([
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]);
    append(&mut spec["volumes"], json!({"name": name, "projected": {"defaultMode": 420, "sources": sources}}));
}

fn append(list: &mut Value, value: Value) {
    match list.as_array_mut() {
        Some(list) => list.push(value),
        None => *list = json!([value]),
    }
}

/// How well a pod is treated when its node runs short.
fn quality(spec: &Value) -> &'static str {
    let containers = || LISTS.iter().flat_map(|list| spec[*list].as_array().into_iter().flatten());
    let of = |container: &Value, which: &str, resource: &str| {
        container["resources"][which][resource].as_str().and_then(quantities::nanos)
    };
    let any = |container: &Value| {
        ["cpu", "memory"]
            .iter()
            .any(|name| of(container, "requests", name).is_some() || of(container, "limits", name).is_some())
    };
    let full = |container: &Value| {
        ["cpu", "memory"].iter().all(|name| {
            let limit = of(container, "limits", name);
            limit.is_some() && of(container, "requests", name) == limit
        })
    };
    if !containers().any(any) {
        "BestEffort"
    } else if containers().all(full) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// `place` is where the specification stands in the object, as refusals name it.
pub(super) fn check(place: &str, spec: &Value, causes: &mut Causes) {
    let volumes: Vec<&Value> = spec["volumes"].as_array().into_iter().flatten().collect();
    for (index, volume) in volumes.iter().enumerate() {
        let claim = &volume["persistentVolumeClaim"];
        if claim.is_object() && text(claim, "/claimName").is_empty() {
            causes.required(&format!("{place}.volumes[{index}].persistentVolumeClaim.claimName"), "");
        }
    }
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        causes.required(&format!("{place}.containers"), "");
    }
    for list in ["containers", "initContainers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            check_container(&format!("{place}.{list}[{index}]"), container, &volumes, causes);
        }
    }
    causes.one_of(&format!("{place}.restartPolicy"), spec.get("restartPolicy"), &["Always", "OnFailure", "Never"]);
}

fn check_container(place: &str, container: &Value, volumes: &[&Value], causes: &mut Causes) {
    match text(container, "/name") {
        "" => causes.required(&format!("{place}.name"), ""),
        name => {
            causes.all(&format!("{place}.name"), name, &words::label(name));
        }
    }
    if text(container, "/image").is_empty() {
        causes.required(&format!("{place}.image"), "");
    }
    for (index, mount) in container["volumeMounts"].as_array().into_iter().flatten().enumerate() {
        if !volumes.iter().any(|volume| volume["name"] == mount["name"]) {
            causes.not_found(&format!("{place}.volumeMounts[{index}].name"), &mount["name"]);
        }
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    causes.one_of(&format!("{place}.imagePullPolicy"), container.get("imagePullPolicy"), &policies);
    let requests = container.pointer("/resources/requests").and_then(Value::as_object);
    for (name, request) in requests.into_iter().flatten() {
        let limit = &container["resources"]["limits"][name];
        let nanos = |value: &Value| value.as_str().and_then(quantities::nanos);
        if let (Some(wanted), Some(most)) = (nanos(request), nanos(limit))
            && wanted > most
        {
            let limit = limit.as_str().unwrap_or_default();
            let detail = format!("must be less than or equal to {name} limit of {limit}");
            causes.invalid(&format!("{place}.resources.requests"), request, &detail);
        }
    }
}

const CHANGEABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,\
    `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
    tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check_change(old: &Value, new: &Value, causes: &mut Causes) {
    let tolerations = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let kept = |one: &Value| {
        let bare = |toleration: &Value| {
            let mut bare = toleration.clone();
            bare.as_object_mut().map(|fields| fields.remove("tolerationSeconds"));
            bare
        };
        tolerations(&new["spec"]).iter().any(|other| bare(other) == bare(one))
    };
    if !tolerations(&old["spec"]).iter().all(kept) {
        causes.forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds");
        return;
    }
    if fixed(&old["spec"]) != fixed(&new["spec"]) {
        causes.forbidden("spec", CHANGEABLE);
    }
}

/// By a subresource of their own ephemeral containers come, and none changes or goes.
pub(super) fn keep_all_but_ephemeral(old: &Value, new: &mut Value, causes: &mut Causes) {
    const LIST: &str = "ephemeralContainers";
    let list = |pod: &Value| pod["spec"][LIST].as_array().cloned().unwrap_or_default();
    let (there, mut wanted) = (list(old), list(new));
    wanted.iter_mut().for_each(container);
    let managed = new["metadata"]["managedFields"].take();
    for field in ["metadata", "spec", "status"] {
        new[field] = old[field].clone();
    }
    if !managed.is_null() {
        new["metadata"]["managedFields"] = managed;
    }
    if let Some(changed) = there.iter().find(|one| !wanted.contains(one)) {
        let problem = format!("existing ephemeral containers \"{}\" may not be changed", text(changed, "/name"));
        causes.forbidden("spec.ephemeralContainers", &problem);
    }
    if !wanted.is_empty() {
        new["spec"][LIST] = json!(wanted);
    }
}

/// The part of a pod that stays as it is.
fn fixed(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("activeDeadlineSeconds");
        fields.remove("tolerations");
    }
    for list in LISTS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().map(|fields| fields.remove("image"));
        }
    }
    spec
}
