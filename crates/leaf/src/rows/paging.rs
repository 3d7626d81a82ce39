//! The rows in order, a page at a time: what is listed costs no request, and a page no more than its own length.

use std::ops::Bound;

use super::Rows;
use crate::{row::Row, volume_objects::VolumeObjects};
use domain::volume::VolumeHash;

impl Rows {
    /// The first rows after a volume that are wanted, in the order of their hashes, and not more than so many.
    pub fn page(
        &self,
        after: Option<VolumeHash>,
        most: usize,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<(VolumeHash, Row)> {
        self.page_of(after, most, |_| true, wanted)
    }

    /// The same of those alone of which there may be more to tell than that they are there.
    pub fn page_of_ailing(
        &self,
        after: Option<VolumeHash>,
        most: usize,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<(VolumeHash, Row)> {
        self.page_of(after, most, |entry| !entry.is_well(), wanted)
    }

    /// The same of those alone of which more is to be counted than bound claims.
    pub fn page_of_unsettled(
        &self,
        after: Option<VolumeHash>,
        most: usize,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<(VolumeHash, Row)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.lock();
        let unsettled = table.tally.unsettled.range((begin, Bound::Unbounded));
        let rows = unsettled.filter_map(|hash| Some((*hash, table.rows.get(hash)?.row())));
        rows.filter(|(_, row)| wanted(row)).take(most).collect()
    }

    /// The first volumes after one that have a claim which nobody withdraws, and not more than so many.
    pub fn lasting_after(&self, after: Option<VolumeHash>, most: usize) -> Vec<VolumeHash> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.lock();
        let lasting = table.rows.range((begin, Bound::Unbounded)).filter(|(_, entry)| entry.is_lasting());
        lasting.map(|(hash, _)| *hash).take(most).collect()
    }

    /// How many volumes are published on a node.
    pub fn published_on(&self, node: &str) -> usize {
        self.lock().rows.values().filter(|entry| entry.is_on(node)).count()
    }

    fn page_of(
        &self,
        after: Option<VolumeHash>,
        most: usize,
        candidate: impl Fn(&VolumeObjects) -> bool,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<(VolumeHash, Row)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.lock();
        let candidates = table.rows.range((begin, Bound::Unbounded)).filter(|(_, entry)| candidate(entry));
        let rows = candidates.map(|(hash, entry)| (*hash, entry.row()));
        rows.filter(|(_, row)| wanted(row)).take(most).collect()
    }
}
