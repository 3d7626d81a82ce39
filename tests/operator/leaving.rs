//! What keeps a member from being removed and forgotten, and what is never taken away with it.

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::{storage::definitions, text};

use crate::clusters::{CLAIMS, Clusters, NAMESPACE, PODS_NAMESPACE, SECRETS, VOLUMES, identity};

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
const GROUP_CONTENTS: &str = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io";
const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const GROUPS: &str = "volumegroupsnapshots.groupsnapshot.storage.k8s.io";

#[tokio::test]
async fn accounts_of_a_member_are_taken_away_under_its_own_name_alone() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let own = format!("kosmos-csi-tokens-{}", identity(&clusters.host));
    let member = &clusters.members[0];
    let has_accounts = || member.get(SECRETS, NAMESPACE, &own).is_some() && !member.list(ROLES).is_empty();
    let typo = "member remove typo --member-kubeconfig=$m0";
    for typed in [typo, &format!("{typo} --force")] {
        clusters.refuses(typed, &["is member m0", "nothing was removed"]).await;
        assert!(has_accounts());
    }
    clusters.host.delete("configmaps", NAMESPACE, "kosmos-csi-members").unwrap();
    clusters.refuses(typo, &["is member m0", "nothing was removed"]).await;
    assert!(has_accounts(), "the agent has it on record still");
    clusters.pin("m0", 0);
    clusters.does("member remove m0").await;
    clusters.does("member forget m0").await;
    assert!(has_accounts());
    clusters.does(typo).await;
    assert!(!has_accounts(), "nobody has it on record any more");
}

#[tokio::test]
async fn member_with_snapshots_is_removed_and_forgotten_by_force_alone() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let host = &clusters.host;
    definitions::install(host).unwrap();
    let content = |name: &str, driver: &str, member: &str| {
        let source = json!({"snapshotHandle": format!("{member}/shop/s-1/0123456789abcdef")});
        let content = json!({"metadata": {"name": name}, "spec": {"driver": driver, "source": source}});
        host.create(CONTENTS, content).unwrap();
    };
    // It is being cut, and says of what alone.
    let source = json!({"volumeHandle": "m0/shop/db/0123456789abcdef"});
    let cutting = json!({"metadata": {"name": "cutting"}, "spec": {"driver": "kosmos.csi.io", "source": source}});
    host.create(CONTENTS, cutting).unwrap();
    clusters.refuses("member remove m0", &["it has one snapshot of the host (cutting)", "--force"]).await;
    host.delete(CONTENTS, "", "cutting").unwrap();
    content("snap", "kosmos.csi.io", "m0");
    content("elsewhere", "kosmos.csi.io", "m1");
    content("theirs", "nobody.example", "m0");
    // An API server that has just started names no such kinds.
    clusters.denied.lock().unwrap().insert("/apis/snapshot.storage.k8s.io/v1".to_owned());
    clusters.refuses("member remove m0", &["it has one snapshot of the host (snap)", "--force"]).await;
    clusters.denied.lock().unwrap().remove("/apis/snapshot.storage.k8s.io/v1");
    host.delete(CONTENTS, "", "snap").unwrap();
    host.create(GROUP_CONTENTS, json!({"metadata": {"name": "both"}, "spec": {"driver": "kosmos.csi.io"}})).unwrap();
    let status = json!({"volumeGroupSnapshotHandle": "m0/shop/g-1/0123456789abcdef"});
    host.change(GROUP_CONTENTS, "", "both", |group| group["status"] = status).unwrap();
    clusters.refuses("member remove m0", &["it has one group of snapshots of the host (both)"]).await;
    host.delete(GROUP_CONTENTS, "", "both").unwrap();

    content("late", "kosmos.csi.io", "m0");
    let told = clusters.does("member remove m0 --force").await;
    assert!(told.contains("one snapshot of the host (late)") && told.contains("UNAVAILABLE"), "{told}");
    clusters.refuses("member forget m0", &["one snapshot", "DeleteSnapshot", "--force"]).await;
    host.delete(CONTENTS, "", "late").unwrap();
    clusters.does("member forget m0").await;
}

#[tokio::test]
async fn member_with_snapshots_that_the_host_does_not_know_or_with_what_moves_have_kept_is_removed_by_force_alone() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (host, member) = (&clusters.host, &clusters.members[0]);
    definitions::install(member).unwrap();
    let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(host)});
    member.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    let leaf = json!({"metadata": {"name": "s-1", "namespace": "shop", "labels": labels}, "spec": {"source": {}}});
    member.create(SNAPSHOTS, leaf).unwrap();
    clusters
        .refuses(
            "member remove m0",
            &["closed to new volumes and pods now", "it has one leaf snapshot of the host (s-1)"],
        )
        .await;
    let retained = |name: &str, of: &str| {
        let reference = json!({"namespace": "shop", "name": of});
        let spec = json!({"deletionPolicy": "Retain", "volumeSnapshotRef": reference});
        member.create(CONTENTS, json!({"metadata": {"name": name, "labels": labels}, "spec": spec})).unwrap();
    };
    retained("of-one", "s-1");
    clusters.refuses("member remove m0", &["it has one leaf snapshot of the host (s-1). "]).await;
    for number in 0..6 {
        retained(&format!("of-none-{number}"), "gone");
    }
    member.delete(SNAPSHOTS, "shop", "s-1").unwrap();
    let seven =
        "it has 7 retained snapshot contents of the host (of-none-0, of-none-1, of-none-2, of-none-3, of-none-4, …)";
    clusters.refuses("member remove m0", &[seven, "the member's administrator deletes VolumeSnapshotContents"]).await;
    for content in member.list(CONTENTS) {
        member.delete(CONTENTS, "", text(&content, "/metadata/name")).unwrap();
    }
    let hash = VolumeHash::new(&HostId(identity(host)), "both").to_string();
    let mut labels = labels;
    labels["kosmos.csi.io/group"] = json!(hash);
    let group = json!({"metadata": {"name": format!("g-{hash}"), "namespace": "shop", "labels": labels}, "spec": {"source": {}}});
    member.create(GROUPS, group).unwrap();
    clusters.refuses("member remove m0", &["one leaf group of snapshots of the host (g-"]).await;
    member.delete(GROUPS, "shop", &format!("g-{hash}")).unwrap();
    let labels = json!({"kosmos.csi.io/host": identity(host), "kosmos.csi.io/moved": "0".repeat(32)});
    let kept = json!({"metadata": {"name": "pv-old", "labels": labels}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": {"driver": "x.io", "volumeHandle": "x"}}});
    member.create(VOLUMES, kept).unwrap();
    clusters.refuses("member remove m0", &["one kept volume of the host (pv-old)", "volume discard"]).await;
    assert!(host.get(SECRETS, NAMESPACE, "m0").is_some());
    clusters.does("member remove m0 --force").await;
}

#[tokio::test]
async fn member_in_which_pods_of_the_host_run_is_closed_and_not_removed() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (host, member) = (&clusters.host, &clusters.members[0]);
    for cluster in [host, member] {
        cluster.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    }
    let ours = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "topology.kosmos.csi.io/member": "m0"});
    // The agent has closed it, and is about to open it: the member has come back.
    let marked = json!({"name": "kosmos-m0", "labels": ours, "annotations": {"kosmos.csi.io/cordoned": "true"}});
    host.create("nodes", json!({"metadata": marked, "spec": {"unschedulable": true}})).unwrap();
    let pod = |name: &str, owners: Value| {
        json!({"metadata": {"name": name, "namespace": "shop", "ownerReferences": owners},
            "spec": {"nodeName": "kosmos-m0", "containers": [{"name": "c", "image": "i"}]}})
    };
    let set = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "log", "uid": "u", "controller": true}]);
    host.create("pods", pod("log-1", set)).unwrap();
    host.create("pods", pod("db-0", json!([]))).unwrap();
    host.create("pods", pod("job-1", json!([]))).unwrap();
    host.change("pods", "shop", "job-1", |pod| pod["status"]["phase"] = json!("Succeeded")).unwrap();
    let drain = "kubectl drain -l app.kubernetes.io/managed-by=kosmos.csi.io,topology.kosmos.csi.io/member=m0";
    clusters
        .refuses(
            "member remove m0",
            &[
                "closed to new volumes and pods now",
                "it runs one pod of the host (shop/db-0), and has one ended pod of the host (shop/job-1)",
                drain,
                "kubectl uncordon",
            ],
        )
        .await;
    let node = || host.get("nodes", "", "kosmos-m0").unwrap();
    let is_agents = || node()["metadata"]["annotations"]["kosmos.csi.io/cordoned"] == "true";
    assert!(
        node()["spec"]["unschedulable"] == true && !is_agents(),
        "it takes no pods from before the look at them on"
    );
    host.change("pods", "shop", "db-0", |pod| pod["spec"]["nodeName"] = json!("another")).unwrap();
    clusters.refuses("member remove m0", &["it has one ended pod of the host (shop/job-1). Have them", drain]).await;
    host.delete_now("pods", "shop", "job-1").unwrap();

    let mut copy = pod("db-0", json!([]));
    copy["metadata"]["labels"] =
        json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(host)});
    let mut consumer = copy.clone();
    consumer["metadata"]["name"] = json!("kosmos-csi-consumer-1");
    copy["metadata"]["annotations"] = json!({"kosmos.csi.io/pod-uid": "u"});
    for pod in [copy, consumer] {
        member.create("pods", pod).unwrap();
    }
    clusters.refuses("member remove m0", &["one copied pod of the host (shop/db-0)", "--force"]).await;
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        assert!(host.get(SECRETS, namespace, "m0").is_some());
    }
    member.change("pods", "shop", "db-0", |pod| pod["metadata"]["labels"] = json!({})).unwrap();
    let told = "one pod of the driver of the host (shop/kosmos-csi-consumer-1)";
    clusters.refuses("member remove m0", &[told, "--force"]).await;
    member.change("pods", "shop", "kosmos-csi-consumer-1", |pod| pod["metadata"]["labels"] = json!({})).unwrap();
    assert!(!is_agents(), "the agent would open it");
    clusters.does("member remove m0").await;
    assert!(node()["spec"]["unschedulable"] == true && is_agents(), "it is open again when the member comes back");
}

/// Whoever makes pods and claims there writes our labels on them, and nobody ends for us what has no more.
#[tokio::test]
async fn pods_and_claims_that_have_some_labels_of_ours_and_nothing_else_keep_no_member() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (host, member) = (&clusters.host, &clusters.members[0]);
    let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(host)});
    member.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    let planted = |name: &str| json!({"name": name, "namespace": "shop", "labels": labels});
    for (name, of) in [("bare", json!({})), ("empty", json!({"kosmos.csi.io/pod-uid": ""}))] {
        let mut metadata = planted(name);
        metadata["annotations"] = of;
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        member.create("pods", json!({"metadata": metadata, "spec": spec})).unwrap();
    }
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    member.create(CLAIMS, json!({"metadata": planted("planted"), "spec": spec})).unwrap();
    crate::orphans::leaf(&clusters, "db", "pvc-1");
    let strip = |claim: &mut Value| {
        claim["metadata"]["labels"] = labels.clone();
        claim["metadata"]["finalizers"] = json!([]);
    };
    member.change(CLAIMS, "shop", "db", strip).unwrap();
    let told = "it has one leaf claim of the host (db)";
    clusters.refuses("member remove m0", &[told, "without the label kosmos.csi.io/volume", "--force"]).await;
    member.delete(CLAIMS, "shop", "db").unwrap();
    clusters.does("member remove m0").await;
}

#[tokio::test]
async fn member_is_removed_by_force_without_a_right_to_nodes_and_otherwise_it_is_said_what_opens_it_again() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    clusters.denied.lock().unwrap().insert("/api/v1/nodes".to_owned());
    let opens = ["closed to new volumes and pods now", "`kosmos-csi member uncordon m0`", "`kubectl uncordon -l "];
    clusters.refuses("member remove m0", &opens).await;
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_some());
    let told = clusters.does("member remove m0 --force").await;
    assert!(told.contains("member forget m0"), "{told}");
    let reader = format!("ClusterRoleBinding kosmos-csi-stats-host-{}", identity(&clusters.host));
    assert!(told.contains("/kosmos-csi-tokens-") && told.contains(&reader), "{told}");
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
}

/// Somebody has deleted the record, and nothing is known of the member but what the host has there.
#[tokio::test]
async fn member_on_no_record_is_forgotten_by_force() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let volume = json!({"metadata": {"name": "v"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"}, "csi": {"driver": "kosmos.csi.io", "volumeHandle": "m0/shop/db/0123456789abcdef"}}});
    clusters.host.create(VOLUMES, volume).unwrap();
    clusters.does("member remove m0 --force").await;
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        clusters.host.delete("configmaps", namespace, "kosmos-csi-members").unwrap();
    }
    clusters.refuses("member forget m9", &["nothing to forget", "--force"]).await;
    clusters.refuses("member forget m0", &["one volume of the host (v)", "--force"]).await;
    clusters.does("member forget m0 --force").await;
    clusters.refuses("member forget m0 --force", &["nothing to forget"]).await;
    clusters.does("member forget m9 --force").await;
    let record = clusters.host.get("configmaps", NAMESPACE, "kosmos-csi-members").unwrap();
    assert_eq!(text(&record, "/metadata/annotations/kosmos.csi.io~1forgotten"), "m0,m9");
    clusters.host.delete("configmaps", NAMESPACE, "kosmos-csi-members").unwrap();
    clusters.does("member forget m0 --force").await;
}

/// As where somebody has deleted them, or where the command was ended in between.
#[tokio::test]
async fn accounts_stay_in_a_member_with_pods_or_leaves_of_the_host_also_where_its_secrets_have_gone() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (host, member) = (&clusters.host, &clusters.members[0]);
    for namespace in [NAMESPACE, PODS_NAMESPACE] {
        host.delete(SECRETS, namespace, "m0").unwrap();
    }
    crate::orphans::leaf(&clusters, "db", "pvc-1");
    let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(host)});
    let metadata =
        json!({"name": "db-0", "namespace": "shop", "labels": labels, "annotations": {"kosmos.csi.io/pod-uid": "u"}});
    member
        .create("pods", json!({"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}))
        .unwrap();
    let remove = "member remove m0 --member-kubeconfig=$m0";
    clusters.refuses(remove, &["one copied pod of the host (shop/db-0)", "--force"]).await;
    member.delete("pods", "shop", "db-0").unwrap();
    clusters.refuses(remove, &["one leaf claim of the host (db)", "--force"]).await;
    let own = format!("kosmos-csi-tokens-{}", identity(host));
    let has_accounts = || member.get(SECRETS, NAMESPACE, &own).is_some() && !member.list(ROLES).is_empty();
    assert!(has_accounts());
    clusters.does(&format!("{remove} --force")).await;
    assert!(!has_accounts());
}

const ADD: &str = "member add m0 --member-kubeconfig=$m0";
const REMOVE: &str = "member remove m0 --member-kubeconfig=$m0";
const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// Of these, several hosts may have one kubeconfig.
#[tokio::test]
async fn account_that_may_be_any_hosts_stays_with_its_tokens_and_rights_and_that_is_told() {
    let clusters = Clusters::new(1);
    clusters.does(&format!("{ADD} --kubeconfig-only=$files")).await;
    clusters.join().await;
    let member = &clusters.members[0];
    let told = clusters.does(REMOVE).await;
    assert!(told.contains("any host's stays there") && told.contains("Secret kosmos-csi/kosmos-csi-tokens-files"));
    for (kind, namespace, name) in [
        ("serviceaccounts", NAMESPACE, "kosmos-csi"),
        (SECRETS, NAMESPACE, "kosmos-csi-tokens-files"),
        (ROLES, "", "kosmos-csi"),
        (BINDINGS, "", "kosmos-csi"),
    ] {
        assert!(member.get(kind, namespace, name).is_some(), "{kind} {name}: {told}");
    }
    assert!(member.get(BINDINGS, "", &format!("kosmos-csi-host-{}", identity(&clusters.host))).is_none());
}

/// As for a host that comes with a certificate.
#[tokio::test]
async fn roles_that_somebody_was_given_by_hand_stay() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let member = &clusters.members[0];
    let role = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let binding = |user: Value| json!({"metadata": {"name": "by-hand"}, "roleRef": role("kosmos-csi-virtual-node"), "subjects": [user]});
    let user = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "another-host"});
    member.create(BINDINGS, binding(user)).unwrap();
    let told = clusters.does(REMOVE).await;
    assert!(told.contains("left: others use it") && member.get(ROLES, "", "kosmos-csi").is_some(), "{told}");
    clusters.join().await;
    member.delete(BINDINGS, "", "by-hand").unwrap();
    let account = format!("kosmos-csi-virtual-node-host-{}", identity(&clusters.host));
    let own = json!({"kind": "ServiceAccount", "namespace": NAMESPACE, "name": account});
    member.create(BINDINGS, binding(own)).unwrap();
    let told = clusters.does(REMOVE).await;
    assert!(!told.contains("left: others use it") && member.list(ROLES).is_empty(), "{told}");
}

#[tokio::test]
async fn account_that_other_hosts_may_have_been_given_by_hand_is_taken_away_by_force_alone() {
    let clusters = Clusters::new(1);
    clusters.denied.lock().unwrap().insert("/apis/admissionregistration.k8s.io/v1".to_owned());
    clusters.join().await;
    let member = &clusters.members[0];
    let labels = |host: &str| json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host});
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let planted = json!({"namespace": "shop", "name": "db", "labels": labels("planted")});
    member.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    member.create("persistentvolumeclaims", json!({"metadata": planted, "spec": spec})).unwrap();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": {"driver": "x.io", "volumeHandle": "x"}});
    let leaf = json!({"metadata": {"name": "pv-db", "labels": labels("another")}, "spec": spec});
    member.create(VOLUMES, leaf).unwrap();
    let own = format!("kosmos-csi-host-{}", identity(&clusters.host));
    clusters.refuses(REMOVE, &["volumes of other hosts (another)", "no account of their own", "--force"]).await;
    assert!(member.get("serviceaccounts", NAMESPACE, &own).is_some());
    clusters.denied.lock().unwrap().clear();
    clusters.does(ADD).await;
    clusters.does(REMOVE).await;
    assert!(member.get("serviceaccounts", NAMESPACE, &own).is_none(), "its policies held that account to its host");
    clusters.denied.lock().unwrap().insert("/apis/admissionregistration.k8s.io/v1".to_owned());
    clusters.does(ADD).await;
    clusters.does(&format!("{REMOVE} --force")).await;
    assert!(member.get("serviceaccounts", NAMESPACE, &own).is_none());
    clusters.does(ADD).await;
    member.change(VOLUMES, "", "pv-db", |volume| volume["metadata"]["labels"] = json!({})).unwrap();
    clusters.does(REMOVE).await;
    assert!(member.get("serviceaccounts", NAMESPACE, &own).is_none(), "a claim says whose it is as its writer likes");
}

/// Whoever makes pods there writes what a copy has on them.
#[tokio::test]
async fn pods_in_a_member_without_an_agent_are_for_who_administers_it_to_end() {
    for (add, end) in [
        (format!("{ADD} --volumes-only"), "No agent of this host has an account there"),
        (ADD.to_owned(), "The agent ends those whose pods have gone"),
    ] {
        let clusters = Clusters::new(1);
        clusters.does(&add).await;
        let (host, member) = (&clusters.host, &clusters.members[0]);
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": identity(host)});
        let of = json!({"kosmos.csi.io/pod-uid": "x"});
        let planted = json!({"name": "bait", "namespace": "shop", "labels": labels, "annotations": of});
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        member.create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
        member.create("pods", json!({"metadata": planted, "spec": spec})).unwrap();
        let told = format!("it has one copied pod of the host (shop/bait). {end}");
        clusters.refuses(REMOVE, &[told.as_str(), "--force"]).await;
        member.delete("pods", "shop", "bait").unwrap();
        clusters.does(REMOVE).await;
    }
}
