//! What a move does next, and on which leaf.

use super::{mark::Part, phase::Phase};

/// The next step: one write, but for those that say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Moving {
    /// Over the version of the move that was read.
    Enter(Phase),
    /// The copy's claim, in the yard.
    MakeCopy,
    StartReceiver,
    /// Make the copy's volume stay, and say that it belongs into the yard.
    KeepCopy,
    /// Over the version of the source's claim that was read.
    CloseSource,
    /// Likewise.
    IsolateSource,
    /// Over the version of the source's volume that was read.
    LendSource,
    StartSender,
    /// Both, and their keys.
    RemoveEnds,
    /// What both ends have said, over the version of the move.
    NoteVerified,
    /// The copy belongs where the pods look for it.
    PlaceCopy,
    /// The host's volume, by steps of its own (`replacement`).
    Replace,
    /// The copy is an ordinary leaf.
    ReleaseCopy,
    /// The source is no leaf of the volume any more, and is kept.
    RetireSource,
    RemoveYardClaim,
    /// A claim that was made late, and what was provisioned for it.
    RemoveSourceStray,
    RemoveCopyStray,
    /// The copy's claim, and its volume with it.
    RemoveCopy,
    /// The source belongs where it was. Written also where it was not lent yet: what lends it may still be on its way, and is to
    /// find another version.
    ReturnSource,
    /// It may be used again: first its claim says so, then its volume.
    OpenSource,
    Await(&'static str),
    /// The member of this leaf does not answer: it is waited for for ever, where it is gone for good and nobody says so.
    AwaitMember(Part),
    /// Until a person has acted: for this leaf.
    Stuck(Part, &'static str),
    Nothing,
}

impl Moving {
    /// Whether it writes on this leaf, or begins or ends the mover there. Of the switch the host alone is told.
    pub fn changes(self, part: Part) -> bool {
        let changed: &[Part] = match self {
            Self::Enter(_)
            | Self::NoteVerified
            | Self::Await(_)
            | Self::AwaitMember(_)
            | Self::Stuck(..)
            | Self::Nothing
            | Self::Replace => &[],
            Self::MakeCopy
            | Self::StartReceiver
            | Self::KeepCopy
            | Self::PlaceCopy
            | Self::ReleaseCopy
            | Self::RemoveCopy
            | Self::RemoveCopyStray => &[Part::Copy],
            Self::CloseSource
            | Self::IsolateSource
            | Self::LendSource
            | Self::ReturnSource
            | Self::OpenSource
            | Self::RetireSource
            | Self::RemoveYardClaim
            | Self::RemoveSourceStray => &[Part::Source],
            // A sender whose keys nobody has any more ends both.
            Self::StartSender | Self::RemoveEnds => &[Part::Source, Part::Copy],
        };
        changed.contains(&part)
    }
}
