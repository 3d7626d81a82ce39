//! Plays the garbage collector: what is owned goes when its owners have gone, before them, or is left without an owner,
//! as the deletion asked.

use std::sync::Arc;

use serde_json::Value;

use super::{overtaken, whenever_changed};
use crate::simulate::{Cluster, text};

const DEPENDENTS_FIRST: &str = "foregroundDeletion";
const LET_GO: &str = "orphan";

/// Kinds that own or are owned here, and their resources.
const KINDS: [(&str, &str); 7] = [
    ("Deployment", "deployments.apps"),
    ("ReplicaSet", "replicasets.apps"),
    ("StatefulSet", "statefulsets.apps"),
    ("Pod", "pods"),
    ("PersistentVolumeClaim", "persistentvolumeclaims"),
    ("Node", "nodes"),
    ("CSINode", "csinodes.storage.k8s.io"),
];

/// What has become of an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Gone,
    /// It waits for those it owns to go first.
    DependentsFirst,
    /// It is leaving and wants to be left; by UID.
    LettingGo(String),
    Stays,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Fate {
    Keep,
    Delete,
    /// The owner of this UID is no more.
    Disown(String),
}

fn fate(owners: &[Owner]) -> Fate {
    if let Some(uid) = owners.iter().find_map(|owner| if let Owner::LettingGo(uid) = owner { Some(uid) } else { None })
    {
        return Fate::Disown(uid.clone());
    }
    let leaves = |owner: &Owner| matches!(owner, Owner::Gone | Owner::DependentsFirst);
    if !owners.is_empty() && owners.iter().all(leaves) { Fate::Delete } else { Fate::Keep }
}

pub(super) async fn run(host: Cluster) {
    whenever_changed(&host, &KINDS.map(|(_, resource)| resource), || pass(&host)).await;
}

fn pass(host: &Cluster) {
    for (_, resource) in KINDS {
        for object in host.list(resource) {
            let (namespace, name) = (text(&object, "/metadata/namespace"), text(&object, "/metadata/name"));
            let owners: Vec<Owner> = references(&object).map(|reference| owner(host, namespace, reference)).collect();
            match fate(&owners) {
                Fate::Keep => {}
                Fate::Delete if is_leaving(&object) => {}
                Fate::Delete => drop(overtaken("a deletion", host.delete(resource, namespace, name))),
                Fate::Disown(uid) => drop(overtaken(
                    "a change of owners",
                    host.change(resource, namespace, name, |object| disown(object, &uid)),
                )),
            }
        }
    }
    for (_, resource) in KINDS {
        for object in host.list(resource).iter().filter(|object| is_leaving(object)) {
            if !owns_anything(host, object) {
                release(host, resource, object);
            }
        }
    }
}

fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/metadata/ownerReferences").and_then(Value::as_array).into_iter().flatten()
}

fn owner(host: &Cluster, namespace: &str, reference: &Value) -> Owner {
    let Some((_, resource)) = KINDS.iter().find(|(kind, _)| *kind == text(reference, "/kind")) else {
        return Owner::Stays; // of a kind that is not looked after here
    };
    let (name, uid) = (text(reference, "/name"), text(reference, "/uid"));
    let found = host.get(resource, namespace, name).or_else(|| host.get(resource, "", name));
    match found.filter(|found| text(found, "/metadata/uid") == uid) {
        None => Owner::Gone,
        Some(found) if is_leaving(&found) && has_finalizer(&found, DEPENDENTS_FIRST) => Owner::DependentsFirst,
        Some(found) if is_leaving(&found) && has_finalizer(&found, LET_GO) => Owner::LettingGo(uid.to_owned()),
        Some(_) => Owner::Stays,
    }
}

fn is_leaving(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

fn has_finalizer(object: &Value, name: &str) -> bool {
    let mut finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array).into_iter().flatten();
    finalizers.any(|finalizer| finalizer == name)
}

fn disown(object: &mut Value, uid: &str) {
    if let Some(references) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) {
        references.retain(|reference| reference["uid"] != uid);
    }
}

fn owns_anything(host: &Cluster, owner: &Value) -> bool {
    let uid = text(owner, "/metadata/uid");
    let is_its = |object: &Arc<Value>| references(object).any(|reference| reference["uid"] == uid);
    KINDS.iter().any(|(_, resource)| host.list(resource).iter().any(is_its))
}

/// Takes the collector's own finalizers away.
fn release(host: &Cluster, resource: &str, object: &Value) {
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let edit = |object: &mut Value| {
        if let Some(finalizers) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
            finalizers.retain(|finalizer| finalizer != DEPENDENTS_FIRST && finalizer != LET_GO);
        }
    };
    overtaken("a change of finalizers", host.change(resource, namespace, name, edit));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_objects_go_with_the_last_owner() {
        let letting_go = Owner::LettingGo("u".to_owned());
        for (owners, expected) in [
            (vec![], Fate::Keep),
            (vec![Owner::Stays], Fate::Keep),
            (vec![Owner::Gone], Fate::Delete),
            (vec![Owner::DependentsFirst], Fate::Delete),
            (vec![Owner::Gone, Owner::Stays], Fate::Keep),
            (vec![Owner::Gone, Owner::DependentsFirst], Fate::Delete),
            (vec![letting_go.clone()], Fate::Disown("u".to_owned())),
            (vec![Owner::Gone, letting_go], Fate::Disown("u".to_owned())),
        ] {
            assert_eq!(fate(&owners), expected, "{owners:?}");
        }
    }
}
