//! The agent behind the virtual nodes: keeps a Node in the host for each member, and runs in the member the pods that are
//! bound to it.
//!
//! All state is in objects. Whoever is killed and started again sees what there is and goes on; every write tests what it
//! was decided on. A member that does not answer is told of, and nothing of it is deleted or recreated because of that.
//!
//! Its page: `docs/design/virtual-nodes.md`.

mod cache;
mod host_pod;
mod inbox;
pub mod kubelet_api;
mod member_agent;
mod member_pod;
mod node;
mod object;
mod open_namespaces;
mod pod;
pub mod usage;
mod view;
mod virtual_node;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{sync::watch, time::sleep};

use host::Host;
use leaf::ownership::{HOST, MANAGED_BY};
use member::{Member, MemberTasks, Openings, Registry, registry::names, renewal};
use member_agent::MemberAgent;
use node::Nodes;
pub use node::{CORDONED, NodeMode};
use usage::Usage;
use view::{HostCache, watch_host};
pub use virtual_node::may_be_called;

/// Virtual nodes are called so, and carry this label, as Kosmos has it.
const PREFIX: &str = "kosmos-";
const LABEL: &str = "kosmos.io/node";
const LABEL_VALUE: &str = "true";
/// Between two looks at which members there are.
const PAUSE: Duration = Duration::from_secs(1);

/// How the agent is to work.
#[derive(Clone, Debug)]
pub struct Settings {
    pub node_mode: NodeMode,
    /// Where the host's API server finds this process, for what kubectl asks of a kubelet.
    pub kubelet_api: Option<KubeletAddress>,
    /// Where pods in members find the host's API server: host and port.
    pub host_address: Option<(String, u16)>,
}

/// Where a kubelet is found behind virtual nodes.
#[derive(Clone, Debug)]
pub struct KubeletAddress {
    /// Of nodes that have no port of their own.
    pub shared: SocketAddr,
    /// Where they have some.
    pub usage: Option<Arc<Usage>>,
}

impl KubeletAddress {
    pub fn of_all(shared: SocketAddr) -> Self {
        Self { shared, usage: None }
    }

    fn of(&self, node: &str, view: &HostCache) -> SocketAddr {
        let own = self.usage.as_ref().and_then(|usage| usage.port_of(node, view));
        SocketAddr::new(self.shared.ip(), own.unwrap_or_else(|| self.shared.port()))
    }
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
        let view = Arc::new(HostCache::default());
        if let Some(usage) = self.settings.kubelet_api.as_ref().and_then(|kubelet_api| kubelet_api.usage.as_ref()) {
            usage.begin(&view);
        }
        tokio::select! {
            () = watch_host(&self.host.client, &view) => {}
            () = self.follow_members(&view) => {}
            () = node::keep_alive(&self.host.client, &view) => {}
            () = renewal::run(self.host.clone(), self.members.clone()) => {}
        }
    }

    async fn follow_members(&self, view: &Arc<HostCache>) {
        let mut works = MemberTasks::default();
        let mut nodes = Nodes::new(self.host.clone(), Arc::clone(view));
        let listings = Openings::default();
        // Once for all members: each would look through all of them.
        let known_as = watch::Sender::default();
        let begin = |member: Arc<Member>| {
            let agent = MemberAgent {
                host: self.host.clone(),
                view: Arc::clone(view),
                known_as: known_as.subscribe(),
                settings: self.settings.clone(),
                listings: listings.clone(),
                member: member.name.clone(),
            };
            async move { Box::pin(agent.serve(&member)).await }
        };
        view.synced().await;
        let follow = async {
            loop {
                if let Ok(members) = self.members.all() {
                    known_as.send_replace(names(&members));
                    works.follow(&members, begin);
                }
                sleep(PAUSE).await;
            }
        };
        let retire = async {
            loop {
                node::retire_departed(&mut nodes, &self.members).await;
                sleep(PAUSE).await;
            }
        };
        tokio::join!(follow, retire);
    }
}
