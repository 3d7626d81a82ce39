//! Watches end in many ways. Whichever it was: once it is over, what happens in a member, or in the host, is heard at once again.

use std::time::Duration;

use csi::v1::{self, controller_server::Controller as _};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock, with_deadline},
    caller::Script,
    fixture::{self, Planted},
    invariants::violations,
    late::{LATE, creates},
    late_snapshots,
    people::delete_leaf_claim,
    prompt,
    reclaim::{self, CLAIM},
    shared::has_alias,
    snapshotter::{GROUPS, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish},
    virtual_time,
};

const TROUBLES: [Action; 11] = [
    Action::Cut(0),
    Action::Cut(1),
    Action::Duplicate,
    Action::Refuse,
    Action::ApplyThenLose,
    Action::Hang,
    Action::Answer { code: 500, reason: "InternalError" },
    Action::Answer { code: 503, reason: "ServiceUnavailable" },
    Action::Answer { code: 429, reason: "TooManyRequests" },
    Action::Answer { code: 410, reason: "Expired" },
    Action::Answer { code: 403, reason: "Forbidden" },
];
const LASTS: Duration = Duration::from_secs(20);
const OVER: Duration = Duration::from_mins(1);
/// From a change in the host to the same in a member.
const PROMPT: Duration = Duration::from_secs(2);

/// A volume is made and removed after a member's watches have met a trouble; histories may be forgotten meanwhile.
fn is_heard_again(trouble: &Action, forgotten: bool) -> Vec<String> {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(Duration::from_secs(2))).await;
        let met = trouble.clone();
        bench.guard.set_fate(
            move |_, at, asked| {
                if at == 1 && asked.verb == Verb::Watch { met.clone() } else { Action::Pass }
            },
        );
        bench.start();
        bench.serves().await;
        sleep(LASTS).await;
        if forgotten {
            bench.members[0].compact();
        }
        bench.guard.heal();
        sleep(OVER).await;
        match timeout(OVER, prompt::volume(&bench, 0)).await {
            Ok(story) => violations(&bench, &[story], &Planted::default()),
            Err(_) => bench.guard.trace(),
        }
    })
}

#[test]
fn what_happens_is_heard_again_whatever_ended_the_watch() {
    for trouble in &TROUBLES {
        for forgotten in [false, true] {
            let wrong = is_heard_again(trouble, forgotten);
            assert!(wrong.is_empty(), "after {trouble:?} (forgotten: {forgotten}): {wrong:#?}");
        }
    }
}

/// As behind a proxy that passes no watch on, in front of a member that is well.
#[test]
fn leaf_that_was_deleted_comes_back_also_where_no_watch_of_its_member_can_be_begun() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let _caller = reclaim::provisioned(&bench, Script::new(CLAIM)).await;
        bench.guard.set_fate(|_, at, asked| {
            let is_meant = at == 1 && asked.verb == Verb::Watch;
            if is_meant { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
        });
        bench.start();
        bench.serves().await;
        sleep(OVER).await;
        let before = delete_leaf_claim(&bench, CLAIM);
        let is_back = || {
            let leaf = reclaim::leaf(&bench, CLAIM);
            leaf.as_ref().is_some_and(|leaf| text(leaf, "/metadata/uid") != before) && reclaim::phase(leaf) == "Bound"
        };
        reclaim::until(&bench, Duration::from_hours(1), "it is back", is_back).await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// As where its API servers have more to do than they can. What is known of it is not forgotten for that.
#[test]
fn member_that_answers_neither_watches_nor_lists_for_long_is_as_open_as_before() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(2))).await;
        sleep(LASTS).await;
        bench.guard.set_fate(|_, at, asked| {
            let is_meant = at == 1 && matches!(asked.verb, Verb::Watch | Verb::List);
            if is_meant { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
        });
        sleep(Duration::from_mins(15)).await;
        let is_open = || bench.metrics().contains("kosmos_csi_member_state{member=\"m0\",state=\"ok\"} 1");
        assert!(is_open(), "{}", bench.metrics());
        bench.guard.heal();
        sleep(OVER).await;
        assert!(is_open() && timeout(OVER, prompt::volume(&bench, 0)).await.is_ok(), "{}", bench.metrics());
    });
}

/// A volume of the host is made `Retain` after the watch of these has met a trouble: whether its leaf follows at once.
fn host_is_heard_again(trouble: &Action, forgotten: bool) {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(Duration::from_millis(100))).await;
        let met = trouble.clone();
        bench.guard.set_fate(move |_, at, asked| {
            let is_meant = at == 0 && asked.verb == Verb::Watch && asked.resource == "persistentvolumes";
            if is_meant { met.clone() } else { Action::Pass }
        });
        bench.start();
        bench.serves().await;
        let caller = reclaim::provisioned(&bench, Script::new(CLAIM)).await;
        sleep(LASTS).await;
        if forgotten {
            bench.host.compact();
        }
        bench.guard.heal();
        sleep(OVER).await;
        caller.set_policy("Retain");
        let what = format!("it follows, after {trouble:?} (forgotten: {forgotten})");
        reclaim::until(&bench, PROMPT, &what, || reclaim::policy(&bench, &caller) == "Retain").await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn what_happens_in_the_host_is_heard_again_whatever_ended_the_watch() {
    for trouble in &TROUBLES {
        for forgotten in [false, true] {
            host_is_heard_again(trouble, forgotten);
        }
    }
}

/// Heard of by the watch, and by the list of a driver that begins then.
#[test]
fn leaf_claim_that_cannot_be_read_hides_no_other_and_is_not_taken_for_gone() {
    virtual_time::run(1, async {
        let bench = reclaim::bench().await;
        let caller = reclaim::provisioned(&bench, Script::new(CLAIM)).await;
        let handle = caller.handle().unwrap().to_owned();
        let write = |modes: serde_json::Value| {
            let change = |claim: &mut serde_json::Value| claim["spec"]["accessModes"] = modes;
            bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, change).unwrap();
        };
        let modes = reclaim::leaf(&bench, CLAIM).unwrap()["spec"]["accessModes"].clone();
        write(json!("ReadWriteOnce"));
        let uid = reclaim::leaf(&bench, CLAIM).unwrap()["metadata"]["uid"].clone();
        for begins in [false, true] {
            if begins {
                bench.start();
                bench.serves().await;
            }
            sleep(OVER).await;
            let other = timeout(OVER, prompt::volume(&bench, 0)).await;
            assert!(other.is_ok(), "others are not served: {}", bench.guard.trace().join("\n"));
            let leaf = reclaim::leaf(&bench, CLAIM).unwrap();
            assert!(leaf["metadata"]["uid"] == uid && leaf["metadata"].get("deletionTimestamp").is_none(), "{leaf}");
            assert!(!reclaim::events(&bench).contains("LeafLost"), "{}", reclaim::events(&bench));
        }
        write(modes);
        sleep(OVER).await;
        assert_eq!(caller.create().await.unwrap().volume_id, handle);
    });
}

/// As where a member has too many snapshots to be followed.
#[test]
fn snapshot_that_no_watch_shows_is_found_by_its_id() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        bench.guard.set_fate(|_, at, asked| match asked.verb {
            Verb::List | Verb::Watch if at > 0 && asked.resource == SNAPSHOTS => {
                Action::Answer { code: 403, reason: "Forbidden" }
            }
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        let there = snapshot.handle().unwrap().to_owned();
        let gone = format!("m0/{SHOP}/s-{:032}/{:016}", 0, 0);
        // Before and after somebody has wanted a watch.
        for _ in 0..2 {
            for (id, count) in [(&there, 1), (&gone, 0)] {
                let request = v1::GetSnapshotRequest { snapshot_id: id.clone(), ..Default::default() };
                let found = bench.call(|driver| async move { driver.get_snapshot(with_deadline(request)).await }).await;
                match found {
                    Ok(found) => assert_eq!((found.snapshot.unwrap().snapshot_id, 1), (id.clone(), count)),
                    Err(refused) => assert_eq!((refused.code(), count), (Code::NotFound, 0), "{refused}"),
                }
                let request = v1::ListSnapshotsRequest { snapshot_id: id.clone(), ..Default::default() };
                let listed = bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
                assert_eq!(listed.await.unwrap().entries.len(), count, "{id}");
            }
        }
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Nothing was ever read of it.
#[test]
fn snapshot_is_not_listed_as_gone_while_the_kubeconfig_of_its_member_cannot_be_used() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let text = fixture::kubeconfig_text("https://m0").replacen("server:", "proxy-url: 'http://p', server:", 1);
        let write = |secret: &mut Value| secret["data"]["kubeconfig"] = json!(ByteString(text.clone().into_bytes()));
        bench.host.change("secrets", DRIVER_NAMESPACE, "m0", write).unwrap();
        bench.start();
        bench.serves().await;
        let (snapshot_id, source_volume_id) =
            (snapshot.handle().unwrap().to_owned(), caller.handle().unwrap().to_owned());
        for request in [
            v1::ListSnapshotsRequest { snapshot_id, ..Default::default() },
            v1::ListSnapshotsRequest { source_volume_id, ..Default::default() },
            v1::ListSnapshotsRequest::default(),
        ] {
            let listed = bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
            let refused = listed.await.unwrap_err();
            assert!(refused.code() == Code::Unavailable && refused.message().contains("m0"), "{refused}");
        }
    });
}

#[test]
fn snapshots_are_listed_where_a_member_has_another_name() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        has_alias(&bench).await;
        assert_eq!(listed(&bench).await, [snapshot.handle().unwrap()]);
    });
}

/// All of them.
async fn listed(bench: &Bench) -> Vec<String> {
    let request = v1::ListSnapshotsRequest::default();
    let listed = bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await }).await;
    let listed = listed.unwrap().entries.into_iter().filter_map(|entry| entry.snapshot);
    listed.map(|snapshot| snapshot.snapshot_id).collect()
}

/// Somebody's there. Kubernetes takes times of the last day of the year 9999, and hardly anybody else does.
fn plant_written_in_9999(bench: &Bench, kind: &str, source: &Value, labels: &Value) {
    let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "snapshot.storage.k8s.io/v1",
        "time": "9999-12-31T23:59:59Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:source": {}}}}]);
    let metadata = json!({"name": "a", "namespace": SHOP, "labels": labels, "managedFields": written});
    let theirs = json!({"metadata": metadata, "spec": {"source": source}});
    let theirs = bench.members[0].create(kind, theirs).unwrap();
    lock(&bench.guard.history).plant(&theirs);
}

fn labels(bench: &Bench) -> Value {
    json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": bench.host_id()})
}

/// Of a group all snapshots of its namespace are listed.
#[test]
fn snapshot_that_was_written_at_a_time_nobody_reads_keeps_no_group_of_its_namespace_from_being_made() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        plant_written_in_9999(&bench, SNAPSHOTS, &json!({"persistentVolumeClaimName": "none"}), &json!({}));
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), USUAL));
        let made = timeout(Duration::from_mins(10), group.make()).await;
        assert_eq!(made.ok(), Some(true), "{}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn snapshot_that_was_written_at_a_time_nobody_reads_hides_no_other() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        plant_written_in_9999(&bench, SNAPSHOTS, &json!({"persistentVolumeClaimName": "none"}), &labels(&bench));
        bench.start();
        bench.serves().await;
        assert_eq!(listed(&bench).await, [snapshot.handle().unwrap()]);
    });
}

/// All groups are listed to see whether one came late.
#[test]
fn group_that_was_written_at_a_time_nobody_reads_keeps_none_that_came_late_where_it_is() {
    virtual_time::run(1, async {
        let (bench, caller) = late_snapshots::volume().await;
        let source = json!({"volumeGroupSnapshotContentName": "kept"});
        plant_written_in_9999(&bench, GROUPS, &source, &labels(&bench));
        late_snapshots::was_asked_for(&bench, &caller, Kind::Group, |asked| creates(asked, GROUPS)).await;
        sleep(LATE).await;
        assert_eq!(bench.members[0].list(GROUPS).len(), 2, "the late one has arrived");
        sleep(Duration::from_mins(40)).await;
        let left = bench.members[0].list(GROUPS);
        assert_eq!(left.len(), 1, "{left:?}\n{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}
