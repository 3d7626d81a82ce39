//! Snapshots, groups and their labels that arrive when nobody asks for them any more.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use csi::v1::{
    self, controller_server::Controller as _, group_controller_server::GroupController as _, volume_content_source,
};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    storage::{Settings, Work, definitions},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Ending, Script},
    fixture,
    late::{LATE, creates, delay_next, patches},
    people::delete_leaf_claim_by_force,
    reclaim::{leaf, phase, until},
    snapshotter::{self, CONTENTS, GROUP_CONTENTS, GROUPS, KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish},
    virtual_time,
};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const SOON: Duration = Duration::from_secs(2);
/// Nobody can ask for it any more by then, and the driver has looked.
const SURE: Duration = Duration::from_mins(40);

/// A member with snapshots, and a volume in it.
pub async fn volume() -> (Arc<Bench>, Caller) {
    volume_on(&fixture::steady(SOON)).await
}

async fn volume_on(settings: &Settings) -> (Arc<Bench>, Caller) {
    let bench = Bench::new(1, 1, settings).await;
    snapshotter::have_kinds(&bench);
    bench.start();
    bench.serves().await;
    let mut caller = Caller::new(&bench, Script::new("data"));
    assert_eq!(caller.provision().await, Ending::Provisioned);
    (bench, caller)
}

/// What had made a leaf, as it arrives once more.
pub fn asked_again(was: &Value) -> Value {
    let kept = ["name", "namespace", "labels", "annotations"].map(|field| (field, was["metadata"][field].clone()));
    json!({"metadata": kept.into_iter().collect::<BTreeMap<_, _>>(), "spec": was["spec"]})
}

/// The user asks for it, and has deleted it before the first write has arrived.
pub async fn was_asked_for(bench: &Arc<Bench>, caller: &Caller, kind: Kind, first: fn(&Asked) -> bool) {
    let sent = delay_next(bench, first);
    let mut snapshot = Snapshotter::new(bench, Wish::photo(kind, caller.handle().unwrap(), USUAL));
    let user = snapshot.clone();
    let (made, ()) = tokio::join!(snapshot.make(), async move {
        sleep(SOON).await;
        user.discard();
    });
    assert!(!made && sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
}

async fn nothing_is_left(bench: &Bench, kind: &str) {
    sleep(LATE).await;
    assert_eq!(bench.members[0].list(kind).len(), 1, "the late one has arrived");
    sleep(SURE).await;
    all_is_gone(bench, &[kind]);
}

/// In the member and in its storage.
fn all_is_gone(bench: &Bench, kinds: &[&str]) {
    for kind in kinds {
        let left = bench.members[0].list(kind);
        assert!(left.is_empty(), "{kind}: {left:?}\n{}", bench.guard.trace().join("\n"));
    }
    assert!(bench.storages[0].snapshots().is_empty());
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
}

/// The member takes the group and answers nothing, and then refuses to say which kinds it has.
#[test]
fn group_is_not_refused_for_good_while_it_may_be_there() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let sent = AtomicBool::new(false);
        bench.guard.set_fate(move |_, at, asked| match asked.verb {
            Verb::Create if creates(asked, GROUPS) && !sent.swap(true, Ordering::Relaxed) => Action::ApplyThenLose,
            Verb::List if at > 0 && asked.resource.is_empty() && sent.load(Ordering::Relaxed) => {
                Action::Answer { code: 403, reason: "Forbidden" }
            }
            _ => Action::Pass,
        });
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), USUAL));
        let (made, ()) = tokio::join!(group.make(), async {
            sleep(SOON * 5).await;
            bench.guard.heal();
        });
        assert!(made && bench.guard.wrong().is_empty(), "{:#?}", bench.guard.wrong());
    });
}

/// The member's API server has just started: it answers, and does not name all of its kinds yet.
#[test]
fn group_is_neither_refused_nor_taken_for_gone_while_its_kind_is_not_named() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        bench.guard.set_fate(|_, at, asked| match asked.verb {
            Verb::List if at > 0 && asked.resource.is_empty() => Action::Stale(0),
            _ => Action::Pass,
        });
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), KEPT));
        assert!(group.make().await, "{}", bench.guard.trace().join("\n"));
        group.look().await;
        group.discard();
        group.remove().await;
        for kind in [GROUPS, GROUP_CONTENTS, SNAPSHOTS, CONTENTS] {
            let left = bench.members[0].list(kind);
            assert!(left.is_empty(), "{kind}: {left:?}\n{}", bench.guard.trace().join("\n"));
        }
        // Nor does what the path itself answers say that there is none.
        bench.guard.set_fate(|_, at, asked| match asked.verb {
            Verb::List if at > 0 && asked.resource.is_empty() => Action::Stale(0),
            Verb::List if at > 0 && asked.resource == GROUPS => {
                Action::Answer { code: 503, reason: "ServiceUnavailable" }
            }
            _ => Action::Pass,
        });
        let handle = format!("m0/{SHOP}/g-{:032}/{:016}", 0, 0);
        let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id: handle, ..Default::default() };
        let call =
            bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
        assert_eq!(call.await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// It is cut, its mark is written and the answer to that is lost; then somebody edits the host's class.
#[test]
fn what_is_wrong_in_a_class_since_it_was_cut_makes_nobody_forget_it() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let mut snapshot = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), USUAL));
            let slip = snapshot.slip();
            bench.guard.set_fate(move |_, at, asked| {
                let marks = asked.verb == Verb::Patch && [SNAPSHOTS, CONTENTS].contains(&asked.resource.as_str());
                let is_first = at > 0 && marks && !slip.swap(true, Ordering::Relaxed);
                if is_first { Action::ApplyThenLose } else { Action::Pass }
            });
            assert!(snapshot.make().await, "{kind:?}: {}", bench.guard.trace().join("\n"));
            assert!(snapshot.slip().load(Ordering::Relaxed), "{kind:?}: it was edited");
            snapshot.discard();
            snapshot.remove().await;
            assert!(bench.storages[0].snapshots().is_empty());
            assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{kind:?}");
        });
    }
}

#[test]
fn what_is_wrong_in_a_class_is_told_where_nothing_is_made_yet() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let mut snapshot = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), USUAL));
            snapshot.slip().store(true, Ordering::Relaxed);
            let user = snapshot.clone();
            let (made, ()) = tokio::join!(snapshot.make(), async {
                sleep(SOON).await;
                user.discard();
            });
            let trace = bench.guard.trace().join("\n");
            assert!(!made && trace.contains("create photo: InvalidArgument: unknown"), "{kind:?}: {trace}");
            assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{kind:?}");
        });
    }
}

/// The driver that sent it knew of a snapshot. The next one has never seen any, and nobody asks it for one.
#[test]
fn snapshot_that_comes_late_to_a_driver_that_was_restarted_is_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Snapshot, |asked| creates(asked, SNAPSHOTS)).await;
        bench.start();
        nothing_is_left(&bench, SNAPSHOTS).await;
    });
}

/// Asked for twice, and the first write is carried out while the driver waits for what the second has made to go.
#[test]
fn snapshot_that_comes_late_while_that_of_its_name_is_removed_goes_with_it() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        // Nothing is heard of it: a look tells that it has gone.
        bench.guard.set_fate(|_, at, asked| match asked.verb {
            Verb::Watch if at > 0 && asked.resource == SNAPSHOTS => Action::Silence(0),
            _ => Action::Pass,
        });
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let was = bench.members[0].list(SNAPSHOTS).remove(0);
        snapshot.discard();
        let late = async {
            until(&bench, SOON * 5, "it has gone", || bench.members[0].list(SNAPSHOTS).is_empty()).await;
            bench.members[0].create(SNAPSHOTS, asked_again(&was)).unwrap();
        };
        tokio::join!(snapshot.remove(), late);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn group_that_comes_late_is_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Group, |asked| creates(asked, GROUPS)).await;
        nothing_is_left(&bench, GROUPS).await;
    });
}

/// Its claims do not carry its label any more, so it has no snapshots, and nobody misses it.
#[test]
fn group_that_comes_late_and_does_not_say_for_whom_is_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        delay_next(&bench, |asked| creates(asked, GROUPS));
        let mut group =
            Snapshotter::new(&bench, Wish { told: false, ..Wish::photo(Kind::Group, caller.handle().unwrap(), USUAL) });
        assert!(group.make().await);
        group.discard();
        group.remove().await;
        nothing_is_left(&bench, GROUPS).await;
    });
}

/// A hand in the member has removed the group, its class retains what stands behind it, and then the first write arrives.
#[test]
fn group_that_comes_late_does_not_hide_what_has_outlived_the_one_before_it() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), KEPT));
        assert!(group.make().await);
        let name = group.handle().unwrap().split('/').nth(2).unwrap().to_owned();
        let was = bench.members[0].get(GROUPS, SHOP, &name).unwrap();
        group.discard();
        group.let_go();
        bench.members[0].delete(GROUPS, SHOP, &name).unwrap();
        sleep(SOON * 5).await;
        assert!(!bench.members[0].list(GROUP_CONTENTS).is_empty() && bench.members[0].list(GROUPS).is_empty());
        bench.members[0].create(GROUPS, asked_again(&was)).unwrap();
        sleep(SOON).await;
        group.remove().await;
        all_is_gone(&bench, &[GROUPS, GROUP_CONTENTS, CONTENTS]);
    });
}

/// The same of a snapshot. No volume is made of the late one either: it is of another moment.
#[test]
fn snapshot_that_comes_late_does_not_hide_what_has_outlived_the_one_before_it_nor_stand_for_it() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), KEPT));
        assert!(snapshot.make().await);
        let snapshot_id = snapshot.handle().unwrap().to_owned();
        let name = snapshot_id.split('/').nth(2).unwrap().to_owned();
        let was = bench.members[0].get(SNAPSHOTS, SHOP, &name).unwrap();
        snapshot.let_go();
        bench.members[0].delete(SNAPSHOTS, SHOP, &name).unwrap();
        sleep(SOON * 5).await;
        assert!(!bench.members[0].list(CONTENTS).is_empty() && bench.members[0].list(SNAPSHOTS).is_empty());
        bench.members[0].create(SNAPSHOTS, asked_again(&was)).unwrap();
        sleep(SOON * 5).await;
        let source = volume_content_source::Type::Snapshot(volume_content_source::SnapshotSource { snapshot_id });
        let source = Some(v1::VolumeContentSource { r#type: Some(source) });
        let copy = Caller::new(&bench, Script { source, ..Script::new("copy") });
        let refused = copy.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        snapshot.discard();
        snapshot.remove().await;
        all_is_gone(&bench, &[SNAPSHOTS, CONTENTS]);
    });
}

/// It is given out and cannot be used yet when a hand in the member removes it, and its class retains what stands behind it.
#[test]
fn snapshot_that_comes_late_is_not_given_out_in_the_place_of_the_one_before_it() {
    virtual_time::run(1, async {
        let (long, steady) = (SOON * 10, fixture::steady(SOON));
        let (bench, caller) = volume_on(&Settings { uploading: Some(Work::takes(long..=long)), ..steady }).await;
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), KEPT));
        let (user, member) = (snapshot.clone(), &bench.members[0]);
        let people = async {
            let record = || bench.host.get(CONTENTS, "", "content-of-photo").unwrap();
            until(&bench, long, "it is given out", || record()["status"].is_object()).await;
            let was = member.list(SNAPSHOTS).remove(0);
            user.let_go();
            member.delete(SNAPSHOTS, SHOP, text(&was, "/metadata/name")).unwrap();
            until(&bench, SOON, "it has gone", || member.list(SNAPSHOTS).is_empty()).await;
            member.create(SNAPSHOTS, asked_again(&was)).unwrap();
            sleep(long * 2).await;
            user.discard();
        };
        let (made, ()) = tokio::join!(timeout(SURE, snapshot.make()), people);
        let trace = || bench.guard.trace().join("\n");
        assert_eq!(made, Ok(true), "{}", trace());
        assert!(trace().contains("is not what was given out as snapshot photo"), "the user is told: {}", trace());
        timeout(SURE, snapshot.remove()).await.unwrap();
        all_is_gone(&bench, &[SNAPSHOTS, CONTENTS]);
    });
}

/// It is of data that somebody has kept, and its snapshots carry no labels of ours either.
#[test]
fn restored_group_under_the_name_of_ours_stays() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), USUAL));
        assert!(group.make().await);
        let handle = group.handle().unwrap().to_owned();
        let name = handle.split('/').nth(2).unwrap();
        let was = bench.members[0].get(GROUPS, SHOP, name).unwrap();
        group.discard();
        group.remove().await;
        let restored = json!({
            "metadata": {"name": name, "namespace": SHOP, "labels": was["metadata"]["labels"],
                "annotations": was["metadata"]["annotations"]},
            "spec": {"source": {"volumeGroupSnapshotContentName": "kept"}},
        });
        let made = bench.members[0].create(GROUPS, restored).unwrap();
        lock(&bench.guard.history).plant(&made);
        sleep(SURE * 2).await;
        let stays = bench.members[0].get(GROUPS, SHOP, name);
        assert!(stays.is_some_and(|group| group["metadata"].get("deletionTimestamp").is_none()));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn label_of_a_group_that_comes_late_is_taken_off_the_claim() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Group, |asked| patches(asked, "/group.kosmos.csi.io~1")).await;
        let labels = || {
            let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
            let labels = leaf["metadata"]["labels"].as_object().unwrap().clone();
            labels.keys().filter(|key| key.starts_with("group.kosmos.csi.io/")).count()
        };
        assert_eq!(labels(), 0);
        sleep(LATE).await;
        assert_eq!(labels(), 1, "the late one has arrived");
        sleep(SURE).await;
        assert_eq!(labels(), 0, "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The handle says the hash alone, as where the names of member and namespace are long.
#[test]
fn snapshot_without_its_labels_is_not_called_gone_by_a_handle_that_does_not_say_where_it_is() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut snapshot = Snapshotter::new(&bench, Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL));
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        let (was, content) = (member.list(SNAPSHOTS).remove(0), member.list(CONTENTS).remove(0));
        let name = text(&was, "/metadata/name").to_owned();
        let strip = |object: &mut Value| object["metadata"]["labels"] = json!({});
        member.change(SNAPSHOTS, SHOP, &name, strip).unwrap();
        member.change(CONTENTS, "", text(&content, "/metadata/name"), strip).unwrap();
        sleep(SOON).await;
        let snapshot_id = format!("m0///{}", name.trim_start_matches("s-"));
        let request = v1::DeleteSnapshotRequest { snapshot_id, ..v1::DeleteSnapshotRequest::default() };
        let asked =
            bench.call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await }).await.map(drop);
        let refused = asked.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(&name) && refused.message().contains("put back"), "{refused}");
        assert_eq!(bench.storages[0].snapshots().len(), 1);
    });
}

/// The driver's watches of the member are dead, and tell nothing of it.
async fn somebody_takes_the_name_of_its_leaf() -> (Arc<Bench>, Caller) {
    let (bench, caller) = volume().await;
    bench.guard.set_fate(|_, at, asked| {
        let is_of_leaf = ["persistentvolumeclaims", "persistentvolumes"].contains(&asked.resource.as_str());
        if at > 0 && asked.verb == Verb::Watch && is_of_leaf { Action::Silence(0) } else { Action::Pass }
    });
    bench.start();
    bench.serves().await;
    sleep(SOON).await;
    delete_leaf_claim_by_force(&bench, "data");
    let theirs = json!({
        "metadata": {"name": "data", "namespace": SHOP},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let theirs = bench.members[0].create("persistentvolumeclaims", theirs).unwrap();
    lock(&bench.guard.history).plant(&theirs);
    until(&bench, SURE, "their claim is bound", || phase(leaf(&bench, "data")) == "Bound").await;
    (bench, caller)
}

#[test]
fn snapshot_of_a_claim_that_has_taken_the_name_of_a_leaf_is_not_given_out() {
    virtual_time::run(1, async {
        let (bench, caller) = somebody_takes_the_name_of_its_leaf().await;
        let wish = Wish { told: false, ..Wish::photo(Kind::Snapshot, caller.handle().unwrap(), USUAL) };
        let snapshot = Snapshotter::new(&bench, wish);
        for _ in 0..5 {
            let given_out = snapshot.ask().await;
            assert!(given_out.is_err(), "it is somebody else's data: {}", bench.guard.trace().join("\n"));
            sleep(SOON).await;
        }
        assert_eq!(bench.members[0].list(SNAPSHOTS).len(), 1, "it is cut, and named in what is answered");
    });
}

#[test]
fn claim_that_has_taken_the_name_of_a_leaf_is_not_copied_for_the_host() {
    virtual_time::run(1, async {
        let (bench, caller) = somebody_takes_the_name_of_its_leaf().await;
        let volume_id = caller.handle().unwrap().to_owned();
        let source = volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id });
        let source = Some(v1::VolumeContentSource { r#type: Some(source) });
        let copy = Caller::new(&bench, Script { source, ..Script::new("copy") });
        for _ in 0..5 {
            assert!(copy.create().await.is_err(), "{}", bench.guard.trace().join("\n"));
            assert!(leaf(&bench, "copy").is_none(), "{}", bench.guard.trace().join("\n"));
            sleep(SOON).await;
        }
    });
}

/// Somebody there has taken away what is known of groups, and the snapshots that were in one; what stands behind these is retained.
#[test]
fn what_is_kept_of_a_group_is_removed_also_where_its_member_has_no_groups_any_more() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), KEPT));
        assert!(group.make().await, "{}", bench.guard.trace().join("\n"));
        for kind in [GROUPS, GROUP_CONTENTS, "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io"] {
            member.delete(DEFINITIONS, "", kind).unwrap();
        }
        for part in member.list(SNAPSHOTS) {
            member.delete_now(SNAPSHOTS, SHOP, text(&part, "/metadata/name")).unwrap();
        }
        sleep(SOON).await;
        assert_eq!(bench.storages[0].snapshots().len(), 1, "its class retains it");
        group.discard();
        assert!(timeout(SURE, group.remove()).await.is_ok(), "{}", bench.guard.trace().join("\n"));
        assert!(member.list(CONTENTS).is_empty(), "{}", bench.guard.trace().join("\n"));
        assert!(bench.storages[0].snapshots().is_empty());
    });
}

/// Somebody there has removed its CRD, and with it all objects of that kind.
#[test]
fn snapshot_or_group_whose_member_lacks_one_of_its_kinds_says_which_crd_to_install_there_and_goes_once_it_is_there() {
    for (kind, missing) in [(Kind::Snapshot, SNAPSHOTS), (Kind::Group, GROUPS)] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let member = &bench.members[0];
            let mut photo = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), KEPT));
            assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
            member.delete(DEFINITIONS, "", missing).unwrap();
            for part in member.list(SNAPSHOTS) {
                member.delete_now(SNAPSHOTS, SHOP, text(&part, "/metadata/name")).unwrap();
            }
            sleep(SOON).await;
            let refused = photo.delete().await.unwrap_err();
            let advice = format!("install the CRD {missing} there");
            assert!(refused.code() == Code::FailedPrecondition && refused.message().contains(&advice), "{refused:?}");
            definitions::install(member).unwrap();
            photo.discard();
            assert!(timeout(SURE, photo.remove()).await.is_ok(), "{}", bench.guard.trace().join("\n"));
            assert!(member.list(CONTENTS).is_empty() && member.list(GROUP_CONTENTS).is_empty());
            assert!(bench.storages[0].snapshots().is_empty());
        });
    }
}

/// What stands behind it can then neither be read nor removed.
#[test]
fn snapshot_or_group_is_not_called_removed_while_the_kind_of_its_contents_is_missing() {
    for (kind, missing) in [(Kind::Snapshot, CONTENTS), (Kind::Group, GROUP_CONTENTS)] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let mut photo = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), KEPT));
            assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
            bench.members[0].delete(DEFINITIONS, "", missing).unwrap();
            sleep(SOON).await;
            let refused = photo.delete().await.unwrap_err();
            let advice = format!("install the CRD {missing} there");
            assert!(refused.code() == Code::FailedPrecondition && refused.message().contains(&advice), "{refused:?}");
        });
    }
}

/// The first time it was marked, and nobody was told. Whoever has deleted it there has left what its class keeps.
#[test]
fn what_is_kept_of_a_snapshot_or_group_that_was_cut_twice_goes_with_it() {
    for (kind, leaves) in [(Kind::Snapshot, SNAPSHOTS), (Kind::Group, GROUPS)] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let member = &bench.members[0];
            let mut photo = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), KEPT));
            photo.ask().await.unwrap();
            let first = Arc::clone(&member.list(leaves)[0]);
            member.delete(leaves, SHOP, text(&first, "/metadata/name")).unwrap();
            let is_gone = || member.list(leaves).is_empty() && member.list(SNAPSHOTS).is_empty();
            until(&bench, SURE, "it has gone there", is_gone).await;
            sleep(SOON).await;
            assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
            assert_eq!(member.list(CONTENTS).len(), 2, "it is cut again");
            photo.discard();
            photo.remove().await;
            all_is_gone(&bench, &[SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS]);
        });
    }
}

/// Somebody there has copied what stood behind a snapshot of it, labels and all, for a snapshot of his own beside that.
#[test]
fn copy_of_what_is_kept_of_a_group_stays_where_it_has_a_snapshot_of_its_own() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let member = &bench.members[0];
        let mut group = Snapshotter::new(&bench, Wish::photo(Kind::Group, caller.handle().unwrap(), KEPT));
        assert!(group.make().await, "{}", bench.guard.trace().join("\n"));
        let labels = member.list(CONTENTS)[0]["metadata"]["labels"].clone();
        let snapshot = json!({
            "metadata": {"name": "theirs", "namespace": SHOP}, "spec": {"source": {"volumeSnapshotContentName": "theirs"}},
        });
        let snapshot = member.create(SNAPSHOTS, snapshot).unwrap();
        let of = json!({"namespace": SHOP, "name": "theirs", "uid": text(&snapshot, "/metadata/uid")});
        let content = json!({
            "metadata": {"name": "theirs", "labels": labels},
            "spec": {"deletionPolicy": "Retain", "driver": "theirs", "volumeSnapshotRef": of},
        });
        let content = member.create(CONTENTS, content).unwrap();
        for theirs in [&snapshot, &content] {
            lock(&bench.guard.history).plant(theirs);
        }
        group.discard();
        group.let_go();
        group.rob();
        until(&bench, SURE, "it has gone there", || member.list(GROUPS).is_empty()).await;
        sleep(SOON).await;
        group.remove().await;
        let left = member.list(CONTENTS);
        assert!(left.len() == 1 && left[0]["spec"] == content["spec"], "{left:#?}\n{}", bench.guard.trace().join("\n"));
        assert!(left[0].pointer("/metadata/deletionTimestamp").is_none());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// It was cut and marked, and nobody was told.
#[test]
fn what_is_kept_of_a_snapshot_or_group_that_was_never_given_out_goes_when_its_user_deletes_it() {
    for kind in [Kind::Snapshot, Kind::Group] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            let member = &bench.members[0];
            let mut photo = Snapshotter::new(&bench, Wish::photo(kind, caller.handle().unwrap(), KEPT));
            photo.ask().await.unwrap();
            let leaves = if kind == Kind::Group { GROUPS } else { SNAPSHOTS };
            let name = text(&member.list(leaves)[0], "/metadata/name").to_owned();
            member.delete(leaves, SHOP, &name).unwrap();
            let is_gone = || member.list(leaves).is_empty() && member.list(SNAPSHOTS).is_empty();
            until(&bench, SURE, "it has gone there", is_gone).await;
            assert!(!member.list(CONTENTS).is_empty(), "its class retains it");
            sleep(SOON).await;
            photo.discard();
            // The sidecar was at work, and calls until it is told that nothing is left.
            while photo.ask().await.is_err_and(|status| status.code() != Code::NotFound) {
                sleep(SOON).await;
            }
            assert!(!photo.make().await, "{}", bench.guard.trace().join("\n"));
            all_is_gone(&bench, &[SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS]);
        });
    }
}
