//! Which pods are to be looked at, and when. One look at a pod at a time: what is heard meanwhile makes another one.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::super::object::Place;

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
    /// Looks that have led to another one.
    looks: u32,
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
                self.entries.insert(place.clone(), Entry { due: Some(now), heard: false, looks: 0 });
                self.due.insert((now, place));
            }
        }
    }

    /// One that is due, and how often it was looked at in vain.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Place, u32)> {
        if self.due.first()?.0 > now {
            return None;
        }
        let (_, place) = self.due.pop_first()?;
        let entry = self.entries.get_mut(&place)?;
        entry.due = None;
        Some((place, entry.looks))
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

    pub(super) fn again(&mut self, place: Place, pause: Duration) {
        let Some(entry) = self.entries.get_mut(&place) else { return };
        let pause = if std::mem::take(&mut entry.heard) { Duration::ZERO } else { pause };
        let due = Instant::now() + pause;
        entry.looks = entry.looks.saturating_add(1);
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
        queue.take(Instant::now()).map(|(place, looks)| format!("{} {looks}", place.name))
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
}
