//! A host whose cluster is lost: what it knew of its volumes is given to another cluster, which is the same host to its members.

mod nodes;

use std::fs;

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};

use crate::clusters::{CLAIMS, Clusters, NAMESPACE, PODS_NAMESPACE, SECRETS, VOLUMES, identity, kubeconfig};

const CLASSES: &str = "storageclasses.storage.k8s.io";
const MAPS: &str = "configmaps";
const DRIVERS: &str = "csidrivers.storage.k8s.io";
const ACCOUNTS: &str = "serviceaccounts";
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
const DRIVER: &str = "kosmos.csi.io";
/// Another host than both.
const THIRD: &str = "5d1c8c1e-0000-4000-8000-000000000003";
const TAKE_OVER: &str = "member add m0 --member-kubeconfig=$m0 --take-over";

/// As the driver of that host makes it.
fn handle(host: &str, claim: &str) -> String {
    format!("m0/shop/{claim}/{}", &hash(host, claim)[..16])
}

fn hash(host: &str, claim: &str) -> String {
    VolumeHash::new(&HostId(host.to_owned()), &format!("pvc-{claim}")).to_string()
}

/// A claim of the namespace shop with its volume, as they are once they are bound.
fn bind(clusters: &Clusters, claim: &str, policy: &str) {
    let name = format!("pvc-{claim}");
    let made = clusters.host.create(
        CLAIMS,
        json!({
            "metadata": {"name": claim, "namespace": "shop", "labels": {"app": claim}, "annotations": {
                "kosmos.csi.io/member": "m0", "pv.kubernetes.io/bind-completed": "yes", "team": "books",
            }},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "kosmos", "volumeName": name,
                "resources": {"requests": {"storage": "2Gi"}}},
        }),
    );
    let uid = text(&made.unwrap(), "/metadata/uid").to_owned();
    clusters
        .host
        .create(
            VOLUMES,
            json!({
                "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "kosmos",
                    "persistentVolumeReclaimPolicy": policy,
                    "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "shop", "name": claim, "uid": uid},
                    "csi": {"driver": DRIVER, "volumeHandle": handle(&identity(&clusters.host), claim),
                        "volumeAttributes": {"leafClaimUID": "u", "leafVolume": "v"}},
                },
            }),
        )
        .unwrap();
}

/// A host with one member and two volumes, its backup, and the cluster that comes in its place; with who it was.
async fn lost() -> (Clusters, String) {
    let mut clusters = Clusters::new(1);
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.host.create(CLASSES, json!({"metadata": {"name": "kosmos"}, "provisioner": DRIVER})).unwrap();
    clusters.host.create(CLASSES, json!({"metadata": {"name": "other"}, "provisioner": "nobody.example"})).unwrap();
    clusters.join().await;
    bind(&clusters, "db", "Delete");
    bind(&clusters, "ledger", "Retain");
    let other = json!({"metadata": {"name": "other"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": {"driver": "nobody.example", "volumeHandle": "x"}}});
    clusters.host.create(VOLUMES, other).unwrap();
    let told = clusters.does("host backup --output=$backup").await;
    assert!(told.contains("Volumes: 2, snapshots: 0, members: 1") && told.contains("No Secret"), "{told}");
    let former = identity(&clusters.host);
    clusters.rebuild_host();
    assert_ne!(identity(&clusters.host), former);
    clusters.refuses("host adopt $backup", &["no CSIDriver", "install the chart"]).await;
    clusters.host.create(DRIVERS, json!({"metadata": {"name": DRIVER}})).unwrap();
    (clusters, former)
}

/// What is said where something is left to do.
async fn said(clusters: &Clusters, words: &str) -> String {
    let report = clusters.type_in(words).await.unwrap_or_else(|error| panic!("{words}: {error}"));
    assert!(!report.well, "{}", report.text);
    report.text
}

/// Whatever protects it.
fn delete(clusters: &Clusters, kind: &str, namespace: &str, name: &str) {
    clusters.host.change(kind, namespace, name, |one| one["metadata"]["finalizers"] = json!([])).unwrap();
    clusters.host.delete(kind, namespace, name).unwrap();
}

fn backup(clusters: &Clusters) -> Value {
    serde_json::from_str(&fs::read_to_string(clusters.file("backup")).unwrap()).unwrap()
}

fn adopted(clusters: &Clusters, namespace: &str) -> Value {
    clusters
        .host
        .get(MAPS, namespace, "kosmos-csi-members")
        .map_or(Value::Null, |map| map["metadata"]["annotations"].clone())
}

/// Whoever may write a claim may have it say when it was written. Kubernetes takes times that hardly anybody else does.
#[tokio::test]
async fn claim_that_was_written_at_a_time_nobody_reads_keeps_no_backup_and_no_list_from_being_made() {
    let clusters = Clusters::new(1);
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.host.create(CLASSES, json!({"metadata": {"name": "kosmos"}, "provisioner": DRIVER})).unwrap();
    clusters.join().await;
    bind(&clusters, "db", "Delete");
    let written = json!([{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": "9999-12-31T23:59:59Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}]);
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let metadata = json!({"namespace": "shop", "name": "theirs", "managedFields": written});
    clusters.host.create(CLAIMS, json!({"metadata": metadata, "spec": spec})).unwrap();
    let told = clusters.does("host backup --output=$backup").await;
    assert!(told.contains("Volumes: 1"), "{told}");
    let told = clusters.does("get volumes").await;
    assert!(told.contains("db"), "{told}");
}

#[tokio::test]
async fn claims_of_a_lost_host_are_made_for_their_volumes_in_another_cluster_and_nothing_twice() {
    let (clusters, former) = lost().await;
    let plan = clusters.does("host adopt $backup --dry-run").await;
    assert!(plan.contains("WOULD BE MADE") && plan.contains("dry run"), "{plan}");
    assert!(clusters.host.list(VOLUMES).is_empty() && adopted(&clusters, NAMESPACE).is_null());

    let told = said(&clusters, "host adopt $backup").await;
    assert!(
        told.contains(&format!("This cluster is host {former}")) && told.contains("  m0: it has not joined yet"),
        "{told}"
    );
    for claim in ["db", "ledger"] {
        let made = clusters.host.get(CLAIMS, "shop", claim).unwrap();
        assert_eq!(
            made["metadata"]["annotations"],
            json!({"team": "books"}),
            "what was true of the former cluster is gone"
        );
        assert_eq!(
            (&made["metadata"]["labels"]["app"], text(&made, "/spec/resources/requests/storage")),
            (&json!(claim), "1Gi")
        );
        let volume = clusters.host.get(VOLUMES, "", &format!("pvc-{claim}")).unwrap();
        assert_eq!(volume["spec"]["claimRef"]["uid"], made["metadata"]["uid"], "nobody else can take it");
        assert_eq!(text(&volume, "/spec/csi/volumeHandle"), handle(&former, claim));
        assert_eq!(text(&volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by"), DRIVER);
    }
    assert!(clusters.host.get(VOLUMES, "", "other").is_none() && clusters.host.get(CLASSES, "", "other").is_none());
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        let by = identity(&clusters.host);
        let told = adopted(&clusters, namespace);
        assert_eq!((&told["kosmos.csi.io/host"], &told["kosmos.csi.io/cluster"]), (&json!(former), &json!(by)));
        let pins = clusters.host.get(MAPS, namespace, "kosmos-csi-members").unwrap();
        assert_eq!(text(&pins, "/data/m0"), identity(&clusters.members[0]));
    }

    let policies = |clusters: &Clusters| {
        ["db", "ledger"].map(|claim| {
            let volume = clusters.host.get(VOLUMES, "", &format!("pvc-{claim}")).unwrap();
            text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned()
        })
    };
    assert_eq!(policies(&clusters), ["Delete", "Retain"]);
    let volumes = clusters.host.list(VOLUMES);
    let again = said(&clusters, "host adopt $backup").await;
    assert!(again.contains("all was made before") && clusters.host.list(VOLUMES) == volumes, "{again}");
    delete(&clusters, CLAIMS, "shop", "db");
    delete(&clusters, VOLUMES, "", "pvc-db");
    said(&clusters, "host adopt $backup").await;
    assert!(clusters.host.get(CLAIMS, "shop", "db").is_none(), "what somebody has deleted since stays so");
    let written = fs::read_to_string(clusters.file("backup")).unwrap();
    assert!(!written.contains("canary") && !written.contains("token"), "{written}");
    clusters.refuses("host backup --output=$backup", &["--output", "File exists"]).await;
}

#[tokio::test]
async fn controller_and_agent_are_started_with_who_the_host_is_and_once() {
    let (clusters, former) = lost().await;
    let deployment = |namespace: &str| {
        json!({"metadata": {"name": "d", "namespace": namespace, "labels": {"app.kubernetes.io/name": "kosmos-csi"}},
            "spec": {"selector": {}, "template": {
                "metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        clusters.host.create("deployments.apps", deployment(namespace)).unwrap();
    }
    let told = said(&clusters, "host adopt $backup").await;
    assert!(told.contains("Restarted for that: Deployment kosmos-csi/d and Deployment kosmos-csi-pods/d"), "{told}");
    let version = |namespace: &str| {
        let one = clusters.host.get("deployments.apps", namespace, "d").unwrap();
        let notes = &one["spec"]["template"]["metadata"]["annotations"];
        assert_eq!(notes, &json!({"a": "b", "kosmos.csi.io/host": former}));
        text(&one, "/metadata/resourceVersion").to_owned()
    };
    let before = [NAMESPACE, PODS_NAMESPACE].map(version);
    said(&clusters, "host adopt $backup").await;
    assert_eq!([NAMESPACE, PODS_NAMESPACE].map(version), before);
}

#[tokio::test]
async fn volumes_are_taken_off_nodes_of_the_former_cluster_once_those_are_said_to_be_off() {
    let (clusters, former) = lost().await;
    let told = said(&clusters, "host adopt $backup").await;
    assert!(told.contains("  m0: it has not joined yet") && told.contains("--take-over"), "{told}");
    clusters.does(TAKE_OVER).await;
    let hash = hash(&former, "db");
    let nodes =
        json!({"real/gone": {"access": "ReadWriteOnce"}, "virtual/m0": {"access": "ReadWriteOnce"}}).to_string();
    let leaf = json!({
        "metadata": {"name": "db", "namespace": "shop", "annotations": {"kosmos.csi.io/published": nodes}, "labels": {
            "app.kubernetes.io/managed-by": DRIVER, "kosmos.csi.io/host": former, "kosmos.csi.io/volume": hash,
        }},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    clusters.members[0].create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.members[0].create(CLAIMS, leaf).unwrap();
    // A pod of this cluster is to have it on the virtual node, and the attacher has not asked yet.
    let node =
        json!({"metadata": {"name": "kosmos-m0"}, "spec": {"drivers": [{"name": DRIVER, "nodeID": "virtual/m0"}]}});
    clusters.host.create("csinodes.storage.k8s.io", node).unwrap();
    let attachment = json!({"metadata": {"name": "csi-1"}, "spec": {"attacher": DRIVER, "nodeName": "kosmos-m0",
        "source": {"persistentVolumeName": "pvc-db"}}});
    clusters.host.create(ATTACHMENTS, attachment).unwrap();

    let told = said(&clusters, "host adopt $backup").await;
    assert!(
        told.contains("pvc-db") && told.contains("real/gone") && told.contains("--former-cluster-is-off"),
        "{told}"
    );
    assert!(!told.contains("virtual/m0") && !told.contains("no node") && !told.contains("not joined"), "{told}");
    assert_eq!(clusters.host.list(ATTACHMENTS).len(), 1, "nobody has said so");
    for _ in 0..2 {
        let told = clusters.does("host adopt $backup --former-cluster-is-off").await;
        assert!(told.contains("real/gone") && told.contains("being detached"), "{told}");
        let all = clusters.host.list(ATTACHMENTS);
        let [detached] = all.iter().filter(|one| text(one, "/metadata/name") != "csi-1").collect::<Vec<_>>()[..] else {
            panic!("{all:?}");
        };
        assert_eq!(text(detached, "/metadata/annotations/csi.alpha.kubernetes.io~1node-id"), "real/gone");
        assert_eq!(text(detached, "/spec/source/persistentVolumeName"), "pvc-db");
        assert_eq!(detached["metadata"]["finalizers"], json!(["external-attacher/kosmos-csi-io"]));
        assert!(!text(detached, "/metadata/deletionTimestamp").is_empty(), "it is made to be deleted");
    }
}

/// Another cluster that has taken over, a volume that a virtual node of the former one has, and the labels of what was that one's.
async fn taken_over(claim: &str) -> (Clusters, Value) {
    let (clusters, former) = lost().await;
    said(&clusters, "host adopt $backup").await;
    clusters.does(TAKE_OVER).await;
    let labels = json!({"app.kubernetes.io/managed-by": DRIVER, "kosmos.csi.io/host": former});
    let mut leaf = json!({
        "metadata": {"name": claim, "namespace": "shop", "labels": labels, "annotations": {
            "kosmos.csi.io/published": json!({"virtual/m0/n1": {"access": "ReadWriteOnce"}}).to_string()}},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    leaf["metadata"]["labels"]["kosmos.csi.io/volume"] = json!(hash(&former, "db"));
    clusters.members[0].create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.members[0].create(CLAIMS, leaf).unwrap();
    (clusters, labels)
}

/// What stands for a member is not off with the former cluster.
#[tokio::test]
async fn volume_is_taken_off_a_virtual_node_once_no_pod_in_the_member_mounts_it() {
    let (clusters, labels) = taken_over("db").await;
    let pod = json!({"metadata": {"name": "db-0", "namespace": "shop", "labels": labels}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "db"}}]}});
    clusters.members[0].create("pods", pod).unwrap();
    let adopt = "host adopt $backup --former-cluster-is-off";
    let told = said(&clusters, adopt).await;
    assert!(told.contains("virtual/m0/n1") && told.contains("a pod in the member mounts it"), "{told}");
    assert!(clusters.host.list(ATTACHMENTS).is_empty());
    clusters.members[0].change("pods", "shop", "db-0", |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
    assert!(clusters.does(adopt).await.contains("is being detached"));
    assert_eq!(clusters.host.list(ATTACHMENTS).len(), 1);
}

/// Clustertree's copies have none, and a tenant of the member may mount any claim of his namespace.
#[tokio::test]
async fn volume_stays_on_a_virtual_node_while_a_pod_without_labels_of_ours_mounts_it() {
    let (clusters, _) = taken_over("db-v").await;
    let adopt = "host adopt $backup --former-cluster-is-off";
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    for (name, volume) in [
        ("theirs", json!({"name": "a", "persistentVolumeClaim": {"claimName": "db-v"}})),
        ("db", json!({"name": "v", "ephemeral": {"volumeClaimTemplate": template}})),
    ] {
        let pod = json!({"metadata": {"name": name, "namespace": "shop"}, "spec": {
            "containers": [{"name": "c", "image": "i"}], "volumes": [volume]}});
        clusters.members[0].create("pods", pod).unwrap();
        let told = said(&clusters, adopt).await;
        assert!(told.contains("a pod in the member mounts it") && clusters.host.list(ATTACHMENTS).is_empty(), "{told}");
        clusters.members[0].change("pods", "shop", name, |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
    }
    assert!(clusters.does(adopt).await.contains("is being detached"));
}

#[tokio::test]
async fn member_ends_what_the_former_cluster_may_do_only_where_its_administrator_says_so() {
    let (mut clusters, former) = lost().await;
    said(&clusters, "host adopt $backup").await;
    let tokens = format!("kosmos-csi-tokens-{former}");
    let (account, for_pods) = (format!("kosmos-csi-host-{former}"), format!("kosmos-csi-virtual-node-host-{former}"));
    let uids = |clusters: &Clusters| {
        let given = [(SECRETS, &tokens), (ACCOUNTS, &account), (ACCOUNTS, &for_pods)];
        given.map(|(kind, name)| {
            text(&clusters.members[0].get(kind, NAMESPACE, name).unwrap(), "/metadata/uid").to_owned()
        })
    };
    let before = uids(&clusters);
    let add = TAKE_OVER.replace(" --take-over", "");
    clusters.refuses(&add, &[&former, "--take-over", "Nothing was written"]).await;
    let plan = clusters.does(&format!("{TAKE_OVER} --dry-run")).await;
    assert!(plan.contains("would end") && uids(&clusters) == before, "{plan}");
    let told = clusters.does(TAKE_OVER).await;
    let after = uids(&clusters);
    assert!(told.matches("its tokens end within ten seconds").count() == 3, "{told}");
    assert!(
        before.iter().zip(&after).all(|(before, after)| before != after),
        "accounts go too: a token need not be bound to a Secret"
    );
    assert_eq!(
        clusters.members[0].list(ACCOUNTS).iter().filter(|one| text(one, "/metadata/name").contains("host")).count(),
        2
    );
    let told = clusters.does(&add).await;
    assert!(!told.contains("removed") && uids(&clusters) == after, "its own tokens are renewed: {told}");
    clusters.does("host adopt $backup").await;

    let now = std::mem::replace(&mut clusters.host, clusters.former_host.clone().unwrap());
    clusters.refuses(&add, &[&identity(&now), "--take-over", "Nothing was written"]).await;
    clusters
        .refuses("member remove m0 --force --member-kubeconfig=$m0", &[&identity(&now), "nothing was removed"])
        .await;
    assert_eq!(uids(&clusters), after, "a former cluster that comes back takes nothing away from the one of now");
}

/// A record says that it is another host, and the member has never heard of that one.
#[tokio::test]
async fn cluster_that_says_it_is_another_host_is_given_nothing_there_without_a_word() {
    let mut clusters = Clusters::new(1);
    let by = identity(&clusters.host);
    let other = "6f2a1c0e-9d57-4b4e-8a31-5c1d2e3f4a5b";
    clusters
        .host
        .create(
            MAPS,
            json!({"metadata": {"name": "kosmos-csi-members", "namespace": NAMESPACE, "annotations": {
        "kosmos.csi.io/host": other, "kosmos.csi.io/cluster": by}}}),
        )
        .unwrap();
    let add = TAKE_OVER.replace(" --take-over", "");
    clusters.refuses(&add, &[other, "by its own record", "--take-over"]).await;
    assert!(clusters.members[0].list(SECRETS).is_empty());
    clusters.does(TAKE_OVER).await;
    clusters.does(&add).await;
    clusters.rebuild_host();
    clusters.does(&add).await;
}

/// It was let in as the host that it was by itself, and would be refused whatever it writes as the other one.
#[tokio::test]
async fn cluster_that_a_member_knows_as_another_host_is_given_nothing() {
    let (clusters, former) = lost().await;
    let add = TAKE_OVER.replace(" --take-over", "");
    clusters.does(&add).await;
    clusters.refuses("host adopt $backup", &["m0: members that know", "member remove", "Nothing was written"]).await;
    assert!(clusters.host.list(VOLUMES).is_empty());
    clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    said(&clusters, "host adopt $backup").await;
    clusters.does(TAKE_OVER).await;
    let told = clusters.does("host adopt $backup").await;
    assert!(told.contains(&former) && !told.contains("--take-over"), "{told}");
}

/// Nothing in such a member tells the former cluster from this one.
#[tokio::test]
async fn member_whose_account_may_be_any_hosts_is_used_only_where_the_former_cluster_is_said_to_be_off() {
    let (clusters, _) = lost().await;
    let secret = json!({"metadata": {"name": "m0", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/member": "m0"}},
        "stringData": {"kubeconfig": kubeconfig("https://m0")}});
    clusters.host.create(SECRETS, secret).unwrap();
    clusters.refuses("host adopt $backup", &["m0", "--former-cluster-is-off", "Nothing was written"]).await;
    assert!(clusters.host.list(VOLUMES).is_empty() && adopted(&clusters, NAMESPACE).is_null());
    clusters.does("host adopt $backup --former-cluster-is-off").await;
    assert_eq!(clusters.host.list(VOLUMES).len(), 2);
    let told = said(&clusters, "host adopt $backup").await;
    assert!(told.contains("m0: its account may be any host's"), "{told}");
}

#[tokio::test]
async fn wrong_cluster_and_one_where_claims_wait_are_given_nothing() {
    let (clusters, _) = lost().await;
    let mut of_this = backup(&clusters);
    of_this["members"]["m0"] = json!(identity(&clusters.host));
    fs::write(clusters.file("of-this"), of_this.to_string()).unwrap();
    clusters.refuses("host adopt $of-this", &["this cluster is member m0", "Nothing was written"]).await;
    assert!(clusters.host.list(CLASSES).is_empty());
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.host.create(CLASSES, json!({"metadata": {"name": "kosmos"}, "provisioner": DRIVER})).unwrap();
    let waits = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "kosmos", "resources": {"requests": {"storage": "1Gi"}}}});
    clusters.host.create(CLAIMS, waits).unwrap();
    clusters.refuses("host adopt $backup", &["shop/db", "delete them first", "Nothing was written"]).await;
    delete(&clusters, CLAIMS, "shop", "db");
    said(&clusters, "host adopt $backup").await;
}

/// By a driver that was not restarted yet, while the others were made.
#[tokio::test]
async fn volume_that_was_made_as_the_host_of_before_is_named_at_the_end() {
    let (clusters, _) = lost().await;
    said(&clusters, "host adopt $backup").await;
    bind(&clusters, "late", "Delete");
    let told = said(&clusters, "host adopt $backup").await;
    assert!(told.contains("Made meanwhile") && told.contains("pvc-late"), "{told}");
}

/// A quota, a webhook: the others need not wait for a person.
#[tokio::test]
async fn object_that_the_new_host_refuses_keeps_no_other_one_back() {
    let (clusters, former) = lost().await;
    let mut odd = backup(&clusters);
    assert_eq!(odd["volumes"][1]["claim"]["metadata"]["name"], "ledger");
    odd["volumes"][1]["claim"]["spec"]["accessModes"] = json!([]);
    fs::write(clusters.file("odd"), odd.to_string()).unwrap();
    let told = said(&clusters, "host adopt $odd").await;
    assert!(told.contains("Left: PersistentVolumeClaim shop/ledger: "), "{told}");
    assert!(clusters.host.get(VOLUMES, "", "pvc-ledger").is_none(), "without its claim it would be nobody's");
    assert_eq!(adopted(&clusters, NAMESPACE)["kosmos.csi.io/host"], json!(former));
    let policy = || {
        let volume = clusters.host.get(VOLUMES, "", "pvc-db").unwrap();
        assert!(volume["metadata"]["annotations"].get("kosmos.csi.io/policy-before").is_none());
        text(&volume, "/spec/persistentVolumeReclaimPolicy").to_owned()
    };
    assert_eq!(policy(), "Delete");
    let protect = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    clusters.host.change(VOLUMES, "", "pvc-db", protect).unwrap();
    said(&clusters, "host adopt $backup").await;
    assert!(clusters.host.get(VOLUMES, "", "pvc-ledger").is_some());
    assert_eq!(policy(), "Retain", "what people have made of it meanwhile stays");
}

/// He decides while its claim is looked at.
#[tokio::test]
async fn volume_that_an_administrator_keeps_meanwhile_is_not_given_its_policy_back() {
    let (clusters, _) = lost().await;
    let host = clusters.host.clone();
    clusters.host.faults().set(move |asked| {
        if asked.verb == Verb::Patch && asked.name == "pvc-db" {
            let keep = |volume: &mut Value| {
                volume["metadata"]["annotations"].as_object_mut().unwrap().remove("kosmos.csi.io/policy-before");
            };
            host.change(VOLUMES, "", "pvc-db", keep).unwrap();
        }
        Action::Pass
    });
    said(&clusters, "host adopt $backup").await;
    let volume = clusters.host.get(VOLUMES, "", "pvc-db").unwrap();
    assert_eq!(text(&volume, "/spec/persistentVolumeReclaimPolicy"), "Retain");
}

#[tokio::test]
async fn record_that_is_lost_after_an_adoption_is_written_again_whatever_volumes_were_made_since() {
    let (clusters, former) = lost().await;
    said(&clusters, "host adopt $backup").await;
    bind(&clusters, "since", "Delete");
    let of_former = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = json!(handle(&former, "since"));
    clusters.host.change(VOLUMES, "", "pvc-since", of_former).unwrap();
    clusters.host.delete(MAPS, NAMESPACE, "kosmos-csi-members").unwrap();
    said(&clusters, "host adopt $backup").await;
    assert_eq!(adopted(&clusters, NAMESPACE)["kosmos.csi.io/host"], json!(former));
    assert!(clusters.host.get(VOLUMES, "", "pvc-since").is_some());
}

/// What is lost by mistake is made again where it was; the record came from another cluster once, and its word counts for nothing after that either.
#[tokio::test]
async fn host_that_lost_its_volumes_alone_stays_the_one_that_it_is() {
    let (mut clusters, former) = lost().await;
    clusters.host = clusters.former_host.take().unwrap();
    clusters.host.create(DRIVERS, json!({"metadata": {"name": DRIVER}})).unwrap();
    delete(&clusters, CLAIMS, "shop", "db");
    delete(&clusters, VOLUMES, "", "pvc-db");
    let copied = |map: &mut Value| {
        map["metadata"]["annotations"] = json!({"kosmos.csi.io/host": "another", "kosmos.csi.io/cluster": "elsewhere"});
    };
    clusters.host.change(MAPS, NAMESPACE, "kosmos-csi-members", copied).unwrap();
    let told = clusters.does("host adopt $backup").await;
    assert!(clusters.host.get(VOLUMES, "", "pvc-db").is_some() && !told.contains("This cluster is host"), "{told}");
    let said = adopted(&clusters, NAMESPACE);
    assert!(said.get("kosmos.csi.io/host").is_none() && !said["kosmos.csi.io/adopted"].is_null(), "{said}");
    let again = clusters.does("host adopt $backup").await;
    assert!(again.contains(&former) && again.contains("all was made before"), "{again}");
}

/// Volumes alone.
#[tokio::test]
async fn host_without_an_agent_is_told_what_to_do_where_one_comes_later() {
    let (clusters, _) = lost().await;
    let told = said(&clusters, "host adopt $backup --pods-namespace=nowhere").await;
    assert!(told.contains("no namespace for an agent") && told.contains("type this again"), "{told}");
    assert!(adopted(&clusters, PODS_NAMESPACE).is_null());
}

#[tokio::test]
async fn host_that_is_one_already_or_means_other_clusters_is_given_nothing() {
    let (clusters, _) = lost().await;
    clusters.pin("m0", 0);
    clusters.host.change(MAPS, NAMESPACE, "kosmos-csi-members", |map| map["data"]["m0"] = json!("elsewhere")).unwrap();
    clusters.refuses("host adopt $backup", &["member m0", "elsewhere", "Nothing was written"]).await;
    clusters.host.delete(MAPS, NAMESPACE, "kosmos-csi-members").unwrap();
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    bind(&clusters, "new", "Delete");
    clusters.refuses("host adopt $backup", &["one volume of the host (pvc-new)", "Nothing was written"]).await;
    assert!(adopted(&clusters, NAMESPACE).is_null() && clusters.host.get(CLAIMS, "shop", "db").is_none());
    delete(&clusters, VOLUMES, "", "pvc-new");
    said(&clusters, "host adopt $backup").await;
    let mut other = backup(&clusters);
    (other["host"], other["volumes"]) = (json!(THIRD), json!([]));
    fs::write(clusters.file("other"), other.to_string()).unwrap();
    clusters.refuses("host adopt $other", &["has taken over the volumes of host", THIRD]).await;
}

/// It would bring back what people had deleted before the newer one was made, and that one then what they have deleted since.
#[tokio::test]
async fn backup_that_is_older_than_the_one_of_which_all_was_made_is_refused_with_what_to_do() {
    let (clusters, _) = lost().await;
    let mut older = backup(&clusters);
    older["made"] = json!("2020-01-01T00:00:00Z");
    fs::write(clusters.file("older"), older.to_string()).unwrap();
    said(&clusters, "host adopt $backup").await;
    delete(&clusters, CLAIMS, "shop", "db");
    delete(&clusters, VOLUMES, "", "pvc-db");
    clusters.refuses("host adopt $older", &["2020-01-01T00:00:00Z", "is older", "kosmos.csi.io/adopted"]).await;
    assert!(clusters.host.get(VOLUMES, "", "pvc-db").is_none());
}

#[tokio::test]
async fn what_people_have_made_meanwhile_stays_and_is_named() {
    let (clusters, former) = lost().await;
    clusters.host.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    let own = json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}});
    clusters.host.create(CLAIMS, own).unwrap();
    let before = clusters.host.get(CLAIMS, "shop", "db");
    clusters
        .refuses(
            "host adopt $backup",
            &["PersistentVolumeClaim shop/db already exists", "delete it, and type this again"],
        )
        .await;
    assert_eq!(clusters.host.get(CLAIMS, "shop", "db"), before);
    assert!(
        clusters.host.get(VOLUMES, "", "pvc-db").is_none() && clusters.host.get(VOLUMES, "", "pvc-ledger").is_some()
    );
    assert_eq!(adopted(&clusters, NAMESPACE)["kosmos.csi.io/host"], json!(former));
    delete(&clusters, CLAIMS, "shop", "db");
    said(&clusters, "host adopt $backup").await;
    assert!(clusters.host.get(VOLUMES, "", "pvc-db").is_some());
}

#[tokio::test]
async fn backup_that_somebody_has_written_on_is_refused() {
    let (clusters, _) = lost().await;
    let backup = backup(&clusters);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "mine"}});
    for (path, put, said) in [
        ("/kind", json!("List"), "List"),
        ("/host", json!(""), "which host it is of"),
        ("/classes/0", role.clone(), "ClusterRoleBinding mine"),
        ("/volumes/0/claim", role.clone(), "ClusterRoleBinding mine"),
        ("/volumes/0/claim/metadata/namespace", json!("kube-system"), "kube-system/db"),
        ("/volumes/0/claim/spec/volumeName", json!("pvc-ledger"), "shop/db"),
        ("/volumes/0/volume/spec/csi/driver", json!("nobody.example"), "pvc-db"),
        ("/volumes/0/volume/kind", json!("Pod"), "Pod pvc-db"),
        ("/volumes/0/claim/apiVersion", json!("v1/x"), "shop/db"),
        ("/members", json!([]), "no backup of a host"),
    ] {
        let mut spoilt = backup.clone();
        *spoilt.pointer_mut(path).unwrap() = put;
        fs::write(clusters.file("spoilt"), spoilt.to_string()).unwrap();
        clusters.refuses("host adopt $spoilt", &[said]).await;
    }
    assert!(clusters.host.list(VOLUMES).is_empty() && adopted(&clusters, NAMESPACE).is_null());
}
