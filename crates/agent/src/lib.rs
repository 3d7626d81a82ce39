//! The agent behind the virtual nodes: keeps a Node in the host for each member, and runs in the member the pods that are
//! bound to it.
//!
//! All state is in objects. Whoever is killed and started again sees what there is and goes on; every write tests what it
//! was decided on. A member that does not answer is told of, and nothing of it is deleted or made anew because of that.
//!
//! Its page: `docs/design/virtual-nodes.md`.

mod cache;
pub mod kubelet_api;
mod member_agent;
mod node;
mod object;
mod pod;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::time::sleep;

use cache::{HostCache, watch_host};
use host::Host;
use leaf::ownership::{HOST, MANAGED_BY};
use member::{Member, MemberTasks, Registry, renewal};
use member_agent::MemberAgent;
pub use node::NodeMode;
use node::Nodes;

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
    pub kubelet_api: Option<SocketAddr>,
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
        let view = Arc::new(HostCache::default());
        tokio::select! {
            () = watch_host(&self.host.client, &view) => {}
            () = self.follow_members(&view) => {}
            () = renewal::run(self.host.clone(), self.members.clone()) => {}
        }
    }

    async fn follow_members(&self, view: &Arc<HostCache>) {
        let mut works = MemberTasks::default();
        let mut nodes = Nodes::new(self.host.clone(), Arc::clone(view));
        let begin = |member: Arc<Member>| {
            let agent = MemberAgent {
                host: self.host.clone(),
                view: Arc::clone(view),
                members: self.members.clone(),
                settings: self.settings.clone(),
                member: member.name.clone(),
            };
            async move { Box::pin(agent.serve(&member)).await }
        };
        loop {
            view.synced().await;
            if let Ok(members) = self.members.all() {
                works.follow(&members, begin);
                node::retire_departed(&mut nodes, &members).await;
            }
            sleep(PAUSE).await;
        }
    }
}
