//! What a member has refused for lack of room, by class and, where it was about one, by node. It is remembered so that
//! the host's scheduler learns of it: it believes what it is told of the capacity, and would choose the same member again.
//! A refusal is forgotten when the member says something new of its capacity, when a volume there goes, or with time.

use std::{collections::BTreeMap, time::Duration};

use tokio::time::Instant;

use super::segment::Segment;

/// Each further refusal within such a time lasts twice as long as the one before.
const FIRST: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_mins(16);
/// A quota is one namespace's, and the others shall not wait for it.
const QUOTA: Duration = Duration::from_secs(10);

/// All refusals of a member that are remembered.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    storage: BTreeMap<(String, Option<String>), RejectedSize>,
    /// By class and node, and by the namespace in which an event says so.
    event: BTreeMap<(String, Option<String>, String), RejectedSize>,
    /// The size refused, and until when that holds, by class.
    quota: BTreeMap<String, (u64, Instant)>,
}

#[derive(Debug)]
struct RejectedSize {
    /// The smallest of the sizes that were refused.
    size: u64,
    until: Instant,
    lasts: Duration,
    /// What the member said of the class when it was first asked afterwards.
    said: Option<Vec<Segment>>,
}

impl RejectedSize {
    /// Whether a further one is not the first.
    fn is_kept(&self, now: Instant) -> bool {
        now < self.until + self.lasts
    }
}

impl Refusals {
    pub(super) fn note(&mut self, class: &str, node: Option<&str>, size: u64, now: Instant) {
        let key = (class.to_owned(), node.map(str::to_owned));
        let before = self.storage.get(&key);
        let lasts = match before {
            Some(before) if before.is_kept(now) => (before.lasts * 2).min(LONGEST),
            _ => FIRST,
        };
        let smallest = before.filter(|before| now < before.until).map_or(size, |before| before.size.min(size));
        self.storage.insert(key, RejectedSize { size: smallest, until: now + lasts, lasts, said: None });
    }

    /// An event says so. Whoever may write events in that namespace may have written it: what is said in one holds for a time, and nothing that
    /// is said there for as long after that.
    pub(super) fn note_event(&mut self, class: &str, node: Option<&str>, namespace: &str, size: u64, now: Instant) {
        self.event.retain(|_, refusal| refusal.is_kept(now));
        let key = (class.to_owned(), node.map(str::to_owned), namespace.to_owned());
        let new = RejectedSize { size, until: now + FIRST, lasts: FIRST, said: None };
        let refusal = self.event.entry(key).or_insert(new);
        refusal.size = refusal.size.min(size);
    }

    pub(super) fn note_quota(&mut self, class: &str, size: u64, now: Instant) {
        self.quota.retain(|_, (_, until)| now < *until);
        let refused = self.quota.entry(class.to_owned()).or_insert((size, now));
        *refused = (refused.0.min(size), now + QUOTA);
    }

    /// The smallest size that is refused now.
    pub(super) fn smallest(&self, class: &str, node: Option<&str>, now: Instant) -> Option<u64> {
        let about = |at: Option<&str>| self.storage.get(&(class.to_owned(), at.map(str::to_owned)));
        let storage = [about(None), node.and_then(|node| about(Some(node)))].into_iter().flatten();
        let is_about =
            |(of, at, _): &(String, Option<String>, String)| of == class && (at.is_none() || at.as_deref() == node);
        let event = self.event.iter().filter(|&(key, _)| is_about(key)).map(|(_, refusal)| refusal);
        let holding = storage.chain(event).filter(|refusal| now < refusal.until).map(|refusal| refusal.size);
        let quota = self.quota.get(class).filter(|(_, until)| now < *until).map(|(size, _)| *size);
        holding.chain(quota).min()
    }

    /// The same on any node.
    pub(super) fn smallest_anywhere(&self, class: &str, now: Instant) -> Option<u64> {
        let storage = self.storage.iter().filter(|((of, _), _)| of == class).map(|(_, refusal)| refusal);
        let event = self.event.iter().filter(|((of, ..), _)| of == class).map(|(_, refusal)| refusal);
        let holding = storage.chain(event).filter(|refusal| now < refusal.until).map(|refusal| refusal.size);
        holding.chain(self.smallest(class, None, now)).min()
    }

    /// The member has told its capacity: what differs from what it said before makes a refusal old.
    pub(super) fn hear(&mut self, said: &BTreeMap<String, Vec<Segment>>, now: Instant) {
        let storage = self.storage.iter_mut().map(|((class, _), refusal)| (class, refusal));
        let event = self.event.iter_mut().map(|((class, ..), refusal)| (class, refusal));
        for (class, refusal) in storage.chain(event) {
            let of_class = said.get(class).cloned().unwrap_or_default();
            match &refusal.said {
                None => refusal.said = Some(of_class),
                Some(before) if *before != of_class => refusal.until = refusal.until.min(now),
                Some(_) => {}
            }
        }
        self.storage.retain(|_, refusal| refusal.is_kept(now));
        self.event.retain(|_, refusal| refusal.is_kept(now));
    }

    /// Something there has gone, and its room is free.
    pub(super) fn forget(&mut self, now: Instant) {
        for refusal in self.storage.values_mut().chain(self.event.values_mut()) {
            refusal.until = refusal.until.min(now);
        }
    }

    /// A volume of this size was made after all.
    pub(super) fn disprove(&mut self, class: &str, size: u64) {
        self.storage.retain(|(of, _), refusal| of != class || refusal.size > size);
        self.event.retain(|(of, ..), refusal| of != class || refusal.size > size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn said(free: u64) -> BTreeMap<String, Vec<Segment>> {
        BTreeMap::from([("fast".to_owned(), vec![Segment { node: None, free, largest: free }])])
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_holds_for_a_time_that_doubles() {
        let mut refusals = Refusals::default();
        for minutes in [1, 2, 4, 8, 16, 16] {
            let now = Instant::now();
            refusals.note("fast", None, 5 * GIB, now);
            let later = |seconds: u64| now + Duration::from_secs(60 * minutes) - Duration::from_secs(1 - seconds);
            assert_eq!(refusals.smallest("fast", None, later(0)), Some(5 * GIB), "{minutes}");
            assert_eq!(refusals.smallest("fast", None, later(1)), None, "{minutes}");
            tokio::time::advance(Duration::from_secs(60 * minutes)).await;
        }
        tokio::time::advance(Duration::from_hours(1)).await;
        let now = Instant::now();
        refusals.note("fast", None, GIB, now);
        assert_eq!(refusals.smallest("fast", None, now + FIRST), None, "after a long peace it begins again");
    }

    /// Whoever may write events in a namespace may have them say it again and again.
    #[tokio::test(start_paused = true)]
    async fn events_of_one_namespace_close_a_class_to_all_every_other_minute_at_most() {
        let (mut refusals, begun) = (Refusals::default(), Instant::now());
        let mut closed = 0;
        for second in 0..600 {
            let now = begun + Duration::from_secs(second);
            refusals.note_event("fast", None, "theirs", 1, now);
            closed += u64::from(refusals.smallest("fast", Some("n1"), now).is_some());
        }
        assert_eq!(closed, 300);
        let now = begun + Duration::from_secs(90);
        let mut refusals = Refusals::default();
        refusals.note_event("fast", None, "theirs", 1, begun);
        assert_eq!(refusals.smallest("fast", None, now), None);
        refusals.note_event("fast", Some("n1"), "ours", GIB, now);
        assert_eq!(
            (refusals.smallest("fast", Some("n1"), now), refusals.smallest("fast", None, now)),
            (Some(GIB), None)
        );
        assert_eq!(refusals.smallest_anywhere("fast", now), Some(GIB), "what others say counts");
    }

    #[tokio::test]
    async fn what_an_event_says_makes_no_refusal_of_the_member_longer_or_smaller_for_good() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.note("fast", None, 5 * GIB, now);
        refusals.note("fast", None, 5 * GIB, now);
        refusals.note_event("fast", None, "theirs", 1, now);
        assert_eq!(refusals.smallest("fast", None, now), Some(1));
        assert_eq!(refusals.smallest("fast", None, now + FIRST), Some(5 * GIB));
        assert_eq!(refusals.smallest("fast", None, now + FIRST * 2), None);
        refusals.note_event("fast", None, "ours", GIB, now);
        refusals.forget(now);
        assert_eq!(refusals.smallest("fast", None, now), None);
    }

    #[tokio::test]
    async fn smallest_size_counts_for_its_class_and_its_node() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.note("fast", None, 5 * GIB, now);
        refusals.note("fast", None, 8 * GIB, now);
        refusals.note("fast", Some("n1"), GIB, now);
        assert_eq!(refusals.smallest("fast", None, now), Some(5 * GIB));
        assert_eq!(refusals.smallest("fast", Some("n1"), now), Some(GIB));
        assert_eq!(refusals.smallest("fast", Some("n2"), now), Some(5 * GIB));
        assert_eq!(refusals.smallest("slow", None, now), None);
        assert_eq!(refusals.smallest_anywhere("fast", now), Some(GIB));
        assert_eq!(refusals.smallest_anywhere("slow", now), None);
    }

    #[tokio::test]
    async fn refusal_is_forgotten_when_the_member_says_something_new() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.note("fast", None, GIB, now);
        refusals.hear(&said(20 * GIB), now);
        refusals.hear(&said(20 * GIB), now);
        assert_eq!(refusals.smallest("fast", None, now), Some(GIB), "it said the same");
        refusals.hear(&said(19 * GIB), now);
        assert_eq!(refusals.smallest("fast", None, now), None);
    }

    #[tokio::test]
    async fn refusal_is_forgotten_when_a_volume_goes_or_one_is_made_after_all() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.note("fast", None, GIB, now);
        refusals.forget(now);
        assert_eq!(refusals.smallest("fast", None, now), None);
        refusals.note("fast", None, GIB, now);
        refusals.disprove("fast", GIB - 1);
        assert_eq!(refusals.smallest("fast", None, now), Some(GIB), "a smaller one proves nothing");
        refusals.disprove("fast", GIB);
        assert_eq!(refusals.smallest("fast", None, now), None);
    }

    #[tokio::test]
    async fn quota_holds_ten_seconds_whatever_happens() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        refusals.note_quota("fast", GIB, now);
        refusals.forget(now);
        assert_eq!(refusals.smallest("fast", None, now + Duration::from_secs(9)), Some(GIB));
        refusals.note_quota("fast", 2 * GIB, now + Duration::from_secs(9));
        assert_eq!(refusals.smallest("fast", None, now + Duration::from_secs(18)), Some(GIB));
        assert_eq!(refusals.smallest("fast", None, now + Duration::from_secs(19)), None);
    }
}
