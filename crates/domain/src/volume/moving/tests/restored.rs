//! Members that were restored from a backup, in place: what is there is as it was before, or another volume has the name. And the host, which
//! says then that a move is less far than it is.

use super::{
    super::{
        COPY_IS_FURTHER, COPY_IS_ORDINARY, COPY_MAY_BE_OLDER, End, HOME_IS_TAKEN, IS_ALL_THERE_IS, Mark, Moving, Part,
        Phase, SOURCE_HAS_GONE, Seen, SeenLeaf, SeenVolume, forgotten, next,
    },
    KEPT, copying,
};

const LENT: SeenLeaf = SeenLeaf {
    home: false,
    yard: true,
    whole: true,
    leaving: false,
    stray: false,
    taken: false,
    lost: false,
    ordinary: false,
    had: false,
    mark: Mark::Isolated,
    used: false,
    volume: Some(KEPT),
    end: End::None,
};
const PLACED: SeenVolume = SeenVolume { lent: false, ..KEPT };

fn with(volume: SeenVolume) -> SeenLeaf {
    SeenLeaf { volume: Some(volume), ..LENT }
}

/// Nobody knows what is in it, or it goes with its claim.
#[test]
fn copy_that_is_not_as_its_move_has_left_it_is_given_to_nobody_and_a_person_is_asked_to_act() {
    let remade = SeenVolume { remade: true, ..KEPT };
    let leaving = SeenVolume { leaving: true, ..KEPT };
    let of_before = SeenVolume { retained: false, lent: false, moving: false, ..KEPT };
    for phase in [Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying, Phase::Placing, Phase::Ready] {
        for copy in [remade, leaving, of_before, SeenVolume { lent: false, ..remade }] {
            let seen = Seen { phase, verified: phase >= Phase::Placing, ..copying(LENT, with(copy)) };
            let tells = |seen: &Seen, words: &str| {
                assert!(matches!(next(seen), Moving::Stuck(Part::Copy, why) if why.contains(words)), "{seen:?}");
            };
            tells(&seen, "The source is whole");
            tells(&Seen { source: Some(SeenLeaf { volume: None, ..LENT }), ..seen }, "is not there either");
            tells(&Seen { source: None, ..seen }, "Do not forget that member");
            tells(&Seen { source: None, source_forgotten: true, ..seen }, "look at what the copy holds");
            let copied = SeenLeaf { end: End::Ready, ..with(copy) };
            assert_eq!(next(&Seen { copy: Some(copied), ..seen }), Moving::RemoveEnds, "{seen:?}");
            let undone = next(&Seen { called_off: true, ..seen });
            assert_eq!(undone, Moving::Enter(Phase::Cancelling), "{seen:?}");
        }
    }
}

/// What was copied since the backup is not in it, perhaps.
#[test]
fn copy_that_is_among_the_movers_again_is_not_switched_to() {
    let ready = Seen { phase: Phase::Ready, verified: true, ..copying(LENT, LENT) };
    assert!(matches!(next(&ready), Moving::Stuck(Part::Copy, why) if why.contains("restored from a backup")));
    let placing = Seen { phase: Phase::Placing, ..ready };
    assert_eq!(next(&placing), Moving::PlaceCopy);
    let placed = SeenLeaf { home: true, yard: false, ..with(PLACED) };
    assert_eq!(next(&Seen { copy: Some(placed), ..ready }), Moving::Enter(Phase::Switching));
}

/// It may be all that there is, also where it says no more that it is the copy. One that came late is on no record.
#[test]
fn copy_on_record_that_was_verified_is_removed_only_while_its_source_is_seen_to_be_what_it_was() {
    let of_before = SeenVolume { retained: false, lent: false, moving: false, ..KEPT };
    let on_record = SeenVolume { pinned: true, ..of_before };
    let remade = SeenVolume { remade: true, ..KEPT };
    let older = Moving::Stuck(Part::Copy, COPY_MAY_BE_OLDER);
    for (copy, source, source_forgotten, expected) in [
        (on_record, Some(LENT), false, Moving::RemoveCopy),
        (on_record, Some(SeenLeaf::default()), false, Moving::Stuck(Part::Copy, SOURCE_HAS_GONE)),
        (on_record, None, false, Moving::AwaitMember(Part::Source)),
        (on_record, None, true, Moving::Stuck(Part::Copy, IS_ALL_THERE_IS)),
        (of_before, Some(SeenLeaf::default()), false, Moving::RemoveCopy),
        (remade, Some(LENT), false, Moving::RemoveCopy),
        (remade, Some(SeenLeaf::default()), false, older),
        (remade, Some(with(remade)), false, older),
        (remade, None, false, Moving::AwaitMember(Part::Source)),
        (remade, None, true, older),
    ] {
        let undone = Seen { phase: Phase::Cancelling, called_off: true, verified: true, ..copying(LENT, with(copy)) };
        let seen = Seen { source, source_forgotten, ..undone };
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

#[test]
fn source_is_said_to_be_all_there_may_be_where_the_copy_is_not_as_it_was_left() {
    let remade = with(SeenVolume { remade: true, ..KEPT });
    let seen = Seen { phase: Phase::Ready, verified: true, source: None, ..copying(LENT, remade) };
    assert!(seen.may_be_all(Part::Source) && !Seen { copy: Some(LENT), ..seen }.may_be_all(Part::Source));
}

/// Pods may have it again. It would be waited for for ever, and they would write on what was to be copied.
#[test]
fn source_that_is_as_before_it_was_closed_is_closed_and_waited_for_again() {
    let home = SeenLeaf { home: true, yard: false, ..with(SeenVolume { lent: false, retained: false, ..KEPT }) };
    let open = SeenLeaf { mark: Mark::None, ..home };
    let closed = SeenLeaf { mark: Mark::Closed, ..home };
    for phase in [Phase::Isolating, Phase::Copying] {
        let seen = |source: SeenLeaf| Seen { phase, ..copying(source, LENT) };
        assert_eq!(next(&seen(open)), Moving::CloseSource, "{phase:?}");
        assert_eq!(next(&seen(closed)), Moving::Enter(Phase::Waiting), "{phase:?}");
    }
    let begun = SeenLeaf { end: End::Ready, ..LENT };
    let seen = Seen { phase: Phase::Copying, ..copying(open, begun) };
    assert_eq!(next(&seen), Moving::RemoveEnds);
    // It is on its way there.
    assert_eq!(next(&Seen { phase: Phase::Isolating, ..copying(home, LENT) }), Moving::LendSource);
    // Nor has whoever took its claim away by force ended its pods.
    let forced = SeenLeaf { home: false, ..open };
    assert_eq!(next(&Seen { phase: Phase::Isolating, ..copying(forced, LENT) }), Moving::CloseSource);
}

/// Where nobody but movers is, no pod finds it.
#[test]
fn copy_that_the_host_leads_to_is_brought_home_from_among_the_movers() {
    let coming = with(PLACED);
    let home = SeenLeaf { home: true, yard: false, ..coming };
    let waits = Moving::Await("the copy's leaf claim is being made where pods look for it");
    // Of before it was kept. One that came late is on no record.
    let unkept = with(SeenVolume { retained: false, lent: false, moving: false, pinned: true, ..KEPT });
    for (copy, expected) in [
        (SeenLeaf { end: End::Failed, ..LENT }, Moving::RemoveEnds),
        (LENT, Moving::PlaceCopy),
        (SeenLeaf { end: End::Failed, ..unkept }, Moving::RemoveEnds),
        (unkept, Moving::KeepCopy),
        (coming, waits),
        (home, Moving::ReleaseCopy),
    ] {
        let seen = Seen { phase: Phase::Finishing, verified: true, switched: true, ..copying(LENT, copy) };
        assert_eq!(next(&seen), expected, "{seen:?}");
        assert_eq!(forgotten(Part::Copy, true, &copy), expected, "{copy:?}");
    }
}

/// It would be waited for for ever: its claim comes home only once its move says so.
#[test]
fn source_that_is_lent_although_its_move_says_less_is_not_waited_for_to_come_home() {
    let before = |phase: Phase, source: SeenLeaf| next(&Seen { phase, ..copying(source, LENT) });
    assert_eq!(before(Phase::Closing, LENT), Moving::Enter(Phase::Waiting));
    assert_eq!(before(Phase::Waiting, LENT), Moving::Enter(Phase::Isolating));
    assert_eq!(before(Phase::Isolating, LENT), Moving::Enter(Phase::Copying));
    let used = SeenLeaf { home: true, yard: false, used: true, ..LENT };
    assert_eq!(before(Phase::Waiting, used), Moving::Await("pods use the volume"));
}

/// Another one would be made beside it again and again, or nothing be done without a word; and pods may have written on it.
#[test]
fn copy_that_was_placed_although_its_move_says_less_is_not_written() {
    let placed = SeenLeaf { home: true, yard: false, ..with(PLACED) };
    for phase in [Phase::Preparing, Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying] {
        for copy in [placed, SeenLeaf { home: false, whole: false, ..placed }] {
            let seen = Seen { phase, ..copying(LENT, copy) };
            assert_eq!(next(&seen), Moving::Stuck(Part::Copy, COPY_IS_FURTHER), "{seen:?}");
            let begun = SeenLeaf { end: End::Ready, ..copy };
            assert_eq!(next(&Seen { copy: Some(begun), ..seen }), Moving::RemoveEnds, "{seen:?}");
        }
    }
    let verified = Seen { verified: true, ..copying(LENT, placed) };
    assert_eq!(next(&verified), Moving::Enter(Phase::Placing));
}

/// It would be said to be gone, and the source to be whole, which is older.
#[test]
fn copy_that_is_an_ordinary_leaf_already_although_its_move_says_less_is_said_to_be_one() {
    let ordinary = SeenLeaf { ordinary: true, ..SeenLeaf::default() };
    let early = [Phase::Preparing, Phase::Closing, Phase::Waiting, Phase::Isolating];
    for phase in early.into_iter().chain([Phase::Copying, Phase::Placing, Phase::Ready]) {
        for source in [Some(LENT), Some(SeenLeaf::default()), None] {
            let seen = Seen { phase, verified: phase >= Phase::Placing, source, ..copying(LENT, ordinary) };
            assert_eq!(next(&seen), Moving::Stuck(Part::Copy, COPY_IS_ORDINARY), "{seen:?}");
            let undone = Seen { phase: Phase::Cancelling, called_off: true, ..seen };
            assert!(![Moving::RemoveCopy, Moving::RemoveEnds].contains(&next(&undone)), "{undone:?}");
        }
    }
    let begun = SeenLeaf { end: End::Ready, ..LENT };
    assert_eq!(next(&copying(begun, ordinary)), Moving::RemoveEnds);
    let over = Seen { phase: Phase::Finishing, verified: true, switched: true, ..copying(LENT, ordinary) };
    assert_eq!(next(&over), Moving::RetireSource);
}

/// It was verified, or it would not be there; and never are both where pods look for one.
#[test]
fn copy_that_was_placed_goes_before_its_source_comes_home_and_not_where_it_may_be_all_there_is() {
    let placed = SeenLeaf { home: true, yard: false, ..with(PLACED) };
    let given_up = SeenLeaf { volume: Some(SeenVolume { retained: false, moving: false, ..PLACED }), ..placed };
    for copy in [placed, SeenLeaf { home: false, ..placed }, given_up] {
        let undone = Seen { phase: Phase::Cancelling, called_off: true, ..copying(LENT, copy) };
        assert_eq!(next(&undone), Moving::RemoveCopy, "{undone:?}");
    }
    let undone = Seen { phase: Phase::Cancelling, called_off: true, ..copying(LENT, placed) };
    let silent = Seen { source: None, ..undone };
    for (seen, expected) in [
        (silent, Moving::AwaitMember(Part::Source)),
        (Seen { source_forgotten: true, ..silent }, Moving::Stuck(Part::Copy, IS_ALL_THERE_IS)),
        (Seen { source: Some(SeenLeaf::default()), ..undone }, Moving::Stuck(Part::Copy, SOURCE_HAS_GONE)),
        // Half a copy is none.
        (Seen { copy: Some(LENT), ..undone }, Moving::ReturnSource),
    ] {
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

#[test]
fn claim_that_is_where_that_of_the_source_was_is_named_as_what_keeps_a_move_from_its_switch() {
    let placed = SeenLeaf { home: true, yard: false, ..with(PLACED) };
    let ready = Seen { phase: Phase::Ready, verified: true, ..copying(SeenLeaf { home: true, ..LENT }, placed) };
    assert_eq!(next(&ready), Moving::Await(HOME_IS_TAKEN));
    let came_late = Seen { source: Some(SeenLeaf { stray: true, ..LENT }), ..ready };
    assert_eq!(next(&came_late), Moving::RemoveSourceStray);
}
