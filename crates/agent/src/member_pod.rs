//! What is kept of a member's pod. There are many, and most are strangers': of one of these, where it is, whether it runs, and what it
//! asks for there. Of one with our labels, all of it as text, and beside that what is asked of many at once. Of one that says that it is a copy, and
//! has the labels no more, what it mounts. Pure.

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
/// Of a UID, in bytes.
const LONGEST_UID: usize = 63;
/// On what is kept of one with our labels: whole, it takes much memory.
pub(super) const LONG: &str = "isLong";

/// In place of the host of a copy that is disowned.
pub(super) const NOBODY: &str = "";

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
    /// The UID of the host's pod that it says it is a copy of, whatever its labels are; empty where it says none.
    copy_of: Box<str>,
    /// Of one that is ours or says so: leaves, by handle, or by place where it does not say the handle.
    mounts: Box<[Box<str>]>,
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
    in_trouble: bool,
    restarts: u64,
    is_long: bool,
    text: Box<str>,
}

impl Ours {
    fn of(pod: &Value) -> Self {
        Self {
            host: mark(pod, "labels", HOST).into(),
            in_trouble: in_trouble(pod),
            restarts: restarts(pod),
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
        let ours = (mark(pod, "labels", MANAGED_BY) == DRIVER).then(|| Box::new(Ours::of(pod)));
        let copy_of = Some(mark(pod, "annotations", COPY_OF)).filter(|uid| uid.len() <= LONGEST_UID);
        let copy_of = copy_of.unwrap_or_default();
        Self {
            node: text(pod, "/spec/nodeName").into(),
            phase,
            is_leaving: is_leaving(pod),
            asked: asked.into_iter().map(|(resource, amount)| (resource.into(), amount)).collect(),
            copy_of: copy_of.into(),
            mounts: if ours.is_some() || !copy_of.is_empty() { mounts(pod) } else { Box::default() },
            ours,
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

    /// The host of one that says that it is a copy of a pod: nobody, where it has not both labels.
    pub(super) fn host_of_copy(&self) -> Option<String> {
        let host = self.ours.as_ref().map_or(NOBODY, |ours| &*ours.host);
        (!self.copy_of.is_empty()).then(|| host.to_owned())
    }

    /// Whether it says that it is a copy, and somebody in the member has taken a label off that says whose.
    pub(super) fn is_disowned(&self) -> bool {
        !self.copy_of.is_empty() && self.ours.as_ref().is_none_or(|ours| *ours.host == *NOBODY)
    }

    pub(super) fn is_of_host(&self, host: &str) -> bool {
        self.ours.as_ref().is_some_and(|ours| *ours.host == *host)
    }

    pub(super) fn is_copy_of(&self, host: &str, uid: &str) -> bool {
        self.is_of_host(host) && self.copy_of() == Some(uid)
    }

    /// The same, also of one that is disowned.
    pub(super) fn may_be_copy_of(&self, host: &str, uid: &str) -> bool {
        self.is_copy_of(host, uid) || self.is_disowned() && self.says_copy_of() == Some(uid)
    }

    /// The UID of the pod of its host that it is a copy of.
    pub(super) fn copy_of(&self) -> Option<&str> {
        self.ours.as_ref().and_then(|_| self.says_copy_of())
    }

    /// The same, also of one that is disowned.
    pub(super) fn says_copy_of(&self) -> Option<&str> {
        Some(&*self.copy_of).filter(|uid| !uid.is_empty())
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
        self.mounts.iter().map(|leaf| &**leaf)
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
        let mounts = self.mounts.iter().map(|leaf| size_of::<Box<str>>() + leaf.len());
        let ours = self.ours.iter().map(|ours| size_of::<Ours>() + ours.host.len() + ours.text.len());
        size_of::<Self>() + self.node.len() + self.copy_of.len() + asked.chain(mounts).chain(ours).sum::<usize>()
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
mod tests;
