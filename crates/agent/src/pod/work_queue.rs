//! Which pods are to be looked at, and when. One look at a pod at a time: what is heard meanwhile makes another one.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{super::object::Place, AGAIN, MUCH_LATER, PATIENCE};

/// When a pod is to be looked at again, if nothing is heard of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Settled,
    After(Duration),
}

impl Next {
    pub(super) fn sooner(self, other: Self) -> Self {
        match (self, other) {
            (Self::After(one), Self::After(other)) => Self::After(one.min(other)),
            (Self::Settled, next) | (next, Self::Settled) => next,
        }
    }
}

/// How often a pod was looked at in vain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tries {
    /// Looks that have led to another one.
    pub(super) looks: u32,
    /// Of these the last ones, one after another, that have failed.
    pub(super) failures: u32,
}

impl Tries {
    /// Whether the pod is to be told: now and then, since what is told of it is heard of, and has it looked at at once.
    pub(super) fn are_told(self) -> bool {
        self.failures > 0 && self.failures.is_multiple_of(PATIENCE)
    }
}

#[derive(Debug, Default)]
pub(super) struct WorkQueue {
    due: BTreeSet<(Instant, Place)>,
    entries: HashMap<Place, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// None while it is looked at.
    due: Option<Instant>,
    /// It was heard of while it was looked at.
    heard: bool,
    tries: Tries,
}

impl WorkQueue {
    /// Something of it has changed.
    pub(super) fn note(&mut self, place: Place) {
        let now = Instant::now();
        match self.entries.get_mut(&place) {
            Some(Entry { due: None, heard, .. }) => *heard = true,
            Some(Entry { due: Some(due), .. }) if *due <= now => {}
            Some(entry) => {
                let before = entry.due.replace(now);
                if let Some(before) = before {
                    self.due.remove(&(before, place.clone()));
                }
                self.due.insert((now, place));
            }
            None => {
                self.entries.insert(place.clone(), Entry { due: Some(now), heard: false, tries: Tries::default() });
                self.due.insert((now, place));
            }
        }
    }

    /// One that is due, and how often it was looked at in vain.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Place, Tries)> {
        if self.due.first()?.0 > now {
            return None;
        }
        let (_, place) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&place)?;
        entry.due = None;
        Some((place, entry.tries))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Nothing is to be done until it is heard of.
    pub(super) fn settled(&mut self, place: &Place) {
        if self.entries.remove(place).is_some_and(|entry| entry.heard) {
            self.note(place.clone());
        }
    }

    /// It waits for something.
    pub(super) fn again(&mut self, place: Place, pause: Duration) {
        self.later(place, pause, 0);
    }

    /// The look has failed: it is looked at again after a pause that doubles with each that does.
    pub(super) fn failed(&mut self, place: Place) {
        let failures = self.entries.get(&place).map_or(0, |entry| entry.tries.failures);
        let pause = MUCH_LATER.min(AGAIN * 2_u32.saturating_pow(failures));
        self.later(place, pause, failures.saturating_add(1));
    }

    fn later(&mut self, place: Place, pause: Duration, failures: u32) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        let pause = if std::mem::take(&mut entry.heard) { Duration::ZERO } else { pause };
        let due = Instant::now() + pause;
        entry.tries = Tries { looks: entry.tries.looks.saturating_add(1), failures };
        entry.due = Some(due);
        self.due.insert((due, place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    fn take(queue: &mut WorkQueue) -> Option<String> {
        queue.take(Instant::now()).map(|(place, tries)| format!("{} {}", place.name, tries.looks))
    }

    #[test]
    fn sooner_one_counts_and_nothing_is_later_than_any() {
        let [one, other] = [1, 60].map(|seconds| Next::After(Duration::from_secs(seconds)));
        assert_eq!((one.sooner(other), other.sooner(one)), (one, one));
        assert_eq!((other.sooner(Next::Settled), Next::Settled.sooner(other)), (other, other));
        assert_eq!(Next::Settled.sooner(Next::Settled), Next::Settled);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_is_looked_at_once_at_a_time_and_again_when_it_was_heard_of_meanwhile() {
        let mut queue = WorkQueue::default();
        queue.note(place("a"));
        queue.note(place("a"));
        assert_eq!(take(&mut queue).as_deref(), Some("a 0"));
        queue.note(place("a"));
        assert_eq!(take(&mut queue), None);
        queue.settled(&place("a"));
        assert_eq!(take(&mut queue).as_deref(), Some("a 0"));
        queue.settled(&place("a"));
        assert_eq!(queue.due(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_waits_is_looked_at_later_or_when_it_is_heard_of() {
        let mut queue = WorkQueue::default();
        queue.note(place("a"));
        take(&mut queue);
        queue.again(place("a"), Duration::from_secs(5));
        assert_eq!(take(&mut queue), None);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(take(&mut queue).as_deref(), Some("a 1"));
        queue.again(place("a"), Duration::from_secs(5));
        queue.note(place("a"));
        assert_eq!(take(&mut queue).as_deref(), Some("a 2"));
    }

    #[tokio::test(start_paused = true)]
    async fn pod_whose_looks_fail_is_looked_at_less_and_less_until_one_comes_to_something() {
        let mut queue = WorkQueue::default();
        queue.note(place("a"));
        let mut pauses = Vec::new();
        for failures in 0..7 {
            let (place, tries) = queue.take(Instant::now()).unwrap();
            assert_eq!((tries.looks, tries.failures), (failures, failures));
            assert_eq!(tries.are_told(), [3, 6].contains(&failures));
            queue.failed(place);
            let pause = queue.due().unwrap().duration_since(Instant::now());
            pauses.push(pause.as_secs());
            tokio::time::advance(pause).await;
        }
        assert_eq!(pauses, [1, 2, 4, 8, 15, 15, 15]);
        let (place, _) = queue.take(Instant::now()).unwrap();
        queue.again(place, Duration::ZERO);
        let (_, tries) = queue.take(Instant::now()).unwrap();
        assert_eq!((tries.looks, tries.failures), (8, 0));
    }
}
