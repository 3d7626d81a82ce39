//! Leaves that no volume of the host is known to have. Only a list of all volumes tells that none has, and whoever may write in a member
//! makes as many such leaves as he likes: so looks share a list, and how often there are looks and lists is bounded. What deletes
//! a claim goes by a list of its own all the same.

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
        VolumeHash,
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

/// The handles of the host's volumes as they were listed last, and when that ended.
#[derive(Debug, Default)]
pub(super) struct ListedHandles(Mutex<Option<(Instant, HashSet<Box<str>>)>>);

impl ListedHandles {
    /// Whether one of them is this, by a list that ended two seconds ago at most.
    pub(super) async fn have(&self, host: &Host, handle: &str) -> Result<bool> {
        let mut listed = self.0.lock().await;
        if let Some((ended, handles)) = &*listed
            && ended.elapsed() < BELIEVED
        {
            return Ok(handles.contains(handle));
        }
        let handles = host::volume::handles(host).await?;
        let has = handles.contains(handle);
        *listed = Some((Instant::now(), handles));
        Ok(has)
    }
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

    /// Whether a step may be taken. One that deletes the claim of such a leaf needs a list that is made now.
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
