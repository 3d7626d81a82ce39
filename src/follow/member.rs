//! The background work on one member, a little at a time: leaves that a host volume was made for are marked, those that
//! somebody deleted are brought back, and those that are gone are told of.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    Follower,
    heal::{Case, LOST, pause},
};
use crate::{
    error::Result,
    host::events::News,
    leaf::Cluster,
    member::Member,
    volume::{VolumeHash, VolumeId},
};

const TICK: Duration = Duration::from_secs(1);
/// A mark is no hurry, and a volume that is used for seconds needs none.
const LAZY: Duration = Duration::from_secs(3);
/// What a tick costs at most.
const MARKS: usize = 10;
const LOOKS: usize = 200;
/// A leaf that is not seen for so long is looked for; and again, after so long.
const MISSED: Duration = Duration::from_mins(1);
const AGAIN: Duration = Duration::from_mins(10);

/// What is remembered from one tick to the next; losing it costs time and nothing else.
#[derive(Default)]
struct Agenda {
    /// Handles to mark, and when.
    marks: BTreeMap<Box<str>, Instant>,
    /// Handles without a leaf, and when to look for it.
    missed: HashMap<Box<str>, Instant>,
    /// The handle that was last gone by.
    at: Option<Box<str>>,
    /// Leaves that are not well: how often they were looked at, and when to do so again.
    ill: HashMap<VolumeHash, (u32, Instant)>,
}

impl Follower {
    /// Works until it is dropped.
    pub(super) async fn follow(&self, member: &Member) {
        let mut agenda = Agenda::default();
        loop {
            sleep(TICK).await;
            if !self.volumes.synced() {
                continue;
            }
            let Ok(leaf) = member.leaf() else { continue };
            self.look(leaf, &mut agenda);
            self.mark(member, &mut agenda).await;
            self.heal_all(member, &mut agenda).await;
            self.tell_of_missed(member, &mut agenda).await;
        }
    }

    /// Goes by some of the host's volumes, in memory: those of which there was news, and the next ones in turn.
    fn look(&self, leaf: &Cluster, agenda: &mut Agenda) {
        let next = self.volumes.next_in(&leaf.member, agenda.at.as_deref(), LOOKS);
        agenda.at = next.last().cloned().filter(|_| next.len() >= LOOKS);
        let now = Instant::now();
        for handle in self.volumes.take_news(&leaf.member).into_iter().chain(next) {
            let Some(id) = VolumeId::parse(&handle) else { continue };
            let claim = leaf.rows.find(&id).and_then(|(_, row)| row.claim);
            match claim {
                Some(claim) if claim.is_lost() => drop(agenda.missed.entry(handle).or_insert(now + MISSED)),
                Some(claim) if !claim.had_volume => drop(agenda.marks.entry(handle).or_insert(now + LAZY)),
                Some(_) => drop(agenda.missed.remove(&handle)),
                None => drop(agenda.missed.entry(handle).or_insert(now + MISSED)),
            }
        }
    }

    async fn mark(&self, member: &Member, agenda: &mut Agenda) {
        let now = Instant::now();
        let due = agenda.marks.iter().filter(|(_, due)| **due <= now).map(|(handle, _)| handle.clone());
        for handle in due.take(MARKS).collect::<Vec<_>>() {
            agenda.marks.remove(&handle);
            if let Err(error) = self.mark_one(member, &handle).await {
                tracing::debug!(%handle, %error, "a leaf is not marked yet");
                agenda.marks.insert(handle, now + MISSED);
            }
        }
    }

    async fn mark_one(&self, member: &Member, handle: &str) -> Result<()> {
        let leaf = member.leaf()?;
        let volumes = self.volumes.with(handle);
        let Some(volume) = volumes.iter().find(|volume| !volume.is_leaving()) else { return Ok(()) };
        let Some((hash, row)) = VolumeId::parse(handle).and_then(|id| leaf.rows.find(&id)) else { return Ok(()) };
        match row.claim.filter(|claim| !claim.had_volume && !claim.observed().terminating) {
            Some(claim) => leaf.mark_used(&claim, &volume.uid, hash).await,
            None => Ok(()),
        }
    }

    async fn heal_all(&self, member: &Member, agenda: &mut Agenda) {
        let Ok(leaf) = member.leaf() else { return };
        let ill: HashSet<VolumeHash> = leaf.rows.unwell().into_iter().collect();
        agenda.ill.retain(|hash, _| ill.contains(hash));
        for hash in ill {
            let now = Instant::now();
            // Not at the first sight: the host's own removals pass quickly.
            let (looks, due) = *agenda.ill.entry(hash).or_insert((0, now + TICK));
            let Some(case) = Case::new(leaf, hash).filter(|_| due <= now) else { continue };
            if let Err(error) = self.heal(&case).await {
                tracing::debug!(member = leaf.member, %error, "a leaf is not healed yet");
            }
            agenda.ill.insert(hash, (looks + 1, Instant::now() + pause(looks + 1)));
        }
    }

    async fn tell_of_missed(&self, member: &Member, agenda: &mut Agenda) {
        let now = Instant::now();
        let due: Vec<_> =
            agenda.missed.iter().filter(|(_, due)| **due <= now).map(|(handle, _)| handle.clone()).collect();
        for handle in due {
            match self.look_for(member, &handle).await {
                Ok(false) => drop(agenda.missed.remove(&handle)),
                Ok(true) | Err(_) => drop(agenda.missed.insert(handle, Instant::now() + AGAIN)),
            }
        }
    }

    /// Whether a handle is to be looked at again. What is told of it was read just now in both clusters.
    async fn look_for(&self, member: &Member, handle: &str) -> Result<bool> {
        let leaf = member.leaf()?;
        let volumes = self.volumes.with(handle);
        let (Some(place), [volume]) = (VolumeId::parse(handle).and_then(|id| id.place()), volumes.as_slice()) else {
            return Ok(false);
        };
        let live = self.host.read_volume(&volume.name).await?;
        let Some((volume, _)) = live.filter(|(live, _)| *live.handle == *handle && !live.is_leaving()) else {
            return Ok(false);
        };
        if leaf.is_well(&place).await? {
            return Ok(true);
        }
        let message = format!("member {}: leaf claim {place} {LOST}", leaf.member);
        self.host.tell(&volume, &News { reason: "LeafLost", message, warning: true }).await;
        Ok(true)
    }
}
