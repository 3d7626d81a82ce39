//! Where all that is shown is read from: what this process remembers anyway.

use std::sync::Arc;

use cluster::metrics::waiting::Waiting;
use domain::volume::HostId;
use host::{lately::RecentEvents, moves::Moves, volumes::HostVolumes};
use member::{Member, Registry, registry::Snapshot};
use tokio::sync::watch;

#[derive(Clone, Debug)]
pub struct Sources {
    /// This process among others, as people know it: its pod.
    pub replica: String,
    pub host: HostId,
    pub members: Registry,
    /// The host's.
    pub volumes: Arc<HostVolumes>,
    /// Whether it does the work in the background.
    pub leads: watch::Receiver<bool>,
    pub waiting: Waiting,
    /// Where volumes are moved.
    pub moves: Option<Arc<Moves>>,
    pub lately: Arc<RecentEvents>,
}

impl Sources {
    /// None until the members have been read.
    pub(crate) fn members(&self) -> Snapshot {
        self.members.all().unwrap_or_default()
    }

    pub(crate) fn are_members_read(&self) -> bool {
        self.members.all().is_ok()
    }

    /// Nothing is known of a member before it has been listed once.
    pub(crate) fn is_complete(&self) -> bool {
        let starts = |member: &Member| member.closed().is_some_and(|closed| closed.starting);
        self.members.all().is_ok_and(|members| !members.values().any(|member| starts(member)))
    }

    /// The host's, once this process has listed them.
    pub(crate) fn volumes(&self) -> Option<Arc<HostVolumes>> {
        self.volumes.synced().then(|| Arc::clone(&self.volumes))
    }

    pub(crate) fn leads(&self) -> bool {
        *self.leads.borrow()
    }
}
