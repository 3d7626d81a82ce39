//! DeleteVolume: the leaf claim goes, then the leaf volume, and the answer comes when a read has found nothing left.

use std::time::Duration;

use tokio::time::Instant;

use super::{Provisioner, wait};
use crate::{
    error::{Error, Result},
    leaf::{
        Cluster, Rows, ownership,
        rows::{ClaimRow, Row},
    },
    volume::{
        LeafName, VolumeHash, VolumeId,
        plan::{self, Removal},
        spec::LeafPlace,
    },
};

impl Provisioner {
    /// An id that is none of ours names a volume that does not exist, and that is what was asked for.
    pub async fn delete(&self, id: &str, deadline: Instant) -> Result<()> {
        let Some(id) = VolumeId::parse(id) else {
            return Ok(());
        };
        let member = match self.members.get(&id.member).await {
            Err(Error::NotFound(_)) => return Ok(()),
            found => found?,
        };
        let leaf = member.leaf()?;
        match leaf.rows.find(&id) {
            Some((hash, row)) => {
                let place = row.claim.as_ref().map(ClaimRow::place).or_else(|| place_of(&id));
                self.remove(leaf, hash, &place.unwrap_or_else(|| fallback(&self.leaf_namespace, hash)), deadline).await
            }
            None => self.delete_unseen(leaf, &id, deadline).await,
        }
    }

    /// The watches show no such leaf; a read decides.
    async fn delete_unseen(&self, leaf: &Cluster, id: &VolumeId, deadline: Instant) -> Result<()> {
        let Some(place) = place_of(id) else {
            return Ok(());
        };
        let Some(claim) = leaf.read_claim(&place).await? else {
            return Ok(());
        };
        if let Some(hash) = ownership::volume_of(&claim.metadata, &leaf.host).filter(|hash| id.names(*hash)) {
            return self.remove(leaf, hash, &place, deadline).await;
        }
        let given_out = self.host.leaf_uid_of(&id.to_string()).await?;
        if given_out.is_some() && given_out == claim.metadata.uid {
            return Err(Error::Refused(format!(
                "member {}: claim {}/{} is the leaf of this volume, but its labels were removed: put back {}, or delete it there",
                leaf.member,
                place.namespace,
                place.claim,
                ownership::selector(&leaf.host)
            )));
        }
        Ok(())
    }

    /// Removes the leaf step by step until a read proves it gone.
    pub(super) async fn remove(
        &self,
        leaf: &Cluster,
        hash: VolumeHash,
        place: &LeafPlace,
        deadline: Instant,
    ) -> Result<()> {
        let mut last_volume = None;
        let mut pause = Duration::from_millis(100);
        loop {
            let row = leaf.rows.row(hash).unwrap_or_default();
            let (step, volume) = decide(&row);
            last_volume = volume.or(last_volume);
            match (&step, &row.claim) {
                (Removal::MakeDeletable { volume, uid }, _) => leaf.make_deletable(volume, uid).await?,
                (Removal::DeleteClaim { .. }, Some(claim)) => {
                    if last_volume.is_none() {
                        leaf.remove_consumer(&claim.namespace, hash).await?;
                    }
                    leaf.delete_claim(claim, hash).await?;
                }
                (Removal::ReleaseClaim { .. }, Some(claim)) => leaf.release_claim(claim, hash).await?,
                (Removal::AwaitClaim | Removal::AwaitVolume, _) => {
                    let changed = |rows: &Rows| decide(&rows.row(hash).unwrap_or_default()).0 != step;
                    if !wait(leaf, deadline, changed, async || late(leaf, place, &step)).await? {
                        look_again(leaf, hash, place, &row).await?;
                    }
                }
                _ => {
                    if is_gone(leaf, place, hash, last_volume.as_ref()).await? {
                        return Ok(());
                    }
                    if Instant::now() + pause >= deadline {
                        return Err(late(leaf, place, &Removal::AwaitVolume));
                    }
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(2));
                }
            }
        }
    }
}

/// The leaf volume as it was last seen: its name, and its UID where it carried our labels.
type LastVolume = (String, Option<String>);

fn decide(row: &Row) -> (Removal, Option<LastVolume>) {
    let claim = row.claim.as_ref().map(ClaimRow::observed);
    let volume = row.observed_volume();
    let seen = volume.as_ref().map(|volume| (volume.name.clone(), Some(volume.uid.clone())));
    let named = claim.as_ref().and_then(|claim| claim.volume.clone()).map(|name| (name, None));
    (plan::removal(claim.as_ref(), volume.as_ref()), seen.or(named))
}

/// The watches said nothing for a while: they may be dead.
async fn look_again(leaf: &Cluster, hash: VolumeHash, place: &LeafPlace, row: &Row) -> Result<()> {
    if let Some(claim) = &row.claim
        && leaf.read_claim(place).await?.is_none()
    {
        leaf.rows.drop_claim(hash, &claim.uid);
    }
    if let Some(volume) = row.observed_volume()
        && leaf.volume_is_gone(&volume.name, Some(&volume.uid)).await?
    {
        leaf.rows.drop_volume(hash, &volume.uid);
    }
    Ok(())
}

/// One read: of the volume where there was one, which outlives its claim, else of the claim.
async fn is_gone(leaf: &Cluster, place: &LeafPlace, hash: VolumeHash, volume: Option<&LastVolume>) -> Result<bool> {
    if let Some((name, uid)) = volume {
        leaf.volume_is_gone(name, uid.as_deref()).await
    } else {
        let found = leaf.read_claim(place).await?;
        Ok(found.is_none_or(|claim| ownership::volume_of(&claim.metadata, &leaf.host) != Some(hash)))
    }
}

fn late(leaf: &Cluster, place: &LeafPlace, step: &Removal) -> Error {
    let what = match step {
        Removal::AwaitClaim => "is still in use by a pod, or held by a finalizer that is not ours",
        _ => "is gone and its leaf volume is still being deleted",
    };
    Error::InProgress(format!("member {}: leaf claim {}/{} {what}", leaf.member, place.namespace, place.claim))
}

fn place_of(id: &VolumeId) -> Option<LeafPlace> {
    match &id.leaf {
        LeafName::Readable { namespace, claim, .. } => {
            Some(LeafPlace { namespace: namespace.clone(), claim: claim.clone() })
        }
        LeafName::Hashed(_) => None,
    }
}

/// Where a leaf without a readable handle would be; only used in messages and reads of what is known gone.
fn fallback(namespace: &str, hash: VolumeHash) -> LeafPlace {
    LeafPlace { namespace: namespace.to_owned(), claim: format!("v-{hash}") }
}
