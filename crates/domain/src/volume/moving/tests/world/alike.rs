//! States that go on alike count as one, or there would be too many: of what a late write was decided on only what it tests makes a difference,
//! and of a version only whether it is the one that is tested.

use super::{Bounds, Decided, Leaf, Moving, Phase, SeenLeaf, World};

/// No leaf has come so far.
const ANOTHER: u8 = u8::MAX;

/// A state without what makes no difference to anything that can happen yet.
pub(in super::super) fn essence(mut world: World, bounds: Bounds) -> World {
    let mut tested = world.late.map_or_else(Decided::on_nothing, |(step, on)| on.as_tested_by(step));
    world.source.relate(&mut tested.source, bounds);
    world.copy.relate(&mut tested.copy, bounds);
    world.late = world.late.map(|(step, _)| (step, tested));
    world
}

impl Leaf {
    fn untested() -> Self {
        Self { claim: ANOTHER, version: ANOTHER, attempt: ANOTHER, ..Self::default() }
    }

    /// People delete so many claims, and movers fail so often: beyond that one number is as good as another.
    fn relate(&mut self, tested: &mut Self, bounds: Bounds) {
        let claim = self.claim.min(bounds.claims);
        let attempt = self.attempt.min(bounds.failures + 1);
        for (now, tested, least) in [
            (&mut self.claim, &mut tested.claim, claim),
            (&mut self.version, &mut tested.version, 0),
            (&mut self.attempt, &mut tested.attempt, attempt),
        ] {
            *tested = if now == tested { least } else { ANOTHER };
            *now = least;
        }
    }
}

impl Decided {
    fn on_nothing() -> Self {
        let step_of = (0, Phase::Preparing, false, false);
        Self { step_of, source: Leaf::untested(), copy: Leaf::untested(), switched: false }
    }

    fn as_tested_by(self, step: Moving) -> Self {
        let nothing = Self::on_nothing();
        let claim_of = |leaf: Leaf| Leaf { claim: leaf.claim, ..Leaf::untested() };
        let attempt_of = |leaf: Leaf| Leaf { attempt: leaf.attempt, ..Leaf::untested() };
        let end_of = |leaf: Leaf| {
            let seen = SeenLeaf { end: leaf.seen.end, ..SeenLeaf::default() };
            Leaf { seen, keyless: leaf.keyless, ..attempt_of(leaf) }
        };
        match step {
            Moving::Enter(_) | Moving::NoteVerified => Self { step_of: self.step_of, ..nothing },
            Moving::RetireSource | Moving::ReleaseCopy => Self { switched: self.switched, ..nothing },
            Moving::RemoveEnds => Self { source: end_of(self.source), copy: end_of(self.copy), ..nothing },
            Moving::StartSender => Self { source: attempt_of(self.source), ..nothing },
            Moving::StartReceiver => Self { copy: attempt_of(self.copy), ..nothing },
            Moving::RemoveYardClaim => Self { source: claim_of(self.source), ..nothing },
            Moving::KeepCopy | Moving::PlaceCopy | Moving::RemoveCopy => Self { copy: claim_of(self.copy), ..nothing },
            Moving::LendSource => {
                Self { source: Leaf { version: self.source.version, ..claim_of(self.source) }, ..nothing }
            }
            Moving::ReturnSource => {
                Self { source: Leaf { version: self.source.version, ..Leaf::untested() }, ..nothing }
            }
            Moving::CloseSource | Moving::IsolateSource | Moving::OpenSource => Self { source: self.source, ..nothing },
            Moving::MakeCopy | Moving::Replace => nothing,
            _ => self,
        }
    }
}
