//! The host, both members, and a move between them, small enough for all of its courses.

mod alike;
mod courses;
mod promises;

pub(super) use alike::essence;
pub(super) use courses::Bounds;

use super::super::{End, Mark, Moving, Part, Phase, Seen, SeenLeaf, SeenVolume, next};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is something of its own")]
pub(super) struct World {
    /// Which one it is: one that was undone may be followed by another.
    number: u8,
    phase: Phase,
    verified: bool,
    called_off: bool,
    host: Host,
    /// The host's claim is there.
    claimed: bool,
    source: Leaf,
    copy: Leaf,
    /// The host was told that its member is gone for good.
    source_is_forgotten: bool,
    copy_is_forgotten: bool,
    /// The one whose member was not gone for good.
    came_back: Option<Part>,
    /// What that has is not what it had: nothing, or what it had before.
    is_another: bool,
    /// A write whose sender has given up, and what it was decided on.
    late: Option<(Moving, Decided)>,
}

/// The host's volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Host {
    Former,
    None,
    New,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Leaf {
    seen: SeenLeaf,
    /// The claim's UID, the volume's version, the mover's attempt.
    claim: u8,
    version: u8,
    attempt: u8,
    /// Its mover's pod came when its keys were gone: it never begins.
    keyless: bool,
    /// A real node has it: no pod in the member says so, but the record on the claim alone.
    attached: bool,
    content: u8,
}

/// What a write tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Decided {
    step_of: (u8, Phase, bool, bool),
    source: Leaf,
    copy: Leaf,
    switched: bool,
}

const NEW: SeenVolume = SeenVolume {
    retained: false,
    lent: false,
    moving: false,
    moved: false,
    returned: false,
    pinned: false,
    remade: false,
    leaving: false,
};

impl Default for World {
    fn default() -> Self {
        let seen = SeenLeaf { home: true, volume: Some(NEW), ..SeenLeaf::default() };
        Self {
            number: 1,
            phase: Phase::Preparing,
            verified: false,
            called_off: false,
            host: Host::Former,
            claimed: true,
            source: Leaf { seen, ..Leaf::default() },
            copy: Leaf::default(),
            source_is_forgotten: false,
            copy_is_forgotten: false,
            came_back: None,
            is_another: false,
            late: None,
        }
    }
}

impl Leaf {
    fn change_volume(&mut self, change: impl FnOnce(&mut SeenVolume)) {
        if let Some(volume) = &mut self.seen.volume {
            let before = *volume;
            change(volume);
            if *volume != before {
                self.version += 1;
            }
        }
    }

    fn shown(&self) -> SeenLeaf {
        let end = if self.keyless { End::Failed } else { self.seen.end };
        let whole = (self.seen.home || self.seen.yard) && !self.seen.leaving;
        SeenLeaf { end, whole, used: self.seen.used || self.attached, ..self.seen }
    }

    fn mounts(&self) -> bool {
        self.seen.yard && self.seen.end == End::Ready
    }

    /// A claim that is being deleted goes once no pod has it.
    fn keeps_claim(&self) -> bool {
        self.seen.yard && self.seen.end != End::None
    }

    fn lose_claim(&mut self) {
        (self.seen.home, self.seen.yard, self.seen.leaving) = (false, false, false);
    }

    fn start_end(&mut self, on: &Self) {
        if self.seen.end == End::None {
            (self.seen.end, self.keyless) = (End::Starting, self.attempt != on.attempt);
            self.attempt += u8::from(!self.keyless);
        }
    }

    fn remove_end(&mut self, on: &Self) {
        if (self.attempt, self.keyless) == (on.attempt, on.keyless) && on.seen.end != End::None {
            (self.seen.end, self.keyless) = (End::None, false);
        }
    }

    fn make_claim(&mut self, home: bool) {
        (self.seen.home, self.seen.yard, self.seen.leaving) = (home, !home, false);
        self.claim += 1;
    }

    /// What the driver does anyway: the claim goes where its volume says that it belongs, once nobody has it. A copy's stays in
    /// the yard until its volume says something.
    fn settles(&self, is_copy: bool) -> Option<Self> {
        let volume = self.seen.volume?;
        let mut after = *self;
        if self.seen.leaving {
            // That of a copy without anything in it is let go by the move.
            after.lose_claim();
            return (!self.keeps_claim() && (volume.moving || !is_copy)).then_some(after);
        }
        let is_free = !self.seen.used && (!self.attached || self.seen.mark == Mark::Isolated);
        match (self.seen.home, self.seen.yard) {
            (true, false) if volume.lent && volume.retained && is_free => after.make_claim(false),
            (false, false) if !volume.moved && (volume.moving || !is_copy) => after.make_claim(!volume.lent),
            (false, true) if !volume.lent && !volume.moved && !self.mounts() && (volume.moving || !is_copy) => {
                after.make_claim(true);
            }
            _ => return None,
        }
        Some(after)
    }
}

impl World {
    fn seen(&self, source: bool, copy: bool, may_switch: bool) -> Seen {
        Seen {
            phase: self.phase,
            called_off: self.called_off || !self.claimed,
            may_switch,
            verified: self.verified,
            switched: self.host == Host::New,
            source: (source && !self.source_is_forgotten).then_some(self.source.shown()),
            copy: (copy && !self.copy_is_forgotten).then_some(self.copy.shown()),
            source_forgotten: self.source_is_forgotten,
            copy_forgotten: self.copy_is_forgotten,
        }
    }

    fn has_another(&self, part: Part) -> bool {
        self.is_another && self.came_back == Some(part)
    }

    /// What the driver does anyway with a leaf whose member it knows.
    fn settled(&self) -> [Option<Self>; 2] {
        let source = self.source.settles(false).filter(|_| !self.source_is_forgotten);
        let copy = self.copy.settles(self.host != Host::New).filter(|_| !self.copy_is_forgotten);
        [source.map(|source| Self { source, ..*self }), copy.map(|copy| Self { copy, ..*self })]
    }

    fn decided(&self) -> Decided {
        let step_of = (self.number, self.phase, self.called_off, self.verified);
        Decided { step_of, source: self.source, copy: self.copy, switched: self.host == Host::New }
    }

    /// Carried out, where what it tests is still so.
    fn carry_out(&mut self, step: Moving, on: &Decided) {
        let same_move = on.step_of == (self.number, self.phase, self.called_off, self.verified);
        match step {
            Moving::Enter(phase) if same_move => self.phase = phase,
            Moving::NoteVerified if same_move => self.verified = true,
            Moving::Replace => self.host = if self.host == Host::Former { Host::None } else { Host::New },
            Moving::RemoveEnds => {
                self.source.remove_end(&on.source);
                self.copy.remove_end(&on.copy);
            }
            _ => {
                self.change_source(step, on);
                self.change_copy(step, on);
            }
        }
    }

    fn change_source(&mut self, step: Moving, on: &Decided) {
        let source = &mut self.source;
        let (same_claim, same_volume) = (source.claim == on.source.claim, source.version == on.source.version);
        let unchanged = *source == on.source;
        match step {
            Moving::StartSender => source.start_end(&on.source),
            Moving::CloseSource if unchanged => source.seen.mark = Mark::Closed,
            Moving::IsolateSource if unchanged => source.seen.mark = Mark::Isolated,
            Moving::LendSource if same_claim && same_volume => {
                source.change_volume(|volume| (volume.retained, volume.lent) = (true, true));
            }
            Moving::RetireSource if on.switched => source.change_volume(|volume| volume.moved = true),
            Moving::RemoveYardClaim if same_claim => (source.seen.yard, source.seen.leaving) = (false, false),
            Moving::ReturnSource if same_volume => {
                source.change_volume(|volume| (volume.lent, volume.returned) = (false, true));
            }
            Moving::OpenSource if unchanged && source.seen.mark != Mark::None => source.seen.mark = Mark::None,
            Moving::OpenSource if same_volume && on.source.seen.mark == Mark::None => {
                source.change_volume(|volume| (volume.retained, volume.returned) = (false, false));
            }
            _ => {}
        }
    }

    fn change_copy(&mut self, step: Moving, on: &Decided) {
        let copy = &mut self.copy;
        let same_claim = copy.claim == on.copy.claim;
        match step {
            Moving::MakeCopy if !copy.seen.yard => {
                copy.seen.yard = true;
                copy.claim += 1;
            }
            Moving::StartReceiver => copy.start_end(&on.copy),
            Moving::KeepCopy if same_claim => {
                copy.change_volume(|volume| (volume.retained, volume.lent, volume.moving) = (true, true, true));
            }
            Moving::PlaceCopy if same_claim => copy.change_volume(|volume| volume.lent = false),
            Moving::ReleaseCopy if on.switched => {
                copy.change_volume(|volume| (volume.moving, volume.retained) = (false, false));
            }
            Moving::RemoveCopy if same_claim => {
                copy.lose_claim();
                copy.seen.volume = None;
                copy.version += 1;
            }
            _ => {}
        }
    }
}
