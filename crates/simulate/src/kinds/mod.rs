//! What is particular to a kind: what a body of it may hold, defaults, what clients may write, what must be true.
//!
//! `write` asks in this order: `decode` makes of a body what the API's own types would keep of it, `prepare_create` and
//! `prepare_update` fill in, carry over and judge. All are functions of values: what they need of the cluster is handed
//! in as [`Making`]. As deep as a user of kubectl would notice; `tests/e2e/differential` holds it against a real server.

mod causes;
mod csi;
mod decode;
mod metadata;
mod plain;
mod pods;
mod quantities;
mod schema;
mod storage;
mod strict;
mod types;
pub mod words;
mod workloads;

use std::sync::Arc;

use serde_json::{Value, json};

pub use decode::{decode, unappliable};
pub use strict::duplicates;
pub use types::{name_of, unpatchable};

use super::{resources::Kind, status_error::StatusError, store::text};
pub use causes::Causes;

type View<'a> = &'a dyn Fn(&str) -> Vec<Arc<Value>>;

/// What a new or changed object is judged with.
pub struct Making<'a> {
    pub kind: &'a Kind,
    /// All objects of a resource.
    pub view: View<'a>,
    pub random: &'a mut dyn FnMut() -> u64,
    /// The time as objects carry it.
    pub now: &'a str,
    /// Whether it is not a client that asks: then nothing is decided for it.
    pub inside: bool,
}

impl std::fmt::Debug for Making<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Making").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Sets a field that is not there.
fn fill(object: &mut Value, field: &str, value: Value) {
    if object.is_null() {
        *object = json!({});
    }
    if let Some(fields) = object.as_object_mut() {
        fields.entry(field).or_insert(value);
    }
}

/// The kinds whose objects count their changes.
fn counts_changes(kind: &Kind) -> bool {
    let counting = ["networkpolicies.networking.k8s.io", "poddisruptionbudgets.policy", "jobs.batch", "pods"];
    let resource = kind.resource();
    kind.custom || kind.group == "apps" || kind.group == "apiextensions.k8s.io" || counting.contains(&resource.as_str())
}

pub fn prepare_create(object: &mut Value, making: &mut Making<'_>) -> Result<(), StatusError> {
    let resource = making.kind.resource();
    if making.kind.subresources.iter().any(|part| part == "status") && resource != "nodes" && resource != "services" {
        object.as_object_mut().map(|fields| fields.remove("status"));
    }
    if counts_changes(making.kind) {
        object["metadata"]["generation"] = json!(1);
    }
    match resource.as_str() {
        "pods" => pods::pod(object, making)?,
        "persistentvolumeclaims" => storage::claim(object, making),
        "persistentvolumes" => storage::volume(object, making),
        "nodes" if !making.inside => plain::node(object),
        "storageclasses.storage.k8s.io" => storage::class(object),
        _ => defaults(&resource, object, true),
    }
    let mut causes = Causes::default();
    metadata::check(&resource, object, &mut causes);
    check(&resource, object, &mut causes);
    schema::check(making.kind, object, &mut causes);
    causes.into_result(&making.kind.qualified(), text(object, "/metadata/name"))
}

/// What the decoder of a kind fills in, and for a new object what its beginning is.
fn defaults(resource: &str, object: &mut Value, new: bool) {
    match resource {
        "namespaces" if new => plain::namespace(object),
        "secrets" => plain::secret(object),
        "services" => plain::service(object),
        "nodes" => plain::node_status(object),
        "events" => plain::event(object),
        "resourcequotas" if new => object["status"] = json!({}),
        "csidrivers.storage.k8s.io" => csi::driver(object),
        "csinodes.storage.k8s.io" => csi::node(object),
        "volumeattachments.storage.k8s.io" if new => csi::attachment(object),
        "volumeattributesclasses.storage.k8s.io" if new => csi::attributes(object),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            plain::binding(object);
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            workloads::defaults(resource, object);
            if new {
                workloads::made(resource, object);
            }
        }
        "customresourcedefinitions.apiextensions.k8s.io" => {
            schema::definition(object);
            if new {
                schema::new_definition(object);
            }
        }
        "pods" => {
            pods::defaults(&mut object["spec"]);
            pods::status(&mut object["status"]);
        }
        "persistentvolumeclaims" => fill(&mut object["spec"], "volumeMode", json!("Filesystem")),
        "persistentvolumes" => {
            fill(&mut object["spec"], "volumeMode", json!("Filesystem"));
            fill(&mut object["spec"], "persistentVolumeReclaimPolicy", json!("Retain"));
        }
        "storageclasses.storage.k8s.io" => storage::class(object),
        _ => {}
    }
}

fn check(resource: &str, object: &Value, causes: &mut Causes) {
    match resource {
        "configmaps" => plain::check_data(object, causes),
        "secrets" => {
            plain::check_data(object, causes);
            plain::check_secret(object, causes);
        }
        "events" => plain::check_event(object, causes),
        "leases.coordination.k8s.io" => plain::check_lease(object, causes),
        "resourcequotas" => plain::check_quota(object, causes),
        "pods" => pods::check("spec", &object["spec"], causes),
        "persistentvolumeclaims" => storage::check_claim(object, causes),
        "persistentvolumes" => storage::check_volume(object, causes),
        "storageclasses.storage.k8s.io" => storage::check_class(object, causes),
        "csinodes.storage.k8s.io" => csi::check_node(object, causes),
        "volumeattachments.storage.k8s.io" => csi::check_attachment(object, causes),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            workloads::check(object, causes);
        }
        "customresourcedefinitions.apiextensions.k8s.io" => schema::check_definition(object, causes),
        _ => {}
    }
}

fn check_change(resource: &str, old: &Value, new: &Value, causes: &mut Causes) {
    match resource {
        "configmaps" => plain::check_data_change(old, new, causes),
        "secrets" => {
            causes.immutable("type", old.get("type"), new.get("type"));
            plain::check_data_change(old, new, causes);
        }
        "pods" => pods::check_change(old, new, causes),
        "persistentvolumeclaims" => storage::check_claim_change(old, new, causes),
        "persistentvolumes" => storage::check_volume_change(old, new, causes),
        "storageclasses.storage.k8s.io" => storage::check_class_change(old, new, causes),
        "csidrivers.storage.k8s.io" => csi::check_driver_change(old, new, causes),
        "csinodes.storage.k8s.io" => csi::check_node_change(old, new, causes),
        "csistoragecapacities.storage.k8s.io" => csi::check_capacity_change(old, new, causes),
        "volumeattachments.storage.k8s.io" => csi::check_attachment_change(old, new, causes),
        "volumeattributesclasses.storage.k8s.io" => csi::check_attributes_change(old, new, causes),
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            plain::check_binding_change(old, new, causes);
        }
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "daemonsets.apps" => {
            workloads::check_change(resource, old, new, causes);
        }
        _ => {}
    }
}

pub fn prepare_update(old: &Value, new: &mut Value, part: &str, making: &Making<'_>) -> Result<(), StatusError> {
    let resource = making.kind.resource();
    let mut causes = Causes::default();
    // What is kept may be older than a default.
    let mut settled = old.clone();
    defaults(&resource, &mut settled, false);
    let old = &settled;
    defaults(&resource, new, false);
    if part == "status" {
        keep_all_but_status(making.kind, old, new);
        if resource == "persistentvolumes" {
            storage::note_phase(old, new, making.now);
        }
        metadata::check(&resource, new, &mut causes);
        if resource == "persistentvolumeclaims" {
            storage::check_claim_status(new, &mut causes);
        }
        schema::check(making.kind, new, &mut causes);
        return causes.into_result(&making.kind.qualified(), text(new, "/metadata/name"));
    }
    if part == "ephemeralcontainers" {
        pods::keep_all_but_ephemeral(old, new, &mut causes);
        count_change(making.kind, old, new);
        return causes.into_result(&making.kind.qualified(), text(new, "/metadata/name"));
    }
    keep_status(making.kind, old, new);
    if resource == "pods" {
        pods::tolerate_trouble(&mut new["spec"]);
    }
    if resource == "namespaces" {
        plain::namespace_change(old, new);
    }
    count_change(making.kind, old, new);
    metadata::check(&resource, new, &mut causes);
    check(&resource, new, &mut causes);
    check_change(&resource, old, new, &mut causes);
    schema::check(making.kind, new, &mut causes);
    causes.into_result(&making.kind.qualified(), text(new, "/metadata/name"))?;
    if resource == "persistentvolumeclaims" {
        storage::admit_growth(old, new, making)?;
    }
    Ok(())
}

/// A write to the status changes nothing else but labels and the like, and of some kinds not even those.
fn keep_all_but_status(kind: &Kind, old: &Value, new: &mut Value) {
    let mut kept = old.clone();
    if kind.resource() == "nodes" || !(kind.custom || kind.group == "apps" || kind.group == "storage.k8s.io") {
        kept["metadata"] = new["metadata"].clone();
    }
    match new.get("status") {
        Some(status) => kept["status"] = status.clone(),
        None => drop(kept.as_object_mut().map(|fields| fields.remove("status"))),
    }
    *new = kept;
    if new.get("status").is_none() && !kind.custom {
        new["status"] = json!({});
    }
    if kind.resource() == "persistentvolumeclaims" {
        fill(&mut new["status"], "phase", json!("Pending"));
    }
}

fn keep_status(kind: &Kind, old: &Value, new: &mut Value) {
    if !kind.subresources.iter().any(|part| part == "status") {
        return;
    }
    match old.get("status") {
        Some(status) => new["status"] = status.clone(),
        None => drop(new.as_object_mut().map(|fields| fields.remove("status"))),
    }
}

/// `generation` goes on when what is wanted has changed.
fn count_change(kind: &Kind, old: &Value, new: &mut Value) {
    let parts = |object: &Value| {
        let mut parts = object.as_object().cloned().unwrap_or_default();
        parts.retain(|key, _| !["metadata", "status"].contains(&key.as_str()));
        parts
    };
    let annotations = |object: &Value| object["metadata"].get("annotations").cloned();
    let deployment = kind.resource() == "deployments.apps" && annotations(old) != annotations(new);
    let driver = kind.resource() == "csidrivers.storage.k8s.io";
    if (counts_changes(kind) || driver) && (deployment || parts(old) != parts(new)) {
        let generation = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
        new["metadata"]["generation"] = json!(generation + 1);
    }
}

#[cfg(test)]
mod tests;
