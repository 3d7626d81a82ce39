//! Leaves that say that a move has them, where the host knows neither that move nor the volume: it was restored from a backup in which the
//! claim waits for its volume. CreateVolume finds the leaf again, but gives out none that a move has.

use std::sync::Arc;

use super::{
    Movers,
    forgotten::{Forgotten, nobody},
};
use domain::{
    error::Result,
    volume::{
        LeafPlace, VolumeHash,
        moving::{End, MoveMark, Moving, Part, YARD, forgotten},
    },
};
use leaf::{
    MemberClient,
    moving::{Moved, Sight, Written, ends, row_in_yard},
    ownership::MadeFor,
    row::{ClaimRow, Row},
};
use member::Member;

impl Forgotten<'_> {
    /// The source is an ordinary leaf again, where pods look for it, unless something newer may be elsewhere. What becomes of a copy is
    /// decided once the host's volume leads to one of the two.
    pub(super) async fn gives_back(&self, movers: &Movers, sight: &Sight) -> Result<bool> {
        let Some(claim) = sight.claim().filter(|_| sight.is_held() && sight.is_volume_ours()) else { return Ok(false) };
        let of = sight.mark().unwrap_or_else(nobody);
        let home = ClaimRow::new(claim).id(&self.leaf.member, self.hash).place();
        let Some(home) = home.filter(|home| of.part != Part::Copy && home.namespace != YARD) else { return Ok(false) };
        let made_for = MadeFor::read(&claim.metadata);
        let made_for = made_for.filter(|made_for| VolumeHash::new(&movers.host.id, &made_for.volume) == self.hash);
        let Some(made_for) = made_for else { return Ok(false) };
        let there = leaf::claim::read(self.leaf, &home).await?;
        if there.is_some_and(|there| there.metadata.uid != claim.metadata.uid)
            || self.may_be_older(movers)?
            || !is_waited_for(movers, &made_for).await?
        {
            return Ok(false);
        }
        self.take_step(sight, &of, &home).await
    }

    async fn take_step(&self, sight: &Sight, of: &MoveMark, home: &LeafPlace) -> Result<bool> {
        let pods = if of.uid.is_empty() { Vec::new() } else { ends::movers(self.leaf, &of.uid).await? };
        let mut seen = sight.seen(home, of);
        seen.end = if pods.is_empty() { End::None } else { End::Failed };
        let step = forgotten(of.part, true, &seen);
        tracing::info!(
            member = self.leaf.member, leaf = %self.place, of = (!of.uid.is_empty()).then(|| of.object()), ?step,
            "a leaf names a move that the host does not have, and its claim in the host waits for a volume"
        );
        for pod in pods.iter().filter(|pod| step == Moving::RemoveEnds && !pod.is_leaving) {
            ends::remove(self.leaf, pod).await?;
        }
        let moved = Moved { leaf: self.leaf, hash: self.hash, sight, home, of, handle: "" };
        Ok(matches!(moved.write(step).await?, Written::Now | Written::Changed(_)))
    }

    /// Another member has a leaf of the volume that pods have had, or may have one.
    fn may_be_older(&self, movers: &Movers) -> Result<bool> {
        let was_had = |row: Row| row.claim.is_some_and(|claim| claim.was_had());
        let has_none = |leaf: &MemberClient| {
            let rows = [leaf.rows.row(self.hash).unwrap_or_default(), row_in_yard(leaf, self.hash)];
            leaf.rows.has_told(self.hash) && !rows.into_iter().any(was_had)
        };
        let members = movers.members.all()?;
        let is_other = |member: &&Arc<Member>| member.alias_of().is_none() && member.name != self.leaf.member;
        Ok(!members.values().filter(is_other).all(|member| member.leaf().is_ok_and(has_none)))
    }
}

/// By the very claim that it was made for; and no volume has its name.
async fn is_waited_for(movers: &Movers, made_for: &MadeFor) -> Result<bool> {
    let claim = host::claim::read(&movers.host, &made_for.claim, &made_for.volume).await?;
    let waits = claim.is_some_and(|claim| claim.uid == made_for.uid && claim.volume.is_none());
    Ok(waits && !host::volume::exists(&movers.host, &made_for.volume).await?)
}
