//! How many leaves are simply there, and which rows there is more to say of: who counts them, or wants to know what waits, looks at those
//! alone, however many there are. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::volume_objects::VolumeObjects;
use domain::volume::VolumeHash;

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Bound claims of rows of which nothing else is to be counted.
    pub(super) bound: u64,
    /// All other rows.
    pub(super) unsettled: BTreeSet<VolumeHash>,
    /// Of these, those that have a claim which waits: they are asked for often, and are few.
    pub(super) pending: BTreeSet<VolumeHash>,
    /// Those of which somebody deletes the leaf, or has, or that are being recreated: so are they.
    pub(super) to_repair: BTreeSet<VolumeHash>,
}

impl Tally {
    pub(super) fn of(rows: &BTreeMap<VolumeHash, Box<VolumeObjects>>) -> Self {
        let mut tally = Self::default();
        for (hash, entry) in rows {
            tally.change(*hash, None, Some(entry));
        }
        tally
    }

    /// A row has changed, or gone, that counted as so many bound claims. Whether a claim of it waits.
    pub(super) fn change(&mut self, hash: VolumeHash, before: Option<u64>, entry: Option<&VolumeObjects>) -> bool {
        let bound = entry.and_then(VolumeObjects::settled);
        self.bound = (self.bound + bound.unwrap_or_default()).saturating_sub(before.unwrap_or_default());
        put(&mut self.unsettled, hash, entry.is_some() && bound.is_none());
        put(&mut self.to_repair, hash, entry.is_some_and(VolumeObjects::needs_repair));
        let waits = entry.is_some_and(VolumeObjects::is_pending);
        put(&mut self.pending, hash, waits);
        waits
    }
}

fn put(rows: &mut BTreeSet<VolumeHash>, hash: VolumeHash, is_one: bool) {
    if is_one {
        rows.insert(hash);
    } else {
        rows.remove(&hash);
    }
}
