//! The rows that somebody has to look at, found among all.

use std::{collections::BTreeSet, ops::Bound, pin::pin};

use super::Rows;
use crate::{
    row::{ClaimRow, Consumer, VolumeRow},
    volume_objects::VolumeCounts,
};
use domain::volume::VolumeHash;

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

    /// Claims that were recreated late: the volume of each is bound to another one.
    pub fn superseded(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let all = table.rows.iter();
        all.flat_map(|(hash, entry)| entry.superseded().map(move |claim| (*hash, claim))).collect()
    }

    /// Claims that were recreated for a volume, and have not got it, also those that are on their way out, as our finalizer holds them.
    pub fn recreated(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let all = table.tally.to_repair.iter().filter_map(|hash| Some((*hash, table.rows.get(hash)?)));
        all.flat_map(|(hash, entry)| entry.recreated().map(move |claim| (hash, claim))).collect()
    }

    /// The volumes of this hash that outlive their leaf claims, whatever else carries its labels.
    pub fn left(&self, hash: VolumeHash) -> Vec<VolumeRow> {
        self.lock().rows.get(&hash).map(|entry| entry.left().collect()).unwrap_or_default()
    }

    /// Claims that groups of snapshots choose.
    pub fn chosen_for_groups(&self) -> Vec<(VolumeHash, ClaimRow)> {
        let table = self.lock();
        let chosen = table.rows.iter().filter(|(_, entry)| entry.is_chosen());
        chosen.filter_map(|(hash, entry)| Some((*hash, entry.row().claim?))).collect()
    }

    /// Volumes whose leaf is on its way out, gone before its volume, without it, or being recreated.
    pub fn needs_repair(&self) -> Vec<VolumeHash> {
        self.lock().tally.to_repair.iter().copied().collect()
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

    /// Volumes of which there was any news since this was asked last, also that nothing of them is there any more. None: it was not asked
    /// before, or not for long, and all of them may have changed.
    pub fn take_changed(&self) -> Option<BTreeSet<VolumeHash>> {
        self.lock().changed.replace(BTreeSet::new())
    }

    /// Until everything has been listed.
    pub async fn listed(&self) {
        loop {
            // What concerns all is told in each part.
            let mut changed = pin!(self.changed[0].notified());
            changed.as_mut().enable();
            if self.synced() {
                return;
            }
            changed.await;
        }
    }

    /// Until some claim waits to be bound. For one who waits.
    pub async fn somebody_waits(&self) {
        while self.lock().tally.pending.is_empty() {
            self.waits.notified().await;
        }
    }

    /// Claims that wait to be bound, and what this process knows of their consumers.
    pub fn pending(&self) -> Vec<(VolumeHash, ClaimRow, Consumer)> {
        let all = self.pending_since(|_| None).into_iter();
        all.filter_map(|(hash, news)| news.map(|(claim, consumer)| (hash, claim, consumer))).collect()
    }

    /// The same; of those that are as they were seen, that they wait still.
    pub fn pending_since<'a>(
        &self,
        seen: impl Fn(VolumeHash) -> Option<(&'a ClaimRow, &'a Consumer)>,
    ) -> Vec<(VolumeHash, Option<(ClaimRow, Consumer)>)> {
        let table = self.lock();
        let waiting = table.tally.pending.iter().filter_map(|hash| Some((*hash, table.rows.get(hash)?)));
        waiting
            .filter_map(|(hash, entry)| {
                let claim = entry.waiting()?;
                let is_seen = seen(hash).is_some_and(|(row, consumer)| claim.is_as(row) && entry.consumer == *consumer);
                Some((hash, (!is_seen).then(|| (claim.row(), entry.consumer.clone()))))
            })
            .collect()
    }

    /// How many volumes there are. Those that are not simply there are counted some at a time: others wait for the rows as well.
    pub fn counts(&self) -> VolumeCounts {
        let (mut counts, mut from) = (VolumeCounts::default(), Bound::Unbounded);
        while let Some(last) = self.count_some(from, &mut counts) {
            from = Bound::Excluded(last);
        }
        counts
    }

    /// The last of these, where there may be more. Those that are simply there are counted with the last of the others, under one lock: one
    /// that is bound between two would count as both.
    fn count_some(&self, from: Bound<VolumeHash>, counts: &mut VolumeCounts) -> Option<VolumeHash> {
        let table = self.lock();
        let (mut last, mut taken) = (None, 0);
        for hash in table.tally.unsettled.range((from, Bound::Unbounded)).take(COUNTED_AT_ONCE) {
            if let Some(entry) = table.rows.get(hash) {
                entry.count(counts);
            }
            (last, taken) = (Some(*hash), taken + 1);
        }
        if taken < COUNTED_AT_ONCE {
            counts.bound += table.tally.bound;
            return None;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{PersistentVolume, PersistentVolumeClaim},
        serde_json::{from_value, json},
    };

    use super::*;
    use crate::{
        ownership,
        rows::{Kind, NOTICED},
    };
    use domain::volume::HostId;

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_lists_ends_with_the_last_of_them() {
        let rows = Rows::new(HostId("h".to_owned()));
        let waiting = async {
            rows.listed().await;
            assert!(rows.synced());
        };
        let listing = async {
            for kind in [Kind::Claims, Kind::Volumes, Kind::Classes] {
                tokio::task::yield_now().await;
                rows.begin(kind);
                rows.complete(kind);
            }
        };
        let both = async { tokio::join!(waiting, listing) };
        tokio::time::timeout(std::time::Duration::from_secs(1), both).await.unwrap();
    }

    #[test]
    fn claim_that_waits_has_a_row_where_it_or_its_consumer_is_not_as_it_was_seen() {
        let host = HostId("h".to_owned());
        let (rows, hash) = (Rows::new(host.clone()), VolumeHash::new(&host, "pvc-1"));
        let put = |uid: &str, version: &str, phase: &str| {
            let labels = ownership::labels(&host, hash);
            let metadata =
                json!({"namespace": "shop", "name": "db", "uid": uid, "resourceVersion": version, "labels": labels});
            let claim = json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}});
            rows.put_claim(&from_value::<PersistentVolumeClaim>(claim).unwrap());
        };
        let mut seen = None::<(ClaimRow, Consumer)>;
        let mut look = || {
            let known = seen.as_ref();
            let now = rows.pending_since(|of| known.filter(|_| of == hash).map(|seen| (&seen.0, &seen.1)));
            let told: Vec<bool> = now.iter().map(|(_, news)| news.is_some()).collect();
            if let Some((row, consumer)) = now.into_iter().find_map(|(_, news)| news) {
                seen = Some((row, consumer));
            }
            told
        };
        put("c-1", "7", "Pending");
        assert_eq!([look(), look()], [[true], [false]], "it is news once");
        put("c-1", "8", "Pending");
        assert_eq!([look(), look()], [[true], [false]], "another version");
        rows.set_consumer(hash, Consumer::Made("p-1".into()));
        assert_eq!([look(), look()], [[true], [false]], "its consumer");
        rows.drop_claim(hash, "c-1", 8);
        put("c-2", "8", "Pending");
        assert_eq!([look(), look()], [[true], [false]], "another claim, of a version as it was seen");
        put("c-2", "9", "Bound");
        assert!(look().is_empty());
    }

    #[test]
    fn whatever_changes_of_a_volume_is_told_once_to_who_has_asked_before() {
        let host = HostId("h".to_owned());
        let (rows, hash) = (Rows::new(host.clone()), VolumeHash::new(&host, "pvc-1"));
        let put = |version: &str| {
            let labels = ownership::labels(&host, hash);
            let metadata =
                json!({"namespace": "shop", "name": "db", "uid": "c-1", "resourceVersion": version, "labels": labels});
            let claim = json!({"metadata": metadata, "status": {"phase": "Bound"}});
            rows.put_claim(&from_value::<PersistentVolumeClaim>(claim).unwrap());
        };
        let (none, told) = (Some(BTreeSet::new()), Some(BTreeSet::from([hash])));
        put("7");
        assert_eq!(rows.take_changed(), None, "nobody has asked before");
        put("7");
        assert_eq!(rows.take_changed(), none, "it is known already");
        put("8");
        assert_eq!((rows.take_changed(), rows.take_changed()), (told.clone(), none.clone()));
        rows.drop_claim(hash, "c-1", 8);
        assert_eq!(rows.take_changed(), told, "it has gone");
        put("9");
        rows.begin(Kind::Claims);
        rows.take_changed();
        rows.complete(Kind::Claims);
        assert!(rows.row(hash).is_none());
        assert_eq!(rows.take_changed(), told, "a list does not name it any more");
        rows.begin(Kind::Volumes);
        rows.complete(Kind::Volumes);
        assert_eq!(rows.take_changed(), none);
    }

    #[test]
    fn changes_that_nobody_asks_for_any_more_are_not_remembered_for_ever() {
        let host = HostId("h".to_owned());
        let rows = Rows::new(host.clone());
        let come_and_go = |number: usize| {
            let (uid, hash) = (format!("c-{number}"), VolumeHash::new(&host, &format!("pvc-{number}")));
            let labels = ownership::labels(&host, hash);
            let metadata =
                json!({"namespace": "shop", "name": uid, "uid": uid, "resourceVersion": "7", "labels": labels});
            let claim = json!({"metadata": metadata, "status": {"phase": "Bound"}});
            rows.put_claim(&from_value::<PersistentVolumeClaim>(claim).unwrap());
            rows.drop_claim(hash, &uid, 7);
        };
        rows.take_changed();
        (0..NOTICED).for_each(come_and_go);
        assert_eq!(rows.take_changed().map(|changed| changed.len()), Some(NOTICED));
        (NOTICED..=2 * NOTICED).for_each(come_and_go);
        assert_eq!(rows.take_changed(), None, "all may have changed");
        assert_eq!(rows.take_changed(), Some(BTreeSet::new()));
    }

    #[test]
    fn volume_that_outlives_its_claim_is_found_beside_an_older_one_and_one_of_somebodys() {
        let (host, annotations) = (HostId("h".to_owned()), json!({(ownership::PROVISIONED_BY): "x"}));
        let (rows, hash) = (Rows::new(host.clone()), VolumeHash::new(&host, "pvc-1"));
        let metadata = |name: &str| {
            json!({"namespace": "shop", "name": name, "uid": name, "resourceVersion": "7",
                "labels": ownership::labels(&host, hash)})
        };
        let put = |name: &str, policy: &str, by_hand: bool| {
            let mut metadata = metadata(name);
            if !by_hand {
                metadata["annotations"] = annotations.clone();
            }
            let claim = json!({"namespace": "shop", "name": "db", "uid": format!("claim-of-{name}")});
            let spec = json!({"persistentVolumeReclaimPolicy": policy, "claimRef": claim});
            rows.put_volume(&from_value::<PersistentVolume>(json!({"metadata": metadata, "spec": spec})).unwrap());
        };
        put("goes", "Delete", false);
        put("theirs", "Retain", true);
        put("kept", "Retain", false);
        let left = || rows.left(hash).iter().map(|volume| volume.name.to_string()).collect::<Vec<_>>();
        assert_eq!(left(), ["kept"]);
        let claim = json!({"metadata": metadata("claim-of-kept"), "spec": {"volumeName": "kept"}});
        rows.put_claim(&from_value::<PersistentVolumeClaim>(claim).unwrap());
        assert_eq!(left(), Vec::<String>::new(), "its claim is there");
    }

    #[test]
    fn claim_that_is_bound_while_others_are_counted_counts_once() {
        let host = HostId("h".to_owned());
        let rows = Rows::new(host.clone());
        let put = |number: usize, phase: &str, version: &str| {
            let (name, hash) = (format!("db-{number}"), VolumeHash::new(&host, &format!("pvc-{number}")));
            let metadata = json!({"namespace": "shop", "name": name, "uid": name, "resourceVersion": version,
                "labels": ownership::labels(&host, hash)});
            let claim = json!({"metadata": metadata, "spec": {}, "status": {"phase": phase}});
            rows.put_claim(&from_value::<PersistentVolumeClaim>(claim).unwrap());
        };
        put(0, "Bound", "1");
        put(1, "Pending", "1");
        let mut counts = VolumeCounts::default();
        let more = rows.count_some(Bound::Unbounded, &mut counts);
        put(1, "Bound", "2");
        assert_eq!((more, counts.bound, counts.pending), (None, 1, 1), "there is nothing more to count");
        assert_eq!((rows.counts().bound, rows.counts().pending), (2, 0));
        (2..2 + COUNTED_AT_ONCE).for_each(|number| put(number, "Pending", "3"));
        assert_eq!((rows.counts().bound, rows.counts().pending), (2, COUNTED_AT_ONCE as u64));
    }
}
