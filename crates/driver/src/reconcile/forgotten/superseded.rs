//! Leaf claims that were recreated late. The volume of each was given to the claim of another place meanwhile, to which the same handle
//! leads: so no look at that volume finds it, and it would keep its name from others for as long as the volume is there.

use super::Waiting;
use domain::{error::Result, volume::VolumeHash};
use leaf::{MemberClient, row::ClaimRow};

pub(super) async fn withdraw(leaf: &MemberClient, waiting: &mut Waiting) {
    for (hash, row) in waiting.superseded.old(leaf.rows.superseded(), |(_, row)| &row.uid) {
        if let Err(error) = withdraw_claim(leaf, hash, &row).await {
            tracing::debug!(member = leaf.member, claim = %row.place, %error, "a leaf claim that was recreated late is not withdrawn yet");
        }
    }
}

/// It is deleted under the version that was read, and let go once it is seen to be on its way out.
async fn withdraw_claim(leaf: &MemberClient, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    for _ in 0..2 {
        let pair = leaf::healing::examine(leaf, hash, &seen.place, None).await?;
        let found =
            leaf::healing::superseded(leaf, hash, &pair).await?.filter(|found| found.is_out_of_sight(leaf, hash));
        let Some(claim) = found.map(|found| found.claim).filter(|claim| claim.uid == seen.uid) else { return Ok(()) };
        if claim.observed().terminating {
            return leaf::claim::release(leaf, &claim, hash).await;
        }
        tracing::info!(
            member = leaf.member, claim = %claim.place, volume = claim.volume(),
            "the driver deletes a leaf claim that was recreated late: another leaf claim has its volume by now"
        );
        leaf::claim::delete(leaf, &claim, hash).await?;
    }
    Ok(())
}
