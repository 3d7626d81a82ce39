//! A leaf claim that somebody deleted, or that was let go, comes back with its data. The steps: its volume is made to stay,
//! and what is needed to recreate the claim is kept on it; the claim goes; it is recreated and names the volume; the volume
//! is given to it; the volume's policy is put back. Each is one request that tests what it was decided on, and after each
//! the objects say which one is next.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::{
    MemberClient,
    claim::{self, Made},
    identity::{Identity, Meant, is_leaf_of, judge},
    marks::path_of,
    ownership::{self, MadeFor},
    row::{ClaimRow, VolumeRow, place_told},
    saved::{Saved, bound_to, policy_of},
    trimmed::Trimmed,
    volume,
};
use domain::{
    error::{Error, Result},
    volume::{
        LeafPlace, VolumeHash,
        healing::{SeenClaim, SeenVolume},
        moving::Part,
        plan::Phase,
        published::{Attachment, Published},
    },
};

/// A leaf claim and its volume, read just now.
#[derive(Clone, Debug)]
pub struct LeafPair {
    pub place: LeafPlace,
    pub claim: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
    /// The claim that the volume is bound to has gone.
    pub left: bool,
    /// It is there, and somebody else's.
    pub taken: bool,
}

impl LeafPair {
    /// The claim, where it carries the labels of this volume.
    pub fn ours(&self, leaf: &MemberClient, hash: VolumeHash) -> Option<&PersistentVolumeClaim> {
        self.claim.as_ref().filter(|claim| is_leaf_of(&claim.metadata, &leaf.host, hash))
    }

    pub fn claim_seen(&self, leaf: &MemberClient, hash: VolumeHash) -> Option<SeenClaim> {
        let claim = self.claim.as_ref()?;
        let row = ClaimRow::new(claim);
        let seen = row.observed();
        Some(SeenClaim {
            ours: is_leaf_of(&claim.metadata, &leaf.host, hash),
            uid: seen.uid,
            terminating: seen.terminating,
            protected: seen.protected,
            bound: seen.phase == Phase::Bound,
            published: row.life.published.clone(),
            volume: seen.volume,
            isolated: row.moving.as_ref().is_some_and(|mark| mark.part == Part::IsolatedSource),
            former: row.former.split(',').filter(|uid| !uid.is_empty()).map(str::to_owned).collect(),
        })
    }

    pub fn volume_seen(&self) -> Option<SeenVolume> {
        let volume = self.volume.as_ref()?;
        Some(SeenVolume {
            name: volume.name_any(),
            claim_uid: bound_to(volume).unwrap_or_default().to_owned(),
            left: self.left,
            taken: self.taken,
            terminating: volume.metadata.deletion_timestamp.is_some(),
            retained: policy_of(volume) == "Retain",
            follows: volume.annotations().contains_key(ownership::POLICY_BEFORE),
            removal: volume.labels().contains_key(ownership::REMOVAL),
            published: self.saved().map(|saved| saved.record()).unwrap_or_default(),
            saved: self.saved().map(|saved| saved.uid),
        })
    }

    /// Nobody has written on either since the other look.
    pub fn is_as(&self, other: &Self) -> bool {
        let versions = |pair: &Self| {
            let claim = pair.claim.as_ref().map(|claim| (claim.uid(), claim.resource_version()));
            (claim, pair.volume.as_ref().map(|volume| (volume.uid(), volume.resource_version())))
        };
        versions(self) == versions(other)
    }

    /// The name of the volume that the claim was made for.
    pub fn volume_name(&self) -> Option<&str> {
        self.claim.as_ref()?.annotations().get(ownership::NAME).map(String::as_str)
    }

    /// The claim of the host that it was made for, as it says, or its volume.
    pub fn made_for(&self) -> Option<MadeFor> {
        match &self.claim {
            Some(claim) => MadeFor::read(&claim.metadata),
            None => self.saved()?.told(),
        }
    }

    pub fn saved(&self) -> Option<Saved> {
        Saved::of(self.volume.as_ref()?)
    }

    /// A move has its claim recreated, and tells of it itself.
    pub fn is_moved(&self) -> bool {
        self.place_told().is_some()
    }

    /// Where the claim belongs, where the volume says that.
    pub fn place_told(&self) -> Option<LeafPlace> {
        place_told(self.volume.as_ref()?)
    }

    /// Whether the record names what is attached, on the claim or in what the volume keeps of it. Yes also where it cannot be
    /// read, or the claim is not as this driver has written it; nothing where there is no record at all.
    pub fn records(&self, leaf: &MemberClient, hash: VolumeHash, attached: &Attachment) -> Option<bool> {
        let named = |published: &Published| published.is_corrupt() || published.is_attached(attached);
        let on_claim = self.claim.as_ref().and_then(|claim| {
            let row = ClaimRow::new(claim);
            match judge(&claim.metadata, &leaf.host, Meant::Volume(hash)) {
                Identity::Leaf(_) => Some(row.finalizer.is_none() || named(&row.life.published)),
                Identity::Stripped => Some(true),
                _ => None,
            }
        });
        let kept = self.saved().map(|saved| named(&saved.record()));
        on_claim.into_iter().chain(kept).reduce(|one, other| one || other)
    }
}

/// Whether a node is on no record any more that a volume keeps of its claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Unpublished {
    Yes,
    /// Somebody has written that record meanwhile.
    Changed,
    /// The claim has gone for good, or is there again.
    NothingKept,
}

/// Claim and volume as they are now. Which volume, a row says: the claim may be gone, or be somebody else's.
pub async fn examine(
    client: &MemberClient,
    hash: VolumeHash,
    place: &LeafPlace,
    volume: Option<&str>,
) -> Result<LeafPair> {
    let claim = claim::read(client, place).await?;
    let ours = claim.as_ref().filter(|claim| is_leaf_of(&claim.metadata, &client.host, hash));
    let named = ours.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
    let name = named.as_deref().filter(|name| !name.is_empty()).or(volume);
    let volume = match name {
        Some(name) => get_volume(client, name).await?,
        None => None,
    };
    let left = match (&claim, &volume) {
        (Some(claim), Some(volume)) => has_left(client, claim, volume).await?,
        _ => false,
    };
    let taken = match &volume {
        Some(volume) if ours.is_none() && VolumeRow::new(volume).claim_place != *place => {
            let holder = holder(client, volume).await?;
            holder.is_some_and(|holder| !is_leaf_of(&holder.metadata, &client.host, hash))
        }
        // What is at this place has been read: another claim of the same name has not got it.
        Some(volume) if ours.is_none() => claim
            .as_ref()
            .is_some_and(|claim| claim.metadata.uid.is_some() && claim.metadata.uid.as_deref() == bound_to(volume)),
        _ => false,
    };
    Ok(LeafPair { place: place.clone(), claim, volume, left, taken })
}

/// Whether a volume that keeps what a claim was is bound to one that has gone. Where it is the one that it keeps, and another one is
/// in its place, it has.
async fn has_left(client: &MemberClient, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Result<bool> {
    let (Some(saved), Some(uid)) = (Saved::of(volume), bound_to(volume)) else { return Ok(false) };
    if claim.metadata.uid.as_deref() == Some(uid) {
        return Ok(false);
    }
    let place = VolumeRow::new(volume).claim_place;
    let is_its_place = place.namespace == claim.namespace().unwrap_or_default() && place.claim == claim.name_any();
    // Read before the volume, so it proves nothing of a claim that the volume was given since, nor of one at another place.
    if *saved.uid == *uid && is_its_place {
        return Ok(true);
    }
    Ok(holder(client, volume).await?.is_none())
}

/// The claim that a volume is bound to, where that is there.
async fn holder(client: &MemberClient, volume: &PersistentVolume) -> Result<Option<PersistentVolumeClaim>> {
    let row = VolumeRow::new(volume);
    let there = claim::read(client, &row.claim_place).await?;
    Ok(there.filter(|claim| claim.metadata.uid.as_deref() == bound_to(volume)))
}

/// On which nodes what a volume keeps of its claim says that it is, where that claim is not this one, whose own record counts then.
pub async fn kept_on(client: &MemberClient, volume: &str, claim: Option<&ClaimRow>) -> Result<Published> {
    let Some(volume) = get_volume(client, volume).await? else { return Ok(Published::default()) };
    match Saved::of(&volume) {
        Some(saved) if claim.is_some_and(|claim| *claim.uid == *saved.uid) => Ok(Published::default()),
        Some(saved) => Ok(saved.record()),
        None if volume.annotations().contains_key(ownership::HEALING) => Ok(Published::spoilt()),
        None => Ok(Published::default()),
    }
}

/// A claim that was recreated, late: its volume has gone, or is another one's, and what it was described by names no node any more. So
/// no node of the claim's own record can have it.
pub async fn never_got_its_volume(client: &MemberClient, claim: &ClaimRow) -> Result<bool> {
    let (observed, Some(name)) = (claim.observed(), claim.volume()) else { return Ok(false) };
    if claim.former.is_empty() || observed.phase != Phase::Pending {
        return Ok(false);
    }
    let Some(volume) = get_volume(client, name).await? else { return Ok(true) };
    let is_kept_on_a_node = Saved::of(&volume).is_some_and(|saved| !saved.record().is_unpublished());
    Ok(bound_to(&volume) != Some(&*claim.uid) && !is_kept_on_a_node)
}

/// A leaf claim that was recreated late, and the one to which its volume is bound. It has nobody's data.
#[derive(Debug)]
pub struct Superseded {
    pub claim: ClaimRow,
    holder: ClaimRow,
}

impl Superseded {
    /// Where the one is that has the volume.
    pub fn holder(&self) -> &LeafPlace {
        &self.holder.place
    }

    /// The handle of both leads to the one that has the volume: no look at that finds this one, which can never be bound.
    pub fn is_out_of_sight(&self, client: &MemberClient, hash: VolumeHash) -> bool {
        let handle = |claim: &ClaimRow| claim.id(&client.member, hash);
        self.holder.unusable().is_none() && handle(&self.holder) == handle(&self.claim)
    }
}

/// The claim that was read, where it is such a one.
pub async fn superseded(client: &MemberClient, hash: VolumeHash, pair: &LeafPair) -> Result<Option<Superseded>> {
    let (Some(claim), Some(volume)) = (pair.ours(client, hash), &pair.volume) else { return Ok(None) };
    let claim = ClaimRow::new(claim);
    let waits = claim.observed().phase == Phase::Pending && claim.finalizer.is_some() && !claim.former.is_empty();
    if !waits || claim.moving.is_some() {
        return Ok(None);
    }
    let holder = holder(client, volume).await?.filter(|holder| is_leaf_of(&holder.metadata, &client.host, hash));
    let holder = holder.map(|holder| ClaimRow::new(&holder)).filter(|holder| holder.uid != claim.uid);
    Ok(holder.map(|holder| Superseded { claim, holder }))
}

async fn get_volume(client: &MemberClient, name: &str) -> Result<Option<PersistentVolume>> {
    let answer = Api::<PersistentVolume>::all(client.client.clone()).get(name).await;
    cluster::read(answer, name).map_err(|error| client.outcome(&format!("get volume {name}"), &error))
}

/// The volume stays whatever becomes of its claim, and keeps what is needed to recreate that. What the answer does
/// not show was not done. A write that arrives late must not put a node back on what is kept: it tests the version.
pub async fn keep_volume(client: &MemberClient, volume: &PersistentVolume, saved: &Saved) -> Result<()> {
    let text = json!(saved).to_string();
    let mut changes = vec![
        unchanged(volume),
        json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Retain"}),
    ];
    changes.append(&mut annotate(volume, ownership::HEALING, &text));
    let kept = change_volume(client, volume, &saved.uid, &changes, "keep").await?;
    if policy_of(&kept) == "Retain" && kept.annotations().get(ownership::HEALING) == Some(&text) {
        return Ok(());
    }
    Err(Error::InProgress(format!("member {}: volume {} is not kept yet", client.member, volume.name_any())))
}

/// The claim under its former name, or that of another claim of the host's. Somebody else may have taken that: the next
/// look tells.
pub async fn recreate(client: &MemberClient, place: &LeafPlace, saved: &Saved) -> Result<Made> {
    claim::post(client, place, saved.claim(place)).await
}

/// The volume is the new claim's, and says which ones it belonged to.
pub async fn give_volume(
    client: &MemberClient,
    volume: &PersistentVolume,
    hash: VolumeHash,
    saved: &Saved,
    claim: &ClaimRow,
) -> Result<()> {
    let reference = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "namespace": claim.place.namespace, "name": claim.place.claim, "uid": claim.uid,
    });
    // What is kept on it may have changed since the claim was compared with that.
    let mut changes = vec![unchanged(volume), json!({"op": "replace", "path": "/spec/claimRef", "value": reference})];
    changes.append(&mut annotate(volume, ownership::FORMER, &saved.former()));
    let known = volume.annotations().contains_key(ownership::HANDLE);
    match claim.handle(&client.member, hash) {
        Some(handle) => changes.append(&mut annotate(volume, ownership::HANDLE, &handle)),
        None if known => changes.push(json!({"op": "remove", "path": path_of(ownership::HANDLE)})),
        None => {}
    }
    change_volume(client, volume, bound_to(volume).unwrap_or_default(), &changes, "give away").await.map(drop)
}

/// All is as it was. A write that arrives late must not end what was begun since: it tests the version.
pub async fn put_policy_back(
    client: &MemberClient,
    volume: &PersistentVolume,
    saved: &Saved,
    claim: &ClaimRow,
) -> Result<()> {
    let changes = [
        unchanged(volume),
        json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": saved.policy}),
        json!({"op": "remove", "path": path_of(ownership::HEALING)}),
    ];
    change_volume(client, volume, &claim.uid, &changes, "put the policy back of").await.map(drop)
}

/// A node, or all of them, are left out of what is kept of a claim that goes.
pub async fn unpublish_saved(client: &MemberClient, volume: &str, node: Option<&str>) -> Result<Unpublished> {
    let volume = get_volume(client, volume).await?;
    let Some((volume, saved)) = volume.and_then(|volume| Saved::of(&volume).map(|saved| (volume, saved))) else {
        return Ok(Unpublished::NothingKept);
    };
    let Some(rest) = saved.record().without(node) else { return Ok(Unpublished::Yes) };
    let uid = bound_to(&volume).unwrap_or_default().to_owned();
    let mut changes = vec![unchanged(&volume)];
    changes.append(&mut annotate(&volume, ownership::HEALING, &json!(saved.published(&rest)).to_string()));
    match change_volume(client, &volume, &uid, &changes, "unpublish").await {
        Ok(_) => Ok(Unpublished::Yes),
        Err(Error::Refused(_) | Error::InProgress(_)) => Ok(Unpublished::Changed),
        Err(error) => Err(error),
    }
}

pub(super) async fn change_volume(
    client: &MemberClient,
    volume: &PersistentVolume,
    claim_uid: &str,
    changes: &[Value],
    what: &str,
) -> Result<Trimmed<PersistentVolume>> {
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": volume.uid()}),
        json!({"op": "test", "path": "/spec/claimRef/uid", "value": claim_uid}),
    ];
    operations.extend_from_slice(changes);
    volume::patch(client, &volume.name_any(), &operations, what).await
}

/// Nobody has written it since it was read.
pub(super) fn unchanged(volume: &PersistentVolume) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": volume.resource_version()})
}

/// A volume without any annotation has no place to add one to.
pub(super) fn annotate(volume: &PersistentVolume, key: &str, value: &str) -> Vec<Value> {
    if volume.metadata.annotations.is_some() {
        return vec![json!({"op": "add", "path": path_of(key), "value": value})];
    }
    vec![
        json!({"op": "test", "path": "/metadata/annotations", "value": null}),
        json!({"op": "add", "path": "/metadata/annotations", "value": {key: value}}),
    ]
}
