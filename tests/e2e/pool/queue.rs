//! Who goes next, and where. Knows no clock and no cluster.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
};

use super::FLEETS;

/// As many as a fleet takes without being late, besides the one that has the node.
const SIDE_BY_SIDE: usize = 2;

/// What a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A fleet with others on it.
    Shared,
    /// Likewise, and the host's real node.
    Node,
    /// A fleet for itself.
    Alone,
    /// Likewise, and a machine on which nothing else happens.
    Quiet,
    /// The clusters of a fleet, without the driver.
    Bare,
    /// A fleet that it starts itself.
    Own,
    /// The release in containers, in the order of these numbers.
    Release(u8),
    /// All others have ended.
    Last,
}

impl Need {
    /// Those of one rank may be on the machine together.
    fn phase(self) -> u8 {
        match self {
            Self::Quiet => 1,
            Self::Last => 2,
            _ => 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Fleet(usize),
    Release,
    Bare,
    Own,
    Nowhere,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fleet(number) => write!(out, "fleet {number}"),
            Self::Release => out.write_str("release"),
            Self::Bare => out.write_str("bare"),
            Self::Own => out.write_str("its own"),
            Self::Nowhere => out.write_str("after all"),
        }
    }
}

pub type Id = usize;

/// Long ones first, longest first; then as the seed has it.
type Rank = (std::cmp::Reverse<u32>, u64, Id);

#[derive(Debug, Default)]
struct Fleet {
    /// Somebody has been here: it is up, or comes up.
    used: bool,
    tests: BTreeMap<Id, Need>,
}

impl Fleet {
    fn has_alone(&self) -> bool {
        self.tests.values().any(|need| !matches!(need, Need::Shared | Need::Node))
    }

    fn takes(&self, need: Need) -> bool {
        let count = |wanted: Need| self.tests.values().filter(|there| **there == wanted).count();
        match need {
            Need::Node => count(Need::Node) == 0,
            _ => count(Need::Shared) < SIDE_BY_SIDE,
        }
    }
}

#[derive(Debug)]
pub struct Queue {
    seed: u64,
    /// Seconds, by the names of tests.
    long: &'static [(&'static str, u32)],
    came: usize,
    waiting: BTreeMap<Rank, Need>,
    running: BTreeMap<Id, (Need, Rank)>,
    fleets: [Fleet; FLEETS],
}

impl Queue {
    pub fn new(seed: u64, long: &'static [(&'static str, u32)]) -> Self {
        Self {
            seed,
            long,
            came: 0,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
            fleets: std::array::from_fn(|_| Fleet::default()),
        }
    }

    pub fn add(&mut self, name: &str, need: Need) -> Id {
        let id = self.came;
        self.came += 1;
        let known = self.long.iter().find(|(long, _)| *long == name).map_or(0, |(_, seconds)| *seconds);
        let mut drawn = DefaultHasher::new();
        (self.seed, name).hash(&mut drawn);
        // The release's tests are one long story; the bare fleet ends with the last that wants it.
        let seconds = if matches!(need, Need::Release(_) | Need::Bare) { u32::MAX } else { known };
        self.waiting.insert((std::cmp::Reverse(seconds), drawn.finish(), id), need);
        id
    }

    /// How many have come so far.
    pub fn came(&self) -> usize {
        self.came
    }

    /// The next test and its place, if one can begin now.
    pub fn next(&self) -> Option<(Id, Place)> {
        let first = self.waiting.values().map(|need| need.phase()).min()?;
        let phase = self.running.values().map(|(need, _)| need.phase()).min();
        // What wants quiet waits for all others, one after the other.
        if phase.is_some_and(|phase| phase != first || phase == Need::Quiet.phase()) {
            return None;
        }
        let ready = self.waiting.iter().filter(|(_, need)| need.phase() == first);
        ready.into_iter().find_map(|((_, _, id), need)| Some((*id, self.place(*need)?)))
    }

    fn place(&self, need: Need) -> Option<Place> {
        match need {
            Need::Shared | Need::Node => {
                let fleet = self.shared()?;
                self.fleets[fleet].takes(need).then_some(Place::Fleet(fleet))
            }
            Need::Alone | Need::Quiet => {
                let shared = self.wants_shared().then(|| self.shared()).flatten();
                let mut free = (0..self.open()).filter(|fleet| self.is_free(*fleet) && Some(*fleet) != shared);
                let up = free.clone().find(|fleet| self.fleets[*fleet].used);
                up.or_else(|| free.next()).map(Place::Fleet)
            }
            Need::Bare | Need::Own => {
                let busy = self.running.values().any(|(need, _)| matches!(need, Need::Bare | Need::Own));
                (!busy).then_some(if need == Need::Bare { Place::Bare } else { Place::Own })
            }
            Need::Release(chapter) => {
                let running = self.running.values().any(|(need, _)| matches!(need, Need::Release(_)));
                let earlier = |need: &Need| matches!(need, Need::Release(other) if *other < chapter);
                (!running && !self.waiting.values().any(earlier)).then_some(Place::Release)
            }
            Need::Last => Some(Place::Nowhere),
        }
    }

    /// How many fleets there may be now: one takes the place of the bare one, and one that of the release. What tests start
    /// themselves is one cluster at a time, but for what `make faults-real` plays alone.
    fn open(&self) -> usize {
        let is_wanted = |wants: fn(&Need) -> bool| usize::from(self.all().any(wants));
        FLEETS - is_wanted(|need| *need == Need::Bare) - is_wanted(|need| matches!(need, Need::Release(_)))
    }

    /// What those need that have not ended.
    fn all(&self) -> impl Iterator<Item = &Need> {
        self.running.values().map(|(need, _)| need).chain(self.waiting.values())
    }

    fn is_free(&self, fleet: usize) -> bool {
        self.fleets[fleet].tests.is_empty()
    }

    fn wants_shared(&self) -> bool {
        self.waiting.values().any(|need| matches!(need, Need::Shared | Need::Node))
    }

    /// The one fleet for tests that run side by side: where some are, or the first that is free.
    fn shared(&self) -> Option<usize> {
        let all = 0..self.open();
        let there = all.clone().find(|fleet| !self.is_free(*fleet) && !self.fleets[*fleet].has_alone());
        there.or_else(|| all.into_iter().find(|fleet| self.is_free(*fleet)))
    }

    /// # Panics
    /// When it does not wait.
    pub fn begin(&mut self, id: Id, place: Place) {
        let rank = *self.waiting.keys().find(|(_, _, waiting)| *waiting == id).unwrap();
        let need = self.waiting.remove(&rank).unwrap();
        self.running.insert(id, (need, rank));
        if let Place::Fleet(fleet) = place {
            self.fleets[fleet].used = true;
            self.fleets[fleet].tests.insert(id, need);
        }
    }

    /// It has begun too early.
    pub fn take_back(&mut self, id: Id) {
        if let Some((need, rank)) = self.running.remove(&id) {
            self.waiting.insert(rank, need);
        }
    }

    pub fn end(&mut self, id: Id, place: Place) {
        self.running.remove(&id);
        if let Place::Fleet(fleet) = place {
            self.fleets[fleet].tests.remove(&id);
        }
    }

    /// Nobody is there any more, and nobody will be: its fleet would only take processors from the others.
    pub fn is_done_with(&self, place: Place) -> bool {
        let wants: fn(&Need) -> bool = match place {
            Place::Bare => |need| *need == Need::Bare,
            Place::Release => |need| matches!(need, Need::Release(_)),
            // What they leave is looked at after all.
            Place::Fleet(_) | Place::Own | Place::Nowhere => return false,
        };
        !self.all().any(wants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(tests: &[(&str, Need)]) -> Queue {
        let mut queue = Queue::new(1, &[("long", 100), ("longer", 200)]);
        for (name, need) in tests {
            queue.add(name, *need);
        }
        queue
    }

    /// Begins all that can.
    fn begun(queue: &mut Queue) -> Vec<(Id, Place)> {
        let mut all = Vec::new();
        while let Some((id, place)) = queue.next() {
            queue.begin(id, place);
            all.push((id, place));
        }
        all
    }

    #[test]
    fn longest_begin_first_and_the_others_as_the_seed_has_it() {
        let names = ["a", "long", "b", "longer", "c"].map(|name| (name, Need::Alone));
        let order = |seed| {
            let mut queue = Queue { seed, ..queue(&[]) };
            for (name, need) in names {
                queue.add(name, need);
            }
            let ranks = queue.waiting.into_keys();
            ranks.map(|(_, _, id)| names[id].0).collect::<Vec<_>>()
        };
        assert_eq!(order(1)[..2], ["longer", "long"]);
        assert_eq!(order(1), order(1));
        assert!((2..20).any(|seed| order(seed) != order(1)));
    }

    #[test]
    fn one_fleet_is_shared_and_the_others_have_one_test_each() {
        let mut queue = queue(&[("a", Need::Alone), ("b", Need::Alone), ("c", Need::Alone), ("d", Need::Alone)]);
        for name in ["e", "f", "g"] {
            queue.add(name, Need::Shared);
        }
        queue.add("h", Need::Node);
        queue.add("i", Need::Node);
        let begun = begun(&mut queue);
        let on = |fleet| begun.iter().filter(|(_, place)| *place == Place::Fleet(fleet)).count();
        let mut counts: Vec<usize> = (0..FLEETS).map(on).collect();
        counts.sort_unstable();
        let others = [1; FLEETS - 1];
        assert_eq!(counts, [&others[..], &[SIDE_BY_SIDE + 1]].concat());
    }

    #[test]
    fn last_fleets_take_the_places_of_the_bare_one_and_of_the_release() {
        for ends in [[0, 1], [1, 0]] {
            let mut queue = queue(&[("a", Need::Bare), ("b", Need::Release(0))]);
            for name in ["c", "d", "e", "f", "g"] {
                queue.add(name, Need::Alone);
            }
            assert_eq!(begun(&mut queue).len(), FLEETS);
            for (id, fleet) in ends.into_iter().zip(FLEETS - 2..) {
                queue.end(id, if id == 0 { Place::Bare } else { Place::Release });
                assert_eq!(
                    begun(&mut queue).iter().map(|(_, place)| *place).collect::<Vec<_>>(),
                    [Place::Fleet(fleet)]
                );
            }
        }
    }

    #[test]
    fn all_fleets_are_there_beside_a_cluster_that_a_test_starts_itself() {
        let mut queue = queue(&[("a", Need::Own), ("b", Need::Own)]);
        for number in 0..FLEETS {
            queue.add(&format!("alone {number}"), Need::Alone);
        }
        assert_eq!(begun(&mut queue).len(), FLEETS + 1);
    }

    #[test]
    fn shared_fleet_is_for_one_alone_once_nobody_shares_it() {
        let mut queue = queue(&[("a", Need::Shared)]);
        let (id, place) = queue.next().unwrap();
        queue.begin(id, place);
        let alone = queue.add("b", Need::Alone);
        let (_, elsewhere) = queue.next().unwrap();
        assert_ne!(elsewhere, place);
        queue.end(id, place);
        assert_eq!(queue.next(), Some((alone, place)), "a fleet that is up rather than a new one");
    }

    #[test]
    fn quiet_is_for_one_test_when_all_others_have_ended() {
        let mut queue = queue(&[("a", Need::Quiet), ("b", Need::Quiet), ("c", Need::Own)]);
        queue.add("d", Need::Last);
        queue.add("e", Need::Last);
        let first = begun(&mut queue);
        assert_eq!(first, [(2, Place::Own)]);
        queue.end(2, Place::Own);
        let [(id, place)] = begun(&mut queue)[..] else { panic!() };
        assert!(id < 2);
        queue.end(id, place);
        let [(other, place)] = begun(&mut queue)[..] else { panic!() };
        assert_eq!(other, 1 - id);
        queue.end(other, place);
        let mut last = begun(&mut queue);
        last.sort_unstable_by_key(|(id, _)| *id);
        assert_eq!(last, [(3, Place::Nowhere), (4, Place::Nowhere)], "they only read");
    }

    #[test]
    fn release_is_told_chapter_by_chapter() {
        let mut queue = queue(&[("c", Need::Release(2)), ("a", Need::Release(0)), ("b", Need::Release(1))]);
        for expected in [1, 2, 0] {
            assert_eq!(begun(&mut queue), [(expected, Place::Release)]);
            queue.end(expected, Place::Release);
        }
    }

    #[test]
    fn fleet_that_nobody_wants_any_more_can_end() {
        let mut queue = queue(&[("a", Need::Bare), ("b", Need::Bare), ("c", Need::Shared)]);
        queue.begin(0, Place::Bare);
        queue.end(0, Place::Bare);
        assert!(!queue.is_done_with(Place::Bare), "one waits");
        queue.begin(1, Place::Bare);
        assert!(!queue.is_done_with(Place::Bare), "one is there");
        queue.end(1, Place::Bare);
        assert!(queue.is_done_with(Place::Bare));
        queue.begin(2, Place::Fleet(0));
        queue.end(2, Place::Fleet(0));
        assert!(!queue.is_done_with(Place::Fleet(0)), "the last test reads what was done there");
    }

    #[test]
    fn every_test_begins_once_whatever_the_seed() {
        let needs =
            [Need::Shared, Need::Node, Need::Alone, Need::Quiet, Need::Bare, Need::Own, Need::Release(1), Need::Last];
        for seed in 0..50 {
            let mut queue = Queue { seed, ..queue(&[]) };
            let all: Vec<Id> = (0..70).map(|id: usize| queue.add(&format!("t{id}"), needs[id % needs.len()])).collect();
            let (mut ended, mut running) = (Vec::new(), Vec::new());
            while ended.len() < all.len() {
                running.extend(begun(&mut queue));
                assert!(!running.is_empty(), "seed {seed}: {queue:?}");
                let at = (usize::try_from(seed).unwrap() * 7 + ended.len()) % running.len();
                let (id, place) = running.remove(at);
                queue.end(id, place);
                ended.push(id);
            }
            ended.sort_unstable();
            assert_eq!(ended, all);
        }
    }
}
