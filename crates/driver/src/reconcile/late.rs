//! A leaf claim that came when its volume had long been given out with another one, which has gone since: it has that one's name,
//! and a volume of its own, in which nobody's data is. It makes way.

use super::{
    Reconciler,
    repair::{self, LiveWish, Repair},
};
use domain::error::Result;
use host::volume::HostVolume;
use leaf::{healing::LeafPair, row::ClaimRow};

/// By what is in memory alone.
pub(super) fn may_have_come_late(known: &HostVolume, claim: &ClaimRow) -> bool {
    claim.may_have_come_late() && known.leaf.is_some_and(|leaf| leaf.is_another(claim.uids(), claim.volume()))
}

/// By what was read just now, in the host and in the member: the claim, and what the host was given in its place.
pub(super) fn came_late(repair: &Repair<'_>, pair: &LeafPair, wanted: &LiveWish) -> Option<String> {
    let claim = ClaimRow::new(pair.ours(repair.leaf(), repair.hash())?);
    let told = wanted.given_out().filter(|told| claim.came_late(&told.claim_uid, &told.volume))?;
    Some(format!(
        "(UID {}) came late: the host had been given the volume with another leaf claim (UID {}), whose data was in leaf volume {}",
        claim.uid, told.claim_uid, told.volume
    ))
}

pub(super) async fn make_way(
    reconciler: &Reconciler,
    repair: &Repair<'_>,
    pair: &LeafPair,
    wanted: &LiveWish,
    late: &str,
) -> Result<()> {
    let (leaf, place) = (repair.leaf(), &pair.place);
    if let Some(forgotten) = pair.never_given_out(leaf, repair.hash()) {
        tracing::info!(member = leaf.member, claim = %place, "the driver deletes a leaf claim that came late: leaf claim {place} {late}");
        return leaf::forgotten::withdraw(leaf, repair.hash(), &forgotten).await;
    }
    let what = format!("{late}. The driver cannot tell whether it is used: if it is not, delete it in the member");
    repair::tell(reconciler, repair, wanted, &repair.told("LeafStuck", place, &what, true)).await;
    Ok(())
}
