//! Claims as backups and tools bring them back: with annotations of ours that were true of another claim. And those of other
//! hosts, which look like ours.

use std::{sync::Arc, time::Duration};

use csi::v1::{self, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock, with_deadline},
    caller::{Caller, Ending, Script},
    fixture::{self, Planted},
    people::delete_leaf_claim,
    snapshotter::{CONTENTS, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish, have_kinds},
    virtual_time,
};

const SETTLED: Duration = Duration::from_mins(5);

/// What has become of the member that the claim in the backup was in.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Down,
    Closed,
    Left,
}

impl Fate {
    fn happen(self, bench: &Bench) {
        let close = |secret: &mut Value| secret["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!("true");
        match self {
            Self::Down => bench.guard.set_fate(|_, at, _| if at == 1 { Action::Refuse } else { Action::Pass }),
            Self::Closed => drop(bench.host.change("secrets", DRIVER_NAMESPACE, "m0", close).unwrap()),
            Self::Left => bench.host.delete("secrets", DRIVER_NAMESPACE, "m0").unwrap(),
        }
    }
}

#[test]
fn record_that_came_with_a_restored_claim_ties_it_to_no_member() {
    for fate in [Fate::Down, Fate::Closed, Fate::Left] {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
            fate.happen(&bench);
            sleep(Duration::from_secs(10)).await;
            let mut caller = Caller::new(&bench, Script { places: vec![1, 0], ..Script::new("data") });
            let restore = |claim: &mut Value| {
                claim["metadata"]["annotations"] =
                    json!({"kosmos.csi.io/member": "m0", "kosmos.csi.io/member-of": "the-uid-of-then"});
            };
            bench.host.change("persistentvolumeclaims", SHOP, "data", restore).unwrap();
            let ending = timeout(SETTLED, caller.provision()).await;
            assert_eq!(ending.ok(), Some(Ending::Provisioned), "{fate:?}: {}", bench.guard.trace().join("\n"));
            assert!(caller.handle().unwrap().starts_with("m1/"), "{fate:?}: {:?}", caller.handle());
            let claim = bench.host.get("persistentvolumeclaims", SHOP, "data").unwrap();
            let record =
                ["member", "member-of"].map(|key| &claim["metadata"]["annotations"][format!("kosmos.csi.io/{key}")]);
            assert_eq!(record, [&json!("m1"), &claim["metadata"]["uid"]], "what is on record is its own from now on");
        });
    }
}

#[test]
fn claim_of_another_host_is_told_to_be_that_and_nobody_is_advised_to_remove_it_as_ours() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_millis(100))).await;
        let theirs = json!({
            "metadata": {
                "name": "data", "namespace": SHOP, "finalizers": ["kosmos.csi.io/protect"],
                "labels": {"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": "another-host",
                    "kosmos.csi.io/volume": "00000000000000000000000000000007"},
            },
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
                "resources": {"requests": {"storage": "1Gi"}}},
        });
        bench.members[0].create("persistentvolumeclaims", theirs).unwrap();
        sleep(Duration::from_secs(5)).await;
        let before = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        let caller = Caller::new(&bench, Script::new("data"));
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        assert!(refused.message().contains("another host cluster (another-host)"), "{refused}");
        assert!(!refused.message().contains("Remove"), "{refused}");
        let after = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        assert_eq!(text(&after, "/metadata/resourceVersion"), text(&before, "/metadata/resourceVersion"));
    });
}

/// A StatefulSet that is deleted and made again at once.
#[test]
fn name_that_a_leaf_on_its_way_out_still_has_is_waited_for() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_millis(100))).await;
        let mut before = Caller::new(&bench, Script::new("data"));
        assert_eq!(before.provision().await, Ending::Provisioned);
        let hold =
            |one: &mut Value| one["metadata"]["finalizers"].as_array_mut().unwrap().push(json!("example.com/hold"));
        bench.members[0].change("persistentvolumeclaims", SHOP, "data", hold).unwrap();
        before.delete_claim();
        sleep(Duration::from_secs(2)).await;
        let caller = Caller::new(&bench, Script::new("data"));
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        assert!(refused.message().contains("Delete that volume in the host"), "{refused}");
        assert_eq!(before.delete(before.handle().unwrap()).await.unwrap_err().code(), Code::Aborted);
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("is being removed: it had this name before"), "{refused}");
    });
}

/// What had asked for a leaf there came late; or the host was restored from a backup of before a move to there, and what it has used is
/// the newest.
#[test]
fn nobody_is_advised_to_delete_a_volume_for_its_name_in_a_member_that_does_not_have_its_data() {
    for was_used in [false, true] {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
            let mut before = Caller::new(&bench, Script { places: vec![0], ..Script::new("data") });
            assert_eq!(before.provision().await, Ending::Provisioned);
            let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
            let mut late = json!({
                "metadata": {
                    "name": "late", "namespace": SHOP, "finalizers": ["kosmos.csi.io/protect"],
                    "labels": leaf["metadata"]["labels"], "annotations": {"kosmos.csi.io/name": before.volume()},
                },
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
                    "resources": {"requests": {"storage": "1Gi"}}},
            });
            if was_used {
                late["metadata"]["annotations"]["kosmos.csi.io/had-pv"] = json!("true");
            }
            bench.members[1].create("persistentvolumeclaims", late).unwrap();
            let caller = Caller::new(&bench, Script { places: vec![1], ..Script::new("late") });
            let refused = caller.create().await.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
            let message = refused.message();
            assert_eq!(message.contains("is in member m0: do not delete the volume"), !was_used, "{message}");
            assert_eq!(message.contains("goes by itself"), !was_used, "{message}");
            assert_eq!(message.contains("the claim here may have its newest data"), was_used, "{message}");
            assert!(!message.contains("Delete"), "{message}");
            if was_used {
                return;
            }
            let volume = before.volume().to_owned();
            bench.guard.set_fate(move |_, at, asked| {
                let looks = at == 0 && asked.verb == Verb::Get && asked.name == volume;
                if looks { Action::Answer { code: 500, reason: "InternalError" } } else { Action::Pass }
            });
            let refused = caller.create().await.unwrap_err();
            assert_eq!(refused.code(), Code::AlreadyExists, "whose the name is, is told all the same: {refused}");
            let message = refused.message();
            assert!(message.contains("cannot read now") && !message.contains("Delete"), "{message}");
        });
    }
}

/// The record of this host says that the claim is its leaf, and the claim that it is another's.
#[test]
fn volume_whose_handle_leads_to_a_leaf_of_another_host_is_removed_by_nobody_and_says_whose_that_is() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let give_away = |one: &mut Value| one["metadata"]["labels"]["kosmos.csi.io/host"] = json!("another-host");
        bench.members[0].change("persistentvolumeclaims", SHOP, "data", give_away).unwrap();
        bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), give_away).unwrap();
        sleep(Duration::from_secs(5)).await;
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let message = refused.message();
        assert!(message.contains("another host cluster (another-host): the driver removes nothing"), "{message}");
        assert!(!message.contains("put back") && !message.contains("delete it there"), "{message}");
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        assert!(leaf["metadata"].get("deletionTimestamp").is_none(), "{leaf}");
    });
}

/// NOT_FOUND would tell the sidecars that there is no such volume, and its user that his data is gone.
#[test]
fn every_call_about_a_leaf_without_its_labels_says_so() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        bench.members[0]
            .change("persistentvolumeclaims", SHOP, "data", |claim| claim["metadata"]["labels"] = json!({}))
            .unwrap();
        let volume = caller.leaf_volume().unwrap();
        bench.members[0]
            .change("persistentvolumes", "", volume, |volume| volume["metadata"]["labels"] = json!({}))
            .unwrap();
        sleep(Duration::from_secs(5)).await;
        let id = caller.handle().unwrap().to_owned();
        let label = format!("kosmos.csi.io/volume={}", bench.hash(caller.volume()));
        let expand = with_deadline(v1::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(v1::CapacityRange { required_bytes: 2 << 30, limit_bytes: 0 }),
            ..v1::ControllerExpandVolumeRequest::default()
        });
        let expanded =
            bench.call(|driver| async move { driver.controller_expand_volume(expand).await }).await.map(drop);
        let published = caller.publish("virtual/m0").await.map(drop);
        let deleted = caller.delete(&id).await;
        for refused in [expanded, published, deleted] {
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
            let says = |words: &str| refused.message().contains(words);
            assert!(says("its labels were removed: put back") && says(&label), "{refused}");
        }
    });
}

/// The volume's leaf, after it was recreated once: it says in whose place it stands.
async fn healed(bench: &Arc<Bench>, script: Script) -> (Caller, Value) {
    let mut caller = Caller::new(bench, script);
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(Duration::from_secs(5)).await;
    delete_leaf_claim(bench, "data");
    sleep(Duration::from_mins(1)).await;
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
    assert!(leaf["metadata"]["annotations"]["kosmos.csi.io/former"].is_string(), "{leaf}");
    (caller, Value::clone(&leaf))
}

#[test]
fn restored_copy_of_a_leaf_that_was_healed_stays_in_whatever_member() {
    for into in [0, 1] {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
            let mut planted = Planted::everywhere(&bench);
            let (_, leaf) = healed(&bench, Script { places: vec![0], ..Script::new("data") }).await;
            planted.copy(&bench, into, &leaf);
            sleep(SETTLED).await;
            assert_eq!(planted.touched(&bench), Vec::<String>::new());
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// Its volume says that the host's is retained, and no volume of the host has the copy's handle.
#[test]
fn restored_copy_of_a_leaf_and_its_volume_is_not_let_go() {
    for into in [0, 1] {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
            let mut planted = Planted::everywhere(&bench);
            let script = Script { places: vec![0], retain: true, ..Script::new("data") };
            let (caller, leaf) = healed(&bench, script).await;
            let volume = bench.members[0].get("persistentvolumes", "", caller.leaf_volume().unwrap()).unwrap();
            Planted::copy_with_volume(&bench, into, &leaf, &volume);
            sleep(Duration::from_secs(1)).await;
            planted.copy_is_bound(&bench, into, &leaf);
            sleep(SETTLED).await;
            assert_eq!(planted.touched(&bench), Vec::<String>::new());
        });
    }
}

/// Its host content is gone, and it is of data that somebody has kept: what is bound to that was not made by us.
#[test]
fn restored_snapshot_under_the_name_of_ours_stays_with_what_stands_behind_it() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(Duration::from_millis(100))).await;
        have_kinds(&bench);
        bench.start();
        bench.serves().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await);
        let name = snapshot.handle().unwrap().split('/').nth(2).unwrap().to_owned();
        let before = bench.members[0].get(SNAPSHOTS, SHOP, &name).unwrap();
        snapshot.discard();
        snapshot.remove().await;

        let content = json!({
            "metadata": {"name": "kept"},
            "spec": {"deletionPolicy": "Retain", "driver": "somebody", "source": {"snapshotHandle": "kept"},
                "volumeSnapshotRef": {"namespace": SHOP, "name": name}},
        });
        bench.members[0].create(CONTENTS, content).unwrap();
        let restored = json!({
            "metadata": {"name": name, "namespace": SHOP, "labels": before["metadata"]["labels"],
                "annotations": before["metadata"]["annotations"]},
            "spec": {"source": {"volumeSnapshotContentName": "kept"}},
        });
        let made = bench.members[0].create(SNAPSHOTS, restored).unwrap();
        lock(&bench.guard.history).plant(&made);
        sleep(SETTLED * 8).await;
        let now = bench.members[0]
            .get(SNAPSHOTS, SHOP, &name)
            .unwrap_or_else(|| panic!("{}", bench.guard.trace().join("\n")));
        assert!(now.pointer("/metadata/deletionTimestamp").is_none(), "{now}");
        let kept = bench.members[0].get(CONTENTS, "", "kept").unwrap();
        assert_eq!(text(&kept, "/spec/deletionPolicy"), "Retain");
    });
}
