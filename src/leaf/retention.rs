//! The leaf volume follows the host's: retained as long as that is, and as it was before when it is not any more. And the way
//! out for whoever must get rid of our finalizer: the data is saved first.

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::ResourceExt;
use serde_json::json;

use super::{
    Cluster,
    healing::{Saved, annotate, bound_to, path_of, policy_of},
    ownership,
    row::ClaimRow,
};
use crate::{
    error::{Error, Result},
    volume::spec::LeafPlace,
};

const POLICY: &str = "/spec/persistentVolumeReclaimPolicy";

impl Cluster {
    /// The host's volume is `Retain`: so is this one, and says what it was before. What the answer does not show was not
    /// done.
    pub async fn follow_host(&self, volume: &PersistentVolume) -> Result<()> {
        let mut changes = vec![
            json!({"op": "test", "path": POLICY, "value": policy_of(volume)}),
            json!({"op": "replace", "path": POLICY, "value": "Retain"}),
        ];
        // Somebody may have changed the policy since: what it was at first is what counts.
        if !volume.annotations().contains_key(ownership::POLICY_BEFORE) {
            changes.append(&mut annotate(volume, ownership::POLICY_BEFORE, policy_of(volume)));
        }
        let kept = self.change_volume(volume, bound_to(volume).unwrap_or_default(), &changes, "retain").await?;
        if policy_of(&kept) == "Retain" {
            return Ok(());
        }
        Err(Error::InProgress(format!("member {}: volume {} is not retained yet", self.member, volume.name_any())))
    }

    /// The host's volume is not `Retain` any more. Only for a volume whose claim holds it: one without would be removed at
    /// once.
    pub async fn unfollow_host(&self, volume: &PersistentVolume, claim: &ClaimRow) -> Result<()> {
        let Some(before) = volume.annotations().get(ownership::POLICY_BEFORE) else { return Ok(()) };
        let changes = [
            json!({"op": "test", "path": path_of(ownership::POLICY_BEFORE), "value": before}),
            json!({"op": "test", "path": POLICY, "value": "Retain"}),
            json!({"op": "remove", "path": path_of(ownership::POLICY_BEFORE)}),
            json!({"op": "replace", "path": POLICY, "value": before}),
        ];
        self.change_volume(volume, &claim.uid, &changes, "put the policy back of").await.map(drop)
    }

    /// Takes our finalizer off a leaf claim for an administrator of the member who must have it gone, after its volume has
    /// been made to stay and keeps what the claim was. The name of that volume, where there is one.
    pub async fn release_by_force(&self, place: &LeafPlace) -> Result<Option<String>> {
        let about = format!("member {}: claim {place}", self.member);
        let claim = self.read_claim(place).await?.ok_or_else(|| Error::NotFound(format!("{about} is not there")))?;
        let row = ClaimRow::new(&claim);
        let Some(hash) = ownership::volume_of(&claim.metadata, &self.host) else {
            return Err(Error::Refused(format!(
                "{about} is no leaf of this host: {}",
                ownership::whose(&claim.metadata, &self.host)
            )));
        };
        if !row.observed().terminating {
            return Err(Error::Refused(format!("{about} is not being deleted: delete it first, then release it")));
        }
        let volume = self.examine(hash, place, row.volume()).await?.volume;
        if let Some(volume) = &volume {
            if bound_to(volume) != Some(&row.uid) {
                let bound = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
                return Err(Error::Refused(format!(
                    "{about} names volume {}, which is bound to another claim ({}): nothing is changed",
                    volume.name_any(),
                    bound.and_then(|claim| claim.name.as_deref()).unwrap_or("none")
                )));
            }
            self.label_volume(&volume.name_any(), hash, &row.uid).await?;
            self.keep_volume(volume, &Saved::of_claim(&claim, volume)).await?;
        }
        if row.finalizer.is_some() {
            self.release_claim(&row, hash).await?;
        }
        Ok(volume.map(|volume| volume.name_any()))
    }
}
