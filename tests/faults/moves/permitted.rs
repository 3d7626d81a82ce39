//! What the driver may send for a move, and for nothing else.

use serde_json::Value;
use simulate::{
    Cluster,
    faults::{Asked, Verb},
    text,
};

use super::{CLAIMS, MOVES, VOLUMES, YARD};

const OF: &str = "/metadata/labels/kosmos.csi.io~1move";
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
/// Of a mover's pod.
const GIVEN: [&str; 2] = ["/spec/volumes/0/persistentVolumeClaim/claimName", "/spec/volumes/1/secret/secretName"];

/// In the host, or else in a member where this is what it is about.
pub fn is_permitted(host: &Cluster, in_host: bool, asked: &Asked, live: Option<&Value>) -> bool {
    if in_host { in_the_host(host, asked) } else { asked.namespace == YARD && in_a_yard(asked, live) }
}

/// That no further pod gets the volume, so that people end those that have it.
pub fn says_closed(asked: &Asked) -> bool {
    asked.resource == MOVES && text(&asked.body, "/status/phase") == "Waiting"
}

fn in_the_host(host: &Cluster, asked: &Asked) -> bool {
    let tests_uid = !text(&asked.body, "/metadata/uid").is_empty();
    let tests_version = !text(&asked.body, "/metadata/resourceVersion").is_empty();
    let is_pinned = !text(&asked.body, "/preconditions/uid").is_empty();
    // People may write on it until then.
    let is_as_read = is_pinned && !text(&asked.body, "/preconditions/resourceVersion").is_empty();
    match (asked.verb, asked.resource.as_str()) {
        (Verb::Patch, MOVES) => tests_version,
        (Verb::Patch, CLAIMS | VOLUMES) => tests_uid && tests_version,
        (Verb::Delete, ATTACHMENTS) => is_pinned,
        (Verb::Delete, VOLUMES) => is_as_read && is_decided(host),
        (Verb::Create, VOLUMES) => {
            let replaced = text(&asked.body, "/metadata/annotations/kosmos.csi.io~1replaces");
            !replaced.is_empty() && (is_decided(host) || asked.query.contains("dryRun=All"))
        }
        _ => false,
    }
}

/// That the host's volume makes way, which is on record. A move that somebody removes by force then is carried out all the same.
fn is_decided(host: &Cluster) -> bool {
    let moves = host.list(MOVES);
    moves.is_empty() || moves.iter().any(|of| text(of, "/status/phase") == "Switching")
}

fn in_a_yard(asked: &Asked, live: Option<&Value>) -> bool {
    let owner = text(&asked.body, "/metadata/ownerReferences/0/kind");
    let is_marked = |object: &Value| !text(object, OF).is_empty();
    match (asked.verb, asked.resource.as_str()) {
        (Verb::Create, "pods") => {
            is_marked(&asked.body) && owner == "PersistentVolumeClaim" && is_of_its_host(&asked.body)
        }
        (Verb::Create, "secrets") => is_marked(&asked.body) && owner == "Pod",
        (Verb::Delete, "pods") => !text(&asked.body, "/preconditions/uid").is_empty() && live.is_none_or(is_marked),
        _ => false,
    }
}

/// By the ends of names, as an admission policy of the member holds it to that.
fn is_of_its_host(pod: &Value) -> bool {
    let host = format!("-{}", text(pod, "/metadata/labels/kosmos.csi.io~1host"));
    let [claim, keys] = GIVEN.map(|path| text(pod, path));
    let name = text(pod, "/metadata/name");
    host.len() > 1 && name.ends_with(&host) && claim.ends_with(&host) && keys == name
}
