//! What nobody asked for and has to be done: it follows what happens in the host and in the members. Only the replica that
//! holds the lease does it. A member's work waits for nobody else's.

mod drift;
mod elsewhere;
mod heal;
mod member;
mod shield;
mod waiting;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{
    host::{
        Host,
        volumes::{self, HostVolumes},
    },
    member::{Member, Registry},
};

/// Between two looks at which members there are.
const PAUSE: Duration = Duration::from_secs(2);

/// What the work needs.
#[derive(Clone, Debug)]
pub struct Follower {
    host: Host,
    members: Registry,
    volumes: Arc<HostVolumes>,
    budget: waiting::Shared,
}

impl Follower {
    pub fn new(host: Host, members: Registry) -> Self {
        Self { host, members, volumes: Arc::default(), budget: Arc::default() }
    }

    /// Works until it is dropped, and knows nothing of the time before.
    pub async fn run(mut self) {
        self.volumes = Arc::default();
        tokio::select! {
            biased; // one order of events for one course of time
            () = volumes::keep(&self.host, &self.volumes) => {}
            () = self.follow_members() => {}
            () = self.shield_claims() => {}
            () = self.tell_of_stranded_pods() => {}
        }
    }

    async fn follow_members(&self) {
        let mut works = JoinSet::new();
        let mut under_way: BTreeMap<String, (Arc<Member>, AbortHandle)> = BTreeMap::new();
        loop {
            if let Ok(members) = self.members.all() {
                under_way.retain(|name, (member, work)| {
                    let stays = members.get(name).is_some_and(|now| Arc::ptr_eq(now, member));
                    if !stays {
                        work.abort();
                    }
                    stays
                });
                for (name, member) in
                    members.iter().filter(|(name, _)| !under_way.contains_key(*name)).collect::<Vec<_>>()
                {
                    let (follower, of) = (self.clone(), Arc::clone(member));
                    let work = works.spawn(async move {
                        tokio::join!(follower.follow(&of), follower.tell_of_waiting(&of));
                    });
                    under_way.insert(name.clone(), (Arc::clone(member), work));
                }
            }
            while works.try_join_next().is_some() {}
            sleep(PAUSE).await;
        }
    }
}

/// A thousand members are not looked at all at once.
fn turn(member: &str) -> Duration {
    let mixed = member.bytes().fold(0_u64, |mixed, byte| mixed.wrapping_mul(31).wrapping_add(byte.into()));
    Duration::from_millis(mixed % 250)
}
