//! When the events of pods are asked for that are not well, or were not a moment ago, and how much of them is told. Pure.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use k8s_openapi::api::core::v1::Event;
use tokio::time::Instant;

use super::allowance::Allowance;

/// How long a pod may take to get ready, or to end, before its member is asked why.
const SLOW: Duration = Duration::from_secs(3);
/// Until it is asked again, twice as long each time, and how long at most.
const ASKED_AGAIN: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A member that gives no right to events.
const REFUSED: Duration = Duration::from_mins(10);

/// What client-go lets a kubelet say of one object.
fn of_pod(now: Instant) -> Allowance {
    Allowance::new(25, Duration::from_mins(5), now)
}

fn of_namespace(now: Instant) -> Allowance {
    Allowance::new(100, Duration::from_secs(5), now)
}

/// A copy, as one look sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) namespace: &'a str,
    /// It does not get ready, or is being ended.
    pub(super) waits: bool,
    /// How often containers of it were started again.
    pub(super) restarts: u64,
}

/// What was told of the pods in one member.
#[derive(Debug, Default)]
pub(crate) struct RelayedEvents {
    /// By the UIDs that they have in the host.
    pods: HashMap<String, RelayedOfPod>,
    namespaces: HashMap<String, Allowance>,
    refused_until: Option<Instant>,
}

#[derive(Debug)]
struct RelayedOfPod {
    /// When its events are to be listed, and how long after that once more. None while it is well, and nothing is owed.
    next: Option<(Instant, Duration)>,
    /// When they may be, also if it was well in between.
    not_before: Instant,
    is_well: bool,
    restarts: u64,
    /// It was well, and then it was not, or a container of it was started again: nobody has asked why since, also if it is well again.
    is_owed: bool,
    allowance: Allowance,
    /// How often each event, by its name in the host, was said to have been seen.
    counts: HashMap<String, i32>,
}

impl RelayedOfPod {
    /// What a container was started again for before it was seen first, is no news.
    fn new(restarts: u64, now: Instant) -> Self {
        let (allowance, counts) = (of_pod(now), HashMap::new());
        Self { next: None, not_before: now, is_well: false, restarts, is_owed: false, allowance, counts }
    }

    /// When its events are to be listed, if they are. `seen`: none of one that is well, and of which there is no news.
    fn see(&mut self, seen: Option<&Seen<'_>>, now: Instant) -> Option<Instant> {
        let (waits, restarts) = seen.map_or((false, 0), |seen| (seen.waits, seen.restarts));
        self.is_owed |= restarts > self.restarts || waits && self.is_well;
        self.restarts = self.restarts.max(restarts);
        self.is_well = !waits;
        if !waits && !self.is_owed {
            self.next = None;
            return None;
        }
        let first = (self.not_before.max(now + SLOW), ASKED_AGAIN);
        Some(self.next.get_or_insert(first).0)
    }
}

impl RelayedEvents {
    /// Whether one that is well is to be seen all the same: it is new, or its events are to be listed once.
    pub(super) fn has_news(&self, uid: &str, restarts: u64) -> bool {
        self.pods.get(uid).is_none_or(|pod| pod.is_owed || restarts > pod.restarts)
    }

    /// The pods whose events are to be listed now. `copies`: by the UIDs of their pods, those that are not well, or of which there is news.
    /// `is_there`: whether the host still has a pod of this UID.
    pub(super) fn due(
        &mut self,
        copies: &HashMap<&str, Seen<'_>>,
        is_there: impl Fn(&str) -> bool,
        now: Instant,
    ) -> Vec<String> {
        self.pods.retain(|uid, _| is_there(uid));
        self.namespaces.retain(|_, allowance| !allowance.is_whole(now));
        for (uid, pod) in &mut self.pods {
            if !copies.contains_key(uid.as_str()) {
                pod.see(None, now);
            }
        }
        let mut due = Vec::new();
        for (uid, seen) in copies {
            let new = || RelayedOfPod::new(seen.restarts, now);
            let at = self.pods.entry((*uid).to_owned()).or_insert_with(new).see(Some(seen), now);
            due.extend(at.filter(|at| *at <= now).map(|at| (at, *uid, seen.namespace)));
        }
        if self.refused_until.is_some_and(|until| until > now) {
            return Vec::new();
        }
        let due = of_two_namespaces(due);
        for uid in &due {
            let Some(pod) = self.pods.get_mut(*uid) else { continue };
            let pause = pod.next.map_or(ASKED_AGAIN, |(_, pause)| pause);
            pod.is_owed = false;
            pod.not_before = now + ASKED_AGAIN;
            pod.next = Some((now + pause, (pause * 2).min(LONGEST_PAUSE)));
        }
        due.into_iter().map(str::to_owned).collect()
    }

    /// What is new of these, warnings and the newest first, and whether it was told before with another count.
    pub(super) fn new_of(&mut self, uid: &str, mut events: Vec<Event>) -> Vec<(Event, bool)> {
        let Some(pod) = self.pods.get_mut(uid) else { return Vec::new() };
        events.sort_by_key(|event| {
            let last = event.last_timestamp.as_ref().map(|time| time.0);
            std::cmp::Reverse((event.type_.as_deref() == Some("Warning"), last))
        });
        let names: HashSet<&String> = events.iter().filter_map(|event| event.metadata.name.as_ref()).collect();
        pod.counts.retain(|name, _| names.contains(name));
        let mut new = Vec::new();
        for event in events {
            let before = event.metadata.name.as_ref().and_then(|name| pod.counts.get(name)).copied();
            if before.is_none_or(|before| event.count > Some(before)) {
                new.push((event, before.is_some()));
            }
        }
        new
    }

    /// Whether one more may be written; it is counted.
    pub(super) fn may_tell(&mut self, uid: &str, namespace: &str, now: Instant) -> bool {
        let Some(pod) = self.pods.get_mut(uid) else { return false };
        let of_namespace = self.namespaces.entry(namespace.to_owned()).or_insert_with(|| of_namespace(now));
        let may = pod.allowance.left(now) > 0 && of_namespace.left(now) > 0;
        if may {
            pod.allowance.take();
            of_namespace.take();
        }
        may
    }

    pub(super) fn was_told(&mut self, uid: &str, event: &Event) {
        if let Some((pod, name)) = self.pods.get_mut(uid).zip(event.metadata.name.clone()) {
            pod.counts.insert(name, event.count.unwrap_or(1));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    /// The member gives no right to events.
    pub(super) fn refused(&mut self, now: Instant) {
        self.refused_until = Some(now + REFUSED);
    }
}

/// Who waits longest, and of another namespace who does there: whoever has very many pods that do not get ready keeps nobody else from
/// hearing why. Of one namespace both, where no other one waits.
fn of_two_namespaces<'a>(mut due: Vec<(Instant, &'a str, &str)>) -> Vec<&'a str> {
    due.sort_unstable();
    let first = due.first().copied();
    let is_elsewhere = |other: &str| first.is_some_and(|(_, _, namespace)| namespace != other);
    let second = due.iter().find(|(_, _, namespace)| is_elsewhere(namespace)).or_else(|| due.get(1)).copied();
    first.into_iter().chain(second).map(|(_, uid, _)| uid).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One that does not get ready.
    fn waits_in(namespace: &str) -> Seen<'_> {
        Seen { namespace, waits: true, restarts: 0 }
    }

    /// Of one namespace.
    fn of_shop<'a>(pods: &[&'a str]) -> HashMap<&'a str, Seen<'static>> {
        pods.iter().map(|uid| (*uid, waits_in("shop"))).collect()
    }

    async fn asked(told: &mut RelayedEvents, pods: &[&str], time: Duration) -> Vec<(u64, String)> {
        let (waiting, begun, mut asked) = (of_shop(pods), Instant::now(), Vec::new());
        while begun.elapsed() < time {
            let due = told.due(&waiting, |_| true, Instant::now());
            asked.extend(due.into_iter().map(|uid| (begun.elapsed().as_secs(), uid)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        asked
    }

    #[tokio::test(start_paused = true)]
    async fn events_are_asked_for_once_a_pod_is_slow_and_then_less_and_less_often() {
        let mut told = RelayedEvents::default();
        let seconds = |asked: Vec<(u64, String)>| asked.into_iter().map(|(second, _)| second).collect::<Vec<_>>();
        let first = asked(&mut told, &["u"], Duration::from_mins(5)).await;
        assert_eq!(seconds(first), [3, 13, 33, 73, 133, 193, 253]);
        told.refused(Instant::now());
        assert_eq!(asked(&mut told, &["u"], REFUSED).await, []);
        // It is well in between, again and again.
        let mut count = 0;
        for _ in 0..30 {
            count += asked(&mut told, &["u"], Duration::from_secs(4)).await.len();
            assert_eq!(asked(&mut told, &[], Duration::from_secs(1)).await, []);
        }
        assert!((8..=16).contains(&count), "{count} in 150 seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn pod_that_was_not_well_for_a_moment_or_was_started_again_is_asked_for_once() {
        let (mut told, mut asked) = (RelayedEvents::default(), Vec::new());
        for second in 0..60 {
            // It begins, is not well for a moment, and is started again. The other one was, before it was seen first.
            let seen = [("u", second < 2 || second == 20, u64::from(second >= 40)), ("other", false, 3)];
            let is_told = |(uid, waits, restarts): &(&str, bool, u64)| *waits || told.has_news(uid, *restarts);
            let copies = seen.into_iter().filter(is_told);
            let copies =
                copies.map(|(uid, waits, restarts)| (uid, Seen { namespace: "shop", waits, restarts })).collect();
            asked.extend(told.due(&copies, |_| true, Instant::now()).into_iter().map(|uid| (second, uid)));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(asked, [(23, "u".to_owned()), (43, "u".to_owned())]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_thousand_pods_that_do_not_get_ready_two_are_asked_for_at_a_look_and_each_has_its_turn() {
        let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let pods: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut told = RelayedEvents::default();
        let first = asked(&mut told, &pods, Duration::from_secs(503)).await;
        let different: HashSet<&String> = first.iter().map(|(_, uid)| uid).collect();
        assert_eq!((first.len(), different.len()), (1000, 1000));
        told.due(&HashMap::new(), |_| false, Instant::now());
        assert!(told.pods.is_empty(), "what is gone is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn pods_of_one_namespace_that_do_not_get_ready_keep_none_of_another_one_waiting() {
        let many: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
        let mut waiting: HashMap<&str, Seen<'_>> = many.iter().map(|uid| (uid.as_str(), waits_in("many"))).collect();
        let mut told = RelayedEvents::default();
        for second in 0..100 {
            if second == 60 {
                waiting.extend(of_shop(&["a", "b"]));
            }
            let due = told.due(&waiting, |_| true, Instant::now());
            let is_of_shop = |uid: &&str| waiting.get(*uid).is_some_and(|seen| seen.namespace == "shop");
            let of_shop: Vec<&str> = due.iter().map(String::as_str).filter(is_of_shop).collect();
            let expected: &[&str] = match second {
                63 | 73 | 93 => &["a"],
                64 | 74 | 94 => &["b"],
                _ => &[],
            };
            assert_eq!((due.len(), &*of_shop), (if second < 3 { 0 } else { 2 }, expected), "in second {second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    fn seen(name: &str, kind: &str, count: i32) -> Event {
        let fields = json!({"metadata": {"name": name}, "type": kind, "count": count, "involvedObject": {}});
        serde_json::from_value(fields).unwrap()
    }

    fn told_of(pods: &[&str]) -> RelayedEvents {
        let mut told = RelayedEvents::default();
        told.due(&of_shop(pods), |_| true, Instant::now());
        told
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_come_first_and_an_event_is_told_until_it_was_and_when_it_counts_on() {
        let mut told = told_of(&["u"]);
        let both = |count| vec![seen("n", "Normal", 1), seen("w", "Warning", count)];
        let names = |new: &[(Event, bool)]| {
            let name = |(event, before): &(Event, bool)| (event.metadata.name.clone().unwrap_or_default(), *before);
            new.iter().map(name).collect::<Vec<_>>()
        };
        for _ in 0..2 {
            let new = told.new_of("u", both(1));
            assert_eq!(names(&new), [("w".to_owned(), false), ("n".to_owned(), false)]);
        }
        for (event, _) in told.new_of("u", both(1)) {
            told.was_told("u", &event);
        }
        assert_eq!(names(&told.new_of("u", both(1))), []);
        assert_eq!(names(&told.new_of("u", both(2))), [("w".to_owned(), true)]);
        assert_eq!(names(&told.new_of("another", both(2))), []);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_written_of_a_pod_and_of_a_namespace_has_an_end() {
        let pods: Vec<String> = (0..30).map(|number| number.to_string()).collect();
        let mut told = told_of(&pods.iter().map(String::as_str).collect::<Vec<_>>());
        let mut written = |pod: &str, namespace: &str| {
            (0..1000).take_while(|_| told.may_tell(pod, namespace, Instant::now())).count()
        };
        assert_eq!((written("0", "shop"), written("0", "shop")), (25, 0));
        tokio::time::advance(Duration::from_mins(15)).await;
        assert_eq!(written("0", "shop"), 3);
        let all: usize = pods[1..20].iter().map(|pod| written(pod, "shop")).sum();
        assert_eq!(all, 97);
        assert_eq!(written("20", "another"), 25, "another namespace has its own");
        tokio::time::advance(Duration::from_secs(50)).await;
        assert_eq!(written("21", "shop"), 10);
    }
}
