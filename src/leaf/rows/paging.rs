//! The rows in order, a page at a time: what is listed costs no request, and no page more than its own length.

use std::ops::Bound;

use super::Rows;
use crate::{
    leaf::row::{Entry, Row},
    volume::VolumeHash,
};

impl Rows {
    /// The first rows after a volume that are wanted, in the order of their hashes, and not more than so many.
    pub fn page(
        &self,
        after: Option<VolumeHash>,
        most: usize,
        wanted: impl Fn(&Row) -> bool,
    ) -> Vec<(VolumeHash, Row)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let table = self.lock();
        let rows = table.rows.range((begin, Bound::Unbounded)).map(|(hash, entry)| (*hash, entry.row()));
        rows.filter(|(_, row)| wanted(row)).take(most).collect()
    }

    /// How many volumes are published on a node.
    pub fn published_on(&self, node: &str) -> usize {
        self.lock().rows.values().map(Entry::row).filter(|row| is_on(row, node)).count()
    }
}

fn is_on(row: &Row, node: &str) -> bool {
    row.claim.as_ref().is_some_and(|claim| claim.life.published.is_on(node))
}
