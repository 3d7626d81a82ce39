//! Leaves that no volume of the host is known to have. Only a list of all volumes tells that none has, and whoever may write in a member
//! makes as many such leaves as he likes: so looks share a list, and how often there are looks and lists is bounded. What deletes
//! a claim goes by no list that was begun before it asked, and shares that with all who have asked by then: of a thousand members each would
//! have the host list a hundred thousand volumes.

use std::{
    collections::{BTreeSet, HashSet},
    time::Duration,
};

use tokio::{sync::Mutex, time::Instant};

use super::{
    Reconciler,
    budget::Budget,
    repair::{LiveWish, Repair},
    shared,
};
use domain::{
    error::Result,
    volume::{
        VolumeHash, VolumeId,
        healing::{Healing, Wish},
    },
};
use host::Host;

/// For so long a list serves all looks once it is there: of many volumes it takes longer than that itself.
const BELIEVED: Duration = Duration::from_secs(2);
/// In one member at once, and each further one after so long.
const LOOKS: u32 = 20;
const NEXT_LOOK: Duration = Duration::from_millis(100);
const LISTS: u32 = 20;
const NEXT_LIST: Duration = Duration::from_secs(3);

/// The handles of the host's volumes as they were listed last, for all members. Whoever holds it lists them.
#[derive(Debug, Default)]
pub(super) struct ListedHandles(Mutex<Option<Listed>>);

#[derive(Debug)]
struct Listed {
    began: Instant,
    ended: Instant,
    /// Each after the half of a hash that it names, in the order of that. Where they could not be listed, that holds for all who wait as well:
    /// else they would try one after the other.
    handles: Result<Vec<(u64, Box<str>)>>,
}

impl Listed {
    async fn new(host: &Host) -> Self {
        let began = Instant::now();
        let handles = host::volume::handles(host).await.map(|all| {
            let halves = all.into_iter().filter_map(|handle| Some((half_of(&VolumeId::parse(&handle)?), handle)));
            let mut handles: Vec<_> = halves.collect();
            handles.sort_unstable();
            handles
        });
        Self { began, ended: Instant::now(), handles }
    }

    /// Whether this is so of one that names this half.
    fn any(&self, half: u64, is_so: impl Fn(&VolumeId) -> bool) -> Result<bool> {
        let handles = self.handles.as_ref().map_err(Clone::clone)?;
        let from = handles.partition_point(|(other, _)| *other < half);
        let there = handles[from..].iter().take_while(|(other, _)| *other == half);
        Ok(there.filter_map(|(_, handle)| VolumeId::parse(handle)).any(|id| is_so(&id)))
    }
}

impl ListedHandles {
    /// Whether one of them is this, by a list that ended two seconds ago at most.
    pub(super) async fn have(&self, host: &Host, id: &VolumeId) -> Result<bool> {
        let is_believed = |listed: &Listed| listed.ended.elapsed() < BELIEVED;
        self.look(host, is_believed, |listed| listed.any(half_of(id), |other| other == id)).await
    }

    /// Whether this is so now of one that may be for the volume with this hash: by a list that was begun after that is asked.
    pub(super) async fn have_now(
        &self,
        host: &Host,
        hash: VolumeHash,
        is_so: impl Fn(&VolumeId) -> bool,
    ) -> Result<bool> {
        let asked = Instant::now();
        self.look(host, |listed| listed.began > asked, |listed| listed.any(hash.seed(), &is_so)).await
    }

    async fn look(
        &self,
        host: &Host,
        is_believed: impl Fn(&Listed) -> bool,
        has: impl Fn(&Listed) -> Result<bool>,
    ) -> Result<bool> {
        let mut listed = self.0.lock().await;
        if let Some(known) = listed.as_ref().filter(|known| is_believed(known)) {
            return has(known);
        }
        let new = Listed::new(host).await;
        let has = has(&new);
        *listed = Some(new);
        has
    }
}

/// What all handles of one volume have in common.
fn half_of(id: &VolumeId) -> u64 {
    id.hashes().start().seed()
}

/// What such leaves of one member may still cost.
#[derive(Debug)]
pub(super) struct Allowance {
    looks: Budget,
    lists: Budget,
    /// Whose next step needs a list that it may not have yet.
    unlisted: HashSet<VolumeHash>,
}

impl Default for Allowance {
    fn default() -> Self {
        let (looks, lists) = (Budget::new(LOOKS, NEXT_LOOK), Budget::new(LISTS, NEXT_LIST));
        Self { looks, lists, unlisted: HashSet::new() }
    }
}

impl Allowance {
    /// Whether it may be looked at now. Who waits for a list takes no look from others until there is one.
    pub(super) fn permits_look(&mut self, reconciler: &Reconciler, repair: &Repair<'_>) -> bool {
        // What a move has asks nothing of the host.
        let is_nobodys = !repair.row().is_moving() && reconciler.volumes.count_with(repair.handle()) == 0;
        let now = Instant::now();
        let waits = is_nobodys && self.unlisted.contains(&repair.hash()) && !self.lists.has_some(now);
        let permits = !waits && (!is_nobodys || self.looks.take(now));
        if permits {
            self.unlisted.remove(&repair.hash());
        }
        permits
    }

    /// Whether its step was put off as it needs a list: that was no look, and it keeps its turn.
    pub(super) fn awaits_list(&self, hash: VolumeHash) -> bool {
        self.unlisted.contains(&hash)
    }

    pub(super) fn forget_but(&mut self, ill: &BTreeSet<VolumeHash>) {
        self.unlisted.retain(|hash| ill.contains(hash));
    }

    /// Whether a step may be taken. One that deletes the claim of such a leaf needs a list that begins after that.
    pub(super) async fn permits_step(
        &mut self,
        reconciler: &Reconciler,
        repair: &Repair<'_>,
        step: &Healing,
        wanted: &LiveWish,
    ) -> Result<bool> {
        let deletes = match step {
            Healing::TakeBack => true,
            Healing::LetGo | Healing::RemoveLate => wanted.user.is_none() && wanted.wish == Wish::Keep,
            _ => false,
        };
        if !deletes {
            return Ok(true);
        }
        if !self.lists.take(Instant::now()) {
            self.unlisted.insert(repair.hash());
            return Ok(false);
        }
        Ok(!shared::is_led_to(reconciler, repair).await?)
    }
}
