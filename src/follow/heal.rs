//! Brings a leaf claim back that somebody else deleted: looks at the objects, lets the pure plan decide, takes one step,
//! and looks again.
//!
//! The host is asked before every step, and its answer is not taken from a watch: DeleteVolume is called only for a volume
//! that the host has let go, so whoever has seen it in use a moment ago undoes no removal. The moment between is covered
//! by the steps themselves, each of which tests what it was decided on.

use std::time::Duration;

use super::Follower;
use crate::{
    error::Result,
    host::{events::News, volume::HostVolume},
    leaf::{
        Cluster,
        healing::{Patient, Saved},
        row::{ClaimRow, Row},
    },
    volume::{
        HostId, VolumeHash, VolumeId,
        healing::{Healing, decide},
        spec::LeafPlace,
    },
};

/// More than there are steps.
const STEPS: usize = 8;

/// One volume whose leaf is not as it should be.
pub(super) struct Case<'a> {
    leaf: &'a Cluster,
    hash: VolumeHash,
    place: LeafPlace,
    handle: String,
}

impl<'a> Case<'a> {
    pub(super) fn new(leaf: &'a Cluster, hash: VolumeHash) -> Option<Self> {
        let row = leaf.rows.row(hash)?;
        let volume = row.volume.as_ref().map(|volume| &volume.claim_place);
        let place = row.claim.as_ref().map(|claim| &claim.place).or(volume)?.clone();
        let handle = VolumeId::new(&leaf.member, &place.namespace, &place.claim, hash).to_string();
        Some(Self { leaf, hash, place, handle })
    }

    /// Healing has begun: it is brought to its end even where the host has let go meanwhile.
    fn begun(&self) -> bool {
        let row = self.row();
        let anew = row.claim.is_some_and(|claim| !claim.former.is_empty() && claim.unusable().is_some());
        anew || row.volume.is_some_and(|volume| volume.healing)
    }

    /// As it is known now: each step changes it.
    fn row(&self) -> Row {
        self.leaf.rows.row_at(self.hash, &self.place)
    }

    fn told(&self, reason: &'static str, what: &str, warning: bool) -> News {
        News { reason, message: format!("member {}: leaf claim {} {what}", self.leaf.member, self.place), warning }
    }
}

impl Follower {
    /// Goes as far as it can be gone now.
    pub(super) async fn heal(&self, case: &Case<'_>) -> Result<()> {
        for _ in 0..STEPS {
            let user = self.user(case).await?;
            if user.is_none() && !case.begun() {
                return Ok(());
            }
            let known = case.row().volume;
            let mut patient = case.leaf.examine(&case.place, known.as_ref().map(|volume| &*volume.name)).await?;
            if let Some(user) = &user {
                patient.volume.take_if(|volume| !user.given_out(volume.metadata.name.as_deref()));
            }
            let (claim, volume) = (patient.claim_seen(case.leaf, case.hash), patient.volume_seen());
            let step = decide(user.is_some(), claim.as_ref(), volume.as_ref());
            tracing::debug!(member = %case.leaf.member, leaf = %case.place, ?step, "heals");
            if !self.take(case, &step, &patient, user.as_ref()).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The one host volume with this handle, where it is to stay. Of several, nobody can say whose the leaf is.
    async fn user(&self, case: &Case<'_>) -> Result<Option<User>> {
        let known = self.volumes.with(&case.handle);
        let [known] = known.as_slice() else { return Ok(None) };
        if known.is_leaving() {
            return Ok(None);
        }
        let live = self.host.read_volume(&known.name).await?;
        Ok(live
            .filter(|(live, _)| live.uid == known.uid && *live.handle == *case.handle && !live.is_leaving())
            .map(|(volume, given_out)| User { volume, leaf_volume: given_out.map(|given_out| given_out.volume) }))
    }

    /// Takes one step. Whether another one can be taken now.
    async fn take(&self, case: &Case<'_>, step: &Healing, patient: &Patient, user: Option<&User>) -> Result<bool> {
        let leaf = case.leaf;
        let row = patient.claim.as_ref().map(ClaimRow::new);
        match (step, &patient.volume, patient.saved(), row) {
            (Healing::Keep, Some(volume), _, row) => {
                let Some(saved) = saved_of(&self.host.id, case, patient, user) else { return Ok(false) };
                if let (None, Some(row)) = (case.row().volume, row) {
                    // Or it would be out of sight once its claim has gone.
                    leaf.label_volume(volume.metadata.name.as_deref().unwrap_or_default(), case.hash, &row.uid).await?;
                    return Ok(true);
                }
                leaf.keep_volume(volume, &saved).await?;
                let what =
                    format!("(UID {}) was deleted in the member; its data is kept and it is made anew", saved.uid);
                self.tell(user, &case.told("LeafDeleted", &what, true)).await;
            }
            (Healing::Release, _, _, Some(row)) => leaf.release_claim(&row, case.hash).await?,
            (Healing::MakeAnew, _, Some(saved), _) => leaf.make_anew(&case.place, &saved).await?,
            (Healing::GiveVolume, Some(volume), Some(saved), Some(row)) => {
                leaf.give_volume(volume, &saved, &row).await?;
            }
            (Healing::PutPolicyBack, Some(volume), Some(saved), Some(row)) => {
                leaf.put_policy_back(volume, &saved, &row).await?;
                let what = format!("was made anew with its data (UID {} in place of {})", row.uid, saved.uid);
                self.tell(user, &case.told("LeafHealed", &what, false)).await;
                return Ok(false);
            }
            (Healing::TakeBack, _, _, Some(row)) => {
                if self.host.uses("", &case.handle).await? {
                    return Ok(false);
                }
                leaf.delete_claim(&row, case.hash).await?;
            }
            (Healing::AwaitClaim, _, _, Some(row)) => {
                let what = format!(
                    "(UID {}) was deleted in the member and a pod there still uses it, or a finalizer \
                    holds it; it is made anew with its data once it has gone",
                    row.uid
                );
                self.tell(user, &case.told("LeafWaits", &what, true)).await;
                return Ok(false);
            }
            (Healing::Stuck(why), ..) => {
                let what = format!("was deleted in the member and cannot be made anew: {why}");
                self.tell(user, &case.told("LeafStuck", &what, true)).await;
                return Ok(false);
            }
            (Healing::Lost, ..) => {
                self.tell(user, &case.told("LeafLost", LOST, true)).await;
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn tell(&self, user: Option<&User>, news: &News) {
        if let Some(user) = user {
            self.host.tell(&user.volume, news).await;
        }
    }
}

pub(super) const LOST: &str = "or its volume was deleted in the member and the data is not there any more: restore it there under the same names, or \
     delete the claim here. Nothing is made in its place";

/// How soon to look again, when nothing has changed for so many looks.
pub(super) fn pause(looks: u32) -> Duration {
    Duration::from_secs(1 << looks.min(5))
}

/// The host volume that uses a leaf.
struct User {
    volume: HostVolume,
    /// The leaf volume's name, as the host was told.
    leaf_volume: Option<String>,
}

impl User {
    /// Whether a volume is the one that the host was given. Copies carry labels and notes as well, but not the name.
    fn given_out(&self, volume: Option<&str>) -> bool {
        self.leaf_volume.as_deref().is_none_or(|told| told.is_empty() || Some(told) == volume)
    }
}

fn saved_of(host: &HostId, case: &Case<'_>, patient: &Patient, user: Option<&User>) -> Option<Saved> {
    let volume = patient.volume.as_ref()?;
    if let Some(claim) = &patient.claim {
        return Some(Saved::of_claim(claim, volume));
    }
    let user = user.filter(|user| user.leaf_volume.is_some())?;
    // A name that is not the one of the leaf's hash says nothing.
    (VolumeHash::new(host, &user.volume.name) == case.hash).then(|| Saved::of_volume(volume, &user.volume.name))?
}
