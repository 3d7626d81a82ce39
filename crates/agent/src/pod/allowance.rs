//! How often something that a member decides on is done: so many times at once, and then once in a while.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::super::object::Place;

#[derive(Debug)]
pub(super) struct Allowance {
    most: u32,
    more_after: Duration,
    left: u32,
    since: Instant,
}

impl Allowance {
    pub(super) fn new(most: u32, more_after: Duration, now: Instant) -> Self {
        Self { most, more_after, left: most, since: now }
    }

    pub(super) fn left(&mut self, now: Instant) -> u32 {
        let earned = now.duration_since(self.since).as_millis() / self.more_after.as_millis();
        let earned = u32::try_from(earned).unwrap_or(self.most).min(self.most);
        self.since = if self.left + earned >= self.most { now } else { self.since + self.more_after * earned };
        self.left = (self.left + earned).min(self.most);
        self.left
    }

    /// Nothing of it is used.
    pub(super) fn is_whole(&mut self, now: Instant) -> bool {
        self.left(now) >= self.most
    }

    pub(super) fn take(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Until it may be done; none where it may be now.
    fn wait(&mut self, now: Instant) -> Option<Duration> {
        (self.left(now) == 0).then(|| (self.since + self.more_after).saturating_duration_since(now))
    }
}

/// How often the host is told of a pod. A copy may say something else all the time, and each time the host writes the whole pod.
const AT_ONCE: u32 = 20;
const ONE_MORE: Duration = Duration::from_secs(10);

/// When the host may be told again of each pod.
#[derive(Debug, Default)]
pub(crate) struct Tellings(Mutex<HashMap<Place, Allowance>>);

impl Tellings {
    /// How long that is still to be waited for; where it is not, it is counted.
    pub(super) fn wait(&self, place: &Place) -> Option<Duration> {
        let (now, mut all) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if all.len() == all.capacity() {
            all.retain(|_, allowance| !allowance.is_whole(now));
        }
        let allowance = all.entry(place.clone()).or_insert_with(|| Allowance::new(AT_ONCE, ONE_MORE, now));
        let wait = allowance.wait(now);
        if wait.is_none() {
            allowance.take();
        }
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pod_is_told_of_at_once_some_times_and_then_once_in_a_while() {
        let (tellings, begun, mut told) = (Tellings::default(), Instant::now(), Vec::new());
        let place = |name: &str| Place { namespace: "shop".to_owned(), name: name.to_owned() };
        while begun.elapsed() < ONE_MORE * 3 {
            match tellings.wait(&place("a")) {
                None => told.push(begun.elapsed()),
                Some(wait) => tokio::time::advance(wait).await,
            }
        }
        assert_eq!(told.len(), 22);
        assert_eq!(told[19..], [Duration::ZERO, ONE_MORE, ONE_MORE * 2]);
        assert_eq!(tellings.wait(&place("b")), None, "another pod has its own");
    }
}
