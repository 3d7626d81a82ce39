//! Stands between the driver and the clusters: sees every request before it is carried out, judges whether the driver may
//! send it at all, keeps a trace, and lets the faults of the day decide what becomes of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use serde_json::Value;
use simulate::{
    Cluster,
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::Instant;

use crate::{
    attach::{double::ATTACHMENTS, machines},
    bench::lock,
    history::{History, label},
    moves,
    snapshotter::{CONTENTS, GROUP_CONTENTS, GROUPS, SNAPSHOTS},
};

/// What becomes of a request to a cluster (0 is the host), by its number among all that the driver has sent.
pub type Fate = Arc<dyn Fn(u64, usize, &Asked) -> Action + Send + Sync>;

pub struct Guard {
    pub history: Mutex<History>,
    clusters: Vec<Cluster>,
    fate: Mutex<Option<Fate>>,
    sent: AtomicU64,
    /// Requests on Leases among them.
    renewals: AtomicU64,
    silenced: Mutex<BTreeSet<String>>,
    /// Requests to members, by who sent them.
    senders: Mutex<BTreeMap<String, u64>>,
    wrong: Mutex<Vec<String>>,
    /// None where nobody is going to read it.
    trace: Mutex<Option<Vec<String>>>,
    counts: Mutex<BTreeMap<Subject, Asking>>,
    began: Instant,
}

/// What requests are counted by: cluster, verb, resource, namespace and name.
type Subject = (usize, &'static str, String, String, String);

/// How often one thing was asked of one object.
struct Asking {
    last: Instant,
    at_that_instant: usize,
    in_all: u32,
}

pub const LEASES: &str = "leases.coordination.k8s.io";

/// Requests on one object at one instant, besides one for each member: a few callers may have come at once.
const AT_ONCE: usize = 10;
/// Moments at which there are requests of one kind on one object in a whole story, with all its retries.
const IN_ALL: u32 = 400;

impl Guard {
    pub fn new(host: &Cluster, members: &[Cluster]) -> Arc<Self> {
        let identity = host.get("namespaces", "", "kube-system").unwrap();
        let clusters: Vec<Cluster> = std::iter::once(host).chain(members).cloned().collect();
        let guard = Arc::new(Self {
            history: Mutex::new(History::new(text(&identity, "/metadata/uid"), host, members)),
            clusters,
            fate: Mutex::default(),
            sent: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            silenced: Mutex::default(),
            senders: Mutex::default(),
            wrong: Mutex::default(),
            trace: Mutex::new(Some(Vec::new())),
            counts: Mutex::default(),
            began: Instant::now(),
        });
        for (at, cluster) in guard.clusters.iter().enumerate() {
            let weak = Arc::downgrade(&guard);
            cluster.faults().set(move |asked| weak.upgrade().map_or(Action::Refuse, |guard| guard.judge(at, asked)));
        }
        guard
    }

    /// From now on faults are decided so.
    pub fn set_fate(&self, fate: impl Fn(u64, usize, &Asked) -> Action + Send + Sync + 'static) {
        *lock(&self.fate) = Some(Arc::new(fate));
    }

    pub fn heal(&self) {
        *lock(&self.fate) = None;
    }

    /// Whatever a dead process sent and still sends never arrives.
    pub fn silence(&self, client: &str) {
        lock(&self.silenced).insert(client.to_owned());
    }

    /// How many requests have been sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// How many of them were for work: whoever leads renews its Lease besides.
    pub fn sent_for_work(&self) -> u64 {
        self.sent() - self.renewals.load(Ordering::Relaxed)
    }

    /// How many of them one process has sent to members.
    pub fn sent_by(&self, client: &str) -> u64 {
        lock(&self.senders).get(client).copied().unwrap_or_default()
    }

    pub fn report(&self, wrong: impl Into<String>) {
        let wrong = wrong.into();
        self.note(|| format!("WRONG: {wrong}"));
        lock(&self.wrong).push(wrong);
    }

    /// Everything that was found wrong so far.
    pub fn wrong(&self) -> Vec<String> {
        self.look();
        lock(&self.wrong).clone()
    }

    /// Takes in what has happened in the members.
    pub fn look(&self) {
        let wrong = lock(&self.history).catch_up_all();
        for wrong in wrong {
            self.report(wrong);
        }
    }

    /// A line in the trace.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let time = self.began.elapsed().as_secs_f64();
        if let Some(trace) = lock(&self.trace).as_mut() {
            trace.push(format!("{time:9.3} {}", line()));
        }
    }

    pub fn trace(&self) -> Vec<String> {
        lock(&self.trace).clone().unwrap_or_default()
    }

    /// Whether there is to be a trace, from now on. It takes time; what a schedule has found is played again with it.
    pub fn keeps_trace(&self, kept: bool) {
        *lock(&self.trace) = kept.then(Vec::new);
    }

    fn judge(&self, at: usize, asked: &Asked) -> Action {
        if lock(&self.silenced).contains(&asked.client) {
            return Action::Hang;
        }
        let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        self.renewals.fetch_add(u64::from(asked.resource == LEASES), Ordering::Relaxed);
        if at > 0 {
            *lock(&self.senders).entry(asked.client.clone()).or_default() += 1;
        }
        let happened = match (at, asked.verb) {
            (0, _) => Vec::new(),
            (_, Verb::Create) => lock(&self.history).catch_up_all(),
            _ => lock(&self.history).catch_up(at - 1),
        };
        for wrong in happened {
            self.report(wrong);
        }
        if at == 0 && moves::says_closed(asked) {
            self.is_closed(asked);
        }
        let forbidden = if at == 0 { in_host(asked) } else { self.in_member(at, asked) };
        let live = || self.clusters[at].get(&asked.resource, &asked.namespace, &asked.name);
        let host = &self.clusters[0];
        if let Some(reason) = forbidden.filter(|_| !moves::is_permitted(host, at == 0, asked, live().as_deref())) {
            self.report(format!("I3: {reason}: {asked} in {} with {}", self.clusters[at].name(), asked.body));
        }
        let fate = lock(&self.fate).clone();
        let action = fate.map_or(Action::Pass, |fate| fate(number, at, asked));
        let action = machines::plugging(&self.clusters[at], asked, &action).unwrap_or(action);
        let refused = at > 0 && action == Action::Pass && self.refuses(at, asked);
        let action = if refused { Action::Answer { code: 403, reason: "Forbidden" } } else { action };
        if at > 0 {
            lock(&self.history).is_asked_for(at - 1, asked);
        }
        if at > 0 && matches!(action, Action::Late(_) | Action::Delay(_)) {
            lock(&self.history).is_on_its_way(at - 1, asked, &action);
        }
        self.count(at, asked);
        let told = if asked.resource == "events" { text(&asked.body, "/message") } else { "" };
        self.note(|| format!("{:>4} {asked} in {}: {action:?} {told}", number, self.clusters[at].name()));
        action
    }

    fn is_closed(&self, asked: &Asked) {
        self.look();
        let of = self.clusters[0].get(&asked.resource, &asked.namespace, &asked.name);
        if of.is_some_and(|of| !lock(&self.history).has_closed(&of)) {
            self.report(format!("I4: a move says that no further pod gets the volume, and it is not closed: {asked}"));
        }
    }

    fn count(&self, at: usize, asked: &Asked) {
        if asked.name.is_empty() || asked.verb == Verb::Watch {
            return;
        }
        let subject = (at, verb(asked.verb), asked.resource.clone(), asked.namespace.clone(), asked.name.clone());
        let now = Instant::now();
        let mut counts = lock(&self.counts);
        let asking = counts.entry(subject).or_insert(Asking { last: now, at_that_instant: 0, in_all: 0 });
        let is_first = asking.in_all == 0 || asking.last != now;
        asking.at_that_instant = if is_first { 1 } else { asking.at_that_instant + 1 };
        asking.in_all += u32::from(is_first);
        asking.last = now;
        let hot = asking.at_that_instant == AT_ONCE + self.clusters.len() || is_first && asking.in_all == IN_ALL + 1;
        let shared = ["kosmos-csi-members", "kosmos-csi-leader", "kube-system"].contains(&asked.name.as_str());
        drop(counts);
        if hot && !shared {
            self.report(format!("I11: a hot loop: {asked} in {}", self.clusters[at].name()));
        }
    }

    /// What the policy of `deploy/member.yaml` says of snapshots and what stands behind them: only what carries our labels is written,
    /// and what does not yet may be labelled, with its spec as it is.
    fn refuses(&self, at: usize, asked: &Asked) -> bool {
        let is_of_snapshots = [SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS].contains(&asked.resource.as_str());
        if !is_of_snapshots || !matches!(asked.verb, Verb::Patch | Verb::Delete) {
            return false;
        }
        let changes = |part: &str| {
            let mut operations = asked.body.as_array().into_iter().flatten();
            operations.any(|one| text(one, "/op") != "test" && text(one, "/path").starts_with(part))
        };
        let live = self.clusters[at].get(&asked.resource, &asked.namespace, &asked.name);
        let foreign = live.is_some_and(|live| !lock(&self.history).is_of_this_host(&live));
        foreign && (changes("/spec") || !changes("/metadata/labels"))
    }

    /// Why the driver may not send this to a member.
    fn in_member(&self, at: usize, asked: &Asked) -> Option<String> {
        let live = self.clusters[at].get(&asked.resource, &asked.namespace, &asked.name);
        match asked.verb {
            Verb::Get | Verb::List | Verb::Watch => None,
            Verb::Create => self.creation(asked),
            Verb::Delete => self.deletion(asked, live.as_deref()),
            Verb::Patch => self.patch(asked, live.as_deref()),
            Verb::Update if ["addvolume", "removevolume"].contains(&asked.subresource.as_str()) => {
                let ours = text(&asked.body, "/name").starts_with("v-");
                (!ours).then(|| "somebody else's volume is plugged".to_owned())
            }
            Verb::Update | Verb::DeleteCollection => Some("this verb is never used".to_owned()),
        }
    }

    fn creation(&self, asked: &Asked) -> Option<String> {
        let marked = lock(&self.history).volume_of(&asked.body).is_some();
        match asked.resource.as_str() {
            "namespaces" => None,
            "persistentvolumeclaims" | "pods" | SNAPSHOTS | ATTACHMENTS if marked => None,
            GROUPS if lock(&self.history).is_of_this_host(&asked.body) => None,
            "persistentvolumeclaims" | "pods" | SNAPSHOTS | GROUPS | ATTACHMENTS => {
                Some("made without our labels".to_owned())
            }
            _ => Some("nothing of this kind is ever made".to_owned()),
        }
    }

    /// Deleted is only what was read before, by its UID, and only what is ours.
    fn deletion(&self, asked: &Asked, live: Option<&Value>) -> Option<String> {
        let uid = text(&asked.body, "/preconditions/uid");
        if uid.is_empty() {
            return Some("deleted without a precondition on the UID".to_owned());
        }
        if !["persistentvolumeclaims", "pods", SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS, ATTACHMENTS]
            .contains(&asked.resource.as_str())
        {
            return Some("nothing of this kind is ever deleted".to_owned());
        }
        let forced = asked.body.get("gracePeriodSeconds").is_some();
        let meant = live.filter(|live| text(live, "/metadata/uid") == uid);
        let foreign = meant.is_some_and(|live| match asked.resource.as_str() {
            GROUPS => !lock(&self.history).is_of_this_host(live),
            CONTENTS => !lock(&self.history).was_ours(text(live, "/spec/volumeSnapshotRef/uid")),
            GROUP_CONTENTS => !lock(&self.history).was_ours(text(live, "/spec/volumeGroupSnapshotRef/uid")),
            _ => self.is_foreign(live) && !self.is_given(live),
        });
        (forced || foreign).then(|| format!("deleted by force ({forced}) or foreign ({foreign})"))
    }

    /// It is carried out only on what was read.
    fn patch_over_version(&self, asked: &Asked, live: &Value) -> Option<String> {
        match asked.resource.as_str() {
            "persistentvolumeclaims" => self.is_foreign(live).then(|| "a foreign claim is patched".to_owned()),
            "persistentvolumes" => {
                let is_ours = lock(&self.history).was_ours(text(live, "/spec/claimRef/uid"));
                (!is_ours).then(|| "a volume is patched whose claim was never ours".to_owned())
            }
            _ => None,
        }
    }

    fn patch(&self, asked: &Asked, live: Option<&Value>) -> Option<String> {
        if let Some(uid) = over_version(&asked.body) {
            return self.patch_over_version(asked, live.filter(|live| text(live, "/metadata/uid") == uid)?);
        }
        let tested = |path: &str| {
            let operations = asked.body.as_array()?;
            let test = operations.iter().find(|one| text(one, "/op") == "test" && text(one, "/path") == path)?;
            test.get("value")?.as_str().map(str::to_owned)
        };
        match asked.resource.as_str() {
            "persistentvolumeclaims" => {
                let Some(uid) = tested("/metadata/uid") else { return Some("patched without its UID".to_owned()) };
                let meant = live.filter(|live| text(live, "/metadata/uid") == uid)?;
                self.is_foreign(meant).then(|| "a foreign claim is patched".to_owned())
            }
            "persistentvolumes" => {
                if live.is_some_and(|live| takes_over(live, asked)) {
                    return Some("a volume that is another's is marked as a leaf's".to_owned());
                }
                let Some(claim) = tested("/spec/claimRef/uid") else {
                    let label = |key: &str| tested(&format!("/metadata/labels/{key}"));
                    let labels = [label("kosmos.csi.io~1host"), label("kosmos.csi.io~1volume")];
                    let ours = tested("/metadata/uid").is_some() && labels.iter().all(Option::is_some);
                    return (!ours).then(|| "a volume is patched without a test of its claim or our labels".to_owned());
                };
                let known = lock(&self.history).was_ours(&claim);
                (!known).then(|| "a volume is patched whose claim was never ours".to_owned())
            }
            SNAPSHOTS | CONTENTS | GROUP_CONTENTS => {
                let bound_to =
                    ["/metadata/uid", "/spec/volumeSnapshotRef/uid", "/spec/volumeGroupSnapshotRef/uid"].map(tested);
                let Some(uid) = bound_to.into_iter().flatten().last().filter(|uid| !uid.is_empty()) else {
                    return Some("patched without a test of what it belongs to".to_owned());
                };
                let known = lock(&self.history).was_ours(&uid);
                (!known).then(|| "patched, and what it belongs to was never ours".to_owned())
            }
            ATTACHMENTS => {
                let tests = ["/metadata/uid", "/metadata/resourceVersion"].map(tested);
                let foreign = live.is_some_and(|live| self.is_foreign(live));
                (foreign || tests.iter().any(Option::is_none))
                    .then(|| "a foreign attachment is patched, or one that is not the one that was read".to_owned())
            }
            machines::OPERATED | machines::PLUGGED => {
                let applied = !text(&asked.body, "/metadata/uid").is_empty();
                let versioned = tested("/metadata/resourceVersion").is_some();
                (!applied && !versioned).then(|| "a machine is patched without its UID or version".to_owned())
            }
            _ => Some("nothing of this kind is ever patched".to_owned()),
        }
    }

    /// Its owner has consented that the host uses it.
    fn is_given(&self, object: &Value) -> bool {
        let consent = object["metadata"]["annotations"]["kosmos.csi.io/consent"].as_str();
        let host = self.clusters[0].get("namespaces", "", "kube-system").unwrap();
        consent == Some(text(&host, "/metadata/uid")) && lock(&self.history).volume_of(object).is_none()
    }

    fn is_foreign(&self, object: &Value) -> bool {
        let history = lock(&self.history);
        history.volume_of(object).is_none() || history.was_planted(object)
    }
}

/// Another leaf's label or another host's is written over. A test of what is not there makes that do nothing.
fn takes_over(live: &Value, asked: &Asked) -> bool {
    let operations = || asked.body.as_array().into_iter().flatten();
    ["host", "volume"].iter().any(|key| {
        let there = label(live, &format!("kosmos.csi.io/{key}"));
        let path = format!("/metadata/labels/kosmos.csi.io~1{key}");
        let value_of = |op: &str| {
            let of_it = |one: &&Value| text(one, "/op") == op && text(one, "/path") == path;
            operations().find(of_it).map(|one| text(one, "/value"))
        };
        let is_carried_out = value_of("test").is_none_or(|tested| tested == there);
        !there.is_empty() && is_carried_out && value_of("add").is_some_and(|becomes| becomes != there)
    })
}

/// Why the driver may not send this to the host.
fn in_host(asked: &Asked) -> Option<String> {
    let place = (asked.resource.as_str(), asked.namespace.as_str(), asked.name.as_str());
    match (asked.verb, place) {
        (Verb::Get | Verb::List | Verb::Watch, _)
        | (Verb::Create | Verb::Patch, ("configmaps", "kosmos-csi", "kosmos-csi-members"))
        | (
            Verb::Create,
            ("namespaces", "", "kosmos-csi") | ("events", "default" | "shop", _) | (LEASES, "kosmos-csi", _),
        ) => None,
        (Verb::Patch, ("persistentvolumeclaims", ..) | (LEASES, "kosmos-csi", "kosmos-csi-leader")) => {
            let text = asked.body.to_string();
            let versioned = !text.contains("\"resourceVersion\":\"\"") && text.contains("\"resourceVersion\"");
            let is_tested = versioned || is_first_record(asked);
            (!is_tested)
                .then(|| "a host claim, or the lease, is patched whatever has been written on it since".to_owned())
        }
        (Verb::Patch, ("events", "default" | "shop", _)) => {
            let says: Vec<&str> = asked.body.as_object().unwrap().keys().map(String::as_str).collect();
            let versioned = !text(&asked.body, "/metadata/resourceVersion").is_empty();
            let counts = says == ["lastTimestamp"] || says == ["count", "metadata"] && versioned;
            (!counts).then(|| "of an event more is patched than that it is told again".to_owned())
        }
        (Verb::Create, ("secrets", ..)) => {
            let ours = asked.body["metadata"]["labels"]["kosmos.csi.io/volume"].is_string();
            (!ours).then(|| "a Secret is made without our labels".to_owned())
        }
        (Verb::Patch, ("secrets", ..)) => {
            let versioned = text(&asked.body, "/0/path") == "/metadata/resourceVersion"
                || !text(&asked.body, "/metadata/resourceVersion").is_empty();
            (!versioned).then(|| "a Secret is patched without its version".to_owned())
        }
        _ => Some("the driver never does this in the host".to_owned()),
    }
}

/// Of the member for a claim, and only on one that has no other and no volume.
fn is_first_record(asked: &Asked) -> bool {
    let operations = || asked.body.as_array().into_iter().flatten();
    let tests = |path: &str, is: fn(&Value) -> bool| {
        let mut of_it = operations().filter(|one| text(one, "/op") == "test" && text(one, "/path") == path);
        of_it.any(|one| is(&one["value"]))
    };
    let mut changes = operations().filter(|one| text(one, "/op") != "test");
    let is_record = |path: &str| {
        ["kosmos.csi.io~1member", "kosmos.csi.io~1member-of", "kosmos-io~1cluster-owners"]
            .iter()
            .any(|key| path.strip_prefix("/metadata/annotations/") == Some(*key))
    };
    tests("/metadata/uid", Value::is_string)
        && tests("/spec/volumeName", Value::is_null)
        && tests("/metadata/annotations/kosmos.csi.io~1member", Value::is_null)
        && changes.all(|one| text(one, "/op") == "add" && is_record(text(one, "/path")))
}

fn verb(verb: Verb) -> &'static str {
    match verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Watch => "watch",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch => "patch",
        Verb::Delete => "delete",
        Verb::DeleteCollection => "deletecollection",
    }
}

/// The UID of what a merge is meant for, where it tests the version that was read.
fn over_version(body: &Value) -> Option<&str> {
    let (uid, version) = (text(body, "/metadata/uid"), text(body, "/metadata/resourceVersion"));
    (!uid.is_empty() && !version.is_empty()).then_some(uid)
}
