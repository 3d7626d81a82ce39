//! Every course that a move can take: its own steps, of which one may arrive at any later time, people who use the volume, call the
//! move off or delete the claim, members that do not answer, and movers that fail or lie.

mod gone;
mod restored;
mod world;

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
};

use super::{
    End, HOME_IS_TAKEN, Mark, Moving, Part, Phase, Seen, SeenLeaf, SeenVolume, YARD_IS_TAKEN, forgotten, next,
};
use world::{Bounds, World, essence};

/// More than a move takes when nothing is in its way.
const STEPS: usize = 60;
/// A leaf volume in the yard.
const KEPT: SeenVolume = SeenVolume {
    retained: true,
    lent: true,
    moving: true,
    moved: false,
    returned: false,
    pinned: false,
    remade: false,
    leaving: false,
};

/// All states that are reached and do not go on alike. Only the hash of each is kept, and which step of which other one led to it: they are
/// millions.
struct Search {
    bounds: Bounds,
    from: Vec<(u32, u8)>,
}

impl Search {
    /// All from the first state on, and how so many of them end, undone and done.
    fn play(bounds: Bounds) -> (usize, [usize; 2]) {
        let (first, mut search) = (World::default(), Self { bounds, from: vec![(0, 0)] });
        let (mut known, mut next_ones) = (HashSet::from([hash(&essence(first, bounds))]), VecDeque::from([first]));
        let (mut ends, mut at) = ([0, 0], 0);
        while let Some(world) = next_ones.pop_front() {
            let judged = world.check().and_then(|()| world.left_alone(STEPS));
            let (succeeded, _) = judged.unwrap_or_else(|broken| panic!("{broken}\n{}", search.told(at)));
            ends[usize::from(succeeded)] += 1;
            for (which, (_, next)) in world.moves(bounds).into_iter().enumerate() {
                if known.insert(hash(&essence(next, bounds))) {
                    search.from.push((u32::try_from(at).unwrap(), u8::try_from(which).unwrap()));
                    next_ones.push_back(next);
                }
            }
            at += 1;
        }
        println!("figure: {at} states, of which {ends:?} end undone and done, {bounds:?}");
        (at, ends)
    }

    /// What led to a state.
    fn told(&self, mut at: usize) -> String {
        let mut steps = Vec::new();
        while at > 0 {
            let (before, which) = self.from[at];
            steps.push(usize::from(which));
            at = usize::try_from(before).unwrap();
        }
        let (mut world, mut lines) = (World::default(), Vec::new());
        for which in steps.into_iter().rev() {
            let (what, next) = world.moves(self.bounds).swap_remove(which);
            lines.push(what);
            world = next;
        }
        lines.push(format!("{world:?}"));
        lines.join("\n")
    }
}

/// Of 128 bits: no two of so many have the same one.
fn hash(world: &World) -> u128 {
    let [high, low] = [0_u8, 1].map(|salt| {
        let mut hasher = DefaultHasher::new();
        (salt, world).hash(&mut hasher);
        u128::from(hasher.finish())
    });
    high << 64 | low
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
fn states_that_count_as_one_go_on_alike() {
    let bounds = Bounds { failures: 0, claims: 0, moves: 1, is_used: true, forgets: false };
    let (mut known, mut next_ones) = (HashSet::from([World::default()]), VecDeque::from([World::default()]));
    let mut seen = HashMap::new();
    while let Some(world) = next_ones.pop_front() {
        let moves: Vec<World> = world.moves(bounds).into_iter().map(|(_, next)| next).collect();
        let essences: BTreeSet<u128> = moves.iter().map(|next| hash(&essence(*next, bounds))).collect();
        let judged = (world.check(), world.left_alone(STEPS).map(|(succeeded, _)| succeeded), essences);
        let (first, expected) = seen.entry(hash(&essence(world, bounds))).or_insert_with(|| (world, judged.clone()));
        assert_eq!(judged, *expected, "{first:?}\n{world:?}");
        next_ones.extend(moves.into_iter().filter(|next| known.insert(*next)));
    }
    assert!(seen.len() * 2 < known.len(), "{} of {}", seen.len(), known.len());
}

#[test]
fn every_course_keeps_what_is_promised_and_comes_to_an_end() {
    let bounds = |failures, claims, moves| Bounds { failures, claims, moves, is_used: moves < 2, forgets: false };
    let thorough = [bounds(1, 0, 1), bounds(0, 3, 1), bounds(0, 0, 2)];
    let played = if std::env::var_os("KOSMOS_CSI_THOROUGH").is_some() { &thorough[..] } else { &[bounds(0, 0, 1)] };
    for bounds in played {
        let (states, ends) = Search::play(*bounds);
        assert!(states > 10_000 && ends.iter().all(|count| *count > 1_000), "{ends:?}");
    }
}

/// As the host's administrator says of one that is gone for good. It may answer again after all: as it was, with nothing, or as a backup
/// of before has it.
#[test]
fn every_course_in_which_a_member_is_forgotten_keeps_what_is_promised_and_comes_to_an_end() {
    let bounds = Bounds { failures: 0, claims: 0, moves: 1, is_used: false, forgets: true };
    let (_, ends) = Search::play(bounds);
    assert!(ends.iter().all(|count| *count > 1_000), "{ends:?}");
}

#[test]
fn leaf_whose_move_is_gone_becomes_what_the_hosts_volume_says_it_is() {
    let lent = isolated();
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

/// Where the pods of the host's claim look for it.
fn at_home() -> SeenLeaf {
    SeenLeaf { home: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() }
}

/// In the yard, where nobody has it.
fn isolated() -> SeenLeaf {
    SeenLeaf { yard: true, whole: true, mark: Mark::Isolated, volume: Some(KEPT), ..SeenLeaf::default() }
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

/// Whoever is on call hears of it.
#[test]
fn move_that_finds_the_leaf_of_another_one_among_the_movers_is_stalled_until_that_has_gone() {
    let taken = SeenLeaf { taken: true, ..SeenLeaf::default() };
    let kept = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    for phase in [Phase::Preparing, Phase::Closing, Phase::Waiting, Phase::Isolating, Phase::Copying] {
        let of_copy = Seen { phase, ..copying(kept, taken) };
        assert_eq!(next(&of_copy), Moving::Stuck(Part::Copy, YARD_IS_TAKEN), "{of_copy:?}");
        let of_source = Seen { phase, ..copying(taken, kept) };
        let expected = Moving::Stuck(Part::Source, YARD_IS_TAKEN);
        assert_eq!(next(&of_source) == expected, phase != Phase::Preparing, "{of_source:?}");
        let called_off = Seen { called_off: true, ..of_copy };
        assert_eq!(next(&called_off), Moving::Enter(Phase::Cancelling), "{called_off:?}");
    }
}

/// The host's administrator is told so, before he says that its member is gone for good.
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

/// Of the member's own people, who see its claim where it is placed. They are asked for when the host is to be led there, and not before.
#[test]
fn copy_that_somebody_has_already_is_not_switched_to() {
    let source = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let placed = SeenVolume { lent: false, ..KEPT };
    let copy = SeenLeaf { home: true, whole: true, volume: Some(placed), ..SeenLeaf::default() };
    for (used, may_switch, expected) in [
        (true, true, Moving::Await("pods have the copy already")),
        (true, false, Moving::Await("the switch is not approved yet (spec.approved)")),
        (false, true, Moving::Enter(Phase::Switching)),
    ] {
        let copy = SeenLeaf { used, ..copy };
        let seen = Seen { phase: Phase::Ready, verified: true, may_switch, ..copying(source, copy) };
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// Else nobody would let go of that claim, and it could not be recreated.
#[test]
fn mover_that_keeps_a_claim_which_somebody_deletes_is_ended() {
    let well = SeenLeaf { yard: true, whole: true, end: End::Ready, volume: Some(KEPT), ..SeenLeaf::default() };
    let deleted = SeenLeaf { leaving: true, whole: false, ..well };
    let gone = SeenLeaf { yard: false, whole: false, ..well };
    let waits = Moving::Await("the source is not in namespace kosmos-csi-movers");
    let is_restored = Moving::Await(HOME_IS_TAKEN);
    for (source, expected) in [
        (deleted, Moving::RemoveEnds),
        (SeenLeaf { end: End::Copied(1), ..deleted }, Moving::RemoveEnds),
        (gone, Moving::RemoveEnds),
        (SeenLeaf { end: End::None, ..gone }, waits),
        // Another claim beside it, to which nothing is bound.
        (SeenLeaf { home: true, whole: false, ..well }, is_restored),
        // The same, where the driver has made it.
        (SeenLeaf { stray: true, ..well }, Moving::RemoveSourceStray),
    ] {
        let seen = copying(source, SeenLeaf { end: source.end, ..well });
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}

/// A mover that is begun for such a claim would be ended at once, and begun again.
#[test]
fn receiver_is_begun_once_the_claim_of_its_copy_is_there_to_stay() {
    let well = SeenLeaf { yard: true, whole: true, volume: Some(KEPT), ..SeenLeaf::default() };
    let waits = Moving::Await("the copy's claim is being recreated");
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
            let words = "does not answer: the source there is all that the host has of the data";
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

/// Nobody would give its claim another one.
#[test]
fn copy_that_loses_its_volume_before_anything_is_in_it_is_begun_again() {
    let lost = SeenLeaf { yard: true, lost: true, ..SeenLeaf::default() };
    for (copy, expected) in [
        (SeenLeaf { end: End::Ready, ..lost }, Moving::RemoveEnds),
        (SeenLeaf { end: End::Starting, ..lost }, Moving::RemoveEnds),
        (lost, Moving::RemoveCopy),
        (SeenLeaf::default(), Moving::MakeCopy),
    ] {
        let seen = Seen { phase: Phase::Preparing, ..copying(SeenLeaf::default(), copy) };
        assert_eq!(next(&seen), expected, "{seen:?}");
    }
}
