//! What is known of the host, and who is told of a change in it: the work on those members that it concerns, and on no others.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::{Client, runtime::watcher};
use serde_json::Value;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::Instant,
};

use super::{
    LABEL, LABEL_VALUE, PREFIX,
    cache::{Cached, Change, ObjectCache, keep, keep_one_by_one},
    host_pod::{HostPod, KeptPod},
    inbox::Inbox,
    member_pod::MemberPod,
    object::{self, Place, text},
    open_namespaces::OpenNamespaces,
    virtual_node::{member_of, virtual_node_of},
};
use domain::volume::DRIVER;
use member::registry::KnownAs;

/// All members, by the names under which they serve.
pub(super) type KnownMembers = watch::Receiver<BTreeMap<String, KnownAs>>;

/// What is known of the host.
#[derive(Debug)]
pub(super) struct HostCache {
    /// Virtual nodes, ours and others, by the member they stand for.
    pub(super) nodes: ObjectCache,
    pub(super) csi_nodes: ObjectCache,
    /// Pods that may be on nodes of ours, by their node.
    pub(super) pods: ObjectCache<HostPod>,
    /// By their node.
    pub(super) attachments: ObjectCache,
    subscribers: Mutex<Subscribers>,
    pub(super) open_namespaces: OpenNamespaces,
    /// For the work on a long pod, in whichever member.
    pub(super) long_pods: Semaphore,
    /// When the work on each member was last seen to go on.
    heartbeats: Mutex<HashMap<String, Instant>>,
}

/// Whom changes are told. Work that was ended may be there for a moment beside the one that follows it.
#[derive(Debug, Default)]
struct Subscribers {
    members: HashMap<String, Vec<Arc<MemberCache>>>,
    /// Those that have a copy of ours of this name.
    copies: HashMap<Place, Vec<Arc<MemberCache>>>,
}

impl Subscribers {
    fn of<'a>(&'a self, member: &str) -> impl Iterator<Item = &'a Arc<MemberCache>> + use<'a> {
        self.members.get(member).into_iter().flatten()
    }
}

/// Takes one of them out; what is empty then goes as well.
fn take_out<K: std::hash::Hash + Eq>(map: &mut HashMap<K, Vec<Arc<MemberCache>>>, key: &K, cache: &Arc<MemberCache>) {
    if let Some(caches) = map.get_mut(key) {
        caches.retain(|there| !Arc::ptr_eq(there, cache));
        if caches.is_empty() {
            map.remove(key);
        }
    }
}

/// What is known of a member, and what the work on it has to look at.
#[derive(Debug)]
pub(super) struct MemberCache {
    pub(super) nodes: ObjectCache,
    /// Copies of hosts' pods by their host, and those that are disowned.
    pub(super) pods: ObjectCache<MemberPod>,
    pub(super) news: News,
}

impl Default for MemberCache {
    fn default() -> Self {
        Self { nodes: ObjectCache::default(), pods: ObjectCache::by(MemberPod::host_of_copy), news: News::default() }
    }
}

#[derive(Debug, Default)]
pub(super) struct News {
    /// Pods of the host, of the member, or of both by the same name.
    pub(super) pods: Inbox,
    /// Nodes of the host to which a volume was attached, or could not be.
    pub(super) attached: Inbox,
    /// Its nodes in the host are others than they were.
    pub(super) nodes: Notify,
}

/// For as long as this is there, the work on a member is told of what concerns it.
#[derive(Debug)]
pub(super) struct Subscription<'a> {
    view: &'a HostCache,
    name: &'a str,
    cache: Arc<MemberCache>,
}

impl Default for HostCache {
    fn default() -> Self {
        Self {
            nodes: ObjectCache::by(member_of),
            csi_nodes: ObjectCache::default(),
            pods: ObjectCache::by(HostPod::node),
            attachments: ObjectCache::by(node_of),
            subscribers: Mutex::default(),
            open_namespaces: OpenNamespaces::default(),
            long_pods: Semaphore::new(1),
            heartbeats: Mutex::default(),
        }
    }
}

impl HostCache {
    pub(super) async fn synced(&self) {
        self.nodes.synced().await;
        self.csi_nodes.synced().await;
        self.pods.synced().await;
        self.attachments.synced().await;
    }

    pub(super) fn node(&self, name: &str) -> Option<Arc<Value>> {
        self.nodes.get(&Place { namespace: String::new(), name: name.to_owned() })
    }

    pub(super) fn node_with_csi_node(&self, name: &str) -> (Option<Arc<Value>>, Option<Arc<Value>>) {
        let place = Place { namespace: String::new(), name: name.to_owned() };
        (self.nodes.get(&place), self.csi_nodes.get(&place))
    }

    /// The member for which a node of ours stands.
    pub(super) fn member_of_node(&self, name: &str) -> Option<String> {
        virtual_node_of(&*self.node(name)?).map(|virtual_node| virtual_node.member)
    }

    /// Pods of the host on nodes that stand for the member, as they are kept.
    pub(super) fn kept_pods_for(&self, member: &str) -> Vec<KeptPod> {
        self.nodes_of(member).iter().flat_map(|node| self.pods.kept_of(node)).collect()
    }

    /// Whether this is so of a pod on the node. They are read one by one.
    pub(super) fn has_pod_on(&self, node: &str, is_so: impl Fn(&Value) -> bool) -> bool {
        self.pods.kept_of(node).iter().any(|(place, pod)| is_so(&HostPod::read(pod, place)))
    }

    /// Those of ours that stand for the member.
    pub(super) fn nodes_of(&self, member: &str) -> Vec<String> {
        let ours = self.nodes.of(member).into_iter().filter(|node| virtual_node_of(node).is_some());
        ours.map(|node| text(&node, "/metadata/name").to_owned()).collect()
    }

    /// The names of pods that run in a namespace of the member, as the work on it knows them.
    pub(super) fn running_in(&self, member: &str, namespace: &str) -> Vec<String> {
        let Some(there) = self.subscribers().of(member).last().cloned() else { return Vec::new() };
        let running = there.pods.places(|place, pod| place.namespace == namespace && pod.runs());
        let mut names: Vec<String> = running.into_iter().map(|place| place.name).collect();
        names.sort();
        names
    }

    pub(super) fn subscribe<'a>(&'a self, member: &'a str) -> Subscription<'a> {
        let cache = Arc::new(MemberCache::default());
        self.subscribers().members.entry(member.to_owned()).or_default().push(Arc::clone(&cache));
        Subscription { view: self, name: member, cache }
    }

    fn subscribers(&self) -> MutexGuard<'_, Subscribers> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work on a member goes on.
    pub(super) fn record_heartbeat(&self, member: &str) {
        let mut heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        heartbeats.insert(member.to_owned(), Instant::now());
    }

    /// When that was seen last; none where it never was.
    pub(super) fn last_heartbeat(&self, member: &str) -> Option<Instant> {
        self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner).get(member).copied()
    }

    /// One that was not seen for so long is as one that never was.
    pub(super) fn forget_neglected(&self, after: Duration) {
        let mut heartbeats = self.heartbeats.lock().unwrap_or_else(PoisonError::into_inner);
        heartbeats.retain(|_, seen| seen.elapsed() < after);
    }

    /// Whom it concerns: the members for whose nodes it is and was, and those that have a copy of its name. For all others nothing follows
    /// from it.
    fn pod_changed(&self, change: &Change<HostPod>) {
        let nodes = change.each(HostPod::node);
        let owners: Vec<String> = nodes.iter().filter_map(|node| self.member_of_node(node)).collect();
        let subscribers = self.subscribers();
        let copies = subscribers.copies.get(&change.place).into_iter().flatten();
        for member in owners.iter().flat_map(|owner| subscribers.of(owner)).chain(copies) {
            member.news.pods.put(change.place.clone());
        }
    }

    /// The pods on it concern the member once it stands for that, and once it does no more; and those who have copies of them.
    fn node_changed(&self, change: &Change) {
        let owners = change.each(member_of);
        let of_before = change.before.as_deref().and_then(virtual_node_of).map(|virtual_node| virtual_node.member);
        let of_now = change.after.as_deref().and_then(virtual_node_of).map(|virtual_node| virtual_node.member);
        let pods = if of_before == of_now { Vec::new() } else { self.pods.kept_of(&change.place.name) };
        let has_attached = attached_to(change.before.as_deref()) != attached_to(change.after.as_deref());
        let subscribers = self.subscribers();
        for member in owners.iter().flat_map(|owner| subscribers.of(owner)) {
            member.news.nodes.notify_one();
            if has_attached {
                member.news.attached.put(change.place.clone());
            }
            for (place, _) in &pods {
                member.news.pods.put(place.clone());
            }
        }
        for (place, _) in &pods {
            let copies = subscribers.copies.get(place).into_iter().flatten();
            copies.for_each(|member| member.news.pods.put(place.clone()));
        }
    }

    fn csi_node_changed(&self, change: &Change) {
        let owner = self.node(&change.place.name).as_deref().and_then(member_of);
        let subscribers = self.subscribers();
        owner.iter().flat_map(|owner| subscribers.of(owner)).for_each(|member| member.news.nodes.notify_one());
    }

    fn attachment_changed(&self, change: &Change) {
        let Some(node) = change.after.as_deref().and_then(node_of) else { return };
        let owner = self.member_of_node(&node);
        let subscribers = self.subscribers();
        for member in owner.iter().flat_map(|owner| subscribers.of(owner)) {
            member.news.attached.put(Place { namespace: String::new(), name: node.clone() });
        }
    }
}

impl MemberCache {
    /// What is in the way of the lists that have not come to their end.
    pub(super) fn obstacle(&self) -> Option<String> {
        let of_nodes = self.nodes.obstacle().filter(|_| !self.nodes.is_synced());
        of_nodes.or_else(|| self.pods.obstacle().filter(|_| !self.pods.is_synced()))
    }
}

impl Subscription<'_> {
    /// A pod of the member: it is looked at where it is a copy of ours, or the host has a pod of that name.
    pub(super) fn pod_changed(&self, change: &Change<MemberPod>) {
        let is_copy = |pod: &Option<Arc<MemberPod>>| pod.as_ref().is_some_and(|pod| pod.is_ours());
        let (was, is) = (is_copy(&change.before), is_copy(&change.after));
        if was != is {
            let mut subscribers = self.view.subscribers();
            if is {
                subscribers.copies.entry(change.place.clone()).or_default().push(Arc::clone(&self.cache));
            } else {
                take_out(&mut subscribers.copies, &change.place, &self.cache);
            }
        }
        if was || is || self.view.pods.has(&change.place) {
            self.news.pods.put(change.place.clone());
        }
    }
}

impl Deref for Subscription<'_> {
    type Target = MemberCache;

    fn deref(&self) -> &MemberCache {
        &self.cache
    }
}

impl Drop for Subscription<'_> {
    fn drop(&mut self) {
        let copies = self.pods.places(|_, pod| pod.is_ours());
        let mut subscribers = self.view.subscribers();
        take_out(&mut subscribers.members, &self.name.to_owned(), &self.cache);
        for copy in copies {
            take_out(&mut subscribers.copies, &copy, &self.cache);
        }
    }
}

pub(super) async fn watch_host(client: &Client, view: &HostCache) {
    let virtual_nodes = watcher::Config::default().labels(&format!("{LABEL}={LABEL_VALUE}"));
    let (pods, bound) = (object::all_pods(client), "spec.nodeName!=");
    let everything = watcher::Config::default;
    tokio::join!(
        keep(object::nodes(client), virtual_nodes, &view.nodes, |_| true, |change| view.node_changed(change)),
        keep(object::csi_nodes(client), everything(), &view.csi_nodes, of_virtual_node, |change| view
            .csi_node_changed(change)),
        keep_one_by_one(client, &pods, bound, &view.pods, on_virtual_node, |change| view.pod_changed(change)),
        keep(object::attachments(client), everything(), &view.attachments, of_driver, |change| view
            .attachment_changed(change)),
    );
}

/// Of an attachment.
fn node_of(attachment: &Value) -> Option<String> {
    Some(text(attachment, "/spec/nodeName").to_owned()).filter(|node| !node.is_empty())
}

/// What the attach controller says on a node.
fn attached_to(node: Option<&Value>) -> Option<&Value> {
    node?.pointer("/status/volumesAttached")
}

fn of_virtual_node(csi_node: &mut Value) -> bool {
    object::items(csi_node, "/spec/drivers").any(|driver| text(driver, "/name") == DRIVER)
        || text(csi_node, "/metadata/name").starts_with(PREFIX)
}

fn on_virtual_node(pod: &mut Value) -> bool {
    text(pod, "/spec/nodeName").starts_with(PREFIX)
}

fn of_driver(attachment: &mut Value) -> bool {
    text(attachment, "/spec/attacher") == DRIVER
}

#[cfg(test)]
mod tests;
