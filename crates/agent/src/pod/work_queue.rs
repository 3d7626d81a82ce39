//! Which pods are to be looked at, and when. One look at a pod at a time: what is heard meanwhile makes another one. Of all looks under way
//! those at one namespace's pods are no more than they leave to all others: whoever has very many pods that wait keeps nobody else's waiting.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use tokio::time::Instant;

use super::{super::object::Place, AGAIN, AT_ONCE, MUCH_LATER, PATIENCE, Pods};

/// Long pods of a member that are worked on or wait for their turn: one of a namespace, and one of another. They take no place of all others, and
/// those of all members wait for one turn.
const LONG_AT_ONCE: usize = 2;

/// Looks at a pod that waits, after which the pause between them doubles.
const STEADY: u32 = 30;

/// Until one that waits for something, most of which a watch tells, is looked at again: whoever has very many that wait for what never comes
/// is not to keep host and member busy.
pub(super) fn pause(looks: u32) -> Duration {
    MUCH_LATER.min(AGAIN * 2_u32.saturating_pow(looks / STEADY))
}

/// Carries out the work on a pod. A long one may take fifty times its text, and several forms of it are there at the same time: so there is
/// work on one of these alone, and whoever makes very many of them takes no memory from all others.
pub(super) fn in_turn<'a, T>(
    pods: &'a Pods<'_>,
    place: &'a Place,
    work: impl Future<Output = T> + 'a,
) -> impl Future<Output = T> + 'a {
    let work = Box::pin(work);
    async move {
        // Nobody closes it.
        let _turn = if is_long(pods, place) { pods.view.long_pods.acquire().await.ok() } else { None };
        work.await
    }
}

pub(super) fn is_long(pods: &Pods<'_>, place: &Place) -> bool {
    pods.view.pods.kept(place).is_some_and(|pod| pod.is_long())
        || pods.there.kept(place).is_some_and(|copy| copy.is_long())
}

pub(super) fn note_all(pods: &Pods<'_>, queue: &mut WorkQueue<'_>) {
    let copies = pods.there.kept_of(&pods.host.id.0).into_iter().map(|(place, _)| place);
    let ours = pods.view.kept_pods_for(&pods.member.name).into_iter().map(|(place, _)| place);
    ours.chain(copies).for_each(|place| queue.note(place));
}

/// Pods that wait for a volume on that node.
pub(super) fn note_attached(pods: &Pods<'_>, queue: &mut WorkQueue<'_>, node: &Place) {
    let on_it = pods.view.pods.kept_of(&node.name).into_iter();
    for (place, _) in on_it.filter(|(place, pod)| pod.waits_for_volume() && !pods.there.has(place)) {
        queue.note(place);
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

pub(super) struct WorkQueue<'a> {
    is_long: &'a (dyn Fn(&Place) -> bool + Sync),
    short: Lane,
    long: Lane,
    entries: HashMap<Place, Entry>,
}

/// Of pods that are all long, or all not.
#[derive(Debug)]
struct Lane {
    /// Looks that may be under way.
    at_once: usize,
    /// By namespaces.
    due: BTreeMap<String, BTreeSet<(Instant, Place)>>,
    under_way: HashMap<String, usize>,
}

#[derive(Debug)]
struct Entry {
    /// None while it is looked at.
    due: Option<Instant>,
    /// In which lane it was put.
    is_long: bool,
    /// It was heard of while it was looked at.
    heard: bool,
    tries: Tries,
}

impl Lane {
    fn new(at_once: usize) -> Self {
        Self { at_once, due: BTreeMap::new(), under_way: HashMap::new() }
    }

    fn first(&self) -> Option<&(Instant, Place)> {
        let left = self.at_once.saturating_sub(self.under_way.values().sum());
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

    /// The look at it has begun.
    fn begun(&mut self, place: &Place) {
        *self.under_way.entry(place.namespace.clone()).or_default() += 1;
    }

    fn ended(&mut self, place: &Place) {
        let left = self.under_way.remove(&place.namespace).unwrap_or_default().saturating_sub(1);
        if left > 0 {
            self.under_way.insert(place.namespace.clone(), left);
        }
    }
}

impl<'a> WorkQueue<'a> {
    pub(super) fn new(is_long: &'a (dyn Fn(&Place) -> bool + Sync)) -> Self {
        let (short, long) = (Lane::new(AT_ONCE), Lane::new(LONG_AT_ONCE));
        Self { is_long, short, long, entries: HashMap::new() }
    }

    /// Something of it has changed.
    pub(super) fn note(&mut self, place: Place) {
        let now = Instant::now();
        match self.entries.get_mut(&place) {
            Some(Entry { due: None, heard, .. }) => *heard = true,
            Some(Entry { due: Some(due), .. }) if *due <= now => {}
            Some(Entry { due, is_long, .. }) => {
                let (before, was_long) = (due.take(), *is_long);
                if let Some(before) = before {
                    self.lane(was_long).take_out(before, &place);
                }
                self.put(now, place);
            }
            None => {
                let tries = Tries::default();
                self.entries.insert(place.clone(), Entry { due: None, is_long: false, heard: false, tries });
                self.put(now, place);
            }
        }
    }

    /// One that is due, and how often it was looked at in vain.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Place, Tries)> {
        let (due, place) = self.first().filter(|(due, _)| *due <= now)?.clone();
        let entry = self.entries.get_mut(&place)?;
        entry.due = None;
        let (tries, is_long) = (entry.tries, entry.is_long);
        let lane = self.lane(is_long);
        lane.take_out(due, &place);
        lane.begun(&place);
        Some((place, tries))
    }

    /// Of those that may be looked at.
    pub(super) fn due(&self) -> Option<Instant> {
        self.first().map(|(due, _)| *due)
    }

    fn first(&self) -> Option<&(Instant, Place)> {
        self.short.first().into_iter().chain(self.long.first()).min()
    }

    fn lane(&mut self, is_long: bool) -> &mut Lane {
        if is_long { &mut self.long } else { &mut self.short }
    }

    fn put(&mut self, due: Instant, place: Place) {
        let is_long = (self.is_long)(&place);
        if let Some(entry) = self.entries.get_mut(&place) {
            (entry.due, entry.is_long) = (Some(due), is_long);
        }
        self.lane(is_long).put(due, place);
    }

    /// The look at it has ended.
    fn ended(&mut self, place: &Place) {
        let was_long = self.entries.get(place).is_some_and(|entry| entry.is_long);
        self.lane(was_long).ended(place);
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
        self.put(due, place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> Place {
        Place { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    fn queue() -> WorkQueue<'static> {
        fn is_long(place: &Place) -> bool {
            place.name.starts_with("long-")
        }
        WorkQueue::new(&is_long)
    }

    fn take(queue: &mut WorkQueue<'_>) -> Option<String> {
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
        let mut queue = queue();
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
        let mut queue = queue();
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
        let taken = |queue: &mut WorkQueue<'_>| queue.take(Instant::now()).map(|(place, _)| place);
        let mut queue = queue();
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

    /// In however many namespaces they are.
    #[tokio::test(start_paused = true)]
    async fn long_pods_take_no_place_of_others_and_one_of_a_namespace_waits_at_a_time() {
        let of = |namespace: &str, name: &str| Place { namespace: namespace.to_owned(), name: name.to_owned() };
        let mut queue = queue();
        for number in 0..AT_ONCE {
            queue.note(of("many", &format!("long-{number}")));
        }
        let mut taken = || queue.take(Instant::now()).map(|(place, _)| place.namespace);
        assert_eq!((taken().as_deref(), taken()), (Some("many"), None));
        for number in 0..AT_ONCE {
            queue.note(of(&format!("other-{number}"), "long-0"));
        }
        let mut taken = || queue.take(Instant::now()).map(|(place, _)| place);
        let (one, none) = (taken().unwrap(), taken());
        assert!(one.namespace.starts_with("other-") && none.is_none(), "{one}, {none:?}");
        for number in 0..AT_ONCE {
            queue.note(of(&format!("short-{number}"), "a"));
        }
        let under_way: Vec<_> = std::iter::from_fn(|| queue.take(Instant::now())).collect();
        assert_eq!((under_way.len(), queue.due()), (AT_ONCE, None));
        queue.settled(&one);
        let next = queue.take(Instant::now()).map(|(place, _)| place);
        assert!(next.is_some_and(|next| next.name == "long-0" && next != one));
    }

    #[tokio::test(start_paused = true)]
    async fn pod_whose_looks_fail_is_looked_at_less_and_less_until_one_comes_to_something() {
        let mut queue = queue();
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
