//! DELETE: preconditions, finalizers, grace, and what the answer says.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Cluster,
    call::{Call, Query},
    decoder, quota,
    read::list,
    status_error::StatusError,
    store::{Store, text},
    write::{is_held, is_terminating},
};

/// No cluster is without these.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

/// What a deletion is bound to, from body and query.
#[derive(Debug, Default)]
pub struct Options {
    uid: Option<String>,
    version: Option<String>,
    grace: Option<i64>,
    propagation: String,
    dry: bool,
}

impl Options {
    /// A body is believed alone: where there is one, the query says nothing.
    fn of(call: &Call) -> Result<Self, StatusError> {
        let body = if call.body.is_empty() { from_query(&call.query)? } else { from_body(&call.body)? };
        super::options::of_deletion(&body)?;
        let given = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Ok(Self {
            uid: given("/preconditions/uid"),
            version: given("/preconditions/resourceVersion"),
            grace: body.get("gracePeriodSeconds").and_then(Value::as_i64),
            propagation: given("/propagationPolicy").unwrap_or_default(),
            dry: body["dryRun"].as_array().is_some_and(|dry| !dry.is_empty()),
        })
    }

    /// At once, as a kubelet does when a pod has ended.
    pub fn at_once() -> Self {
        Self { grace: Some(0), ..Self::default() }
    }
}

fn from_query(query: &Query) -> Result<Value, StatusError> {
    let mut body = json!({});
    for (field, text) in ["propagationPolicy", "dryRun"].map(|field| (field, query.get(field))) {
        if !text.is_empty() {
            body[field] = if field == "dryRun" { json!([text]) } else { json!(text) };
        }
    }
    if query.has("gracePeriodSeconds") {
        body["gracePeriodSeconds"] = json!(decoder::number(query.get("gracePeriodSeconds"))?);
    }
    Ok(body)
}

fn from_body(body: &[u8]) -> Result<Value, StatusError> {
    let options: Value = serde_json::from_slice(body).map_err(|_| {
        let problem = decoder::problem(body).unwrap_or_default();
        StatusError::bad_request(&format!("couldn't get version/kind; json parse error: {problem}"))
    })?;
    let (kind, version) = (text(&options, "/kind"), text(&options, "/apiVersion"));
    if !["", "DeleteOptions"].contains(&kind) {
        return Err(StatusError::bad_request(&format!(
            "no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""
        )));
    }
    Ok(options)
}

/// What is left of an object after a deletion.
#[derive(Debug)]
pub enum Removed {
    /// It waits for finalizers, or for its pod to end.
    Terminating(Arc<Value>),
    Gone(Arc<Value>),
}

pub(super) fn delete_by(cluster: &Cluster, call: &Call, store: &mut Store) -> Result<Removed, StatusError> {
    end(cluster, store, &call.resource, &call.namespace, &call.name, &Options::of(call)?)
}

pub(super) fn delete_all_by(cluster: &Cluster, call: &Call, store: &mut Store) -> Result<Vec<Arc<Value>>, StatusError> {
    let options = Options::of(call)?;
    let page = list(call, store, 0)?;
    for object in &page.objects {
        let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
        end(cluster, store, &call.resource, namespace, name, &options)?;
    }
    Ok(page.objects)
}

pub(super) fn end(
    cluster: &Cluster,
    store: &mut Store,
    resource: &str,
    namespace: &str,
    name: &str,
    options: &Options,
) -> Result<Removed, StatusError> {
    let live = store.get(resource, namespace, name).ok_or_else(|| StatusError::not_found(resource, name))?;
    check(resource, name, &live, options)?;
    if resource == "namespaces" && UNDELETABLE.contains(&name) {
        return Err(StatusError::forbidden(resource, name, "this namespace may not be deleted"));
    }
    let mut object = Value::clone(&live);
    let begun = is_terminating(&live);
    mark(cluster, resource, &mut object, options);
    if options.dry {
        return Ok(Removed::Gone(live));
    }
    if !is_held(resource, &object) {
        let gone = store.remove(resource, if begun || resource == "pods" { object } else { Value::clone(&live) });
        quota::count(store, namespace);
        super::custom::follow(store, resource, &gone);
        return Ok(Removed::Gone(gone));
    }
    Ok(Removed::Terminating(if object == *live { live } else { store.put(resource, object) }))
}

fn mark(cluster: &Cluster, resource: &str, object: &mut Value, options: &Options) {
    let begun = is_terminating(object);
    let grace = grace(resource, object, options);
    let before = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
    if begun && before.is_none_or(|before| before <= grace) {
        return;
    }
    let wait = std::time::Duration::from_secs(u64::try_from(grace).unwrap_or(0));
    object["metadata"]["deletionTimestamp"] = json!(cluster.0.clock.stamp_in(wait));
    if resource != "namespaces" {
        object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    }
    if begun {
        return;
    }
    if let Some(generation) = object.pointer("/metadata/generation").and_then(Value::as_i64) {
        object["metadata"]["generation"] = json!(generation + 1);
    }
    match options.propagation.as_str() {
        "Orphan" => add_finalizer(object, "orphan"),
        "Foreground" => add_finalizer(object, "foregroundDeletion"),
        _ => {}
    }
    if resource == "namespaces" {
        object["status"]["phase"] = json!("Terminating");
    }
}

fn add_finalizer(object: &mut Value, name: &str) {
    match object["metadata"].get_mut("finalizers").and_then(Value::as_array_mut) {
        Some(list) => list.push(json!(name)),
        None => object["metadata"]["finalizers"] = json!([name]),
    }
}

/// Only pods that run somewhere are given time.
fn grace(resource: &str, object: &Value, options: &Options) -> i64 {
    let ended = ["Succeeded", "Failed"].contains(&text(object, "/status/phase"));
    if resource != "pods" || text(object, "/spec/nodeName").is_empty() || ended {
        return 0;
    }
    let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    options.grace.or(own).unwrap_or(30).max(0)
}

fn check(resource: &str, name: &str, live: &Value, options: &Options) -> Result<(), StatusError> {
    let uid = text(live, "/metadata/uid");
    let (_, group) = resource.split_once('.').unwrap_or((resource, ""));
    let kind = text(live, "/kind");
    let kind = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        if resource != "namespaces" {
            return Err(StatusError::other_uid(&kind, name, wanted, uid));
        }
        let problem = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid}");
        return Err(StatusError::conflict(resource, name, &problem));
    }
    let version = text(live, "/metadata/resourceVersion");
    if let Some(wanted) = options.version.as_deref().filter(|wanted| *wanted != version) {
        return Err(StatusError::other_version(&kind, name, wanted, version));
    }
    Ok(())
}
