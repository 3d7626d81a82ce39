//! The leaf volume follows the host's: retained as long as that is, and as it was before when it is not any more.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    MemberClient,
    healing::{self, annotate, unchanged},
    marks::{label_path, path_of},
    ownership,
    row::{ClaimRow, VolumeRow},
    saved::{bound_to, policy_of},
    volume,
};
use domain::{
    error::{Error, Result},
    volume::VolumeHash,
};

const POLICY: &str = "/spec/persistentVolumeReclaimPolicy";

/// The host's volume is `Retain`: so is this one, and says what it was before. What the answer does not show was not
/// done. A write that arrives when it was handed back to people who have made it finds it without our labels.
pub async fn follow_host(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> Result<()> {
    let mut changes: Vec<Value> = volume::is_labelled(client, hash).collect();
    changes.push(json!({"op": "test", "path": POLICY, "value": policy_of(volume)}));
    changes.push(json!({"op": "replace", "path": POLICY, "value": "Retain"}));
    // Somebody may have changed the policy since: what it was at first is what counts.
    if !volume.annotations().contains_key(ownership::POLICY_BEFORE) {
        changes.append(&mut annotate(volume, ownership::POLICY_BEFORE, policy_of(volume)));
    }
    let kept = healing::change_volume(client, volume, bound_to(volume).unwrap_or_default(), &changes, "retain").await?;
    if policy_of(&kept) == "Retain" {
        return Ok(());
    }
    Err(Error::InProgress(format!("member {}: volume {} is not retained yet", client.member, volume.name_any())))
}

/// The host wants the volume after all. Whatever its removal has sent and has not arrived tests a version that is no more. A
/// volume that was made deletable was `Retain` before, and is so again by the same write: the next one may come too late.
pub async fn call_off_removal(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> Result<()> {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": volume.uid()}), unchanged(volume)];
    operations.extend(volume::is_labelled(client, hash));
    operations.push(json!({"op": "remove", "path": label_path(ownership::REMOVAL)}));
    // People's own was never made deletable.
    if !VolumeRow::new(volume).observed().by_hand {
        operations.push(json!({"op": "replace", "path": POLICY, "value": "Retain"}));
    }
    volume::patch(client, &volume.name_any(), &operations, "call off the removal of").await.map(drop)
}

/// The host's volume is not `Retain` any more. Only for a volume whose claim holds it: one without would be removed at
/// once, also by a write that arrives late, so the version is tested.
pub async fn unfollow_host(client: &MemberClient, volume: &PersistentVolume, claim: &ClaimRow) -> Result<()> {
    let Some(before) = volume.annotations().get(ownership::POLICY_BEFORE) else { return Ok(()) };
    let changes = [
        unchanged(volume),
        json!({"op": "test", "path": path_of(ownership::POLICY_BEFORE), "value": before}),
        json!({"op": "test", "path": POLICY, "value": "Retain"}),
        json!({"op": "remove", "path": path_of(ownership::POLICY_BEFORE)}),
        json!({"op": "replace", "path": POLICY, "value": before}),
    ];
    healing::change_volume(client, volume, &claim.uid, &changes, "put the policy back of").await.map(drop)
}
