//! Volumes that somebody made by hand in the host for a claim that was there before in a member: they work by consent, and
//! are never touched without it.

use std::{sync::Arc, time::Duration};

use csi::v1::{
    self, ControllerGetVolumeHealthRequest, ControllerGetVolumeRequest, ControllerGetVolumeResponse,
    DeleteVolumeRequest, ListVolumesRequest, ValidateVolumeCapabilitiesRequest, VolumeCapability, VolumeContentSource,
    VolumeHealthErrorType,
    controller_server::Controller as _,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::{Settings, Work},
    text,
};
use tokio::time::sleep;
use tonic::{Code, Request, Status};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, with_deadline},
    caller::{Caller, Ending, Script, claim_again, set_policy},
    crash::{Point, points},
    fixture, invariants,
    shared::has_alias,
    snapshotter::{Kind, Snapshotter, USUAL, Wish, have_kinds},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_mins(1);
const CLAIM: &str = "ledger";
const HOST_VOLUME: &str = "by-hand";
/// Any sixteen digits will do.
const HANDLE: &str = "m0/shop/ledger/0000000000000000";

async fn bench(leaf_class: &str) -> Arc<Bench> {
    let bench = started(leaf_class).await;
    assert_eq!(text(&leaf(&bench).unwrap(), "/status/phase"), "Bound");
    bench
}

/// The driver, and a claim of somebody's that a member binds or that waits for a pod.
async fn started(leaf_class: &str) -> Arc<Bench> {
    started_on(leaf_class, &fixture::steady(STEP)).await
}

async fn started_on(leaf_class: &str, settings: &Settings) -> Arc<Bench> {
    let bench = Bench::new(1, 1, settings).await;
    let claim = json!({
        "metadata": {"name": CLAIM, "namespace": SHOP, "labels": {"app.kubernetes.io/managed-by": "Helm"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": leaf_class,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    bench.members[0].create("persistentvolumeclaims", claim).unwrap();
    bench.start();
    bench.serves().await;
    sleep(STEP * 5).await;
    bench
}

fn consent(bench: &Bench, to: &str) {
    let write = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/consent"] = json!(to);
    bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, write).unwrap();
}

/// The host's volume for it, as an administrator writes it.
fn host_volume(bench: &Bench, name: &str, policy: &str) {
    host_volume_for(bench, CLAIM, name, policy);
}

fn host_volume_for(bench: &Bench, claim: &str, name: &str, policy: &str) {
    let handle = format!("m0/{SHOP}/{claim}/0000000000000000");
    let volume = json!({
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": policy, "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": claim, "uid": "gone"},
        },
    });
    bench.host.create("persistentvolumes", volume).unwrap();
    bench.host.change("persistentvolumes", "", name, |volume| volume["status"]["phase"] = json!("Released")).unwrap();
}

fn leaf(bench: &Bench) -> Option<Arc<Value>> {
    bench.members[0].get("persistentvolumeclaims", SHOP, CLAIM)
}

async fn delete(bench: &Bench) -> Result<(), Status> {
    bench.delete(DeleteVolumeRequest { volume_id: HANDLE.to_owned(), ..DeleteVolumeRequest::default() }).await
}

/// As the provisioner does: until it is done.
async fn insist(bench: &Bench) {
    while delete(bench).await.is_err() {
        sleep(Duration::from_secs(1)).await;
    }
}

async fn validate(bench: &Bench) -> Result<String, Status> {
    let capability = VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    };
    let request = ValidateVolumeCapabilitiesRequest {
        volume_id: HANDLE.to_owned(),
        volume_capabilities: vec![capability],
        ..ValidateVolumeCapabilitiesRequest::default()
    };
    let ask = |driver: csi::controller::Controller| async move {
        driver.validate_volume_capabilities(Request::new(request)).await
    };
    bench.call(ask).await.map(|answer| answer.message)
}

async fn get(bench: &Bench) -> Result<ControllerGetVolumeResponse, Status> {
    let request = Request::new(ControllerGetVolumeRequest { volume_id: HANDLE.to_owned() });
    bench.call(|driver| async move { driver.controller_get_volume(request).await }).await
}

/// What is wrong with it: how bad, and why.
async fn health(bench: &Bench) -> Result<Vec<(VolumeHealthErrorType, String)>, Status> {
    let request = ControllerGetVolumeHealthRequest { volume_id: HANDLE.to_owned(), ..Default::default() };
    let ask = |driver: csi::controller::Controller| async move {
        driver.controller_get_volume_health(Request::new(request)).await
    };
    let told = bench.call(ask).await?.volume_health.expect("an answer holds a health");
    assert_eq!(told.volume_id, HANDLE);
    Ok(told.health_statuses.into_iter().map(|one| (one.status(), one.reason)).collect())
}

/// What a call costs the members.
async fn cost<T>(bench: &Bench, call: impl Future<Output = T>) -> (T, u64) {
    let driver = bench.driver_name().unwrap();
    let before = bench.guard.sent_by(&driver);
    let answer = call.await;
    (answer, bench.guard.sent_by(&driver) - before)
}

fn events(bench: &Bench) -> Vec<String> {
    let told = |event: &Arc<Value>| format!("{}: {}", text(event, "/reason"), text(event, "/message"));
    let ours = |event: &&Arc<Value>| text(event, "/source/component") == "kosmos.csi.io";
    bench.host.list("events").iter().filter(ours).map(told).collect()
}

/// The claim as it was, whatever was asked.
fn untouched(bench: &Bench, before: &Value) {
    let now = leaf(bench).expect("it is there");
    for path in ["/metadata/resourceVersion", "/metadata/uid"] {
        assert_eq!(now.pointer(path), before.pointer(path), "{now}");
    }
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
}

#[test]
fn claim_without_consent_is_no_volume_and_is_never_touched() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        host_volume(&bench, HOST_VOLUME, "Delete");
        for to in [None, Some("another-host".to_owned())] {
            if let Some(to) = &to {
                consent(&bench, to);
            }
            let before = leaf(&bench).unwrap();
            assert_eq!(validate(&bench).await.unwrap_err().code(), Code::NotFound);
            delete(&bench).await.unwrap();
            untouched(&bench, &before);
        }
        assert_eq!(events(&bench), Vec::<String>::new());
    });
}

/// People write the same digits into all handles.
#[test]
fn imported_volume_goes_whatever_other_one_has_its_digits() {
    for is_there in [true, false] {
        virtual_time::run(1, async {
            let bench = bench(fixture::NOW).await;
            consent(&bench, &bench.host_id());
            host_volume(&bench, HOST_VOLUME, "Delete");
            host_volume_for(&bench, "diary", "another", "Retain");
            consent(&bench, "");
            let before = leaf(&bench).unwrap();
            if !is_there {
                bench.members[0].delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
                sleep(STEP * 5).await;
                assert!(leaf(&bench).is_none());
            }
            delete(&bench).await.unwrap();
            if is_there {
                untouched(&bench, &before);
            }
        });
    }
}

#[test]
fn claim_with_consent_is_a_volume_and_nothing_is_written_on_it() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        consent(&bench, &bench.host_id());
        let before = leaf(&bench).unwrap();
        assert_eq!(validate(&bench).await.unwrap(), "");
        untouched(&bench, &before);
        // Withdrawn: it is no volume any more.
        consent(&bench, "");
        assert_eq!(validate(&bench).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn imported_volume_is_told_as_it_is_now_and_is_in_no_list() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        assert_eq!(get(&bench).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(health(&bench).await.unwrap_err().code(), Code::NotFound);
        consent(&bench, &bench.host_id());
        // Somebody's own, under our name.
        let node = json!({"virtual/m0": {"access": "ReadWriteOnce"}}).to_string();
        let forge = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/published"] = json!(node);
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, forge).unwrap();
        let before = leaf(&bench).unwrap();
        let (told, asked) = cost(&bench, get(&bench)).await;
        let told = told.unwrap();
        let volume = told.volume.unwrap();
        assert_eq!((volume.volume_id.as_str(), volume.capacity_bytes), (HANDLE, 1 << 30));
        assert_eq!(volume.accessible_topology.len(), 1);
        assert_eq!(told.status.unwrap().published_node_ids, Vec::<String>::new());
        assert_eq!(asked, 1);
        let (told, asked) = cost(&bench, health(&bench)).await;
        assert_eq!((told.unwrap(), asked), (Vec::new(), 3));
        let request = Request::new(ListVolumesRequest::default());
        let listed = bench.call(|driver| async move { driver.list_volumes(request).await }).await.unwrap();
        assert_eq!(listed.entries, Vec::new());
        untouched(&bench, &before);
    });
}

#[test]
fn imported_claim_that_waits_for_its_first_pod_is_a_volume() {
    virtual_time::run(1, async {
        let bench = started(fixture::LATER).await;
        consent(&bench, &bench.host_id());
        assert_eq!(text(&leaf(&bench).unwrap(), "/status/phase"), "Pending");
        assert_eq!(get(&bench).await.unwrap().volume.unwrap().capacity_bytes, 0, "not known yet");
        assert_eq!(health(&bench).await.unwrap(), Vec::new());
    });
}

#[test]
fn what_is_wrong_with_an_imported_volume_is_told() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        consent(&bench, &bench.host_id());
        let claim = leaf(&bench).unwrap();
        let about = json!({"kind": "PersistentVolumeClaim", "namespace": SHOP, "name": CLAIM,
            "uid": text(&claim, "/metadata/uid")});
        let event = json!({"metadata": {"namespace": SHOP, "name": "sick"}, "involvedObject": about, "type": "Warning",
            "reason": "VolumeConditionAbnormal", "message": "a disk is slow", "lastTimestamp": "2026-01-01T00:00:00Z"});
        bench.members[0].create("events", event).unwrap();
        let abnormal = (VolumeHealthErrorType::Degraded, "VolumeConditionAbnormal".to_owned());
        assert_eq!(health(&bench).await.unwrap(), [abnormal]);

        bench.guard.set_fate(|_, at, _| if at == 1 { Action::Refuse } else { Action::Pass });
        assert_eq!(get(&bench).await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(health(&bench).await.unwrap_err().code(), Code::Unavailable);
        bench.guard.heal();
        sleep(SETTLED).await;

        let volume = text(&claim, "/spec/volumeName");
        bench.members[0].delete("persistentvolumes", "", volume).unwrap();
        let let_go = |volume: &mut Value| volume["metadata"]["finalizers"] = json!([]);
        bench.members[0].change("persistentvolumes", "", volume, let_go).unwrap();
        sleep(STEP).await;
        let lost = (VolumeHealthErrorType::DataLoss, "LeafClaimLost".to_owned());
        assert_eq!(health(&bench).await.unwrap(), [lost]);
        assert!(get(&bench).await.is_ok(), "the claim is there");
    });
}

#[test]
fn leaf_that_another_host_has_made_is_not_given_away_by_an_annotation() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        consent(&bench, &bench.host_id());
        let label = |claim: &mut Value| claim["metadata"]["labels"]["kosmos.csi.io/host"] = json!("another");
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, label).unwrap();
        assert_eq!(validate(&bench).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn imported_leaf_goes_only_where_both_policies_say_so() {
    for (leaf_class, host_volumes, goes, why) in [
        (fixture::NOW, vec![(HOST_VOLUME, "Delete")], true, ""),
        (fixture::KEPT, vec![(HOST_VOLUME, "Delete")], false, "policy of its own volume is not Delete"),
        (fixture::NOW, vec![(HOST_VOLUME, "Retain")], false, "the host still uses it"),
        (fixture::NOW, vec![(HOST_VOLUME, "Delete"), ("twin", "Delete")], false, "several volumes of the host"),
        (fixture::NOW, vec![], false, ""),
    ] {
        virtual_time::run(1, async {
            let bench = bench(leaf_class).await;
            consent(&bench, &bench.host_id());
            for (name, policy) in host_volumes {
                host_volume(&bench, name, policy);
            }
            let before = leaf(&bench).unwrap();
            delete(&bench).await.unwrap();
            let told = events(&bench).join(" ");
            assert!(told.contains(why) && told.is_empty() == why.is_empty(), "{told}");
            if goes {
                assert!(leaf(&bench).is_none() && bench.storages[0].volumes().is_empty());
                assert_eq!(bench.guard.wrong(), Vec::<String>::new());
            } else {
                untouched(&bench, &before);
            }
        });
    }
}

/// Its owner changes his mind while it is being removed.
#[test]
fn volume_of_an_imported_claim_that_outlives_it_after_all_is_told_of_with_what_is_gone() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        consent(&bench, &bench.host_id());
        host_volume(&bench, HOST_VOLUME, "Delete");
        let volume = text(&leaf(&bench).unwrap(), "/spec/volumeName").to_owned();
        let (member, name) = (bench.members[0].clone(), volume.clone());
        bench.guard.set_fate(move |_, at, asked| {
            if at == 1 && asked.verb == Verb::Delete && asked.resource == "persistentvolumeclaims" {
                let retain = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
                member.change("persistentvolumes", "", &name, retain).unwrap();
            }
            Action::Pass
        });
        insist(&bench).await;
        assert!(leaf(&bench).is_none() && bench.members[0].get("persistentvolumes", "", &volume).is_some());
        let told = events(&bench).join(" ");
        assert!(told.contains("is gone; its volume") && told.contains(&volume), "{told}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn imported_volume_that_the_members_storage_does_not_remove_is_answered_with_its_words() {
    virtual_time::run(1, async {
        let deleting = Work { fails_per_mille: 1000, ..Work::takes(STEP..=STEP) };
        let bench = started_on(fixture::NOW, &Settings { deleting, ..fixture::steady(STEP) }).await;
        consent(&bench, &bench.host_id());
        host_volume(&bench, HOST_VOLUME, "Delete");
        let late = delete(&bench).await.unwrap_err();
        assert_eq!(late.code(), Code::Aborted, "{late}");
        let told = "is gone and its volume is being deleted: VolumeFailedDelete: the storage failed";
        assert!(late.message().contains(told), "{late}");
    });
}

/// Its handle says another name of the member, as a person has written it. Nobody can tell what that means once its kubeconfig has gone.
#[test]
fn imported_leaf_stays_for_another_volume_also_where_that_calls_its_member_otherwise() {
    for has_left in [false, true] {
        virtual_time::run(1, async {
            let bench = bench(fixture::NOW).await;
            has_alias(&bench).await;
            consent(&bench, &bench.host_id());
            host_volume(&bench, HOST_VOLUME, "Delete");
            host_volume(&bench, "twin", "Retain");
            let handle = HANDLE.replacen("m0/", "alias/", 1);
            let rename = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = json!(handle);
            bench.host.change("persistentvolumes", "", "twin", rename).unwrap();
            if has_left {
                bench.host.delete("secrets", DRIVER_NAMESPACE, "alias").unwrap();
                sleep(STEP * 50).await;
            }
            let before = leaf(&bench).unwrap();
            delete(&bench).await.unwrap();
            assert!(events(&bench).join(" ").contains("several volumes of the host"), "{:?}", events(&bench));
            untouched(&bench, &before);
        });
    }
}

/// The call was sent before the volume was given to another claim, and somebody had deleted that volume by then.
#[test]
fn imported_leaf_stays_while_a_claim_has_the_volume_that_somebody_has_deleted() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        consent(&bench, &bench.host_id());
        host_volume(&bench, HOST_VOLUME, "Delete");
        set_policy(&bench, HOST_VOLUME, "Delete");
        bench.host.delete("persistentvolumes", "", HOST_VOLUME).unwrap();
        claim_again(&bench, HOST_VOLUME, SHOP, CLAIM);
        sleep(STEP * 5).await;
        let volume = bench.host.get("persistentvolumes", "", HOST_VOLUME).expect("its finalizer holds it");
        assert_eq!(text(&volume, "/status/phase"), "Bound");
        let before = leaf(&bench).unwrap();
        delete(&bench).await.unwrap();
        assert!(events(&bench).join(" ").contains("the host still uses it"), "{:?}", events(&bench));
        untouched(&bench, &before);
    });
}

/// The name served when a person made the volume, and another one does now.
#[test]
fn imported_leaf_stays_and_an_event_says_so_where_the_handle_of_its_volume_has_another_name_of_the_member() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        has_alias(&bench).await;
        consent(&bench, &bench.host_id());
        host_volume(&bench, HOST_VOLUME, "Delete");
        let handle = HANDLE.replacen("m0/", "alias/", 1);
        let rename = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = json!(handle);
        bench.host.change("persistentvolumes", "", HOST_VOLUME, rename).unwrap();
        let before = leaf(&bench).unwrap();
        let request = DeleteVolumeRequest { volume_id: handle.clone(), ..DeleteVolumeRequest::default() };
        bench.delete(request).await.unwrap();
        let told = events(&bench).join(" ");
        assert!(told.contains("stays there") && told.contains("alias, which is another name of it"), "{told}");
        untouched(&bench, &before);
    });
}

async fn cut(bench: &Bench) -> Result<v1::CreateSnapshotResponse, Status> {
    let (name, source_volume_id) = ("early".to_owned(), HANDLE.to_owned());
    let request = v1::CreateSnapshotRequest { name, source_volume_id, ..Default::default() };
    bench.call(|driver| async move { driver.create_snapshot(with_deadline(request)).await }).await
}

/// What its owner has written on the claim.
fn written(bench: &Bench) -> Value {
    let leaf = leaf(bench).unwrap();
    json!([leaf["metadata"]["labels"], leaf["metadata"]["annotations"], leaf["metadata"]["finalizers"], leaf["spec"]])
}

/// The snapshot is ours, and so are the volumes that are filled; the claim stays as its owner has made it.
#[test]
fn imported_volume_is_cut_and_copied_by_consent_alone() {
    virtual_time::run(1, async {
        let bench = bench(fixture::NOW).await;
        have_kinds(&bench);
        assert_eq!(cut(&bench).await.unwrap_err().code(), Code::NotFound);
        consent(&bench, &bench.host_id());
        let before = written(&bench);
        let wish = Wish { name: "late".to_owned(), ..Wish::photo(Kind::Snapshot, HANDLE, USUAL) };
        let mut snapshot = Snapshotter::new(&bench, wish);
        assert!(snapshot.make().await, "{}", bench.guard.trace().join("\n"));
        snapshot.look().await;
        let snapshot_id = snapshot.handle().unwrap().to_owned();
        let volume_id = HANDLE.to_owned();
        for (claim, source) in [
            ("restored", Type::Snapshot(SnapshotSource { snapshot_id })),
            ("cloned", Type::Volume(VolumeSource { volume_id })),
        ] {
            let source = Some(VolumeContentSource { r#type: Some(source) });
            let mut copy = Caller::new(&bench, Script { source, ..Script::new(claim) });
            assert_eq!(copy.provision().await, Ending::Provisioned);
            copy.delete_claim();
            copy.reclaim().await;
        }
        // What was cut is the host's, also without the owner's consent to more.
        consent(&bench, "");
        assert_eq!(cut(&bench).await.unwrap_err().code(), Code::NotFound);
        snapshot.remove().await;
        consent(&bench, &bench.host_id());
        sleep(SETTLED).await;
        assert_eq!(written(&bench), before);
        let wrong = [bench.guard.wrong(), invariants::snapshots(&bench), bench.leftovers()].concat();
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Neither is undone, and what is to stay stays, wherever the driver dies.
#[test]
fn imported_leaf_is_removed_or_kept_wherever_the_driver_is_killed() {
    for (leaf_class, stays) in [(fixture::NOW, false), (fixture::KEPT, true)] {
        let played = |point: Option<Point>| {
            virtual_time::run(1, async {
                let bench = bench(leaf_class).await;
                consent(&bench, &bench.host_id());
                host_volume(&bench, HOST_VOLUME, "Delete");
                let kept = bench.storages[0].volumes();
                let sent = bench.guard.sent();
                let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&bench))));
                insist(&bench).await;
                let requests = bench.guard.sent() - sent;
                bench.guard.heal();
                killer.iter().for_each(tokio::task::JoinHandle::abort);
                sleep(SETTLED).await;
                assert_eq!(leaf(&bench).is_some(), stays, "{point:?}");
                assert_eq!(bench.storages[0].volumes(), if stays { kept } else { Vec::new() }, "{point:?}");
                assert_eq!(bench.guard.wrong(), Vec::<String>::new(), "{point:?}");
                requests
            })
        };
        let requests = played(None);
        assert!(requests >= 3, "{requests}");
        for point in points(requests) {
            played(Some(point));
        }
    }
}
