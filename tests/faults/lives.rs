//! What a volume may meet while it lives, on simulated members: sizes that cannot be had, nodes that want it at once, lists
//! that change while they are read.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use csi::v1::{
    self, CapacityRange, VolumeCapability, VolumeHealthErrorType,
    controller_server::Controller as _,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use prost::Message as _;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::{Binding, Class, Growth, Settings},
};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    ask::capability,
    bench::{Bench, SHOP, with_deadline},
    caller::{Caller, Change, Script},
    fixture,
    shared::release,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const GIB: i64 = 1 << 30;

async fn bench(settings: &Settings) -> Arc<Bench> {
    Bench::serving(2, settings).await
}

async fn volume(bench: &Arc<Bench>, claim: &str) -> Caller {
    let mut caller = Caller::new(bench, Script { places: vec![0], ..Script::new(claim) });
    caller.insist_on_creation().await;
    caller
}

/// Code and message where it did not succeed.
fn refused<T>(answer: Result<T, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

async fn expand(bench: &Bench, caller: &Caller, required: i64) -> Result<v1::ControllerExpandVolumeResponse, Status> {
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: caller.handle().unwrap().to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: required, limit_bytes: 0 }),
        ..Default::default()
    };
    bench.call(|driver| async move { driver.controller_expand_volume(with_deadline(request)).await }).await
}

async fn publish(bench: &Bench, caller: &Caller, node: &str, way: VolumeCapability) -> Result<(), Status> {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: caller.handle().unwrap().to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(way),
        ..Default::default()
    };
    bench.call(|driver| async move { driver.controller_publish_volume(with_deadline(request)).await }).await.map(drop)
}

async fn delete(bench: &Bench, caller: &Caller) -> Result<(), Status> {
    let request = v1::DeleteVolumeRequest { volume_id: caller.handle().unwrap().to_owned(), ..Default::default() };
    bench.call(|driver| async move { driver.delete_volume(with_deadline(request)).await }).await.map(drop)
}

async fn list(bench: &Bench, max_entries: i32, starting_token: &str) -> v1::ListVolumesResponse {
    let request = v1::ListVolumesRequest { max_entries, starting_token: starting_token.to_owned() };
    bench.call(|driver| async move { driver.list_volumes(with_deadline(request)).await }).await.unwrap()
}

fn on_leaf(bench: &Bench, claim: &str, change: impl FnOnce(&mut Value)) {
    bench.members[0].change("persistentvolumeclaims", SHOP, claim, change).unwrap();
}

#[test]
fn class_that_lets_no_claim_grow_is_named() {
    let class = Class { growth: Growth::Never, ..Class::new(fixture::NOW, Binding::Immediate) };
    virtual_time::run(1, async {
        let bench = bench(&Settings { classes: vec![class], ..fixture::steady(STEP) }).await;
        let caller = volume(&bench, "data").await;
        let (code, message) = refused(expand(&bench, &caller, 2 * GIB).await);
        assert!(code == Code::InvalidArgument && message.contains("allowVolumeExpansion"), "{code:?} {message}");
    });
}

#[test]
fn size_that_cannot_be_had_is_told_and_a_smaller_one_is_the_way_out() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(Duration::from_mins(1))).await;
        let caller = volume(&bench, "data").await;
        assert_eq!(refused(expand(&bench, &caller, 8 * GIB).await).0, Code::Aborted);
        let condition = json!({"type": "ControllerResizeError", "status": "True", "message": "the pool has 4Gi"});
        on_leaf(&bench, "data", |claim| {
            claim["status"]["allocatedResourceStatuses"] = json!({"storage": "ControllerResizeInfeasible"});
            claim["status"]["conditions"] = json!([condition]);
        });
        sleep(STEP).await;
        let (code, message) = refused(expand(&bench, &caller, 8 * GIB).await);
        assert!(code == Code::OutOfRange && message.contains("the pool has 4Gi"), "{code:?} {message}");
        assert_eq!(refused(expand(&bench, &caller, 3 * GIB).await).0, Code::Aborted);
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        assert_eq!(leaf["spec"]["resources"]["requests"]["storage"], "3Gi");
        sleep(Duration::from_mins(2)).await;
        let grown = expand(&bench, &caller, 3 * GIB).await.unwrap();
        assert!(grown.capacity_bytes >= 3 * GIB && !grown.node_expansion_required);
    });
}

#[test]
fn filesystem_that_grows_at_a_mount_is_left_to_a_real_node_and_awaited_elsewhere() {
    let class = Class { growth: Growth::OnNode, ..Class::new(fixture::NOW, Binding::Immediate) };
    virtual_time::run(1, async {
        let bench = bench(&Settings { classes: vec![class], ..fixture::steady(STEP) }).await;
        let caller = volume(&bench, "data").await;
        assert_eq!(refused(expand(&bench, &caller, 2 * GIB).await).0, Code::Aborted);
        sleep(STEP * 10).await;
        let (code, message) = refused(expand(&bench, &caller, 2 * GIB).await);
        assert!(code == Code::Aborted && message.contains("once a pod there uses it"), "{code:?} {message}");
        let driver = json!({"name": "kosmos.csi.io", "nodeID": "real/n1", "topologyKeys": null});
        let node = json!({"metadata": {"name": "n1"}, "spec": {"drivers": [driver]}});
        bench.host.create("csinodes.storage.k8s.io", node).unwrap();
        publish(&bench, &caller, "real/n1", capability()).await.unwrap();
        let grown = expand(&bench, &caller, 2 * GIB).await.unwrap();
        assert_eq!((grown.capacity_bytes, grown.node_expansion_required), (2 * GIB, true));
    });
}

#[test]
fn of_two_nodes_that_want_a_volume_at_once_one_gets_it() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let caller = volume(&bench, "data").await;
        let (one, other) = tokio::join!(
            publish(&bench, &caller, "virtual/m0/a", capability()),
            publish(&bench, &caller, "virtual/m0/b", capability())
        );
        let codes = [refused(one).0, refused(other).0];
        assert!(codes.contains(&Code::Ok) && codes.contains(&Code::FailedPrecondition), "{codes:?}");
        assert!(bench.guard.wrong().is_empty(), "{:?}", bench.guard.wrong());
    });
}

#[test]
fn nodes_that_cannot_have_a_volume_are_told_why() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let caller = volume(&bench, "data").await;
        for (node, code, word) in [
            ("some-fake-node-id", Code::NotFound, "some-fake-node-id"),
            ("virtual/nobody", Code::NotFound, "virtual/nobody"),
            ("real/nobody", Code::NotFound, "CSINode nobody"),
            ("virtual/m1", Code::FailedPrecondition, "the volume is in member m0"),
        ] {
            let (seen, message) = refused(publish(&bench, &caller, node, capability()).await);
            assert!(seen == code && message.contains(word), "{node}: {seen:?} {message}");
        }
        let shared = VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode { mode: Mode::MultiNodeMultiWriter.into() }),
        };
        assert_eq!(refused(publish(&bench, &caller, "virtual/m0", shared).await).0, Code::FailedPrecondition);
    });
}

#[test]
fn volume_that_a_node_has_is_not_removed() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = volume(&bench, "data").await;
        caller.change(Change::Publish).await;
        let handle = caller.handle().unwrap().to_owned();
        let (code, message) = refused(caller.delete(&handle).await);
        assert!(code == Code::FailedPrecondition && message.contains("virtual/m0"), "{code:?} {message}");
        caller.change(Change::Unpublish).await;
        release(&bench, &caller).await;
        caller.delete(&handle).await.unwrap();
    });
}

/// What comes and goes between two pages moves nothing else.
#[test]
fn list_is_read_in_pages_while_volumes_come_and_go() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut callers = Vec::new();
        for number in 0..5 {
            callers.push(volume(&bench, &format!("data-{number}")).await);
        }
        let whole: Vec<String> = ids(&list(&bench, 0, "").await);
        assert_eq!(whole.len(), 5);
        let first = list(&bench, 2, "").await;
        assert_eq!(ids(&first), whole[..2]);
        let gone = callers.iter().find(|caller| caller.handle() == Some(whole[1].as_str())).unwrap();
        release(&bench, gone).await;
        gone.delete(&whole[1]).await.unwrap();
        volume(&bench, "late").await;
        let second = list(&bench, 2, &first.next_token).await;
        let last = list(&bench, 0, &second.next_token).await;
        assert!(last.next_token.is_empty());
        let rest: BTreeSet<String> = ids(&second).into_iter().chain(ids(&last)).collect();
        assert!(whole[2..].iter().all(|id| rest.contains(id)), "{rest:?} of {whole:?}");
        assert!(!rest.contains(&whole[0]) && !rest.contains(&whole[1]));
        assert_eq!(list(&bench, 0, "").await.entries.len(), 5);
    });
}

fn ids(page: &v1::ListVolumesResponse) -> Vec<String> {
    page.entries.iter().map(|entry| entry.volume.as_ref().unwrap().volume_id.clone()).collect()
}

#[test]
fn published_nodes_are_listed() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = volume(&bench, "data").await;
        caller.change(Change::Publish).await;
        let nodes = list(&bench, 0, "").await.entries[0].status.clone().unwrap().published_node_ids;
        assert_eq!(nodes, ["virtual/m0"]);
    });
}

/// Whoever may write claims in a member may write as much as an API server takes of an annotation.
#[test]
fn page_of_a_list_is_no_longer_than_what_callers_read_whatever_leaf_claims_say_of_their_nodes() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let node = |number: u32| format!("\"real/{}{number}\":{{\"access\":\"ReadWriteMany\"}}", "n".repeat(200));
        let record = format!("{{{}}}", (0..1000).map(node).collect::<Vec<_>>().join(","));
        for number in 0..24 {
            let claim = format!("data-{number}");
            volume(&bench, &claim).await;
            on_leaf(&bench, &claim, |claim| {
                claim["metadata"]["annotations"]["kosmos.csi.io/published"] = json!(record);
            });
        }
        sleep(STEP).await;
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = list(&bench, 0, &token).await;
            assert!(page.encoded_len() < 4 << 20, "{} bytes", page.encoded_len());
            found.extend(ids(&page));
            token = page.next_token;
            if token.is_empty() {
                break;
            }
        }
        let all: BTreeSet<&String> = found.iter().collect();
        assert_eq!((found.len(), all.len()), (24, 24));
    });
}

/// Another replica has published it, and the watch of this one says nothing.
#[test]
fn volume_that_was_published_unseen_is_not_removed() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let mut caller = volume(&bench, "data").await;
        caller.change(Change::Publish).await;
        let leaf = || bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        let published = leaf()["metadata"]["annotations"]["kosmos.csi.io/published"].clone();
        assert!(published.is_string());
        caller.change(Change::Unpublish).await;
        bench.guard.set_fate(|_, _, asked| match (asked.verb, asked.resource.as_str()) {
            (Verb::Watch, "persistentvolumeclaims") => Action::Silence(0),
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        sleep(STEP).await;
        on_leaf(&bench, "data", |claim| claim["metadata"]["annotations"]["kosmos.csi.io/published"] = published);
        release(&bench, &caller).await;
        let (code, message) = refused(delete(&bench, &caller).await);
        assert!(code == Code::FailedPrecondition && message.contains("virtual/m0"), "{code:?} {message}");
        assert!(leaf()["metadata"]["deletionTimestamp"].is_null());
    });
}

#[test]
fn health_tells_of_what_is_lost_and_of_who_does_not_answer() {
    virtual_time::run(1, async {
        let bench = bench(&fixture::steady(STEP)).await;
        let caller = volume(&bench, "data").await;
        volume(&bench, "well").await;
        assert_eq!(ailing(&bench).await, []);
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        let volume = leaf["spec"]["volumeName"].as_str().unwrap();
        bench.members[0].delete("persistentvolumes", "", volume).unwrap();
        let _ = bench.members[0].change("persistentvolumes", "", volume, |volume| {
            volume["metadata"]["finalizers"] = json!([]);
        });
        sleep(STEP).await;
        let lost = (caller.handle().unwrap().to_owned(), vec![VolumeHealthErrorType::DataLoss]);
        assert_eq!(ailing(&bench).await, [lost]);
        bench.guard.set_fate(|_, at, _| if at == 1 { Action::Refuse } else { Action::Pass });
        expand(&bench, &caller, GIB).await.unwrap_err();
        let id = caller.handle().unwrap().to_owned();
        let request = v1::ControllerGetVolumeHealthRequest { volume_id: id, ..Default::default() };
        drop(publish(&bench, &caller, "virtual/m0", capability()).await);
        let again = request.clone();
        drop(bench.call(|driver| async move { driver.controller_get_volume_health(with_deadline(again)).await }).await);
        sleep(Duration::from_mins(6)).await;
        let told =
            bench.call(|driver| async move { driver.controller_get_volume_health(with_deadline(request)).await });
        let told = told.await.unwrap().volume_health.unwrap();
        let reasons: Vec<&str> = told.health_statuses.iter().map(|one| one.reason.as_str()).collect();
        assert_eq!(reasons, ["LeafClaimLost", "MemberUnreachable"]);
        assert_eq!(ailing(&bench).await.len(), 2, "all that the silent member holds");
    });
}

async fn ailing(bench: &Bench) -> Vec<(String, Vec<VolumeHealthErrorType>)> {
    let request = v1::ControllerListVolumeHealthRequest::default();
    let listed = bench.call(|driver| async move { driver.controller_list_volume_health(with_deadline(request)).await });
    let of = |health: v1::VolumeHealth| {
        let kinds = health.health_statuses.iter().map(v1::volume_health::VolumeHealthEntry::status).collect();
        (health.volume_id, kinds)
    };
    listed.await.unwrap().entries.into_iter().map(of).collect()
}
