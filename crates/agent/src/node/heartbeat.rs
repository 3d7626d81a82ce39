//! The Leases by which nodes say that they live. They are renewed by themselves, whatever else goes on: that the agent lists a member
//! for minutes, or that a member does not answer, is no reason to take its node for dead.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use k8s_openapi::{api::coordination::v1::Lease, jiff::Timestamp};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{told, writes::ignore_conflict};
use crate::{object::text, view::HostCache, virtual_node::virtual_node_of};

/// As often as a kubelet, and believed as long.
const BEAT: Duration = Duration::from_secs(10);
const LEASE_SECONDS: u32 = 40;
const LEASES: &str = "kube-node-lease";
/// Between two looks at which are due, and before one that failed is tried again.
const LOOK: Duration = Duration::from_secs(1);
/// A member that nothing looks after for so long has nobody who would run a pod: its nodes are let die, and the host's controllers take
/// over. The work on it fails again and again, or hangs.
const NEGLECTED: Duration = Duration::from_mins(5);

/// Keeps all virtual nodes alive, until it is dropped.
pub(crate) async fn keep_alive(client: &Client, view: &HostCache) {
    let began = Instant::now();
    let mut said = Said::new(Timestamp::now());
    // None: it is being renewed.
    let mut due = HashMap::<String, Option<Instant>>::new();
    let mut under_way = FuturesUnordered::new();
    view.nodes.synced().await;
    loop {
        let now = Instant::now();
        for node in view.nodes.all().into_iter().filter(|node| is_to_live(node, view, began)) {
            let name = text(&node, "/metadata/name").to_owned();
            if due.get(&name).is_none_or(|due| due.is_some_and(|due| due <= now)) {
                due.insert(name.clone(), None);
                let time = said.next(Timestamp::now());
                under_way.push(async move { (Instant::now(), renew(client, &node, time).await, name) });
            }
        }
        due.retain(|name, _| view.node(name).is_some());
        view.forget_neglected(NEGLECTED);
        let mut next_look = std::pin::pin!(sleep(LOOK));
        loop {
            tokio::select! {
                Some((began, renewed, name)) = under_way.next() => {
                    let next = if renewed.is_ok() { began + BEAT } else { Instant::now() + LOOK };
                    due.insert(name.clone(), Some(next));
                    told(&name, renewed);
                }
                () = &mut next_look => break,
            }
        }
    }
}

/// Whether it is a node of ours, and somebody looks after its member.
fn is_to_live(node: &Arc<Value>, view: &HostCache, began: Instant) -> bool {
    let Some(virtual_node) = virtual_node_of(node) else { return false };
    let seen = view.last_heartbeat(&virtual_node.member).unwrap_or(began);
    virtual_node.name() == text(node, "/metadata/name") && seen.elapsed() < NEGLECTED
}

/// The time that was said last. Whoever counts a node as alive goes by a Lease that is renewed at a later time than before: where the
/// machine's clock is set back, what is said goes on from there.
#[derive(Debug)]
struct Said {
    time: Timestamp,
    at: Instant,
}

impl Said {
    fn new(time: Timestamp) -> Self {
        Self { time, at: Instant::now() }
    }

    fn next(&mut self, clock: Timestamp) -> Timestamp {
        let on = self.time.checked_add(self.at.elapsed()).unwrap_or(clock);
        *self = Self::new(on.max(clock));
        self.time
    }
}

async fn renew(client: &Client, node: &Value, time: Timestamp) -> kube::Result<()> {
    let (name, uid) = (text(node, "/metadata/name"), text(node, "/metadata/uid"));
    let leases = Api::<Lease>::namespaced(client.clone(), LEASES);
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid});
    let lease = json!({
        "metadata": {"name": name, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": format!("{time:.6}"),
        },
    });
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(&lease)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let made = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
            ignore_conflict(leases.create(&PostParams::default(), &made).await.map(drop))
        }
        other => other.map(drop),
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;

    use super::*;
    use crate::object::parsed;

    #[tokio::test(start_paused = true)]
    async fn lease_is_renewed_at_later_times_alone_also_where_the_clock_is_set_back() {
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let mut said = Said::new(second(5_000));
        for (passed, clock, expected) in
            [(10, 5_010, 5_010), (10, 8_620, 8_620), (10, 5_030, 8_630), (10, 1_440, 8_640), (10, 8_700, 8_700)]
        {
            tokio::time::advance(Duration::from_secs(passed)).await;
            assert_eq!(said.next(second(clock)), second(expected), "where the clock says {clock}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn node_lives_while_somebody_looks_after_its_member() {
        let (view, began) = (HostCache::default(), Instant::now());
        let node = |name: &str, id: &str| {
            let node = json!({"metadata": {"name": name, "annotations": {"kosmos.csi.io/node-id": id}}});
            let _ = view.nodes.take(Event::Apply(parsed(node).unwrap()), |_| true);
            is_to_live(&view.node(name).unwrap(), &view, began)
        };
        assert!(node("kosmos-m", "virtual/m"), "it has just begun");
        assert!(!node("worker", "virtual/m"), "somebody has written our annotation on a node of his own");
        tokio::time::advance(NEGLECTED).await;
        assert!(!node("kosmos-m", "virtual/m"), "nobody ever looked after it");
        view.record_heartbeat("m");
        assert!(node("kosmos-m", "virtual/m"));
        view.forget_neglected(NEGLECTED);
        assert!(node("kosmos-m", "virtual/m"));
        tokio::time::advance(NEGLECTED).await;
        assert!(!node("kosmos-m", "virtual/m"));
        view.forget_neglected(NEGLECTED);
        assert_eq!(view.last_heartbeat("m"), None, "names of members that have left are not kept");
        assert!(!node("kosmos-m", "virtual/m"), "it was not begun with just now");
    }
}
