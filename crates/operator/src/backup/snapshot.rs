//! A snapshot of the host with its content.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::{is_a, trimmed};
use crate::objects::{title, word};
use domain::volume::DRIVER;

pub const SNAPSHOTS: &str = "snapshot.storage.k8s.io/v1";

/// A content, and the snapshot that is bound to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptSnapshot {
    pub content: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<Value>,
}

/// What is to be made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingSnapshot {
    pub content: bool,
    pub snapshot: bool,
}

impl KeptSnapshot {
    pub(super) fn new(content: &Value, snapshots: &BTreeMap<(&str, &str), &Value>) -> Result<Self, &'static str> {
        let handle = word(content, "/status/snapshotHandle");
        if handle.is_empty() || !word(content, "/metadata/deletionTimestamp").is_empty() {
            return Err("it is not ready yet, or is being deleted");
        }
        if !word(content, "/status/volumeGroupSnapshotHandle").is_empty() {
            return Err("it belongs to a group, and backups have no groups: its data stays in the member");
        }
        let name = word(content, "/metadata/name");
        let of = &content["spec"]["volumeSnapshotRef"];
        let named = (word(of, "/namespace"), word(of, "/name"));
        let is_bound = |snapshot: &&&Value| {
            word(snapshot, "/status/boundVolumeSnapshotContentName") == name
                && word(snapshot, "/metadata/uid") == word(of, "/uid")
        };
        let snapshot = snapshots.get(&named).filter(is_bound);
        if snapshot.is_none() && word(content, "/spec/deletionPolicy") != "Retain" {
            return Err("it is being deleted");
        }
        let mut kept = trimmed(content);
        kept["spec"]["source"] = json!({"snapshotHandle": handle});
        kept["spec"]["volumeSnapshotRef"] =
            json!({"apiVersion": of["apiVersion"], "kind": of["kind"], "namespace": named.0, "name": named.1});
        let snapshot = snapshot.map(|snapshot| {
            let mut kept = trimmed(snapshot);
            kept["spec"]["source"] = json!({"volumeSnapshotContentName": name});
            kept
        });
        Ok(Self { content: kept, snapshot })
    }

    /// As of a volume.
    pub fn missing(&self, content: Option<&Value>, snapshot: Option<&Value>) -> Result<MissingSnapshot, String> {
        let leads = |of: &Value| word(of, "/spec/source/snapshotHandle").to_owned();
        let names = |of: &Value| word(of, "/spec/source/volumeSnapshotContentName").to_owned();
        if let Some(there) = content.filter(|there| leads(there) != leads(&self.content)) {
            return Err(format!("{} already exists, and has another snapshotHandle", title(there)));
        }
        if let (Some(kept), Some(there)) = (&self.snapshot, snapshot)
            && names(kept) != names(there)
        {
            return Err(format!(
                "{} already exists, with another source: delete it, and type this again",
                title(there)
            ));
        }
        Ok(MissingSnapshot { content: content.is_none(), snapshot: self.snapshot.is_some() && snapshot.is_none() })
    }

    pub(super) fn foreign(&self) -> Option<&Value> {
        let is_ours = is_a(&self.content, SNAPSHOTS, "VolumeSnapshotContent", "")
            && word(&self.content, "/spec/driver") == DRIVER;
        let is_its = |snapshot: &&Value| {
            is_a(snapshot, SNAPSHOTS, "VolumeSnapshot", word(&self.content, "/spec/volumeSnapshotRef/namespace"))
                && word(snapshot, "/spec/source/volumeSnapshotContentName") == word(&self.content, "/metadata/name")
        };
        if is_ours { self.snapshot.as_ref().filter(|snapshot| !is_its(snapshot)) } else { Some(&self.content) }
    }
}
