//! Leaf groups that came when nobody asked for them any more, and labels that did, by which a group chooses its claims.

use super::{Reconciler, Waiting};
use domain::{error::Result, volume::VolumeHash};
use host::snapshot::ContentKind;
use leaf::{
    MemberClient,
    marks::groups_of,
    row::ClaimRow,
    snapshot::{
        group::{Groups, LeafGroup},
        kinds::VolumeSnapshot,
    },
};

pub(super) async fn withdraw(reconciler: &Reconciler, leaf: &MemberClient, waiting: &mut Waiting) {
    let (groups, all) = match listed(leaf).await {
        Ok(listed) => listed,
        Err(error) => {
            return tracing::debug!(member = leaf.member, %error, "groups of snapshots are not looked through");
        }
    };
    for (hash, group) in waiting.groups.old(all, |(_, group)| &group.uid) {
        if let Some(groups) = &groups
            && let Err(error) = withdraw_group(reconciler, leaf, groups, hash, &group).await
        {
            tracing::debug!(member = leaf.member, group = %group.place, %error, "a forgotten group is not withdrawn yet");
        }
    }
    for (hash, claim) in waiting.chosen.old(leaf.rows.chosen_for_groups(), |(_, claim)| &claim.uid) {
        if let Err(error) = leave_groups(leaf, hash, &claim).await {
            tracing::debug!(member = leaf.member, claim = %claim.place, %error, "a leaf claim keeps the label of a group");
        }
    }
}

/// A group is given out only once its snapshots carry our labels. What was restored from a backup under our name stays, and
/// so do snapshots of which nobody can tell whether they are asked for still.
async fn withdraw_group(
    reconciler: &Reconciler,
    leaf: &MemberClient,
    groups: &Groups<'_>,
    hash: VolumeHash,
    seen: &LeafGroup,
) -> Result<()> {
    let Some(Ok(now)) = groups.read(&seen.place, hash).await? else { return Ok(()) };
    if now.uid != seen.uid || !now.chooses {
        return Ok(());
    }
    let parts = leaf::snapshot::group::parts(leaf, &now).await?;
    if parts.iter().any(|part| leaf::snapshot::group::is_marked_part(leaf, part, hash))
        || is_asked_for(reconciler, &now, &parts).await?
    {
        return Ok(());
    }
    tracing::info!(
        member = leaf.member, group = %now.place, host_content = now.asked_by,
        "the driver deletes a leaf group of snapshots that the host was never told of: nobody asks for it any more"
    );
    groups.remove(&now, &parts).await?;
    Ok(())
}

async fn is_asked_for(reconciler: &Reconciler, group: &LeafGroup, parts: &[VolumeSnapshot]) -> Result<bool> {
    let Some(asked_by) = group.asked_by.as_deref() else { return Ok(!parts.is_empty()) };
    let record = host::snapshot::read_content(&reconciler.host, ContentKind::Group, asked_by).await?;
    Ok(record.is_some_and(|record| !record.terminating || record.given_out))
}

/// No watch shows them. A member that names no such kind is asked for them again at the next look.
async fn listed(leaf: &MemberClient) -> Result<(Option<Groups<'_>>, Vec<(VolumeHash, LeafGroup)>)> {
    let groups = leaf::snapshot::served::told_groups(leaf).await?;
    let all = match &groups {
        Some(groups) => groups.ours().await?,
        None => Vec::new(),
    };
    Ok((groups, all))
}

/// Takes off the label of a group that is cut, or not there; those of others at later looks, as the claim has changed then.
async fn leave_groups(leaf: &MemberClient, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    let pair = leaf::healing::examine(leaf, hash, &seen.place, None).await?;
    let Some(claim) = pair.ours(leaf, hash) else { return Ok(()) };
    let groups = leaf::snapshot::served::groups(leaf).await?;
    for group in groups_of(&claim.metadata) {
        let found = match &groups {
            Some(groups) => groups.find(group).await?,
            None => None,
        };
        if found.is_none_or(|found| found.observed().cut) {
            tracing::info!(
                member = leaf.member, claim = %seen.place, %group,
                "the driver takes the label of a group of snapshots off a leaf claim: no such group is being made"
            );
            return leaf::snapshot::chosen::leave_group(leaf, &ClaimRow::new(claim), group).await;
        }
    }
    Ok(())
}
