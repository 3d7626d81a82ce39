//! All of a member's volumes are gone by again and again, evenly: in all members together as many in a time as there are volumes, however
//! many members there are. Pure.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::mixed;

/// Nobody goes by all volumes more often: what has to be quick comes as news.
const ROUND: Duration = Duration::from_mins(10);
/// Before all are gone by at once again, where more has changed than is remembered.
const WHOLE: Duration = Duration::from_secs(10);
/// How many are gone by while others wait.
pub(super) const AT_ONCE: usize = 200;

/// Of one member.
#[derive(Debug)]
pub(super) struct Round {
    /// Members do not take their steps at the same moment.
    phase: Duration,
    /// None: all are to be gone by at once.
    begun: Option<Instant>,
    /// Not before that.
    whole: Option<Instant>,
    /// The handle that was last gone by, and how many were.
    at: Option<Arc<str>>,
    gone_by: usize,
}

impl Round {
    /// The first one goes by all of them at once.
    pub(super) fn of(member: &str) -> Self {
        // Names that differ in their ends alone are far apart then.
        let mixed = u32::try_from(mixed(member).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).unwrap_or_default();
        Self { phase: ROUND / u32::MAX * mixed, begun: None, whole: None, at: None, gone_by: 0 }
    }

    /// Whether none has been gone by yet.
    pub(super) fn is_first(&self) -> bool {
        self.whole.is_none()
    }

    /// Any of them may have changed: all are to be gone by at once. Who has that be so all the time takes no more than his share of it.
    pub(super) fn begin_again(&mut self) {
        (self.begun, self.at, self.gone_by) = (None, None, 0);
    }

    /// The next few of so many; none where it is nobody's turn now. `after`: those that come after one, as many as are wanted.
    pub(super) fn next(
        &mut self,
        now: Instant,
        all: usize,
        after: impl FnOnce(Option<&str>, usize) -> Vec<Arc<str>>,
    ) -> Vec<Arc<str>> {
        let wanted = self.due(now, all).min(AT_ONCE);
        if wanted == 0 {
            return Vec::new();
        }
        let next = after(self.at.as_deref(), wanted);
        if next.len() < wanted {
            if self.begun.is_none() {
                self.whole = Some(now + WHOLE);
            }
            let begun = self.begun.map_or(now, |begun| now.max(begun + ROUND));
            (self.begun, self.at, self.gone_by) = (Some(begun), None, 0);
        } else {
            (self.at, self.gone_by) = (next.last().cloned(), self.gone_by + next.len());
        }
        next
    }

    fn due(&self, now: Instant, all: usize) -> usize {
        let Some(begun) = self.begun else {
            return if self.whole.is_some_and(|whole| now < whole) { 0 } else { usize::MAX };
        };
        let passed = now.saturating_duration_since(begun);
        if passed >= ROUND {
            return usize::MAX;
        }
        let by_now = (all as u128 * passed.as_millis() + self.phase.as_millis()) / ROUND.as_millis();
        usize::try_from(by_now).unwrap_or(usize::MAX).saturating_sub(self.gone_by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: u64 = ROUND.as_secs();

    /// A member with so many volumes.
    struct Gone {
        round: Round,
        all: Vec<Arc<str>>,
    }

    impl Gone {
        fn new(member: usize, volumes: usize) -> Self {
            let name = format!("cluster{member}");
            let all = (0..volumes).map(|volume| format!("{name}/n/c/{volume:06}").into()).collect();
            Self { round: Round::of(&name), all }
        }

        /// Those whose turn it is.
        fn by(&mut self, now: Instant) -> Vec<Arc<str>> {
            let (all, mut gone) = (&self.all, Vec::new());
            loop {
                let next = self.round.next(now, all.len(), |after, count| {
                    let from = after.map_or(0, |after| all.partition_point(|handle| **handle <= *after));
                    all[from..].iter().take(count).cloned().collect()
                });
                if next.is_empty() {
                    return gone;
                }
                gone.extend(next);
            }
        }
    }

    #[test]
    fn every_volume_is_gone_by_once_in_ten_minutes_and_as_many_in_a_second_however_many_members_there_are() {
        const VOLUMES: usize = 3000;
        for members in [1, 60, 1000, VOLUMES] {
            let mut all: Vec<Gone> = (0..members).map(|member| Gone::new(member, VOLUMES / members)).collect();
            let begun = Instant::now();
            let first: usize = all.iter_mut().map(|one| one.by(begun).len()).sum();
            assert_eq!(first, VOLUMES, "{members} members: nothing is known at first");
            for round in 0..2 {
                let (mut gone, mut most) = (Vec::new(), 0);
                for second in 1..=SECONDS {
                    let now = begun + ROUND * round + Duration::from_secs(second);
                    let in_this: Vec<_> = all.iter_mut().flat_map(|one| one.by(now)).collect();
                    most = most.max(in_this.len());
                    gone.extend(in_this);
                }
                let count = gone.len();
                gone.sort();
                gone.dedup();
                assert_eq!((count, gone.len()), (VOLUMES, VOLUMES), "{members} members: each is gone by once");
                assert!(most <= 5 * VOLUMES / 600, "{members} members: {most} in one second");
            }
        }
    }

    #[test]
    fn member_that_was_kept_waiting_makes_up_for_it_and_goes_by_nothing_twice() {
        let (mut member, begun) = (Gone::new(0, 1000), Instant::now());
        assert_eq!(member.by(begun).len(), 1000);
        assert!(member.by(begun).is_empty());
        let half = member.by(begun + ROUND / 2).len();
        assert!((500..=501).contains(&half), "{half}");
        assert_eq!(member.by(begun + ROUND * 3).len(), 1000 - half, "the rest of that round, and no other at once");
        assert!(member.by(begun + ROUND * 3).is_empty());
        member.round.begin_again();
        assert_eq!(member.by(begun + ROUND * 3).len(), 1000, "nothing is known of them any more");
    }

    #[test]
    fn member_of_which_more_changes_all_the_time_than_is_remembered_is_gone_by_at_once_every_ten_seconds() {
        let (mut member, begun) = (Gone::new(0, 1000), Instant::now());
        assert!(member.round.is_first());
        let mut gone = 0;
        for tick in 0..60 {
            member.round.begin_again();
            gone += member.by(begun + Duration::from_secs(tick)).len();
            assert!(!member.round.is_first());
        }
        assert_eq!(gone, 6 * 1000);
        member.round.begin_again();
        assert_eq!(member.by(begun + Duration::from_mins(1)).len(), 1000, "and that is not forgotten");
    }

    #[test]
    fn volumes_that_come_and_go_meanwhile_keep_no_others_from_being_gone_by() {
        let (mut member, begun) = (Gone::new(0, 300), Instant::now());
        member.by(begun);
        let mut gone = member.by(begun + ROUND / 3);
        member.all.drain(..50);
        member.all.push("cluster0/n/d/000000".into());
        gone.extend(member.by(begun + ROUND));
        assert!(member.all.iter().all(|handle| gone.contains(handle)));
    }
}
