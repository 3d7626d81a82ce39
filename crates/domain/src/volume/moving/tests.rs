//! Every course that a move can take: its own steps, of which one may arrive at any later time, people who use the volume, call the
//! move off or delete the claim, members that do not answer, and movers that fail or lie.

mod world;

use std::collections::HashSet;

use super::{
    COPY_IS_FORGOTTEN, COPY_WAS_HAD, End, IS_ALL_THERE_IS, Mark, Moving, Part, Phase, SOURCE_HAS_GONE, SOURCE_IS_BACK,
    SOURCE_IS_FORGOTTEN, SOURCE_IS_GIVEN_BACK, SOURCE_IS_LEAVING, SOURCE_MAY_BE_OLDER, Seen, SeenLeaf, SeenVolume,
    forgotten, next,
};
use world::{Bounds, World};

/// More than a move takes when nothing is in its way.
const STEPS: usize = 60;
/// A leaf volume in the yard.
const KEPT: SeenVolume = SeenVolume {
    retained: true,
    lent: true,
    moving: true,
    moved: false,
    returned: false,
    remade: false,
    leaving: false,
};

/// All states that are reached, in the order in which they are, and from which one each is.
struct Course {
    bounds: Bounds,
    reached: Vec<World>,
    from: Vec<usize>,
}

impl Course {
    /// How so many ended, undone and done.
    fn play(&mut self) -> [usize; 2] {
        let mut known: HashSet<World> = self.reached.iter().copied().collect();
        let (mut ends, mut at) = ([0, 0], 0);
        while let Some(world) = self.reached.get(at).copied() {
            let judged = world.check().and_then(|()| world.left_alone(STEPS));
            let (succeeded, _) = judged.unwrap_or_else(|broken| panic!("{broken}\n{}", self.told(at)));
            ends[usize::from(succeeded)] += 1;
            for (_, next) in world.moves(self.bounds) {
                if known.insert(next) {
                    self.reached.push(next);
                    self.from.push(at);
                }
            }
            at += 1;
        }
        ends
    }

    /// What led to a state.
    fn told(&self, mut at: usize) -> String {
        let mut lines = vec![format!("{:?}", self.reached[at])];
        while at > 0 {
            let (before, after) = (self.reached[self.from[at]], self.reached[at]);
            let what = before.moves(self.bounds).into_iter().find(|(_, next)| *next == after);
            lines.extend(what.map(|(what, _)| what));
            at = self.from[at];
        }
        lines.reverse();
        lines.join("\n")
    }
}

#[test]
fn move_that_nobody_disturbs_goes_by_these_steps() {
    let (succeeded, steps) = World::default().left_alone(STEPS).unwrap();
    let expected = [
        Moving::MakeCopy,
        Moving::StartReceiver,
        Moving::KeepCopy,
        Moving::Enter(Phase::Closing),
        Moving::CloseSource,
        Moving::Enter(Phase::Waiting),
        Moving::IsolateSource,
        Moving::Enter(Phase::Isolating),
        Moving::LendSource,
        Moving::Enter(Phase::Copying),
        Moving::StartSender,
        Moving::NoteVerified,
        Moving::Enter(Phase::Placing),
        Moving::RemoveEnds,
        Moving::PlaceCopy,
        Moving::Enter(Phase::Ready),
        Moving::Enter(Phase::Switching),
        Moving::Replace,
        Moving::Replace,
        Moving::Enter(Phase::Finishing),
        Moving::ReleaseCopy,
        Moving::RetireSource,
        Moving::RemoveYardClaim,
        Moving::Enter(Phase::Succeeded),
    ];
    assert!(succeeded);
    assert_eq!(steps, expected);
}

#[test]
fn every_course_keeps_what_is_promised_and_comes_to_an_end() {
    let bounds = |failures, claims, moves| Bounds { failures, claims, moves, is_used: moves < 2, forgets: false };
    let thorough = [bounds(1, 0, 1), bounds(0, 3, 1), bounds(0, 0, 2)];
    let played = if std::env::var_os("KOSMOS_CSI_THOROUGH").is_some() { &thorough[..] } else { &[bounds(0, 0, 1)] };
    for bounds in played {
        let mut course = Course { bounds: *bounds, reached: vec![World::default()], from: vec![0] };
        let ends = course.play();
        println!("{} states, of which {ends:?} end undone and done, {bounds:?}", course.reached.len());
        assert!(course.reached.len() > 10_000 && ends.iter().all(|count| *count > 1_000), "{ends:?}");
    }
}

/// As whoever administers the host says of one that is gone for good. It may answer again after all: as it was, with nothing, or as a backup
/// of before has it.
#[test]
fn every_course_in_which_a_member_is_forgotten_keeps_what_is_promised_and_comes_to_an_end() {
    let bounds = Bounds { failures: 0, claims: 0, moves: 1, is_used: false, forgets: true };
    let mut course = Course { bounds, reached: vec![World::default()], from: vec![0] };
    let ends = course.play();
    println!("{} states, of which {ends:?} end undone and done, {bounds:?}", course.reached.len());
    assert!(ends.iter().all(|count| *count > 1_000), "{ends:?}");
}

#[test]
fn leaf_whose_move_is_gone_becomes_what_the_hosts_volume_says_it_is() {
    let lent = SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() };
    let back = SeenVolume { lent: false, returned: true, ..KEPT };
    let home = SeenLeaf { home: true, yard: false, volume: Some(back), ..lent };
    let retired = SeenLeaf { volume: Some(SeenVolume { moved: true, ..KEPT }), ..lent };
    let copied = SeenLeaf { end: End::Failed, ..lent };
    for (part, leads_here, leaf, expected) in [
        (Part::IsolatedSource, true, lent, Moving::ReturnSource),
        (Part::IsolatedSource, true, home, Moving::OpenSource),
        (Part::Source, true, SeenLeaf { mark: Mark::None, volume: None, ..home }, Moving::Nothing),
        (Part::IsolatedSource, false, lent, Moving::RetireSource),
        (Part::IsolatedSource, false, retired, Moving::RemoveYardClaim),
        (Part::Source, false, home, Moving::OpenSource),
        (Part::Copy, true, home, Moving::ReleaseCopy),
        (Part::Copy, false, lent, Moving::RemoveCopy),
        (Part::Copy, false, SeenLeaf::default(), Moving::Nothing),
        (Part::Copy, false, copied, Moving::RemoveEnds),
        (Part::IsolatedSource, true, copied, Moving::RemoveEnds),
    ] {
        assert_eq!(forgotten(part, leads_here, &leaf), expected, "{part:?} {leads_here} {leaf:?}");
    }
}

fn copying(source: SeenLeaf, copy: SeenLeaf) -> Seen {
    Seen {
        phase: Phase::Copying,
        called_off: false,
        may_switch: true,
        verified: false,
        switched: false,
        source: Some(source),
        copy: Some(copy),
        source_forgotten: false,
        copy_forgotten: false,
    }
}

/// Whoever administers the host is told so, before he says that its member is gone for good.
#[test]
fn leaf_that_may_be_all_there_is_of_the_data_is_told_by_what_is_seen_of_the_other_one() {
    let source = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let copy = SeenLeaf { home: true, ..source };
    let none = SeenLeaf::default();
    let older = SeenLeaf { volume: Some(SeenVolume { remade: true, ..KEPT }), ..source };
    for phase in [Phase::Ready, Phase::Cancelling] {
        let both = Seen { phase, verified: true, ..copying(source, copy) };
        for (seen, part, expected) in [
            (Seen { source: None, ..both }, Part::Source, false),
            (Seen { source: None, copy: Some(none), ..both }, Part::Source, true),
            (Seen { source: None, copy: None, copy_forgotten: true, ..both }, Part::Source, true),
            (Seen { source: None, verified: false, ..both }, Part::Source, true),
            (Seen { copy: None, ..both }, Part::Copy, false),
            (Seen { copy: None, source: None, source_forgotten: true, ..both }, Part::Copy, true),
            (Seen { copy: None, source: Some(none), ..both }, Part::Copy, true),
            (Seen { copy: None, source: Some(older), ..both }, Part::Copy, true),
            // Half a copy is none.
            (Seen { copy: None, source: None, verified: false, ..both }, Part::Copy, false),
        ] {
            assert_eq!(seen.may_be_all(part), expected, "{part:?} {seen:?}");
        }
    }
}

/// Else nobody would let go of that claim, and it could not be made anew.
#[test]
fn mover_that_keeps_a_claim_which_somebody_deletes_is_ended() {
    let well = SeenLeaf { yard: true, whole: true, end: End::Ready, volume: Some(KEPT), ..SeenLeaf::default() };
    let deleted = SeenLeaf { leaving: true, whole: false, ..well };
    let gone = SeenLeaf { yard: false, whole: false, ..well };
    let waits = Moving::Await("the source is not in the yard");
    let is_restored = Moving::Await("a claim that is where the leaf claim of the source was has to go");
    for (source, expected) in [
        (deleted, Moving::RemoveEnds),
        (SeenLeaf { end: End::Copied(1), ..deleted }, Moving::RemoveEnds),
        (gone, Moving::RemoveEnds),
        (SeenLeaf { end: End::None, ..gone }, waits),
        // Another claim beside it, to which nothing is bound.
        (SeenLeaf { home: true, whole: false, ..well }, is_restored),
    ] {
        let seen = copying(source, SeenLeaf { end: source.end, ..well });
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// A mover that is begun for such a claim would be ended at once, and begun again.
#[test]
fn receiver_is_begun_once_the_claim_of_its_copy_is_there_to_stay() {
    let well = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let waits = Moving::Await("the copy's claim is made anew");
    for (copy, expected) in [
        (well, Moving::StartReceiver),
        (SeenLeaf { leaving: true, whole: false, ..well }, waits),
        (SeenLeaf { yard: false, whole: false, ..well }, waits),
    ] {
        let seen = copying(well, copy);
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// Somebody has deleted it in its member. Another one in its place would be empty.
#[test]
fn copy_that_has_lost_its_volume_is_never_given_out_and_a_person_is_asked_to_act() {
    let source = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    for phase in [Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying, Phase::Placing, Phase::Ready] {
        for (home, yard) in [(false, false), (false, true), (true, false)] {
            let lost = SeenLeaf { home, yard, lost: true, ..SeenLeaf::default() };
            let seen = Seen { phase, verified: true, ..copying(source, lost) };
            assert!(
                matches!(next(&seen), Moving::Stuck(Part::Copy, why) if why.contains("the source is whole")),
                "{seen:?}"
            );
            let both = Seen { source: Some(SeenLeaf { volume: None, ..source }), ..seen };
            assert!(matches!(next(&both), Moving::Stuck(Part::Copy, why) if !why.contains("whole")), "{both:?}");
            let unseen = Seen { source: None, ..seen };
            let words = "does not answer: what is there is all that the host has of the data";
            assert!(matches!(next(&unseen), Moving::Stuck(Part::Copy, why) if why.contains(words)), "{unseen:?}");
            let forgotten = Seen { source_forgotten: true, ..unseen };
            let words = "in a member that the host has forgotten";
            assert!(matches!(next(&forgotten), Moving::Stuck(Part::Copy, why) if why.contains(words)), "{forgotten:?}");
            let copied = SeenLeaf { end: End::Copied(1), ..lost };
            assert_eq!(next(&Seen { copy: Some(copied), ..seen }), Moving::RemoveEnds, "{seen:?}");
            let undone = next(&Seen { called_off: true, ..seen });
            assert_eq!(undone, Moving::Enter(Phase::Cancelling), "{seen:?}");
        }
    }
}

/// What is there stays as it is, whatever it is.
#[test]
fn nothing_is_awaited_of_a_member_of_which_the_host_was_told_that_it_is_gone_for_good() {
    let moving = SeenLeaf { home: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let copy = SeenLeaf { volume: Some(SeenVolume { lent: false, moving: false, ..KEPT }), ..moving };
    let source = SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() };
    let silent = Seen {
        phase: Phase::Finishing,
        called_off: false,
        may_switch: true,
        verified: true,
        switched: true,
        source: None,
        copy: Some(copy),
        source_forgotten: false,
        copy_forgotten: false,
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
    let copy = SeenLeaf { home: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let silent = Seen {
        phase: Phase::Ready,
        called_off: false,
        may_switch: true,
        verified: true,
        switched: false,
        source: None,
        copy: Some(SeenLeaf { volume: Some(SeenVolume { lent: false, ..KEPT }), ..copy }),
        source_forgotten: false,
        copy_forgotten: false,
    };
    let forgotten = Seen { source_forgotten: true, ..silent };
    for (seen, expected) in [
        (silent, Moving::AwaitMember(Part::Source)),
        (forgotten, Moving::Enter(Phase::Switching)),
        (Seen { may_switch: false, ..forgotten }, Moving::Await("the word to switch")),
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
    let copy = SeenLeaf { home: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let source = SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() };
    let silent = Seen {
        phase: Phase::Cancelling,
        called_off: true,
        may_switch: true,
        verified: true,
        switched: false,
        source: None,
        copy: Some(copy),
        source_forgotten: false,
        copy_forgotten: false,
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
    let copy = SeenLeaf { home: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let source = SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() };
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
    let source = SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() };
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

/// Nobody would give its claim another one.
#[test]
fn copy_that_loses_its_volume_before_anything_is_in_it_is_begun_anew() {
    let lost = SeenLeaf { yard: true, lost: true, ..SeenLeaf::default() };
    for (copy, expected) in [
        (SeenLeaf { end: End::Ready, ..lost }, Moving::RemoveEnds),
        (SeenLeaf { end: End::Starting, ..lost }, Moving::RemoveEnds),
        (lost, Moving::RemoveCopy),
        (SeenLeaf::default(), Moving::MakeCopy),
    ] {
        let seen = Seen {
            phase: Phase::Preparing,
            called_off: false,
            may_switch: true,
            verified: false,
            switched: false,
            source: Some(SeenLeaf::default()),
            copy: Some(copy),
            source_forgotten: false,
            copy_forgotten: false,
        };
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}
