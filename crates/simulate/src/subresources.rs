//! Subresources that are more than a part of their object: binding a pod, scaling, the end of a namespace, tokens.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    Cluster,
    call::Call,
    faults::Verb,
    patch, remove,
    status_error::StatusError,
    store::{Store, text},
};

type Answer = Result<(u16, Value), StatusError>;

/// None where the subresource is a part of the object, such as its status.
pub fn answer(cluster: &Cluster, call: &Call, store: &mut Store) -> Option<Answer> {
    match (call.resource.as_str(), call.subresource.as_str(), call.verb) {
        ("pods", "binding", Verb::Create) => Some(bind(cluster, call, store)),
        ("pods", "eviction", Verb::Create) => Some(evict(cluster, call, store)),
        ("namespaces", "finalize", Verb::Update) => Some(finalize(call, store)),
        ("serviceaccounts", "token", Verb::Create) => Some(token(cluster, call, store)),
        (_, "scale", Verb::Get) => Some(live(call, store).map(|object| (200, scale(&object)))),
        (_, "scale", Verb::Update | Verb::Patch) => Some(rescale(cluster, call, store)),
        _ => None,
    }
}

fn live(call: &Call, store: &Store) -> Result<Value, StatusError> {
    let found = store.get(&call.resource, &call.namespace, &call.name);
    found.map(|object| Value::clone(&object)).ok_or_else(|| StatusError::not_found(&call.resource, &call.name))
}

fn success(code: u16) -> (u16, Value) {
    (code, json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code}))
}

fn bind(cluster: &Cluster, call: &Call, store: &mut Store) -> Answer {
    let node = text(&call.object()?, "/target/name").to_owned();
    let mut pod = live(call, store)?;
    if !text(&pod, "/spec/nodeName").is_empty() {
        let problem = format!("pod {} is already assigned to node \"{}\"", call.name, text(&pod, "/spec/nodeName"));
        return Err(StatusError::conflict("pods/binding", &call.name, &problem));
    }
    pod["spec"]["nodeName"] = json!(node);
    let scheduled =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": cluster.stamp()});
    match pod["status"].get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => {
            conditions.retain(|condition| condition["type"] != json!("PodScheduled"));
            conditions.push(scheduled);
        }
        None => pod["status"]["conditions"] = json!([scheduled]),
    }
    Cluster::put_down(store, "pods", pod);
    Ok(success(201))
}

fn evict(cluster: &Cluster, call: &Call, store: &mut Store) -> Answer {
    remove::end(cluster, store, "pods", &call.namespace, &call.name, &super::remove::Options::default())?;
    Ok(success(201))
}

fn finalize(call: &Call, store: &mut Store) -> Answer {
    let mut namespace = live(call, store)?;
    let body = call.object()?;
    namespace["spec"] = match body["spec"]["finalizers"].as_array() {
        Some(finalizers) if !finalizers.is_empty() => json!({"finalizers": finalizers}),
        _ => json!({}),
    };
    for field in ["labels", "annotations", "finalizers"] {
        match body["metadata"].get(field) {
            Some(value) => namespace["metadata"][field] = value.clone(),
            None => drop(namespace["metadata"].as_object_mut().map(|metadata| metadata.remove(field))),
        }
    }
    namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(call.name);
    let put = Cluster::put_down(store, "namespaces", namespace);
    Ok((200, Value::clone(&put)))
}

/// One that opens nothing.
fn token(cluster: &Cluster, call: &Call, store: &Store) -> Answer {
    live(call, store)?;
    let mut request = call.object()?;
    let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_u64).unwrap_or(3600);
    let until = cluster.0.clock.stamp_in(Duration::from_secs(seconds));
    request["status"] = json!({"token": format!("{}/{}", call.namespace, call.name), "expirationTimestamp": until});
    Ok((201, request))
}

fn scale(object: &Value) -> Value {
    let selector = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object).into_iter().flatten();
    let selector: Vec<String> =
        selector.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0);
    let metadata = &object["metadata"];
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": number("/spec/replicas")},
        "status": {"replicas": number("/status/replicas"), "selector": selector.join(",")},
    })
}

/// The scale that a body asks for, itself or as a patch of what is there.
fn wanted_scale(cluster: &Cluster, call: &Call, there: &Value) -> Result<Value, StatusError> {
    if call.verb != Verb::Patch {
        return call.object();
    }
    let options = patch::Options {
        name: call.name.clone(),
        kind: "Scale".to_owned(),
        api_version: "autoscaling/v1".to_owned(),
        writer: cluster.writer(call),
        force: call.query.is_true("force"),
        custom: false,
    };
    patch::apply(
        patch::PatchType::from_content_type(&call.content_type)?,
        "scales.autoscaling",
        there,
        &call.body,
        &options,
    )
}

fn rescale(cluster: &Cluster, call: &Call, store: &mut Store) -> Answer {
    let live = live(call, store)?;
    let wanted = wanted_scale(cluster, call, &scale(&live))?;
    let mut object = live.clone();
    super::read::check_version(call, &object, text(&wanted, "/metadata/resourceVersion"))?;
    let given = &wanted["spec"]["replicas"];
    if given.as_i64().is_some_and(|replicas| replicas < 0) {
        let mut causes = super::kinds::Causes::default();
        causes.invalid("spec.replicas", given, "must be greater than or equal to 0");
        causes.into_result("Scale.autoscaling", &call.name)?;
    }
    let replicas = given.as_u64();
    let replicas = replicas.ok_or_else(|| StatusError::bad_request("spec.replicas is missing or no number"))?;
    if object.pointer("/spec/replicas").and_then(Value::as_u64) != Some(replicas) {
        object["spec"]["replicas"] = json!(replicas);
        let generation = object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1);
        object["metadata"]["generation"] = json!(generation + 1);
        patch::note(&call.resource, call.kind.custom, &live, &mut object, &cluster.writer(call));
        object = Value::clone(&Cluster::put_down(store, &call.resource, object));
    }
    Ok((200, scale(&object)))
}
