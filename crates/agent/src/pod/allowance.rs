//! How often something that a member decides on is done: so many times at once, and then once in a while.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    super::object::{Place, items, text},
    COPIED,
};

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

    /// Until it may be done; none where it may be now, which is counted.
    fn take_or_wait(&mut self, now: Instant) -> Option<Duration> {
        if self.left(now) == 0 {
            return Some((self.since + self.more_after).saturating_duration_since(now));
        }
        self.take();
        None
    }
}

/// How often the host is told of a pod. A copy may say something else all the time, and each time the host writes the whole pod.
const AT_ONCE: u32 = 20;
const ONE_MORE: Duration = Duration::from_secs(10);

/// How many events say of a pod what this program has to say of it, as client-go lets whoever speaks of one object. What a member answers may be
/// in other words each time.
const EVENTS_AT_ONCE: u32 = 25;
const ONE_MORE_EVENT: Duration = Duration::from_mins(5);

/// As often again, where its phase changes or whether it is ready.
#[derive(Debug)]
struct OfPod {
    usual: Allowance,
    reserve: Allowance,
    events: Allowance,
}

impl OfPod {
    fn new(now: Instant) -> Self {
        let whole = || Allowance::new(AT_ONCE, ONE_MORE, now);
        let events = Allowance::new(EVENTS_AT_ONCE, ONE_MORE_EVENT, now);
        Self { usual: whole(), reserve: whole(), events }
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.usual.is_whole(now) && self.reserve.is_whole(now) && self.events.is_whole(now)
    }

    /// How long that is still to be waited for; where it is not, it is counted.
    fn wait(&mut self, is_urgent: bool, now: Instant) -> Option<Duration> {
        let wait = self.usual.take_or_wait(now)?;
        let of_reserve = if is_urgent { self.reserve.take_or_wait(now)? } else { wait };
        Some(wait.min(of_reserve))
    }
}

/// When the host may be told again of each pod.
#[derive(Debug, Default)]
pub(crate) struct Tellings(Mutex<HashMap<Place, OfPod>>);

impl Tellings {
    /// How long this change of a pod is not to be told yet; where it may be told now, it is counted.
    pub(super) fn hold_back(&self, pod: &Value, change: &Value) -> Option<Duration> {
        self.wait(&Place::of(pod), is_urgent(pod, change))
    }

    /// Whether one more event may be written of a pod; it is counted.
    pub(super) fn lets_warn(&self, pod: &Value) -> bool {
        self.of(&Place::of(pod), |of_pod, now| of_pod.events.take_or_wait(now).is_none())
    }

    fn wait(&self, place: &Place, is_urgent: bool) -> Option<Duration> {
        self.of(place, |of_pod, now| of_pod.wait(is_urgent, now))
    }

    fn of<T>(&self, place: &Place, ask: impl FnOnce(&mut OfPod, Instant) -> T) -> T {
        let (now, mut all) = (Instant::now(), self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if all.len() == all.capacity() {
            all.retain(|_, of_pod| !of_pod.is_whole(now));
        }
        ask(all.entry(place.clone()).or_insert_with(|| OfPod::new(now)), now)
    }
}

/// How often the host is asked for the tokens of one pod. When they are missing or due, the member's copy of them says.
const TOKENS_AT_ONCE: u32 = 5;
const MORE_TOKENS: Duration = Duration::from_mins(5);

/// How many copies of pods of one owner may end as soon as they are there.
const SHORT_AT_ONCE: u32 = 10;
const ONE_MORE_SHORT: Duration = Duration::from_mins(5);

/// How often the host is told what is in use on a node, where no copy waits for that. Each time it writes the whole Node.
const NODE_AT_ONCE: u32 = 20;
pub(super) const ONE_MORE_OF_NODE: Duration = Duration::from_secs(5);

/// Of each, by its UID, or a node by its name.
#[derive(Debug)]
pub(crate) struct Allowances {
    most: u32,
    more_after: Duration,
    used: Mutex<HashMap<String, Allowance>>,
}

impl Allowances {
    pub(crate) fn of_tokens() -> Self {
        Self { most: TOKENS_AT_ONCE, more_after: MORE_TOKENS, used: Mutex::default() }
    }

    pub(crate) fn of_short_lived() -> Self {
        Self { most: SHORT_AT_ONCE, more_after: ONE_MORE_SHORT, used: Mutex::default() }
    }

    pub(super) fn of_nodes() -> Self {
        Self { most: NODE_AT_ONCE, more_after: ONE_MORE_OF_NODE, used: Mutex::default() }
    }

    pub(super) fn is_left(&self, whose: &str) -> bool {
        self.used().get_mut(whose).is_none_or(|one| one.left(Instant::now()) > 0)
    }

    pub(super) fn take(&self, whose: &str) {
        let (now, mut used) = (Instant::now(), self.used());
        if used.len() == used.capacity() {
            used.retain(|_, one| !one.is_whole(now));
        }
        let one = used.entry(whose.to_owned()).or_insert_with(|| Allowance::new(self.most, self.more_after, now));
        one.left(now);
        one.take();
    }

    fn used(&self) -> MutexGuard<'_, HashMap<String, Allowance>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether Services and controllers of the host go by what is changed, or whether it says for the first time that there is a copy.
fn is_urgent(pod: &Value, change: &Value) -> bool {
    let holds = |object: &Value, kind: &str| {
        items(object, "/status/conditions").any(|one| one["type"] == kind && one["status"] == "True")
    };
    let differs = |kind| holds(change, kind) != holds(pod, kind);
    let phase = text(change, "/status/phase");
    !phase.is_empty() && phase != text(pod, "/status/phase")
        || change["status"]["conditions"].is_array() && (differs("Ready") || differs(COPIED))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pod_is_told_of_at_once_some_times_and_then_once_in_a_while() {
        let (tellings, begun, mut told) = (Tellings::default(), Instant::now(), Vec::new());
        let place = |name: &str| Place { namespace: "shop".to_owned(), name: name.to_owned() };
        while begun.elapsed() < ONE_MORE * 3 {
            match tellings.wait(&place("a"), false) {
                None => told.push(begun.elapsed()),
                Some(wait) => tokio::time::advance(wait).await,
            }
        }
        assert_eq!(told.len(), 22);
        assert_eq!(told[19..], [Duration::ZERO, ONE_MORE, ONE_MORE * 2]);
        assert_eq!(tellings.wait(&place("b"), false), None, "another pod has its own");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_urgent_is_told_when_nothing_else_is_and_has_an_end_too() {
        let (tellings, place) = (Tellings::default(), Place { namespace: "shop".to_owned(), name: "a".to_owned() });
        let at_once = |is_urgent| (0..1000).take_while(|_| tellings.wait(&place, is_urgent).is_none()).count();
        assert_eq!((at_once(false), at_once(true), at_once(true)), (20, 20, 0));
        assert_eq!(tellings.wait(&place, true), Some(ONE_MORE));
        tokio::time::advance(ONE_MORE).await;
        assert_eq!((at_once(true), at_once(false)), (2, 0));
        tokio::time::advance(ONE_MORE * AT_ONCE).await;
        assert_eq!(at_once(true), 40, "it is counted with the others first");
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_a_pod_have_an_end_of_their_own() {
        let tellings = Tellings::default();
        let pod = |name: &str| json!({"metadata": {"namespace": "shop", "name": name}});
        let written = |name: &str| (0..1000).take_while(|_| tellings.lets_warn(&pod(name))).count();
        assert_eq!((written("a"), written("a"), written("b")), (25, 0, 25));
        assert_eq!(tellings.hold_back(&pod("a"), &json!({})), None);
        tokio::time::advance(ONE_MORE_EVENT * 2).await;
        assert_eq!(written("a"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_of_a_pod_are_asked_for_at_once_some_times_and_then_as_often_as_the_shortest_ones_need() {
        let (asks, begun, mut asked) = (Allowances::of_tokens(), Instant::now(), Vec::new());
        while begun.elapsed() < MORE_TOKENS * 3 {
            if asks.is_left("a") {
                asks.take("a");
                asked.push(begun.elapsed());
            }
            tokio::time::advance(Duration::from_secs(30)).await;
        }
        assert_eq!(asked.len(), 7, "{asked:?}");
        assert!(asks.is_left("b"), "another pod has its own");
    }

    #[test]
    fn phase_and_readiness_are_urgent_and_nothing_else_is() {
        let ready = |status: &str, message: &str| json!([{"type": "Ready", "status": status, "message": message}]);
        let pod = json!({"status": {"phase": "Running", "conditions": ready("True", "a")}});
        for (status, urgent) in [
            (json!({"phase": "Failed"}), true),
            (json!({"phase": "Running"}), false),
            (json!({"conditions": ready("False", "a")}), true),
            (json!({"conditions": ready("True", "b")}), false),
            (json!({"message": "b", "containerStatuses": [{"restartCount": 1}]}), false),
        ] {
            assert_eq!(is_urgent(&pod, &json!({"status": status})), urgent, "{status}");
        }
    }
}
