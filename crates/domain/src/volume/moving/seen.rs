//! What a move goes by: what is there, as it was read just now.

use super::{mark::Part, phase::Phase};

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct Seen {
    pub phase: Phase,
    /// Somebody wants it undone, or the host's claim has gone.
    pub called_off: bool,
    pub may_switch: bool,
    /// Both ends have said the same of the copy, and that was written down.
    pub verified: bool,
    /// The host's volume leads to the copy.
    pub switched: bool,
    /// None: its member does not answer.
    pub source: Option<SeenLeaf>,
    pub copy: Option<SeenLeaf>,
    /// The host was told that its member is gone for good, and asks nobody there any more.
    pub source_forgotten: bool,
    pub copy_forgotten: bool,
}

/// One of the two leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct SeenLeaf {
    /// Its claim is where the pods of the host's claim look for it.
    pub home: bool,
    /// Its claim is in the yard.
    pub yard: bool,
    /// The claim is bound to its volume, and nobody recreates it.
    pub whole: bool,
    /// Somebody has deleted its claim in the yard, which is still there.
    pub leaving: bool,
    /// A claim that nobody's leaf is bound to, made late: in the yard for a leaf that is at home or a move that is over, or at home for a source
    /// that is lent.
    pub stray: bool,
    /// Another move has a leaf in the yard.
    pub taken: bool,
    /// Its volume has gone, and nobody gives its claim another one.
    pub lost: bool,
    /// Its volume on record says no more that it is of this move; or none is on record yet, and an ordinary leaf is where its own belongs.
    pub ordinary: bool,
    /// A volume of the host led to it, or a node of the host has it.
    pub had: bool,
    pub mark: Mark,
    /// A node of the host has it, or a pod of the member keeps its claim.
    pub used: bool,
    pub volume: Option<SeenVolume>,
    /// The mover's pod on this side.
    pub end: End,
}

/// What a leaf claim says of the move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mark {
    #[default]
    None,
    /// No further node gets it, and nothing else is done with it.
    Closed,
    /// Nobody has it: its claim may be let go, record and all.
    Isolated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct SeenVolume {
    pub retained: bool,
    /// Its claim belongs into the yard.
    pub lent: bool,
    /// It is the copy's, and no ordinary leaf's.
    pub moving: bool,
    /// It is a source that is kept, and no volume's leaf any more.
    pub moved: bool,
    /// This move has given it back.
    pub returned: bool,
    /// It is the one that the move has on record.
    pub pinned: bool,
    /// Another one than that has its place, as where the member was restored from a backup.
    pub remade: bool,
    /// Somebody has deleted it.
    pub leaving: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum End {
    #[default]
    None,
    Starting,
    /// It waits for the other one, or works.
    Ready,
    /// With this digest.
    Copied(u8),
    /// It has ended otherwise, or cannot begin: its keys have gone, as where it was made late.
    Failed,
}

impl Seen {
    /// Whether nothing but this leaf may hold the data: whoever forgets its member is to know that before.
    pub fn may_be_all(&self, part: Part) -> bool {
        match part {
            Part::Copy => self.verified && !self.source.is_some_and(|source| source.is_as_it_was_left()),
            Part::Source | Part::IsolatedSource => {
                !self.verified || self.copy.is_none_or(|copy| !copy.is_as_it_was_kept())
            }
        }
    }

    /// What is to be done with there: nothing in a member that is forgotten, whatever it holds. None: it does not answer.
    pub(super) fn left_of_source(&self) -> Option<SeenLeaf> {
        self.source.or_else(|| self.source_forgotten.then(SeenLeaf::default))
    }

    pub(super) fn left_of_copy(&self) -> Option<SeenLeaf> {
        self.copy.or_else(|| self.copy_forgotten.then(SeenLeaf::default))
    }
}

impl SeenLeaf {
    pub(super) fn is_lent(&self) -> bool {
        self.volume.is_some_and(|volume| volume.lent)
    }

    /// Of a copy: its claim belongs where pods look for it.
    pub(super) fn is_placed(&self) -> bool {
        self.volume.is_some_and(|volume| volume.moving && !volume.lent)
    }

    pub(super) fn is_gone(&self) -> bool {
        !self.home && !self.yard && self.volume.is_none()
    }

    pub(super) fn is_returned(&self) -> bool {
        self.volume.is_none_or(|volume| volume.returned)
    }

    /// Its volume says where its claim belongs.
    pub(super) fn says_where(&self) -> bool {
        self.volume.is_some_and(|volume| volume.lent || volume.returned)
    }

    pub(super) fn is_retained(&self) -> bool {
        self.volume.is_some_and(|volume| volume.retained)
    }

    /// As the move has left it: nobody could have it since, or it is being given back already.
    pub(super) fn is_as_it_was_left(&self) -> bool {
        let is_sound = |volume: SeenVolume| volume.retained && !volume.remade && !volume.leaving;
        self.says_where() && self.volume.is_some_and(is_sound)
    }

    /// Of a copy, from when it was prepared until the switch: it has the volume that the move has made to stay. Of another one nobody knows what
    /// is in it, and one that somebody has deleted goes with its claim.
    pub(super) fn is_as_it_was_kept(&self) -> bool {
        self.volume.is_some_and(|volume| volume.moving && !volume.remade && !volume.leaving)
    }

    /// Pods may have its volume, although it was lent.
    pub(super) fn is_back(&self) -> bool {
        self.volume.is_some_and(|volume| !volume.lent)
    }

    /// Of its volume and its claim nobody has anything but movers: they are lent, or gone.
    pub(super) fn is_out_of_reach(&self) -> bool {
        !self.home && !self.taken && self.volume.is_none_or(|volume| volume.lent && volume.retained)
    }

    pub(super) fn has_end(&self) -> bool {
        self.end != End::None
    }

    /// Of a copy that the host leads to. One that is on record is known also where it does not say that it is one.
    pub(super) fn is_to_be_released(&self) -> bool {
        self.volume.is_some_and(|volume| volume.moving || volume.pinned && self.yard && !self.home)
    }

    pub(super) fn is_with_movers(&self) -> bool {
        self.yard && self.whole && !self.home
    }
}
