//! Which pods are to be looked at, and when. One look at a pod at a time: what is heard meanwhile makes another one. Of all looks under way
//! those at one namespace's pods are no more than they leave to all others: whoever has very many pods that wait keeps nobody else's waiting.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{super::object::Place, AGAIN, AT_ONCE, MUCH_LATER, PATIENCE, Pods};

/// Looks at a pod that waits, after which the pause between them doubles.
const STEADY: u32 = 30;

/// Until one that waits for something, most of which a watch tells, is looked at again: whoever has very many that wait for what never comes
/// is not to keep host and member busy.
pub(super) fn pause(looks: u32) -> Duration {
    MUCH_LATER.min(AGAIN * 2_u32.saturating_pow(looks / STEADY))
}

/// Carries out the work on a pod. A long one takes ten times its text and more, and several forms of it are there at the same time: so there is
/// work on one of these alone, and whoever makes very many of them takes no memory from all others.
pub(super) fn in_turn<'a, T>(
    pods: &'a Pods<'_>,
    place: &'a Place,
    work: impl Future<Output = T> + 'a,
) -> impl Future<Output = T> + 'a {
    let work = Box::pin(work);
    async move {
        let is_long = pods.view.pods.kept(place).is_some_and(|pod| pod.is_long())
            || pods.there.kept(place).is_some_and(|copy| copy.is_long());
        // Nobody closes it.
        let _turn = if is_long { pods.view.long_pods.acquire().await.ok() } else { None };
        work.await
    }
}

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
    /// By namespaces.
    due: BTreeMap<String, BTreeSet<(Instant, Place)>>,
    under_way: HashMap<String, usize>,
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
                    self.take_out(before, &place);
                }
                self.put(now, place);
            }
            None => {
                self.entries.insert(place.clone(), Entry { due: Some(now), heard: false, tries: Tries::default() });
                self.put(now, place);
            }
        }
    }

    /// One that is due, and how often it was looked at in vain.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Place, Tries)> {
        let (due, place) = self.first().filter(|(due, _)| *due <= now)?.clone();
        self.take_out(due, &place);
        *self.under_way.entry(place.namespace.clone()).or_default() += 1;
        let entry = self.entries.get_mut(&place)?;
        entry.due = None;
        Some((place, entry.tries))
    }

    /// Of those that may be looked at.
    pub(super) fn due(&self) -> Option<Instant> {
        self.first().map(|(due, _)| *due)
    }

    fn first(&self) -> Option<&(Instant, Place)> {
        let left = AT_ONCE.saturating_sub(self.under_way.values().sum());
        let leaves_enough = |namespace: &str| self.under_way.get(namespace).copied().unwrap_or_default() < left;
        let open = self.due.iter().filter(|(namespace, _)| leaves_enough(namespace));
        open.filter_map(|(_, due)| due.first()).min()
    }

    fn put(&mut self, due: Instant, place: Place) {
        self.due.entry(place.namespace.clone()).or_default().insert((due, place));
    }

    fn take_out(&mut self, due: Instant, place: &Place) {
        if let Some(of_namespace) = self.due.get_mut(&place.namespace) {
            of_namespace.remove(&(due, place.clone()));
            if of_namespace.is_empty() {
                self.due.remove(&place.namespace);
            }
        }
    }

    /// The look at it has ended.
    fn ended(&mut self, place: &Place) {
        let left = self.under_way.remove(&place.namespace).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.under_way.insert(place.namespace.clone(), left);
        }
    }

    /// Nothing is to be done until it is heard of.
    pub(super) fn settled(&mut self, place: &Place) {
        self.ended(place);
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
        self.ended(&place);
        let Some(entry) = self.entries.get_mut(&place) else { return };
        let pause = if std::mem::take(&mut entry.heard) { Duration::ZERO } else { pause };
        let due = Instant::now() + pause;
        entry.tries = Tries { looks: entry.tries.looks.saturating_add(1), failures };
        entry.due = Some(due);
        self.put(due, place);
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
    async fn namespace_has_no_more_looks_under_way_than_it_leaves_to_all_others() {
        let of = |namespace: &str, name: &str| Place { namespace: namespace.to_owned(), name: name.to_owned() };
        let taken = |queue: &mut WorkQueue| queue.take(Instant::now()).map(|(place, _)| place);
        let mut queue = WorkQueue::default();
        (0..AT_ONCE).for_each(|number| queue.note(of("many", &number.to_string())));
        let mut under_way: Vec<Place> = std::iter::from_fn(|| taken(&mut queue)).collect();
        assert_eq!((under_way.len(), queue.due()), (AT_ONCE / 2, None));
        queue.note(of("other", "a"));
        assert_eq!((taken(&mut queue), taken(&mut queue)), (Some(of("other", "a")), None));
        queue.settled(&of("other", "a"));
        queue.again(under_way.pop().unwrap(), Duration::from_secs(5));
        assert!(queue.due().is_some_and(|due| due <= Instant::now()));
        assert_eq!(taken(&mut queue).map(|place| place.namespace).as_deref(), Some("many"));
        assert_eq!((taken(&mut queue), queue.due()), (None, None));
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

    #[test]
    fn pod_that_waits_is_looked_at_each_second_at_first_and_less_and_less_often_then() {
        let pauses: Vec<u64> = (0..200).map(|looks| pause(looks).as_secs()).collect();
        assert_eq!((pauses[0], pauses[29], pauses[30], pauses[60], pauses[90]), (1, 1, 2, 4, 8));
        assert!(pauses.is_sorted() && pauses[120..].iter().all(|pause| *pause == 15));
        assert_eq!(pause(u32::MAX), MUCH_LATER);
    }
}
