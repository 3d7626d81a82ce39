//! A volume that a member keeps for the host without its leaf claim, and a claim of the host that waits for it again: the host was
//! restored from a backup of when it waited for the first time. No empty volume is made in its place.

use std::{collections::BTreeMap, sync::Arc};

use super::{Provisioner, abandon::keeps, taken, volume_creation::VolumeCreation};
use domain::{
    error::{Error, Result},
    volume::{
        VolumeHash,
        healing::{Healing, Wish, decide},
        plan::Phase,
    },
};
use host::volume::LEAF_UID;
use leaf::row::{ClaimRow, VolumeRow};
use member::Member;

/// It says what its leaf claim was, which can be recreated by that.
fn is_kept(volume: &VolumeRow) -> bool {
    volume.is_retained() && volume.healing && !volume.removal && !volume.is_terminating() && volume.place.is_none()
}

/// What the member has of it without a leaf claim, and with its data: first what is at its place, then what is left of a claim at any
/// other one.
pub(super) fn left_of(job: &VolumeCreation<'_>) -> Vec<VolumeRow> {
    let at_its_place = job.leaf.rows.row_at(job.hash, &job.place).volume.filter(VolumeRow::is_retained);
    at_its_place.into_iter().chain(job.leaf.rows.left(job.hash)).collect()
}

/// It was given to another claim since, and the host does not know that any more: only a person can say that this claim is to have it.
pub(super) fn for_another(job: &VolumeCreation<'_>, volume: &VolumeRow) -> Error {
    let (member, name, named) = (&job.leaf.member, &volume.name, volume.named_claim());
    let mut of = volume.clone();
    if of.claim_place.claim.is_empty() {
        of.claim_place = job.place.clone();
    }
    // Where it names none, nothing says what its leaf claim was either.
    let (first, besides) = if volume.claim_uid.is_empty() {
        let first = format!("give the leaf volume a claimRef that names claim {} with any UID, and ", of.claim_place);
        (first, format!(", that UID as {LEAF_UID} in volumeAttributes"))
    } else {
        (String::new(), String::new())
    };
    Error::InProgress(format!(
        "member {member}: the data of this volume is there, in leaf volume {name}, whose claimRef names {named}, and \
         no empty volume is made in its place. To have that data, {first}make PersistentVolume {} in the host by hand, \
         for this claim, with Retain{besides} and volumeHandle {} (docs/lost-host.md). Do not delete the claim for \
         that",
        job.spec.name,
        of.id(member, job.hash)
    ))
}

/// Whether the host has had a volume of what the member has of this one: no leaf that came late, nor a copy.
pub(super) fn was_used(members: &BTreeMap<String, Arc<Member>>, name: &str, hash: VolumeHash) -> bool {
    let is_kept = || members.get(name).is_some_and(|member| keeps(member, hash));
    leaf_claim(members, name, hash).map_or_else(is_kept, |claim| is_used(&claim))
}

/// Whether the claim that it has of this one is the leaf by which a volume of the host was used. One that a move has may be on its way out.
pub(super) fn has_used_leaf(members: &BTreeMap<String, Arc<Member>>, name: &str, hash: VolumeHash) -> bool {
    leaf_claim(members, name, hash).is_some_and(|claim| is_used(&claim) && claim.moving.is_none())
}

fn is_used(claim: &ClaimRow) -> bool {
    claim.finalizer.is_some() && claim.had_volume()
}

fn leaf_claim(members: &BTreeMap<String, Arc<Member>>, name: &str, hash: VolumeHash) -> Option<ClaimRow> {
    members.get(name)?.last_known()?.rows.row(hash)?.claim
}

/// Recreates its leaf claim, where it was made for the claim that asks now. What follows is healing's. Nobody but the one who is told here
/// works on what keeps that from being done. Whether it is kept for another claim.
pub(super) async fn give_back(job: &VolumeCreation<'_>) -> Result<bool> {
    let leaf = job.leaf;
    let Some(volume) = left_of(job).into_iter().find(is_kept) else { return Ok(false) };
    let pair = leaf::healing::examine(leaf, job.hash, &job.place, Some(&volume.name)).await?;
    let made_for = pair.made_for().filter(|of| VolumeHash::new(&leaf.host, &of.volume) == job.hash);
    let is_its_own = made_for.is_some_and(|of| job.owner.is_some_and(|owner| owner.uid == of.uid));
    let wish = Wish::Use { retain: volume.follows };
    let step = decide(wish, pair.claim_seen(leaf, job.hash).as_ref(), pair.volume_seen().as_ref());
    if let (true, Healing::Recreate, Some(saved)) = (is_its_own, &step, pair.saved()) {
        leaf::healing::recreate(leaf, &job.place, &saved).await?;
        let back = "is recreated with the data that it had: the claim of the host waits for it again";
        tracing::info!(member = leaf.member, claim = %job.place, "the leaf claim {back}");
        return Err(Error::InProgress(format!("member {}: leaf claim {} {back}", leaf.member, job.place)));
    }
    let why = match step {
        Healing::Taken => {
            let Provisioner { host, members, .. } = job.provisioner;
            match taken::whose(host, members, leaf, job.hash, &pair).await {
                Some(whose) => format!("another claim has its name in the member, and {whose}"),
                None => return Ok(false),
            }
        }
        Healing::Stuck(why) => why.to_owned(),
        Healing::Recreate => return Ok(job.owner.is_some()),
        _ => return Ok(false),
    };
    Err(Error::InProgress(format!(
        "member {}: leaf claim {} cannot be recreated with the data that it had, which is in leaf volume {}: {why}",
        leaf.member, job.place, volume.name
    )))
}

/// The volume was given to another claim since, whose leaf claim has not got it yet: two would wait for one volume.
pub(super) fn is_not_awaited_elsewhere(job: &VolumeCreation<'_>) -> Result<()> {
    let Some(claim) = job.leaf.rows.row(job.hash).and_then(|row| row.claim) else { return Ok(()) };
    let waits = claim.observed().phase == Phase::Pending && !claim.former.is_empty() && claim.moving.is_none();
    if !waits || claim.place == job.place {
        return Ok(());
    }
    Err(Error::InProgress(format!(
        "member {}: leaf claim {} cannot be recreated with the data that it had, which is in leaf volume {}: leaf \
         claim {} was made for that leaf volume since, for another claim of the host, and is not bound to it yet. If \
         the host has no such claim, `kosmos-csi doctor` names the leaf claim",
        job.leaf.member,
        job.place,
        claim.volume().unwrap_or_default(),
        claim.place
    )))
}
