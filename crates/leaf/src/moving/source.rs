//! What a move writes on the leaf that it moves from.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use serde_json::json;

use super::{Changed, Sight, change_claim, change_volume, kept, place_of, yard};
use crate::{
    MemberClient, claim,
    ownership::{HANDLE, HOST, MANAGED_BY, MOVE, MOVED, MOVED_TO, PLACE, POLICY_BEFORE, VOLUME},
    row::ClaimRow,
};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, moving::MoveMark},
};

/// Closes it to further nodes, or says that nobody has it.
pub(super) async fn mark(client: &MemberClient, claim: &PersistentVolumeClaim, mark: &MoveMark) -> Result<Changed> {
    let known = claim.annotations().get(MOVE).and_then(|text| MoveMark::parse(text));
    if let Some(other) = known.filter(|known| known.uid != mark.uid) {
        return Err(Error::Refused(format!(
            "member {}: leaf claim {}/{} is being moved by {} already",
            client.member,
            claim.namespace().unwrap_or_default(),
            claim.name_any(),
            other.object()
        )));
    }
    let change = json!({"metadata": {"annotations": {MOVE: mark.to_string()}}});
    change_claim(client, claim, change, "mark").await
}

/// Its claim belongs into the yard.
pub(super) async fn lend(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> Result<Changed> {
    let mut change = kept(volume);
    change["metadata"]["annotations"][PLACE] = place_of(&yard(&client.host, hash));
    change_volume(client, volume, change, "lend").await
}

/// It belongs where it was.
pub(super) async fn take_back(client: &MemberClient, volume: &PersistentVolume, home: &LeafPlace) -> Result<Changed> {
    let change = json!({"metadata": {"annotations": {PLACE: place_of(home)}}});
    change_volume(client, volume, change, "return").await
}

/// It is an ordinary leaf again. Where it belongs is forgotten last: what lends it may still be on its way, and has to find
/// another version.
pub(super) async fn open(client: &MemberClient, sight: &Sight) -> Result<Option<Changed>> {
    match (&sight.home, &sight.volume) {
        (Some(claim), _) if claim.annotations().contains_key(MOVE) => {
            change_claim(client, claim, json!({"metadata": {"annotations": {MOVE: null}}}), "open").await.map(Some)
        }
        (_, Some(volume)) => {
            change_volume(client, volume, json!({"metadata": {"annotations": {PLACE: null}}}), "open").await.map(Some)
        }
        _ => Ok(None),
    }
}

/// It is no leaf of the volume any more, and is kept until somebody says otherwise.
pub(super) async fn retire(
    client: &MemberClient,
    volume: &PersistentVolume,
    hash: VolumeHash,
    to: &str,
) -> Result<Changed> {
    let change = json!({
        "metadata": {
            // No watch of leaves shows it any more.
            "labels": {MANAGED_BY: null, VOLUME: null, HOST: client.host.0, MOVED: hash.to_string()},
            "annotations": {HANDLE: null, PLACE: null, POLICY_BEFORE: null, MOVED_TO: to},
        },
        "spec": {"persistentVolumeReclaimPolicy": "Retain"},
    });
    let retired = change_volume(client, volume, change, "retire").await?;
    client.rows.drop_volume(hash, &volume.uid().unwrap_or_default());
    Ok(retired)
}

/// The claim in the yard of a source that is retired.
pub(super) async fn remove_yard_claim(
    client: &MemberClient,
    claim: &PersistentVolumeClaim,
    hash: VolumeHash,
) -> Result<()> {
    let row = ClaimRow::new(claim);
    if row.observed().terminating {
        // What is known at its place may be the leaf, which is elsewhere.
        return release(client, &row, hash).await;
    }
    claim::delete(client, &row, hash).await?;
    match client.rows.row_at(hash, &row.place).claim {
        Some(left) if left.uid == row.uid => release(client, &left, hash).await,
        _ => Ok(()),
    }
}

async fn release(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<()> {
    if row.finalizer.is_none() {
        return Ok(());
    }
    claim::release(client, row, hash).await.or_else(|error| match error {
        Error::InProgress(_) => Ok(()),
        other => Err(other),
    })
}
