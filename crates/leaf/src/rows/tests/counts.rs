//! Volumes are counted without going through all of them.

use k8s_openapi::serde_json::{from_value, json};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::volume_objects::VolumeCounts;

#[test]
fn volumes_are_counted_by_state() {
    let rows = rows();
    let numbered = |number: u64, phase: &str, made: &str| {
        let mut claim = claim("10", phase);
        let of = VolumeHash::new(&HostId("h".to_owned()), &number.to_string());
        claim.metadata.labels = Some(ownership::labels(&HostId("h".to_owned()), of));
        claim.metadata.uid = Some(number.to_string());
        claim.metadata.creation_timestamp = from_value(json!(made)).unwrap();
        claim
    };
    (0..2500).for_each(|number| rows.put_claim(&numbered(number, "Bound", "1970-01-01T00:00:01Z")));
    rows.put_claim(&numbered(3000, "Pending", "1970-01-01T00:00:09Z"));
    rows.put_claim(&numbered(3001, "Pending", "1970-01-01T00:00:08Z"));
    rows.put_claim(&numbered(3002, "Lost", "1970-01-01T00:00:01Z"));
    let mut leaving = numbered(3003, "Bound", "1970-01-01T00:00:01Z");
    leaving.metadata.deletion_timestamp = from_value(json!("1970-01-01T00:00:07Z")).unwrap();
    rows.put_claim(&leaving);
    rows.put_volume(&volume());
    let expected = VolumeCounts {
        pending: 2,
        bound: 2500,
        lost: 1,
        terminating: 1,
        released: 1,
        oldest_creation: Some(8),
        oldest_deletion: Some(7),
    };
    assert_eq!(rows.counts(), expected);
    let table = rows.lock();
    assert_eq!((table.tally.bound, table.tally.unsettled.len()), (2500, 5), "nobody goes through those that are bound");
}

/// What changes it: of a few volumes, claims in each state, volumes of a claim and without one, and lists.
fn do_something(rows: &Rows, number: u64, what: u8, version: usize) {
    let of = VolumeHash::new(&HostId("h".to_owned()), &number.to_string());
    let metadata = |uid: &str| {
        let mut metadata = metadata(uid, &version.to_string());
        metadata["labels"] = json!(ownership::labels(&HostId("h".to_owned()), of));
        metadata
    };
    let claim = |phase: &str| {
        let claim = json!({"metadata": metadata("c-1"), "spec": {"volumeName": "v-1"}, "status": {"phase": phase}});
        from_value::<PersistentVolumeClaim>(claim).unwrap()
    };
    let volume = |of_claim: &str| {
        let mut metadata = metadata("v-1");
        metadata["name"] = json!("v-1");
        let reference = json!({"namespace": "shop", "name": "db", "uid": of_claim});
        from_value::<PersistentVolume>(json!({"metadata": metadata, "spec": {"claimRef": reference}})).unwrap()
    };
    match what {
        0 | 1 => rows.put_claim(&claim("Bound")),
        2 => rows.put_claim(&claim("Pending")),
        3 => rows.put_claim(&claim("Lost")),
        4 => {
            let mut leaving = claim("Bound");
            leaving.metadata.deletion_timestamp = from_value(json!("1970-01-01T00:00:07Z")).unwrap();
            rows.put_claim(&leaving);
        }
        5 => rows.put_volume(&volume("c-1")),
        6 => rows.put_volume(&volume("another")),
        7 => rows.drop_claim(of, "c-1", 0),
        8 => rows.drop_volume(of, "v-1"),
        9 => rows.set_consumer(of, Consumer::Made("p-1".into())),
        10 => {
            rows.begin(Kind::Claims);
        }
        11 => rows.complete(Kind::Claims),
        _ => rows.complete(Kind::Volumes),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn volumes_are_counted_as_if_all_were_gone_through(done in vec((0u64..4, 0u8..13), 0..60)) {
        let rows = rows();
        for (at, (number, what)) in done.into_iter().enumerate() {
            do_something(&rows, number, what, at + 1);
            let (mut counts, mut without_claim) = (VolumeCounts::default(), Vec::new());
            for (hash, entry) in rows.lock().rows.iter() {
                entry.count(&mut counts);
                without_claim.extend(entry.row().claim.is_none().then_some(*hash));
            }
            prop_assert_eq!(rows.counts(), counts);
            let page = rows.page_of_unsettled(None, 10, |row| row.claim.is_none());
            prop_assert_eq!(page.into_iter().map(|(hash, _)| hash).collect::<Vec<_>>(), without_claim);
        }
    }
}
