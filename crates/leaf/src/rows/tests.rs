mod counts;
mod sightings;
mod unread;

use k8s_openapi::serde_json::{Value, from_value, json};

use super::*;
use crate::row::Row;
use domain::volume::{LeafPlace, VolumeId, plan::Phase};

const CLAIM_UID: &str = "c-1";

fn rows() -> Rows {
    Rows::new(HostId("h".to_owned()))
}

fn hash() -> VolumeHash {
    VolumeHash::new(&HostId("h".to_owned()), "pvc-1")
}

fn metadata(uid: &str, version: &str) -> Value {
    let labels = ownership::labels(&HostId("h".to_owned()), hash());
    json!({
        "namespace": "shop", "name": "db", "uid": uid, "resourceVersion": version, "labels": labels,
        "finalizers": [ownership::FINALIZER],
    })
}

fn claim(version: &str, phase: &str) -> PersistentVolumeClaim {
    from_value(json!({
        "metadata": metadata(CLAIM_UID, version),
        "spec": {"volumeName": "pv-1", "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
    }))
    .unwrap()
}

fn volume() -> PersistentVolume {
    from_value(json!({"metadata": metadata("v-1", "7"), "spec": {
        "persistentVolumeReclaimPolicy": "Retain",
        "claimRef": {"namespace": "shop", "name": "db", "uid": "another"},
    }}))
    .unwrap()
}

fn phase(rows: &Rows) -> Option<Phase> {
    Some(rows.row(hash())?.claim?.observed().phase)
}

#[test]
fn older_news_does_not_overwrite_newer() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.put_claim(&claim("9", "Pending"));
    assert_eq!(phase(&rows), Some(Phase::Bound));
    rows.put_claim(&claim("11", "Lost"));
    assert_eq!(phase(&rows), Some(Phase::Lost));
}

#[test]
fn list_removes_what_has_gone_but_not_what_was_written_meanwhile() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.put_volume(&volume());
    assert!(!rows.begin(Kind::Claims));
    rows.complete(Kind::Claims);
    assert_eq!(phase(&rows), None);
    assert!(rows.row(hash()).unwrap().volume.is_some(), "the list of claims says nothing of volumes");
    rows.begin(Kind::Claims);
    rows.put_claim(&claim("12", "Pending"));
    rows.complete(Kind::Claims);
    assert_eq!(phase(&rows), Some(Phase::Pending));
}

#[test]
fn list_that_came_to_no_end_is_remembered() {
    let rows = rows();
    assert!(!rows.begin(Kind::Claims));
    assert!(rows.begin(Kind::Claims));
    assert!(!rows.begin(Kind::Volumes));
    rows.complete(Kind::Claims);
    assert!(!rows.begin(Kind::Claims));
}

#[test]
fn row_goes_with_its_last_part() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.put_volume(&volume());
    rows.drop_claim(hash(), "another uid", u64::MAX);
    assert_eq!(phase(&rows), Some(Phase::Bound));
    rows.drop_claim(hash(), CLAIM_UID, u64::MAX);
    rows.drop_volume(hash(), "v-1");
    assert!(rows.row(hash()).is_none());
}

#[test]
fn object_that_is_not_ours_makes_no_row() {
    let rows = rows();
    let mut foreign = claim("10", "Bound");
    foreign.metadata.labels = None;
    rows.put_claim(&foreign);
    assert!(rows.row(hash()).is_none());
}

/// A copy of the claim under another name, made at a later time by a tool that leaves finalizers out.
fn copy(version: &str) -> PersistentVolumeClaim {
    let mut copy = claim(version, "Bound");
    copy.metadata.uid = Some("c-2".to_owned());
    copy.metadata.name = Some("a-copy".to_owned());
    copy.metadata.finalizers = None;
    copy.metadata.creation_timestamp = from_value(json!("2026-01-02T00:00:00Z")).unwrap();
    copy
}

#[test]
fn copy_of_a_leaf_with_its_labels_is_never_taken_for_it() {
    let leaf = LeafPlace { namespace: "shop".to_owned(), claim: "db".to_owned() };
    let other = LeafPlace { claim: "a-copy".to_owned(), ..leaf.clone() };
    let uid = |row: Row| row.claim.map(|claim| claim.uid.to_string());
    let rows = rows();
    rows.put_claim(&copy("11"));
    rows.put_claim(&claim("10", "Bound"));
    assert_eq!(uid(rows.row_at(hash(), &leaf)).as_deref(), Some(CLAIM_UID));
    assert_eq!(uid(rows.row_at(hash(), &other)).as_deref(), Some("c-2"));
    assert_eq!(uid(rows.row(hash()).unwrap()).as_deref(), Some(CLAIM_UID), "without a place, the oldest");
    rows.drop_claim(hash(), CLAIM_UID, u64::MAX);
    assert_eq!(uid(rows.row_at(hash(), &leaf)), None);
}

#[test]
fn claim_recreated_under_its_name_takes_the_place_of_the_old_one() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    let mut recreated = claim("11", "Pending");
    recreated.metadata.uid = Some("c-2".to_owned());
    rows.put_claim(&recreated);
    assert_eq!(rows.row(hash()).unwrap().claim.unwrap().uid.as_ref(), "c-2");
}

#[test]
fn labels_that_were_stripped_and_put_back_are_believed() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.drop_claim(hash(), CLAIM_UID, 11);
    rows.put_claim(&claim("10", "Bound"));
    assert_eq!(phase(&rows), None, "old news");
    rows.put_claim(&claim("12", "Bound"));
    assert_eq!(phase(&rows), Some(Phase::Bound));
    rows.drop_claim(hash(), CLAIM_UID, u64::MAX);
    rows.put_claim(&claim("13", "Bound"));
    assert_eq!(phase(&rows), None, "proved gone");
}

#[test]
fn member_restored_from_a_backup_is_believed_when_it_lists() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.begin(Kind::Claims);
    rows.put_claim(&claim("5", "Pending"));
    rows.complete(Kind::Claims);
    assert_eq!(phase(&rows), Some(Phase::Pending));
}

#[test]
fn claim_that_had_gone_is_back_when_a_list_that_began_later_has_it() {
    let rows = rows();
    rows.begin(Kind::Claims);
    rows.put_claim(&claim("10", "Bound"));
    rows.drop_claim(hash(), CLAIM_UID, 12);
    rows.put_listed_claim(&claim("10", "Bound"));
    assert_eq!(phase(&rows), None, "the list was under way when it went");
    rows.complete(Kind::Claims);
    rows.begin(Kind::Claims);
    rows.put_claim(&claim("10", "Bound"));
    assert_eq!(phase(&rows), None, "an answer may be from before");
    rows.put_listed_claim(&claim("10", "Bound"));
    assert_eq!(phase(&rows), Some(Phase::Bound));
}

#[test]
fn leaf_volume_bound_to_another_claim_is_not_the_leafs() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.put_volume(&volume());
    assert_eq!(rows.row(hash()).unwrap().observed_volume(), None, "its claimRef names another UID");
}

#[test]
fn readable_handle_finds_only_the_claim_it_names() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    assert!(rows.find(&VolumeId::new("m", "shop", "db", hash())).is_some());
    assert!(rows.find(&VolumeId::new("m", "shop", "other", hash())).is_none());
    assert!(rows.find(&VolumeId::new("m", "shop", &"x".repeat(200), hash())).is_some(), "by hash alone");
    let other = VolumeHash::new(&HostId("h".to_owned()), "pvc-2");
    assert!(rows.find(&VolumeId::new("m", "shop", "db", other)).is_none());
}

#[test]
fn default_class_is_the_newest_that_says_so() {
    let rows = rows();
    let class = |name: &str, made: &str, default: &str| -> StorageClass {
        from_value(json!({
            "metadata": {"name": name, "creationTimestamp": made,
                "annotations": {"storageclass.kubernetes.io/is-default-class": default}},
            "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer",
        }))
        .unwrap()
    };
    rows.put_class(&class("old", "2026-01-01T00:00:00Z", "true"));
    rows.put_class(&class("new", "2026-02-01T00:00:00Z", "true"));
    rows.put_class(&class("newest", "2026-03-01T00:00:00Z", "false"));
    assert_eq!(rows.default_class().as_deref(), Some("new"));
    assert!(rows.class("new").unwrap().waits_for_pod);
    rows.begin(Kind::Classes);
    rows.complete(Kind::Classes);
    assert!(rows.class_names().is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_with_the_change_or_the_deadline() {
    let rows = std::sync::Arc::new(rows());
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    assert!(!rows.until(hash(), deadline, |rows| phase(rows).is_some()).await);
    let writer = std::sync::Arc::clone(&rows);
    let deadline = Instant::now() + std::time::Duration::from_secs(5);
    let (came, ()) = tokio::join!(rows.until(hash(), deadline, |rows| phase(rows).is_some()), async move {
        tokio::task::yield_now().await;
        writer.put_claim(&claim("10", "Bound"));
    });
    assert!(came);
}

fn bound_to(claim_uid: &str, name: &str, made: &str) -> PersistentVolume {
    let mut volume = volume();
    volume.metadata.name = Some(name.to_owned());
    volume.metadata.uid = Some(name.to_owned());
    volume.metadata.creation_timestamp = from_value(json!(made)).unwrap();
    volume.spec.as_mut().unwrap().claim_ref.as_mut().unwrap().uid = Some(claim_uid.to_owned());
    volume
}

#[test]
fn copy_of_a_leaf_volume_is_not_the_one_its_claim_names() {
    let rows = rows();
    rows.put_claim(&claim("10", "Bound"));
    rows.put_volume(&bound_to(CLAIM_UID, "backup", "2026-01-01T00:00:00Z"));
    assert!(rows.row(hash()).unwrap().volume.is_none(), "alone, it is still a copy");
    rows.put_volume(&bound_to(CLAIM_UID, "pv-1", "2026-01-02T00:00:00Z"));
    assert_eq!(rows.row(hash()).unwrap().volume.unwrap().name.as_ref(), "pv-1");
}

#[test]
fn copy_with_a_volume_of_its_own_is_not_taken_for_a_leaf_that_has_gone_or_was_recreated() {
    let (rows, id) = (rows(), VolumeId::new("m", "shop", &"x".repeat(200), hash()));
    let seen = || {
        let row = rows.find(&id).unwrap().1;
        (row.claim.map(|claim| claim.uid.to_string()), row.volume.map(|volume| volume.name.to_string()))
    };
    let both = |claim: &str, volume: &str| (Some(claim.to_owned()), Some(volume.to_owned()));
    let mut copied = copy("11");
    copied.spec.as_mut().unwrap().volume_name = Some("backup".to_owned());
    rows.put_claim(&copied);
    rows.put_volume(&bound_to("c-2", "backup", "2026-01-01T00:00:00Z"));
    assert_eq!(seen(), both("c-2", "backup"), "of one that is alone, labels say no more");
    rows.put_claim(&claim("10", "Bound"));
    rows.put_volume(&bound_to(CLAIM_UID, "pv-1", "2026-01-02T00:00:00Z"));
    assert_eq!(seen(), both(CLAIM_UID, "pv-1"));
    rows.drop_claim(hash(), CLAIM_UID, u64::MAX);
    assert_eq!(seen(), (None, Some("pv-1".to_owned())));
    let mut recreated = claim("12", "Pending");
    recreated.metadata.uid = Some("c-3".to_owned());
    recreated.metadata.creation_timestamp = from_value(json!("2026-01-03T00:00:00Z")).unwrap();
    recreated.metadata.annotations = from_value(json!({"kosmos.csi.io/former": CLAIM_UID})).unwrap();
    rows.put_claim(&recreated);
    assert_eq!(seen(), both("c-3", "pv-1"));
}

/// The leaf of a volume that was released and is used by another claim.
fn moved() -> (PersistentVolumeClaim, PersistentVolume, VolumeId) {
    let id = VolumeId::new("m0", "shop", "db", hash());
    let notes = json!({"kosmos.csi.io/handle": id.to_string(), "kosmos.csi.io/former": CLAIM_UID});
    let mut recreated = metadata("c-2", "20");
    recreated["name"] = json!("again");
    recreated["annotations"] = notes.clone();
    recreated["creationTimestamp"] = json!("2026-01-02T00:00:00Z");
    let mut kept = metadata("v-1", "21");
    kept["name"] = json!("pv-1");
    kept["annotations"] = notes;
    let claim = json!({"metadata": recreated, "spec": {"volumeName": "pv-1"}, "status": {"phase": "Bound"}});
    let volume = json!({"metadata": kept, "spec": {
        "claimRef": {"namespace": "shop", "name": "again", "uid": "c-2"},
        "persistentVolumeReclaimPolicy": "Retain",
    }});
    (from_value(claim).unwrap(), from_value(volume).unwrap(), id)
}

#[test]
fn leaf_that_is_elsewhere_than_its_handle_says_is_found_by_it() {
    let (rows, (claim, volume, id)) = (rows(), moved());
    rows.put_claim(&claim);
    rows.put_volume(&volume);
    let found = rows.find(&id).unwrap().1;
    assert_eq!(found.claim.as_ref().map(|claim| claim.place.to_string()).as_deref(), Some("shop/again"));
    assert_eq!(rows.ids("m0", hash()), std::slice::from_ref(&id));
    assert!(found.volume.is_some());
    rows.drop_claim(hash(), "c-2", u64::MAX);
    assert!(rows.find(&id).unwrap().1.volume.is_some(), "and so is its volume, when it was released again");
}

#[test]
fn leaf_whose_handle_names_no_place_keeps_it_at_any_place() {
    let (rows, (mut claim, mut volume, _)) = (rows(), moved());
    let id = VolumeId::new("m0", "shop", &"x".repeat(200), hash());
    for notes in [&mut claim.metadata.annotations, &mut volume.metadata.annotations] {
        notes.as_mut().unwrap().insert(ownership::HANDLE.to_owned(), id.to_string());
    }
    rows.put_claim(&claim);
    rows.put_volume(&volume);
    assert_eq!(rows.ids("m0", hash()), std::slice::from_ref(&id));
    assert_eq!(rows.find(&id).unwrap().1.id("m0", hash()), Some(id.clone()));
    rows.drop_claim(hash(), "c-2", u64::MAX);
    assert_eq!(rows.ids("m0", hash()), [id], "and so does its volume, when it was released again");
}

#[test]
fn copy_at_the_former_place_does_not_hide_the_leaf() {
    let (rows, (moved, volume, id)) = (rows(), moved());
    rows.put_claim(&claim("10", "Pending"));
    rows.put_claim(&moved);
    rows.put_volume(&volume);
    assert_eq!(rows.find(&id).unwrap().1.claim.map(|claim| claim.uid), Some("c-2".into()));
}

#[test]
fn claim_that_was_recreated_late_waits_in_vain_once_another_one_has_its_volume() {
    let (rows, (moved, volume, _)) = (rows(), moved());
    let mut late = claim("10", "Pending");
    late.metadata.annotations = from_value(json!({"kosmos.csi.io/former": "c-0"})).unwrap();
    rows.put_claim(&late);
    rows.put_volume(&volume);
    assert!(rows.superseded().is_empty(), "nobody has the volume yet");
    rows.put_claim(&moved);
    let superseded: Vec<_> = rows.superseded().into_iter().map(|(of, claim)| (of, claim.uid.to_string())).collect();
    assert_eq!(superseded, [(hash(), CLAIM_UID.to_owned())]);
    let recreated: Vec<_> = rows.recreated().into_iter().map(|(_, claim)| claim.uid.to_string()).collect();
    assert_eq!(recreated, [CLAIM_UID], "though another one is the leaf");
    rows.put_claim(&claim("11", "Pending"));
    assert!(rows.recreated().is_empty());
    assert!(rows.superseded().is_empty(), "nothing says that it was recreated");
}

#[test]
fn claim_that_waits_is_told_with_its_consumer_and_a_bound_one_is_not() {
    let rows = rows();
    rows.put_claim(&claim("10", "Pending"));
    rows.set_consumer(hash(), Consumer::Made("p-1".into()));
    let made = Consumer::Made("p-1".into());
    assert!(matches!(rows.pending().as_slice(), [(of, _, consumer)] if *of == hash() && *consumer == made));
    rows.put_claim(&claim("11", "Bound"));
    assert!(rows.pending().is_empty());
}

/// In each of its states, and beside a copy.
#[test]
fn what_is_looked_at_of_one_is_as_its_row_says() {
    let (rows, place) = (rows(), LeafPlace { namespace: "shop".to_owned(), claim: "db".to_owned() });
    let is_so = |what: &str| {
        let row = rows.row_at(hash(), &place);
        assert_eq!(rows.observed_claim(hash(), &place), row.claim.as_ref().map(ClaimRow::observed), "{what}");
        let first = rows.row(hash()).unwrap_or_default();
        assert_eq!(rows.has_leaf(hash()), first.claim.is_some_and(|claim| !claim.is_copy_of_a_move()), "{what}");
        assert_eq!(rows.consumer(hash()), row.consumer, "{what}");
        let named = |volume: Option<VolumeRow>| volume.map(|volume| volume.name);
        assert_eq!(named(rows.volume(hash())), named(first.volume), "{what}");
    };
    is_so("nothing is there");
    for phase in ["Pending", "Bound", "Lost"] {
        rows.put_claim(&claim("10", phase));
        is_so(phase);
    }
    rows.put_volume(&volume());
    rows.set_consumer(hash(), Consumer::Made("p-1".into()));
    is_so("with a volume and a consumer");
    let mut leaving = claim("11", "Bound");
    leaving.metadata.deletion_timestamp = from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    leaving.metadata.annotations =
        from_value(json!({"kosmos.csi.io/move": "shop/move/3f0c7c7e-8f0a-4b7e-9d43-0a4f9f0a1b2c/copy"})).unwrap();
    rows.put_claim(&leaving);
    assert!(!rows.has_leaf(hash()), "it is the copy of a move");
    is_so("on its way out");
    let mut copy = claim("12", "Bound");
    (copy.metadata.name, copy.metadata.uid) = (Some("a-copy".to_owned()), Some("c-2".to_owned()));
    rows.put_claim(&copy);
    is_so("beside a copy");
}
