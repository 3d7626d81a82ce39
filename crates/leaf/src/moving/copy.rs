//! What a move writes on the leaf that it makes.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt, api::PostParams};
use serde_json::json;

use super::{Changed, Sight, change_claim, change_volume, kept, place_of, source::remove_yard_claim};
use crate::{
    MemberClient,
    claim::{self, LeafSpec, Made},
    identity::{self, is_leaf_of},
    ownership::{self, FINALIZER, HANDLE, HEALING, MOVE, PLACE, POLICY_BEFORE},
    row::VolumeRow,
    saved::{bound_to, policy_of},
};
use domain::{
    error::{Error, Result},
    volume::{LeafPlace, VolumeHash, moving::MoveMark},
};

/// Its claim, in the yard. It carries the handle that the host is to be given.
pub async fn make(client: &MemberClient, wanted: &LeafSpec<'_>, mark: &MoveMark, handle: &str) -> Result<Made> {
    let mut claim = wanted.manifest(&client.host);
    for (key, value) in [(MOVE, mark.to_string()), (HANDLE, handle.to_owned())] {
        claim.annotations_mut().insert(key.to_owned(), value);
    }
    claim::post(client, wanted.place, claim).await
}

/// The member's own word on the claim at the place where it is to be in the end; nothing is made.
pub async fn try_claim(client: &MemberClient, wanted: &LeafSpec<'_>) -> Result<()> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &wanted.place.namespace);
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let answer = claims.create(&dry, &wanted.manifest(&client.host)).await;
    match answer.map_err(|error| client.outcome(&format!("create claim {}", wanted.place), &error)) {
        // Its namespace is made when it is needed.
        Ok(_) | Err(Error::NotFound(_)) => Ok(()),
        // A limit, a policy, a right: nothing of it goes by itself.
        Err(Error::Denied(why)) => Err(Error::Refused(why)),
        Err(error) => Err(error),
    }
}

/// All was done for its removal but what the member itself does.
pub(super) fn is_going(client: &MemberClient, sight: &Sight, hash: VolumeHash) -> bool {
    let is_given_up = sight.volume.as_ref().is_none_or(|volume| is_given_up(client, volume, hash));
    let is_let_go = sight.claim().is_none_or(|claim| {
        claim.metadata.deletion_timestamp.is_some() && !claim.finalizers().iter().any(|name| name == FINALIZER)
    });
    let is_left =
        sight.claim().is_none() && sight.volume.as_ref().is_some_and(|volume| is_to_hand_back(client, volume, hash));
    is_given_up && is_let_go && !is_left
}

/// Its volume is ours, belongs to its claim in the yard, and stays: two writes, as the driver's account may change nothing else of what is not ours yet.
pub(super) async fn keep(
    client: &MemberClient,
    (claim, volume): (&PersistentVolumeClaim, &PersistentVolume),
    hash: VolumeHash,
    (mark, handle): (&MoveMark, &str),
) -> Result<Changed> {
    if let Some(owner) = identity::other_owner(&volume.metadata, &client.host, hash) {
        return Err(Error::Refused(format!(
            "member {}: the copy's claim was bound to volume {}, which belongs to {owner} and stood free there",
            client.member,
            volume.name_any()
        )));
    }
    if is_leaf_of(&volume.metadata, &client.host, hash) && volume.annotations().contains_key(PLACE) {
        return change_volume(client, volume, kept(volume), "keep").await;
    }
    let place = LeafPlace { namespace: claim.namespace().unwrap_or_default(), claim: claim.name_any() };
    let change = json!({"metadata": {
        "labels": ownership::labels(&client.host, hash),
        "annotations": {PLACE: place_of(&place), HANDLE: handle, MOVE: mark.to_string()},
    }});
    change_volume(client, volume, change, "label").await
}

/// It belongs where the pods of the host's claim look for it.
pub(super) async fn place(client: &MemberClient, volume: &PersistentVolume, home: &LeafPlace) -> Result<Changed> {
    change_volume(client, volume, json!({"metadata": {"annotations": {PLACE: place_of(home)}}}), "place").await
}

/// It is an ordinary leaf. The place goes last: without it, nobody would look for the mark.
pub(super) async fn release(client: &MemberClient, sight: &Sight) -> Result<Option<Changed>> {
    match (&sight.home, &sight.volume) {
        (Some(claim), _) if claim.annotations().contains_key(MOVE) => {
            let change = json!({"metadata": {"annotations": {MOVE: null}}});
            change_claim(client, claim, change, "release").await.map(Some)
        }
        (_, Some(volume)) => {
            let change = json!({"metadata": {"annotations": {PLACE: null, MOVE: null}}});
            change_volume(client, volume, change, "release").await.map(Some)
        }
        _ => Ok(None),
    }
}

/// First its volume, which goes with its claim then, or stays as whoever has made it wants it; then the claim; and last, what the driver
/// has written on a volume that stays.
pub(super) async fn remove(client: &MemberClient, sight: &Sight, hash: VolumeHash, mark: &MoveMark) -> Result<()> {
    let Some(volume) = sight.volume.as_ref().filter(|volume| !is_given_up(client, volume, hash)) else {
        return match (sight.claim(), &sight.volume) {
            (Some(claim), _) => remove_yard_claim(client, claim, hash).await,
            (None, Some(volume)) if is_to_hand_back(client, volume, hash) => hand_back(client, volume, hash).await,
            (None, _) => Ok(()),
        };
    };
    if let Some(owner) = identity::other_owner(&volume.metadata, &client.host, hash) {
        return Err(Error::Refused(format!(
            "member {}: the copy's claim is bound to volume {}, which belongs to {owner} and would go with it: give that volume the policy \
             Retain there first",
            client.member,
            volume.name_any()
        )));
    }
    if !is_leaf_of(&volume.metadata, &client.host, hash) {
        let labels = ownership::labels(&client.host, hash);
        let change = json!({"metadata": {"labels": labels, "annotations": {MOVE: mark.to_string()}}});
        return change_volume(client, volume, change, "label").await.map(drop);
    }
    let mut change =
        json!({"metadata": {"annotations": {PLACE: null, HANDLE: null, HEALING: null, POLICY_BEFORE: null}}});
    if is_by_hand(volume) {
        if let Some(before) = volume.annotations().get(POLICY_BEFORE) {
            change["spec"]["persistentVolumeReclaimPolicy"] = json!(before);
        }
    } else {
        change["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    }
    change_volume(client, volume, change, "give up").await.map(drop)
}

/// People's own is not removed with our claim.
fn is_by_hand(volume: &PersistentVolume) -> bool {
    VolumeRow::new(volume).observed().by_hand
}

fn is_to_hand_back(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> bool {
    is_by_hand(volume) && is_leaf_of(&volume.metadata, &client.host, hash)
}

/// It is as people have made it.
async fn hand_back(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> Result<()> {
    let none = |(key, _): (String, String)| (key, serde_json::Value::Null);
    let labels: serde_json::Map<_, _> = ownership::labels(&client.host, hash).into_iter().map(none).collect();
    let change = json!({"metadata": {"labels": labels, "annotations": {MOVE: null}}});
    change_volume(client, volume, change, "hand back").await?;
    client.rows.drop_volume(hash, &volume.uid().unwrap_or_default());
    Ok(())
}

/// What becomes of it when its claim goes is what has to.
fn is_given_up(client: &MemberClient, volume: &PersistentVolume, hash: VolumeHash) -> bool {
    let notes = volume.annotations();
    let is_kept = [PLACE, HEALING, POLICY_BEFORE].iter().any(|key| notes.contains_key(*key));
    let policy = policy_of(volume);
    match identity::other_owner(&volume.metadata, &client.host, hash) {
        Some(_) => policy == "Retain",
        None if is_by_hand(volume) => !is_kept,
        None => !is_kept && policy == "Delete" && bound_to(volume).is_some(),
    }
}
