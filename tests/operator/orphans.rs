//! What has lost its other half, and the removal of one orphan at a time.

use domain::volume::{
    HostId, VolumeHash, VolumeId,
    snapshot::{leaf_group_name, leaf_name},
};
use serde_json::{Value, json};
use simulate::{storage::definitions, text};

use crate::clusters::{CLAIMS, Clusters, NAMESPACE, SECRETS, VOLUMES, identity, kubeconfig};

const NOW: &str = "--interval=0s --older-than=0s";
/// The UID of a claim that the host has no more.
const GONE: &str = "ad86ef86-23c1-407e-a8e7-0b3e44d36254";

fn hash(clusters: &Clusters, name: &str) -> VolumeHash {
    VolumeHash::new(&HostId(identity(&clusters.host)), name)
}

/// A leaf claim in m0 as the driver makes them, bound to a volume that would go with it.
pub fn leaf(clusters: &Clusters, claim: &str, name: &str) {
    let member = &clusters.members[0];
    let _ = member.create("namespaces", json!({"metadata": {"name": "shop"}}));
    let labels = json!({
        "app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(&clusters.host),
        "kosmos.csi.io/volume": hash(clusters, name).to_string(),
    });
    let size = json!({"storage": "1Gi"});
    let made = json!({
        "metadata": {
            "name": claim, "namespace": "shop", "labels": labels, "finalizers": ["kosmos.csi.io/protect"],
            "annotations": {"kosmos.csi.io/name": name, "kosmos.csi.io/claim": format!("shop/{claim}"), "kosmos.csi.io/claim-uid": GONE},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": size}, "storageClassName": "fast",
            "volumeName": format!("pv-{claim}"), "volumeMode": "Filesystem",
        },
    });
    let made = member.create(CLAIMS, made).unwrap();
    let bound = |claim: &mut Value| {
        claim["status"] = json!({"phase": "Bound", "capacity": size});
        // Nobody here takes Kubernetes' own away.
        claim["metadata"]["finalizers"] = json!(["kosmos.csi.io/protect"]);
    };
    member.change(CLAIMS, "shop", claim, bound).unwrap();
    let reference = json!({"namespace": "shop", "name": claim, "uid": made["metadata"]["uid"]});
    let volume = json!({
        "metadata": {"name": format!("pv-{claim}"), "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": size, "claimRef": reference, "storageClassName": "fast",
            "persistentVolumeReclaimPolicy": "Delete", "csi": {"driver": "x.io", "volumeHandle": claim},
        },
    });
    member.create(VOLUMES, volume).unwrap();
}

/// The host's volume of such a leaf.
pub fn host_volume(clusters: &Clusters, claim: &str, name: &str) {
    let handle = VolumeId::new("m0", "shop", claim, hash(clusters, name)).to_string();
    let volume = json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle},
        },
    });
    clusters.host.create(VOLUMES, volume).unwrap();
}

/// What host and member need besides, so that nothing is wrong.
pub fn complete(clusters: &Clusters) {
    let host = &clusters.host;
    host.create("csidrivers.storage.k8s.io", json!({"metadata": {"name": "kosmos.csi.io"}, "spec": {}})).unwrap();
    for (cluster, provisioner) in [(host, "kosmos.csi.io"), (&clusters.members[0], "nobody.example")] {
        let class = json!({"metadata": {"name": "fast"}, "provisioner": provisioner,
            "parameters": {"leafStorageClass": "fast"}});
        cluster.create("storageclasses.storage.k8s.io", class).unwrap();
    }
    let renewed = k8s_openapi::jiff::Timestamp::now().to_string();
    let lease =
        json!({"metadata": {"name": "kosmos-csi-leader", "namespace": "kosmos-csi"}, "spec": {"renewTime": renewed}});
    host.create("leases.coordination.k8s.io", lease).unwrap();
}

#[tokio::test]
async fn status_shows_all_of_it_on_one_screen_and_what_is_not_well() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    clusters
        .refuses("status", &["driver", "NOT WELL: CSIDriver kosmos.csi.io is missing", "no controller has ever"])
        .await;
    complete(&clusters);
    host_volume(&clusters, "db", "pvc-1");
    clusters.host.change(VOLUMES, "", "pvc-1", |volume| volume["status"] = json!({"phase": "Bound"})).unwrap();
    let controller = json!({
        "metadata": {"name": "kosmos-csi-controller", "namespace": "kosmos-csi", "labels": {"app.kubernetes.io/name": "kosmos-csi"}},
        "spec": {"replicas": 2, "selector": {}, "template": {"spec": {"containers": [{"name": "driver", "image": "k:0.1.0"}]}}},
    });
    clusters.host.create("deployments.apps", controller).unwrap();
    let ready = |count: u32| {
        let ready = |one: &mut Value| one["status"] = json!({"readyReplicas": count});
        clusters.host.change("deployments.apps", "kosmos-csi", "kosmos-csi-controller", ready).unwrap();
    };
    let nodes = json!({
        "metadata": {"name": "kosmos-csi-node-m0", "namespace": "kosmos-csi-node", "labels": {"app.kubernetes.io/name": "kosmos-csi"}},
        "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "node", "image": "n:0.1.0"}]}}},
    });
    let _ = clusters.host.create("namespaces", json!({"metadata": {"name": "kosmos-csi-node"}}));
    clusters.host.create("daemonsets.apps", nodes).unwrap();
    ready(2);
    let told = clusters.does("status").await;
    assert!(told.contains("DaemonSet kosmos-csi-node/kosmos-csi-node-m0   none wanted, n:0.1.0"), "{told}");
    let rows: Vec<String> = told.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "members 1 of 1 answer",
        "volumes 1 Bound",
        "Deployment kosmos-csi/kosmos-csi-controller 2 of 2 ready, k:0.1.0",
    ] {
        assert!(rows.iter().any(|line| line == row), "{row}: {told}");
    }
    ready(1);
    let json: Value = serde_json::from_str(&clusters.type_in("status -o json").await.unwrap().text).unwrap();
    let ill: Vec<&Value> = json["items"].as_array().unwrap().iter().filter(|one| one["well"] == false).collect();
    assert!(json["kind"] == "StatusList" && ill.len() == 1 && ill[0]["state"] == "1 of 2 ready, k:0.1.0", "{json:#}");
}

/// As a leaf volume is kept for the host's volume of that name when its leaf claim has been let go.
fn kept(clusters: &Clusters, name: &str, of: &str) {
    let labels = json!({
        "app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(&clusters.host),
        "kosmos.csi.io/volume": hash(clusters, of).to_string(),
    });
    let volume = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "fast",
            "claimRef": {"namespace": "shop", "name": "db", "uid": GONE}, "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": "x.io", "volumeHandle": name},
        },
    });
    clusters.members[0].create(VOLUMES, volume).unwrap();
}

/// It says that what is nobody's may be removed, with the storage behind it.
#[tokio::test]
async fn doctor_does_not_call_nobodys_the_data_that_a_claim_of_a_restored_host_waits_for() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    complete(&clusters);
    let _ = clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}}));
    let claim = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = clusters.host.create(CLAIMS, claim).unwrap();
    kept(&clusters, "pv-db", &format!("pvc-{}", text(&claim, "/metadata/uid")));
    let told = clusters.does(&format!("doctor {NOW}")).await;
    assert!(told.contains("Nothing is wrong"), "{told}");
    kept(&clusters, "pv-other", &format!("pvc-{GONE}"));
    clusters.refuses(&format!("doctor {NOW}"), &["kept:m0/pv-other"]).await;
}

#[tokio::test]
async fn doctor_tells_of_everything_that_has_lost_its_other_half() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    complete(&clusters);
    leaf(&clusters, "well", "pvc-1");
    host_volume(&clusters, "well", "pvc-1");
    let told = clusters.does(&format!("doctor {NOW}")).await;
    assert!(
        told.contains("Nothing is wrong") && told.contains("1 volumes of the host and 1 leaf claims in 1 of 1"),
        "{told}"
    );
    leaf(&clusters, "db", "pvc-2");
    host_volume(&clusters, "gone", "pvc-3");
    clusters.refuses(&format!("doctor {NOW}"), &["leaf:m0/shop/db", "volume:pvc-3"]).await;
    let young = clusters.type_in("doctor --interval=0s -o json").await.unwrap();
    let young: Value = serde_json::from_str(&young.text).unwrap();
    assert_eq!((young["notJudgedYet"].as_i64(), young["items"].as_array().unwrap().len()), (Some(1), 1), "{young}");
    let claim = json!({"metadata": {"name": "waits", "namespace": "shop"}, "spec": {"storageClassName": "fast",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let _ = clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}}));
    let claim = clusters.host.create(CLAIMS, claim).unwrap();
    let warning = json!({
        "metadata": {"name": "e", "namespace": "shop"}, "type": "Warning", "reason": "ProvisioningFailed", "message": "no room",
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": "waits", "namespace": "shop", "uid": claim["metadata"]["uid"]},
    });
    clusters.host.create("events", warning).unwrap();
    let told = clusters.type_in(&format!("doctor {NOW}")).await.unwrap().text;
    assert!(!told.contains("claim:"), "it may be on its way: {told}");
    let aged = |claim: &mut Value| claim["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    clusters.host.change(CLAIMS, "shop", "waits", aged).unwrap();
    clusters.refuses(&format!("doctor {NOW}"), &["claim:shop/waits", "no room"]).await;
    clusters.members[0].delete("storageclasses.storage.k8s.io", "", "fast").unwrap();
    clusters.refuses(&format!("doctor {NOW}"), &["class:fast", "m0 has no fast"]).await;
}

const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";

/// A leaf snapshot in m0 as the driver makes them, alone or in a group; its handle.
fn snapshot(clusters: &Clusters, name: &str, group: Option<VolumeHash>) -> String {
    let host = HostId(identity(&clusters.host));
    let hash = VolumeHash::of_snapshot(&host, name);
    let source = VolumeId::new("m0", "shop", "well", VolumeHash::new(&host, "pvc-1"));
    let mut made = json!({
        "metadata": {
            "name": leaf_name(hash), "namespace": "shop",
            "labels": {
                "app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host.0,
                "kosmos.csi.io/snapshot": hash.to_string(),
            },
            "annotations": {
                "kosmos.csi.io/source": source.to_string(), "kosmos.csi.io/driver": "x.io",
                "kosmos.csi.io/content": format!("content-of-{name}"),
            },
        },
        "spec": {"source": {"persistentVolumeClaimName": "well"}},
    });
    if let Some(group) = group {
        made["metadata"]["labels"]["kosmos.csi.io/group"] = json!(group.to_string());
    }
    clusters.members[0].create(SNAPSHOTS, made).unwrap();
    VolumeId::new("m0", "shop", &leaf_name(hash), hash).to_string()
}

#[tokio::test]
async fn doctor_names_snapshots_and_groups_to_which_no_record_of_the_host_leads() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    complete(&clusters);
    definitions::install(&clusters.members[0]).unwrap();
    leaf(&clusters, "well", "pvc-1");
    host_volume(&clusters, "well", "pvc-1");
    let handle = snapshot(&clusters, "photo", None);
    let named = format!("snapshot:{}", handle.rsplit_once('/').unwrap().0);
    // A host that was recreated has no such kinds yet.
    clusters.refuses(&format!("doctor {NOW}"), &[&named, &handle]).await;
    definitions::install(&clusters.host).unwrap();
    let record = |name: &str, handle: &str| {
        let record = json!({"metadata": {"name": name}, "spec": {"driver": "kosmos.csi.io"}});
        clusters.host.create(CONTENTS, record).unwrap();
        if !handle.is_empty() {
            let tell = |record: &mut Value| record["status"] = json!({"snapshotHandle": handle});
            clusters.host.change(CONTENTS, "", name, tell).unwrap();
        }
    };
    for (name, handle) in [("content-of-photo", ""), ("made-by-hand", handle.as_str())] {
        record(name, handle);
        let told = clusters.does(&format!("doctor {NOW}")).await;
        assert!(told.contains("Nothing is wrong"), "{name}: {told}");
        clusters.host.delete(CONTENTS, "", name).unwrap();
        clusters.refuses(&format!("doctor {NOW}"), &[&named]).await;
    }
    record("made-by-hand", &handle);
    let group = VolumeHash::of_group(&HostId(identity(&clusters.host)), "shot");
    for part in ["left", "right"] {
        snapshot(&clusters, part, Some(group));
    }
    let told = clusters.type_in(&format!("doctor {NOW}")).await.unwrap().text;
    let named = format!("group:m0/shop/{}", leaf_group_name(group));
    assert!(told.matches(&named).count() == 1 && !told.contains("snapshot:"), "{told}");
}

#[tokio::test]
async fn doctor_names_what_the_host_lacks_and_judges_no_member_that_is_silent() {
    let clusters = Clusters::new(1);
    clusters.refuses(&format!("doctor {NOW}"), &["host:csidriver", "host:class", "host:lease"]).await;
    complete(&clusters);
    clusters.join().await;
    host_volume(&clusters, "gone", "pvc-3");
    clusters.pin("m0", 0);
    let other = |map: &mut Value| map["data"]["m0"] = json!("another");
    clusters.host.change("configmaps", "kosmos-csi", "kosmos-csi-members", other).unwrap();
    let report = clusters.type_in(&format!("doctor {NOW}")).await.unwrap();
    assert!(report.text.contains("member:m0") && report.text.contains("not compared"), "{}", report.text);
    assert!(!report.text.contains("volume:"), "it is not judged: {}", report.text);
}

/// A second name of a member's cluster: what handles say of it is in the member that serves.
#[tokio::test]
async fn leaf_of_a_volume_whose_handle_says_a_second_name_is_no_orphan() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    complete(&clusters);
    leaf(&clusters, "db", "pvc-1");
    host_volume(&clusters, "db", "pvc-1");
    let by_twin = |volume: &mut Value| {
        let handle = text(volume, "/spec/csi/volumeHandle").replacen("m0/", "twin/", 1);
        volume["spec"]["csi"]["volumeHandle"] = json!(handle);
    };
    clusters.host.change(VOLUMES, "", "pvc-1", by_twin).unwrap();
    let twin = |server: &str| json!({"kubeconfig": k8s_openapi::ByteString(kubeconfig(server).into_bytes())});
    let metadata = json!({"name": "twin", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": "twin"}});
    clusters.host.create(SECRETS, json!({"metadata": metadata, "data": twin("https://m0")})).unwrap();
    let told = clusters.type_in(&format!("doctor {NOW}")).await.unwrap().text;
    assert!(told.contains("compared as those of m0") && !told.contains("leaf:") && !told.contains("volume:"), "{told}");
    clusters.refuses(&format!("doctor remove leaf:m0/shop/db {NOW}"), &["it is no orphan"]).await;
    let elsewhere = twin("https://nowhere");
    clusters.host.change(SECRETS, NAMESPACE, "twin", |secret| secret["data"] = elsewhere).unwrap();
    let told = clusters.type_in(&format!("doctor {NOW}")).await.unwrap().text;
    assert!(told.contains("member:twin") && !told.contains("leaf:"), "it may be anybody's name: {told}");
}

#[tokio::test]
async fn orphan_is_removed_and_its_data_stays() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "db", "pvc-2");
    let remove = format!("doctor remove leaf:m0/shop/db {NOW}");
    let member = &clusters.members[0];
    let plan = clusters.does(&format!("{remove} --dry-run")).await;
    assert!(plan.contains("would be removed") && member.get(CLAIMS, "shop", "db").is_some(), "{plan}");
    let told = clusters.does(&remove).await;
    assert!(told.contains("retained, with its data") && told.contains("kubectl delete pv pv-db"), "{told}");
    assert!(member.get(CLAIMS, "shop", "db").is_none());
    assert_eq!(text(&member.get(VOLUMES, "", "pv-db").unwrap(), "/spec/persistentVolumeReclaimPolicy"), "Retain");
    clusters.refuses(&remove, &["it is no orphan"]).await;
    clusters.refuses(&format!("doctor {NOW}"), &["kept:m0/pv-db"]).await;
}

#[tokio::test]
async fn data_goes_only_where_that_is_said() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "db", "pvc-2");
    let member = &clusters.members[0];
    clusters.does(&format!("doctor remove leaf:m0/shop/db {NOW} --data-will-be-lost")).await;
    assert!(member.get(CLAIMS, "shop", "db").is_none());
    assert_eq!(text(&member.get(VOLUMES, "", "pv-db").unwrap(), "/spec/persistentVolumeReclaimPolicy"), "Delete");
}

#[tokio::test]
async fn whatever_speaks_against_it_keeps_an_orphan() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "db", "pvc-2");
    let (member, remove) = (&clusters.members[0], format!("doctor remove leaf:m0/shop/db {NOW}"));
    clusters.refuses("doctor remove leaf:m0/shop/db --interval=0s", &["younger than 1h"]).await;
    clusters.refuses(&format!("doctor remove leaf:m9/shop/db {NOW}"), &["no orphan"]).await;
    clusters.refuses(&format!("doctor remove kept:m0/pv-db {NOW}"), &["only what begins with leaf:"]).await;
    let note = |key: &'static str, value: &'static str| {
        let put = move |claim: &mut Value| claim["metadata"]["annotations"][key] = json!(value);
        member.change(CLAIMS, "shop", "db", put).unwrap();
    };
    note("kosmos.csi.io/had-pv", "u");
    clusters.refuses(&remove, &["a volume of the host used it once", "--data-will-be-lost"]).await;
    note("kosmos.csi.io/published", r#"{"virtual/m0":{"access":"ReadWriteOnce"}}"#);
    clusters.refuses(&format!("{remove} --data-will-be-lost"), &["a node still has it"]).await;
    note("kosmos.csi.io/published", "");
    let claim = json!({
        "metadata": {"name": "db", "namespace": "default", "uid": GONE},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"},
    });
    let claim = clusters.host.create(CLAIMS, claim).unwrap();
    let uid = text(&claim, "/metadata/uid").to_owned();
    let now_there = move |leaf: &mut Value| leaf["metadata"]["annotations"]["kosmos.csi.io/claim-uid"] = json!(uid);
    member.change(CLAIMS, "shop", "db", now_there).unwrap();
    clusters.refuses(&format!("{remove} --data-will-be-lost"), &["no orphan"]).await;
    assert!(member.get(CLAIMS, "shop", "db").is_some());
}

/// Its user has given it a volume that was there already, while one was made for it.
#[tokio::test]
async fn orphan_is_removed_also_where_its_claim_is_there_with_another_volume() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "db", "pvc-2");
    host_volume(&clusters, "other", "pvc-1");
    let claim = json!({
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
            "volumeName": "pvc-1"},
    });
    let claim = clusters.host.create(CLAIMS, claim).unwrap();
    let uid = text(&claim, "/metadata/uid").to_owned();
    let member = &clusters.members[0];
    let now_there = move |leaf: &mut Value| leaf["metadata"]["annotations"]["kosmos.csi.io/claim-uid"] = json!(uid);
    member.change(CLAIMS, "shop", "db", now_there).unwrap();
    let told = clusters.does(&format!("doctor remove leaf:m0/shop/db {NOW}")).await;
    assert!(told.contains("retained, with its data") && member.get(CLAIMS, "shop", "db").is_none(), "{told}");
}
