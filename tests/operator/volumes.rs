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
    clusters.refuses(IMPORT, &["knows no member m0 yet", "member add m0 --member-kubeconfig FILE"]).await;
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
async fn import_that_was_cut_short_says_what_it_did_and_is_finished_by_the_next_one() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    ledger(&clusters, "Bound");
    let import = format!("{IMPORT} --apply --volume=ledger --host-claim=books/all");
    let done =
        ["PersistentVolumeClaim shop/ledger", "consents now", "PersistentVolume ledger", "Not all was done", "create "];
    clusters.refuses(&import, &done).await;
    let volume = clusters.host.get(VOLUMES, "", "ledger");
    assert!(volume.is_some());
    clusters.refuses(&import.replace("books/all", "books/some"), &["PersistentVolume ledger is there already"]).await;
    clusters.host.create("namespaces", json!({"metadata": {"name": "books"}})).unwrap();
    let told = clusters.does(&import).await;
    assert!(told.matches("was there\n").count() == 1 && told.contains("consented before"), "{told}");
    assert_eq!(clusters.host.get(VOLUMES, "", "ledger"), volume);
    assert!(clusters.host.get(CLAIMS, "books", "all").is_some());
    assert_eq!(clusters.does(&import).await.matches("was there\n").count(), 2);
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
    // All is well for all that: what the warning is about may have passed.
    let told = clusters.does("trace shop/db").await;
    for words in ["the storage is on fire (", "d ago)", "m0/shop/db/", "answers as", "shop/db", "pv-db"] {
        assert!(told.contains(words), "{words}: {told}");
    }
    let steps: Vec<&str> = told.lines().skip(1).filter_map(|row| row.split("   ").next()).collect();
    let order = ["host claim", "host volume", "member", "leaf claim", "leaf volume"];
    let places: Vec<Option<usize>> = order.iter().map(|step| steps.iter().position(|found| found == step)).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{told}");
}

/// A claim of the host that has a volume, or waits for one.
fn claim(clusters: &Clusters, name: &str, volume: &str) {
    let _ = clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}}));
    let mut claim = json!({
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}, "volumeMode": "Filesystem",
            "storageClassName": "kosmos"},
    });
    if !volume.is_empty() {
        claim["spec"]["volumeName"] = json!(volume);
    }
    clusters.host.create(CLAIMS, claim).unwrap();
}

fn pod(clusters: &Clusters, name: &str, claims: &[&str]) {
    let volumes: Value =
        claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    let spec = json!({"containers": [{"name": "main", "image": "x"}], "volumes": volumes});
    clusters.host.create("pods", json!({"metadata": {"name": name, "namespace": "shop"}, "spec": spec})).unwrap();
}

#[tokio::test]
async fn volumes_are_listed_with_their_members_their_pods_and_the_claims_that_wait() {
    let clusters = Clusters::new(1);
    assert_eq!(clusters.does("get volumes").await, "");
    let class = json!({"metadata": {"name": "kosmos"}, "provisioner": "kosmos.csi.io"});
    clusters.host.create("storageclasses.storage.k8s.io", class).unwrap();
    host_volume(&clusters, "db", "pvc-1");
    claim(&clusters, "db", "pvc-1");
    claim(&clusters, "waits", "");
    pod(&clusters, "db-0", &["db", "waits"]);
    let of = json!({"namespace": "shop", "name": "db"});
    clusters
        .host
        .change(VOLUMES, "", "pvc-1", |volume| {
            volume["spec"]["claimRef"] = of;
            volume["status"] = json!({"phase": "Bound"});
        })
        .unwrap();
    let told = clusters.does("get volumes -o wide").await;
    let rows: Vec<Vec<&str>> = told.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[1][..5], ["shop/db", "m0", "1Gi", "Bound", "db-0"], "{told}");
    assert_eq!(rows[2][..5], ["shop/waits", "-", "2Gi", "Pending", "db-0"], "{told}");
    assert_eq!((rows.len(), rows[1].last()), (3, Some(&"shop/db")), "{told}");
    assert_eq!(clusters.does("get volumes -n shop --member=m0 -o name").await, "persistentvolume/pvc-1\n");
    assert_eq!(clusters.does("get volumes --state=pending -o name").await, "persistentvolumeclaim/waits\n");
    let json: Value = serde_json::from_str(&clusters.does("get volumes -n none -o json").await).unwrap();
    assert_eq!((&json["kind"], &json["items"]), (&json!("VolumeList"), &json!([])));
}

#[tokio::test]
async fn trace_begins_at_a_pod_or_a_volume_too() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    leaf(&clusters, "db", "pvc-1");
    host_volume(&clusters, "db", "pvc-1");
    claim(&clusters, "db", "pvc-1");
    claim(&clusters, "log", "pvc-2");
    pod(&clusters, "db-0", &["db", "log"]);
    pod(&clusters, "idle", &[]);
    let of = json!({"namespace": "shop", "name": "db"});
    clusters.host.change(VOLUMES, "", "pvc-1", |volume| volume["spec"]["claimRef"] = of).unwrap();
    for words in ["trace shop/db", "trace pvc/db -n shop", "trace db --namespace=shop", "trace pv/pvc-1"] {
        let told = clusters.type_in(words).await.unwrap().text;
        for step in ["host claim    shop/db", "host volume   pvc-1", "m0/shop/db/", "leaf volume   pv-db"] {
            assert!(told.contains(step), "{words}: {step}: {told}");
        }
    }
    clusters.refuses("trace pod/db-0 -n shop", &["shop/db ", "shop/log ", "pvc-2"]).await;
    let class = json!({"metadata": {"name": "theirs"}, "provisioner": "x.io"});
    clusters.host.create("storageclasses.storage.k8s.io", class).unwrap();
    claim(&clusters, "theirs", "");
    clusters
        .host
        .change(CLAIMS, "shop", "theirs", |claim| claim["spec"]["storageClassName"] = json!("theirs"))
        .unwrap();
    pod(&clusters, "other", &["theirs"]);
    assert!(clusters.does("trace pod/other -n shop").await.contains("is of x.io, not of this driver"));
    assert!(clusters.does("trace pod/idle -n shop").await.contains("has no claim"));
    clusters.refuses("trace db", &["default/db", "is not there"]).await;
    clusters.refuses("trace shop/db -n books", &["shop/db is in another namespace than --namespace books"]).await;
    clusters.refuses("trace pv/pvc-9", &["pvc-9", "is not there"]).await;
    let steps: Value = serde_json::from_str(&clusters.type_in("trace shop/db -o json").await.unwrap().text).unwrap();
    assert_eq!((&steps["kind"], &steps["items"][0]["object"]), (&json!("StepList"), &json!("shop/db")));
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
    clusters.refuses("release shop/ledger --member-kubeconfig=$m0", &["this driver does not hold it"]).await;
    let other = |volume: &mut Value| volume["spec"]["claimRef"]["uid"] = json!("another");
    leaf(&clusters, "two", "pvc-2");
    member.change(VOLUMES, "", "pv-two", other).unwrap();
    let told = clusters.does("release shop/two --member-kubeconfig=$m0").await;
    assert!(told.contains("not this claim's"), "{told}");
}
