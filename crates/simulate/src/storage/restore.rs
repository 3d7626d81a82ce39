//! What a new volume begins with: a snapshot's content, another claim's, or nothing.

use serde_json::Value;

use super::{
    Member,
    names::{CLAIMS, CONTENTS, SNAPSHOTS, VOLUMES, handle, is_bound},
};
use crate::{
    object::{at, is_terminating, name, namespace, text},
    quantity,
};

/// Something that a volume is filled with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) handle: String,
    pub(super) bytes: u64,
}

/// The kind and the name of what a claim wants a copy of.
fn wanted(claim: &Value) -> Option<(&str, &str, &str)> {
    let source = ["/spec/dataSourceRef", "/spec/dataSource"]
        .iter()
        .find_map(|place| at(claim, place).filter(|one| !one.is_null()))?;
    Some((text(source, "/apiGroup"), text(source, "/kind"), text(source, "/name")))
}

/// Whether a claim is to be filled with this snapshot.
pub(super) fn restores(claim: &Value, snapshot: &Value) -> bool {
    let same = wanted(claim).is_some_and(|(_, kind, wanted)| kind == "VolumeSnapshot" && wanted == name(snapshot));
    same && namespace(claim) == namespace(snapshot)
}

/// None where a claim wants an empty volume.
pub(super) fn origin(member: &Member, claim: &Value) -> Result<Option<Origin>, String> {
    let Some((group, kind, source)) = wanted(claim) else {
        return Ok(None);
    };
    let origin = match (group, kind) {
        ("snapshot.storage.k8s.io", "VolumeSnapshot") => of_snapshot(member, namespace(claim), source)?,
        ("", "PersistentVolumeClaim") => of_claim(member, namespace(claim), source)?,
        _ => return Err(format!("nothing can be made of a {kind} of \"{group}\"")),
    };
    let requested = quantity::parse(text(claim, "/spec/resources/requests/storage")).unwrap_or(0);
    if requested < origin.bytes {
        return Err(format!(
            "requested volume size {requested} is less than the size {} of {kind} {source}",
            origin.bytes
        ));
    }
    Ok(Some(origin))
}

fn of_snapshot(member: &Member, namespace: &str, name: &str) -> Result<Origin, String> {
    let snapshot = member.cluster.get(SNAPSHOTS, namespace, name);
    let snapshot = snapshot.ok_or_else(|| format!("snapshot {name} not found"))?;
    let content = text(&snapshot, "/status/boundVolumeSnapshotContentName");
    let content = member.cluster.get(CONTENTS, "", content);
    match content.filter(|content| at(content, "/status/readyToUse") == Some(&Value::Bool(true))) {
        _ if is_terminating(&snapshot) => Err(format!("snapshot {name} is being deleted")),
        None => Err(format!("snapshot {name} is not ready")),
        Some(content) if text(&content, "/spec/driver") != member.settings.provisioner => {
            Err(format!("snapshot {name} belongs to another driver"))
        }
        Some(content) => Ok(Origin {
            handle: text(&content, "/status/snapshotHandle").to_owned(),
            bytes: at(&content, "/status/restoreSize").and_then(Value::as_u64).unwrap_or(0),
        }),
    }
}

fn of_claim(member: &Member, namespace: &str, name: &str) -> Result<Origin, String> {
    let claim = member.cluster.get(CLAIMS, namespace, name).ok_or_else(|| format!("claim {name} not found"))?;
    if !is_bound(&claim) || is_terminating(&claim) {
        return Err(format!("claim {name} is not bound, or is being deleted"));
    }
    let volume = member.cluster.get(VOLUMES, "", text(&claim, "/spec/volumeName"));
    let volume = volume.ok_or_else(|| format!("the volume of claim {name} is gone"))?;
    let bytes = quantity::parse(text(&claim, "/status/capacity/storage")).unwrap_or(0);
    Ok(Origin { handle: handle(&volume).to_owned(), bytes })
}
