//! What nobody asked for and has to be done: it follows what happens in the host and in the members. Only the replica that
//! holds the lease does it. A member's work waits for nobody else's.

mod attachments;
mod budget;
mod clustertree;
mod forgotten;
mod heal;
mod late;
mod member;
mod missed;
mod nobodys;
mod obstacle;
mod repair;
mod round;
mod shared;
mod sight;
mod stranded_pods;
mod strays;
mod unled;
mod waiting;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::moving::Movers;
use ::member::{Member, MemberTasks, Registry, renewal};
use budget::{Budget, LeafEvents};
use host::{Host, events::News, volume::HostVolume, volumes::HostVolumes};
use nobodys::ListedHandles;

/// After so long at most, work on a member that has failed is begun again.
const PAUSE: Duration = Duration::from_secs(2);

/// What the work needs.
#[derive(Clone, Debug)]
pub struct Reconciler {
    host: Host,
    members: Registry,
    /// As this replica follows them, whether it leads or not.
    volumes: Arc<HostVolumes>,
    handles: Arc<ListedHandles>,
    /// Of events, for all members.
    budget: Arc<Mutex<Budget>>,
    /// Of events about leaves, for each member and each volume.
    leaf_events: Arc<Mutex<LeafEvents>>,
    movers: Option<Movers>,
}

impl Reconciler {
    pub fn new(host: Host, members: Registry, volumes: Arc<HostVolumes>, movers: Option<Movers>) -> Self {
        let budget = Arc::new(Mutex::new(waiting::budget_of_all()));
        let leaf_events = Arc::new(Mutex::new(LeafEvents::new()));
        Self { host, members, volumes, handles: Arc::default(), budget, leaf_events, movers }
    }

    /// Works until it is dropped, and knows nothing of the time before but what is followed by every replica.
    pub async fn run(mut self) {
        self.handles = Arc::default();
        tokio::select! {
            biased; // one order of events for one course of time
            () = self.follow_members() => {}
            () = clustertree::shield_claims(&self) => {}
            () = stranded_pods::tell(&self) => {}
            () = attachments::take_away(&self) => {}
            () = renewal::run(self.host.clone(), self.members.clone()) => {}
            () = self.move_volumes() => {}
        }
    }

    /// What has become of a leaf, on the volume that leads to it. Whether it was told there.
    async fn tell_of_leaf(&self, member: &str, volume: &HostVolume, news: &News) -> bool {
        let permits = || self.leaf_events().take(member, &volume.uid, news.reason, Instant::now());
        host::events::tell_within(&self.host, volume, news, permits).await
    }

    /// Whether an event about what stays wrong could be written now. Who asks that before he looks at a leaf looks again where it could not.
    fn may_tell_of_leaf(&self, member: &str) -> bool {
        self.leaf_events().has_some(member, Instant::now())
    }

    /// The same of this volume, once its member has some.
    fn may_tell_of(&self, volume: &HostVolume) -> bool {
        self.leaf_events().has_some_of(&volume.uid, Instant::now())
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn leaf_events(&self) -> MutexGuard<'_, LeafEvents> {
        self.leaf_events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn move_volumes(&self) {
        match self.movers.clone() {
            Some(movers) => movers.run(&self.volumes).await,
            None => unled::tell(self).await,
        }
    }

    async fn follow_members(&self) {
        let mut works = MemberTasks::default();
        let begin = |member: Arc<Member>| {
            let reconciler = self.clone();
            async move {
                tokio::join!(member::follow(&reconciler, &member), waiting::tell(&reconciler, &member));
            }
        };
        let mut changes = self.members.changes();
        loop {
            changes.mark_unchanged();
            if let Ok(members) = self.members.all() {
                works.follow(&members, begin);
            }
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => {}
                () = sleep(PAUSE) => {}
            }
        }
    }
}

/// A thousand members are not looked at all at once.
fn turn(member: &str) -> Duration {
    Duration::from_millis(mixed(member) % 250)
}

/// A number by its name, which few others have.
fn mixed(member: &str) -> u64 {
    member.bytes().fold(0_u64, |mixed, byte| mixed.wrapping_mul(31).wrapping_add(byte.into()))
}
