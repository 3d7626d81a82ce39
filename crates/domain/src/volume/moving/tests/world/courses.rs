//! What can happen next: the plan's own steps, at once or late, people, and movers.

use super::{End, Host, Leaf, Mark, Moving, NEW, Part, Phase, SeenLeaf, SeenVolume, World, next};

/// Contents that a volume may have.
const CONTENTS: u8 = 2;
/// What is played: all courses of so much are many.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Bounds {
    /// So often movers fail.
    pub(in super::super) failures: u8,
    /// So many claims of a leaf are deleted by somebody.
    pub(in super::super) claims: u8,
    /// One that was undone may be followed by another.
    pub(in super::super) moves: u8,
    /// Somebody uses the source, and writes.
    pub(in super::super) is_used: bool,
    /// A member is gone for good, and the host is told so.
    pub(in super::super) forgets: bool,
}

impl World {
    /// All that can happen next.
    pub(in super::super) fn moves(&self, bounds: Bounds) -> Vec<(String, Self)> {
        let mut moves = Vec::new();
        let mut note = |what: String, after: Self| moves.push((what, after));
        for (source, copy, may_switch) in
            [(true, true, true), (true, true, false), (true, false, true), (false, true, true)]
        {
            let step = next(&self.seen(source, copy, may_switch));
            if matches!(step, Moving::Await(_) | Moving::AwaitMember(_) | Moving::Stuck(..) | Moving::Nothing) {
                continue;
            }
            let mut after = *self;
            after.carry_out(step, &self.decided());
            note(format!("{step:?}"), after);
            if self.late.is_none() {
                note(format!("{step:?} is late"), Self { late: Some((step, self.decided())), ..*self });
            }
        }
        if let Some((step, on)) = self.late {
            let mut after = Self { late: None, ..*self };
            after.carry_out(step, &on);
            note(format!("{step:?} arrives"), after);
        }
        for (which, settled) in ["source", "copy"].into_iter().zip(self.settled()) {
            if let Some(settled) = settled {
                note(format!("the {which} settles"), settled);
            }
        }
        self.people(bounds, &mut note);
        if bounds.forgets {
            self.members_are_forgotten(&mut note);
        }
        self.claims_are_deleted(bounds, &mut note);
        self.movers(bounds, &mut note);
        moves
    }

    fn people(&self, bounds: Bounds, note: &mut impl FnMut(String, Self)) {
        let mut with_source = |what: &str, change: fn(&mut Leaf)| {
            let mut source = self.source;
            change(&mut source);
            note(what.to_owned(), Self { source, ..*self });
        };
        if bounds.is_used && self.source.seen.home && !self.source.seen.used {
            with_source("a pod of the member uses the source", |source| source.seen.used = true);
        }
        if bounds.is_used
            && self.source.seen.home
            && self.source.seen.mark == Mark::None
            && !self.source.attached
            && self.host == Host::Former
        {
            with_source("the source is published on a real node", |source| source.attached = true);
        }
        if self.source.attached {
            with_source("it is unpublished", |source| source.attached = false);
            with_source("the node writes", |source| source.content = (source.content + 1) % CONTENTS);
        }
        if self.source.seen.used {
            with_source("nobody uses the source", |source| source.seen.used = false);
            with_source("the source is written", |source| source.content = (source.content + 1) % CONTENTS);
        }
        if self.number < bounds.moves
            && self.phase == Phase::Cancelled
            && self.claimed
            && next(&self.seen(true, true, true)) == Moving::Nothing
        {
            let mut again = Self { number: 2, phase: Phase::Preparing, called_off: false, verified: false, ..*self };
            again.source.change_volume(|volume| volume.returned = false);
            note("another move begins".to_owned(), again);
        }
        if !self.called_off && self.phase < Phase::Switching {
            note("it is called off".to_owned(), Self { called_off: true, ..*self });
        }
        if self.claimed {
            note("the claim is deleted".to_owned(), Self { claimed: false, ..*self });
        }
    }

    /// Where the move waits for them no more than to clear away, or has all that the source holds.
    fn members_are_forgotten(&self, note: &mut impl FnMut(String, Self)) {
        let is_switched = matches!(self.phase, Phase::Switching | Phase::Finishing | Phase::Succeeded);
        let is_undoing = matches!(self.phase, Phase::Cancelling | Phase::Cancelled);
        if !self.source_is_forgotten && self.came_back != Some(Part::Source) && (is_switched || self.verified) {
            note("the source's member is forgotten".to_owned(), Self { source_is_forgotten: true, ..*self });
        }
        if self.came_back.is_none() {
            self.members_are_there_again(note);
        }
        let is_awaited = is_switched && self.phase != Phase::Switching || is_undoing;
        if !self.copy_is_forgotten && self.came_back != Some(Part::Copy) && is_awaited {
            note("the copy's member is forgotten".to_owned(), Self { copy_is_forgotten: true, ..*self });
        }
    }

    /// As they were, with nothing, or as a backup has them. Another cluster under the name of one counts as one that is forgotten.
    fn members_are_there_again(&self, note: &mut impl FnMut(String, Self)) {
        let recreated = |leaf: &Leaf, seen: SeenLeaf, content: u8| {
            let keyless = leaf.keyless && seen.end != End::None;
            Leaf { seen, keyless, claim: leaf.claim + 1, version: leaf.version + 1, content, ..*leaf }
        };
        if self.source_is_forgotten {
            let again = Self { source_is_forgotten: false, came_back: Some(Part::Source), ..*self };
            note("the source's member is there again, as it was".to_owned(), again);
            let again = Self { is_another: true, ..again };
            let source = recreated(&self.source, SeenLeaf::default(), self.source.content);
            note("the source's member is there again, with nothing".to_owned(), Self { source, ..again });
            let before = SeenLeaf { home: true, volume: Some(NEW), ..SeenLeaf::default() };
            let source = recreated(&self.source, before, (self.source.content + 1) % CONTENTS);
            note("the source's member is there again, as it was before".to_owned(), Self { source, ..again });
            if let Some(volume) = self.source.seen.volume.filter(|volume| volume.lent) {
                let remade = SeenLeaf { volume: Some(SeenVolume { remade: true, ..volume }), ..self.source.seen };
                let source = recreated(&self.source, remade, (self.source.content + 1) % CONTENTS);
                note("the source's member is there again, with another volume".to_owned(), Self { source, ..again });
            }
        }
        if self.copy_is_forgotten {
            let again = Self { copy_is_forgotten: false, came_back: Some(Part::Copy), ..*self };
            note("the copy's member is there again, as it was".to_owned(), again);
            let copy = recreated(&self.copy, SeenLeaf::default(), 0);
            let nothing = Self { copy, is_another: true, ..again };
            note("the copy's member is there again, with nothing".to_owned(), nothing);
        }
    }

    /// It goes at once, or once the mover has gone that keeps it.
    fn claims_are_deleted(&self, bounds: Bounds, note: &mut impl FnMut(String, Self)) {
        let changed = |leaf: &Leaf, change: fn(&mut Leaf)| {
            let mut leaf = *leaf;
            change(&mut leaf);
            leaf
        };
        let is_kept = |leaf: &Leaf| leaf.claim < bounds.claims && leaf.keeps_claim() && !leaf.seen.leaving;
        let is_free = |leaf: &Leaf| leaf.claim < bounds.claims && !leaf.mounts();
        let (source, copy) = (&self.source, &self.copy);
        if is_free(source) && (source.seen.home || source.seen.yard) && !source.seen.used {
            let source = changed(source, Leaf::lose_claim);
            note("somebody deletes the source's claim".to_owned(), Self { source, ..*self });
        }
        if is_kept(source) {
            let source = changed(source, |source| source.seen.leaving = true);
            note("somebody deletes the source's claim, which a mover keeps".to_owned(), Self { source, ..*self });
        }
        if is_free(copy) && (copy.seen.home || copy.seen.yard && copy.seen.volume.is_some_and(|volume| volume.moving)) {
            let copy = changed(copy, Leaf::lose_claim);
            note("somebody deletes the copy's claim".to_owned(), Self { copy, ..*self });
        }
        if is_kept(copy) {
            let copy = changed(copy, |copy| copy.seen.leaving = true);
            note("somebody deletes the copy's claim, which a mover keeps".to_owned(), Self { copy, ..*self });
        }
    }

    fn with_ends(&self, source: End, copy: End) -> Self {
        let mut after = *self;
        (after.source.seen.end, after.copy.seen.end) = (source, copy);
        after
    }

    pub(super) fn movers(&self, bounds: Bounds, note: &mut impl FnMut(String, Self)) {
        let (source, copy) = (self.source.seen.end, self.copy.seen.end);
        let can_begin = |leaf: &Leaf| leaf.seen.yard && !leaf.seen.leaving && !leaf.keyless;
        if source == End::Starting && can_begin(&self.source) {
            note("the sender is ready".to_owned(), self.with_ends(End::Ready, copy));
        }
        if copy == End::Starting && can_begin(&self.copy) {
            let mut after = self.with_ends(source, End::Ready);
            after.copy.seen.volume = Some(after.copy.seen.volume.unwrap_or(NEW));
            note("the receiver is ready".to_owned(), after);
        }
        if self.source.mounts() && self.copy.mounts() {
            let digest = self.source.content;
            let ended = |source: End, copy: End, content: u8| {
                let mut after = self.with_ends(source, copy);
                after.copy.content = content;
                after
            };
            note("both ends are done".to_owned(), ended(End::Copied(digest), End::Copied(digest), digest));
            if self.source.attempt > bounds.failures {
                return;
            }
            note("the sender dies".to_owned(), ended(End::Failed, End::Copied(digest), digest));
            note("the receiver lies".to_owned(), ended(End::Copied(digest), End::Copied(9), 9));
            note("the receiver fails".to_owned(), ended(source, End::Failed, 9));
        }
    }
}
