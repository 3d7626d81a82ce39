//! Leaves that say that a move has them, which is not in the host any more: somebody has removed it by force, or has written that
//! himself. Where the host's volume leads says what becomes of them.

use std::collections::BTreeSet;

use tokio::time::sleep;

use super::{Movers, ROUND, is_over};
use domain::{
    error::Result,
    volume::{
        LeafPlace, VolumeHash, VolumeId,
        moving::{MoveMark, Moving, Part, YARD, forgotten},
    },
};
use host::{
    moves::{self, VolumeMove},
    volume::LiveVolume,
};
use leaf::{
    MemberClient,
    moving::{self as writes, Sight, ends},
    row::Row,
    saved::Saved,
};

/// More than are taken one after the other.
const STEPS: usize = 8;

/// A leaf, and where its claim is now.
struct Forgotten<'a> {
    leaf: &'a MemberClient,
    hash: VolumeHash,
    place: LeafPlace,
}

/// Works until it is dropped. What is there at one look and at the next is looked into: a move that has just been made is not in
/// the first list.
pub(super) async fn heal(movers: &Movers) {
    let mut before = BTreeSet::new();
    loop {
        sleep(ROUND).await;
        match all(movers).await {
            Ok(now) => {
                for (member, hash) in now.intersection(&before) {
                    if let Err(error) = Box::pin(end(movers, member, *hash)).await {
                        tracing::debug!(member, %hash, %error, "a leaf whose move is gone is not an ordinary one yet");
                    }
                }
                before = now;
            }
            Err(error) => tracing::debug!(%error, "leaves whose move is gone are not looked for"),
        }
    }
}

/// By what is in memory of the members, and by what the host says now.
async fn all(movers: &Movers) -> Result<BTreeSet<(String, VolumeHash)>> {
    let members = movers.members.all()?;
    let mut moving = Vec::new();
    for member in members.values() {
        if let Ok(leaf) = member.leaf() {
            moving.extend(leaf.rows.moving().into_iter().map(|hash| (leaf, hash)));
        }
    }
    if moving.is_empty() {
        return Ok(BTreeSet::new());
    }
    let known = moves::list(&movers.host).await?;
    let has_it = |of: &VolumeMove, leaf: &MemberClient, hash: VolumeHash| {
        let row = leaf.rows.row(hash).and_then(|row| row.claim);
        let is_marked =
            row.is_some_and(|row| row.moving.is_some_and(|mark| Some(&mark.uid) == of.metadata.uid.as_ref()));
        let pinned = of.status.as_ref().and_then(|status| status.volume.as_ref());
        !is_over(of)
            && (is_marked || pinned.is_some_and(|pinned| VolumeHash::new(&movers.host.id, &pinned.name) == hash))
    };
    let gone = moving.into_iter().filter(|(leaf, hash)| !known.iter().any(|of| has_it(of, leaf, *hash)));
    Ok(gone.map(|(leaf, hash)| (leaf.member.clone(), hash)).collect())
}

async fn end(movers: &Movers, member: &str, hash: VolumeHash) -> Result<()> {
    let member = movers.members.get(member).await?;
    let leaf = member.leaf()?;
    for _ in 0..STEPS {
        // One that is being made anew says nothing now.
        let row = leaf.rows.row(hash).filter(Row::is_moving);
        let Some(claim) = row.and_then(|row| row.claim) else { return Ok(()) };
        let forgotten = Forgotten { leaf, hash, place: claim.place.clone() };
        if !forgotten.step(movers).await? {
            return Ok(());
        }
    }
    Ok(())
}

impl Forgotten<'_> {
    /// One look and one write. False: there is nothing to be done now.
    async fn step(&self, movers: &Movers) -> Result<bool> {
        let mut sight = writes::look(self.leaf, self.hash, &self.place).await?;
        sight.home.take_if(|_| self.place.namespace == YARD);
        let Some(claim) = sight.claim() else { return Ok(false) };
        let Some((live, saved)) = self.host_volume(movers, &sight).await? else { return Ok(false) };
        let mark =
            claim.metadata.annotations.as_ref().and_then(|notes| MoveMark::parse(notes.get(leaf::ownership::MOVE)?));
        let Some(leads_here) = self.leads_here(movers, &live).await else { return Ok(false) };
        let is_ours = claim.metadata.finalizers.iter().flatten().any(|name| name == leaf::ownership::FINALIZER);
        // A copy that a backup tool has made of such a claim carries no finalizer of ours.
        let part = match &mark {
            Some(mark) if is_ours => mark.part,
            None if leads_here => Part::Source,
            _ => return Ok(false),
        };
        let home = self.home(&live, &saved)?;
        let (uid, pods) = match &mark {
            Some(mark) => (mark.clone(), ends::movers(self.leaf, &mark.uid).await?),
            None => (MoveMark { namespace: String::new(), name: String::new(), uid: String::new(), part }, Vec::new()),
        };
        let mut seen = sight.seen(&home, &uid);
        seen.end =
            if pods.is_empty() { domain::volume::moving::End::None } else { domain::volume::moving::End::Failed };
        let step = forgotten(part, leads_here, &seen);
        tracing::info!(
            member = self.leaf.member, leaf = %self.place, volume = &*live.volume.name, of = mark.as_ref().map(MoveMark::object), ?step,
            "a leaf says that a move has it which is not in the host any more"
        );
        for pod in pods.iter().filter(|pod| step == Moving::RemoveEnds && !pod.is_leaving) {
            ends::remove(self.leaf, pod).await?;
        }
        self.take(step, &sight, &home, &live).await
    }

    /// The volume that the leaf is of, by the name on it, which its hash proves.
    async fn host_volume(&self, movers: &Movers, sight: &Sight) -> Result<Option<(LiveVolume, Saved)>> {
        let (Some(claim), Some(volume)) = (sight.claim(), &sight.volume) else { return Ok(None) };
        let name = claim.metadata.annotations.as_ref().and_then(|notes| notes.get(leaf::ownership::NAME));
        let Some(name) = name.filter(|name| VolumeHash::new(&movers.host.id, name) == self.hash) else {
            return Ok(None);
        };
        let live = host::volume::read_volume(&movers.host, name).await?;
        Ok(live.map(|live| (live, Saved::of_claim(claim, volume))))
    }

    /// Whether the host's volume leads to this leaf, by any name of the member. None: what it leads to is not seen, and nothing is
    /// taken for one that nobody needs.
    async fn leads_here(&self, movers: &Movers, live: &LiveVolume) -> Option<bool> {
        let id = VolumeId::parse(&live.volume.handle)?;
        let member = movers.members.get(&id.member).await.ok()?;
        let led_to = member.leaf().ok()?;
        let (hash, row) = led_to.rows.find(&id)?;
        row.volume.is_some().then_some(led_to.member == self.leaf.member && hash == self.hash)
    }

    /// Where the pods of the host's claim look for it.
    fn home(&self, live: &LiveVolume, saved: &Saved) -> Result<LeafPlace> {
        let named = VolumeId::parse(&live.volume.handle).and_then(|id| id.place());
        let before =
            if self.place.namespace == YARD { named.unwrap_or_else(|| self.place.clone()) } else { self.place.clone() };
        match &live.claim {
            Some(claim) => saved.place(self.leaf, claim, &before),
            None => Ok(before),
        }
    }

    async fn take(&self, step: Moving, sight: &Sight, home: &LeafPlace, live: &LiveVolume) -> Result<bool> {
        let leaf = self.leaf;
        match (step, &sight.volume) {
            // Where it was, nobody can tell: a person has to.
            (Moving::ReturnSource, Some(_)) if home.namespace == YARD => return Ok(false),
            (Moving::ReturnSource, Some(volume)) => writes::return_source(leaf, volume, home).await?,
            (Moving::OpenSource, _) => writes::open_source(leaf, sight).await?,
            (Moving::ReleaseCopy, _) => writes::release_copy(leaf, sight).await?,
            (Moving::RemoveCopy, _) if writes::is_going(leaf, sight, self.hash) => return Ok(false),
            (Moving::RemoveCopy, _) => writes::remove_copy(leaf, sight, self.hash).await?,
            (Moving::RetireSource, Some(volume)) => {
                writes::retire_source(leaf, volume, self.hash, &live.volume.handle).await?;
            }
            (Moving::RemoveYardClaim, _) => match &sight.yard {
                Some(claim) => writes::remove_yard_claim(leaf, claim, self.hash).await?,
                None => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }
}
