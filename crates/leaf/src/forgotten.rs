//! Whether a leaf was ever given out to the host as a volume, by what it and its volume say, and the marks that tell.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    MemberClient, claim, consumer,
    healing::LeafPair,
    identity::{self, is_leaf_of},
    marks::{path_of, request_of, withdrawn_mark},
    ownership::{self, HAD_VOLUME, MadeFor},
    row::{ClaimRow, VolumeRow},
    volume,
};
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::{
        LeafBinding, Parameters, VolumeHash,
        plan::{ObservedVolume, Phase},
    },
};

/// A leaf of which the host was never told.
#[derive(Debug)]
pub struct NeverGivenOut {
    pub claim: ClaimRow,
    /// The volume of the host that it was to be.
    pub volume: String,
    /// None where nobody told for whom.
    pub made_for: Option<MadeFor>,
    /// The volume that the member made for it, where that would outlive it.
    pub retained: Option<ObservedVolume>,
}

impl ClaimRow {
    /// No note on it tells of a volume of the host's. Without our finalizer it is what a tool has made of a leaf.
    pub fn was_never_given_out(&self) -> bool {
        let unused = !self.had_volume() && self.former.is_empty() && self.life.published.is_unpublished();
        unused && self.finalizer.is_some() && !self.is_lost() && self.moving.is_none()
    }
}

impl LeafPair {
    /// CreateVolume says that there is a volume only once that carries our labels. A leaf that need not be bound for it is
    /// bound by its first pod: of such a one nobody can tell any more. An earlier version gave out copies like that too, and
    /// those have had the mark of their volume since.
    pub fn never_given_out(&self, leaf: &MemberClient, hash: VolumeHash) -> Option<NeverGivenOut> {
        let claim = self.claim.as_ref()?;
        let (now, made_for) = (ClaimRow::new(claim), MadeFor::read(&claim.metadata));
        let volume = claim.annotations().get(ownership::NAME)?.clone();
        let ours = is_leaf_of(&claim.metadata, &leaf.host, hash);
        if !ours || !now.was_never_given_out() {
            return None;
        }
        if now.observed().phase == Phase::Pending && now.volume().is_none() {
            return Some(NeverGivenOut { claim: now, volume, made_for, retained: None });
        }
        let volume_seen = self.volume.as_ref()?;
        let is_anothers = identity::other_owner(&volume_seen.metadata, &leaf.host, hash).is_some();
        let never_answered =
            || (is_unlabelled(volume_seen) || is_anothers) && waits_to_be_bound(claim, &leaf.member) == Some(true);
        let bound_to = VolumeRow::new(volume_seen).observed();
        let would_go = is_anothers && !bound_to.retained;
        if would_go || !now.is_withdrawn() && !never_answered() {
            return None;
        }
        let retained = Some(bound_to).filter(|volume| volume.retained && !volume.by_hand && !is_anothers);
        Some(NeverGivenOut { claim: now, volume, made_for, retained })
    }
}

/// Each step tests what it was decided on. Its consumer may have come late, and nobody has seen it then.
pub async fn withdraw(client: &MemberClient, hash: VolumeHash, forgotten: &NeverGivenOut) -> Result<()> {
    let now = &forgotten.claim;
    consumer::end(client, &now.place.namespace, hash).await?;
    if let Some(volume) = &forgotten.retained {
        volume::make_deletable(client, volume, hash).await?;
    }
    if !now.observed().terminating {
        claim::delete(client, now, hash).await?;
    }
    match client.rows.row_at(hash, &now.place).claim {
        Some(left) if left.uid == now.uid && left.finalizer.is_some() => claim::release(client, &left, hash).await,
        _ => Ok(()),
    }
}

/// A host volume uses the claim: nobody who comes late may take it back.
pub async fn mark_used(client: &MemberClient, claim: &ClaimRow, by: &str, hash: VolumeHash) -> Result<()> {
    mark(client, claim, hash, &[json!({"op": "add", "path": path_of(HAD_VOLUME), "value": by})]).await
}

/// Its removal begins, and nobody was told of it. Or it is wanted after all, and about to be given out. A write that
/// arrives when that has happened does nothing: it tests the version.
pub async fn mark_withdrawn(client: &MemberClient, claim: &ClaimRow, hash: VolumeHash, withdrawn: bool) -> Result<()> {
    match mark(client, claim, hash, &withdrawn_mark(&claim.uid, &claim.version_text(), withdrawn)).await {
        Err(Error::Refused(_)) => {
            // The next look goes by the claim as it is now.
            let changed = format!("member {}: leaf claim {} has changed meanwhile", client.member, claim.place);
            Err(Error::InProgress(changed))
        }
        marked => marked,
    }
}

async fn mark(client: &MemberClient, claim: &ClaimRow, hash: VolumeHash, changes: &[Value]) -> Result<()> {
    let mut operations = vec![json!({"op": "test", "path": "/metadata/uid", "value": claim.uid})];
    operations.extend_from_slice(changes);
    let doing = format!("mark claim {}", claim.place);
    let claims = claim::claims(client, &claim.place.namespace);
    let marked = json_patch::send(claims, &claim.place.claim, &operations).await;
    match marked.map_err(|error| client.outcome(&doing, &error)) {
        Ok(claim) => {
            client.rows.put_claim(&claim);
            Ok(())
        }
        Err(Error::NotFound(_)) => {
            client.rows.drop_claim(hash, &claim.uid, u64::MAX);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

fn is_unlabelled(volume: &PersistentVolume) -> bool {
    !volume.labels().contains_key(ownership::VOLUME)
}

/// Whether CreateVolume of this leaf waits for its volume; nothing, where what was asked for cannot be read any more.
fn waits_to_be_bound(claim: &PersistentVolumeClaim, member: &str) -> Option<bool> {
    let request = request_of(claim)?;
    let parameters = Parameters::parse(&request.parameters).ok()?;
    let binding = parameters.leaf_binding.at(member).copied().unwrap_or_default();
    Some(binding != LeafBinding::Deferred || request.source.is_some())
}
