//! Leaf claims that were recreated late, when their volume had moved to another member. What they wait for is what the move has kept, which
//! no claim gets by that, or it is gone. The host leads elsewhere, so no look at a volume finds them, and they would keep their name from a
//! move back.

use super::{Reconciler, Waiting, leads_elsewhere};
use domain::{
    error::Result,
    volume::{VolumeHash, VolumeId},
};
use leaf::{MemberClient, moving::kept, ownership, row::ClaimRow};
use member::registry::may_mean;

pub(super) async fn withdraw(reconciler: &Reconciler, leaf: &MemberClient, waiting: &mut Waiting) {
    for (hash, row) in waiting.left_behind.old(leaf.rows.recreated(), |(_, row)| &row.uid) {
        if let Err(error) = withdraw_claim(reconciler, leaf, hash, &row).await {
            tracing::debug!(member = leaf.member, claim = %row.place, %error, "a leaf claim of before a move is not withdrawn yet");
        }
    }
}

/// It is deleted under the version that was read, and let go once it is seen to be on its way out.
async fn withdraw_claim(reconciler: &Reconciler, leaf: &MemberClient, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    for is_deleted in [false, true] {
        let pair = leaf::healing::examine(leaf, hash, &seen.place, None).await?;
        let Some(claim) = pair.ours(leaf, hash) else { return Ok(()) };
        let (row, notes) = (ClaimRow::new(claim), claim.metadata.annotations.as_ref());
        let name = notes.and_then(|notes| notes.get(ownership::NAME)).map_or("", String::as_str);
        let is_it = row.uid == seen.uid && row.waits_as_recreated();
        let is_anybodys = match &pair.volume {
            Some(volume) => !kept::is_kept_from(leaf, volume, &row.uid),
            // Where a move has it, that tells its user what has gone.
            None => row.moving.is_some(),
        };
        if !is_it || is_anybodys {
            return Ok(());
        }
        // What was just deleted does not come back, whatever the host says now, and each answer is a list of all its volumes.
        if !is_deleted && !has_moved_away(reconciler, leaf, hash, name).await? {
            return Ok(());
        }
        if row.observed().terminating {
            return leaf::claim::release(leaf, &row, hash).await;
        }
        tracing::info!(
            member = leaf.member, claim = %row.place, volume = row.volume(),
            "the driver deletes a leaf claim that was recreated late: the volume of the host is in another member by now"
        );
        leaf::claim::delete(leaf, &row, hash).await?;
    }
    Ok(())
}

/// By what the host says now: its volume leads to another member, where its leaf volume is seen, and none leads here, by whichever name of the
/// member and to whatever place: a person may have made one to have the source.
async fn has_moved_away(reconciler: &Reconciler, leaf: &MemberClient, hash: VolumeHash, name: &str) -> Result<bool> {
    // Whoever may write claims in the member may write another name.
    if VolumeHash::new(&reconciler.host.id, name) != hash {
        return Ok(false);
    }
    let Some(handle) = host::volume::handle_of(&reconciler.host, name).await? else { return Ok(false) };
    if !leads_elsewhere(reconciler, leaf, &handle).await {
        return Ok(false);
    }
    let members = reconciler.members.all()?;
    let leads_here = |id: &VolumeId| may_mean(&members, &id.member, &leaf.member) && id.names(hash);
    Ok(!reconciler.handles.have_now(&reconciler.host, hash, leads_here).await?)
}
