//! The agent behind the virtual nodes: keeps a Node in the host for each member, and runs in the member the pods that are
//! bound to it.
//!
//! All state is in objects. Whoever is killed and started again sees what there is and goes on; every write tests what it
//! was decided on. A member that does not answer is told of, and nothing of it is deleted or made anew because of that.

pub mod door;
mod duty;
mod node;
mod object;
mod pod;
mod shelf;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{
    host::Host,
    leaf::ownership::{HOST, MANAGED_BY},
    member::{Member, Registry},
};
use duty::Duty;
pub use node::NodeMode;
use node::Nodes;
use shelf::{HostView, keep_host};

/// Between two looks at which members there are.
const PAUSE: Duration = Duration::from_secs(1);

/// How the agent is to work.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node_mode: NodeMode,
    /// Where the host's API server finds this process, for what kubectl asks of a kubelet.
    pub door: Option<SocketAddr>,
    /// Where pods in members find the host's API server: host and port.
    pub host_address: Option<(String, u16)>,
}

/// What the work needs.
#[derive(Clone, Debug)]
pub struct Agent {
    host: Host,
    members: Registry,
    settings: Settings,
}

impl Agent {
    pub fn new(host: Host, members: Registry, settings: Settings) -> Self {
        Self { host, members, settings }
    }

    /// Works until it is dropped, and knows nothing of the time before.
    pub async fn run(self) {
        let view = Arc::new(HostView::default());
        tokio::select! {
            () = keep_host(&self.host.client, &view) => {}
            () = self.follow_members(&view) => {}
        }
    }

    async fn follow_members(&self, view: &Arc<HostView>) {
        let mut works = JoinSet::new();
        let mut under_way: BTreeMap<String, (Arc<Member>, AbortHandle)> = BTreeMap::new();
        let mut nodes = Nodes::new(self.host.clone(), Arc::clone(view));
        loop {
            view.synced().await;
            if let Ok(members) = self.members.all() {
                under_way.retain(|name, (member, work)| {
                    let stays = members.get(name).is_some_and(|now| Arc::ptr_eq(now, member));
                    if !stays {
                        work.abort();
                    }
                    stays
                });
                let new: Vec<_> = members.iter().filter(|(name, _)| !under_way.contains_key(*name)).collect();
                for (name, member) in new {
                    let duty = Duty {
                        host: self.host.clone(),
                        view: Arc::clone(view),
                        members: self.members.clone(),
                        settings: self.settings.clone(),
                        member: name.clone(),
                    };
                    let of = Arc::clone(member);
                    let work = works.spawn(async move { Box::pin(duty.serve(&of)).await });
                    under_way.insert(name.clone(), (Arc::clone(member), work));
                }
                node::retire_departed(&mut nodes, &members).await;
            }
            while let Some(ended) = works.try_join_next() {
                if let Err(error) = ended
                    && !error.is_cancelled()
                {
                    tracing::error!(%error, "the work on a member has failed");
                }
            }
            sleep(PAUSE).await;
        }
    }
}
