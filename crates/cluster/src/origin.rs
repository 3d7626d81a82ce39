//! From which cluster an answer comes, as far as its head tells. What stands before an API server may hand requests of a standing connection to
//! another cluster, which takes the same credentials.
//!
//! An API server names in its answers the FlowSchema and the PriorityLevelConfiguration under which it took the request, by their UIDs: no
//! two clusters have one in common. So the answer in which a cluster says who it is tells by which UIDs its other answers are known. What
//! names none of them is not believed, and the cluster is asked again. It may be the cluster's own all the same: FlowSchemas tell requests
//! apart by verb and resource, and people make new ones.

use std::{
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use http::{HeaderMap, Request};
use hyper_util::client::legacy::connect::CaptureConnection;
use tokio::time::Instant;

const UIDS: [&str; 2] = ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"];
/// A UID has 36 letters. What is longer is none, and is not kept.
const LONGEST: usize = 64;
/// A cluster has some twenty of each. Beyond that the oldest is forgotten, and learned again.
const MOST: usize = 64;
/// What has come of unknown origin, at one time.
const MOST_DOUBTS: usize = 8;
/// Before a cluster is trusted that says who it is while answers of unknown origin come, it is asked so often, each time on a connection of
/// its own: one that leads to several clusters in turn would have to lead here each time.
pub const QUESTIONS: usize = 3;
/// An origin that has come so often, and for so long, is the cluster's own, if that has said all those times who it is, and has answered
/// nothing of the same sort under another one meanwhile.
const TIMES: usize = 4;
/// Longer than an idle connection is kept (90 s): what was led elsewhere before the first doubt is not used any more.
const LASTS: Duration = Duration::from_mins(2);

/// The UIDs that an answer names; none where the API server names none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin(Vec<Box<str>>);

impl Origin {
    fn of(head: &HeaderMap) -> Self {
        Self(named(head).map(Into::into).collect())
    }
}

fn named(head: &HeaderMap) -> impl Iterator<Item = &str> {
    let named = UIDS.into_iter().filter_map(|name| head.get(name)?.to_str().ok());
    named.filter(|uid| (1..=LONGEST).contains(&uid.len()))
}

/// On a request of which somebody wants to know where its answer comes from. It has a connection that nothing is asked on after it.
#[derive(Clone, Debug, Default)]
pub struct WhoAnswers(Arc<OnceLock<Origin>>);

impl WhoAnswers {
    pub fn on<B>(request: &mut Request<B>) -> Self {
        let told = Self::default();
        request.extensions_mut().insert(told.clone());
        told
    }

    pub(super) fn hear(&self, head: &HeaderMap) {
        self.0.get_or_init(|| Origin::of(head));
    }

    pub fn origin(&self) -> Origin {
        self.0.get().cloned().unwrap_or_default()
    }
}

/// The pool does not give the connection out again.
pub(super) fn use_no_more(connection: &CaptureConnection) {
    if let Some(connected) = connection.connection_metadata().as_ref() {
        connected.poison();
    }
}

/// By which UIDs the answers of one cluster are known.
#[derive(Clone, Debug, Default)]
pub struct Origins(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// The UID of the cluster that is meant.
    cluster: String,
    own: Vec<Box<str>>,
    /// What other clusters have named that answered in its place.
    foreign: Vec<Box<str>>,
    doubts: Vec<Doubt>,
}

/// An origin that is not known, and may be the cluster's own.
#[derive(Debug)]
struct Doubt {
    origin: Origin,
    /// What was asked when it came.
    sorts: Vec<String>,
    since: Instant,
    /// How often it came and the cluster said who it is after that.
    times: usize,
    /// It has come since the cluster was asked last.
    is_new: bool,
}

impl Origins {
    /// Why the answer to a request of this sort is not believed. Where the cluster names no origins, each is.
    pub(super) fn doubt(&self, head: &HeaderMap, sort: impl FnOnce() -> String) -> Option<String> {
        let mut known = self.lock();
        if known.own.is_empty() {
            return None;
        }
        let mut uids = named(head);
        let first = uids.next()?;
        if has(&known.own, first) || uids.any(|uid| has(&known.own, uid)) {
            known.is_own(head, sort);
            return None;
        }
        if !named(head).any(|uid| has(&known.foreign, uid)) {
            known.wonder(Origin::of(head), sort());
        }
        Some(format!(
            "an answer came that may be another cluster's: FlowSchema {first} is not known to be of this cluster. The \
             driver asks again which cluster it is; see that a load balancer before its API servers leads to no other \
             cluster"
        ))
    }

    /// The cluster has said who it is, in an answer of this origin.
    pub fn said_by(&self, cluster: &str, origin: &Origin) {
        let mut known = self.lock();
        if known.cluster != cluster {
            *known = Known { cluster: cluster.to_owned(), ..Known::default() };
        }
        known.learn(origin);
    }

    /// Another cluster has said who it is in the place of this one.
    pub fn said_by_another(&self, origin: &Origin) {
        let mut known = self.lock();
        known.doubts.clear();
        for uid in &origin.0 {
            keep(&mut known.foreign, uid);
        }
    }

    /// Whether something of unknown origin has come since the cluster was asked last.
    pub fn are_in_doubt(&self) -> bool {
        self.lock().doubts.iter().any(|doubt| doubt.is_new)
    }

    /// The cluster was asked as often as there are questions, and is who it should be. Tells what is taken for its own from now on.
    pub fn settle(&self) -> Vec<String> {
        let (mut known, mut own) = (self.lock(), Vec::new());
        for doubt in known.doubts.iter_mut().filter(|doubt| doubt.is_new) {
            (doubt.is_new, doubt.times) = (false, doubt.times + 1);
            if doubt.times >= TIMES && doubt.since.elapsed() >= LASTS {
                own.push(doubt.origin.clone());
            }
        }
        for origin in &own {
            known.learn(origin);
        }
        own.iter().map(|origin| origin.0.join(", ")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// Of what the head names something is known: so is the rest, as when a FlowSchema is new and its priority level is not. What has come
    /// otherwise in answer to the same is another cluster's.
    fn is_own(&mut self, head: &HeaderMap, sort: impl FnOnce() -> String) {
        for uid in named(head) {
            keep(&mut self.own, uid);
        }
        if !self.doubts.is_empty() {
            let sort = sort();
            self.doubts.retain(|doubt| !doubt.sorts.contains(&sort));
        }
    }

    fn learn(&mut self, origin: &Origin) {
        let Self { own, foreign, doubts, .. } = self;
        for uid in &origin.0 {
            keep(own, uid);
        }
        foreign.retain(|uid| !origin.0.contains(uid));
        doubts.retain(|doubt| !doubt.origin.0.iter().any(|uid| origin.0.contains(uid)));
    }

    fn wonder(&mut self, origin: Origin, sort: String) {
        let is_same = |doubt: &Doubt| doubt.origin.0.iter().any(|uid| origin.0.contains(uid));
        let at = self.doubts.iter().position(is_same).unwrap_or_else(|| {
            if self.doubts.len() == MOST_DOUBTS {
                self.doubts.remove(0);
            }
            self.doubts.push(Doubt { origin, sorts: Vec::new(), since: Instant::now(), times: 0, is_new: true });
            self.doubts.len() - 1
        });
        let doubt = &mut self.doubts[at];
        doubt.is_new = true;
        if !doubt.sorts.contains(&sort) && doubt.sorts.len() < MOST {
            doubt.sorts.push(sort);
        }
    }
}

fn has(uids: &[Box<str>], uid: &str) -> bool {
    uids.iter().any(|known| **known == *uid)
}

fn keep(uids: &mut Vec<Box<str>>, uid: &str) {
    if has(uids, uid) {
        return;
    }
    if uids.len() == MOST {
        uids.remove(0);
    }
    uids.push(uid.into());
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    const HERE: &str = "uid-of-kube-system";

    fn head(schema: &str, level: &str) -> HeaderMap {
        UIDS.into_iter().zip([schema, level]).map(|(name, uid)| (name.parse().unwrap(), uid.parse().unwrap())).collect()
    }

    fn origin(schema: &str, level: &str) -> Origin {
        Origin::of(&head(schema, level))
    }

    fn known() -> Origins {
        let origins = Origins::default();
        origins.said_by(HERE, &origin("own", "own-level"));
        origins
    }

    fn believes(origins: &Origins, sort: &str, head: &HeaderMap) -> bool {
        origins.doubt(head, || sort.to_owned()).is_none()
    }

    /// An answer of unknown origin comes, and the cluster says as often as it is asked who it is.
    async fn comes_again(origins: &Origins, sort: &str, head: &HeaderMap) -> Vec<String> {
        sleep(LASTS / 4).await;
        assert!(!believes(origins, sort, head) && origins.are_in_doubt());
        origins.said_by(HERE, &origin("own", "own-level"));
        let settled = origins.settle();
        assert!(!origins.are_in_doubt());
        settled
    }

    #[test]
    fn answer_is_believed_where_it_names_what_the_cluster_has_named_with_its_name_or_nothing() {
        let (origins, other) = (Origins::default(), head("other", "other-level"));
        assert!(believes(&origins, "get pods", &other), "nobody has said who he is");
        origins.said_by(HERE, &Origin::default());
        assert!(believes(&origins, "get pods", &other), "it names nothing");
        origins.said_by(HERE, &origin("own", "own-level"));
        assert!(believes(&origins, "get pods", &head("own", "own-level")));
        assert!(!believes(&origins, "get pods", &other));
        for of_nobody in [HeaderMap::new(), head("", ""), head(&"x".repeat(LONGEST + 1), "")] {
            assert!(believes(&origins, "get pods", &of_nobody), "{of_nobody:?}");
        }
        origins.said_by("another", &origin("other", "other-level"));
        assert!(!believes(&origins, "get pods", &head("own", "own-level")), "it is another cluster that is meant");
    }

    /// It names its own beside those of the API server that has handed the request on to it.
    #[test]
    fn answer_of_an_aggregated_api_server_is_known_by_who_has_handed_the_request_on() {
        let mut both = head("own", "own-level");
        for (name, uid) in UIDS.into_iter().zip(["another", "another-level"]) {
            both.append(name, uid.parse().unwrap());
        }
        assert!(believes(&known(), "list pods.metrics.k8s.io", &both));
    }

    #[test]
    fn flow_schema_that_is_new_is_known_by_its_priority_level_or_by_the_next_word_of_who_it_is() {
        let origins = known();
        assert!(believes(&origins, "list events", &head("new", "own-level")));
        assert!(believes(&origins, "list events", &head("new", "another-level")), "known by now");
        let all_new = head("for-all", "level-for-all");
        assert!(!believes(&origins, "list events", &all_new) && origins.are_in_doubt());
        origins.said_by(HERE, &Origin::of(&all_new));
        assert!(!origins.are_in_doubt() && believes(&origins, "list events", &all_new));
    }

    #[tokio::test(start_paused = true)]
    async fn flow_schema_for_some_requests_is_believed_after_a_while_in_which_the_cluster_says_each_time_who_it_is() {
        let (origins, special) = (known(), head("special", "special-level"));
        let mut settled = Vec::new();
        for _ in 0..TIMES {
            assert!(settled.is_empty(), "{settled:?}");
            // It is asked for other things as well.
            assert!(believes(&origins, "get pods", &head("own", "own-level")));
            settled = comes_again(&origins, "list events", &special).await;
        }
        assert!(settled.is_empty(), "it has not gone on for long: {settled:?}");
        settled = comes_again(&origins, "list events", &special).await;
        assert_eq!(settled, ["special, special-level"]);
        assert!(believes(&origins, "list events", &special));
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_in_turn_with_answers_of_the_cluster_to_the_same_is_never_believed() {
        let (origins, other) = (known(), head("other", "other-level"));
        for _ in 0..10 * TIMES {
            assert!(comes_again(&origins, "create pods", &other).await.is_empty());
            assert!(comes_again(&origins, "list pods", &other).await.is_empty());
            assert!(believes(&origins, "create pods", &head("own", "own-level")));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_cluster_has_named_with_its_name_is_never_believed_unless_that_is_meant_from_then_on() {
        let (origins, other) = (known(), head("other", "other-level"));
        comes_again(&origins, "create pods", &other).await;
        origins.said_by_another(&Origin::of(&other));
        for _ in 0..2 * TIMES {
            advance(LASTS).await;
            assert!(!believes(&origins, "create pods", &other) && !origins.are_in_doubt());
            assert!(origins.settle().is_empty());
        }
        origins.said_by("another", &Origin::of(&other));
        assert!(believes(&origins, "create pods", &other));
    }

    #[test]
    fn whoever_names_something_else_each_time_fills_no_memory() {
        let origins = known();
        for number in 0..1000 {
            origins.said_by(HERE, &origin("own", &format!("level-{number}")));
            origins.said_by_another(&origin(&format!("other-{number}"), ""));
        }
        for number in 0..1000 {
            assert!(!believes(&origins, &format!("get {number}"), &head(&format!("new-{number}"), "")));
            assert!(!believes(&origins, &format!("get {number}"), &head("the-same", "")));
        }
        let known = origins.lock();
        assert!(known.own.len() <= MOST && known.foreign.len() <= MOST && known.doubts.len() <= MOST_DOUBTS);
        assert!(known.doubts.iter().all(|doubt| doubt.sorts.len() <= MOST));
    }
}
