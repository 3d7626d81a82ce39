//! Leaves that no volume of the host is known to have. Only a list of all volumes tells that none has, and whoever may write in a member
//! makes as many such leaves as he likes: so looks share a list, and how often there are looks and lists is bounded. What deletes
//! a claim goes by a list of its own all the same.

use std::{collections::HashSet, time::Duration};

use tokio::{sync::Mutex, time::Instant};

use super::{
    Reconciler,
    budget::Budget,
    repair::{LiveWish, Repair},
};
use domain::{
    error::Result,
    volume::healing::{Healing, Wish},
};
use host::Host;

/// For so long a list serves all looks.
const BELIEVED: Duration = Duration::from_secs(2);
/// In one member at once, and each further one after so long.
const LOOKS: u32 = 20;
const NEXT_LOOK: Duration = Duration::from_millis(100);
const LISTS: u32 = 20;
const NEXT_LIST: Duration = Duration::from_secs(3);

/// The handles of the host's volumes as they were listed last, and when that began.
#[derive(Debug, Default)]
pub(super) struct ListedHandles(Mutex<Option<(Instant, HashSet<Box<str>>)>>);

impl ListedHandles {
    /// Whether one of them is this, by a list that is two seconds old at most.
    pub(super) async fn have(&self, host: &Host, handle: &str) -> Result<bool> {
        let mut listed = self.0.lock().await;
        if let Some((begun, handles)) = &*listed
            && begun.elapsed() < BELIEVED
        {
            return Ok(handles.contains(handle));
        }
        let begun = Instant::now();
        let handles = host::volume::handles(host).await?;
        let has = handles.contains(handle);
        *listed = Some((begun, handles));
        Ok(has)
    }
}

/// What such leaves of one member may still cost.
#[derive(Debug)]
pub(super) struct Allowance {
    looks: Budget,
    lists: Budget,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { looks: Budget::new(LOOKS, NEXT_LOOK), lists: Budget::new(LISTS, NEXT_LIST) }
    }
}

impl Allowance {
    /// Whether it may be looked at now.
    pub(super) fn permits_look(&mut self, reconciler: &Reconciler, repair: &Repair<'_>) -> bool {
        // What a move has asks nothing of the host.
        let is_nobodys = !repair.row().is_moving() && reconciler.volumes.with(repair.handle()).is_empty();
        !is_nobodys || self.looks.take(Instant::now())
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
        Ok(self.lists.take(Instant::now()) && !host::volume::uses(&reconciler.host, "", repair.handle()).await?)
    }
}
