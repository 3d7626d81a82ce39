//! `verify`: what the host alone shows, with no member behind it.

use serde_json::{Value, json};

use crate::clusters::{Clusters, NAMESPACE};

const CAPACITIES: &str = "csistoragecapacities.storage.k8s.io";
const CLASSES: &str = "storageclasses.storage.k8s.io";

/// As the chart leaves it once its pods work.
fn install(clusters: &Clusters) {
    let host = &clusters.host;
    let wanted = json!({"attachRequired": true, "storageCapacity": true});
    host.create("csidrivers.storage.k8s.io", json!({"metadata": {"name": "kosmos.csi.io"}, "spec": wanted})).unwrap();
    for name in ["kosmos-csi-leader", "kosmos-csi-io", "external-attacher-leader-kosmos-csi-io"] {
        let renewed = k8s_openapi::jiff::Timestamp::now().to_string();
        let lease = json!({
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"holderIdentity": "controller-1", "renewTime": renewed},
        });
        host.create("leases.coordination.k8s.io", lease).unwrap();
    }
}

fn class(clusters: &Clusters, name: &str, parameters: &Value) {
    let class = json!({
        "metadata": {"name": name}, "provisioner": "kosmos.csi.io", "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": parameters,
    });
    clusters.host.create(CLASSES, class).unwrap();
}

/// As csi-provisioner writes it.
fn room(clusters: &Clusters, class: &str, member: &str, free: &str) {
    let labels = json!({"csi.storage.k8s.io/drivername": "kosmos.csi.io"});
    let capacity = json!({
        "metadata": {"name": format!("csisc-{class}-{member}"), "namespace": NAMESPACE, "labels": labels},
        "storageClassName": class, "capacity": free,
        "nodeTopology": {"matchLabels": {"topology.kosmos.csi.io/member": member}},
    });
    clusters.host.create(CAPACITIES, capacity).unwrap();
}

#[tokio::test]
async fn host_with_nothing_of_the_driver_is_not_well_and_says_what_is_missing() {
    let clusters = Clusters::new(0);
    let words = ["NOT WELL: CSIDriver kosmos.csi.io is missing", "NOT WELL: no controller has ever worked here"];
    clusters.refuses("verify", &words).await;
}

#[tokio::test]
async fn release_is_well_before_members_join_and_with_their_room() {
    let clusters = Clusters::new(0);
    install(&clusters);
    let told = clusters.does("verify").await;
    assert!(told.contains("none has the provisioner") && told.contains("`kosmos-csi member add`"), "{told}");
    class(&clusters, "fast", &json!({"leafStorageClass": "fast"}));
    room(&clusters, "fast", "m0", "5Gi");
    room(&clusters, "fast", "m1", "0");
    let told = clusters.does("verify").await;
    let rows: Vec<String> = told.lines().map(|row| row.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for row in [
        "class fast room in m0 (5Gi)",
        "csi-attacher controller-1, which renewed its lease",
        "member m1 no room for any class",
    ] {
        assert!(rows.iter().any(|told| told.starts_with(row)), "{row}: {told}");
    }
    let object: Value = serde_json::from_str(&clusters.does("verify -o json").await).unwrap();
    assert_eq!(object["kind"], "VerificationList");
}

#[tokio::test]
async fn class_by_which_no_volume_can_be_made_is_not_well() {
    let clusters = Clusters::new(0);
    install(&clusters);
    class(&clusters, "full", &json!({"leafStorageClass": "full"}));
    room(&clusters, "full", "m0", "0");
    clusters.refuses("verify", &["NOT WELL: no member has room for it (m0)"]).await;
    let clusters = Clusters::new(0);
    install(&clusters);
    class(&clusters, "slip", &json!({"leafStorageclass": "fast"}));
    clusters.refuses("verify", &["NOT WELL: ", "leafStorageclass"]).await;
}

#[tokio::test]
async fn what_is_not_there_yet_is_waited_for() {
    let clusters = Clusters::new(0);
    let told = async { clusters.does("verify --wait=1m").await };
    let comes = async { install(&clusters) };
    let (told, ()) = tokio::join!(told, comes);
    assert!(told.contains("CSIDriver kosmos.csi.io is there"), "{told}");
}
