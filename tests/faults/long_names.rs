//! Volumes whose handle would be longer than the interface allows: it has their hash in the place of namespace and name, and leads to
//! whatever carries their labels. A leaf is told from its copies by what it is, and not by where.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use csi::v1::{DeleteSnapshotRequest, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Script},
    fixture::{self, ELSEWHERE, OTHER_HOST, Planted},
    people::{delete_leaf_claim, delete_leaf_claim_by_force},
    reclaim::{
        SETTLED, bench, ends_well, events, leaf, leaf_volume, listed, phase, provisioned, released, until, wrong,
    },
    schedules::strays,
    snapshotter::{CONTENTS, GROUP_CONTENTS, GROUPS, KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish, have_kinds},
    taken::{THEIRS, give, is_theirs, take},
    virtual_time,
};

/// Enough for what the member does by itself.
const SOON: Duration = Duration::from_secs(5);

fn script() -> Script {
    Script::new(&"a".repeat(120))
}

async fn volume(bench: &Arc<Bench>, script: Script) -> Caller {
    let caller = provisioned(bench, script).await;
    assert!(caller.handle().unwrap().starts_with("m0///"), "{:?}", caller.handle());
    // It is marked by then.
    sleep(SOON).await;
    caller
}

async fn is_whole(bench: &Bench, caller: &Caller) {
    until(bench, SETTLED, "it is whole", || wrong(bench, caller, false).is_empty()).await;
}

/// A backup tool has made a copy of the leaf and of its volume.
async fn copied(bench: &Bench, planted: &mut Planted, caller: &Caller) {
    let (claim, volume) = (leaf(bench, caller.claim()).unwrap(), leaf_volume(bench, caller).unwrap());
    Planted::copy_with_volume(bench, 0, &claim, &volume);
    sleep(SOON).await;
    planted.copy_is_bound(bench, 0, &claim);
}

#[test]
fn deleted_leaf_comes_back_and_is_published_beside_a_copy_that_is_older() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut planted = Planted::everywhere(&bench);
        let mut caller = volume(&bench, script()).await;
        copied(&bench, &mut planted, &caller).await;
        for _ in 0..2 {
            delete_leaf_claim(&bench, caller.claim());
            is_whole(&bench, &caller).await;
            caller.publish(&caller.node()).await.unwrap();
            let published = leaf(&bench, caller.claim()).unwrap()["metadata"]["annotations"].clone();
            assert!(published["kosmos.csi.io/published"].is_string(), "{published}");
            caller.unpublish().await.unwrap();
        }
        let told = events(&bench);
        assert!(told.contains("LeafHealed: ") && !told.contains("LeafLost: "), "{told}");
        ends_well(&bench, caller).await;
        assert_eq!(planted.touched(&bench), Vec::<String>::new());
    });
}

/// Where its leaf belongs, its claimRef alone says.
#[test]
fn volume_is_not_taken_from_a_claim_of_the_members_that_its_claim_ref_names() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = volume(&bench, Script { retain: true, ..script() }).await;
        let claim = caller.claim().to_owned();
        released(&bench, &mut caller).await;
        let was = take(&bench, &caller).await;
        caller.claim_again(&claim);
        let told = || events(&bench).contains("somebody has changed the claimRef of its leaf volume");
        until(&bench, SETTLED, "the user is told", told).await;
        sleep(SETTLED * 2).await;
        is_theirs(&bench, &caller);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        bench.members[0].delete("persistentvolumeclaims", SHOP, THEIRS).unwrap();
        give(&bench, &caller, was);
        until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, &claim)) == "Bound").await;
    });
}

/// The answer of DeleteVolume may be lost. A copy of a leaf that was healed says in whose place that stood.
#[test]
fn copy_stays_however_often_its_volume_is_removed() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut planted = Planted::everywhere(&bench);
            let caller = volume(&bench, script()).await;
            if healed {
                delete_leaf_claim(&bench, caller.claim());
                is_whole(&bench, &caller).await;
            }
            copied(&bench, &mut planted, &caller).await;
            caller.delete_claim();
            let is_released = || {
                let volume = bench.host.get("persistentvolumes", "", caller.volume());
                volume.is_some_and(|volume| text(&volume, "/status/phase") == "Released")
            };
            until(&bench, SETTLED, "the host's volume is released", is_released).await;
            lock(&bench.guard.history).let_go(caller.volume());
            for _ in 0..3 {
                caller.delete(caller.handle().unwrap()).await.unwrap();
                assert!(bench.storages[0].volumes().is_empty());
            }
            ends_well(&bench, caller).await;
            assert_eq!(planted.touched(&bench), Vec::<String>::new(), "healed: {healed}");
        });
    }
}

#[test]
fn copy_is_not_given_out_in_the_place_of_data_that_is_gone() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut planted = Planted::everywhere(&bench);
        let mut caller = volume(&bench, script()).await;
        copied(&bench, &mut planted, &caller).await;
        delete_leaf_claim_by_force(&bench, caller.claim());
        until(&bench, SETTLED, "the user is told", || events(&bench).contains("LeafLost: ")).await;
        sleep(SOON).await;
        let refused = caller.publish(&caller.node()).await.unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused}");
        caller.unpublish().await.unwrap();
        assert!(leaf(&bench, caller.claim()).is_none());
        ends_well(&bench, caller).await;
        assert_eq!(planted.touched(&bench), Vec::<String>::new());
    });
}

/// As its user is told. It has another UID and another volume then.
#[test]
fn leaf_that_was_lost_and_is_restored_under_its_name_is_used_again() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = volume(&bench, script()).await;
        let was = leaf(&bench, caller.claim()).unwrap();
        delete_leaf_claim_by_force(&bench, caller.claim());
        until(&bench, SETTLED, "the user is told", || events(&bench).contains("LeafLost: ")).await;
        sleep(SOON).await;
        restore(&bench, &caller, &was["metadata"]["labels"]);
        sleep(SETTLED).await;
        caller.publish(&caller.node()).await.unwrap();
    });
}

/// A claim of the leaf's name, with these labels.
fn restore(bench: &Bench, caller: &Caller, labels: &Value) {
    let restored = json!({
        "metadata": {"name": caller.claim(), "namespace": SHOP, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let restored = bench.members[0].create("persistentvolumeclaims", restored).unwrap();
    lock(&bench.guard.history).plant(&restored);
}

/// Its labels have to say the volume too, and the host.
#[test]
fn claim_of_others_under_the_name_of_a_leaf_that_was_lost_is_not_taken_for_it() {
    for whose in ["nobody's", "another volume's", "another host's"] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = volume(&bench, script()).await;
            let hash = caller.handle().unwrap().rsplit('/').next().unwrap().to_owned();
            delete_leaf_claim_by_force(&bench, caller.claim());
            until(&bench, SETTLED, "the user is told", || events(&bench).contains("LeafLost: ")).await;
            sleep(SOON).await;
            let labels = match whose {
                "nobody's" => json!({}),
                "another volume's" => fixture::labels(&bench.host_id(), "0123456789abcdef0123456789abcdef"),
                _ => fixture::labels(OTHER_HOST, &hash),
            };
            restore(&bench, &caller, &labels);
            sleep(SETTLED).await;
            let refused = caller.publish(&caller.node()).await.unwrap_err();
            assert_eq!(refused.code(), Code::NotFound, "{whose}: {refused}");
            let theirs = leaf(&bench, caller.claim()).unwrap();
            let volume = labels["kosmos.csi.io/volume"].as_str().unwrap_or_default();
            assert_eq!(text(&theirs, "/metadata/labels/kosmos.csi.io~1volume"), volume, "{whose}");
        });
    }
}

fn notes(bench: &Bench, caller: &Caller) -> Value {
    leaf_volume(bench, caller).unwrap()["metadata"]["annotations"].clone()
}

/// As an earlier version left a leaf that it recreated at another place.
fn forget_handle(bench: &Bench, caller: &Caller) {
    let forget = |object: &mut Value| {
        object["metadata"]["annotations"].as_object_mut().unwrap().remove("kosmos.csi.io/handle");
    };
    bench.members[0].change("persistentvolumeclaims", SHOP, caller.claim(), forget).unwrap();
    bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), forget).unwrap();
}

/// Its place would do for a handle then, and its handle stays.
#[test]
fn leaf_of_a_volume_that_is_used_again_under_a_short_name_comes_back_after_it_was_deleted() {
    for forgotten in [false, true] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = volume(&bench, Script { retain: true, ..script() }).await;
            let handle = caller.handle().unwrap().to_owned();
            for name in ["again", "once-more"] {
                released(&bench, &mut caller).await;
                caller.claim_again(name);
                until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, name)) == "Bound").await;
                sleep(SOON).await;
                if forgotten {
                    forget_handle(&bench, &caller);
                    sleep(SOON).await;
                }
                delete_leaf_claim(&bench, name);
                is_whole(&bench, &caller).await;
                assert_eq!(listed(&bench).await, [handle.as_str()]);
                sleep(Duration::from_mins(30)).await;
                assert!(strays::told(&bench, 0).is_none_or(|count| count == 0), "{}", bench.metrics());
            }
            released(&bench, &mut caller).await;
            assert_eq!(notes(&bench, &caller)["kosmos.csi.io/handle"], handle.as_str());
            caller.claim_again(&"a".repeat(120));
            is_whole(&bench, &caller).await;
            let notes = notes(&bench, &caller);
            assert!(notes["kosmos.csi.io/handle"].is_null(), "its place says it again: {notes}");
            ends_well(&bench, caller).await;
        });
    }
}

/// A volume whose handle says no place, and what was cut of it, of which the host was not told.
async fn cut(kind: Kind, class: &'static str) -> (Arc<Bench>, Snapshotter) {
    let bench = Bench::new(1, 1, &fixture::steady(SOON / 5)).await;
    have_kinds(&bench);
    bench.start();
    bench.serves().await;
    let caller = volume(&bench, script()).await;
    let photo = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), class));
    photo.ask().await.unwrap();
    (bench, photo)
}

/// Nothing but its namespace tells the copy from it, which no handle of its volume says.
#[test]
fn snapshot_is_found_and_removed_beside_a_copy_in_another_namespace_and_the_copy_stays() {
    for is_given_out in [true, false] {
        virtual_time::run(1, async {
            let (bench, mut photo) = cut(Kind::Snapshot, USUAL).await;
            let mut planted = Planted::everywhere(&bench);
            if is_given_out {
                assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
            }
            sleep(SOON).await;
            let own = || {
                let all = bench.members[0].list(SNAPSHOTS).into_iter();
                let is_leaf = |one: &Arc<Value>| text(one, "/metadata/name").starts_with("s-");
                all.filter(is_leaf).find(|one| text(one, "/metadata/namespace") == SHOP)
            };
            planted.restore_snapshot(&bench, 0, &own().unwrap());
            sleep(SOON).await;
            photo.look().await;
            photo.discard();
            if is_given_out {
                photo.remove().await;
            } else {
                // The sidecar was at work, and calls until it is told that nothing is left.
                while photo.ask().await.is_err_and(|status| status.code() != Code::NotFound) {
                    sleep(SOON).await;
                }
                // It has not heard that.
                assert!(photo.ask().await.is_err());
                assert!(!photo.make().await, "{}", bench.guard.trace().join("\n"));
            }
            assert!(own().is_none(), "{}", bench.guard.trace().join("\n"));
            // Nobody asks for it any more, as the copy says as well.
            sleep(Duration::from_mins(30)).await;
            assert_eq!([bench.guard.wrong(), planted.touched(&bench)].concat(), Vec::<String>::new(), "{is_given_out}");
        });
    }
}

/// Its content was there before it. As where somebody in the member has removed the leaf snapshot that the host was told of.
#[test]
fn copy_of_a_snapshot_in_another_namespace_is_not_given_out_once_the_snapshot_has_gone() {
    virtual_time::run(1, async {
        let (bench, mut photo) = cut(Kind::Snapshot, USUAL).await;
        let mut planted = Planted::everywhere(&bench);
        assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
        let own = bench.members[0].get(SNAPSHOTS, SHOP, photo.handle().unwrap().split('/').nth(2).unwrap()).unwrap();
        planted.restore_snapshot(&bench, 0, &own);
        let restored = |copy: &mut Value| {
            copy["status"] = own["status"].clone();
            copy["status"]["boundVolumeSnapshotContentName"] = json!("restored");
        };
        bench.members[0].change(SNAPSHOTS, ELSEWHERE, text(&own, "/metadata/name"), restored).unwrap();
        photo.rob();
        sleep(SOON).await;
        let refused = photo.ask().await.unwrap_err();
        assert!(refused.message().contains("the leaf snapshot of photo was removed there"), "{refused}");
        assert_eq!(planted.touched(&bench), Vec::<String>::new());
    });
}

/// As its leaf claim was there before. A driver that has just begun has not listed it yet.
#[test]
fn snapshot_that_was_cut_in_another_namespace_is_not_called_gone_by_a_driver_that_has_just_begun() {
    virtual_time::run(1, async {
        let (bench, mut photo) = cut(Kind::Snapshot, USUAL).await;
        assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
        let member = &bench.members[0];
        member.create("namespaces", json!({"metadata": {"name": ELSEWHERE}})).unwrap();
        let name = photo.handle().unwrap().split('/').nth(2).unwrap().to_owned();
        let own = member.get(SNAPSHOTS, SHOP, &name).unwrap();
        let content = |uid: &str| format!("snapcontent-{uid}");
        let behind = member.get(CONTENTS, "", &content(text(&own, "/metadata/uid"))).unwrap();
        let (labels, notes) = (&own["metadata"]["labels"], &own["metadata"]["annotations"]);
        let metadata = json!({"name": name, "namespace": ELSEWHERE, "labels": labels, "annotations": notes});
        let cut = member.create(SNAPSHOTS, json!({"metadata": metadata, "spec": own["spec"]})).unwrap();
        let uid = text(&cut, "/metadata/uid");
        let mut spec = behind["spec"].clone();
        spec["volumeSnapshotRef"] = json!({"namespace": ELSEWHERE, "name": name, "uid": uid});
        let metadata = json!({"name": content(uid), "labels": behind["metadata"]["labels"]});
        member.create(CONTENTS, json!({"metadata": metadata, "spec": spec})).unwrap();
        let is_cut = |cut: &mut Value| {
            cut["status"] = own["status"].clone();
            cut["status"]["boundVolumeSnapshotContentName"] = json!(content(uid));
        };
        member.change(SNAPSHOTS, ELSEWHERE, &name, is_cut).unwrap();
        photo.rob();
        sleep(SOON).await;
        bench.start();
        bench.serves().await;
        for _ in 0..3 {
            let is_called_gone = |status: &tonic::Status| status.message().contains("was removed there");
            assert!(!photo.ask().await.is_err_and(|status| is_called_gone(&status)));
            sleep(SOON).await;
        }
    });
}

/// Where member and namespace have long names, its own handle says no place either. The answer may be lost.
#[test]
fn copy_of_a_snapshot_in_another_namespace_stays_however_often_the_snapshot_is_removed() {
    virtual_time::run(1, async {
        let (bench, mut photo) = cut(Kind::Snapshot, USUAL).await;
        let mut planted = Planted::everywhere(&bench);
        assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
        let name = photo.handle().unwrap().split('/').nth(2).unwrap().to_owned();
        let own = || bench.members[0].get(SNAPSHOTS, SHOP, &name);
        planted.restore_snapshot(&bench, 0, &own().unwrap());
        sleep(SOON).await;
        photo.let_go();
        photo.discard();
        let snapshot_id = format!("m0///{}", name.trim_start_matches("s-"));
        for _ in 0..10 {
            let request = DeleteSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
            let _ = bench.call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await }).await;
            sleep(SOON).await;
        }
        assert!(own().is_none(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(planted.touched(&bench), Vec::<String>::new());
    });
}

fn leaves(kind: Kind) -> &'static str {
    if kind == Kind::Group { GROUPS } else { SNAPSHOTS }
}

/// It was cut and marked, and the host was not told. Whoever has deleted it in the member has left what its class keeps.
#[test]
fn what_is_kept_of_a_snapshot_or_group_that_was_never_given_out_goes_also_where_no_handle_says_its_place() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let (bench, mut photo) = cut(kind, KEPT).await;
            let member = &bench.members[0];
            let name = text(&member.list(leaves(kind))[0], "/metadata/name").to_owned();
            member.delete(leaves(kind), SHOP, &name).unwrap();
            let is_gone = || member.list(leaves(kind)).is_empty() && member.list(SNAPSHOTS).is_empty();
            until(&bench, SETTLED, "it has gone there", is_gone).await;
            assert!(!member.list(CONTENTS).is_empty(), "its class retains it");
            sleep(SOON).await;
            photo.discard();
            // The sidecar was at work, and calls until it is told that nothing is left.
            while photo.ask().await.is_err_and(|status| status.code() != Code::NotFound) {
                sleep(SOON).await;
            }
            assert!(!photo.make().await, "{}", bench.guard.trace().join("\n"));
            for left in [CONTENTS, GROUP_CONTENTS] {
                assert!(member.list(left).is_empty(), "{left}: {}", bench.guard.trace().join("\n"));
            }
            assert!(bench.storages[0].snapshots().is_empty());
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// Nor withdrawn, as long as it is there. What stands in the way of making it is the slip of whoever edits the host's class.
#[test]
fn snapshot_or_group_that_loses_its_labels_is_not_forgotten_where_no_handle_says_its_place() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let (bench, mut photo) = cut(kind, USUAL).await;
            let member = &bench.members[0];
            let was = member.list(leaves(kind)).remove(0);
            let relabel = |labels: Value| {
                let write = move |leaf: &mut Value| leaf["metadata"]["labels"] = labels;
                member.change(leaves(kind), SHOP, text(&was, "/metadata/name"), write).unwrap();
            };
            relabel(json!({}));
            sleep(SOON).await;
            for slips in [false, true] {
                photo.slip().store(slips, Ordering::Relaxed);
                let told = photo.ask().await.unwrap_err();
                assert_eq!(told.code(), Code::Aborted, "{kind:?} {slips}: {told}");
                assert!(told.message().contains("put back"), "{kind:?} {slips}: {told}");
            }
            photo.slip().store(false, Ordering::Relaxed);
            relabel(was["metadata"]["labels"].clone());
            sleep(SOON).await;
            assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
            photo.discard();
            photo.remove().await;
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}
