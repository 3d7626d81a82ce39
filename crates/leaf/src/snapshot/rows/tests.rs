use serde_json::json;

use super::*;
use domain::volume::snapshot::leaf_name;

fn host() -> HostId {
    HostId("h".to_owned())
}

fn hash(name: &str) -> VolumeHash {
    VolumeHash::of_snapshot(&host(), name)
}

/// A leaf snapshot of ours as the member tells it.
fn leaf(name: &str, version: u64) -> VolumeSnapshot {
    let hash = hash(name);
    serde_json::from_value(json!({
        "metadata": {
            "name": leaf_name(hash), "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
            "labels": {
                "app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "h",
                "kosmos.csi.io/snapshot": hash.to_string(),
            },
            "annotations": {"kosmos.csi.io/source": "m/shop/data/0123456789abcdef", "kosmos.csi.io/driver": "d"},
        },
        "spec": {"source": {"persistentVolumeClaimName": "data"}},
        "status": {
            "boundVolumeSnapshotContentName": "c", "creationTime": "2026-01-01T00:00:01Z", "readyToUse": true,
            "restoreSize": "1Gi",
        },
    }))
    .unwrap()
}

#[test]
fn row_holds_what_the_member_says() {
    let row = Snapshots::new(host()).put(&leaf("a", 1)).unwrap();
    assert_eq!((row.size, row.ready, row.cut, &*row.driver), (1 << 30, true, Some(1_767_225_601), "d"));
    assert!(row.is_there() && row.id("m").names(hash("a")));
}

#[test]
fn older_news_changes_nothing_and_what_has_gone_does_not_come_back() {
    let rows = Snapshots::new(host());
    rows.put(&leaf("a", 5));
    let mut older = leaf("a", 4);
    older.status = None;
    rows.put(&older);
    assert!(rows.row(hash("a")).unwrap().ready);
    rows.drop_row(hash("a"), "uid-a");
    rows.put(&leaf("a", 6));
    assert!(rows.row(hash("a")).is_none());
}

#[test]
fn answer_that_comes_after_the_news_of_the_end_is_not_believed() {
    let rows = Snapshots::new(host());
    rows.put(&leaf("a", 1));
    rows.lose(&leaf("a", 4));
    rows.put(&leaf("a", 3));
    assert!(rows.row(hash("a")).is_none());
    rows.put(&leaf("a", 5));
    assert!(rows.row(hash("a")).is_some(), "its labels are back");
}

#[test]
fn what_had_gone_is_back_when_a_read_or_a_list_that_began_later_shows_it() {
    let rows = Snapshots::new(host());
    let there = || rows.row(hash("a")).is_some();
    rows.put(&leaf("a", 5));
    let before = rows.removals();
    rows.drop_row(hash("a"), "uid-a");
    assert!(rows.put_read(&leaf("a", 5), before).is_none(), "it was read before it went");
    assert!(rows.put(&leaf("a", 5)).is_none() && !there(), "an answer may be from before");
    assert!(rows.put_read(&leaf("a", 5), rows.removals()).is_some() && there());
    rows.begin();
    rows.drop_row(hash("a"), "uid-a");
    rows.put_listed(&leaf("a", 5));
    assert!(!there(), "the list was under way when it went");
    rows.complete();
    rows.begin();
    rows.put_listed(&leaf("a", 5));
    assert!(there());
}

#[test]
fn a_list_forgets_what_it_does_not_name_and_keeps_what_was_written_meanwhile() {
    let rows = Snapshots::new(host());
    rows.put(&leaf("gone", 1));
    rows.begin();
    rows.put(&leaf("listed", 2));
    rows.put(&leaf("own", 9));
    rows.complete();
    assert!(rows.synced());
    let there = |name| rows.row(hash(name)).is_some();
    assert_eq!([there("gone"), there("listed"), there("own")], [false, true, true]);
}

#[test]
fn copies_with_the_labels_of_a_snapshot_are_not_ours() {
    let rows = Snapshots::new(host());
    let mut renamed = leaf("a", 1);
    renamed.metadata.name = Some("copy".to_owned());
    let mut moved = leaf("a", 1);
    moved.metadata.namespace = Some("backup".to_owned());
    assert!(rows.put(&renamed).is_none() && rows.put(&moved).is_none());
    assert!(Snapshots::new(HostId("other".to_owned())).put(&leaf("a", 1)).is_none());
}

/// Of one that is restored into another namespace, labels and annotations and all.
#[test]
fn oldest_of_one_name_is_ours_where_the_handle_of_its_volume_says_no_namespace() {
    let source = format!("m///{}", VolumeHash::new(&host(), "data"));
    let made = |namespace: &str, uid: &str, time: &str| {
        let mut one = leaf("a", 1);
        one.metadata.namespace = Some(namespace.to_owned());
        one.metadata.uid = Some(uid.to_owned());
        one.metadata.creation_timestamp = Some(serde_json::from_value(json!(time)).unwrap());
        let notes = one.metadata.annotations.get_or_insert_default();
        notes.insert("kosmos.csi.io/source".to_owned(), source.clone());
        one
    };
    let (ours, copy) = (made("shop", "b", "2026-01-01T00:00:01Z"), made("backup", "a", "2026-01-01T00:00:02Z"));
    let at = |namespace: &str| VolumeId::new("m", namespace, &leaf_name(hash("a")), hash("a"));
    let uid = |row: Option<SnapshotRow>| row.map(|row| row.uid.to_string());
    for order in [[&ours, &copy], [&copy, &ours]] {
        let rows = Snapshots::new(host());
        for one in order {
            assert!(rows.put(one).is_some());
        }
        assert_eq!(uid(rows.row(hash("a"))).as_deref(), Some("b"));
        assert_eq!(rows.all(|_| true).len(), 1);
        for (namespace, there) in [("shop", "b"), ("backup", "a")] {
            assert_eq!(uid(rows.find(&at(namespace))).as_deref(), Some(there));
        }
        rows.drop_row(hash("a"), "b");
        assert!(rows.find(&at("shop")).is_none() && rows.find(&at("backup")).is_some());
    }
}

#[test]
fn mark_stays_with_the_same_snapshot_only() {
    let rows = Snapshots::new(host());
    rows.put(&leaf("a", 1));
    rows.mark(hash("a"), "uid-a");
    rows.put(&leaf("a", 2));
    assert!(rows.is_marked(hash("a"), "uid-a"));
    let mut other = leaf("a", 3);
    other.metadata.uid = Some("another".to_owned());
    rows.put(&other);
    assert!(!rows.is_marked(hash("a"), "another"));
}

/// What a backup tool has made of it elsewhere is not looked at where its own is given out.
#[test]
fn mark_of_an_older_copy_is_not_that_of_the_snapshot() {
    let rows = Snapshots::new(host());
    let mut copy = leaf("a", 1);
    copy.metadata.namespace = Some("backup".to_owned());
    copy.metadata.uid = Some("copy".to_owned());
    let notes = copy.metadata.annotations.get_or_insert_default();
    notes.insert("kosmos.csi.io/source".to_owned(), format!("m///{}", VolumeHash::new(&host(), "data")));
    assert!(rows.put(&copy).is_some() && rows.put(&leaf("a", 1)).is_some());
    rows.mark(hash("a"), "copy");
    assert!(rows.is_marked(hash("a"), "copy") && !rows.is_marked(hash("a"), "uid-a"));
}

#[tokio::test(start_paused = true)]
async fn watch_is_wanted_once_somebody_says_so() {
    let rows = Snapshots::new(host());
    let soon = std::time::Duration::from_secs(1);
    assert!(tokio::time::timeout(soon, rows.are_wanted()).await.is_err());
    rows.want();
    rows.are_wanted().await;
}

#[test]
fn what_snapshots_say_is_bounded_and_forgotten_beyond_that() {
    let snapshots = Snapshots::new(host());
    let told = (0..100).find_map(|number: u32| {
        let mut one = leaf(&number.to_string(), 1);
        one.status.get_or_insert_default().bound_volume_snapshot_content_name = Some("x".repeat(1 << 20));
        snapshots.put(&one);
        snapshots.too_much().map(|reason| (number, reason))
    });
    let (number, reason) = told.unwrap();
    assert!(number > 60 && reason.contains("64 MiB"), "{number}: {reason}");
    assert!(snapshots.all(|_| true).is_empty() && snapshots.too_much().is_none());
}
