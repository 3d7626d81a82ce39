//! What is to be done about a volume, and how it is written once it is bound. Pure.

use serde_json::{Value, json};

use super::{BOUND_BY_CONTROLLER, PROVISIONED_BY, claim::reference, is_bound_to};
use crate::object::{annotate, annotation, set, text, uid, unset};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Phase(&'static str),
    /// Its claim found another volume: it is given up.
    Unbind,
    /// The claim has to act first.
    Wait,
}

/// `claim` is the one of the name that the volume tells.
pub(super) fn decide(volume: &Value, claim: Option<&Value>) -> Verdict {
    let bound_to = text(volume, "/spec/claimRef/uid");
    if bound_to.is_empty() {
        return Verdict::Phase("Available");
    }
    let Some(claim) = claim.filter(|claim| uid(claim) == bound_to) else {
        return Verdict::Phase(if text(volume, "/status/phase") == "Failed" { "Failed" } else { "Released" });
    };
    let named = text(claim, "/spec/volumeName");
    if named == text(volume, "/metadata/name") {
        Verdict::Phase("Bound")
    } else if named.is_empty() {
        Verdict::Wait
    } else if !annotation(volume, PROVISIONED_BY).is_empty()
        && text(volume, "/spec/persistentVolumeReclaimPolicy") == "Delete"
    {
        Verdict::Phase("Released")
    } else {
        Verdict::Unbind
    }
}

/// The volume's side of a bond. What a user has written by hand is only completed.
pub(super) fn bind(volume: &mut Value, claim: &Value) {
    let named = is_bound_to(volume, claim);
    if !named {
        annotate(volume, BOUND_BY_CONTROLLER, "yes");
    }
    if !named || text(volume, "/spec/claimRef/uid").is_empty() {
        set(volume, &["spec", "claimRef"], reference(claim));
    }
}

pub(super) fn unbind(volume: &mut Value) {
    if annotation(volume, BOUND_BY_CONTROLLER).is_empty() {
        unset(volume, &["spec", "claimRef", "uid"]);
        unset(volume, &["spec", "claimRef", "resourceVersion"]);
    } else {
        unset(volume, &["spec", "claimRef"]);
        unset(volume, &["metadata", "annotations", BOUND_BY_CONTROLLER]);
    }
    set(volume, &["status", "phase"], json!("Available"));
}
