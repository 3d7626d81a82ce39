//! The work on one member: while it answers, its virtual nodes and its copies of pods are kept true; while it does not, its
//! virtual nodes say so.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use kube::{Client, runtime::watcher};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Settings,
    cache::keep,
    member_pod::MemberPod,
    node::{self, MemberNodes, MemberState, Nodes},
    object,
    pod::{
        Allowances, AwaitedSecrets, Endings, Holds, Pods, RelayedEvents, Tellings, Turns, Uncompared, relay_events,
        trim_pod,
    },
    view::{HostCache, KnownMembers, MemberCache},
};
use cluster::{Versions, newest, with_causes};
use host::Host;
use member::{Member, Opening, Openings, registry::KnownAs};

/// Between two looks at the virtual nodes where nothing is new.
const TICK: Duration = Duration::from_secs(1);
/// Between two looks at whether the member answers; it must not have answered for two of them.
const LOOK: Duration = Duration::from_millis(300);
/// Before a member that has told too much is looked at again.
const TOO_MUCH: Duration = Duration::from_mins(1);
/// How often it is asked, where nothing else is.
const PROBE: Duration = Duration::from_secs(5);
/// How long its lists may take before its virtual nodes are not ready because of that.
const LISTED: Duration = Duration::from_mins(2);
/// Pods that a member is asked for at a time, where that has not been too much; and at least: no more than an answer may have, however long
/// somebody there, or a tenant of the host, has made them.
const PAGE: u32 = 500;
const SHORTEST_PAGE: u32 = 1;

/// How a member's pods are listed, and whether they have been.
struct Listing {
    page: u32,
    is_done: bool,
    /// Its place among the members that are listed at the same time.
    opening: Option<Opening>,
}

impl Listing {
    fn new() -> Self {
        Self { page: PAGE, is_done: false, opening: None }
    }

    /// To its end, with its place for as long as that is kept.
    async fn go_on<T>(&mut self, listed: impl Future<Output = T>) -> T {
        let listed = match self.opening.take() {
            Some(mut opening) => opening.go_on(listed).await,
            None => listed.await,
        };
        self.is_done = true;
        listed
    }

    /// Shorter from now on, where it came to no end because a page was more than a member may say at a time.
    fn ended(&mut self, too_much: bool) {
        if too_much && !self.is_done {
            self.page = (self.page / 10).max(SHORTEST_PAGE);
        }
        (self.is_done, self.opening) = (false, None);
    }
}

pub(super) struct MemberAgent {
    pub(super) host: Host,
    pub(super) view: Arc<HostCache>,
    pub(super) known_as: KnownMembers,
    pub(super) settings: Settings,
    /// Whoever takes over, and whoever was cut off, would list all members at the same moment: none would answer in time.
    pub(super) listings: Openings,
    pub(super) member: String,
}

/// What is remembered of pods for longer than a connection to their member.
struct Lasting {
    holds: Holds,
    tellings: Tellings,
    token_asks: Allowances,
    short_lived: Allowances,
    uncompared: Uncompared,
    awaited: AwaitedSecrets,
}

impl Lasting {
    fn new() -> Self {
        Self {
            holds: Holds::default(),
            tellings: Tellings::default(),
            token_asks: Allowances::of_tokens(),
            short_lived: Allowances::of_short_lived(),
            uncompared: Uncompared::default(),
            awaited: AwaitedSecrets::default(),
        }
    }
}

impl MemberAgent {
    /// Works until it is dropped.
    pub(super) async fn serve(&self, member: &Member) {
        let mut nodes = Nodes::new(self.host.clone(), Arc::clone(&self.view));
        let (mut told, kept) = (RelayedEvents::default(), Lasting::new());
        let mut listing = Listing::new();
        loop {
            if let Ok(leaf) = member.leaf()
                && let Some(opening) = place(&self.listings, || member.closed().is_some()).await
            {
                let client = leaf.client.clone();
                listing.opening = Some(opening);
                let too_much = tokio::select! {
                    reason = self.work(member, &client, &mut nodes, &mut told, &kept, &mut listing) => Some(reason),
                    () = closed(member, &client) => None,
                };
                listing.ended(member.has_said_too_much());
                if let Some(reason) = too_much {
                    tracing::error!(member = self.member, reason, "the agent runs no pods in the member");
                    let _overfull = member.overfull();
                    self.wait(&mut nodes, &reason).await;
                }
            }
            if let Some(closed) = member.closed().filter(|closed| !closed.starting) {
                nodes.tell_down(&self.member, &closed.reason).await;
                self.view.record_heartbeat(&self.member);
            }
            sleep(LOOK).await;
        }
    }

    async fn wait(&self, nodes: &mut Nodes, reason: &str) {
        let until = Instant::now() + TOO_MUCH;
        while Instant::now() < until {
            nodes.tell_down(&self.member, reason).await;
            self.view.record_heartbeat(&self.member);
            sleep(LOOK).await;
        }
    }

    /// Returns where the member tells more than there is room for.
    async fn work(
        &self,
        member: &Member,
        client: &Client,
        nodes: &mut Nodes,
        told: &mut RelayedEvents,
        kept: &Lasting,
        listing: &mut Listing,
    ) -> String {
        let there = self.view.subscribe(&self.member);
        let (all_nodes, all_pods) = (watcher::Config::default(), watcher::Config::default().page_size(listing.page));
        let (turns, endings) = (Turns::default(), Endings::default());
        let pods = Pods {
            host: &self.host,
            view: &self.view,
            member,
            client,
            known_as: &self.known_as,
            there: &there.pods,
            news: &there.news,
            settings: &self.settings,
            turns: &turns,
            holds: &kept.holds,
            tellings: &kept.tellings,
            token_asks: &kept.token_asks,
            short_lived: &kept.short_lived,
            uncompared: &kept.uncompared,
            awaited: &kept.awaited,
            endings: &endings,
        };
        let work = async {
            tokio::join!(
                keep(object::nodes(client), all_nodes, &there.nodes, node::trim, |_| {}),
                keep(object::all_pods(client), all_pods, &there.pods, trim_pod, |change| {
                    endings.note(change, &self.view);
                    there.pod_changed(change);
                }),
                self.tend(member, client, nodes, &there, listing),
                pods.run(),
                relay_events(&pods, told),
            )
        };
        tokio::select! {
            reason = there.nodes.overfull("nodes") => reason,
            reason = there.pods.overfull("pods") => reason,
            _ = work => String::new(),
        }
    }

    async fn tend(
        &self,
        member: &Member,
        client: &Client,
        nodes: &mut Nodes,
        there: &MemberCache,
        listing: &mut Listing,
    ) {
        let version = listing.go_on(self.listed(client, nodes, there)).await;
        let kubelet_api = self.settings.kubelet_api.as_ref();
        // One that was told since: whose alias a member is, and whether clustertree is there, decides whether it has a node at all.
        let mut known_as = self.known_as.clone();
        known_as.mark_unchanged();
        let _ = known_as.changed().await;
        let is_foreign = |pod: &Arc<MemberPod>| !pod.is_of_host(&self.host.id.0);
        loop {
            let (KnownAs { aliases, beside_clustertree }, longer_names) = self.names(&known_as.borrow());
            let state = MemberState {
                nodes: MemberNodes::new(there.nodes.all()),
                foreign_pods: LazyLock::new(Box::new(move || {
                    there.pods.all_kept().into_iter().filter(is_foreign).collect()
                })),
                version: version.clone(),
                aliases,
                longer_names,
                clustertree: beside_clustertree,
                secret: member.secret(),
            };
            nodes.tend(&self.member, self.settings.node_mode, &state, kubelet_api).await;
            self.view.record_heartbeat(&self.member);
            let _ = timeout(TICK, there.news.nodes.notified()).await;
        }
    }

    /// Its own, and those of members that begin with its own and a hyphen.
    fn names(&self, known_as: &BTreeMap<String, KnownAs>) -> (KnownAs, Vec<String>) {
        let prefix = format!("{}-", self.member);
        let longer = known_as.range(prefix.clone()..).map(|(name, _)| name);
        let longer = longer.take_while(|name| name.starts_with(&prefix)).cloned().collect();
        (known_as.get(&self.member).cloned().unwrap_or_default(), longer)
    }

    /// Returns the member's version once its nodes and pods are known; says meanwhile what is in the way, where that is so at two looks.
    /// That a list takes long changes nothing of what its virtual nodes say: their pods run.
    async fn listed(&self, client: &Client, nodes: &mut Nodes, there: &MemberCache) -> String {
        let (began, mut was_hindered) = (Instant::now(), false);
        loop {
            let listing = async {
                there.nodes.synced().await;
                there.pods.synced().await;
            };
            let listed = timeout(PROBE, listing).await;
            let hindrance = match (listed, client.apiserver_version().await) {
                (Ok(()), Ok(version)) => return version.git_version,
                (_, Err(error)) => Some(with_causes(&error)),
                (Err(_), Ok(_)) => there.obstacle(),
            };
            let is_told = if hindrance.is_some() { was_hindered } else { began.elapsed() >= LISTED };
            was_hindered = hindrance.is_some();
            let reason = hindrance.unwrap_or_else(|| "its nodes and pods are still being listed".to_owned());
            tracing::warn!(member = self.member, reason, "the agent cannot start pods in the member yet");
            if is_told {
                nodes.tell_down(&self.member, &reason).await;
            }
            self.view.record_heartbeat(&self.member);
            sleep(TICK).await;
        }
    }
}

/// To list a member; none where it has closed for a while meanwhile: that is told at once, however many wait for a place.
async fn place(listings: &Openings, is_closed: impl Fn() -> bool) -> Option<Opening> {
    let closed = async {
        let mut was_closed = false;
        loop {
            sleep(LOOK).await;
            let is_closed = is_closed();
            if is_closed && was_closed {
                return;
            }
            was_closed = is_closed;
        }
    };
    tokio::select! {
        opening = listings.begin() => Some(opening),
        () = closed => None,
    }
}

/// Returns once the member has not answered for a while, or what it has is to be listed again.
async fn closed(member: &Member, client: &Client) {
    let nodes = object::nodes(client);
    let (mut asked, mut silent, mut versions) = (None::<Instant>, false, Versions::default());
    loop {
        if asked.is_none_or(|asked| asked.elapsed() > PROBE) {
            // That it does not answer is noticed by all.
            let version = newest(client, nodes.resource_url()).await.unwrap_or_default();
            if versions.go_back(&version) {
                tracing::warn!(
                    member = member.name,
                    version,
                    "the member's resource versions are older than before, as after a restore from a backup: the agent lists it again"
                );
                return member.connect_again();
            }
            asked = Some(Instant::now());
        }
        sleep(LOOK).await;
        let closed = member.closed().is_some();
        if closed && silent {
            return;
        }
        silent = closed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn member_that_closes_while_it_waits_for_a_place_waits_no_longer() {
        let (listings, mut others) = (Openings::default(), Vec::new());
        while let Ok(opening) = timeout(TICK, listings.begin()).await {
            others.push(opening);
        }
        assert!(timeout(PROBE, place(&listings, || false)).await.is_err(), "there was a place");
        let began = Instant::now();
        assert!(place(&listings, || true).await.is_none() && began.elapsed() < TICK);
        others.pop();
        assert!(place(&listings, || false).await.is_some());
    }
}
