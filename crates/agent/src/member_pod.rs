//! What is kept of a member's pod. There are many, and most are strangers': of one of these, where it is, whether it runs, and what it
//! asks for there. Of one with our labels, all of it as text, and beside that what is asked of many at once. Pure.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, LazyLock},
};

use serde_json::{Value, json};

use super::{
    HOST, MANAGED_BY,
    cache::Cached,
    object::{Place, is_leaving, is_over, is_ready, items, mark, text, unpacked},
};
use domain::volume::{DRIVER, VolumeId, quantity};
use leaf::ownership::COPY_OF;

/// On a copy: the handles of the host's volumes that it mounts, by leaf claims.
pub(super) const MOUNTS: &str = "kosmos.csi.io/mounts";
/// Resources of a node, or a pod, that Kubernetes knows, and as many that somebody has added.
const MOST_RESOURCES: usize = 64;
/// Of the name of one: a DNS name, and a word after it.
const LONGEST_RESOURCE: usize = 253 + 1 + 63;
/// On what is kept of one with our labels: whole, it takes much memory.
pub(super) const LONG: &str = "isLong";

/// Thousandths, by the resource's name.
pub(super) type Amounts = BTreeMap<String, u128>;

/// Those of a member that are gone through where somebody asks for them.
pub(super) type PodsOnDemand<'a> = LazyLock<PodsByNode, Box<dyn FnOnce() -> PodsByNode + Send + 'a>>;

#[derive(Debug)]
pub(super) struct PodsByNode(HashMap<String, Vec<Arc<MemberPod>>>);

impl PodsByNode {
    pub(super) fn of(&self, node: &str) -> impl Iterator<Item = &MemberPod> {
        self.0.get(node).into_iter().flatten().map(|pod| &**pod)
    }
}

impl FromIterator<Arc<MemberPod>> for PodsByNode {
    fn from_iter<I: IntoIterator<Item = Arc<MemberPod>>>(pods: I) -> Self {
        let mut by_node = HashMap::<String, Vec<Arc<MemberPod>>>::new();
        for pod in pods {
            match by_node.get_mut(pod.node()) {
                Some(there) => there.push(pod),
                None => drop(by_node.insert(pod.node().to_owned(), vec![pod])),
            }
        }
        Self(by_node)
    }
}

#[derive(Debug)]
pub(super) struct MemberPod {
    node: Box<str>,
    phase: Phase,
    is_leaving: bool,
    /// Nothing any more once it is over.
    asked: Box<[(Box<str>, u128)]>,
    ours: Option<Box<Ours>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begins,
    Runs,
    Over,
}

/// Of one that carries our label, whoever has put it there.
#[derive(Debug)]
struct Ours {
    host: Box<str>,
    /// The UID of the host's pod that it is a copy of; empty where it is none.
    copy_of: Box<str>,
    in_trouble: bool,
    restarts: u64,
    /// Leaves, by handle, or by place where it does not say the handle.
    mounts: Box<[Box<str>]>,
    is_long: bool,
    text: Box<str>,
}

impl Ours {
    fn of(pod: &Value) -> Self {
        Self {
            host: mark(pod, "labels", HOST).into(),
            copy_of: mark(pod, "annotations", COPY_OF).into(),
            in_trouble: in_trouble(pod),
            restarts: restarts(pod),
            mounts: mounts(pod),
            is_long: pod[LONG] == true,
            text: pod.to_string().into(),
        }
    }
}

impl MemberPod {
    pub(super) fn of(pod: &Value) -> Self {
        let phase = match text(pod, "/status/phase") {
            "Running" => Phase::Runs,
            "Succeeded" | "Failed" => Phase::Over,
            _ => Phase::Begins,
        };
        let asked = if phase == Phase::Over { Amounts::new() } else { asked(pod) };
        Self {
            node: text(pod, "/spec/nodeName").into(),
            phase,
            is_leaving: is_leaving(pod),
            asked: asked.into_iter().map(|(resource, amount)| (resource.into(), amount)).collect(),
            ours: (mark(pod, "labels", MANAGED_BY) == DRIVER).then(|| Box::new(Ours::of(pod))),
        }
    }

    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// What it asks for on its node, as the scheduler counts it.
    pub(super) fn asked(&self) -> impl Iterator<Item = (&str, u128)> {
        self.asked.iter().map(|(resource, amount)| (&**resource, *amount))
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// One that is being deleted may be on a node that is dead, and says that it runs for ever.
    pub(super) fn runs(&self) -> bool {
        self.phase == Phase::Runs && !self.is_leaving
    }

    /// Whether it carries our label, with whatever host's.
    pub(super) fn is_ours(&self) -> bool {
        self.ours.is_some()
    }

    /// The host of one that says that it is a copy of a pod.
    pub(super) fn host_of_copy(&self) -> Option<String> {
        let ours = self.ours.as_ref().filter(|ours| !ours.host.is_empty() && !ours.copy_of.is_empty())?;
        Some((*ours.host).to_owned())
    }

    pub(super) fn is_of_host(&self, host: &str) -> bool {
        self.ours.as_ref().is_some_and(|ours| *ours.host == *host)
    }

    pub(super) fn is_copy_of(&self, host: &str, uid: &str) -> bool {
        self.is_of_host(host) && self.copy_of() == Some(uid)
    }

    /// The UID of the pod of its host that it is a copy of.
    pub(super) fn copy_of(&self) -> Option<&str> {
        self.ours.as_ref().map(|ours| &*ours.copy_of).filter(|uid| !uid.is_empty())
    }

    /// Whether somebody may want to know what is the matter with it. One that has failed says it in its status.
    pub(super) fn in_trouble(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.in_trouble)
    }

    /// How often containers of it were started again.
    pub(super) fn restarts(&self) -> u64 {
        self.ours.as_ref().map_or(0, |ours| ours.restarts)
    }

    /// The leaves that it mounts.
    pub(super) fn mounts(&self) -> impl Iterator<Item = &str> {
        self.ours.iter().flat_map(|ours| ours.mounts.iter()).map(|leaf| &**leaf)
    }

    pub(super) fn is_long(&self) -> bool {
        self.ours.as_ref().is_some_and(|ours| ours.is_long)
    }
}

impl Cached for MemberPod {
    fn pack(object: Value) -> Self {
        Self::of(&object)
    }

    fn read(kept: &Arc<Self>, place: &Place) -> Arc<Value> {
        match &kept.ours {
            Some(ours) => unpacked(&ours.text),
            None => Arc::new(json!({"metadata": {"namespace": place.namespace, "name": place.name}})),
        }
    }

    fn weight(&self) -> usize {
        let asked = self.asked.iter().map(|(resource, _)| size_of::<(Box<str>, u128)>() + resource.len());
        let ours = self.ours.iter().map(|ours| {
            let texts = [&ours.host, &ours.copy_of, &ours.text];
            let mounts = ours.mounts.iter().map(|leaf| size_of::<Box<str>>() + leaf.len());
            size_of::<Ours>() + texts.iter().map(|text| text.len()).chain(mounts).sum::<usize>()
        });
        size_of::<Self>() + self.node.len() + asked.chain(ours).sum::<usize>()
    }
}

fn mounts(copy: &Value) -> Box<[Box<str>]> {
    let handles: BTreeMap<String, String> = serde_json::from_str(mark(copy, "annotations", MOUNTS)).unwrap_or_default();
    let claims = items(copy, "/spec/volumes").map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
    let place = |claim: &str| format!("{}/{claim}", text(copy, "/metadata/namespace"));
    // A place that is said there would be one in any namespace; half of the hash in a handle only who has the volume knows.
    let handle = |claim: &str| handles.get(claim).filter(|handle| VolumeId::parse(handle).is_some()).cloned();
    let leaf = |claim: &str| handle(claim).unwrap_or_else(|| place(claim)).into_boxed_str();
    claims.filter(|claim| !claim.is_empty()).map(leaf).collect()
}

fn in_trouble(copy: &Value) -> bool {
    !is_ready(copy) && !is_over(copy) && !is_leaving(copy)
}

fn restarts(copy: &Value) -> u64 {
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let counts = lists.into_iter().flat_map(|list| items(copy, list)).filter_map(|one| one["restartCount"].as_u64());
    counts.fold(0, u64::saturating_add)
}

/// As far as it is kept: whoever makes a pod may name as many resources as an API server takes.
pub(super) fn asked(pod: &Value) -> Amounts {
    let is_sidecar = |container: &&Value| container["restartPolicy"] == "Always";
    let requests = |container: &Value| amounts(&container["resources"]["requests"]);
    let mut running = Amounts::new();
    items(pod, "/spec/containers").for_each(|container| add(&mut running, &requests(container)));
    // Each of the others begins beside the sidecars that are before it.
    let (mut sidecars, mut beginning) = (Amounts::new(), Amounts::new());
    for container in items(pod, "/spec/initContainers") {
        let mut now = requests(container);
        if is_sidecar(&container) {
            add(&mut sidecars, &now);
            now.clear();
        }
        add(&mut now, &sidecars);
        most(&mut beginning, &now);
    }
    add(&mut running, &sidecars);
    most(&mut running, &beginning);
    // What is asked for the pod as a whole counts instead.
    running.extend(amounts(&pod["spec"]["resources"]["requests"]));
    add(&mut running, &amounts(&pod["spec"]["overhead"]));
    running.insert("pods".to_owned(), 1000);
    bounded(running)
}

pub(super) fn amounts(list: &Value) -> Amounts {
    let entries = list.as_object().into_iter().flatten();
    entries.filter_map(|(name, amount)| Some((name.clone(), quantity::thousandths(amount.as_str()?)?))).collect()
}

/// No more of them than there is room for, and none with another name than one may have.
pub(super) fn bounded(all: Amounts) -> Amounts {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let is_name = |name: &str| name.len() <= LONGEST_RESOURCE && name.chars().all(is_letter);
    let named = all.into_iter().filter(|(name, _)| is_name(name));
    let (added, known): (Amounts, Amounts) = named.partition(|(name, _)| name.contains('/'));
    known.into_iter().take(MOST_RESOURCES).chain(added.into_iter().take(MOST_RESOURCES)).collect()
}

pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let sum = to.entry(resource.clone()).or_default();
        *sum = sum.saturating_add(*amount);
    }
}

fn most(of: &mut Amounts, other: &Amounts) {
    for (resource, amount) in other {
        let now = of.entry(resource.clone()).or_default();
        *now = (*now).max(*amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(cpu: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu}}})
    }

    fn pod(labels: &Value) -> Value {
        let requests = json!({"cpu": "250m", "memory": "256Mi"});
        let env: Vec<Value> =
            (0..20).map(|number| json!({"name": format!("NAME_{number}"), "value": "v".repeat(40)})).collect();
        let container = json!({"name": "c", "image": "registry.example.org/shop/web:1.2.3", "env": env, "resources": {"requests": requests}});
        json!({
            "metadata": {"namespace": "x", "name": "p", "uid": "c", "labels": labels, "annotations": {COPY_OF: "u", "seen": "b".repeat(500)}},
            "spec": {"nodeName": "a", "containers": [container], "volumes": [{"persistentVolumeClaim": {"claimName": "data"}}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]},
        })
    }

    fn read(pod: &Arc<MemberPod>) -> Arc<Value> {
        MemberPod::read(pod, &Place { namespace: "x".to_owned(), name: "p".to_owned() })
    }

    fn asked_of(pod: &MemberPod) -> Vec<String> {
        pod.asked().map(|(resource, amount)| format!("{resource} {amount}")).collect()
    }

    #[test]
    fn pod_asks_for_what_it_needs_at_once() {
        let sidecar = json!({"restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}});
        let containers = json!([asking("1"), asking("500m")]);
        for (init, overhead, cpu) in [
            (json!([]), Value::Null, 1500),
            (json!([asking("4")]), Value::Null, 4000),
            (json!([sidecar, asking("4")]), Value::Null, 5000),
            (json!([sidecar, asking("1")]), json!({"cpu": "10m"}), 2510),
        ] {
            let pod = json!({"spec": {"containers": containers, "initContainers": init, "overhead": overhead}});
            assert_eq!(asked(&pod)["cpu"], cpu, "{pod}");
        }
        let whole = json!({"spec": {"containers": containers, "resources": {"requests": {"cpu": "8"}}}});
        assert_eq!(asked(&whole)["cpu"], 8000);
    }

    #[test]
    fn what_a_strangers_pod_asks_for_and_whether_it_runs_is_all_that_is_kept_of_it() {
        let stranger = Arc::new(MemberPod::pack(pod(&json!({"app": "web"}))));
        assert_eq!((stranger.node(), stranger.runs(), stranger.is_over()), ("a", true, false));
        assert_eq!(asked_of(&stranger), ["cpu 250", "memory 268435456000", "pods 1000"]);
        assert!(!stranger.is_ours() && stranger.host_of_copy().is_none() && stranger.copy_of().is_none());
        assert!(!stranger.in_trouble() && stranger.mounts().next().is_none());
        assert_eq!(*read(&stranger), json!({"metadata": {"namespace": "x", "name": "p"}}));
        assert!(stranger.weight() < 300, "{} bytes", stranger.weight());
    }

    /// A scheduler takes no such pod; whoever makes it may have chosen its node.
    #[test]
    fn strangers_pod_that_names_resources_without_end_is_kept_in_little_room() {
        let mut stranger = pod(&json!({"app": "web"}));
        for number in 0..10_000 {
            let requests = &mut stranger["spec"]["containers"][0]["resources"]["requests"];
            requests[format!("example.com/{number}")] = json!("1");
        }
        let stranger = MemberPod::of(&stranger);
        assert!(stranger.weight() < 6000, "{} bytes", stranger.weight());
        let asked = asked_of(&stranger);
        assert!(["cpu 250", "memory 268435456000", "pods 1000"].iter().all(|one| asked.contains(&(*one).to_owned())));
    }

    #[test]
    fn pod_with_our_labels_is_kept_whole_as_text() {
        let whole = pod(&json!({MANAGED_BY: DRIVER, HOST: "h"}));
        let ours = Arc::new(MemberPod::pack(whole.clone()));
        assert_eq!((ours.host_of_copy().as_deref(), ours.copy_of()), (Some("h"), Some("u")));
        assert!(ours.is_of_host("h") && !ours.is_of_host("other") && ours.mounts().eq(["x/data"]));
        assert_eq!(*read(&ours), whole);
        let (packed, tree, text) = (ours.weight(), whole.weight(), whole.to_string().len());
        assert!(packed < text + 400 && packed < tree, "{packed} bytes of {text}, {tree} as a tree");
    }

    #[test]
    fn pod_that_is_over_asks_for_nothing_and_one_that_is_being_deleted_does_not_run() {
        let with = |pointer: &str, field: &str, value: &str| {
            let mut pod = pod(&json!({}));
            pod.pointer_mut(pointer).unwrap()[field] = json!(value);
            MemberPod::of(&pod)
        };
        for phase in ["Succeeded", "Failed"] {
            let over = with("/status", "phase", phase);
            assert!(over.is_over() && !over.runs() && asked_of(&over).is_empty(), "{phase}");
        }
        let leaving = with("/metadata", "deletionTimestamp", "2026-01-02T03:04:05Z");
        assert!(!leaving.runs() && !asked_of(&leaving).is_empty(), "what it asks for is taken still");
        assert!(!with("/status", "phase", "Pending").runs());
    }

    #[test]
    fn all_containers_of_a_copy_count_that_were_started_again() {
        let count = |count: u64| json!([{"name": "a", "restartCount": count}, {"name": "b"}]);
        let status = json!({"initContainerStatuses": count(2), "containerStatuses": count(40)});
        assert_eq!(restarts(&json!({"status": status})), 42);
        let said = json!([{"restartCount": u64::MAX}, {"restartCount": 1}, {"restartCount": -1}]);
        assert_eq!(restarts(&json!({"status": {"containerStatuses": said}})), u64::MAX);
    }

    #[test]
    fn copy_is_in_trouble_until_it_is_ready_or_done() {
        for (status, expected) in [
            (json!({"phase": "Pending"}), true),
            (json!({"phase": "Failed"}), false),
            (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}), true),
            (json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), false),
            (json!({"phase": "Succeeded"}), false),
        ] {
            assert_eq!(in_trouble(&json!({"metadata": {}, "status": status})), expected, "{status}");
        }
        assert!(!in_trouble(&json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})));
    }
}
