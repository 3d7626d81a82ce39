//! What is to be done about a claim, and how it is written once it is bound. Pure.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE, class_of, is_bound_to};
use crate::{
    object::{annotate, annotation, items, name, set, text, texts, uid},
    quantity,
};

/// Stands for provisioning by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What is known besides the claim.
#[derive(Debug, Default)]
pub(super) struct Seen<'a> {
    pub(super) class: Option<&'a Value>,
    /// The volume that the claim names.
    pub(super) named: Option<&'a Value>,
    /// Volumes that could be its own: those that name it first, then those that are free.
    pub(super) offers: Vec<&'a Value>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Bound to this volume, or to be bound.
    Bind(String),
    /// It waits; the reason and the message say why, where anything is to be said.
    Wait(Option<(&'static str, String)>),
    /// As `Wait`, but something is wrong.
    Refuse(&'static str, String),
    /// A provisioner of this name is to make the volume.
    Provision(String),
    /// Its volume is not there any more, or not its own.
    Lost(&'static str, String),
}

pub(super) fn decide(claim: &Value, seen: &Seen) -> Verdict {
    let volume = text(claim, "/spec/volumeName");
    if !annotation(claim, BIND_COMPLETED).is_empty() {
        return decide_bound(claim, volume, seen.named);
    }
    if volume.is_empty() {
        return decide_free(claim, seen);
    }
    match seen.named {
        None => Verdict::Wait(None),
        Some(named) if is_bound_to(named, claim) => Verdict::Bind(volume.to_owned()),
        Some(named) if named.pointer("/spec/claimRef").is_some_and(|bound| !bound.is_null()) => {
            Verdict::Refuse("FailedBinding", format!("volume {volume} is bound to another claim"))
        }
        Some(named) => match mismatch(named, claim) {
            Some(reason) => Verdict::Refuse("VolumeMismatch", format!("cannot bind to volume {volume}: {reason}")),
            None => Verdict::Bind(volume.to_owned()),
        },
    }
}

fn decide_bound(claim: &Value, volume: &str, named: Option<&Value>) -> Verdict {
    match named {
        _ if volume.is_empty() => Verdict::Lost("ClaimLost", "the claim was bound and names no volume any more".into()),
        None => Verdict::Lost("ClaimLost", format!("volume {volume} of the bound claim is gone")),
        Some(named) if named.pointer("/spec/claimRef").is_none_or(Value::is_null) || is_bound_to(named, claim) => {
            Verdict::Bind(volume.to_owned())
        }
        Some(_) => Verdict::Lost("ClaimMisbound", format!("volume {volume} is bound to another claim")),
    }
}

/// A claim that names no volume.
fn decide_free(claim: &Value, seen: &Seen) -> Verdict {
    let class = class_of(claim);
    let waits = seen.class.is_some_and(|class| text(class, "/volumeBindingMode") == "WaitForFirstConsumer")
        && annotation(claim, SELECTED_NODE).is_empty();
    if let Some(own) = seen.offers.iter().find(|volume| is_bound_to(volume, claim) && fits(volume, claim)) {
        return Verdict::Bind(name(own).to_owned());
    }
    if waits {
        let message = "waiting for first consumer to be created before binding";
        return Verdict::Wait(Some(("WaitForFirstConsumer", message.to_owned())));
    }
    if let Some(found) = smallest(claim, &seen.offers) {
        return Verdict::Bind(name(found).to_owned());
    }
    if class.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        return Verdict::Wait(Some(("FailedBinding", message.to_owned())));
    }
    match seen.class.map(|class| text(class, "/provisioner")) {
        None => Verdict::Refuse("ProvisioningFailed", format!("storageclass.storage.k8s.io \"{class}\" not found")),
        Some(NO_PROVISIONER) => Verdict::Wait(None),
        Some(provisioner) => Verdict::Provision(provisioner.to_owned()),
    }
}

/// The free volume that wastes least.
fn smallest<'a>(claim: &Value, offers: &[&'a Value]) -> Option<&'a Value> {
    let free = offers.iter().copied().filter(|volume| {
        volume.pointer("/spec/claimRef").is_none_or(Value::is_null)
            && text(volume, "/status/phase") == "Available"
            && text(volume, "/metadata/deletionTimestamp").is_empty()
            && mismatch(volume, claim).is_none()
            && fits(volume, claim)
            && is_selected(volume, claim)
    });
    free.min_by_key(|volume| (size_of(volume), name(volume).to_owned()))
}

/// Size, access and mode, which even volumes that name the claim must satisfy.
fn fits(volume: &Value, claim: &Value) -> bool {
    let offered: HashSet<&str> = texts(volume, "/spec/accessModes").collect();
    size_of(volume) >= requested(claim)
        && texts(claim, "/spec/accessModes").all(|mode| offered.contains(mode))
        && mode_of(volume) == mode_of(claim)
}

/// Why a volume cannot be the one that a claim names.
fn mismatch(volume: &Value, claim: &Value) -> Option<&'static str> {
    if size_of(volume) < requested(claim) {
        Some("requested volume size is larger")
    } else if class_of(volume) != class_of(claim) {
        Some("storage classes differ")
    } else if mode_of(volume) != mode_of(claim) {
        Some("volume modes differ")
    } else {
        None
    }
}

fn is_selected(volume: &Value, claim: &Value) -> bool {
    let labels = volume.pointer("/metadata/labels");
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let wanted = claim.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let equal = wanted.is_none_or(|wanted| wanted.iter().all(|(key, value)| label(key) == value.as_str()));
    let terms = items(claim, "/spec/selector/matchExpressions").iter();
    equal
        && terms.map(|term| (term, label(text(term, "/key")))).all(|(term, value)| match text(term, "/operator") {
            "In" => value.is_some_and(|value| texts(term, "/values").any(|one| one == value)),
            "NotIn" => value.is_none_or(|value| texts(term, "/values").all(|one| one != value)),
            "Exists" => value.is_some(),
            _ => value.is_none(),
        })
}

pub(super) fn requested(claim: &Value) -> u64 {
    quantity::parse(text(claim, "/spec/resources/requests/storage")).unwrap_or(0)
}

fn size_of(volume: &Value) -> u64 {
    quantity::parse(text(volume, "/spec/capacity/storage")).unwrap_or(0)
}

fn mode_of(object: &Value) -> &str {
    match text(object, "/spec/volumeMode") {
        "" => "Filesystem",
        mode => mode,
    }
}

/// The claim's side of a bond.
pub(super) fn bind(claim: &mut Value, volume: &str) {
    if text(claim, "/spec/volumeName") != volume {
        set(claim, &["spec", "volumeName"], json!(volume));
        annotate(claim, BOUND_BY_CONTROLLER, "yes");
    }
    annotate(claim, BIND_COMPLETED, "yes");
}

/// What a claim tells of its volume. The capacity is told once: growing is the resizer's to tell.
pub(super) fn tell_bound(claim: &mut Value, volume: &Value) {
    let becomes_bound = text(claim, "/status/phase") != "Bound";
    set(claim, &["status", "phase"], json!("Bound"));
    set(claim, &["status", "accessModes"], volume.pointer("/spec/accessModes").cloned().unwrap_or_default());
    if becomes_bound {
        set(claim, &["status", "capacity"], volume.pointer("/spec/capacity").cloned().unwrap_or_default());
    }
}

/// What a claim tells while it has no volume.
pub(super) fn tell_phase(claim: &mut Value, phase: &str) {
    set(claim, &["status", "phase"], json!(phase));
    if let Some(status) = claim.pointer_mut("/status").and_then(Value::as_object_mut) {
        status.remove("accessModes");
        status.remove("capacity");
    }
}

/// The reference by which a volume names a claim.
pub(super) fn reference(claim: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": text(claim, "/metadata/namespace"),
        "name": name(claim),
        "uid": uid(claim),
        "resourceVersion": text(claim, "/metadata/resourceVersion"),
    })
}
