//! How much may still be done of what members can bring about as often as they like.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

/// So much at once, and each further one after a while.
#[derive(Debug)]
pub(super) struct Budget {
    most: u32,
    refill: Duration,
    left: u32,
    as_of: Instant,
}

impl Budget {
    pub(super) fn new(most: u32, refill: Duration) -> Self {
        Self { most, refill, left: most, as_of: Instant::now() }
    }

    /// Whether one could be taken.
    pub(super) fn has_some(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left > 0
    }

    pub(super) fn take(&mut self, now: Instant) -> bool {
        let some = self.has_some(now);
        self.left -= u32::from(some);
        some
    }

    fn refill(&mut self, now: Instant) {
        let more = now.saturating_duration_since(self.as_of).as_millis() / self.refill.as_millis();
        let more = u32::try_from(more).unwrap_or(self.most).min(self.most);
        if more > 0 {
            self.left = (self.left + more).min(self.most);
            self.as_of = now;
        }
    }
}

/// Events about leaves of one member at once, and each further one after so long.
const EVENTS: u32 = 500;
const NEXT_EVENT: Duration = Duration::from_millis(500);
/// All members together have so many times that.
const OF_ALL: u32 = 4;

/// Of events about the leaves of each member: one in which all leaves are deleted again and again silences no other.
#[derive(Debug)]
pub(super) struct LeafEvents {
    all: Budget,
    members: HashMap<String, Budget>,
}

impl LeafEvents {
    pub(super) fn new() -> Self {
        Self { all: Budget::new(EVENTS * OF_ALL, NEXT_EVENT / OF_ALL), members: HashMap::new() }
    }

    pub(super) fn take(&mut self, member: &str, now: Instant) -> bool {
        let own = || Budget::new(EVENTS, NEXT_EVENT);
        let own = self.members.entry(member.to_owned()).or_insert_with(own);
        own.has_some(now) && self.all.take(now) && own.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn member_has_its_budget_of_events_and_takes_none_of_anothers_until_all_have_had_four_times_that() {
        let (now, mut events) = (Instant::now(), LeafEvents::new());
        let mut taken = |member: &str, now| (0..1000).filter(|_| events.take(member, now)).count();
        for member in ["a", "b", "c", "d"] {
            assert_eq!(taken(member, now), 500, "{member}");
        }
        assert_eq!(taken("e", now), 0);
        assert_eq!(taken("e", now + NEXT_EVENT), 4, "as many as all get back");
        assert_eq!(taken("a", now + NEXT_EVENT * 3), 3, "as many as one gets back");
    }

    #[tokio::test(start_paused = true)]
    async fn budget_comes_back_slowly_and_is_never_more_than_at_first() {
        let (now, refill) = (Instant::now(), Duration::from_millis(500));
        let mut budget = Budget::new(150, refill);
        let mut taken = |now| (0..1000).filter(|_| budget.take(now)).count();
        assert_eq!(taken(now), 150);
        assert_eq!(taken(now + refill - Duration::from_millis(1)), 0);
        assert_eq!(taken(now + refill * 3), 3);
        assert_eq!(taken(now + refill * 100_000), 150);
        let later = now + refill * 100_001;
        assert!(!budget.has_some(now + refill * 100_000) && budget.has_some(later) && budget.has_some(later));
        assert!(budget.take(later) && !budget.has_some(later));
    }
}
