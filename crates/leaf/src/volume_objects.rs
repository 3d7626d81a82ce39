//! Everything that carries the labels of one volume, and which of two tidings of it is to be believed. Pure.

use smallvec::SmallVec;

use super::{
    compact::{CompactClaim, CompactVolume},
    limits::Extent,
    row::{ClaimRow, Consumer, Mark, Row, VolumeRow},
};
use domain::{
    compact_text::{CompactText, Interner},
    volume::{
        LeafPlace, VolumeHash, VolumeId,
        moving::Part,
        plan::{ObservedClaim, Phase},
    },
};

/// The leaf, and the copies that people and backup tools make of it, labels and all. The place tells them apart; without
/// one, the oldest that we hold is the leaf. One of each is the rule, so one of each has its place here.
#[derive(Debug, Default)]
pub(super) struct VolumeObjects {
    claims: SmallVec<[CompactClaim; 1]>,
    volumes: SmallVec<[CompactVolume; 1]>,
    pub(super) consumer: Consumer,
}

/// The volumes of one member, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeCounts {
    pub pending: u64,
    pub bound: u64,
    pub lost: u64,
    pub terminating: u64,
    /// Leaf volumes that outlive their claim.
    pub released: u64,
    /// When the oldest of those that are not done began, in seconds.
    pub oldest_creation: Option<i64>,
    pub oldest_deletion: Option<i64>,
}

impl VolumeObjects {
    pub(super) fn row(&self) -> Row {
        self.row_of(None)
    }

    pub(super) fn row_at(&self, place: &LeafPlace) -> Row {
        self.row_of(Some(place))
    }

    /// A look that costs less than a row: the claim is there, and nothing is to be told of it.
    pub(super) fn is_well(&self) -> bool {
        !self.claims.is_empty() && self.claims.iter().all(CompactClaim::is_well)
    }

    pub(super) fn is_on(&self, node: &str) -> bool {
        self.claims.iter().any(|claim| claim.is_on(node))
    }

    fn row_of(&self, wanted: Option<&LeafPlace>) -> Row {
        let (claim, volume) = self.found(wanted);
        Row {
            claim: claim.map(CompactClaim::row),
            volume: volume.map(CompactVolume::row),
            consumer: self.consumer.clone(),
        }
    }

    pub(super) fn observed_claim(&self, place: &LeafPlace) -> Option<ObservedClaim> {
        self.found(Some(place)).0.map(CompactClaim::observed)
    }

    pub(super) fn volume(&self) -> Option<VolumeRow> {
        self.found(None).1.map(CompactVolume::row)
    }

    pub(super) fn has_leaf(&self) -> bool {
        let is_copy_of_a_move = |claim: &CompactClaim| claim.moving().is_some_and(|mark| mark.part == Part::Copy);
        self.found(None).0.is_some_and(|claim| !is_copy_of_a_move(claim))
    }

    /// The claim that is meant, and the volume that belongs to it.
    fn found(&self, wanted: Option<&LeafPlace>) -> (Option<&CompactClaim>, Option<&CompactVolume>) {
        let is_there = |claim: &CompactClaim| wanted.is_some_and(|place| claim.place.is(place));
        let is_known = |claim: &CompactClaim| wanted.is_none_or(|place| claim.is_known_at(place));
        let claims = self.claims.iter().filter(|claim| is_there(claim) || is_known(claim) && !self.is_copy(claim));
        // One that is elsewhere than its handle says, or that a move has, is proved by its volume. Others may be copies.
        let moved = self.claims.iter().any(|claim| claim.alias().is_some() || claim.moving().is_some());
        let claim = claims.min_by_key(|claim| {
            (!self.is_ours(claim), moved && self.volume_of(claim).is_none(), claim.created, &claim.uid)
        });
        let belongs = |volume: &&CompactVolume| match claim {
            Some(claim) => claim.is_bound_to(volume),
            None => wanted.is_none_or(|place| volume.is_known_at(place)),
        };
        let volume = self.volumes.iter().filter(belongs);
        let volume = volume.min_by_key(|volume| (self.has_claim(volume), volume.created, &volume.uid));
        (claim, volume)
    }

    pub(super) fn extent(&self) -> Extent {
        let leaves = self.claims.len().max(self.volumes.len());
        let claims: usize = self.claims.iter().map(CompactClaim::length).sum();
        let volumes: usize = self.volumes.iter().map(CompactVolume::length).sum();
        Extent { leaves, texts: claims + volumes, copies: leaves }
    }

    /// Tools that restore claims leave our finalizer out. Where the claim of a volume has gone, that one was the leaf.
    fn is_copy(&self, claim: &CompactClaim) -> bool {
        !self.is_ours(claim) && self.volumes.iter().any(|volume| !self.has_claim(volume))
    }

    /// We hold it, or have let it go, and its volume keeps what it was.
    fn is_ours(&self, claim: &CompactClaim) -> bool {
        claim.is_held() || self.volume_of(claim).is_some_and(CompactVolume::keeps_its_claim)
    }

    fn volume_of(&self, claim: &CompactClaim) -> Option<&CompactVolume> {
        self.volumes.iter().find(|volume| claim.is_bound_to(volume))
    }

    fn has_claim(&self, volume: &CompactVolume) -> bool {
        self.claims.iter().any(|claim| claim.is_bound_to(volume))
    }

    /// Recreated for a volume that is bound to another claim: they came late, and wait in vain.
    pub(super) fn superseded(&self) -> impl Iterator<Item = ClaimRow> {
        let has_another = move |claim: &&CompactClaim| {
            let mut named = self.volumes.iter().filter(|volume| claim.volume.as_ref() == Some(&volume.name));
            named.any(|volume| self.claims.iter().any(|other| other.phase == Phase::Bound && other.is_bound_to(volume)))
        };
        let waiting = self.claims.iter().filter(|claim| claim.phase == Phase::Pending && claim.is_held());
        waiting.filter(has_another).map(CompactClaim::row).filter(|row| !row.former.is_empty() && row.moving.is_none())
    }

    /// Recreated for a volume, and without it, whatever else there is.
    pub(super) fn recreated(&self) -> impl Iterator<Item = ClaimRow> {
        let waiting = self.claims.iter().filter(|claim| claim.phase == Phase::Pending && claim.is_held());
        waiting.map(CompactClaim::row).filter(ClaimRow::waits_as_recreated)
    }

    /// Those that are there without their claims, with their data: no move has them, nor people of the member, unless they keep what a
    /// claim of ours was.
    pub(super) fn left(&self) -> impl Iterator<Item = VolumeRow> {
        let left = self.volumes.iter().filter(move |volume| !self.has_claim(volume)).map(CompactVolume::row);
        left.filter(|row| row.retained && row.place.is_none() && (row.healing || !row.by_hand))
    }

    pub(super) fn volumes(&self) -> Vec<VolumeRow> {
        self.volumes.iter().map(CompactVolume::row).collect()
    }

    /// Of its largest claim, in bytes; 0 before it is bound.
    pub(super) fn capacity(&self) -> u64 {
        self.claims.iter().map(|claim| claim.capacity).max().unwrap_or_default()
    }

    /// Bound, or waiting without a word for whom, or recreated in the place of another: of such a one nobody can tell whether it
    /// was forgotten.
    pub(super) fn is_lasting(&self) -> bool {
        let is_left = |claim: &CompactClaim| claim.made_for.is_none() || !claim.row().former.is_empty();
        let is_lasting = |claim: &CompactClaim| claim.phase == Phase::Bound || is_left(claim);
        // On its way out, and held by us, it goes nowhere by itself.
        let goes = |claim: &CompactClaim| claim.terminating && claim.row().finalizer.is_none();
        self.claims.iter().any(|claim| is_lasting(claim) && !goes(claim))
    }

    /// The host was never told of it, though it has a volume: that is not labelled, or was labelled to be removed.
    pub(super) fn is_untold(&self) -> bool {
        let is_bound = |claim: &CompactClaim| claim.phase == Phase::Bound && !claim.terminating;
        self.claims.iter().any(|claim| is_bound(claim) && self.volume_of(claim).is_none())
            || self.claims.iter().any(|claim| claim.mark == Mark::Withdrawn)
    }

    pub(super) fn is_chosen(&self) -> bool {
        self.claims.iter().any(|claim| claim.chosen)
    }

    /// Of several claims the leaf counts, and the others are copies.
    pub(super) fn waiting(&self) -> Option<&CompactClaim> {
        self.found(None).0.filter(|claim| claim.phase == Phase::Pending && !claim.terminating)
    }

    pub(super) fn is_pending(&self) -> bool {
        self.claims.iter().any(|claim| claim.phase == Phase::Pending && !claim.terminating)
    }

    /// The handles that lead to it: one, but for copies.
    pub(super) fn ids(&self, member: &str, hash: VolumeHash) -> Vec<VolumeId> {
        let claims = self.claims.iter().map(|claim| claim.row().id(member, hash));
        let volumes = self.volumes.iter().map(|volume| volume.row().id(member, hash));
        let mut ids: Vec<VolumeId> = claims.chain(volumes).collect();
        ids.dedup();
        ids
    }

    /// Its volume is retained because the host's is.
    pub(super) fn follows(&self) -> bool {
        self.volumes.iter().any(CompactVolume::follows)
    }

    /// How many objects there are, and something that changes when one of them does.
    pub(super) fn versions(&self) -> (usize, u64) {
        let claims = self.claims.iter().map(|claim| claim.version);
        let volumes = self.volumes.iter().map(|volume| volume.version);
        (self.claims.len() + self.volumes.len(), claims.chain(volumes).fold(0, u64::wrapping_add))
    }

    /// A move has it.
    pub(super) fn is_moving(&self) -> bool {
        self.claims.iter().any(|claim| claim.moving().is_some())
            || self.volumes.iter().any(|volume| volume.place_told().is_some())
    }

    /// How many claims it has, where each is bound and nothing else is there: that is all there is to count of it.
    pub(super) fn settled(&self) -> Option<u64> {
        let is_bound = |claim: &CompactClaim| claim.phase == Phase::Bound && !claim.terminating;
        let is_it = !self.claims.is_empty() && self.claims.iter().all(is_bound);
        (is_it && self.volumes.iter().all(|volume| self.has_claim(volume))).then_some(self.claims.len() as u64)
    }

    /// Every claim counts, copies too: a person has to see them.
    pub(super) fn count(&self, counts: &mut VolumeCounts) {
        for claim in &self.claims {
            let begun = |oldest: &mut Option<i64>, at: i64| *oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
            if claim.terminating {
                counts.terminating += 1;
                begun(&mut counts.oldest_deletion, claim.deleted);
                continue;
            }
            match claim.phase {
                Phase::Bound => counts.bound += 1,
                Phase::Lost => counts.lost += 1,
                Phase::Pending => {
                    counts.pending += 1;
                    begun(&mut counts.oldest_creation, claim.created);
                }
            }
        }
        counts.released += u64::from(self.claims.is_empty() && !self.volumes.is_empty());
    }

    pub(super) fn put_claim(&mut self, new: &ClaimRow, names: &mut Interner) {
        let kept = CompactClaim::keep(new, names);
        match self.claims.iter_mut().find(|known| known.place.is(&new.place)) {
            Some(known) if is_newer(new.version, new.round, known.version, known.round) => *known = kept,
            // News from before what is known; that it was listed counts all the same.
            Some(known) if known.uid == kept.uid => known.round = new.round,
            Some(_) => {}
            None => {
                if let Some(known) = self.claims.first() {
                    let places = format!("{} and {}", known.row().place, new.place);
                    tracing::warn!(places, "two claims carry the labels of one volume");
                }
                self.claims.push(kept);
            }
        }
    }

    pub(super) fn put_volume(&mut self, new: &VolumeRow, names: &mut Interner) {
        let kept = CompactVolume::keep(new, names);
        match self.volumes.iter_mut().find(|known| known.name == kept.name) {
            Some(known) if is_newer(new.version, new.round, known.version, known.round) => *known = kept,
            Some(known) if known.uid == kept.uid => known.round = new.round,
            Some(_) => {}
            None => self.volumes.push(kept),
        }
    }

    pub(super) fn drop_claim(&mut self, uid: &str) {
        let uid = CompactText::from(uid);
        self.claims.retain(|claim| claim.uid != uid);
    }

    pub(super) fn drop_volume(&mut self, uid: &str) {
        let uid = CompactText::from(uid);
        self.volumes.retain(|volume| volume.uid != uid);
    }

    /// Forgets the claims that a list has not named.
    pub(super) fn keep_claims(&mut self, round: u32) {
        self.claims.retain(|claim| claim.round == round);
    }

    pub(super) fn keep_volumes(&mut self, round: u32) {
        self.volumes.retain(|volume| volume.round == round);
    }

    /// Somebody deletes the leaf, or has, or it is being recreated.
    pub(super) fn needs_repair(&self) -> bool {
        let left_alone = self.claims.is_empty() && self.volumes.iter().any(CompactVolume::is_kept);
        left_alone
            || self.claims.iter().any(CompactClaim::needs_repair)
            || self.volumes.iter().any(CompactVolume::needs_repair)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.volumes.is_empty() && !matches!(self.consumer, Consumer::Made(_))
    }
}

/// Within one list and what follows it, the higher version is newer. A new list is always: a member restored from a
/// backup begins with lower versions again.
fn is_newer(version: u64, round: u32, known_version: u64, known_round: u32) -> bool {
    version >= known_version || round != known_round
}
