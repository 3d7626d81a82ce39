//! How much room a member has: what it says itself in its CSIStorageCapacity objects and ResourceQuotas, which are listed
//! when somebody asks and then believed for a while, and what it has refused lately. Kept small: a few numbers for each
//! class and node.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, ResourceQuota},
        storage::v1::CSIStorageCapacity,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::LabelSelector},
};
use kube::{Api, api::ListParams};
use tokio::time::Instant;

use super::{MemberClient, rejected_sizes::Refusals, segment::Segment};
use domain::{
    error::{Error, Result},
    volume::{VolumeHash, quantity},
};

/// So much is said where a member says nothing: 4Ei.
pub const UNLIMITED: u64 = 1 << 62;
/// What a member has said is believed for so long.
const BELIEVED: Duration = Duration::from_secs(30);
/// The provisioner calls again within five minutes.
const VERDICT: Duration = Duration::from_mins(6);
/// In bytes, of a label's value: a member that says more of its node names none.
const LONGEST_LABEL: usize = 63;
/// How the label that names a node is called, after its prefix.
const NODE_LABELS: [&str; 4] = ["hostname", "node", "nodename", "node-name"];

/// The room for volumes of one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    pub free: u64,
    /// The largest single volume, where that is known.
    pub largest: Option<u64>,
}

/// What is known of one member's room.
#[derive(Debug, Default)]
pub struct CapacityCache {
    state: Mutex<State>,
    /// One asks, and the others wait for what it hears.
    turn: tokio::sync::Mutex<()>,
}

/// What quotas leave, by their own words.
type Left = Vec<(Box<str>, u64)>;

#[derive(Debug, Default)]
struct State {
    asked: Option<Instant>,
    heard: Option<Instant>,
    said: BTreeMap<String, Vec<Segment>>,
    /// By namespace, and when it was heard.
    quotas: BTreeMap<String, (Instant, Left)>,
    refusals: Refusals,
    /// What the callers of these volumes have not been told yet.
    verdicts: BTreeMap<VolumeHash, (Instant, String)>,
}

impl Room {
    pub const NONE: Self = Self { free: 0, largest: None };

    /// The largest volume that may fit.
    pub fn fits(&self) -> u64 {
        self.largest.unwrap_or(self.free)
    }

    /// The room of two places together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        match (self.free, other.free) {
            (0, _) => other,
            (_, 0) => self,
            (one, other_free) => Self {
                free: one.saturating_add(other_free).min(UNLIMITED),
                // Where one has no limit, both together have none.
                largest: self.largest.zip(other.largest).map(|(one, other)| one.max(other)),
            },
        }
    }

    /// No more than this.
    #[must_use]
    pub fn within(self, most: u64) -> Self {
        Self { free: self.free.min(most), largest: Some(self.fits().min(most)) }
    }
}

impl CapacityCache {
    /// What is known without asking.
    pub fn room(&self, class: &str, node: Option<&str>) -> Room {
        let state = self.lock();
        let said = state.said.get(class).map_or(Room { free: UNLIMITED, largest: None }, |said| total(said, node));
        match state.refusals.smallest(class, node, Instant::now()) {
            Some(refused) => said.within(refused.saturating_sub(1)),
            None => said,
        }
    }

    /// The nodes that the member names for a class, the one with most room first; only those with so much, and none that
    /// has refused it. None where it names no node at all.
    pub fn nodes(&self, class: &str, size: u64) -> Option<Vec<String>> {
        let state = self.lock();
        let named = state.said.get(class).into_iter().flatten();
        let mut named: Vec<(&str, &Segment)> = named.filter_map(|one| Some((one.node.as_deref()?, one))).collect();
        if named.is_empty() {
            return None;
        }
        let now = Instant::now();
        let refused = |node: &str| state.refusals.smallest(class, Some(node), now).is_some_and(|least| least <= size);
        named.retain(|(node, segment)| segment.largest >= size && !refused(node));
        named.sort_by_key(|(node, segment)| (std::cmp::Reverse(segment.free), *node));
        Some(named.into_iter().map(|(node, _)| node.to_owned()).collect())
    }

    /// Whether it was asked lately, with or without an answer.
    pub fn was_asked(&self) -> bool {
        is_recent(self.lock().asked)
    }

    /// What the member says itself, without what it has refused; none where it says nothing.
    pub fn told(&self, class: &str) -> Option<Room> {
        self.lock().said.get(class).map(|said| total(said, None))
    }

    /// The smallest size that was refused lately for lack of room, on whichever node.
    pub fn refused(&self, class: &str) -> Option<u64> {
        self.lock().refusals.smallest_anywhere(class, Instant::now())
    }

    /// How long ago it told its capacity; none where it never did.
    pub fn told_ago(&self) -> Option<Duration> {
        self.lock().heard.map(|heard| heard.elapsed())
    }

    pub fn refuse(&self, class: &str, node: Option<&str>, size: u64) {
        self.lock().refusals.note(class, node, size, Instant::now());
    }

    pub fn refuse_by_event(&self, class: &str, node: Option<&str>, namespace: &str, size: u64) {
        self.lock().refusals.note_event(class, node, namespace, size, Instant::now());
    }

    pub fn refuse_by_quota(&self, class: &str, size: u64) {
        self.lock().refusals.note_quota(class, size, Instant::now());
    }

    pub fn forget_refusals(&self) {
        self.lock().refusals.forget(Instant::now());
    }

    pub fn disprove_refusal(&self, class: &str, size: u64) {
        self.lock().refusals.disprove(class, size);
    }

    /// A volume was refused, and nobody waited for the answer any more: the next call for it shall have it.
    pub fn keep_verdict(&self, hash: VolumeHash, verdict: &str) {
        let mut state = self.lock();
        state.verdicts.retain(|_, (reached, _)| reached.elapsed() < VERDICT);
        state.verdicts.insert(hash, (Instant::now(), verdict.to_owned()));
    }

    pub fn take_verdict(&self, hash: VolumeHash) -> Option<String> {
        let (reached, verdict) = self.lock().verdicts.remove(&hash)?;
        (reached.elapsed() < VERDICT).then_some(verdict)
    }

    fn hear(&self, said: BTreeMap<String, Vec<Segment>>) {
        let now = Instant::now();
        let mut state = self.lock();
        state.refusals.hear(&said, now);
        (state.heard, state.said) = (Some(now), said);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the member for its capacity, unless it has told it lately.
pub async fn hear(client: &MemberClient) -> Result<()> {
    let _turn = client.capacity.turn.lock().await;
    if is_recent(client.capacity.lock().heard) {
        return Ok(());
    }
    client.capacity.lock().asked = Some(Instant::now());
    let all = Api::<CSIStorageCapacity>::all(client.client.clone()).list(&ListParams::default()).await;
    let said = or_silent(client, "list storage capacities", all)?;
    client.capacity.hear(by_class(said.unwrap_or_default()));
    Ok(())
}

/// What the quotas of a namespace leave for claims of a class; none where they say nothing.
pub async fn quota(client: &MemberClient, namespace: &str, class: &str) -> Result<Option<u64>> {
    let _turn = client.capacity.turn.lock().await;
    let heard = client.capacity.lock().quotas.get(namespace).map(|(heard, _)| *heard);
    if !is_recent(heard) {
        let quotas = Api::<ResourceQuota>::namespaced(client.client.clone(), namespace);
        let all = quotas.list(&ListParams::default()).await;
        let said = or_silent(client, &format!("list quotas in {namespace}"), all)?;
        let left = said.unwrap_or_default().iter().flat_map(left).collect();
        client.capacity.lock().quotas.insert(namespace.to_owned(), (Instant::now(), left));
    }
    let state = client.capacity.lock();
    Ok(state.quotas.get(namespace).and_then(|(_, left)| for_claims(left, class)))
}

/// None where the member does not let us see it, or does not know it: it says nothing then.
fn or_silent<T: Clone>(
    client: &MemberClient,
    doing: &str,
    answer: Result<kube::core::ObjectList<T>, kube::Error>,
) -> Result<Option<Vec<T>>> {
    match answer {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if [403, 404, 405].contains(&status.code) => {
            tracing::warn!(
                member = client.member,
                doing,
                reason = status.message,
                "the member does not let the driver read its capacity: the driver takes it as a member that says \
                 nothing of its room"
            );
            Ok(None)
        }
        Err(error) => match client.outcome(doing, &error) {
            unreachable @ Error::Unreachable { .. } => Err(unreachable),
            other => Err(Error::Unreachable { member: client.member.clone(), reason: other.to_string() }),
        },
    }
}

fn is_recent(heard: Option<Instant>) -> bool {
    heard.is_some_and(|heard| heard.elapsed() < BELIEVED)
}

fn by_class(objects: Vec<CSIStorageCapacity>) -> BTreeMap<String, Vec<Segment>> {
    let mut classes: BTreeMap<String, Vec<Segment>> = BTreeMap::new();
    for object in objects {
        // Without a capacity it is not known; without a topology no node can use it.
        let (Some(free), Some(topology)) = (object.capacity.as_ref().and_then(bytes), &object.node_topology) else {
            continue;
        };
        let largest = object.maximum_volume_size.as_ref().and_then(bytes).unwrap_or(free);
        let segment = Segment { node: node_of(topology).map(Into::into), free, largest };
        classes.entry(object.storage_class_name).or_default().push(segment);
    }
    // In one order, however they are listed: a change is then a change.
    for segments in classes.values_mut() {
        segments.sort();
    }
    classes
}

fn bytes(size: &Quantity) -> Option<u64> {
    quantity::parse(&size.0)
}

fn names_node(key: &str) -> bool {
    NODE_LABELS.contains(&key.rsplit('/').next().unwrap_or_default())
}

/// The node that a selector names. Nodes themselves cannot be read, so a label counts that is called as one.
fn node_of(topology: &LabelSelector) -> Option<String> {
    let mut labels = topology.match_labels.iter().flatten();
    if let Some((_, node)) = labels.find(|(key, _)| names_node(key)) {
        return Some(node.clone());
    }
    let mut expressions = topology.match_expressions.iter().flatten();
    let one = expressions.find(|one| names_node(&one.key) && one.operator == "In")?;
    match one.values.as_deref() {
        Some([node]) => Some(node.clone()),
        _ => None,
    }
}

/// The one node that a leaf volume can be used on, by the same labels.
pub(super) fn node_of_volume(volume: &PersistentVolume) -> Option<&str> {
    let affinity = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let [term] = affinity.node_selector_terms.as_slice() else { return None };
    let mut expressions = term.match_expressions.iter().flatten();
    let one = expressions.find(|one| names_node(&one.key) && one.operator == "In")?;
    match one.values.as_deref() {
        Some([node]) if node.len() <= LONGEST_LABEL => Some(node),
        _ => None,
    }
}

/// All that is reachable together; from one node where one is asked for.
fn total(segments: &[Segment], node: Option<&str>) -> Room {
    let reachable = |segment: &&Segment| node.is_none() || segment.node.is_none() || segment.node.as_deref() == node;
    segments.iter().filter(reachable).fold(Room { free: 0, largest: Some(0) }, |sum, segment| Room {
        free: sum.free.saturating_add(segment.free).min(UNLIMITED),
        largest: sum.largest.max(Some(segment.largest)),
    })
}

/// What a quota leaves of each thing that bears on claims.
fn left(quota: &ResourceQuota) -> Left {
    let scoped = quota.spec.as_ref().is_some_and(|spec| spec.scopes.is_some() || spec.scope_selector.is_some());
    let Some(status) = quota.status.as_ref().filter(|_| !scoped) else { return Vec::new() };
    let bears = |name: &str| name.contains("persistentvolumeclaims") || name.ends_with("requests.storage");
    let hard = status.hard.iter().flatten().filter(|(name, _)| bears(name));
    hard.map(|(name, hard)| {
        let used = status.used.as_ref().and_then(|used| used.get(name));
        let amount = |size: Option<&Quantity>| size.and_then(bytes).unwrap_or_default();
        (name.as_str().into(), amount(Some(hard)).saturating_sub(amount(used)))
    })
    .collect()
}

/// The room that is left for one more claim of a class.
fn for_claims(left: &[(Box<str>, u64)], class: &str) -> Option<u64> {
    let of_class = |what: &str| format!("{class}.storageclass.storage.k8s.io/{what}");
    let sizes = ["requests.storage".to_owned(), of_class("requests.storage")];
    let counts = [
        "persistentvolumeclaims".to_owned(),
        "count/persistentvolumeclaims".to_owned(),
        of_class("persistentvolumeclaims"),
    ];
    let about = |names: &[String], name: &str| names.iter().any(|one| one == name);
    let sizes = left.iter().filter(|(name, _)| about(&sizes, name)).map(|(_, left)| *left);
    let none_left = left.iter().filter(|(name, left)| about(&counts, name) && *left == 0).map(|_| 0);
    sizes.chain(none_left).min()
}

#[cfg(test)]
mod tests;
