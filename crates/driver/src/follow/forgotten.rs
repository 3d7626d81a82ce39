//! Leaves of claims that are gone, when whoever asked for them has forgotten: a provisioner knows only in its memory that it is at
//! work, and CreateVolume, which would withdraw them, is never called again. Those that never had a volume are withdrawn, as
//! nobody's data can be in them; of the others `doctor` tells.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::Follower;
use crate::{
    error::Result,
    leaf::{
        Cluster,
        ownership::{self, MadeFor},
        row::ClaimRow,
    },
    volume::{VolumeHash, VolumeId, plan::Phase},
};

/// A provisioner calls again after five minutes at most.
const FORGOTTEN: Duration = Duration::from_mins(15);
/// Between two looks at who waits.
const LOOK: Duration = Duration::from_mins(1);
/// At each look.
const AT_ONCE: usize = 20;

/// Who waits in a member, since when that is known. Losing it costs time and nothing else.
#[derive(Default)]
pub(super) struct Waiting {
    since: HashMap<VolumeHash, (Box<str>, Instant)>,
    looked: Option<Instant>,
}

impl Waiting {
    /// Those that have waited for so long that nobody may ask for them any more.
    fn old(&mut self, leaf: &Cluster) -> Vec<(VolumeHash, ClaimRow)> {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + LOOK) {
            return Vec::new();
        }
        self.looked = Some(now);
        let empty = empty(leaf);
        self.since.retain(|hash, (uid, _)| empty.get(hash).is_some_and(|row| row.uid == *uid));
        let mut old = Vec::new();
        for (hash, row) in empty {
            let (_, since) = self.since.entry(hash).or_insert_with(|| (row.uid.clone(), now));
            if now.duration_since(*since) >= FORGOTTEN && old.len() < AT_ONCE {
                // Whoever is wanted still is asked about again as late.
                *since = now;
                old.push((hash, row));
            }
        }
        old
    }
}

/// All that wait and never had a volume, also those that somebody in the member has deleted: our finalizer holds them.
fn empty(leaf: &Cluster) -> BTreeMap<VolumeHash, ClaimRow> {
    let pending = leaf.rows.pending().into_iter().map(|(hash, row, _)| (hash, row));
    let leaving = leaf.rows.unwell().into_iter().filter_map(|hash| Some((hash, leaf.rows.row(hash)?.claim?)));
    pending.chain(leaving).filter(|(_, row)| is_empty(row)).collect()
}

impl Follower {
    pub(super) async fn withdraw_forgotten(&self, leaf: &Cluster, waiting: &mut Waiting) {
        for (hash, row) in waiting.old(leaf) {
            if let Err(error) = self.withdraw(leaf, hash, &row).await {
                tracing::debug!(member = leaf.member, claim = %row.place, %error, "a forgotten leaf is not withdrawn yet");
            }
        }
    }

    /// The host and the member are asked themselves, and each step tests what it was decided on.
    async fn withdraw(&self, leaf: &Cluster, hash: VolumeHash, row: &ClaimRow) -> Result<()> {
        let Some(claim) = leaf.read_claim(&row.place).await? else { return Ok(()) };
        let ours = ownership::volume_of(&claim.metadata, &leaf.host) == Some(hash);
        let (now, made_for) = (ClaimRow::new(&claim), MadeFor::read(&claim.metadata));
        let (Some(made_for), true) = (made_for, ours && now.uid == row.uid && is_empty(&now)) else { return Ok(()) };
        let wanted = self.host.read_claim(&made_for.claim, &made_for.volume).await?;
        if wanted.is_some_and(|claim| claim.uid == made_for.uid) {
            return Ok(());
        }
        let id = VolumeId::new(&leaf.member, &row.place.namespace, &row.place.claim, hash);
        if self.host.uses(&made_for.volume, &id.to_string()).await? {
            return Ok(());
        }
        tracing::info!(
            member = leaf.member, claim = %row.place, host_claim = %made_for.claim,
            "withdraws a leaf claim that never had a volume: its claim in the host is gone, and nobody asks for it any more"
        );
        leaf.remove_consumer(&row.place.namespace, hash).await?;
        if !now.observed().terminating {
            leaf.delete_claim(&now, hash).await?;
        }
        match leaf.rows.row_at(hash, &row.place).claim {
            Some(left) if left.uid == row.uid && left.finalizer.is_some() => leaf.release_claim(&left, hash).await,
            _ => Ok(()),
        }
    }
}

/// It never had a volume. Without our finalizer it is what a tool has made of a leaf.
fn is_empty(row: &ClaimRow) -> bool {
    let claim = row.observed();
    claim.phase == Phase::Pending && claim.volume.is_none() && !row.had_volume && row.finalizer.is_some()
}
