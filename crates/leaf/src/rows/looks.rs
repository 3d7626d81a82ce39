//! The rows as they are looked at: one, or of one what is asked for at each look, or in order, a page at a time. None of it costs a request, and
//! a page no more than its own length.

use std::ops::Bound;

use super::Rows;
use crate::{
    row::{Consumer, Row, VolumeRow},
    volume_objects::VolumeObjects,
};
use domain::volume::{LeafPlace, VolumeHash, VolumeId, plan::ObservedClaim};

impl Rows {
    pub fn row(&self, hash: VolumeHash) -> Option<Row> {
        self.lock().rows.get(&hash).map(|entry| entry.row())
    }

    /// What is known of a volume at the place of its leaf: whatever else carries its labels is a copy.
    pub fn row_at(&self, hash: VolumeHash, place: &LeafPlace) -> Row {
        self.lock().rows.get(&hash).map(|entry| entry.row_at(place)).unwrap_or_default()
    }

    /// The row a handle stands for. A readable handle says where the leaf is.
    pub fn find(&self, id: &VolumeId) -> Option<(VolumeHash, Row)> {
        let (table, place) = (self.lock(), id.place());
        let mut rows = table.rows.range(id.hashes()).map(|(hash, entry)| match &place {
            Some(place) => (*hash, entry.row_at(place)),
            None => (*hash, entry.row()),
        });
        rows.find(|(_, row)| !row.is_empty())
    }

    /// The leaf volumes that carry the labels of a volume, whatever claim they are for.
    pub fn volumes_of(&self, id: &VolumeId) -> Vec<VolumeRow> {
        self.lock().rows.range(id.hashes()).flat_map(|(_, entry)| entry.volumes()).collect()
    }

    /// The handles that lead to a volume here: one, but for copies.
    pub fn ids(&self, member: &str, hash: VolumeHash) -> Vec<VolumeId> {
        self.lock().rows.get(&hash).map(|entry| entry.ids(member, hash)).unwrap_or_default()
    }

    /// What a plan goes by of the claim at this place.
    pub fn observed_claim(&self, hash: VolumeHash, place: &LeafPlace) -> Option<ObservedClaim> {
        self.lock().rows.get(&hash)?.observed_claim(place)
    }

    /// Whether a leaf of it is here: a claim that is not the copy of a move.
    pub fn has_leaf(&self, hash: VolumeHash) -> bool {
        self.lock().rows.get(&hash).is_some_and(|entry| entry.has_leaf())
    }

    pub fn volume(&self, hash: VolumeHash) -> Option<VolumeRow> {
        self.lock().rows.get(&hash)?.volume()
    }

    pub fn consumer(&self, hash: VolumeHash) -> Consumer {
        self.lock().rows.get(&hash).map(|entry| entry.consumer.clone()).unwrap_or_default()
    }

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
