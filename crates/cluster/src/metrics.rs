//! Every metric there is, with bounded labels: methods of the interface, codes, members that have joined, verbs and
//! resources. `docs/metrics.md` is their table. What can be read when somebody asks is not kept: see [`Metrics::read_from`].

pub mod exposition;
mod operations;
mod process;
pub(crate) mod requests;
pub mod waiting;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

use operations::Operations;
use process::Process;
use requests::Requests;
use waiting::Waiting;

/// What the host is called among the names of members. None of them can have this name.
pub const HOST: &str = "(host)";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    method: &'static str,
}

impl Method {
    fn of(path: &'static str) -> Self {
        Self { method: method(path) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodAndCode {
    method: &'static str,
    code: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMember {
    member: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfMemberInState {
    member: String,
    state: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// One member at the moment at which it is looked at.
#[derive(Clone, Debug, Default)]
pub struct MemberNow {
    pub member: String,
    /// It is another name of one, which tells of itself.
    pub alias: bool,
    pub up: bool,
    pub state: &'static str,
    pub requests_under_way: usize,
    pub breaker_open: bool,
    /// Age of the oldest leaf claim that is not bound, and of the oldest deletion that is not done.
    pub oldest_creation: Duration,
    pub oldest_deletion: Duration,
    /// When its token ends, in seconds; none where it is known by something else.
    pub token_ends: Option<i64>,
    /// It should have been renewed, or nobody can renew it and it ends soon.
    pub token_late: Option<bool>,
    /// How many volumes are in which state.
    pub volumes: Vec<(&'static str, u64)>,
}

type Look = Box<dyn Fn() -> Option<Vec<MemberNow>> + Send + Sync>;

/// The moves of volumes that are under way at the moment at which they are looked at.
#[derive(Clone, Debug, Default)]
pub struct MovesNow {
    pub phases: BTreeMap<String, u64>,
    pub stalled: u64,
    pub longest_stall: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InPhase {
    phase: String,
}

type LookAtMoves = Box<dyn Fn() -> MovesNow + Send + Sync>;

/// What is read when the metrics are, where volumes are moved.
#[derive(Clone, Default)]
struct Moves {
    look: Arc<Mutex<Option<LookAtMoves>>>,
    under_way: Family<InPhase, Gauge>,
    stalled: Gauge,
    longest_stall: Gauge,
}

impl fmt::Debug for Moves {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Moves").finish_non_exhaustive()
    }
}

impl Moves {
    fn register(&self, registry: &mut Registry) {
        registry.register("moves", "Moves of volumes that are under way, by phase", self.under_way.clone());
        registry.register("moves_stalled", "Moves that do not go on", self.stalled.clone());
        let longest = "How long the move that has been stalled longest has been so, 0 where none is";
        registry.register("moves_longest_stall_seconds", longest, self.longest_stall.clone());
    }

    fn refresh(&self) {
        let look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let now = look.as_ref().map(|look| look()).unwrap_or_default();
        self.under_way.clear();
        for (phase, count) in now.phases {
            self.under_way.get_or_create(&InPhase { phase }).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.stalled.set(i64::try_from(now.stalled).unwrap_or(i64::MAX));
        self.longest_stall.set(i64::try_from(now.longest_stall.as_secs()).unwrap_or(i64::MAX));
    }
}

/// What is read when the metrics are.
#[derive(Clone, Default)]
struct Members {
    look: Arc<Mutex<Option<Look>>>,
    up: Family<OfMember, Gauge>,
    state: Family<OfMemberInState, Gauge>,
    requests_under_way: Family<OfMember, Gauge>,
    breaker_open: Family<OfMember, Gauge>,
    oldest_creation: Family<OfMember, Gauge>,
    oldest_deletion: Family<OfMember, Gauge>,
    token_ends: Family<OfMember, Gauge>,
    token_late: Family<OfMember, Gauge>,
    volumes: Family<OfMemberInState, Gauge>,
}

impl fmt::Debug for Members {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Members").finish_non_exhaustive()
    }
}

#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    rpc_started: Family<Method, Counter>,
    rpc_handled: Family<MethodAndCode, Counter>,
    rpc_seconds: Histograms<Method>,
    operations: Operations,
    requests: Requests,
    members: Members,
    moves: Moves,
    waiting: Waiting,
    process: Process,
}

impl Metrics {
    pub fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = Self {
            registry: Arc::default(),
            rpc_started: Family::default(),
            rpc_handled: Family::default(),
            rpc_seconds: Histograms::new_with_constructor(rpc_buckets as fn() -> Histogram),
            operations: Operations::default(),
            requests: Requests::default(),
            members: Members::default(),
            moves: Moves::default(),
            waiting: Waiting::default(),
            process: Process::default(),
        };
        metrics.operations.register(&mut registry);
        let ours = registry.sub_registry_with_prefix("kosmos_csi");
        metrics.register(ours);
        metrics.requests.register(ours);
        metrics.members.register(ours);
        metrics.moves.register(ours);
        metrics.waiting.register(ours);
        metrics.process.register(ours);
        Self { registry: Arc::new(registry), ..metrics }
    }

    fn register(&self, registry: &mut Registry) {
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "What is running", version);
        registry.register("rpc_started", "RPCs begun", self.rpc_started.clone());
        let handled = "RPCs answered, by gRPC code; Cancelled where the caller gave up";
        registry.register("rpc_handled", handled, self.rpc_handled.clone());
        registry.register("rpc_seconds", "Time from an RPC to its answer", self.rpc_seconds.clone());
    }

    pub fn rpc_started(&self, path: &'static str) {
        self.rpc_started.get_or_create(&Method::of(path)).inc();
    }

    pub fn rpc_handled(&self, driver: &'static str, path: &'static str, code: &str, took: Duration) {
        self.rpc_handled.get_or_create(&MethodAndCode { method: method(path), code: code.to_owned() }).inc();
        self.rpc_seconds.get_or_create(&Method::of(path)).observe(took.as_secs_f64());
        self.operations.ended(driver, path, code, took);
    }

    /// For who is part of a member himself: its state is read from it, so it must not hold what reads.
    pub(crate) fn requests(&self) -> Requests {
        self.requests.clone()
    }

    /// Where the state of the members is read whenever somebody asks for the metrics; none while it is not known which there are.
    pub fn read_from(&self, look: impl Fn() -> Option<Vec<MemberNow>> + Send + Sync + 'static) {
        *self.members.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
    }

    /// The same of the moves.
    pub fn read_moves_from(&self, look: impl Fn() -> MovesNow + Send + Sync + 'static) {
        *self.moves.look.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(look));
    }

    /// Where those who ask for volumes are counted.
    pub fn waiting(&self) -> Waiting {
        self.waiting.clone()
    }

    /// The text of `/metrics`, as OpenMetrics.
    pub fn text(&self) -> Result<String, fmt::Error> {
        if let Some(members) = self.members.refresh() {
            self.requests.forget_but(&members);
        }
        self.moves.refresh();
        self.waiting.refresh();
        self.process.refresh();
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Members {
    fn register(&self, registry: &mut Registry) {
        let up = "1 while a member answers and is the cluster it should be";
        registry.register("member_up", up, self.up.clone());
        registry.register("member_state", "1 for the state that a member is in", self.state.clone());
        let under_way = "Requests that wait for a member's answer now";
        registry.register("member_requests_under_way", under_way, self.requests_under_way.clone());
        let open = "1 while a member is known not to answer, and is not asked";
        registry.register("member_breaker_open", open, self.breaker_open.clone());
        let creation = "Age of the oldest leaf claim that is not bound, 0 where there is none";
        registry.register("member_oldest_creation_seconds", creation, self.oldest_creation.clone());
        let deletion = "Age of the oldest deletion of a leaf claim that is not done, 0 where there is none";
        registry.register("member_oldest_deletion_seconds", deletion, self.oldest_deletion.clone());
        let token = "When the token for a member ends, in seconds since 1970; it is renewed at half of its life";
        registry.register("member_token_end_timestamp_seconds", token, self.token_ends.clone());
        let late = "1 where that token should have been renewed long ago, or cannot be and ends soon";
        registry.register("member_token_late", late, self.token_late.clone());
        registry.register("member_volumes", "Volumes in a member, by state", self.volumes.clone());
    }

    /// Their names, where it is known which there are.
    fn refresh(&self) -> Option<BTreeSet<String>> {
        let look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        let now = look.as_ref().and_then(|look| look());
        // Who has left is seen no more.
        let all = [
            &self.up,
            &self.requests_under_way,
            &self.breaker_open,
            &self.oldest_creation,
            &self.oldest_deletion,
            &self.token_ends,
            &self.token_late,
        ];
        all.into_iter().for_each(Family::clear);
        [&self.volumes, &self.state].into_iter().for_each(Family::clear);
        for state in now.iter().flatten().filter(|state| !state.alias) {
            let of = OfMember { member: state.member.clone() };
            let set = |family: &Family<OfMember, Gauge>, value: u64| {
                family.get_or_create(&of).set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            set(&self.up, state.up.into());
            let standing = OfMemberInState { member: state.member.clone(), state: state.state };
            self.state.get_or_create(&standing).set(1);
            set(&self.requests_under_way, state.requests_under_way as u64);
            set(&self.breaker_open, state.breaker_open.into());
            set(&self.oldest_creation, state.oldest_creation.as_secs());
            set(&self.oldest_deletion, state.oldest_deletion.as_secs());
            if let Some(ends) = state.token_ends {
                self.token_ends.get_or_create(&of).set(ends);
            }
            if let Some(late) = state.token_late {
                set(&self.token_late, late.into());
            }
            for &(name, count) in &state.volumes {
                let of = OfMemberInState { member: state.member.clone(), state: name };
                self.volumes.get_or_create(&of).set(i64::try_from(count).unwrap_or(i64::MAX));
            }
        }
        Some(now?.into_iter().map(|state| state.member).collect())
    }
}

/// The last part of an RPC's path.
pub fn method(path: &'static str) -> &'static str {
    path.rsplit('/').next().unwrap_or(path)
}

fn rpc_buckets() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

#[cfg(test)]
mod tests {
    use super::{requests::Subject, *};

    #[test]
    fn state_of_members_is_read_when_it_is_asked_for() {
        let metrics = Metrics::new();
        let there = Arc::new(Mutex::new(vec![MemberNow {
            member: "a".to_owned(),
            breaker_open: true,
            oldest_creation: Duration::from_secs(7),
            volumes: vec![("bound", 3)],
            ..MemberNow::default()
        }]));
        let seen = Arc::clone(&there);
        metrics.read_from(move || Some(seen.lock().unwrap().clone()));
        let text = metrics.text().unwrap();
        for line in [
            "kosmos_csi_member_breaker_open{member=\"a\"} 1",
            "kosmos_csi_member_oldest_creation_seconds{member=\"a\"} 7",
            "kosmos_csi_member_volumes{member=\"a\",state=\"bound\"} 3",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        there.lock().unwrap().clear();
        assert!(!metrics.text().unwrap().contains("member=\"a\""), "it has left");
    }

    #[test]
    fn every_metric_stands_in_the_documents_table() {
        let metrics = Metrics::new();
        // Only those are told that have been counted once.
        metrics.rpc_started("x");
        metrics.rpc_handled("d", "x", "Ok", Duration::ZERO);
        let subject = Subject { verb: "get", resource: "pods".to_owned() };
        metrics.requests().ended("a", &subject, "200", Duration::ZERO);
        metrics.requests().unanswered("a");
        metrics.read_from(|| {
            Some(vec![MemberNow {
                member: "a".to_owned(),
                token_ends: Some(1),
                token_late: Some(true),
                volumes: vec![("bound", 1)],
                ..MemberNow::default()
            }])
        });
        drop(metrics.waiting().asks("x", None));
        metrics.read_moves_from(|| MovesNow { phases: [("Copying".to_owned(), 1)].into(), ..MovesNow::default() });
        let text = metrics.text().unwrap();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let table = include_str!("../../../docs/metrics.md");
        let documented = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(['`', '{']).next());
        let documented = documented.filter(|name| name.contains("csi_"));
        let sorted = |names: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            let mut names: Vec<String> = names.map(str::to_owned).collect();
            names.sort();
            names
        };
        assert_eq!(sorted(&mut { names }), sorted(&mut { documented }));
    }
}
