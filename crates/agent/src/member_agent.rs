//! The work on one member: while it answers, its virtual nodes and its copies of pods are kept true; while it does not, its
//! virtual nodes say so.

use std::{sync::Arc, time::Duration};

use kube::{Client, runtime::watcher};
use serde_json::Value;
use tokio::{
    sync::broadcast::Receiver,
    time::{Instant, sleep, timeout},
};

use super::{
    MANAGED_BY, Settings,
    cache::{HostCache, ObjectCache, keep},
    node::{self, MemberState, Nodes},
    object::{self, Place},
    pod::{Pods, Told, Turns, relay_events},
};
use cluster::with_causes;
use host::Host;
use member::{
    Member, Registry,
    registry::{aliases, is_beside_clustertree},
};

/// Between two looks at the virtual nodes where nothing is new.
const TICK: Duration = Duration::from_secs(1);
/// Between two looks at whether the member answers; it must not have answered for two of them.
const LOOK: Duration = Duration::from_millis(300);
/// Before a member that has told too much is looked at again.
const TOO_MUCH: Duration = Duration::from_mins(1);
/// How often it is asked, where nothing else is.
const PROBE: Duration = Duration::from_secs(5);

pub(super) struct MemberAgent {
    pub(super) host: Host,
    pub(super) view: Arc<HostCache>,
    pub(super) members: Registry,
    pub(super) settings: Settings,
    pub(super) member: String,
}

/// What watches tell of a member.
#[derive(Default)]
struct MemberCache {
    nodes: ObjectCache,
    pods: ObjectCache,
}

impl MemberAgent {
    /// Works until it is dropped.
    pub(super) async fn serve(&self, member: &Member) {
        let mut nodes = Nodes::new(self.host.clone(), Arc::clone(&self.view));
        let mut told = Told::default();
        loop {
            if let Ok(leaf) = member.leaf() {
                let client = leaf.client.clone();
                let too_much = tokio::select! {
                    reason = self.work(member, &client, &mut nodes, &mut told) => Some(reason),
                    () = closed(member, &client) => None,
                };
                if let Some(reason) = too_much {
                    tracing::error!(member = self.member, reason, "no pods are run there");
                    self.wait(&mut nodes, &reason).await;
                }
            }
            let reason = member.closed().filter(|closed| !closed.starting).map(|closed| closed.reason);
            nodes.tell_down(&self.member, reason.as_deref()).await;
            sleep(LOOK).await;
        }
    }

    async fn wait(&self, nodes: &mut Nodes, reason: &str) {
        let until = Instant::now() + TOO_MUCH;
        while Instant::now() < until {
            nodes.tell_down(&self.member, Some(reason)).await;
            sleep(LOOK).await;
        }
    }

    /// Returns where the member tells more than there is room for.
    async fn work(&self, member: &Member, client: &Client, nodes: &mut Nodes, told: &mut Told) -> String {
        let there = MemberCache::default();
        let everything = watcher::Config::default;
        let turns = Turns::default();
        let pods = Pods {
            host: &self.host,
            view: &self.view,
            member,
            client,
            there: &there.pods,
            settings: &self.settings,
            turns: &turns,
        };
        let work = async {
            tokio::join!(
                keep(object::nodes(client), everything(), &there.nodes, lean),
                keep(object::all_pods(client), everything(), &there.pods, node::reduce),
                self.tend(client, nodes, &there),
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

    async fn tend(&self, client: &Client, nodes: &mut Nodes, there: &MemberCache) {
        let version = self.listed(client, nodes, there).await;
        let kubelet_api = self.settings.kubelet_api;
        let (mut of_nodes, mut of_csi_nodes) = (self.view.nodes.news(), self.view.csi_nodes.news());
        loop {
            let members = self.members.all();
            let state = MemberState {
                nodes: there.nodes.all(),
                foreign_pods: there.pods.all().into_iter().filter(|pod| !self.is_copy(pod)).collect(),
                version: version.clone(),
                aliases: members.as_deref().map(|members| aliases(members, &self.member)).unwrap_or_default(),
                clustertree: members.is_ok_and(|members| is_beside_clustertree(&members, &self.member)),
            };
            nodes.tend(&self.member, self.settings.node_mode, &state, kubelet_api).await;
            tokio::select! {
                () = something(&mut of_nodes) => {}
                () = something(&mut of_csi_nodes) => {}
                () = sleep(TICK) => {}
            }
        }
    }

    /// Returns the member's version once its nodes and pods are known; says meanwhile what is in the way.
    async fn listed(&self, client: &Client, nodes: &mut Nodes, there: &MemberCache) -> String {
        loop {
            let listing = async {
                there.nodes.synced().await;
                there.pods.synced().await;
            };
            let listed = timeout(PROBE, listing).await;
            let reason = match (listed, client.apiserver_version().await) {
                (Ok(()), Ok(version)) => return version.git_version,
                (_, Err(error)) => with_causes(&error),
                (Err(_), Ok(_)) => there.obstacle(),
            };
            tracing::warn!(member = self.member, reason, "no pods can be run there");
            nodes.tell_down(&self.member, Some(&reason)).await;
            sleep(TICK).await;
        }
    }

    fn is_copy(&self, pod: &Value) -> bool {
        object::mark(pod, "labels", MANAGED_BY) == domain::volume::DRIVER
            && object::mark(pod, "labels", super::HOST) == self.host.id.0
    }
}

impl MemberCache {
    fn obstacle(&self) -> String {
        let obstacle = self.nodes.obstacle().or_else(|| self.pods.obstacle());
        obstacle.unwrap_or_else(|| "its nodes and pods are still being listed".to_owned())
    }
}

/// Returns when there is news, or so much that some of it was lost.
async fn something(news: &mut Receiver<Place>) {
    let _ = news.recv().await;
}

/// Returns once the member has not answered for a while.
async fn closed(member: &Member, client: &Client) {
    let (mut asked, mut silent) = (Instant::now(), false);
    loop {
        sleep(LOOK).await;
        let closed = member.closed().is_some();
        if closed && silent {
            return;
        }
        silent = closed;
        if asked.elapsed() > PROBE {
            // What it says does not matter: that it does not answer is noticed by all.
            let _ = client.apiserver_version().await;
            asked = Instant::now();
        }
    }
}

/// Without what nobody reads, which is most of it.
fn lean(node: &mut Value) -> bool {
    if let Some(metadata) = node["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    if let Some(status) = node["status"].as_object_mut() {
        status.remove("images");
    }
    true
}
