//! Leaf groups that came when nobody asked for them any more, and labels that did, by which a group chooses its claims.

use super::{Follower, Waiting};
use crate::{
    error::Result,
    host::snapshot::ContentKind,
    leaf::{
        Cluster,
        row::ClaimRow,
        snapshot::{
            chosen::groups_of,
            group::{Groups, LeafGroup},
        },
    },
    volume::VolumeHash,
};

impl Follower {
    /// No watch shows them.
    pub(super) async fn withdraw_forgotten_groups(&self, leaf: &Cluster, waiting: &mut Waiting) {
        if let Err(error) = self.look_through_groups(leaf, waiting).await {
            tracing::debug!(member = leaf.member, %error, "groups of snapshots are not looked through");
        }
    }

    async fn look_through_groups(&self, leaf: &Cluster, waiting: &mut Waiting) -> Result<()> {
        let groups = leaf.groups().await?;
        let all = match &groups {
            Some(groups) => groups.ours().await?,
            None => Vec::new(),
        };
        for (hash, group) in waiting.groups.old(all, |(_, group)| &group.uid) {
            if let Some(groups) = &groups {
                self.withdraw_group(leaf, groups, hash, &group).await?;
            }
        }
        for (hash, claim) in waiting.chosen.old(leaf.rows.chosen_for_groups(), |(_, claim)| &claim.uid) {
            leave_groups(leaf, groups.as_ref(), hash, &claim).await?;
        }
        Ok(())
    }

    /// A group is given out only once its snapshots carry our labels.
    async fn withdraw_group(
        &self,
        leaf: &Cluster,
        groups: &Groups<'_>,
        hash: VolumeHash,
        seen: &LeafGroup,
    ) -> Result<()> {
        let Some(Ok(now)) = groups.read(&seen.place, hash).await? else { return Ok(()) };
        let Some(asked_by) = now.asked_by.as_deref().filter(|_| now.uid == seen.uid) else { return Ok(()) };
        let parts = leaf.parts(&now).await?;
        if parts.iter().any(|part| leaf.is_marked_part(part, hash)) {
            return Ok(());
        }
        let record = self.host.read_content(ContentKind::Group, asked_by).await?;
        if record.is_some_and(|record| !record.terminating || record.given_out) {
            return Ok(());
        }
        tracing::info!(
            member = leaf.member, group = %now.place, host_content = asked_by,
            "withdraws a leaf group of snapshots of which the host was never told: nobody asks for it any more"
        );
        groups.remove(&now, &parts).await
    }
}

/// Takes off the labels of groups that are cut, or not there.
async fn leave_groups(leaf: &Cluster, groups: Option<&Groups<'_>>, hash: VolumeHash, seen: &ClaimRow) -> Result<()> {
    let patient = leaf.examine(hash, &seen.place, None).await?;
    let Some(claim) = patient.ours(leaf, hash) else { return Ok(()) };
    for group in groups_of(&claim.metadata) {
        let found = match groups {
            Some(groups) => groups.find(group).await?,
            None => None,
        };
        if found.is_none_or(|found| found.observed().cut) {
            tracing::info!(
                member = leaf.member, claim = %seen.place, %group,
                "takes a label off a leaf claim by which a group of snapshots would choose it: no such group is being cut"
            );
            return leaf.leave_group(&ClaimRow::new(claim), group).await;
        }
    }
    Ok(())
}
