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

pub use mark::{MoveMark, Part};
pub use outcome::{Outcome, Sum};
pub use phase::Phase;
pub use seen::{End, Mark, Seen, SeenLeaf, SeenVolume};
pub use step::Moving;

/// The namespace of a member in which nobody but movers is.
pub const YARD: &str = "kosmos-csi-movers";

const SOURCE_IS_FORGOTTEN: &str = "the host has forgotten the member of the source, and nothing more is copied from there. Call the move \
    off, by deleting it: what was copied so far is removed then, and the host has nothing else of the data";
/// Or copied by half.
const UNCOPIED_SOURCE_HAS_GONE: &str = "claim and volume of the source have gone from there, and what was copied so far, where anything was, is \
    all that the host has of the data. Restore both there under their names, or call the move off, by deleting it: what was copied is removed \
    then";
const COPY_HAS_GONE: &str = "the volume of the copy has gone, and what was copied with it; the source is whole. Call the move off, by deleting \
    it, and ask for it again";
const BOTH_HAVE_GONE: &str = "the volume of the copy has gone, and what was copied with it, and the leaf volume of the source is not there either";
const COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN: &str = "the volume of the copy has gone, and what was copied with it, and the member of the source \
    does not answer: what is there is all that the host has of the data. Do not forget that member; call the move off, by deleting it";
const COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN: &str = "the volume of the copy has gone, and what was copied with it, and the source is in a \
    member that the host has forgotten: add that again, or call the move off, by deleting it";
const COPY_IS_FORGOTTEN: &str = "the host has forgotten the member of the copy: call the move off, by deleting it";
/// Where that is called off.
const IS_ALL_THERE_IS: &str = "the copy holds all that was in the source, and the host has forgotten the member of that: it is not removed. \
    status.to.handle leads to it; without the finalizer kosmos.csi.io/move on this object it stays there as it is, as long as no member \
    has a volume for status.from.handle";
const SOURCE_HAS_GONE: &str = "the copy holds all that was in the source, whose volume is not in its member any more: it is not removed. \
    status.to.handle leads to it; without the finalizer kosmos.csi.io/move on this object it stays there as it is, as long as no member \
    has a volume for status.from.handle";
const COPY_WAS_HAD: &str = "the host's volume was made to lead to the copy, and pods may have written on it since: it is not removed. Take the \
    finalizer kosmos.csi.io/move off this object: it is an ordinary leaf then where the host's volume leads to it, and else it stays as it is";
const SOURCE_MAY_BE_OLDER: &str = "the copy holds all that was in the source, and the volume of that is not as this move has left it, as \
    where its member was restored from a backup: it may hold less, and the copy is not removed. status.to.handle leads to it; where the \
    source is the one to keep, take the finalizer kosmos.csi.io/move off this object, and the copy goes some minutes later";
const SOURCE_IS_LEAVING: &str = "the copy holds all that was in the source, whose volume somebody in its member has deleted, and which is on its \
    way out: the copy is not removed. Have the host's volume lead to status.to.handle, and only then take the finalizer kosmos.csi.io/move \
    off this object";
const SOURCE_IS_BACK: &str = "the source is where pods may have it, as its member was restored from a backup, or somebody there has given \
    it back: it may hold what the copy does not. Look at both, and call the move off, by deleting it: the copy stays until you say so";
const SOURCE_IS_GIVEN_BACK: &str = "the source is where pods may have it, as somebody in its member has given it back: it may hold what the copy \
    does not. Call the move off, by deleting it: the source is the volume again, and the copy goes";

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
        (Phase::Preparing, _) => prepared(copy),
        // It was made to stay while it was prepared.
        (Phase::Closing | Phase::Copying | Phase::Placing | Phase::Ready, _)
            if copy.volume.is_none() && !copy.taken =>
        {
            without_its_volume(seen, copy)
        }
        // It is not looked at then, but where the watches show no volume of it.
        (Phase::Waiting | Phase::Isolating, _) if copy.lost && !copy.taken => without_its_volume(seen, copy),
        (_, None) if seen.source_forgotten => Moving::Stuck(Part::Source, SOURCE_IS_FORGOTTEN),
        (_, None) => Moving::AwaitMember(Part::Source),
        (_, Some(source)) if !seen.verified && source.is_gone() && !source.taken && !source.stray => {
            without_source(source, copy)
        }
        (Phase::Closing, Some(source)) => to_close(source).unwrap_or(Moving::Enter(Phase::Waiting)),
        // Somebody in the member may have taken the mark off.
        (Phase::Waiting, Some(source)) => to_close(source).unwrap_or_else(|| freed(source)),
        (Phase::Isolating, Some(source)) => isolated(source),
        (Phase::Copying, Some(source)) => copied(seen.verified, source, copy),
        (Phase::Placing, Some(source)) => placed(source, copy),
        (_, Some(source)) => ready(seen, source, copy),
    }
}

fn prepared(copy: &SeenLeaf) -> Moving {
    match (copy.end, copy.volume) {
        _ if copy.taken => Moving::Await("another move has a leaf in the yard of the copy's member"),
        _ if copy.stray => Moving::RemoveCopyStray,
        (End::Failed | End::Copied(_), _) => Moving::RemoveEnds,
        _ if copy.lost && copy.has_end() => Moving::RemoveEnds,
        _ if copy.lost => Moving::RemoveCopy,
        // Its pod keeps it.
        _ if copy.leaving && copy.has_end() => Moving::RemoveEnds,
        // Nothing is in it yet.
        _ if copy.leaving && !copy.is_lent() => Moving::RemoveCopy,
        _ if copy.leaving || !copy.yard && copy.is_lent() && copy.is_retained() => {
            Moving::Await("the copy's claim is made anew")
        }
        _ if !copy.yard => Moving::MakeCopy,
        // Its pod may be the first consumer for which the volume waits.
        (End::None, _) => Moving::StartReceiver,
        (_, Some(volume)) if copy.whole && (!volume.lent || !volume.retained) => Moving::KeepCopy,
        (End::Ready, Some(volume)) if volume.lent && volume.retained => Moving::Enter(Phase::Closing),
        _ => Moving::Await("the receiver is not ready yet"),
    }
}

/// What is to be done before the source is closed, and that; none once it is.
fn to_close(source: &SeenLeaf) -> Option<Moving> {
    match source.mark {
        _ if source.taken => Some(Moving::Await("another move has a leaf in the yard of the source's member")),
        _ if source.stray => Some(Moving::RemoveSourceStray),
        Mark::None => Some(Moving::CloseSource),
        Mark::Closed | Mark::Isolated => None,
    }
}

fn freed(source: &SeenLeaf) -> Moving {
    match source.mark {
        _ if !source.home || !source.whole => Moving::Await("the leaf claim of the source is gone, or on its way out"),
        _ if source.used => Moving::Await("pods use the volume"),
        Mark::Isolated => Moving::Enter(Phase::Isolating),
        Mark::None | Mark::Closed => Moving::IsolateSource,
    }
}

fn isolated(source: &SeenLeaf) -> Moving {
    match source.volume {
        None => Moving::Await("the leaf volume of the source is not there"),
        Some(volume) if !volume.lent => Moving::LendSource,
        _ if source.stray => Moving::RemoveSourceStray,
        _ if source.home => Moving::Await("the leaf claim of the source has to go first"),
        _ if !source.yard || !source.whole => Moving::Await("the source is given to the movers"),
        _ => Moving::Enter(Phase::Copying),
    }
}

fn copied(verified: bool, source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    match (source.end, copy.end) {
        _ if verified => Moving::Enter(Phase::Placing),
        // A pod keeps a claim that somebody deletes, also once it has ended: it is made anew only then.
        _ if source.has_end() && (source.leaving || !source.yard) => Moving::RemoveEnds,
        // No volume is bound to it, as to one that was restored from a backup: the movers' claim has it.
        _ if source.yard && source.home => {
            Moving::Await("a claim that is where the leaf claim of the source was has to go")
        }
        _ if !source.is_with_movers() => Moving::Await("the source is not in the yard"),
        (End::Copied(one), End::Copied(other)) if one == other => Moving::NoteVerified,
        // No node begins a pod whose claim is on its way out, or not there.
        (End::None, End::None) if copy.leaving || !copy.yard => Moving::Await("the copy's claim is made anew"),
        (End::None, End::None) => Moving::StartReceiver,
        (_, End::Starting) if copy.leaving => Moving::RemoveEnds,
        (End::None, End::Starting | End::Ready) => Moving::StartSender,
        (End::Starting | End::Ready, End::Starting | End::Ready) => Moving::Await("the copy is not done yet"),
        // One end may be done a moment before the other.
        (End::Copied(_), End::Ready) | (End::Ready, End::Copied(_)) => Moving::Await("one end is done"),
        _ => Moving::RemoveEnds,
    }
}

/// Nobody would make its claim anew, or bind it, and nothing is copied into another one by a move that may say that all of it is there.
fn without_its_volume(seen: &Seen, copy: &SeenLeaf) -> Moving {
    let has_end = copy.has_end() || seen.source.is_some_and(|source| source.has_end());
    match seen.source {
        _ if has_end => Moving::RemoveEnds,
        None if seen.source_forgotten => Moving::Stuck(Part::Copy, COPY_HAS_GONE_AND_SOURCE_IS_FORGOTTEN),
        None => Moving::Stuck(Part::Copy, COPY_HAS_GONE_AND_SOURCE_IS_UNSEEN),
        Some(source) if source.volume.is_none() => Moving::Stuck(Part::Copy, BOTH_HAVE_GONE),
        Some(_) => Moving::Stuck(Part::Copy, COPY_HAS_GONE),
    }
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
        () => Moving::Await("the copy's leaf claim is made where pods look for it"),
    }
}

fn ready(seen: &Seen, source: &SeenLeaf, copy: &SeenLeaf) -> Moving {
    match () {
        () if source.has_end() || copy.has_end() => Moving::RemoveEnds,
        () if source.is_back() => with_source_back(source),
        () if !source.is_out_of_reach() || !copy.home || !copy.whole || !copy.is_retained() => {
            Moving::Await("both leaves are as they have to be")
        }
        () if seen.may_switch => Moving::Enter(Phase::Switching),
        () => Moving::Await("the word to switch"),
    }
}

fn with_source_back(source: &SeenLeaf) -> Moving {
    let what = if source.is_as_it_was_left() { SOURCE_IS_GIVEN_BACK } else { SOURCE_IS_BACK };
    Moving::Stuck(Part::Source, what)
}

/// The user's pods wait for nothing of this.
fn finished(seen: &Seen) -> Moving {
    let Some(copy) = seen.left_of_copy() else { return Moving::AwaitMember(Part::Copy) };
    if copy.volume.is_some_and(|volume| volume.moving) {
        return Moving::ReleaseCopy;
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

/// The source first, for its user waits for it; but not where the copy may be on its way to where pods look for it.
fn undone(seen: &Seen) -> Moving {
    let (source, copy) = (seen.left_of_source(), seen.left_of_copy());
    let (source, copy) = (with_source(source.as_ref()), without_copy(copy.as_ref()));
    let steps = if seen.verified { [is_all_there_is(seen).or(copy), source] } else { [source, copy] };
    let end = if seen.phase == Phase::Cancelling { Moving::Enter(Phase::Cancelled) } else { Moving::Nothing };
    steps.into_iter().flatten().next().unwrap_or(end)
}

/// What becomes of a leaf whose move is not in the host any more, somebody has removed it by force: what the host's volume leads to is
/// an ordinary leaf again, and what it does not lead to is a copy that nobody has used, or a source that is kept.
pub fn forgotten(part: Part, leads_here: bool, leaf: &SeenLeaf) -> Moving {
    let next = match (part, leads_here) {
        _ if leaf.has_end() => Some(Moving::RemoveEnds),
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
    // What came late is kept by nobody.
    let is_kept = |volume: SeenVolume| volume.retained && volume.moving;
    let is_there = seen.copy.is_some_and(|copy| !copy.had && copy.volume.is_some_and(is_kept));
    if !is_there {
        return None;
    }
    match seen.source {
        None if seen.source_forgotten => Some(Moving::Stuck(Part::Copy, IS_ALL_THERE_IS)),
        None => Some(Moving::AwaitMember(Part::Source)),
        Some(source) if source.is_as_it_was_left() => None,
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
        _ if !source.home || !source.whole => Some(Moving::Await("the leaf claim of the source is made where it was")),
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
