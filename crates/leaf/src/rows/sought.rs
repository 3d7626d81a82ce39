//! The rows that somebody has to look at, found among all.

use std::{collections::BTreeSet, ops::Bound};

use super::Rows;
use crate::{
    row::{ClaimRow, Consumer},
    volume_objects::VolumeCounts,
};
use domain::volume::{VolumeHash, plan::Phase};

/// How many rows are counted while others wait.
const COUNTED_AT_ONCE: usize = 1000;

impl Rows {
    /// Volumes that are retained because the host's are.
    pub fn following(&self) -> Vec<VolumeHash> {
        let table = self.lock();
        table.rows.iter().filter(|(_, entry)| entry.follows()).map(|(hash, _)| *hash).collect()
    }

    /// Claims with a volume of which the host was never told: nobody has waited for them to the end.
    pub fn untold(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let untold = table.rows.iter().filter(|(_, entry)| entry.is_untold());
        untold.filter_map(|(hash, entry)| Some((*hash, entry.row().claim?))).collect()
    }

    /// Claims that were made anew late: the volume of each is bound to another one.
    pub fn superseded(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let all = table.rows.iter();
        all.flat_map(|(hash, entry)| entry.superseded().map(move |claim| (*hash, claim))).collect()
    }

    /// Claims that groups of snapshots choose.
    pub fn chosen_for_groups(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let chosen = table.rows.iter().filter(|(_, entry)| entry.is_chosen());
        chosen.filter_map(|(hash, entry)| Some((*hash, entry.row().claim?))).collect()
    }

    /// Volumes whose leaf is on its way out, gone before its volume, without it, or being made anew.
    pub fn needs_repair(&self) -> Vec<VolumeHash> {
        let table = self.lock();
        table.rows.iter().filter(|(_, entry)| entry.is_unwell()).map(|(hash, _)| *hash).collect()
    }

    /// Volumes that say that a move has them.
    pub fn moving(&self) -> Vec<VolumeHash> {
        let table = self.lock();
        table.rows.iter().filter(|(_, entry)| entry.is_moving()).map(|(hash, _)| *hash).collect()
    }

    /// Volumes whose size has changed since this was asked last.
    pub fn take_resized(&self) -> BTreeSet<VolumeHash> {
        std::mem::take(&mut self.lock().resized)
    }

    /// Volumes that one had to look at since this was asked last.
    pub fn take_remarkable(&self) -> BTreeSet<VolumeHash> {
        std::mem::take(&mut self.lock().remarkable)
    }

    /// Until some claim waits to be bound. For one who waits.
    pub async fn somebody_waits(&self) {
        while self.lock().pending.is_empty() {
            self.waits.notified().await;
        }
    }

    /// Claims that wait to be bound, and what this process knows of their consumers.
    pub fn pending(&self) -> Vec<(VolumeHash, ClaimRow, Consumer)> {
        let table = self.lock();
        let waiting = table.pending.iter().filter_map(|hash| Some((*hash, table.rows.get(hash)?)));
        let rows = waiting.map(|(hash, entry)| (hash, entry.row()));
        rows.filter_map(|(hash, row)| {
            // Of several the leaf counts, and the others are copies.
            let claim = row.claim.filter(|claim| claim.phase == Phase::Pending && !claim.terminating)?;
            Some((hash, claim, row.consumer))
        })
        .collect()
    }

    /// Counts the volumes, some at a time: others wait for the rows as well.
    pub fn counts(&self) -> VolumeCounts {
        let (mut counts, mut from) = (VolumeCounts::default(), Bound::Unbounded);
        loop {
            let table = self.lock();
            let mut last = None;
            for (hash, entry) in table.rows.range((from, Bound::Unbounded)).take(COUNTED_AT_ONCE) {
                entry.count(&mut counts);
                last = Some(*hash);
            }
            match last {
                Some(last) => from = Bound::Excluded(last),
                None => return counts,
            }
        }
    }
}
