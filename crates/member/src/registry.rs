//! The members there are now. Sources tell who they should be; the registry starts and stops the work on each, and
//! hands out a snapshot that never blocks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use futures::future::select_all;
use tokio::{
    sync::{Notify, watch},
    task::{JoinHandle, JoinSet},
};
use tokio_util::sync::CancellationToken;

use super::{
    CONNECTING_AGAIN, Identity, Link, Member, Scope, TokenSource, kubeconfig,
    openings::Openings,
    session,
    source::{MemberDefinition, MemberDefinitions, MemberUpdates},
};
use cluster::{Answers, Dial, metrics::Metrics};
use domain::{
    error::{Error, Result},
    volume::{HostId, VolumeHash},
};
use host::{Host, pins::Pinning};
use leaf::{MemberClient, sightings::Sightings};

pub type Snapshot = Arc<BTreeMap<String, Arc<Member>>>;

/// All members, as requests see them.
#[derive(Clone, Debug)]
pub struct Registry {
    members: watch::Receiver<Option<Snapshot>>,
    host: Host,
    sightings: Arc<Sightings>,
    /// Whether clustertree may copy pods into any.
    has_clustertree: Arc<AtomicBool>,
}

/// The name under which a member is served.
pub fn serving(members: &BTreeMap<String, Arc<Member>>, name: &str) -> String {
    members.get(name).and_then(|member| member.alias_of()).unwrap_or_else(|| name.to_owned())
}

/// Whether a name in a handle may mean this member. Another name of it is on no record, and may not answer now, or have left.
pub fn may_mean(members: &BTreeMap<String, Arc<Member>>, name: &str, member: &str) -> bool {
    let is_known = |known: &Arc<Member>| known.alias_of().is_some() || known.cluster_uid().is_some();
    serving(members, name) == member || !members.get(name).is_some_and(is_known)
}

/// Whether clustertree copies pods into this member, under whichever of its names.
fn is_beside_clustertree(members: &BTreeMap<String, Arc<Member>>, name: &str) -> bool {
    let of_it = |(known, member): (&String, &Arc<Member>)| {
        member.clustertree.load(Ordering::Relaxed) && (known == name || member.alias_of().as_deref() == Some(name))
    };
    members.iter().any(of_it)
}

/// What is known of a member under all its names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownAs {
    pub aliases: Vec<String>,
    /// Whether clustertree copies pods into it.
    pub beside_clustertree: bool,
}

/// The names of all members that serve, gone through once: who asked for each would go through all of them each time.
pub fn names(members: &BTreeMap<String, Arc<Member>>) -> BTreeMap<String, KnownAs> {
    let mut known = BTreeMap::<String, KnownAs>::new();
    for (name, member) in members {
        let alias_of = member.alias_of();
        let known_as = known.entry(alias_of.clone().unwrap_or_else(|| name.clone())).or_default();
        known_as.beside_clustertree |= member.clustertree.load(Ordering::Relaxed);
        if alias_of.is_some() {
            known_as.aliases.push(name.clone());
        }
    }
    known
}

impl Registry {
    /// Nothing can be said about a volume before all sources have been read once.
    pub fn all(&self) -> Result<Snapshot> {
        let members = self.members.borrow().clone();
        members.ok_or_else(|| Error::HostUnreachable("the members are still being read".to_owned()))
    }

    /// Whether any member may have something of a volume: where not, none has.
    pub fn may_have(&self, hash: VolumeHash) -> bool {
        self.sightings.may_have(hash)
    }

    /// Whether clustertree copies pods into this member, under whichever of its names. Where it does so into none, no member is looked at.
    pub fn is_beside_clustertree(&self, members: &BTreeMap<String, Arc<Member>>, name: &str) -> bool {
        self.has_clustertree.load(Ordering::Relaxed) && is_beside_clustertree(members, name)
    }

    /// Wakes whoever waits for members that come, go or are others.
    pub fn changes(&self) -> watch::Receiver<Option<Snapshot>> {
        self.members.clone()
    }

    /// A member by the name in a handle, or the one that serves its cluster where that is another name of one. One that has
    /// gone is awaited until somebody says that it is gone for good, also where the host has no record of it: that may have been deleted.
    pub async fn get(&self, name: &str) -> Result<Arc<Member>> {
        let members = self.all()?;
        if let Some(member) = members.get(name) {
            let Some(serving) = member.alias_of() else { return Ok(Arc::clone(member)) };
            return members.get(&serving).cloned().ok_or_else(|| departed(&serving));
        }
        if host::pins::is_forgotten(&self.host, name).await? {
            return Err(Error::NotFound(format!("member {name} was forgotten")));
        }
        Err(departed(name))
    }

    /// The same, for what is begun there: of that a member on which the host has no record has nothing yet.
    pub async fn get_for_new(&self, name: &str) -> Result<Arc<Member>> {
        if !self.all()?.contains_key(name)
            && let Some(known) = host::pins::known_members(&self.host).await?
            && !known.contains(name)
        {
            return Err(Error::NotFound(format!("no member was ever called {name}")));
        }
        self.get(name).await
    }

    /// The same, once it has said that it is the cluster with this UID; with any, where that is empty. Another cluster has the name only
    /// where the one of before was forgotten, also while that other one is silent.
    pub async fn get_same(&self, name: &str, cluster: &str) -> Result<Arc<Member>> {
        let found = self.get(name).await;
        let said = found.as_ref().ok().and_then(|member| member.cluster_uid());
        let is_another = |now: &str| !cluster.is_empty() && now != cluster;
        if said.as_deref().is_some_and(is_another) {
            return Err(another(name, cluster));
        }
        match found.and_then(|member| member.leaf().map(drop).map(|()| member)) {
            Ok(member) if said.is_some() => Ok(member),
            Ok(_) => Err(Error::Unreachable { member: name.to_owned(), reason: CONNECTING_AGAIN.to_owned() }),
            Err(silent @ Error::Unreachable { .. }) if !cluster.is_empty() => {
                Err(if self.means_another(name, cluster).await? { another(name, cluster) } else { silent })
            }
            Err(error) => Err(error),
        }
    }

    /// By the record of which name means which cluster, which outlives who is silent. Where that says nothing of one that is a member, it
    /// was deleted, or who was forgotten is back and has not said yet who he is: that nobody is known for is no word that he is gone for good.
    async fn means_another(&self, name: &str, cluster: &str) -> Result<bool> {
        let record = host::pins::pins(&self.host).await?;
        Ok(record.get(name).is_some_and(|pinned| pinned != cluster))
    }

    /// Whether the host's administrator has said that it is gone for good.
    pub async fn is_forgotten(&self, name: &str, cluster: &str) -> bool {
        matches!(self.get_same(name, cluster).await, Err(Error::NotFound(_)))
    }
}

fn another(name: &str, cluster: &str) -> Error {
    Error::NotFound(format!("member {name}: its cluster ({cluster}) was forgotten, and another one has this name now"))
}

pub fn departed(name: &str) -> Error {
    let reason = format!(
        "the host has no kubeconfig of it any more: give its kubeconfig back, or say that it is gone for good \
         (`kosmos-csi member forget {name}`)"
    );
    Error::Unreachable { member: name.to_owned(), reason }
}

/// The work behind the registry; ends when it is dropped.
#[derive(Debug)]
pub struct RegistryLoop {
    ways: Ways,
    members: watch::Sender<Option<Snapshot>>,
    has_clustertree: Arc<AtomicBool>,
    known: MemberDefinitions,
    started: BTreeMap<String, Arc<Member>>,
    stops: BTreeMap<String, CancellationToken>,
    sessions: JoinSet<()>,
    pinning: Arc<Pinning>,
    openings: Openings,
}

impl RegistryLoop {
    pub fn new(host: Host, dial: Dial, tracked: Scope, metrics: Metrics) -> (Self, Registry) {
        let (sender, receiver) = watch::channel(None);
        let sightings = Arc::<Sightings>::default();
        let has_clustertree = Arc::<AtomicBool>::default();
        let registry = Registry {
            members: receiver.clone(),
            host: host.clone(),
            sightings: Arc::clone(&sightings),
            has_clustertree: Arc::clone(&has_clustertree),
        };
        metrics.read_from(move || {
            let members = receiver.borrow().clone()?;
            Some(members.values().map(|member| member.now()).collect())
        });
        let registry_loop = Self {
            pinning: Arc::new(Pinning::new(host.clone())),
            ways: Ways { host: host.id, dial, tracked, metrics, sightings },
            members: sender,
            has_clustertree,
            known: MemberDefinitions::new(),
            started: BTreeMap::new(),
            stops: BTreeMap::new(),
            sessions: JoinSet::new(),
            openings: Openings::default(),
        };
        (registry_loop, registry)
    }

    /// Follows the sources; tells `ready` once each has been read.
    pub async fn run(mut self, mut sources: Vec<MemberUpdates>, ready: watch::Sender<bool>) {
        loop {
            let told: Vec<Option<MemberDefinitions>> =
                sources.iter_mut().map(|news| news.borrow_and_update().clone()).collect();
            self.apply(merge(&told), told.iter().all(Option::is_some)).await;
            ready.send_if_modified(|ready| !std::mem::replace(ready, told.iter().all(Option::is_some)));
            let waits = sources.iter_mut().map(|news| Box::pin(news.changed()));
            let changed = async {
                if waits.len() == 0 {
                    std::future::pending::<()>().await;
                }
                let _ = select_all(waits).await;
            };
            changed.await;
            while let Some(ended) = self.sessions.try_join_next() {
                if let Err(error) = ended {
                    tracing::error!(%error, "the work on a member has failed");
                }
            }
        }
    }

    async fn apply(&mut self, wanted: MemberDefinitions, complete: bool) {
        let known = std::mem::take(&mut self.known);
        let has_clustertree = |some: &MemberDefinitions| some.values().any(|definition| definition.clustertree);
        let (had, has) = (has_clustertree(&known), has_clustertree(&wanted));
        // Before a member hears of it; and that there is none, after the last one has.
        self.has_clustertree.store(had || has, Ordering::Relaxed);
        let mut members = std::mem::take(&mut self.started);
        for name in known.keys().filter(|name| !wanted.contains_key(*name)) {
            tracing::info!(member = name, role = self.ways.tracked.role(), "the member has left");
            self.stop(name);
            members.remove(name);
        }
        let mut building = Vec::new();
        for (name, definition) in news(&known, &wanted) {
            let (before, member) = (known.get(name), members.get(name));
            let same = |before: &MemberDefinition| {
                before.kubeconfig == definition.kubeconfig && before.source == definition.source
            };
            if before.is_some_and(same) {
                if let Some(member) = member {
                    member.set(definition);
                }
            } else if before.zip(member).is_some_and(|(before, member)| member.renew(before, definition)) {
                let role = self.ways.tracked.role();
                tracing::info!(member = name, origin = definition.origin, role, "the member has a new token");
            } else {
                building.push((name, definition, self.ways.begin(name, definition)));
            }
        }
        for (name, definition, link) in building {
            let link = link.await.unwrap_or_else(|error| Err(format!("connecting to it has failed: {error}")));
            let (role, changed) = (self.ways.tracked.role(), known.contains_key(name));
            tracing::info!(member = name, origin = definition.origin, changed, role, "the member joins");
            self.stop(name);
            members.insert(name.clone(), self.start(name, definition, link));
        }
        self.known = wanted;
        self.started.clone_from(&members);
        if complete {
            self.members.send_replace(Some(Arc::new(members)));
        }
        self.has_clustertree.store(has, Ordering::Relaxed);
    }

    fn stop(&mut self, name: &str) {
        if let Some(stop) = self.stops.remove(name) {
            stop.cancel();
        }
    }

    fn start(&mut self, name: &str, definition: &MemberDefinition, link: Result<Link, String>) -> Arc<Member> {
        if let Err(reason) = &link {
            let role = self.ways.tracked.role();
            tracing::warn!(member = name, origin = definition.origin, reason, role, "the member cannot be used");
        }
        let member = Arc::new(Member {
            name: name.to_owned(),
            policy: watch::Sender::new(definition.policy.clone()),
            clustertree: definition.clustertree.into(),
            strays: AtomicU64::default(),
            token: Mutex::new(TokenSource::of(definition)),
            overfull: AtomicBool::default(),
            link,
        });
        if member.link.is_ok() {
            let stop = CancellationToken::new();
            self.stops.insert(name.to_owned(), stop.clone());
            let (member, pinning, openings) = (Arc::clone(&member), Arc::clone(&self.pinning), self.openings.clone());
            self.sessions.spawn(async move {
                stop.run_until_cancelled(Box::pin(session::run(&member, &pinning, &openings))).await;
            });
        }
        member
    }
}

/// What the ways to members are built from.
#[derive(Clone, Debug)]
struct Ways {
    host: HostId,
    dial: Dial,
    tracked: Scope,
    metrics: Metrics,
    sightings: Arc<Sightings>,
}

impl Ways {
    /// Begins with one beside the others: each takes a processor some milliseconds, and of a thousand the last would wait for all.
    fn begin(&self, name: &str, definition: &MemberDefinition) -> JoinHandle<Result<Link, String>> {
        let (ways, name, definition) = (self.clone(), name.to_owned(), definition.clone());
        tokio::spawn(async move { ways.build(&name, &definition).await })
    }

    async fn build(&self, name: &str, definition: &MemberDefinition) -> Result<Link, String> {
        let config = kubeconfig::parse(&definition.kubeconfig, definition.source).await?;
        let namespaces = kubeconfig::namespaces(&definition.kubeconfig)?;
        let line = cluster::connect(name, config, Answers::Bounded, &self.dial, &self.metrics)
            .map_err(|error| format!("the kubeconfig cannot be used: {}", cluster::with_causes(&error)))?;
        Ok(Link {
            tracked: self.tracked,
            leaf: MemberClient::new(name, self.host.clone(), line.client.clone())
                .with_rights_in(namespaces)
                .seen_in(&self.sightings),
            line,
            identity: Mutex::new(Identity::Connecting("it is not connected yet")),
            doubted: Notify::new(),
        })
    }
}

/// Those of which something else is said than before. To read a kubeconfig takes a while, and of a thousand members one has changed.
fn news<'a>(
    known: &MemberDefinitions,
    wanted: &'a MemberDefinitions,
) -> impl Iterator<Item = (&'a String, &'a MemberDefinition)> {
    wanted.iter().filter(|(name, definition)| known.get(*name) != Some(*definition))
}

/// All sources together; where two name one member, the earlier source counts. That clustertree is there counts from any.
pub fn merge(sources: &[Option<MemberDefinitions>]) -> MemberDefinitions {
    let mut merged = MemberDefinitions::new();
    for (name, definition) in sources.iter().flatten().flatten() {
        let first = merged.entry(name.clone()).or_insert_with(|| definition.clone());
        first.clustertree |= definition.clustertree;
        if first.origin != definition.origin {
            tracing::warn!(
                member = name,
                used = first.origin,
                ignored = definition.origin,
                "two sources define this member: the driver uses the first"
            );
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{kubeconfig::KubeconfigSource, policy::Policy};

    #[test]
    fn of_a_thousand_members_those_alone_are_looked_at_of_which_something_else_is_said() {
        let (source, policy) = (KubeconfigSource::Object, Policy::default());
        let definition = |name: &str| {
            let (kubeconfig, origin) = (name.to_owned(), name.to_owned());
            MemberDefinition { kubeconfig, source, policy: policy.clone(), clustertree: false, secret: None, origin }
        };
        let names = (0..1000).map(|at| format!("m{at}"));
        let known: MemberDefinitions = names.map(|name| (name.clone(), definition(&name))).collect();
        let mut wanted = known.clone();
        wanted.get_mut("m7").unwrap().policy.cordoned = true;
        wanted.remove("m8");
        wanted.insert("new".to_owned(), definition("new"));
        assert_eq!(news(&known, &wanted).map(|(name, _)| name).collect::<Vec<_>>(), ["m7", "new"]);
        assert_eq!(news(&wanted, &wanted).count(), 0);
    }
}
