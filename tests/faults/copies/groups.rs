//! Groups of snapshots, and what people, their tools and members do to them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use csi::v1::{self, controller_server::Controller as _, group_controller_server::GroupController as _};
use serde_json::{Value, json};
use simulate::{
    Cluster,
    faults::{Action, Verb},
    storage::{Settings, Work},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use super::{SETTLED, SLOW, STEP, Stage};
use crate::{
    bench::{SHOP, lock, with_deadline},
    fixture, invariants,
    late::creates,
    reclaim::{leaf, until},
    shared::has_alias,
    snapshotter::{CONTENTS, GROUP_CONTENTS, GROUPS, KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL},
    virtual_time,
};

/// A finalizer of somebody's.
const THEIRS: &str = "people.example/keep";

/// Whose content its class may have kept.
#[test]
fn group_goes_with_all_that_is_left_of_it_when_somebody_in_the_member_has_removed_one_of_its_snapshots() {
    for class in [USUAL, KEPT] {
        virtual_time::run(1, async {
            let stage = Stage::new(class, STEP).await;
            let bench = &stage.bench;
            let mut group = stage.made(Kind::Group).await;
            group.discard();
            group.let_go();
            let part = group.parts()[0].split('/').nth(2).unwrap().to_owned();
            bench.members[0].delete(SNAPSHOTS, SHOP, &part).unwrap();
            sleep(STEP * 5).await;
            assert!(bench.members[0].get(SNAPSHOTS, SHOP, &part).is_none());
            let removed = timeout(SETTLED, group.remove()).await;
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
            let trace = || bench.guard.trace().join("\n");
            assert!(removed.is_ok() && wrong.is_empty(), "{class}: {wrong:#?}\n{}", trace());
        });
    }
}

/// As of one that was given out while that name served.
#[test]
fn group_and_its_snapshots_are_known_and_go_also_by_another_name_of_their_member() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let bench = &stage.bench;
        let group = stage.made(Kind::Group).await;
        has_alias(bench).await;
        let renamed = |handle: &str| handle.replacen("m0/", "alias/", 1);
        let parts: Vec<String> = group.parts().iter().map(|part| renamed(part)).collect();
        for part in &parts {
            let request = v1::ListSnapshotsRequest { snapshot_id: part.clone(), ..Default::default() };
            let listed = bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
            let listed = listed.await.unwrap().entries.into_iter().filter_map(|entry| entry.snapshot);
            assert_eq!(listed.map(|told| told.snapshot_id).collect::<Vec<_>>(), std::slice::from_ref(part));
        }
        let (group_snapshot_id, snapshot_ids) = (renamed(group.handle().unwrap()), parts.clone());
        let request = v1::GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
        let found = bench.call(|driver| async move { driver.get_volume_group_snapshot(with_deadline(request)).await });
        let found = found.await.unwrap().group_snapshot.unwrap();
        let mut told: Vec<String> = found.snapshots.into_iter().map(|told| told.snapshot_id).collect();
        told.sort_unstable();
        let mut sorted = parts.clone();
        sorted.sort_unstable();
        assert_eq!(told, sorted);
        group.discard();
        group.let_go();
        let (group_snapshot_id, snapshot_ids) = (renamed(group.handle().unwrap()), parts);
        let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
        let removed =
            bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
        removed.await.unwrap();
        for kind in [GROUPS, GROUP_CONTENTS, SNAPSHOTS, CONTENTS] {
            assert!(bench.members[0].list(kind).is_empty(), "{kind}");
        }
    });
}

async fn remove_naming(stage: &Stage, group: &Snapshotter, snapshot_ids: Vec<String>) -> Result<(), Status> {
    let group_snapshot_id = group.handle().unwrap().to_owned();
    let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
    let call =
        stage.bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
    call.await.map(drop)
}

/// A snapshot that is there, and is none of the group's, is named: nothing goes.
#[test]
fn group_is_not_removed_for_whoever_names_other_snapshots() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (group, other) = (stage.made(Kind::Group).await, stage.made(Kind::Snapshot).await);
        let all = || [group.parts()[0].clone(), group.parts()[1].clone()];
        let gone = group.parts()[0].replace("/snapshot-", "/no-snapshot-");
        let with = |more: &str| all().into_iter().chain([more.to_owned()]).collect::<Vec<_>>();
        for snapshot_ids in [vec![all()[0].clone()], vec![gone], with(other.handle().unwrap())] {
            let refused = remove_naming(&stage, &group, snapshot_ids).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        }
        group.look().await;
        assert_eq!(stage.bench.guard.wrong(), Vec::<String>::new());
    });
}

/// It may have been one of the group's, which somebody in the member has removed: nobody could tell.
#[test]
fn group_is_removed_for_whoever_names_all_its_snapshots_and_one_that_is_not_there() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let group = stage.made(Kind::Group).await;
        group.discard();
        group.let_go();
        let gone = group.parts()[0].replace("/snapshot-", "/no-snapshot-");
        let named = group.parts().iter().cloned().chain([gone]).collect();
        remove_naming(&stage, &group, named).await.unwrap();
        let wrong = [stage.bench.guard.wrong(), invariants::snapshots(&stage.bench)].concat();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", stage.bench.guard.trace().join("\n"));
    });
}

/// Else it would be answered for ever that other snapshots are named than the group holds.
#[test]
fn marks_that_somebody_has_taken_off_a_snapshot_of_a_group_are_named_to_who_has_it_removed() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (bench, group) = (&stage.bench, stage.made(Kind::Group).await);
        let part = group.parts()[0].split('/').nth(2).unwrap();
        let member = &bench.members[0];
        let labels = member.get(SNAPSHOTS, SHOP, part).unwrap()["metadata"]["labels"].clone();
        let put = |labels: Value| {
            member.change(SNAPSHOTS, SHOP, part, |one| one["metadata"]["labels"] = labels).unwrap();
        };
        put(json!({}));
        sleep(STEP * 5).await;
        let refused = remove_naming(&stage, &group, group.parts().to_vec()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let named = format!("snapshot {SHOP}/{part}");
        for said in [named.as_str(), "label kosmos.csi.io/group=", "label kosmos.csi.io/snapshot"] {
            assert!(refused.message().contains(said), "{said}: {refused}");
        }
        let unseen = group.get_group(group.handle().unwrap().to_owned()).await.unwrap_err();
        assert_eq!(unseen.code(), Code::FailedPrecondition, "{unseen}");
        assert!(unseen.message().contains(&named) && !unseen.message().contains("delete it"), "{unseen}");
        put(labels);
        sleep(STEP * 5).await;
        group.discard();
        group.let_go();
        remove_naming(&stage, &group, group.parts().to_vec()).await.unwrap();
        let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", bench.guard.trace().join("\n"));
    });
}

/// Its handle may say the hash alone, as where the names of member and namespace are long.
#[test]
fn group_without_its_labels_is_not_called_gone_to_who_has_it_removed_or_looks_at_it() {
    for class in [USUAL, KEPT] {
        virtual_time::run(1, async {
            let stage = Stage::new(class, STEP).await;
            let (bench, mut group) = (&stage.bench, stage.made(Kind::Group).await);
            let (member, handle) = (&bench.members[0], group.handle().unwrap().to_owned());
            let name = handle.split('/').nth(2).unwrap();
            let labels = member.get(GROUPS, SHOP, name).unwrap()["metadata"]["labels"].clone();
            let put = |labels: &Value| {
                member.change(GROUPS, SHOP, name, |one| one["metadata"]["labels"] = labels.clone()).unwrap();
            };
            put(&json!({}));
            for group_snapshot_id in [handle.clone(), format!("m0///{}", name.trim_start_matches("g-"))] {
                let seen = group.get_group(group_snapshot_id.clone()).await.unwrap_err();
                let snapshot_ids = group.parts().to_vec();
                let request =
                    v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
                let call = bench
                    .call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
                for refused in [seen, call.await.map(drop).unwrap_err()] {
                    assert_eq!(refused.code(), Code::FailedPrecondition, "{class}: {refused}");
                    let says = |word: &str| refused.message().contains(word);
                    assert!(says(name) && says("put back") && says("kosmos.csi.io/group="), "{class}: {refused}");
                }
            }
            put(&labels);
            group.discard();
            group.remove().await;
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
            assert!(wrong.is_empty(), "{class}: {wrong:#?}\n{}", bench.guard.trace().join("\n"));
        });
    }
}

/// Or `doctor` would take them for nobody's until the group is given out.
#[test]
fn snapshots_of_a_group_say_for_which_record_of_the_host_they_were_made() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let group = stage.made(Kind::Group).await;
        let parts = stage.bench.members[0].list(SNAPSHOTS);
        let records = parts.iter().map(|part| text(part, "/metadata/annotations/kosmos.csi.io~1content"));
        let record = format!("content-of-{}", group.name());
        assert_eq!(records.collect::<Vec<_>>(), [record.as_str(); 2]);
    });
}

/// Whoever is told of the group takes each for that of the volume which it says, and a copy of it has the other one's data.
#[test]
fn snapshots_of_a_group_that_people_have_say_that_they_are_of_another_volume_say_their_own_again() {
    for changed in [1, 2] {
        virtual_time::run(1, async {
            let stage = Stage::new(USUAL, STEP).await;
            let (bench, mut group) = (&stage.bench, stage.asked(Kind::Group));
            let member = &bench.members[0];
            let says = || {
                let of = |part: &Arc<Value>| text(part, "/metadata/annotations/kosmos.csi.io~1source").to_owned();
                member.list(SNAPSHOTS).iter().map(of).collect::<Vec<String>>()
            };
            group.ask().await.unwrap();
            let own = says();
            for (part, other) in member.list(SNAPSHOTS).iter().zip(own.iter().rev()).take(changed) {
                let write = |part: &mut Value| part["metadata"]["annotations"]["kosmos.csi.io/source"] = json!(other);
                member.change(SNAPSHOTS, SHOP, text(part, "/metadata/name"), write).unwrap();
            }
            assert_ne!(says(), own);
            sleep(STEP * 5).await;
            assert!(group.make().await, "{}", bench.guard.trace().join("\n"));
            assert_eq!(says(), own);
            group.discard();
            group.remove().await;
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// A hand in the member has removed one of them, so that they never are all there.
#[test]
fn who_waits_for_the_snapshots_of_a_group_is_told_so_in_time() {
    virtual_time::run(1, async {
        let stage = Stage::new(KEPT, STEP * 10).await;
        let (bench, group) = (&stage.bench, stage.asked(Kind::Group));
        let person = async {
            let parts = || bench.members[0].list(SNAPSHOTS);
            until(bench, SLOW, "the member has begun", || parts().len() == 2).await;
            bench.members[0].delete(SNAPSHOTS, SHOP, text(&parts()[0], "/metadata/name")).unwrap();
        };
        let (refused, ()) = tokio::join!(group.ask(), person);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("is cut, and its snapshots are being made"), "{refused}");
    });
}

/// By a backup tool, while the labels of that claim say that it is of the group.
#[test]
fn group_that_holds_a_snapshot_of_a_copy_of_a_claim_is_not_given_out_without_that_one() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (bench, group) = (&stage.bench, stage.asked(Kind::Group));
        bench.guard.set_fate(|_, at, asked| match at {
            1 if creates(asked, GROUPS) => Action::Delay(STEP * 20),
            _ => Action::Pass,
        });
        let tool = async {
            let labels = || leaf(bench, "data").unwrap()["metadata"]["labels"].clone();
            until(bench, SLOW, "it is chosen", || labels().to_string().contains("group.kosmos.csi.io/")).await;
            let copy = json!({
                "metadata": {"name": "log-or-data", "namespace": SHOP, "labels": labels()},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            let copy = bench.members[0].create("persistentvolumeclaims", copy).unwrap();
            lock(&bench.guard.history).plant(&copy);
        };
        let (first, ()) = tokio::join!(group.ask(), tool);
        for answer in [first, group.ask().await] {
            let refused = answer.unwrap_err();
            assert_eq!(refused.code(), Code::Aborted, "{refused}");
            assert!(refused.message().contains("holds a snapshot of claim log-or-data"), "{refused}");
        }
    });
}

/// By a hand in the member, and its class keeps what stands behind that snapshot. The claim of one of the volumes may go as well.
#[test]
fn group_that_was_given_out_can_be_removed_though_one_of_its_snapshots_goes_before_it_can_be_used() {
    for volume_goes in [false, true] {
        virtual_time::run(1, async {
            let settings = Settings { uploading: Some(Work::takes(SLOW..=SLOW)), ..fixture::steady(STEP) };
            let stage = Stage::with(KEPT, settings).await;
            let (bench, mut group, mut volume) = (&stage.bench, stage.asked(Kind::Group), stage.volumes[1].clone());
            let user = group.clone();
            let people = async {
                sleep(SLOW / 2).await;
                user.let_go();
                let part = text(&bench.members[0].list(SNAPSHOTS)[0], "/metadata/name").to_owned();
                bench.members[0].delete(SNAPSHOTS, SHOP, &part).unwrap();
                if volume_goes {
                    volume.delete_claim();
                    volume.reclaim().await;
                }
                let is_told = || bench.guard.trace().iter().any(|line| line.contains("a leaf snapshot of group-"));
                until(bench, SETTLED, "the user is told", is_told).await;
                user.discard();
            };
            let (made, ()) = tokio::join!(timeout(SETTLED, group.make()), people);
            let trace = || bench.guard.trace().join("\n");
            assert_eq!(made, Ok(true), "{volume_goes}: {}", trace());
            let removed = timeout(SETTLED, group.remove()).await;
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
            assert!(removed.is_ok() && wrong.is_empty(), "{volume_goes}: {wrong:#?}\n{}", trace());
        });
    }
}

/// As somebody does who removes it with its data, while something else holds it.
fn hold_and_delete(member: &Cluster, content: &str) {
    let hold = |content: &mut Value| {
        content["spec"]["deletionPolicy"] = json!("Delete");
        let held = content["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        content["metadata"]["finalizers"] = held.into_iter().chain([json!(THEIRS)]).collect();
    };
    member.change(CONTENTS, "", content, hold).unwrap();
    member.delete(CONTENTS, "", content).unwrap();
}

/// A hand in the member has removed the group, whose class keeps what stood behind it, and its handle says no namespace.
#[test]
fn contents_that_outlived_a_group_are_named_where_neither_its_handle_nor_a_snapshot_tells_them_from_copies() {
    virtual_time::run(1, async {
        let stage = Stage::new(KEPT, STEP).await;
        let (bench, mut group) = (&stage.bench, stage.made(Kind::Group).await);
        let member = &bench.members[0];
        group.discard();
        group.let_go();
        group.rob();
        until(bench, SETTLED, "its snapshots have gone", || member.list(SNAPSHOTS).is_empty()).await;
        let hash = group.handle().unwrap().split('/').nth(2).unwrap().trim_start_matches("g-");
        let ask = || {
            let group_snapshot_id = format!("m0///{hash}");
            let request = v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() };
            bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await })
        };
        let refused = ask().await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        let contents = member.list(CONTENTS);
        let names: Vec<&str> = contents.iter().map(|content| text(content, "/metadata/name")).collect();
        assert!(names.len() == 2 && names.iter().all(|name| refused.message().contains(name)), "{refused}");
        for (at, expected) in [(0, Code::FailedPrecondition), (1, Code::Aborted)] {
            hold_and_delete(member, names[at]);
            let refused = ask().await.unwrap_err();
            assert_eq!(refused.code(), expected, "{refused}");
            let is_named = |name: &str| refused.message().contains(name);
            assert!(!is_named(names[0]) && is_named(names[1]) == (at == 0), "what goes is waited for: {refused}");
        }
        for name in names {
            let lets_go = |content: &mut Value| {
                content["metadata"]["finalizers"].as_array_mut().unwrap().retain(|held| *held != THEIRS);
            };
            member.change(CONTENTS, "", name, lets_go).unwrap();
        }
        until(bench, SETTLED, "they have gone", || member.list(CONTENTS).is_empty()).await;
        group.remove().await;
        let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
        assert!(wrong.is_empty(), "{wrong:#?}\n{}", bench.guard.trace().join("\n"));
    });
}

/// Somebody has taken the finalizers off the group, so that it goes first.
#[test]
fn content_of_a_group_may_go_while_it_is_taken_over_to_be_deleted() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (bench, mut group) = (&stage.bench, stage.made(Kind::Group).await);
        let name = group.handle().unwrap().split('/').nth(2).unwrap().to_owned();
        let unhold = |group: &mut Value| group["metadata"]["finalizers"] = json!([]);
        bench.members[0].change(GROUPS, SHOP, &name, unhold).unwrap();
        let (member, gone) = (bench.members[0].clone(), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&gone);
        bench.guard.set_fate(move |_, at, asked| {
            if at == 1 && asked.verb == Verb::Patch && asked.resource == GROUP_CONTENTS {
                let _ = member.delete(GROUP_CONTENTS, "", &asked.name);
                seen.store(true, Ordering::Relaxed);
            }
            Action::Pass
        });
        group.discard();
        group.remove().await;
        let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
        let trace = || bench.guard.trace().join("\n");
        assert!(gone.load(Ordering::Relaxed) && wrong.is_empty(), "{wrong:#?}\n{}", trace());
    });
}

/// It is cut and given out, and cannot be used yet, when the user deletes the claim of one of its volumes.
#[test]
fn group_that_was_given_out_can_be_used_and_removed_without_one_of_its_volumes() {
    for class in [USUAL, KEPT] {
        virtual_time::run(1, async {
            let settings = Settings { uploading: Some(Work::takes(SLOW..=SLOW)), ..fixture::steady(STEP) };
            let stage = Stage::with(class, settings).await;
            let (bench, mut group, mut volume) = (&stage.bench, stage.asked(Kind::Group), stage.volumes[1].clone());
            let user = async {
                sleep(SLOW / 2).await;
                volume.delete_claim();
                volume.reclaim().await;
                assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "log").is_none());
                sleep(SLOW * 2).await;
            };
            let (made, ()) = tokio::join!(timeout(SETTLED, group.make()), user);
            assert_eq!(made, Ok(true), "{}", bench.guard.trace().join("\n"));
            group.discard();
            group.remove().await;
            sleep(SETTLED).await;
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench)].concat();
            assert!(wrong.is_empty(), "{class}: {wrong:#?}\n{}", bench.guard.trace().join("\n"));
        });
    }
}

/// Asked in circles, it would never come to an end on a clock that stands still meanwhile.
#[test]
fn member_that_falls_silent_while_a_group_goes_is_not_asked_in_circles() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, SLOW).await;
        let group = stage.made(Kind::Group).await;
        let bench = &stage.bench;
        let deleted = Arc::new(AtomicBool::new(false));
        let silent = Arc::clone(&deleted);
        bench.guard.set_fate(move |_, at, asked| match at {
            1 if silent.load(Ordering::Relaxed) => Action::Refuse,
            1 => {
                let begun = asked.verb == Verb::Delete && asked.resource.starts_with("volumegroupsnapshots");
                silent.store(begun, Ordering::Relaxed);
                Action::Pass
            }
            _ => Action::Pass,
        });
        let request = v1::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: group.handle().unwrap().to_owned(),
            ..Default::default()
        };
        let call =
            bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
        let refused = call.await.unwrap_err();
        assert!([Code::Unavailable, Code::Aborted].contains(&refused.code()), "{refused}");
        assert!(deleted.load(Ordering::Relaxed), "it was on its way");
    });
}
