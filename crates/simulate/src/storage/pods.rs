//! Pods on the member's node: they are scheduled once their claims allow it, then they run, and end when they are told to.

mod fit;
mod schedule;
mod status;

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap, HashSet},
    time::Duration,
};

use serde_json::{Value, json};
use tokio::time::Instant;

use self::schedule::{Claimed, Verdict};
use super::{
    Member,
    names::{CLAIMS, CLASSES, NODES, PODS, SECRETS, SELECTED_NODE, VOLUMES, class_of, is_bound},
    node, settings,
};
use crate::{
    What,
    chance::Chance,
    events::{self, About},
    object::{annotate, annotation, is_terminating, name, namespace, set, text, uid},
    store::Key,
    timers::Timers,
    users::{claims_of, secrets_of},
};

const SCHEDULER: &str = "default-scheduler";

pub(super) async fn run(member: &Member) {
    let mut changes = crate::follow::follow(&member.cluster, &[NODES, PODS, CLAIMS, SECRETS]);
    let mut room = member.backing.changes();
    let mut pods = Pods::new(member);
    loop {
        tokio::select! {
            biased;
            change = changes.next() => match change.resource.as_str() {
                PODS => pods.changed(&change.object, change.what == What::Deleted),
                CLAIMS => pods.claim_changed(&change.object, change.what == What::Deleted),
                _ => pods.wake_stuck(),
            },
            () = room.changed() => pods.wake_stuck(),
            step = pods.timers.next() => pods.take(&step),
        }
    }
}

struct Pods<'a> {
    member: &'a Member,
    nodes: Vec<String>,
    /// Pods that have not started, by the claims that they name.
    by_claim: HashMap<Key, BTreeSet<Key>>,
    /// Bound claims that are gone, and since when.
    former: HashMap<Key, Instant>,
    /// Pods that no claim of theirs will wake.
    stuck: BTreeSet<Key>,
    /// UIDs of pods that are about to start, or to end.
    starting: HashSet<String>,
    stopping: HashSet<String>,
    addresses: u32,
    timers: Timers<PodStep>,
}

enum PodStep {
    Start { pod: Key, uid: String },
    Stop { pod: Key, uid: String },
}

impl<'a> Pods<'a> {
    fn new(member: &'a Member) -> Self {
        Self {
            member,
            nodes: node::names(member),
            by_claim: HashMap::new(),
            former: HashMap::new(),
            stuck: BTreeSet::new(),
            starting: HashSet::new(),
            stopping: HashSet::new(),
            addresses: 0,
            timers: Timers::new(),
        }
    }

    fn changed(&mut self, pod: &Value, gone: bool) {
        let key = (namespace(pod).to_owned(), name(pod).to_owned());
        let waits = !gone && text(pod, "/status/startTime").is_empty();
        for claim in claims_of(pod) {
            let pods = self.by_claim.entry((key.0.clone(), claim.to_owned()));
            if waits {
                pods.or_default().insert(key.clone());
            } else {
                pods.and_modify(|pods| {
                    pods.remove(&key);
                });
            }
        }
        if gone {
            self.stuck.remove(&key);
            self.starting.remove(uid(pod));
            self.stopping.remove(uid(pod));
        } else {
            self.look(&key);
        }
    }

    fn claim_changed(&mut self, claim: &Value, gone: bool) {
        let key = (namespace(claim).to_owned(), name(claim).to_owned());
        if gone && is_bound(claim) && !self.member.settings.pods.goes_by_former_claims.is_zero() {
            self.former.insert(key.clone(), Instant::now());
        }
        let pods = self.by_claim.get(&key).cloned().unwrap_or_default();
        if pods.is_empty() {
            self.by_claim.remove(&key);
        }
        for pod in &pods {
            self.look(pod);
        }
    }

    fn wake_stuck(&mut self) {
        for pod in &self.stuck.clone() {
            self.look(pod);
        }
    }

    fn look(&mut self, key: &Key) {
        self.stuck.remove(key);
        let Some(pod) = self.member.cluster.get(PODS, &key.0, &key.1) else {
            return;
        };
        let place = text(&pod, "/spec/nodeName");
        if is_terminating(&pod) {
            if self.is_here(place) {
                self.stop(key, &pod);
            }
        } else if place.is_empty() {
            self.schedule(key, &pod);
        } else if self.is_here(place) && text(&pod, "/status/startTime").is_empty() {
            self.start(key, &pod);
        }
    }

    fn is_here(&self, node: &str) -> bool {
        self.nodes.iter().any(|one| one == node)
    }

    /// The nodes in the order in which they are tried for a pod: those first that it prefers, and else by lot.
    fn in_order(&self, pod: &Value) -> Vec<String> {
        let mut nodes = self.nodes.clone();
        if nodes.len() > 1 {
            let object = |node: &str| self.member.cluster.get(NODES, "", node);
            nodes.sort_by_cached_key(|node| {
                let preference = object(node).map_or(0, |node| fit::preference(pod, &node));
                (Reverse(preference), self.chance(&format!("place on {node}"), pod).below(u64::MAX))
            });
        }
        nodes
    }

    fn schedule(&mut self, key: &Key, pod: &Value) {
        let by_another = !["", SCHEDULER].contains(&text(pod, "/spec/schedulerName"));
        if by_another || pod.pointer("/spec/schedulingGates/0").is_some() {
            return;
        }
        if let Some(node) =
            self.nodes.first().filter(|_| claims_of(pod).any(|claim| self.is_taken_for_former(&key.0, claim)))
        {
            return self.bind(pod, node);
        }
        let claims: Vec<Claimed> = claims_of(pod).map(|claim| self.claimed(&key.0, claim)).collect();
        let mut obstacles = Vec::new();
        for name in self.in_order(pod) {
            let node = self.member.cluster.get(NODES, "", &name);
            match schedule::decide(pod, node.as_deref(), &claims) {
                Verdict::Bind => return self.bind(pod, &name),
                Verdict::Select(claims) => return claims.iter().for_each(|claim| self.select(&key.0, claim, &name)),
                Verdict::Wait => return,
                Verdict::Unschedulable(message) if obstacles.contains(&message) => {}
                Verdict::Unschedulable(message) => obstacles.push(message),
            }
        }
        self.leave(key, pod, &obstacles.join(" "));
    }

    fn is_taken_for_former(&self, namespace: &str, claim: &str) -> bool {
        let since = self.former.get(&(namespace.to_owned(), claim.to_owned()));
        since.is_some_and(|since| since.elapsed() < self.member.settings.pods.goes_by_former_claims)
    }

    fn leave(&mut self, key: &Key, pod: &Value, message: &str) {
        self.stuck.insert(key.clone());
        let now = self.member.cluster.stamp();
        self.edit(pod, |pod| {
            status::set_condition(pod, "PodScheduled", "False", "Unschedulable", message, &now);
        });
        self.tell(pod, "Warning", "FailedScheduling", message);
    }

    fn claimed(&self, namespace: &str, name: &str) -> Claimed {
        let cluster = &self.member.cluster;
        let claim = cluster.get(CLAIMS, namespace, name);
        let class = claim.as_ref().map(|claim| class_of(claim)).unwrap_or_default();
        let volume = claim.as_ref().map(|claim| text(claim, "/spec/volumeName")).filter(|volume| !volume.is_empty());
        Claimed {
            name: name.to_owned(),
            class: cluster.get(CLASSES, "", class),
            volume: volume.and_then(|volume| cluster.get(VOLUMES, "", volume)),
            room: self.member.backing.room(class),
            claim,
        }
    }

    fn bind(&self, pod: &Value, node: &str) {
        let now = self.member.cluster.stamp();
        self.edit(pod, |pod| {
            set(pod, &["spec", "nodeName"], json!(node));
            status::set_condition(pod, "PodScheduled", "True", "", "", &now);
        });
        let message = format!("{}/{} runs on {node}", namespace(pod), name(pod));
        self.tell(pod, "Normal", "Scheduled", &message);
    }

    /// Tells a claim that waits where its volume is wanted.
    fn select(&self, namespace: &str, claim: &str, node: &str) {
        let tell = |claim: &mut Value| {
            if annotation(claim, SELECTED_NODE).is_empty() && !is_bound(claim) {
                annotate(claim, SELECTED_NODE, node);
            }
        };
        // A claim that is gone wakes the pod by its end.
        drop(self.member.cluster.change(CLAIMS, namespace, claim, tell));
    }

    fn start(&mut self, key: &Key, pod: &Value) {
        let is_ready =
            |claim: &str| self.member.cluster.get(CLAIMS, &key.0, claim).is_some_and(|claim| is_bound(&claim));
        let has_secret = |name: &str| self.member.cluster.get(SECRETS, &key.0, name).is_some();
        if !secrets_of(pod).all(has_secret) {
            // A kubelet tries to mount it again and again.
            self.stuck.insert(key.clone());
            return;
        }
        if claims_of(pod).all(is_ready) && self.starting.insert(uid(pod).to_owned()) {
            let after = settings::within(&self.member.settings.pods.starts, &self.chance("start", pod));
            self.timers.add(after, PodStep::Start { pod: key.clone(), uid: uid(pod).to_owned() });
        }
    }

    fn stop(&mut self, key: &Key, pod: &Value) {
        if self.stopping.insert(uid(pod).to_owned()) {
            let grace = pod.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(0);
            let needed = settings::within(&self.member.settings.pods.stops, &self.chance("stop", pod));
            let after = needed.min(Duration::from_secs(grace));
            self.timers.add(after, PodStep::Stop { pod: key.clone(), uid: uid(pod).to_owned() });
        }
    }

    fn take(&mut self, step: &PodStep) {
        let (PodStep::Start { pod: key, uid: wanted } | PodStep::Stop { pod: key, uid: wanted }) = step;
        let pod = self.member.cluster.get(PODS, &key.0, &key.1).filter(|pod| uid(pod) == wanted);
        let Some(pod) = pod else {
            return;
        };
        let now = self.member.cluster.stamp();
        if matches!(step, PodStep::Stop { .. }) {
            self.edit(&pod, |pod| status::stop(pod, &now));
            // Without time left, and without finalizers, a pod that ends is gone.
            self.edit(&pod, |pod| set(pod, &["metadata", "deletionGracePeriodSeconds"], json!(0)));
        } else if !is_terminating(&pod) {
            let address = status::address(self.addresses);
            self.addresses += 1;
            self.edit(&pod, |pod| status::run(pod, &address, node::ADDRESS, &now));
        }
    }

    fn edit(&self, pod: &Value, edit: impl FnOnce(&mut Value)) {
        let same = |live: &mut Value| {
            if uid(live) == uid(pod) {
                edit(live);
            }
        };
        drop(self.member.cluster.change(PODS, namespace(pod), name(pod), same));
    }

    fn chance(&self, what: &str, pod: &Value) -> Chance {
        Chance::about(self.member.cluster.seed(), &format!("{what} {}/{}", namespace(pod), name(pod)))
    }

    fn tell(&self, pod: &Value, level: &'static str, reason: &str, message: &str) {
        events::tell(&self.member.cluster, &About::pod(pod), SCHEDULER, level, reason, message);
    }
}
