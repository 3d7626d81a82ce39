//! Plays the scheduler: finds a node for each pod that waits, asks for its volumes there, and binds it once it has them.
//!
//! The rules are those of the stock scheduler for taints, selectors, node affinity and volumes. It does not look at
//! resources, at affinity between pods, or for volumes that already lie there unbound.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, PodSpec},
    storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass},
};
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::{
    all,
    capacity::CAPACITIES,
    conditions::{self, Condition},
    events::{Kind, Speaker},
    fit, ignore_conflict, whenever_changed,
    workloads::ephemeral::claim_name,
};
use domain::volume::quantity;
use simulate::Cluster;

const SPEAKER: Speaker = Speaker("dev-scheduler");
const FOLLOWED: [&str; 6] =
    ["pods", "nodes", "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io", CAPACITIES];
pub(super) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// What the scheduler goes by.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) nodes: Vec<Node>,
    pub(super) pods: Vec<Pod>,
    /// By namespace and name.
    pub(super) claims: HashMap<(String, String), PersistentVolumeClaim>,
    pub(super) volumes: HashMap<String, PersistentVolume>,
    pub(super) classes: HashMap<String, StorageClass>,
    pub(super) capacities: Vec<CSIStorageCapacity>,
    /// The drivers whose capacity counts.
    pub(super) limited: Vec<String>,
}

/// What to do about a pod without a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Bind {
        node: String,
    },
    /// Ask for volumes where the pod will run.
    Select {
        node: String,
        claims: Vec<String>,
    },
    /// Its volumes are being made.
    Prepare {
        node: String,
        claims: Vec<String>,
    },
    /// No node will do.
    Wait {
        reason: String,
    },
}

/// A claim of a pod, as far as it bears on where the pod may run.
enum Need<'a> {
    Bound(&'a PersistentVolume),
    Unbound { name: String, class: &'a StorageClass, selected: Option<&'a str>, size: u64 },
}

pub(super) fn decide(pod: &Pod, seen: &Seen) -> Decision {
    let needs = match needs(pod, seen) {
        Ok(needs) => needs,
        Err(reason) => return Decision::Wait { reason },
    };
    let empty = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    let mut open: Vec<String> = Vec::new();
    for node in &seen.nodes {
        let against = || needs.iter().find_map(|need| need.obstacle(node).or_else(|| need.lack(node, seen)));
        match fit::obstacle(spec, node).or_else(against) {
            Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
            None => open.push(node.name_any()),
        }
    }
    let load = |node: &String| seen.pods.iter().filter(|pod| node_of(pod) == Some(node)).count();
    let Some(node) = open.into_iter().min_by_key(|node| (load(node), node.clone())) else {
        return Decision::Wait { reason: no_node(seen.nodes.len(), &obstacles) };
    };
    let unbound = |wanted: fn(Option<&str>) -> bool| {
        let names = needs.iter().filter_map(|need| match need {
            Need::Unbound { name, selected, .. } if wanted(*selected) => Some(name.clone()),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    match (unbound(|selected| selected.is_none()), unbound(|_| true)) {
        (claims, _) if !claims.is_empty() => Decision::Select { node, claims },
        (_, claims) if !claims.is_empty() => Decision::Prepare { node, claims },
        _ => Decision::Bind { node },
    }
}

impl Need<'_> {
    fn obstacle(&self, node: &Node) -> Option<String> {
        match self {
            Need::Bound(volume) => {
                let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
                let reachable = affinity.is_none_or(|selector| fit::selects(selector, node));
                (!reachable).then(|| {
                    format!(
                        "with a volume node affinity conflict: volume {} cannot be reached there",
                        volume.name_any()
                    )
                })
            }
            Need::Unbound { name, selected: Some(selected), .. } if *selected != node.name_any() => {
                Some(format!("other than {selected}, where the volume of claim {name} is being made"))
            }
            Need::Unbound { class, .. } => {
                (!allows(class, node)).then(|| format!("that class {} does not allow", class.name_any()))
            }
        }
    }
}

impl Need<'_> {
    /// Once a node is selected, its room is the provisioner's affair.
    fn lack(&self, node: &Node, seen: &Seen) -> Option<String> {
        let Need::Unbound { class, selected: None, size, .. } = self else { return None };
        let fits = !seen.limited.contains(&class.provisioner)
            || seen.capacities.iter().any(|one| has_room(one, class, node, *size));
        (!fits).then(|| format!("that did not have enough free storage of class {}", class.name_any()))
    }
}

fn has_room(capacity: &CSIStorageCapacity, class: &StorageClass, node: &Node, size: u64) -> bool {
    let labels = capacity.node_topology.as_ref().and_then(|topology| topology.match_labels.as_ref());
    let largest = capacity.maximum_volume_size.as_ref().or(capacity.capacity.as_ref());
    capacity.storage_class_name == class.name_any()
        && labels.is_some_and(|labels| labels.iter().all(|(key, value)| node.labels().get(key) == Some(value)))
        && largest.and_then(|largest| quantity::parse(&largest.0)).is_some_and(|largest| largest >= size)
}

fn allows(class: &StorageClass, node: &Node) -> bool {
    let terms = class.allowed_topologies.as_deref().unwrap_or_default();
    let holds = |key: &str, values: &[String]| node.labels().get(key).is_some_and(|value| values.contains(value));
    let mut matching = terms.iter().map(|term| {
        term.match_label_expressions.iter().flatten().all(|expression| holds(&expression.key, &expression.values))
    });
    terms.is_empty() || matching.any(|matches| matches)
}

/// The pod's claims, or what is wrong with one of them on every node.
fn needs<'a>(pod: &Pod, seen: &'a Seen) -> Result<Vec<Need<'a>>, String> {
    claims_of(pod).map(|name| need(pod, name, seen)).collect()
}

fn claims_of(pod: &Pod) -> impl Iterator<Item = String> {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| match (&volume.persistent_volume_claim, &volume.ephemeral) {
        (Some(source), _) => Some(source.claim_name.clone()),
        (None, Some(_)) => Some(claim_name(&pod.name_any(), &volume.name)),
        (None, None) => None,
    })
}

fn need<'a>(pod: &Pod, name: String, seen: &'a Seen) -> Result<Need<'a>, String> {
    let key = (pod.namespace().unwrap_or_default(), name.clone());
    let claim = seen.claims.get(&key).ok_or_else(|| format!("claim {name} does not exist"))?;
    if claim.metadata.deletion_timestamp.is_some() {
        return Err(format!("claim {name} is being deleted"));
    }
    let spec = claim.spec.as_ref();
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if phase == Some("Lost") {
        return Err(format!("claim {name} has lost its volume"));
    }
    if let Some(volume) = spec.and_then(|spec| spec.volume_name.as_ref()) {
        let volume = seen.volumes.get(volume).filter(|_| phase == Some("Bound"));
        return volume.map(Need::Bound).ok_or_else(|| format!("claim {name} is not bound yet"));
    }
    let class = spec.and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let class = seen.classes.get(class).ok_or_else(|| format!("claim {name} has no class that exists"))?;
    if class.volume_binding_mode.as_deref() != Some("WaitForFirstConsumer") {
        return Err(format!("claim {name} is not bound yet, and its class waits for no pod"));
    }
    let requests = spec.and_then(|spec| spec.resources.as_ref()?.requests.as_ref());
    let size = requests.and_then(|requests| quantity::parse(&requests.get("storage")?.0)).unwrap_or_default();
    Ok(Need::Unbound { name, class, size, selected: claim.annotations().get(SELECTED_NODE).map(String::as_str) })
}

fn node_of(pod: &Pod) -> Option<&String> {
    pod.spec.as_ref()?.node_name.as_ref()
}

pub(super) async fn run(host: Cluster) {
    whenever_changed(&host, &FOLLOWED, || pass(&host)).await;
}

fn pass(host: &Cluster) {
    let mut seen = Seen::look(host);
    for place in 0..seen.pods.len() {
        let Some(pod) = seen.pods.get(place).filter(|pod| waits(pod)).cloned() else { continue };
        let decision = decide(&pod, &seen);
        act(host, &pod, &decision);
        // The next pod shall find this one where it will be.
        if let (Decision::Bind { node } | Decision::Select { node, .. } | Decision::Prepare { node, .. }, Some(pod)) =
            (decision, seen.pods.get_mut(place))
        {
            pod.spec.get_or_insert_default().node_name = Some(node);
        }
    }
}

impl Seen {
    fn look(host: &Cluster) -> Self {
        let claims: Vec<PersistentVolumeClaim> = all(host, "persistentvolumeclaims");
        let volumes: Vec<PersistentVolume> = all(host, "persistentvolumes");
        let classes: Vec<StorageClass> = all(host, "storageclasses.storage.k8s.io");
        let key = |claim: &PersistentVolumeClaim| (claim.namespace().unwrap_or_default(), claim.name_any());
        Self {
            nodes: all(host, "nodes"),
            pods: all(host, "pods"),
            claims: claims.into_iter().map(|claim| (key(&claim), claim)).collect(),
            volumes: volumes.into_iter().map(|volume| (volume.name_any(), volume)).collect(),
            classes: classes.into_iter().map(|class| (class.name_any(), class)).collect(),
            capacities: all(host, CAPACITIES),
            limited: all::<CSIDriver>(host, "csidrivers.storage.k8s.io")
                .into_iter()
                .filter(|driver| driver.spec.storage_capacity == Some(true))
                .map(|driver| driver.name_any())
                .collect(),
        }
    }
}

fn waits(pod: &Pod) -> bool {
    let ours = pod.spec.as_ref().and_then(|spec| spec.scheduler_name.as_deref());
    node_of(pod).is_none()
        && pod.metadata.deletion_timestamp.is_none()
        && ours.is_none_or(|name| name == "default-scheduler")
}

fn act(host: &Cluster, pod: &Pod, decision: &Decision) {
    let namespace = pod.namespace().unwrap_or_default();
    match decision {
        Decision::Bind { node } => {
            let edit = |pod: &mut Value| pod["spec"]["nodeName"] = json!(node);
            if ignore_conflict("a binding", host.change("pods", &namespace, &pod.name_any(), edit)).is_some() {
                say(host, pod, true, "", "");
                let message = format!("bound to node {node}");
                SPEAKER.tell(host, pod.object_ref(&()), Kind::Normal, "Scheduled", &message);
            }
        }
        Decision::Select { node, claims } => {
            for claim in claims {
                let edit = |claim: &mut Value| {
                    let annotations = &mut claim["metadata"]["annotations"];
                    if annotations.get(SELECTED_NODE).is_none() {
                        annotations[SELECTED_NODE] = json!(node);
                    }
                };
                ignore_conflict("a selection", host.change("persistentvolumeclaims", &namespace, claim, edit));
            }
        }
        Decision::Prepare { node, claims } => {
            let message = format!("on node {node}, once the volumes are there: {}", claims.join(", "));
            say(host, pod, false, "VolumesPending", &message);
        }
        Decision::Wait { reason } => {
            if say(host, pod, false, "Unschedulable", reason) {
                SPEAKER.tell(host, pod.object_ref(&()), Kind::Warning, "FailedScheduling", reason);
            }
        }
    }
}

/// Tells in the pod's status how it stands; whether that was news.
fn say(host: &Cluster, pod: &Pod, holds: bool, reason: &str, message: &str) -> bool {
    let now = host.stamp();
    let mut news = false;
    let edit = |pod: &mut Value| {
        let before = pod["status"]["conditions"].clone();
        conditions::set(
            &mut pod["status"]["conditions"],
            Condition { kind: "PodScheduled", holds, reason, message },
            &now,
        );
        news = pod["status"]["conditions"] != before;
    };
    ignore_conflict("a status", host.change("pods", &pod.namespace().unwrap_or_default(), &pod.name_any(), edit));
    news
}

fn no_node(all: usize, obstacles: &BTreeMap<String, usize>) -> String {
    let each: Vec<_> = obstacles.iter().map(|(obstacle, count)| format!("{count} {obstacle}")).collect();
    format!("none of {all} nodes will do: {}", each.join(", "))
}

#[cfg(test)]
mod tests;
