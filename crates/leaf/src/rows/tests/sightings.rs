//! Whoever looks through all members by what they tell finds whatever any of them has.

use std::sync::Arc;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::sightings::Sightings;

const KINDS: [Kind; 3] = [Kind::Claims, Kind::Volumes, Kind::Classes];
const VOLUMES: u8 = 4;
/// What makes something be there that cannot be read.
const UNREAD: u8 = 9;

fn of(number: u8) -> VolumeHash {
    VolumeHash::new(&HostId("h".to_owned()), &number.to_string())
}

fn joined(sightings: &Arc<Sightings>) -> Rows {
    Rows::told_to(HostId("h".to_owned()), Some(Arc::clone(sightings)))
}

fn do_something(rows: &mut Rows, sightings: &Arc<Sightings>, number: u8, what: u8, version: u64) {
    let labels = Some(ownership::labels(&HostId("h".to_owned()), of(number)));
    let (name, kind) = (number.to_string(), KINDS[usize::from(number % 3)]);
    match what {
        0 | 1 => {
            let mut claim = claim(&version.to_string(), if what == 0 { "Bound" } else { "Pending" });
            (claim.metadata.labels, claim.metadata.uid, claim.metadata.name) = (labels, Some(name.clone()), Some(name));
            if number == 0 { rows.put_listed_claim(&claim) } else { rows.put_claim(&claim) }
        }
        2 => rows.drop_claim(of(number), &name, version),
        3 => {
            let mut volume = volume();
            (volume.metadata.labels, volume.metadata.uid, volume.metadata.name) =
                (labels, Some(name.clone()), Some(name));
            volume.metadata.resource_version = Some(version.to_string());
            rows.put_volume(&volume);
        }
        4 => rows.drop_volume(of(number), &name),
        5 => rows.set_consumer(of(number), Consumer::Made("p-1".into())),
        6 => rows.set_consumer(of(number), Consumer::Gone),
        7 => {
            rows.begin(kind);
        }
        8 => rows.complete(kind),
        UNREAD => {
            rows.put_unread(kind, &name, Some(of(number)), "spec".to_owned());
        }
        10 => rows.put_readable(kind, || name),
        11 => {
            rows.lock().extent.leaves = usize::MAX;
            assert!(rows.too_much().is_some());
        }
        12 => rows.unsync(),
        // It leaves, and joins again.
        _ => *rows = joined(sightings),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn volume_of_which_any_member_has_something_is_never_missed(
        done in vec((0usize..3, 0u8..VOLUMES, 0u8..14), 0..80),
    ) {
        let sightings = Arc::<Sightings>::default();
        let mut members: Vec<Rows> = (0..3).map(|_| joined(&sightings)).collect();
        let is_all_read = done.iter().all(|(.., what)| *what != UNREAD);
        for (version, (member, number, what)) in (1..).zip(done) {
            do_something(&mut members[member], &sightings, number, what, version);
            for hash in (0..VOLUMES).map(of) {
                let has_row = members.iter().any(|rows| rows.row(hash).is_some());
                let has_some = has_row || members.iter().any(|rows| rows.has_unread(hash));
                let may_have = sightings.may_have(hash);
                prop_assert!(may_have || !has_some, "{what} of {number} in {member}");
                prop_assert!(!is_all_read || may_have == has_row, "{what} of {number} in {member}: no more");
            }
        }
        drop(members);
        prop_assert!((0..VOLUMES).all(|number| !sightings.may_have(of(number))), "all have left");
    }
}

#[test]
fn what_cannot_be_read_lets_no_volume_be_taken_for_one_that_is_nowhere() {
    let sightings = Arc::<Sightings>::default();
    let rows = joined(&sightings);
    assert!(!sightings.may_have(of(1)));
    rows.put_unread(Kind::Claims, "shop/db", Some(of(1)), "spec".to_owned());
    assert!(sightings.may_have(of(1)));
    rows.put_readable(Kind::Claims, || "shop/db".to_owned());
    assert!(!sightings.may_have(of(1)));
    rows.put_unread(Kind::Volumes, "pv-1", None, "spec".to_owned());
    rows.begin(Kind::Volumes);
    assert!(sightings.may_have(of(1)), "the list has not come to where it is");
    rows.complete(Kind::Volumes);
    assert!(!sightings.may_have(of(1)));
}
