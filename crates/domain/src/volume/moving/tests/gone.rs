//! Members that are forgotten, and leaves that are gone from members that answer.

use super::{
    super::{
        COPY_IS_FORGOTTEN, COPY_WAS_HAD, End, IS_ALL_THERE_IS, Mark, Moving, Part, Phase, SOURCE_HAS_GONE,
        SOURCE_IS_BACK, SOURCE_IS_FORGOTTEN, SOURCE_IS_GIVEN_BACK, SOURCE_IS_LEAVING, SOURCE_MAY_BE_OLDER, Seen,
        SeenLeaf, SeenVolume, UNCOPIED_SOURCE_HAS_GONE, next,
    },
    KEPT, at_home, copying, isolated,
};

/// What is there stays as it is, whatever it is.
#[test]
fn nothing_is_awaited_of_a_member_of_which_the_host_was_told_that_it_is_gone_for_good() {
    let moving = at_home();
    let copy = SeenLeaf { volume: Some(SeenVolume { lent: false, moving: false, ..KEPT }), ..moving };
    let source = isolated();
    let silent = Seen {
        phase: Phase::Finishing,
        verified: true,
        switched: true,
        source: None,
        ..copying(SeenLeaf::default(), copy)
    };
    let forgotten = Seen { source_forgotten: true, ..silent };
    for (seen, expected) in [
        (silent, Moving::AwaitMember(Part::Source)),
        (forgotten, Moving::Enter(Phase::Succeeded)),
        (Seen { phase: Phase::Succeeded, ..forgotten }, Moving::Nothing),
        // The user's pods come first.
        (Seen { copy: Some(moving), ..forgotten }, Moving::ReleaseCopy),
        (Seen { copy: None, ..forgotten }, Moving::AwaitMember(Part::Copy)),
        (Seen { copy: None, copy_forgotten: true, ..forgotten }, Moving::Enter(Phase::Succeeded)),
        (Seen { copy: None, copy_forgotten: true, source: Some(source), ..silent }, Moving::RetireSource),
    ] {
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// Its source is out of everybody's reach from before it was copied.
#[test]
fn copy_that_was_verified_is_switched_to_where_the_member_of_its_source_is_forgotten() {
    let copy = at_home();
    let placed = SeenLeaf { volume: Some(SeenVolume { lent: false, ..KEPT }), ..copy };
    let silent = Seen { phase: Phase::Ready, verified: true, source: None, ..copying(SeenLeaf::default(), placed) };
    let forgotten = Seen { source_forgotten: true, ..silent };
    for (seen, expected) in [
        (silent, Moving::AwaitMember(Part::Source)),
        (forgotten, Moving::Enter(Phase::Switching)),
        (Seen { may_switch: false, ..forgotten }, Moving::Await("the switch is not approved yet (spec.approved)")),
        (Seen { phase: Phase::Placing, copy: Some(copy), ..forgotten }, Moving::PlaceCopy),
        (Seen { phase: Phase::Copying, ..forgotten }, Moving::Enter(Phase::Placing)),
        (
            Seen { phase: Phase::Copying, verified: false, ..forgotten },
            Moving::Stuck(Part::Source, SOURCE_IS_FORGOTTEN),
        ),
        (
            Seen { phase: Phase::Closing, verified: false, ..forgotten },
            Moving::Stuck(Part::Source, SOURCE_IS_FORGOTTEN),
        ),
        (Seen { copy: None, ..silent }, Moving::AwaitMember(Part::Copy)),
        (Seen { copy: None, copy_forgotten: true, ..silent }, Moving::Stuck(Part::Copy, COPY_IS_FORGOTTEN)),
    ] {
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// Also while nobody looks at the copy.
#[test]
fn nobody_waits_for_pods_to_end_where_the_member_of_the_copy_is_forgotten() {
    let source = SeenLeaf { home: true, whole: true, mark: Mark::Closed, volume: Some(KEPT), ..SeenLeaf::default() };
    for phase in [Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying] {
        let copy = (!phase.goes_by_copy()).then(SeenLeaf::default);
        let seen = Seen { phase, copy, copy_forgotten: true, ..copying(source, SeenLeaf::default()) };
        assert_eq!(next(&seen), Moving::Stuck(Part::Copy, COPY_IS_FORGOTTEN), "{seen:?}");
    }
}

/// That may be gone for good, and the copy all that there is.
#[test]
fn copy_that_was_verified_is_removed_only_while_the_member_of_its_source_answers() {
    let copy = at_home();
    let source = isolated();
    let silent = Seen {
        phase: Phase::Cancelling,
        called_off: true,
        verified: true,
        source: None,
        ..copying(SeenLeaf::default(), copy)
    };
    let forgotten = Seen { source_forgotten: true, ..silent };
    for (seen, expected) in [
        (silent, Moving::AwaitMember(Part::Source)),
        (Seen { source: Some(source), ..silent }, Moving::RemoveCopy),
        (forgotten, Moving::Stuck(Part::Copy, IS_ALL_THERE_IS)),
        (Seen { copy: None, ..forgotten }, Moving::AwaitMember(Part::Copy)),
        (Seen { copy: Some(SeenLeaf::default()), ..forgotten }, Moving::Enter(Phase::Cancelled)),
        // Half a copy is none.
        (Seen { verified: false, ..silent }, Moving::AwaitMember(Part::Source)),
        (Seen { verified: false, ..forgotten }, Moving::RemoveCopy),
        (Seen { copy: None, copy_forgotten: true, source: Some(source), ..silent }, Moving::ReturnSource),
    ] {
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// Another cluster has the name of its member, or that was restored from a backup, or somebody has deleted it there.
#[test]
fn copy_that_was_verified_is_removed_only_while_its_source_is_seen_to_be_what_it_was() {
    let copy = at_home();
    let source = isolated();
    let with = |volume: SeenVolume| SeenLeaf { volume: Some(volume), ..source };
    let before = SeenLeaf { home: true, yard: false, ..with(SeenVolume { lent: false, moving: false, ..KEPT }) };
    let gone = Moving::Stuck(Part::Copy, SOURCE_HAS_GONE);
    let older = Moving::Stuck(Part::Copy, SOURCE_MAY_BE_OLDER);
    for (source, expected) in [
        (source, Moving::RemoveCopy),
        // The move has begun to give it back.
        (with(SeenVolume { lent: false, returned: true, ..KEPT }), Moving::RemoveCopy),
        (SeenLeaf::default(), gone),
        (SeenLeaf { volume: None, ..source }, gone),
        (before, older),
        (with(SeenVolume { remade: true, ..KEPT }), older),
        (with(SeenVolume { leaving: true, ..KEPT }), Moving::Stuck(Part::Copy, SOURCE_IS_LEAVING)),
        (with(SeenVolume { retained: false, ..KEPT }), older),
    ] {
        let seen = Seen { phase: Phase::Cancelling, called_off: true, verified: true, ..copying(source, copy) };
        assert_eq!(next(&seen), expected, "{seen:?}");
        // Half a copy is none.
        let undone = next(&Seen { verified: false, ..seen });
        assert!(!matches!(undone, Moving::Stuck(..)), "{undone:?} {seen:?}");
    }
}

/// Somebody has made the host's volume lead to it before the move was over, and pods have written on it.
#[test]
fn copy_that_pods_had_is_not_removed_whatever_is_seen_of_its_source() {
    let copy = SeenLeaf { home: true, whole: true, had: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let source = isolated();
    let had = Moving::Stuck(Part::Copy, COPY_WAS_HAD);
    let left = Seen { phase: Phase::Cancelling, called_off: true, verified: true, ..copying(source, copy) };
    let older = SeenLeaf { volume: Some(SeenVolume { remade: true, ..KEPT }), ..source };
    for (seen, expected) in [
        (left, had),
        (Seen { phase: Phase::Cancelled, ..left }, had),
        (Seen { source: None, ..left }, had),
        (Seen { source: None, source_forgotten: true, ..left }, had),
        (Seen { source: Some(older), ..left }, had),
        (Seen { source: Some(SeenLeaf::default()), verified: false, ..left }, had),
        (Seen { copy: Some(SeenLeaf { end: End::Failed, ..copy }), ..left }, Moving::RemoveEnds),
    ] {
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// And waits for a person where pods may have written on the source since.
#[test]
fn copy_that_was_verified_is_switched_to_where_its_source_is_gone_from_a_member_that_answers() {
    let copy =
        SeenLeaf { home: true, whole: true, volume: Some(SeenVolume { lent: false, ..KEPT }), ..SeenLeaf::default() };
    let before = SeenLeaf {
        home: true,
        whole: true,
        volume: Some(SeenVolume { retained: false, lent: false, moving: false, ..KEPT }),
        ..SeenLeaf::default()
    };
    let lost = SeenLeaf { yard: true, ..SeenLeaf::default() };
    let back = Moving::Stuck(Part::Source, SOURCE_IS_BACK);
    for (source, in_ready, placing) in [
        (SeenLeaf::default(), Moving::Enter(Phase::Switching), Moving::Enter(Phase::Ready)),
        (lost, Moving::Enter(Phase::Switching), Moving::Enter(Phase::Ready)),
        (before, back, back),
        (SeenLeaf { home: false, yard: true, ..before }, back, back),
    ] {
        let seen = Seen { phase: Phase::Ready, verified: true, ..copying(source, copy) };
        assert_eq!(next(&seen), in_ready, "{seen:?}");
        assert_eq!(next(&Seen { phase: Phase::Placing, ..seen }), placing, "{seen:?}");
    }
}

/// It would wait for ever, and say nothing of it.
#[test]
fn move_whose_source_goes_from_a_member_that_answers_before_it_was_copied_waits_for_a_person() {
    let copy = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let gone = SeenLeaf { mark: Mark::Isolated, ..SeenLeaf::default() };
    let stuck = Moving::Stuck(Part::Source, UNCOPIED_SOURCE_HAS_GONE);
    for phase in [Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying] {
        let seen = Seen { phase, ..copying(gone, copy) };
        assert_eq!(next(&seen), stuck, "{seen:?}");
        let begun = SeenLeaf { end: End::Ready, ..copy };
        assert_eq!(next(&Seen { copy: Some(begun), ..seen }), Moving::RemoveEnds, "{seen:?}");
        for there in [
            SeenLeaf { taken: true, ..gone },
            SeenLeaf { stray: true, ..gone },
            SeenLeaf { home: true, ..gone },
            SeenLeaf { volume: Some(KEPT), ..gone },
        ] {
            assert_ne!(next(&Seen { source: Some(there), ..seen }), stuck, "{there:?}");
        }
    }
}

/// A source that somebody has given back is the one that is kept.
#[test]
fn copy_is_said_to_stay_beside_a_source_that_is_back_only_where_calling_the_move_off_leaves_it() {
    let copy =
        SeenLeaf { home: true, whole: true, volume: Some(SeenVolume { lent: false, ..KEPT }), ..SeenLeaf::default() };
    for (returned, told, undone) in [
        (true, SOURCE_IS_GIVEN_BACK, Moving::RemoveCopy),
        (false, SOURCE_IS_BACK, Moving::Stuck(Part::Copy, SOURCE_MAY_BE_OLDER)),
    ] {
        let source = SeenLeaf { volume: Some(SeenVolume { lent: false, returned, ..KEPT }), ..copy };
        let seen = Seen { phase: Phase::Ready, verified: true, ..copying(source, copy) };
        assert_eq!(next(&seen), Moving::Stuck(Part::Source, told));
        assert_eq!(next(&Seen { phase: Phase::Cancelling, ..seen }), undone);
    }
}
