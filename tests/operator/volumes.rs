//! Single volumes: given to the host as they are, traced, and let go.

use serde_json::{Value, json};
use simulate::text;

use crate::{
    clusters::{CLAIMS, Clusters, VOLUMES, identity},
    orphans::{host_volume, leaf},
};

const IMPORT: &str = "import shop/ledger --member=m0 --member-kubeconfig=$m0";

/// Somebody's claim in m0.
fn ledger(clusters: &Clusters, phase: &str) {
    let member = &clusters.members[0];
    let _ = member.create("namespaces", json!({"metadata": {"name": "shop"}}));
    let claim = json!({
        "metadata": {"name": "ledger", "namespace": "shop"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem",
            "volumeName": "pv-ledger",
        },
    });
    member.create(CLAIMS, claim).unwrap();
    let status = json!({"phase": phase, "capacity": {"storage": "2Gi"}});
    member.change(CLAIMS, "shop", "ledger", |claim| claim["status"] = status).unwrap();
}

fn consent(clusters: &Clusters) -> String {
    let claim = clusters.members[0].get(CLAIMS, "shop", "ledger").unwrap();
    text(&claim, "/metadata/annotations/kosmos.csi.io~1consent").to_owned()
}

#[tokio::test]
async fn claim_is_imported_by_consent_and_by_objects_that_lead_to_it() {
    let clusters = Clusters::new(1);
    ledger(&clusters, "Bound");
    clusters.refuses(IMPORT, &["knows no member m0 yet"]).await;
    clusters.join().await;
    let printed = clusters.does(&format!("{IMPORT} --dry-run")).await;
    assert!(printed.contains("volumeHandle: m0/shop/ledger/") && consent(&clusters).is_empty(), "{printed}");
    assert_eq!(clusters.does(IMPORT).await, printed);
    assert_eq!(consent(&clusters), identity(&clusters.host));
    clusters.host.create("namespaces", json!({"metadata": {"name": "books"}})).unwrap();
    let told = clusters.does(&format!("{IMPORT} --apply --host-claim=books/all --volume=ledger")).await;
    assert!(told.contains("consented before") && told.contains("PersistentVolumeClaim books/all"), "{told}");
    let volume = clusters.host.get(VOLUMES, "", "ledger").unwrap();
    assert_eq!(text(&volume, "/spec/capacity/storage"), "2Gi");
    assert_eq!(text(&volume, "/spec/persistentVolumeReclaimPolicy"), "Retain");
    assert!(clusters.host.get(CLAIMS, "books", "all").is_some());
    clusters.refuses(IMPORT, &["uses that claim already", "ledger"]).await;
}

#[tokio::test]
async fn claim_that_may_not_be_given_is_left_without_consent() {
    let clusters = Clusters::new(2);
    clusters.join().await;
    ledger(&clusters, "Pending");
    clusters.refuses(IMPORT, &["shop/ledger of member m0", "only a bound claim"]).await;
    clusters.refuses(&IMPORT.replace("$m0", "$m1"), &["this name has always meant"]).await;
    clusters.refuses(&IMPORT.replace("ledger", "none"), &["has no claim shop/none"]).await;
    assert_eq!(consent(&clusters), "");
}

#[tokio::test]
async fn trace_goes_from_the_claim_to_the_leaf_volume() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    clusters.refuses("trace shop/db", &["host claim", "is not there"]).await;
    leaf(&clusters, "db", "pvc-1");
    host_volume(&clusters, "db", "pvc-1");
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    let claim = json!({
        "metadata": {"name": "db", "namespace": "shop"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pvc-1",
            "volumeMode": "Filesystem", "storageClassName": "",
        },
    });
    let claim = clusters.host.create(CLAIMS, claim).unwrap();
    let event = json!({
        "metadata": {"name": "e", "namespace": "shop"}, "type": "Warning", "reason": "ProvisioningFailed",
        "message": "the storage is on fire", "lastTimestamp": "2026-01-01T00:00:00Z",
        "involvedObject": {"kind": "PersistentVolumeClaim", "name": "db", "namespace": "shop", "uid": claim["metadata"]["uid"]},
    });
    clusters.host.create("events", event).unwrap();
    let told = clusters.does("trace shop/db").await;
    for words in ["the storage is on fire (", "d ago)", "m0/shop/db/", "answers as", "shop/db", "pv-db"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let steps: Vec<&str> = told.lines().skip(1).filter_map(|row| row.split("   ").next()).collect();
    let order = ["host claim", "host volume", "member", "leaf claim", "leaf volume"];
    let places: Vec<Option<usize>> = order.iter().map(|step| steps.iter().position(|found| found == step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{told}");
}

#[tokio::test]
async fn trace_finds_the_leaf_of_a_volume_that_another_claim_uses_now() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "again", "pvc-1");
    host_volume(&clusters, "db", "pvc-1");
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    let claim = json!({
        "metadata": {"name": "again", "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeName": "pvc-1",
            "volumeMode": "Filesystem", "storageClassName": ""},
    });
    clusters.host.create(CLAIMS, claim).unwrap();
    clusters.refuses("trace shop/again", &["m0/shop/db/", "is not there"]).await;
    let handle = text(&clusters.host.get(VOLUMES, "", "pvc-1").unwrap(), "/spec/csi/volumeHandle").to_owned();
    let says_it = |leaf: &mut Value| leaf["metadata"]["annotations"]["kosmos.csi.io/handle"] = json!(handle);
    clusters.members[0].change(CLAIMS, "shop", "again", says_it).unwrap();
    let told = clusters.does("trace shop/again").await;
    assert!(told.contains("leaf claim") && told.contains("shop/again"), "{told}");
}

#[tokio::test]
async fn leaf_claim_is_let_go_and_its_data_stays() {
    let clusters = Clusters::new(1);
    leaf(&clusters, "db", "pvc-1");
    let (member, release) = (&clusters.members[0], "release shop/db --member-kubeconfig=$m0");
    clusters.does(&format!("{release} --dry-run")).await;
    let policy = || text(&member.get(VOLUMES, "", "pv-db").unwrap(), "/spec/persistentVolumeReclaimPolicy").to_owned();
    assert_eq!(policy(), "Delete");
    clusters.does(release).await;
    assert_eq!(policy(), "Retain");
    let claim = member.get(CLAIMS, "shop", "db").unwrap();
    assert!(claim["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty), "{claim}");
    clusters.refuses(release, &["no finalizer kosmos.csi.io/protect"]).await;
    ledger(&clusters, "Bound");
    clusters.refuses("release shop/ledger --member-kubeconfig=$m0", &["nothing of this driver holds it"]).await;
    let other = |volume: &mut Value| volume["spec"]["claimRef"]["uid"] = json!("another");
    leaf(&clusters, "two", "pvc-2");
    member.change(VOLUMES, "", "pv-two", other).unwrap();
    let told = clusters.does("release shop/two --member-kubeconfig=$m0").await;
    assert!(told.contains("not this claim's"), "{told}");
}
