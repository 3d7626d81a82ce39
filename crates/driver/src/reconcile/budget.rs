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

    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left == self.most
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

/// Of one volume, whatever of it: who does something to its leaf claim again and again takes no other one's events.
const EVENTS_OF_A_VOLUME: u32 = 10;
const NEXT_EVENT_OF_A_VOLUME: Duration = Duration::from_mins(1);
/// So many of them are remembered.
const VOLUMES: usize = 10_000;

/// One in which all leaves are deleted again and again silences no other.
#[derive(Debug)]
struct MemberBudgets {
    all: Budget,
    members: HashMap<String, Budget>,
}

impl MemberBudgets {
    fn new() -> Self {
        Self { all: Budget::new(EVENTS * OF_ALL, NEXT_EVENT / OF_ALL), members: HashMap::new() }
    }

    fn has_some(&mut self, member: &str, now: Instant) -> bool {
        self.all.has_some(now) && self.own(member).has_some(now)
    }

    fn take(&mut self, member: &str, now: Instant) -> bool {
        self.has_some(member, now) && self.all.take(now) && self.own(member).take(now)
    }

    fn own(&mut self, member: &str) -> &mut Budget {
        self.members.entry(member.to_owned()).or_insert_with(|| Budget::new(EVENTS, NEXT_EVENT))
    }
}

/// Of events about the leaves of each member. What stays as it is until a person acts has its own, which leaves that are deleted and recreated
/// take nothing of; and one volume has so many of both.
#[derive(Debug)]
pub(super) struct LeafEvents {
    stays: MemberBudgets,
    passes: MemberBudgets,
    volumes: HashMap<Box<str>, Budget>,
}

impl LeafEvents {
    pub(super) fn new() -> Self {
        Self { stays: MemberBudgets::new(), passes: MemberBudgets::new(), volumes: HashMap::new() }
    }

    /// Whether something that stays so could be told.
    pub(super) fn has_some(&mut self, member: &str, now: Instant) -> bool {
        self.stays.has_some(member, now)
    }

    /// Whether its own budget would let something of this volume be told.
    pub(super) fn has_some_of(&mut self, volume: &str, now: Instant) -> bool {
        self.volumes.get_mut(volume).is_none_or(|own| own.has_some(now))
    }

    /// `volume`: the UID of the volume of the host that the event is about.
    pub(super) fn take(&mut self, member: &str, volume: &str, reason: &str, now: Instant) -> bool {
        let passes = ["LeafDeleted", "LeafHealed", "LeafReleased"].contains(&reason);
        self.of(passes).has_some(member, now) && self.take_of(volume, now) && self.of(passes).take(member, now)
    }

    fn of(&mut self, passes: bool) -> &mut MemberBudgets {
        if passes { &mut self.passes } else { &mut self.stays }
    }

    fn take_of(&mut self, volume: &str, now: Instant) -> bool {
        if self.volumes.len() >= VOLUMES {
            self.volumes.retain(|_, budget| !budget.is_whole(now));
        }
        // Where no more are remembered, that of the member bounds it.
        if self.volumes.len() >= VOLUMES && !self.volumes.contains_key(volume) {
            return true;
        }
        let own = || Budget::new(EVENTS_OF_A_VOLUME, NEXT_EVENT_OF_A_VOLUME);
        self.volumes.entry(volume.into()).or_insert_with(own).take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn member_has_its_budget_of_events_and_takes_none_of_anothers_until_all_have_had_four_times_that() {
        let (now, mut events) = (Instant::now(), LeafEvents::new());
        let mut taken = |member: &str, now| {
            let volumes = (0..1000).map(|number| format!("{member}-{number}"));
            volumes.filter(|volume| events.take(member, volume, "LeafLost", now)).count()
        };
        for member in ["a", "b", "c", "d"] {
            assert_eq!(taken(member, now), 500, "{member}");
        }
        assert_eq!(taken("e", now), 0);
        assert_eq!(taken("e", now + NEXT_EVENT), 4, "as many as all get back");
        assert_eq!(taken("a", now + NEXT_EVENT * 3), 3, "as many as one gets back");
    }

    #[tokio::test(start_paused = true)]
    async fn what_somebody_does_to_his_claims_takes_no_event_of_another_volume_and_none_of_what_stays_wrong() {
        let (now, mut events) = (Instant::now(), LeafEvents::new());
        let mut taken = |volume: &str, reason| (0..1000).filter(|_| events.take("m", volume, reason, now)).count();
        assert_eq!(taken("his", "LeafDeleted"), 10);
        assert_eq!(taken("his", "LeafHealed"), 0, "it is of one volume");
        assert_eq!(taken("other", "LeafReleased"), 10);
        let of_many: usize = (0..1000).map(|volume| taken(&volume.to_string(), "LeafDeleted")).sum();
        assert_eq!(of_many, 500 - 20, "a member has so many");
        assert_eq!(taken("lost", "LeafLost"), 10);
        assert!(events.has_some("m", now));
    }

    /// He puts a finalizer on his leaf claim and deletes it, takes it off, and again: each time another claim is waited for.
    #[tokio::test(start_paused = true)]
    async fn volume_of_which_something_else_stays_wrong_all_the_time_takes_no_event_of_another() {
        let (now, mut events) = (Instant::now(), LeafEvents::new());
        let mut taken = |volume: &str, reason, now| (0..1000).filter(|_| events.take("m", volume, reason, now)).count();
        assert_eq!(taken("his", "LeafWaits", now), 10);
        assert_eq!(taken("his", "LeafResized", now), 0, "it is of one volume, whatever is told of it");
        assert_eq!(taken("other", "LeafLost", now), 10);
        assert_eq!(taken("his", "LeafWaits", now + NEXT_EVENT_OF_A_VOLUME), 1);
        let later = now + NEXT_EVENT_OF_A_VOLUME;
        assert!(events.has_some("m", later) && events.has_some("another", later));
        assert!(!events.has_some_of("his", later) && events.has_some_of("a third", later));
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
