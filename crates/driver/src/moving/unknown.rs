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
        LeafPlace, VolumeHash, VolumeId,
        moving::{End, MoveMark, Moving, Part, YARD, forgotten},
    },
};
use host::events::News;
use leaf::{
    moving::{Moved, Sight, Written, ends, row_in_yard},
    ownership::MadeFor,
    row::{ClaimRow, Row},
};
use member::{Member, registry::departed};

impl Forgotten<'_> {
    /// The source is an ordinary leaf again, where pods look for it, unless something newer may be elsewhere. What becomes of a copy is
    /// decided once the host's volume leads to one of the two.
    pub(super) async fn gives_back(&self, movers: &Movers, sight: &Sight) -> Result<bool> {
        let Some(claim) = sight.claim().filter(|_| sight.is_held() && sight.is_volume_ours()) else { return Ok(false) };
        let of = sight.mark().unwrap_or_else(nobody);
        let id = ClaimRow::new(claim).id(&self.leaf.member, self.hash);
        // A handle that would be too long names no place.
        let home = if self.place.namespace == YARD { id.place() } else { Some(self.place.clone()) };
        let Some(home) = home.filter(|home| of.part != Part::Copy && home.namespace != YARD) else { return Ok(false) };
        let made_for = MadeFor::read(&claim.metadata);
        let made_for = made_for.filter(|made_for| VolumeHash::new(&movers.host.id, &made_for.volume) == self.hash);
        let Some(made_for) = made_for else { return Ok(false) };
        let there = leaf::claim::read(self.leaf, &home).await?;
        if there.is_some_and(|there| there.metadata.uid != claim.metadata.uid)
            || !is_waited_for(movers, &made_for).await?
        {
            return Ok(false);
        }
        if let Some(why) = self.may_be_older(movers).await? {
            self.tell_of_older(movers, &made_for, &id, &why).await;
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

    /// Why something newer may be elsewhere: another member has a leaf of the volume that pods have had, or may have one. So may one that has left,
    /// until somebody says that it is gone for good.
    async fn may_be_older(&self, movers: &Movers) -> Result<Option<String>> {
        let members = movers.members.all()?;
        let is_other = |member: &&Arc<Member>| member.alias_of().is_none() && member.name != self.leaf.member;
        if let Some(why) = members.values().filter(is_other).find_map(|member| self.newer_in(member)) {
            return Ok(Some(why));
        }
        let known = host::pins::known_members(&movers.host).await?.unwrap_or_default();
        Ok(known.iter().find(|name| !members.contains_key(*name)).map(|name| departed(name).to_string()))
    }

    fn newer_in(&self, other: &Member) -> Option<String> {
        let Some(leaf) = other.leaf().ok().filter(|leaf| leaf.rows.has_told(self.hash)) else {
            return Some(format!("member {} does not say now what it has of the volume", other.name));
        };
        let rows = [leaf.rows.row(self.hash).unwrap_or_default(), row_in_yard(leaf, self.hash)];
        // Whoever has taken a claim away by force has taken along what said whether pods had it.
        if let [Row { claim: None, volume: Some(volume), .. }, _] = &rows {
            let handle = volume.id(&leaf.member, self.hash);
            // Among the movers it has none yet by which pods would find it.
            let handle = Some(handle).filter(|_| volume.claim_place.namespace != YARD);
            return Some(format!(
                "leaf volume {} of member {} has no leaf claim that says whether pods have used it{}",
                volume.name,
                leaf.member,
                handle.map_or_else(String::new, |handle| format!("; its handle is {handle}"))
            ));
        }
        let had = rows.into_iter().filter_map(|row: Row| row.claim).find(ClaimRow::was_had)?;
        Some(format!("pods may have used the copy with handle {} since", had.id(&leaf.member, self.hash)))
    }

    async fn tell_of_older(&self, movers: &Movers, made_for: &MadeFor, id: &VolumeId, why: &str) {
        let message = format!(
            "member {}: leaf claim {} is the source of a move that the host does not know any more, and may be older \
             than its copy: {why}. The driver waits for that. To choose now, make PersistentVolume {} again for this \
             claim, with the copy's handle or with {id}",
            self.leaf.member, self.place, made_for.volume
        );
        let news = News { reason: "LeafElsewhere", message, warning: true };
        host::events::tell_claim(&movers.host, &made_for.claim, &made_for.uid, &news).await;
    }
}

/// By the very claim that it was made for; and no volume has its name.
async fn is_waited_for(movers: &Movers, made_for: &MadeFor) -> Result<bool> {
    let claim = host::claim::read(&movers.host, &made_for.claim, &made_for.volume).await?;
    let waits = claim.is_some_and(|claim| claim.uid == made_for.uid && claim.volume.is_none());
    Ok(waits && !host::volume::exists(&movers.host, &made_for.volume).await?)
}
