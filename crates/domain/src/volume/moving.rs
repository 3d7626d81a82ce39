//! A volume moves to another member: what is to be done next, by how far the move says it is and by what is there, read just now.
//! Pure. Whoever goes on, and however often, comes to the same end; every step tests what it was decided on, and the objects
//! say which one is next.
//!
//! The source is lent to the *yard*, a namespace of the member in which nobody but movers is, copied from there into a new leaf, which is
//! in the yard of its own member, and kept. Before `Switching` all can be undone, and after it all is finished: that one write decides.

mod mark;
mod outcome;
mod phase;
mod seen;
mod step;
#[cfg(test)]
mod tests;
mod words;

pub use mark::{MoveMark, Part};
pub use outcome::{Outcome, Sum};
pub use phase::Phase;
pub use seen::{End, Mark, Seen, SeenLeaf, SeenVolume};
pub use step::Moving;

use words::{
    BOTH_HAVE_GONE, COPY_HAS_GONE, COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN, COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN,
    COPY_IS_ANOTHER, COPY_IS_ANOTHER_AND_SOURCE_HAS_GONE, COPY_IS_ANOTHER_AND_SOURCE_IS_FORGOTTEN,
    COPY_IS_ANOTHER_AND_SOURCE_IS_UNSEEN, COPY_IS_FORGOTTEN, COPY_IS_FURTHER, COPY_IS_ORDINARY, COPY_MAY_BE_OLDER,
    COPY_WAS_HAD, HOME_IS_TAKEN, IS_ALL_THERE_IS, SOURCE_HAS_GONE, SOURCE_IS_BACK, SOURCE_IS_FORGOTTEN,
    SOURCE_IS_GIVEN_BACK, SOURCE_IS_LEAVING, SOURCE_MAY_BE_OLDER, UNCOPIED_SOURCE_HAS_GONE, YARD_IS_TAKEN,
};

/// The namespace of a member in which nobody but movers is.
pub const YARD: &str = "kosmos-csi-movers";

pub fn next(seen: &Seen) -> Moving {
    let is_undoing = matches!(seen.phase, Phase::Cancelling | Phase::Cancelled);
    if seen.called_off && seen.phase < Phase::Switching && !is_undoing {
        return Moving::Enter(Phase::Cancelling);
    }
    if is_undoing {
        return undone(seen);
    }
    if seen.phase == Phase::Refused {
        return Moving::Nothing;
    }
    if seen.phase == Phase::Switching {
        return if seen.switched { Moving::Enter(Phase::Finishing) } else { Moving::Replace };
    }
    if matches!(seen.phase, Phase::Finishing | Phase::Succeeded) {
        return finished(seen);
    }
    if seen.copy_forgotten {
        return Moving::Stuck(Part::Copy, COPY_IS_FORGOTTEN);
    }
    let Some(copy) = &seen.copy else { return Moving::AwaitMember(Part::Copy) };
    // A copy that was verified needs the source no more: nobody could have that since.
    let source = if seen.verified { seen.left_of_source() } else { seen.source };
    match (seen.phase, &source) {
        _ if copy.taken => Moving::Stuck(Part::Copy, YARD_IS_TAKEN),
        _ if copy.ordinary => not_written(seen, copy, COPY_IS_ORDINARY),
        (Phase::Preparing, _) => prepared(copy),
        _ if is_of_no_use(seen.phase, copy) => without_its_volume(seen, copy),
        (_, None) if seen.source_forgotten => Moving::Stuck(Part::Source, SOURCE_IS_FORGOTTEN),
        (_, None) => Moving::AwaitMember(Part::Source),
        (_, Some(source)) if source.taken && seen.phase != Phase::Placing => Moving::Stuck(Part::Source, YARD_IS_TAKEN),
        _ if !seen.verified && seen.phase < Phase::Placing && copy.is_placed() => {
            not_written(seen, copy, COPY_IS_FURTHER)
        }
        (_, Some(source)) if !seen.verified && source.is_gone() && !source.stray => without_source(source, copy),
        (Phase::Closing, Some(source)) => to_close(source).unwrap_or(Moving::Enter(Phase::Waiting)),
        // Somebody in the member may have taken the mark off.
        (Phase::Waiting, Some(source)) => to_close(source).unwrap_or_else(|| freed(source)),
        (Phase::Isolating, Some(source)) => isolated(source),
        (Phase::Copying, Some(source)) => copied(seen.verified, source, copy),
        (Phase::Placing, Some(source)) => placed(source, copy),
        (_, Some(source)) if source.stray && source.yard => Moving::RemoveSourceStray,
        (_, Some(source)) => ready(seen, source, copy),
    }
}

/// Once it was prepared: nobody would give its claim a volume, or nobody knows what is in the one that is there.
fn is_of_no_use(phase: Phase, copy: &SeenLeaf) -> bool {
    match copy.volume {
        // Where nobody looks at it, that says nothing.
        None => copy.lost || phase.goes_by_copy(),
        // One that is lent then is as a backup of before it was placed has it.
        Some(_) => !copy.is_as_it_was_kept() || phase == Phase::Ready && copy.is_lent(),
    }
}

fn prepared(copy: &SeenLeaf) -> Moving {
    match (copy.end, copy.volume) {
        _ if copy.stray => Moving::RemoveCopyStray,
        _ if copy.is_placed() && copy.has_end() => Moving::RemoveEnds,
        _ if copy.is_placed() => Moving::Stuck(Part::Copy, COPY_IS_FURTHER),
        (End::Failed | End::Copied(_), _) => Moving::RemoveEnds,
        _ if copy.lost && copy.has_end() => Moving::RemoveEnds,
        _ if copy.lost => Moving::RemoveCopy,
        // Its pod keeps it.
        _ if copy.leaving && copy.has_end() => Moving::RemoveEnds,
        // Nothing is in it yet.
        _ if copy.leaving && !copy.is_lent() => Moving::RemoveCopy,
        _ if copy.leaving || !copy.yard && copy.is_lent() && copy.is_retained() => {
            Moving::Await("the copy's claim is being recreated")
        }
        _ if !copy.yard => Moving::MakeCopy,
        // Its pod may be the first consumer for which the volume waits.
        (End::None, _) => Moving::StartReceiver,
        (_, Some(volume)) if copy.whole && (!volume.lent || !volume.retained) => Moving::KeepCopy,
        (End::Ready, Some(volume)) if volume.lent && volume.retained => Moving::Enter(Phase::Closing),
        _ => Moving::Await("the receiver is not ready yet"),
    }
}

/// Pods may have a copy that was placed, or is an ordinary leaf, though its move says less, as one that a backup of the host has.
fn not_written(seen: &Seen, copy: &SeenLeaf, why: &'static str) -> Moving {
    let has_end = copy.has_end() || seen.source.is_some_and(|source| source.has_end());
    if has_end { Moving::RemoveEnds } else { Moving::Stuck(Part::Copy, why) }
}

/// What is to be done before the source is closed, and that; none once it is.
fn to_close(source: &SeenLeaf) -> Option<Moving> {
    match source.mark {
        _ if source.stray => Some(Moving::RemoveSourceStray),
        Mark::None => Some(Moving::CloseSource),
        Mark::Closed | Mark::Isolated => None,
    }
}

fn freed(source: &SeenLeaf) -> Moving {
    match source.mark {
        // The host was restored from a backup of before it was lent: nobody can have it, and no claim of it comes home.
        _ if source.is_lent() && !source.home => Moving::Enter(Phase::Isolating),
        _ if !source.home || !source.whole => Moving::Await("the leaf claim of the source is gone or being deleted"),
        _ if source.used => Moving::Await("pods use the volume"),
        Mark::Isolated => Moving::Enter(Phase::Isolating),
        Mark::None | Mark::Closed => Moving::IsolateSource,
    }
}

fn isolated(source: &SeenLeaf) -> Moving {
    match source.volume {
        None => Moving::Await("the leaf volume of the source is not there"),
        Some(volume) if !volume.lent && source.mark != Mark::Isolated => waited_for_again(source),
        Some(volume) if !volume.lent => Moving::LendSource,
        _ if source.stray => Moving::RemoveSourceStray,
        _ if source.home => Moving::Await("the leaf claim of the source has to go first"),
        _ if !source.yard || !source.whole => Moving::Await("the source is being given to the movers"),
        _ => Moving::Enter(Phase::Copying),
    }
}

/// Pods may have it, as where its member was restored from a backup of before it was closed. Nothing of it counts as copied yet.
fn waited_for_again(source: &SeenLeaf) -> Moving {
    to_close(source).unwrap_or(Moving::Enter(Phase::Waiting))
}

fn copied(verified: bool, source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    match (source.end, copy.end) {
        _ if verified => Moving::Enter(Phase::Placing),
        _ if source.is_back() && (source.has_end() || copy.has_end()) => Moving::RemoveEnds,
        _ if source.is_back() => waited_for_again(source),
        // A pod keeps a claim that somebody deletes, also once it has ended: it is recreated only then.
        _ if source.has_end() && (source.leaving || !source.yard) => Moving::RemoveEnds,
        _ if source.stray => Moving::RemoveSourceStray,
        // No volume is bound to it, as to one that was restored from a backup: the movers' claim has it.
        _ if source.yard && source.home => Moving::Await(HOME_IS_TAKEN),
        _ if !source.is_with_movers() => Moving::Await("the source is not in namespace kosmos-csi-movers"),
        (End::Copied(one), End::Copied(other)) if one == other => Moving::NoteVerified,
        // No node begins a pod whose claim is on its way out, or not there.
        (End::None, End::None) if copy.leaving || !copy.yard => Moving::Await("the copy's claim is being recreated"),
        (End::None, End::None) => Moving::StartReceiver,
        (_, End::Starting) if copy.leaving => Moving::RemoveEnds,
        (End::None, End::Starting | End::Ready) => Moving::StartSender,
        (End::Starting | End::Ready, End::Starting | End::Ready) => Moving::Await("the copy is not done yet"),
        // One end may be done a moment before the other.
        (End::Copied(_), End::Ready) | (End::Ready, End::Copied(_)) => Moving::Await("one end of the copy is done"),
        _ => Moving::RemoveEnds,
    }
}

/// Nothing is copied into another volume by a move that may say that all of it is there.
fn without_its_volume(seen: &Seen, copy: &SeenLeaf) -> Moving {
    let has_end = copy.has_end() || seen.source.is_some_and(|source| source.has_end());
    let [gone, another] = match seen.source {
        _ if has_end => return Moving::RemoveEnds,
        None if seen.source_forgotten => {
            [COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN, COPY_IS_ANOTHER_AND_SOURCE_IS_FORGOTTEN]
        }
        None => [COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN, COPY_IS_ANOTHER_AND_SOURCE_IS_UNSEEN],
        Some(source) if source.volume.is_none() => [BOTH_HAVE_GONE, COPY_IS_ANOTHER_AND_SOURCE_HAS_GONE],
        Some(_) => [COPY_HAS_GONE, COPY_IS_ANOTHER],
    };
    Moving::Stuck(Part::Copy, if copy.volume.is_some() { another } else { gone })
}

/// Nothing more can be copied.
fn without_source(source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    if source.has_end() || copy.has_end() {
        return Moving::RemoveEnds;
    }
    Moving::Stuck(Part::Source, UNCOPIED_SOURCE_HAS_GONE)
}

fn placed(source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    match () {
        () if source.has_end() || copy.has_end() => Moving::RemoveEnds,
        () if source.is_back() => with_source_back(source),
        () if copy.is_lent() => Moving::PlaceCopy,
        () if copy.home && copy.whole => Moving::Enter(Phase::Ready),
        () => Moving::Await("the copy's leaf claim is being made where pods look for it"),
    }
}

fn ready(seen: &Seen, source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    match () {
        () if source.has_end() || copy.has_end() => Moving::RemoveEnds,
        () if source.is_back() => with_source_back(source),
        () if source.home => Moving::Await(HOME_IS_TAKEN),
        () if !source.is_out_of_reach() || !copy.home || !copy.whole || !copy.is_retained() => {
            Moving::Await("source or copy is not yet as the switch needs it")
        }
        // They write on what was compared already, and it may go: the switch is not decided yet.
        () if seen.may_switch && copy.used => Moving::Await("pods have the copy already"),
        () if seen.may_switch => Moving::Enter(Phase::Switching),
        () => Moving::Await("the switch is not approved yet (spec.approved)"),
    }
}

fn with_source_back(source: &SeenLeaf) -> Moving {
    let what = if source.is_as_it_was_left() { SOURCE_IS_GIVEN_BACK } else { SOURCE_IS_BACK };
    Moving::Stuck(Part::Source, what)
}

/// The user's pods wait for nothing of this.
fn finished(seen: &Seen) -> Moving {
    let Some(copy) = seen.left_of_copy() else { return Moving::AwaitMember(Part::Copy) };
    if copy.is_to_be_released() {
        return released(&copy);
    }
    let Some(source) = seen.left_of_source() else { return Moving::AwaitMember(Part::Source) };
    match () {
        () if source.has_end() || copy.has_end() => Moving::RemoveEnds,
        () if source.stray => Moving::RemoveSourceStray,
        () if source.volume.is_some_and(|volume| !volume.moved && volume.lent) => Moving::RetireSource,
        () if source.yard => Moving::RemoveYardClaim,
        () if seen.phase == Phase::Finishing => Moving::Enter(Phase::Succeeded),
        () => Moving::Nothing,
    }
}

/// Where its member was restored from a backup of before it was placed, it is where nobody but movers is.
fn released(copy: &SeenLeaf) -> Moving {
    match () {
        () if copy.home => Moving::ReleaseCopy,
        () if copy.has_end() => Moving::RemoveEnds,
        () if copy.is_lent() => Moving::PlaceCopy,
        // As before it was kept, which says nothing of where it belongs.
        () if !copy.is_placed() => Moving::KeepCopy,
        () => Moving::Await("the copy's leaf claim is being made where pods look for it"),
    }
}

/// The source first, for its user waits for it; but not where the copy may be on its way to where pods look for it. It was verified
/// then, whatever a backup of the host has.
fn undone(seen: &Seen) -> Moving {
    let was_placed = |copy: SeenLeaf| copy.is_placed() || copy.home && !copy.is_lent();
    let is_whole = seen.verified || seen.copy.is_some_and(was_placed);
    let (source, copy) = (seen.left_of_source(), seen.left_of_copy());
    let (source, copy) = (with_source(source.as_ref()), without_copy(copy.as_ref()));
    let steps = if is_whole { [is_all_there_is(seen).or(copy), source] } else { [source, copy] };
    let end = if seen.phase == Phase::Cancelling { Moving::Enter(Phase::Cancelled) } else { Moving::Nothing };
    steps.into_iter().flatten().next().unwrap_or(end)
}

/// What becomes of a leaf whose move is not in the host any more, somebody has removed it by force: what the host's volume leads to is
/// an ordinary leaf again, and what it does not lead to is a copy that nobody has used, or a source that is kept.
pub fn forgotten(part: Part, leads_here: bool, leaf: &SeenLeaf) -> Moving {
    let next = match (part, leads_here) {
        _ if leaf.has_end() => Some(Moving::RemoveEnds),
        (Part::Copy, true) if leaf.yard && leaf.is_to_be_released() => Some(released(leaf)),
        (Part::Copy, true) => Some(Moving::ReleaseCopy),
        (Part::Copy, false) => without_copy(Some(leaf)),
        (Part::Source | Part::IsolatedSource, true) => with_source(Some(leaf)),
        (Part::Source | Part::IsolatedSource, false) if leaf.home => Some(Moving::OpenSource),
        (Part::Source | Part::IsolatedSource, false) if leaf.volume.is_some_and(|volume| !volume.moved) => {
            Some(Moving::RetireSource)
        }
        (Part::Source | Part::IsolatedSource, false) => Some(Moving::RemoveYardClaim),
    };
    next.unwrap_or(Moving::Nothing)
}

/// A copy that holds all that the source has goes only while the source is seen to be what it was: its member may be gone for good, another
/// cluster may have its name, or it may have been restored from a backup.
fn is_all_there_is(seen: &Seen) -> Option<Moving> {
    // What came late is kept by nobody, and on no record.
    let is_kept = |volume: SeenVolume| volume.pinned || volume.retained && volume.moving;
    let volume = seen.copy.filter(|copy| !copy.had)?.volume.filter(|volume| is_kept(*volume))?;
    match seen.source {
        None if !seen.source_forgotten => Some(Moving::AwaitMember(Part::Source)),
        Some(source) if source.is_as_it_was_left() => None,
        _ if volume.remade => Some(Moving::Stuck(Part::Copy, COPY_MAY_BE_OLDER)),
        None => Some(Moving::Stuck(Part::Copy, IS_ALL_THERE_IS)),
        Some(source) if source.volume.is_none() => Some(Moving::Stuck(Part::Copy, SOURCE_HAS_GONE)),
        Some(source) if source.volume.is_some_and(|volume| volume.leaving) => {
            Some(Moving::Stuck(Part::Copy, SOURCE_IS_LEAVING))
        }
        Some(_) => Some(Moving::Stuck(Part::Copy, SOURCE_MAY_BE_OLDER)),
    }
}

fn with_source(source: Option<&SeenLeaf>) -> Option<Moving> {
    let Some(source) = source else { return Some(Moving::AwaitMember(Part::Source)) };
    match source.mark {
        _ if source.has_end() => Some(Moving::RemoveEnds),
        _ if source.stray => Some(Moving::RemoveSourceStray),
        // The host has removed it before it was closed.
        _ if source.is_gone() => None,
        Mark::Isolated if !source.is_returned() => Some(Moving::ReturnSource),
        _ if source.is_lent() => Some(Moving::ReturnSource),
        // Nor that it has let go of it and keeps its data.
        Mark::None if !source.home && !source.yard && !source.says_where() => None,
        _ if !source.home || !source.whole => Some(Moving::Await("the source's leaf claim is being made where it was")),
        Mark::Closed | Mark::Isolated => Some(Moving::OpenSource),
        Mark::None if source.says_where() => Some(Moving::OpenSource),
        Mark::None => None,
    }
}

fn without_copy(copy: Option<&SeenLeaf>) -> Option<Moving> {
    match copy {
        None => Some(Moving::AwaitMember(Part::Copy)),
        Some(copy) if copy.has_end() => Some(Moving::RemoveEnds),
        Some(copy) if copy.stray => Some(Moving::RemoveCopyStray),
        // What is there is that one's.
        Some(copy) if copy.taken => None,
        Some(copy) if copy.had => Some(Moving::Stuck(Part::Copy, COPY_WAS_HAD)),
        Some(copy) if copy.home || copy.yard || copy.volume.is_some() => Some(Moving::RemoveCopy),
        Some(_) => None,
    }
}
