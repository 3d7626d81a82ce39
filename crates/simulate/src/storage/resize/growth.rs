//! How a claim tells that its volume grows. Pure.

use serde_json::{Value, json};

use crate::{
    object::{items, set, text, unset},
    quantity,
    storage::names::is_bound,
};

const ALLOCATED: &str = "/status/allocatedResources/storage";
const STATE: &str = "/status/allocatedResourceStatuses/storage";
const ON_NODE: &str = "NodeResizePending";

pub(super) fn requested(claim: &Value) -> u64 {
    bytes(claim, "/spec/resources/requests/storage")
}

fn bytes(claim: &Value, pointer: &str) -> u64 {
    quantity::parse(text(claim, pointer)).unwrap_or(0)
}

/// Whether a claim asks for more than it has.
pub(super) fn is_wanted(claim: &Value) -> bool {
    let bound = is_bound(claim) && text(claim, "/status/phase") == "Bound";
    bound && requested(claim) > bytes(claim, "/status/capacity/storage")
}

/// Whether everything but the node's part is done for what is asked now.
pub(super) fn waits_for_node(claim: &Value) -> bool {
    text(claim, STATE) == ON_NODE && bytes(claim, ALLOCATED) == requested(claim)
}

pub(super) fn allocated(claim: &Value) -> &str {
    text(claim, ALLOCATED)
}

pub(super) fn begin(claim: &mut Value, now: &str) {
    let size = text(claim, "/spec/resources/requests/storage").to_owned();
    set(claim, &["status", "allocatedResources", "storage"], json!(size));
    set(claim, &["status", "allocatedResourceStatuses", "storage"], json!("ControllerResizeInProgress"));
    set_condition(claim, "Resizing", now);
}

pub(super) fn leave_to_node(claim: &mut Value, now: &str) {
    set(claim, &["status", "allocatedResourceStatuses", "storage"], json!(ON_NODE));
    set_condition(claim, "FileSystemResizePending", now);
}

pub(super) fn finish(claim: &mut Value, size: &str) {
    set(claim, &["status", "capacity", "storage"], json!(size));
    unset(claim, &["status", "allocatedResourceStatuses"]);
    unset(claim, &["status", "conditions"]);
}

/// One of the two conditions that tell of growing takes the place of the other.
fn set_condition(claim: &mut Value, kind: &str, now: &str) {
    let there = items(claim, "/status/conditions").iter().any(|condition| text(condition, "/type") == kind);
    if !there {
        let condition = json!({"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
        set(claim, &["status", "conditions"], json!([condition]));
    }
}
