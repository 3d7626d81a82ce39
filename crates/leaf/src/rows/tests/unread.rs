//! A list in which something cannot be read tells of all the others, and of that nothing.

use super::*;

const KINDS: [Kind; 3] = [Kind::Claims, Kind::Volumes, Kind::Classes];

fn another() -> VolumeHash {
    VolumeHash::new(&HostId("h".to_owned()), "pvc-2")
}

/// Both volumes have a claim; then all is listed again, and neither claim is on the list as it can be read.
fn listed(unread: Option<VolumeHash>) -> Rows {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    let mut of_another = claim("11", "Bound");
    of_another.metadata.uid = Some("c-2".to_owned());
    of_another.metadata.labels = Some(ownership::labels(&HostId("h".to_owned()), another()));
    rows.put_claim(&of_another);
    for kind in KINDS {
        rows.begin(kind);
        if kind == Kind::Claims {
            assert!(rows.put_unread(kind, "shop/db", unread, "spec.accessModes".to_owned()));
        }
        rows.complete(kind);
    }
    rows
}

#[test]
fn claim_that_cannot_be_read_is_not_gone_and_others_are() {
    let rows = listed(Some(hash()));
    assert_eq!(phase(&rows), Some(Phase::Bound), "it is as it was");
    assert!(rows.row(another()).is_none());
    assert!(rows.synced() && rows.has_unread(hash()) && !rows.has_unread(another()));
    assert_eq!([hash(), another()].map(|hash| rows.has_told(hash)), [false, true]);
    rows.put_readable(Kind::Claims, || "shop/another".to_owned());
    assert!(!rows.has_told(hash()));
    rows.put_readable(Kind::Claims, || "shop/db".to_owned());
    assert!(rows.has_told(hash()));
}

#[test]
fn claim_that_does_not_say_whose_it_is_may_be_anybodys() {
    let rows = listed(None);
    for hash in [hash(), another()] {
        assert!(rows.row(hash).is_some() && !rows.has_told(hash) && !rows.has_unread(hash));
    }
    rows.begin(Kind::Claims);
    rows.complete(Kind::Claims);
    assert!(rows.row(hash()).is_none() && rows.has_told(hash()), "the next list could be read");
}

/// As a watch meets it.
#[test]
fn what_is_called_nothing_is_told_apart_by_the_next_list_alone() {
    let rows = listed(Some(hash()));
    assert!(!rows.awaits_list(Kind::Claims));
    rows.put_unread(Kind::Claims, "", None, String::new());
    rows.put_readable(Kind::Claims, || "shop/db".to_owned());
    assert!(rows.awaits_list(Kind::Claims) && !rows.has_told(another()));
    rows.begin(Kind::Claims);
    rows.complete(Kind::Claims);
    assert!(!rows.awaits_list(Kind::Claims) && rows.has_told(another()));
}
