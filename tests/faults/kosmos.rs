//! A host that Kosmos manages too: its `Cluster` objects are members, one cluster may have two of them, and clustertree is
//! kept from the claims that are not its own.

use std::{sync::Arc, time::Duration};

use commands::args::KosmosClusters;
use csi::v1::{
    self, ControllerPublishVolumeRequest, GetCapacityRequest, Topology, VolumeCapability,
    controller_server::Controller as _,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    storage::Settings,
    text,
};
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP, lock, with_deadline},
    caller::{Caller, Ending, MEMBER_KEY, Script},
    fixture,
    refusals::node_of_leaf,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// From a change in the host to the driver's knowing of it.
const NOTICED: Duration = Duration::from_secs(20);
const CLUSTERS: &str = "clusters.kosmos.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const DEFINITION: &str = include_str!("../kosmos/clusters.json");
const OWNERS: &str = "kosmos-io/cluster-owners";

/// Two clusters that the driver knows nothing of yet.
async fn bench(kosmos_clusters: KosmosClusters) -> Arc<Bench> {
    let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
    for member in &bench.members {
        bench.host.delete("secrets", DRIVER_NAMESPACE, member.name()).unwrap();
    }
    *lock(&bench.kosmos_clusters) = kosmos_clusters;
    bench
}

fn define(bench: &Bench) {
    bench.host.create(DEFINITIONS, serde_json::from_str(DEFINITION).unwrap()).unwrap();
}

/// A `Cluster` object under any name.
fn join(bench: &Bench, name: &str, at: usize, annotations: &Value) {
    let kubeconfig = fixture::kubeconfig_text(&format!("https://{}", bench.members[at].name()));
    let cluster = json!({
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"kubeconfig": ByteString(kubeconfig.into_bytes()), "clusterTreeOptions": {}, "clusterLinkOptions": {}},
    });
    bench.host.create(CLUSTERS, cluster).unwrap();
}

/// With the kind, one `Cluster` object for each member, and the driver.
async fn joined() -> Arc<Bench> {
    let bench = bench(KosmosClusters::Auto).await;
    define(&bench);
    for at in 0..bench.members.len() {
        join(&bench, bench.members[at].name(), at, &json!({}));
    }
    bench.start();
    bench.serves().await;
    sleep(STEP * 20).await;
    bench
}

async fn provisioned(bench: &Arc<Bench>, claim: &str, at: usize) -> Caller {
    let mut caller = Caller::new(bench, Script { places: vec![at], ..Script::new(claim) });
    let made = timeout(NOTICED, caller.provision()).await;
    assert_eq!(made.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
    caller
}

/// What the members of these names have for new volumes, in all.
async fn capacity(bench: &Bench, member: &str) -> i64 {
    let request = GetCapacityRequest {
        accessible_topology: Some(Topology { segments: [(MEMBER_KEY.to_owned(), member.to_owned())].into() }),
        parameters: [("leafStorageClass".to_owned(), fixture::NOW.to_owned())].into(),
        ..GetCapacityRequest::default()
    };
    let asked = bench.call(|driver| async move { driver.get_capacity(with_deadline(request)).await }).await;
    asked.map_or(0, |answer| answer.available_capacity)
}

fn owners(bench: &Bench, claim: &str) -> Option<String> {
    let claim = bench.host.get("persistentvolumeclaims", SHOP, claim).unwrap();
    claim["metadata"]["annotations"][OWNERS].as_str().map(str::to_owned)
}

fn write_owners(bench: &Bench, claim: &str, owners: &str) {
    let write = |claim: &mut Value| claim["metadata"]["annotations"][OWNERS] = json!(owners);
    bench.host.change("persistentvolumeclaims", SHOP, claim, write).unwrap();
}

async fn come_to(bench: &Bench, claim: &str, wanted: &str) {
    let until_written = async {
        while owners(bench, claim).as_deref() != Some(wanted) {
            sleep(STEP).await;
        }
    };
    let written = timeout(NOTICED, until_written).await;
    assert!(written.is_ok(), "{:?} is not {wanted}: {}", owners(bench, claim), bench.guard.trace().join("\n"));
}

fn nothing_is_wrong(bench: &Bench) {
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
}

#[test]
fn cluster_objects_become_members_also_when_their_kind_comes_later_and_leave_again() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::Auto).await;
        bench.start();
        bench.serves().await;
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        join(&bench, "m1", 1, &json!({"kosmos.io/cluster-role": "root"}));
        sleep(NOTICED).await;
        assert!(capacity(&bench, "m0").await > 0);
        assert_eq!(capacity(&bench, "m1").await, 0, "it stands for the host itself");
        provisioned(&bench, "data", 0).await;
        let cordon = |cluster: &mut Value| cluster["metadata"]["annotations"]["kosmos.csi.io/cordon"] = json!("true");
        bench.host.change(CLUSTERS, "", "m0", cordon).unwrap();
        sleep(STEP).await;
        assert_eq!(capacity(&bench, "m0").await, 0, "it is cordoned");
        bench.host.delete(CLUSTERS, "", "m0").unwrap();
        sleep(STEP).await;
        let caller = Caller::new(&bench, Script { places: vec![0], ..Script::new("late") });
        let status = caller.create().await.unwrap_err();
        assert!(status.code() == Code::Unavailable && status.message().contains("has not joined"), "{status:?}");
        nothing_is_wrong(&bench);
    });
}

#[test]
fn kind_that_is_required_is_waited_for() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::On).await;
        bench.start();
        assert!(timeout(NOTICED * 3, bench.serves()).await.is_err(), "nothing is known of the members yet");
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        timeout(NOTICED, bench.serves()).await.expect("it serves once the kind is there");
        provisioned(&bench, "data", 0).await;
        nothing_is_wrong(&bench);
    });
}

#[test]
fn cluster_objects_are_left_alone_where_they_are_not_wanted() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::Off).await;
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        bench.start();
        bench.serves().await;
        sleep(NOTICED).await;
        assert_eq!(capacity(&bench, "m0").await, 0);
        assert!(!bench.guard.trace().iter().any(|line| line.contains("clusters.kosmos.io")), "nobody asks for them");
    });
}

/// The driver knows m0 as itself, and as "twin" as well.
async fn with_twin() -> Arc<Bench> {
    let bench = joined().await;
    join(&bench, "twin", 0, &json!({}));
    sleep(NOTICED).await;
    bench
}

async fn publish(bench: &Bench, volume: &str, node: &str) -> Result<(), Status> {
    let capability = VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    };
    let request = ControllerPublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability),
        ..ControllerPublishVolumeRequest::default()
    };
    let ask = |driver: csi::controller::Controller| async move {
        driver.controller_publish_volume(with_deadline(request)).await
    };
    bench.call(ask).await.map(drop)
}

/// As if the caller's handle had been given out under another name of its member.
fn renamed(caller: &Caller, name: &str) -> String {
    let (_, rest) = caller.handle().unwrap().split_once('/').unwrap();
    format!("{name}/{rest}")
}

#[test]
fn second_name_of_a_cluster_gets_no_new_volume_and_says_which_name_serves() {
    virtual_time::run(1, async {
        let bench = with_twin().await;
        assert_eq!(capacity(&bench, "twin").await, 0);
        assert!(capacity(&bench, "m0").await > 0, "the first name goes on");
        let caller = Caller::new(&bench, Script { parameters: &[("member", "twin")], ..Script::new("data") });
        let status = caller.create().await.unwrap_err();
        let words = "member twin is another name of member m0";
        assert!(status.code() == Code::ResourceExhausted && status.message().contains(words), "{status:?}");
        for member in &bench.members {
            assert!(member.get("persistentvolumeclaims", SHOP, "data").is_none());
        }
        nothing_is_wrong(&bench);
    });
}

#[test]
fn volume_is_reached_by_handle_and_node_under_both_names_of_its_cluster() {
    virtual_time::run(1, async {
        let bench = with_twin().await;
        let mut caller = provisioned(&bench, "data", 0).await;
        let other = renamed(&caller, "twin");
        publish(&bench, &other, "virtual/twin").await.unwrap();
        let refused = publish(&bench, &other, "virtual/m1").await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "another cluster's node: {refused:?}");
        let fenced = publish(&bench, caller.handle().unwrap(), "virtual/m0").await.unwrap_err();
        assert!(fenced.message().contains("published on node virtual/twin"), "{fenced:?}");
        let unpublish = v1::ControllerUnpublishVolumeRequest { volume_id: other.clone(), ..Default::default() };
        let ask = |driver: csi::controller::Controller| async move {
            driver.controller_unpublish_volume(with_deadline(unpublish)).await
        };
        bench.call(ask).await.unwrap();
        caller.stands_for(&other);
        caller.delete_claim();
        caller.reclaim().await;
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_none());
        nothing_is_wrong(&bench);
    });
}

/// Its handle was given out under the name that serves no more.
#[test]
fn nobody_is_told_that_the_data_of_a_taken_name_is_in_another_member_where_that_is_another_name_of_this_one() {
    virtual_time::run(1, async {
        let bench = with_twin().await;
        let before = provisioned(&bench, "data", 0).await;
        let handle = json!(renamed(&before, "twin"));
        let rename = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = handle.clone();
        bench.host.change("persistentvolumes", "", before.volume(), rename).unwrap();
        before.delete_claim();
        sleep(STEP * 20).await;
        let caller = Caller::new(&bench, Script { places: vec![0], ..Script::new("data") });
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        let told = refused.message();
        assert!(told.contains("Delete that volume in the host") && !told.contains("in member twin"), "{told}");
    });
}

#[test]
fn imported_claim_is_reached_and_removed_under_the_serving_name_alone() {
    virtual_time::run(1, async {
        let bench = with_twin().await;
        let claim = json!({
            "metadata": {
                "name": "ledger", "namespace": SHOP,
                "annotations": {"kosmos.csi.io/consent": bench.host_id()},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": fixture::NOW,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        bench.members[0].create("persistentvolumeclaims", claim).unwrap();
        sleep(STEP * 5).await;
        let handle = "twin/shop/ledger/0000000000000000";
        let refused = publish(&bench, handle, "virtual/m0").await.unwrap_err();
        assert!(refused.code() == Code::NotFound && refused.message().contains("another name of m0"), "{refused:?}");
        let volume = json!({
            "metadata": {"name": "by-hand"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
                "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle},
                "claimRef": {"namespace": SHOP, "name": "ledger", "uid": "gone"},
            },
        });
        bench.host.create("persistentvolumes", volume).unwrap();
        bench.host.change("persistentvolumes", "", "by-hand", |it| it["status"]["phase"] = json!("Released")).unwrap();
        bench.delete(v1::DeleteVolumeRequest { volume_id: handle.to_owned(), ..Default::default() }).await.unwrap();
        let kept = bench.members[0].get("persistentvolumeclaims", SHOP, "ledger").expect("it stays");
        assert_eq!(text(&kept, "/metadata/deletionTimestamp"), "");
        nothing_is_wrong(&bench);
    });
}

#[test]
fn claim_is_marked_against_clustertree_with_the_choice_of_its_member_and_without_a_request_more() {
    virtual_time::run(1, async {
        let bench = joined().await;
        provisioned(&bench, "data", 0).await;
        assert_eq!(owners(&bench, "data").as_deref(), Some("_kosmos-csi"));
        let patch = "Patch persistentvolumeclaims shop/data in host";
        let patches: Vec<String> = bench.guard.trace().into_iter().filter(|line| line.contains(patch)).collect();
        assert_eq!(patches.len(), 1, "{patches:#?}");
        nothing_is_wrong(&bench);
    });
}

#[test]
fn claim_in_a_member_that_kosmos_does_not_know_is_not_marked() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::Auto).await;
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        bench.host.create("secrets", fixture::kubeconfig("m1")).unwrap();
        bench.start();
        bench.serves().await;
        provisioned(&bench, "data", 1).await;
        sleep(NOTICED).await;
        assert_eq!(owners(&bench, "data"), None);
        nothing_is_wrong(&bench);
    });
}

#[test]
fn mark_is_kept_first_whoever_writes_before_it_and_comes_to_claims_that_were_bound_earlier() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::Auto).await;
        bench.host.create("secrets", fixture::kubeconfig("m0")).unwrap();
        bench.start();
        bench.serves().await;
        provisioned(&bench, "data", 0).await;
        assert_eq!(owners(&bench, "data"), None);
        let foreign = json!({
            "metadata": {"name": "native", "namespace": SHOP, "annotations": {OWNERS: "m0"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "native", "volumeName": "native",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        bench.host.create("persistentvolumeclaims", foreign).unwrap();
        // Kosmos comes to this host only now, and knows the same member.
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        come_to(&bench, "data", "_kosmos-csi").await;
        write_owners(&bench, "data", "_kosmos-csi,m0");
        sleep(NOTICED).await;
        assert_eq!(owners(&bench, "data").as_deref(), Some("_kosmos-csi,m0"), "clustertree adds its own behind");
        write_owners(&bench, "data", "m0");
        come_to(&bench, "data", "_kosmos-csi,m0").await;
        assert_eq!(owners(&bench, "native").as_deref(), Some("m0"), "somebody else's claim");
        nothing_is_wrong(&bench);
    });
}

/// Its annotations are as long as an API server takes, or a policy of the host lets nobody write on it.
#[test]
fn claim_that_takes_no_mark_keeps_no_other_one_from_being_marked_against_clustertree() {
    virtual_time::run(1, async {
        let bench = bench(KosmosClusters::Auto).await;
        bench.host.create("secrets", fixture::kubeconfig("m0")).unwrap();
        bench.start();
        bench.serves().await;
        for claim in ["closed", "data"] {
            provisioned(&bench, claim, 0).await;
        }
        bench.guard.set_fate(|_, at, asked| {
            let is_closed = at == 0 && asked.verb == Verb::Patch && asked.name == "closed";
            if is_closed { Action::Answer { code: 422, reason: "Invalid" } } else { Action::Pass }
        });
        define(&bench);
        join(&bench, "m0", 0, &json!({}));
        come_to(&bench, "data", "_kosmos-csi").await;
        assert_eq!(owners(&bench, "closed"), None);
        bench.guard.heal();
        sleep(Duration::from_mins(1)).await;
        come_to(&bench, "closed", "_kosmos-csi").await;
        nothing_is_wrong(&bench);
    });
}

/// Where the volume of a pod is made that tolerates the taint of one of two nodes: clustertree has its copies tolerate what the annotation says.
async fn node_of_volume(seed: u64, annotations: &Value) -> String {
    let bench = Bench::new(seed, 1, &Settings { nodes: 2, ..fixture::steady(STEP) }).await;
    *lock(&bench.kosmos_clusters) = KosmosClusters::Auto;
    bench.host.delete("secrets", DRIVER_NAMESPACE, "m0").unwrap();
    define(&bench);
    join(&bench, "m0", 0, &json!({}));
    bench.start();
    bench.serves().await;
    sleep(STEP * 20).await;
    let set_apart = |node: &mut Value| {
        node["metadata"]["labels"]["disk"] = json!("ssd");
        node["spec"]["taints"] = json!([{"key": "dedicated", "value": "shop", "effect": "NoSchedule"}]);
    };
    bench.members[0].change("nodes", "", "m0-n1", set_apart).unwrap();
    let volume = json!({"name": "d", "persistentVolumeClaim": {"claimName": "data"}});
    let tolerations = json!([{"key": "dedicated", "operator": "Exists"}]);
    let pod = json!({
        "metadata": {"name": "web", "namespace": SHOP, "annotations": annotations},
        "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [volume], "tolerations": tolerations},
    });
    bench.host.create("pods", pod).unwrap();
    let script = Script { places: vec![0], leaf_class: fixture::LATER, node_selected: true, ..Script::new("data") };
    let made = timeout(Duration::from_mins(2), Caller::new(&bench, script).provision()).await;
    assert_eq!(made.ok(), Some(Ending::Provisioned), "{}", bench.guard.trace().join("\n"));
    nothing_is_wrong(&bench);
    node_of_leaf(&bench.members[0], "data")
}

#[test]
fn volume_is_made_where_clustertrees_copy_of_its_pod_can_run() {
    let said = json!({"nodeSelector": {"disk": "ssd"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]});
    let annotations = json!({"kosmos.io/cluster-selector": said.to_string()});
    for seed in 1..=4 {
        assert_eq!(virtual_time::run(seed, node_of_volume(seed, &json!({}))), "m0-n2", "seed {seed}");
        assert_eq!(virtual_time::run(seed, node_of_volume(seed, &annotations)), "m0-n1", "seed {seed}");
    }
}
