//! Members that join, are listed, checked, removed and forgotten.

use std::{fs, path::Path};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};

use crate::clusters::{Clusters, NAMESPACE, PODS_NAMESPACE, SECRETS, VOLUMES, identity, kubeconfig};

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ADD: &str = "member add m0 --member-kubeconfig=$m0";

fn volume(name: &str, handle: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle},
        },
    })
}

#[tokio::test]
async fn member_is_added_once_and_renewed_after_that() {
    let clusters = Clusters::new(1);
    let plan = clusters.does(&format!("{ADD} --dry-run")).await;
    let secrets = ["Secret kosmos-csi/m0", "Secret kosmos-csi-pods/m0"];
    assert!(plan.contains("would be made") && secrets.iter().all(|secret| plan.contains(secret)), "{plan}");
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none() && clusters.members[0].list(ROLES).is_empty());

    let first = clusters.does(ADD).await;
    assert_eq!(first.matches(" made\n").count(), 25, "22 objects, what the tokens end with, and two Secrets: {first}");
    let secret = clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap();
    assert_eq!(secret["metadata"]["labels"]["kosmos.csi.io/member"], "m0");
    let role = clusters.members[0].get(ROLES, "", "kosmos-csi").unwrap();

    let second = clusters.does(ADD).await;
    assert_eq!((second.matches(" unchanged\n").count(), second.matches(" renewed\n").count()), (23, 2), "{second}");
    let after = clusters.members[0].get(ROLES, "", "kosmos-csi").unwrap();
    assert_eq!(role["metadata"]["resourceVersion"], after["metadata"]["resourceVersion"]);
    for told in [first, second] {
        assert!(!told.contains("canary") && !told.contains("e30."), "a token is printed: {told}");
    }
}

#[tokio::test]
async fn namespace_of_the_member_is_opened_to_pods_where_its_administrator_says_so() {
    let clusters = Clusters::new(1);
    let add = format!("{ADD} --pods-in=shop");
    clusters.refuses(&add, &["--pods-in shop", "no such namespace"]).await;
    assert!(clusters.members[0].list(ROLES).is_empty(), "everything is looked at first");
    clusters.members[0].create("namespaces", json!({"metadata": {"name": "shop", "labels": {"a": "b"}}})).unwrap();
    let told = clusters.does(&format!("{add} --dry-run")).await;
    assert!(told.contains("would be opened to pods"), "{told}");
    for result in ["opened to pods", "unchanged"] {
        let told = clusters.does(&add).await;
        let line = told.lines().find(|line| line.starts_with("Namespace shop")).unwrap();
        assert!(line.ends_with(result), "{told}");
        let labels = clusters.members[0].get("namespaces", "", "shop").unwrap()["metadata"]["labels"].clone();
        assert_eq!((&labels["a"], &labels["kosmos.csi.io/pods"]), (&json!("b"), &json!("baseline")));
    }
}

const BINDINGS: [&str; 2] = ["clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"];

/// Where the driver's account has rights, but for its own tokens: the whole member is the empty namespace.
pub fn bound(clusters: &Clusters) -> Vec<String> {
    let all = BINDINGS.iter().flat_map(|kind| clusters.members[0].list(kind));
    let of_role =
        |binding: &Value| format!("{} {}", text(binding, "/roleRef/name"), text(binding, "/metadata/namespace"));
    let mut all: Vec<String> = all.map(|binding| of_role(&binding)).filter(|one| !one.contains("-token")).collect();
    all.sort();
    all
}

#[tokio::test]
async fn account_of_a_host_has_rights_in_the_namespaces_that_are_named_and_loses_those_of_before() {
    let clusters = Clusters::new(1);
    for name in ["shop", "bank"] {
        clusters.members[0].create("namespaces", json!({"metadata": {"name": name}})).unwrap();
    }
    let add = format!("{ADD} --volumes-only");
    clusters.does(&add).await;
    assert_eq!(bound(&clusters), ["kosmos-csi "]);
    clusters.refuses(&format!("{add} --namespace=nowhere"), &["--namespace nowhere", "no such namespace"]).await;
    let plan = clusters.does(&format!("{add} --namespace=shop --dry-run")).await;
    assert!(plan.contains("would be removed") && bound(&clusters) == ["kosmos-csi "], "{plan}");
    for (named, namespaces) in
        [("shop", json!(["shop"])), ("bank --namespace=shop", json!(["bank", "shop"])), ("bank", json!(["bank"]))]
    {
        clusters.does(&format!("{add} --namespace={named}")).await;
        let mut expected = vec!["kosmos-csi-cluster-scoped ".to_owned()];
        let names = namespaces.as_array().unwrap().iter();
        expected.extend(names.map(|name| format!("kosmos-csi-namespaced {}", name.as_str().unwrap())));
        assert_eq!(bound(&clusters), expected);
        assert_eq!(kubeconfig_of(&clusters)["contexts"][0]["context"]["extensions"][0]["extension"], namespaces);
    }
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "nobody.example"});
    clusters.members[0].create("storageclasses.storage.k8s.io", class).unwrap();
    let checked = clusters.does("member check m0").await;
    assert!(checked.contains("made in bank alone"), "{checked}");
    clusters.does(&add).await;
    assert_eq!(bound(&clusters), ["kosmos-csi "]);
    assert!(kubeconfig_of(&clusters)["contexts"][0]["context"].get("extensions").is_none());
    clusters.does(&format!("{add} --namespace=bank")).await;
    clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    assert_eq!((bound(&clusters), clusters.members[0].list(ROLES)), (vec![], vec![]));
}

pub fn kubeconfig_of(clusters: &Clusters) -> Value {
    kubeconfig_in(clusters, NAMESPACE)
}

pub fn kubeconfig_in(clusters: &Clusters, namespace: &str) -> Value {
    let secret = clusters.host.get(SECRETS, namespace, "m0").unwrap();
    let bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["kubeconfig"].clone()).unwrap();
    serde_json::from_slice(&bytes.0).unwrap()
}

#[tokio::test]
async fn rights_are_not_taken_from_what_the_host_has_already() {
    let clusters = Clusters::new(1);
    for name in ["shop", "bank"] {
        clusters.members[0].create("namespaces", json!({"metadata": {"name": name}})).unwrap();
    }
    clusters.join().await;
    let narrow = format!("{ADD} --volumes-only --namespace=bank");
    clusters.refuses(&narrow, &["ClusterRoleBinding kosmos-csi-virtual-node-host-", "Nothing was written"]).await;
    let pods = format!("kosmos-csi-virtual-node-host-{}", identity(&clusters.host));
    clusters.members[0].delete(BINDINGS[0], "", &pods).unwrap();
    crate::orphans::leaf(&clusters, "db", "pvc-1");
    let before = bound(&clusters);
    clusters.refuses(&narrow, &["1 PersistentVolumeClaims", "such as shop/db", "Nothing was written"]).await;
    assert_eq!(bound(&clusters), before);
    clusters.does(&format!("{narrow} --namespace=shop")).await;
    assert_eq!(bound(&clusters).len(), 3);
}

#[tokio::test]
async fn member_without_admission_policies_joins_and_it_is_told_what_nothing_holds() {
    let clusters = Clusters::new(1);
    clusters.denied.lock().unwrap().insert("/apis/admissionregistration.k8s.io/v1".to_owned());
    for typed in [&format!("{ADD} --dry-run"), ADD] {
        let told = clusters.does(typed).await;
        assert_eq!(told.matches("left out: the cluster has no such kind").count(), 10, "{told}");
    }
    let told = clusters.does(ADD).await;
    assert!(told.contains("Kubernetes 1.30") && told.contains("may write every claim"), "{told}");
    clusters.denied.lock().unwrap().clear();
    let told = clusters.does(ADD).await;
    assert!(!told.contains("Kubernetes 1.30") && told.matches(" made\n").count() == 10, "{told}");
}

#[tokio::test]
async fn pods_have_an_account_of_their_own_unless_only_volumes_are_wanted() {
    let clusters = Clusters::new(2);
    clusters.does(ADD).await;
    clusters.does("member add m1 --member-kubeconfig=$m1 --volumes-only").await;
    let kubeconfig = |namespace: &str, member: &str| {
        let secret = clusters.host.get(SECRETS, namespace, member)?;
        assert_eq!(secret["data"].as_object().unwrap().len(), 1, "nobody else's credential lies beside it");
        Some(text(&secret, "/data/kubeconfig").to_owned())
    };
    let (driver, pods) = (kubeconfig(NAMESPACE, "m0"), kubeconfig(PODS_NAMESPACE, "m0"));
    assert!(driver.is_some() && pods.is_some() && driver != pods);
    assert!(kubeconfig(NAMESPACE, "m1").is_some() && kubeconfig(PODS_NAMESPACE, "m1").is_none());
    let own = format!("kosmos-csi-virtual-node-host-{}", identity(&clusters.host));
    let account = |member: usize| clusters.members[member].get("serviceaccounts", NAMESPACE, &own).is_some();
    assert_eq!((account(0), account(1)), (true, false));
}

#[tokio::test]
async fn whoever_tells_how_full_volumes_are_tells_one_host_and_nobody_is_given_his_account() {
    let clusters = Clusters::new(1);
    let add = format!("{ADD} --volume-stats --image=registry.example/kosmos-csi:1 --kubelet-insecure-tls");
    clusters.does(&add).await;
    let (member, host) = (&clusters.members[0], identity(&clusters.host));
    let name = format!("kosmos-csi-stats-host-{host}");
    let deployment = member.get("deployments.apps", NAMESPACE, &name).unwrap();
    let spec = &deployment["spec"]["template"]["spec"];
    assert_eq!(
        (text(spec, "/serviceAccountName"), text(spec, "/containers/0/image")),
        (&*name, "registry.example/kosmos-csi:1")
    );
    let arguments = json!(["volume-stats", format!("--host={host}"), "--kubelet-insecure-tls"]);
    assert_eq!(spec["containers"][0]["args"], arguments);
    assert!(member.get("serviceaccounts", NAMESPACE, &name).is_some());
    assert_eq!(clusters.asked.lock().unwrap().len(), 2, "tokens of driver and agent");
    assert_eq!(clusters.does(&add).await.matches(" unchanged\n").count(), 23 + 5);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "x.io"});
    member.create("storageclasses.storage.k8s.io", class).unwrap();
    let told = clusters.does("member check m0").await;
    let row = told.lines().find(|row| row.starts_with("volume stats")).unwrap();
    assert!(
        row.contains(" note ") && row.contains("`member add m0 --member-kubeconfig FILE --volume-stats --image IMAGE`"),
        "{row}"
    );
    clusters.refuses("member check m0 --volume-stats", &["volume stats", "FAILED", "no pod there reports"]).await;
    clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    assert!(member.list("deployments.apps").is_empty() && member.list(ROLES).is_empty());
}

#[tokio::test]
async fn member_joins_only_a_host_that_has_the_namespaces_for_its_accounts() {
    let clusters = Clusters::new(1);
    let elsewhere = format!("{ADD} --pods-namespace=elsewhere");
    clusters.refuses(&elsewhere, &["no namespace elsewhere", "virtual-node.yaml", "--volumes-only"]).await;
    assert!(clusters.members[0].list(ROLES).is_empty(), "everything is looked at first");
    clusters.does(&format!("{elsewhere} --volumes-only")).await;
}

/// A month where they are renewed, a year in a file; all of one host end with one Secret.
#[tokio::test]
async fn tokens_of_a_host_are_short_and_end_with_one_secret() {
    let clusters = Clusters::new(1);
    clusters.does(ADD).await;
    clusters.does(&format!("{ADD} --kubeconfig-only=$new")).await;
    clusters.does(&format!("{ADD} --token-lifetime=20m")).await;
    let asked = clusters.asked.lock().unwrap().clone();
    let host = format!("kosmos-csi-tokens-{}", identity(&clusters.host));
    for (number, (lives, of)) in
        [(30 * 24 * 3600, host.as_str()), (365 * 24 * 3600, "kosmos-csi-tokens-files"), (20 * 60, &host)]
            .into_iter()
            .enumerate()
    {
        let secret = clusters.members[0].get(SECRETS, NAMESPACE, of).unwrap();
        for asked in &asked[2 * number..2 * number + 2] {
            assert_eq!(asked["spec"]["expirationSeconds"], lives);
            assert_eq!(asked["spec"]["boundObjectRef"]["name"], of);
            assert_eq!(asked["spec"]["boundObjectRef"]["uid"], secret["metadata"]["uid"]);
        }
    }
    assert_eq!(asked.len(), 6, "one for each of two accounts");
}

/// The agent has a record of its own.
#[tokio::test]
async fn cluster_that_the_agent_knows_as_another_is_no_place_for_pods() {
    let clusters = Clusters::new(2);
    clusters.join().await;
    clusters.members[0]
        .create("storageclasses.storage.k8s.io", json!({"metadata": {"name": "fast"}, "provisioner": "x.io"}))
        .unwrap();
    assert!(clusters.does("member check m0").await.contains("pods"));
    clusters.pin_in(PODS_NAMESPACE, "m0", 1);
    clusters.refuses("member check m0", &["pods", "FAILED", "this name has always meant"]).await;
    clusters.refuses(ADD, &["this name has always meant"]).await;
    clusters.does("member remove m0").await;
    assert!(clusters.host.list(SECRETS).is_empty(), "both Secrets go");
    clusters.does("member forget m0").await;
    let record = clusters.host.get("configmaps", PODS_NAMESPACE, "kosmos-csi-members").unwrap();
    assert!(record["data"].as_object().is_none_or(serde_json::Map::is_empty), "{record}");
}

#[tokio::test]
async fn what_somebody_else_has_made_is_left_untouched() {
    let clusters = Clusters::new(1);
    let theirs = json!({"metadata": {"name": "kosmos-csi"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]});
    clusters.members[0].create(ROLES, theirs).unwrap();
    clusters.refuses(ADD, &["ClusterRole kosmos-csi", "left untouched"]).await;
    assert!(clusters.members[0].get("namespaces", "", "kosmos-csi").is_none(), "everything is looked at first");
    clusters.members[0].delete(ROLES, "", "kosmos-csi").unwrap();

    let secret = json!({"metadata": {"name": "m0", "namespace": NAMESPACE}, "data": {"password": "eA=="}});
    clusters.host.create(SECRETS, secret).unwrap();
    clusters.refuses(ADD, &["Secret kosmos-csi/m0", "not that of a member", "left untouched"]).await;
    let still = clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap();
    assert!(still["data"]["kubeconfig"].is_null() && clusters.members[0].list(ROLES).is_empty());
}

/// In that of the movers are the leaves that are just moved.
#[tokio::test]
async fn object_is_to_be_deleted_only_where_others_have_written_it_and_a_namespace_never() {
    let clusters = Clusters::new(1);
    let (add, movers) = (format!("{ADD} --moves"), "kosmos-csi-movers");
    let member = &clusters.members[0];
    for (kind, name, code, reason, remedy) in [
        (ROLES, "kosmos-csi", 409, "Conflict", Some("undo that, or delete the object")),
        (ROLES, "kosmos-csi", 403, "Forbidden", None),
        ("namespaces", movers, 409, "Conflict", Some("undo that (do not delete it: ")),
    ] {
        member.faults().set(move |asked| {
            let is_meant = asked.verb == Verb::Patch && asked.resource == kind && asked.name == name;
            if is_meant { Action::Answer { code, reason } } else { Action::Pass }
        });
        let told = clusters.type_in(&add).await.unwrap_err();
        assert!(told.contains(&format!(" {name}: HTTP {code}")), "{told}");
        assert_eq!(told.contains("Somebody else has written"), remedy.is_some(), "{told}");
        assert!(remedy.is_none_or(|remedy| told.contains(remedy)), "{told}");
    }
    member.faults().clear();
    let labels = json!({"pod-security.kubernetes.io/enforce": "restricted"});
    member.create("namespaces", json!({"metadata": {"name": movers, "labels": labels}})).unwrap();
    let told = clusters.type_in(&add).await.unwrap_err();
    assert!(told.contains("Namespace kosmos-csi-movers is there already") && told.contains("the labels"), "{told}");
    assert!(told.contains("do not delete it") && !told.contains("or delete"), "{told}");
}

#[tokio::test]
async fn cluster_under_another_name_and_another_cluster_under_this_name_are_refused() {
    let clusters = Clusters::new(2);
    clusters.join().await;
    clusters.refuses("member add twin --member-kubeconfig=$m0", &["same cluster", "m0"]).await;
    clusters.refuses("member add m0 --member-kubeconfig=$m1", &["this name has always meant"]).await;
    clusters.refuses("member add self --member-kubeconfig=$host", &["the host itself"]).await;
    assert!(clusters.members[1].list(ROLES).is_empty() && clusters.host.get(SECRETS, NAMESPACE, "twin").is_none());
}

/// Pods run on it by then, and the agent would take it away for the one with the longer name.
#[tokio::test]
async fn member_whose_nodes_could_have_the_name_of_another_members_virtual_node_is_refused_by_that_name() {
    let clusters = Clusters::new(1);
    let node = |name: &str, member: &str| {
        let labels = json!({"app.kubernetes.io/managed-by": "kosmos.csi.io", "topology.kosmos.csi.io/member": member});
        clusters.host.create("nodes", json!({"metadata": {"name": name, "labels": labels}})).unwrap();
    };
    node("kosmos-m-0-n1", "m");
    node("kosmos-m-1", "m-1");
    clusters.refuses("member add m-0 --member-kubeconfig=$m0", &["Node kosmos-m-0-n1", "of member m,"]).await;
    assert!(clusters.members[0].list(ROLES).is_empty(), "everything is looked at first");
    clusters.does("member add m --member-kubeconfig=$m0 --dry-run").await;
    clusters.does("member add m-1 --member-kubeconfig=$m0").await;
    node("kosmos-m-1-n1", "m");
    clusters.does("member add m-1 --member-kubeconfig=$m0").await;
}

/// Else a cluster that says it is this one, and is met first, would be taken for it.
#[tokio::test]
async fn which_cluster_a_member_is_stands_in_both_records_before_anybody_connects_to_it() {
    let clusters = Clusters::new(2);
    clusters.join().await;
    clusters.does("member add m1 --member-kubeconfig=$m1 --volumes-only").await;
    let recorded =
        |namespace: &str| clusters.host.get("configmaps", namespace, "kosmos-csi-members").unwrap()["data"].clone();
    let [first, second] = [0, 1].map(|at: usize| identity(&clusters.members[at]));
    assert_eq!(recorded(NAMESPACE), json!({"m0": first, "m1": second}));
    assert_eq!(recorded(PODS_NAMESPACE), json!({"m0": first}));
}

/// The record is one object for all members, and has room for so much.
#[tokio::test]
async fn cluster_that_says_no_uid_of_its_own_does_not_join_and_is_not_recorded() {
    let clusters = Clusters::new(1);
    let long = |namespace: &mut Value| namespace["metadata"]["uid"] = json!("f".repeat(1 << 10));
    clusters.members[0].change("namespaces", "", "kube-system", long).unwrap();
    clusters.refuses(ADD, &["does not say who it is"]).await;
    assert!(clusters.host.list("configmaps").is_empty() && clusters.members[0].list(ROLES).is_empty());
}

#[tokio::test]
async fn member_whose_kubeconfig_names_no_authority_does_not_join() {
    let clusters = Clusters::new(1);
    let text = kubeconfig("https://m0");
    let (before, after) = text.split_once("certificate-authority-data: ").unwrap();
    let (_, after) = after.split_once('}').unwrap();
    fs::write(clusters.file("odd"), format!("{before}}}{after}")).unwrap();
    clusters
        .refuses(
            "member add m0 --member-kubeconfig=$odd",
            &["certificate-authority-data is missing", "a public one too"],
        )
        .await;
    assert!(clusters.host.list("configmaps").is_empty() && clusters.members[0].list(ROLES).is_empty());
}

#[tokio::test]
async fn address_that_the_host_cannot_use_is_refused_with_the_flag_that_helps() {
    let clusters = Clusters::new(1);
    for (server, said) in [
        ("http://m0", ["server is refused", "--server https://"]),
        ("https://127.0.0.1:6443", ["another machine", "--server https://"]),
    ] {
        fs::write(clusters.file("odd"), kubeconfig(server)).unwrap();
        clusters.refuses("member add m0 --member-kubeconfig=$odd", &said).await;
    }
    clusters.does("member add m0 --member-kubeconfig=$odd --server=https://m0").await;
    clusters.refuses(&format!("{ADD} --server=http://m0"), &["server is refused"]).await;
    let told = clusters.does(&format!("{ADD} --server=https://elsewhere:6443")).await;
    assert!(told.contains("elsewhere:6443 does not answer from here"), "{told}");
}

#[tokio::test]
async fn server_that_is_another_cluster_is_refused() {
    let clusters = Clusters::new(2);
    clusters.refuses(&format!("{ADD} --server=https://m1"), &["--server leads to another cluster"]).await;
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
}

#[tokio::test(start_paused = true)]
async fn right_that_is_missing_keeps_the_member_out_and_is_named() {
    let clusters = Clusters::new(1);
    clusters.denied.lock().unwrap().insert("patch persistentvolumes".to_owned());
    clusters.refuses(ADD, &["lacks: patch persistentvolumes", "Nothing was written to the host"]).await;
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
    clusters.denied.lock().unwrap().clear();
    clusters.join().await;
    clusters.denied.lock().unwrap().insert("delete pods".to_owned());
    clusters.refuses("member check m0", &["FAILED", "delete pods"]).await;
}

#[tokio::test]
async fn check_names_for_each_right_that_is_missing_the_flag_that_gives_it() {
    let clusters = Clusters::new(1);
    clusters.does(&format!("{ADD} --attach --moves")).await;
    for (right, line, typed) in [
        ("patch persistentvolumes", "rights ", "`member add m0 --member-kubeconfig FILE`"),
        ("get csidrivers", "rights for real nodes ", "`member add m0 --member-kubeconfig FILE --attach`"),
        ("create secrets", "rights for moves ", "`member add m0 --member-kubeconfig FILE --moves`"),
        ("list nodes", "pods ", "`member add m0 --member-kubeconfig FILE`"),
    ] {
        clusters.denied.lock().unwrap().insert(right.to_owned());
        let told = clusters.type_in("member check m0 --attach --moves").await.unwrap().text;
        let rows: Vec<&str> = told.lines().filter(|row| row.contains(" FAILED ")).collect();
        let row = rows.iter().find(|row| row.starts_with(line)).unwrap_or_else(|| panic!("{line}: {told}"));
        assert!(row.contains(right) && row.contains(typed), "{row}");
        clusters.denied.lock().unwrap().clear();
    }
    let told = clusters.type_in("member check m0 --attach").await.unwrap().text;
    let row = told.lines().find(|row| row.starts_with("machines, secrets ")).unwrap();
    assert!(row.contains(" note ") && row.contains("namespaces where they are"), "{row}");
}

#[tokio::test]
async fn kubeconfig_may_go_to_a_file_that_nobody_else_reads() {
    let clusters = Clusters::new(1);
    let words = format!("{ADD} --kubeconfig-only=$new");
    let told = clusters.does(&words).await;
    assert!(told.contains("`member add m0 --kubeconfig-only FILE` makes new ones"), "{told}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(clusters.file("new")).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert!(Path::new(&clusters.file("new")).with_extension("virtual-node.kubeconfig").exists());
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
    clusters.refuses(&words, &["there already"]).await;
}

#[tokio::test]
async fn list_tells_where_a_member_is_named_and_whether_it_answers() {
    let clusters = Clusters::new(2);
    assert_eq!(clusters.does("member list").await, "");
    clusters.join().await;
    clusters.host.create(VOLUMES, volume("one", "m0/shop/db/0123456789abcdef")).unwrap();
    let told = clusters.does("get members -o wide").await;
    let row = told.lines().nth(1).unwrap();
    let words = ["m0", "Secret kosmos-csi/m0", &identity(&clusters.members[0]), "https://m0", "no", "1", "answers"];
    assert!(words.iter().all(|word| row.contains(word)), "{told}");
    clusters.pin("gone", 1);
    let json = clusters.does("member list -o json").await;
    let rows: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&rows["apiVersion"], &rows["kind"]), (&json!("cli.kosmos.csi.io/v1alpha1"), &json!("MemberList")));
    let rows = &rows["items"];
    assert_eq!((&rows[0]["name"], &rows[0]["source"]), (&json!("gone"), &json!("")));
    assert_eq!((&rows[1]["volumes"], &rows[1]["answers"]), (&json!(1), &json!(true)));
    assert!(rows[1]["tokenEnds"] == "2100-01-01T00:00:00Z" && !json.contains("canary"), "{json}");
    assert_eq!(clusters.does("get members -o name").await, "gone\nm0\n");
    assert_eq!(serde_saphyr::from_str::<Value>(&clusters.does("get members -o yaml").await).unwrap()["items"], *rows);
}

#[tokio::test]
async fn member_is_closed_to_new_volumes_and_opened_again_where_a_secret_names_it() {
    let clusters = Clusters::new(2);
    clusters.refuses("member cordon m0", &["no member is called m0", "get members"]).await;
    clusters.join().await;
    let cordon = || {
        clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap()["metadata"]["annotations"]["kosmos.csi.io/cordon"].clone()
    };
    let said = clusters.does("member cordon m0").await;
    assert!(said.contains("closed to new volumes") && cordon() == "true", "{said}");
    assert!(clusters.does("member cordon m0").await.contains("already"));
    assert!(clusters.does("get members").await.contains("m0     yes"));
    assert!(clusters.does("member uncordon m0").await.contains("open to new volumes") && cordon().is_null());
    let folder = clusters.folder.path().join("members");
    std::fs::create_dir(&folder).unwrap();
    std::fs::copy(clusters.file("m1"), folder.join("m1.kubeconfig")).unwrap();
    let words = format!("member cordon m1 --members-dir={}", folder.display());
    clusters.refuses(&words, &["named by file", "m1.cordon beside it closes it"]).await;
}

#[tokio::test]
async fn member_that_no_secret_names_is_not_removed_and_it_is_told_what_names_it() {
    let clusters = Clusters::new(2);
    let folder = clusters.folder.path().join("members");
    fs::create_dir(&folder).unwrap();
    fs::copy(clusters.file("m1"), folder.join("m1.kubeconfig")).unwrap();
    clusters.pin("m1", 1);
    let remove = format!("member remove m1 --members-dir={}", folder.display());
    clusters.refuses(&remove, &["m1 is named by file", "m1.kubeconfig", "does not delete"]).await;
    clusters.refuses("member remove m1", &["it was removed before"]).await;
    clusters.refuses("member remove m9", &["there never was one"]).await;
}

#[tokio::test]
async fn check_goes_from_the_kubeconfig_to_the_classes() {
    let clusters = Clusters::new(1);
    clusters.refuses("member check m0", &["FAILED", "no Secret in kosmos-csi names this member"]).await;
    clusters.join().await;
    clusters.refuses("member check m0", &["storage classes", "this host may use none"]).await;
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "x.io"});
    clusters.members[0].create("storageclasses.storage.k8s.io", class).unwrap();
    let told = clusters.does("member check m0").await;
    for line in ["named", "kubeconfig", "token", "address", "credentials", "identity", "rights", "storage classes"] {
        let row = told.lines().find(|row| row.starts_with(line)).unwrap_or_else(|| panic!("{line}: {told}"));
        assert!(row.contains(" ok "), "{row}");
    }
    assert!(told.contains("default class") && told.contains("leafStorageClass"), "{told}");
    for line in ["token ", "token for pods "] {
        let row = told.lines().find(|row| row.starts_with(line)).unwrap_or_else(|| panic!("{line}: {told}"));
        assert!(["in 14d", "in 15d"].iter().any(|due| row.contains(&format!("and is renewed {due}"))), "{row}");
    }
}

#[tokio::test]
async fn member_with_volumes_is_removed_by_force_alone_and_forgotten_after_that() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    for number in 0..7 {
        let handle = format!("m0/shop/db{number}/0123456789abcdef");
        clusters.host.create(VOLUMES, volume(&format!("v{number}"), &handle)).unwrap();
    }
    clusters.refuses("member remove m0", &["7 volumes", "v0, v1, v2, v3, v4, …", "--force"]).await;
    let secret = clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap();
    assert_eq!(text(&secret, "/metadata/annotations/kosmos.csi.io~1cordon"), "", "nothing was changed");
    clusters.refuses("member forget m0", &["names it"]).await;
    let told = clusters.does("member remove m0 --force").await;
    assert!(told.contains("7 volumes") && told.contains("UNAVAILABLE"), "{told}");
    assert!(told.contains("stay valid there") && told.contains("Secret kosmos-csi/kosmos-csi-tokens-"), "{told}");
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
    clusters.refuses("member forget m0", &["7 volumes", "--force"]).await;
    clusters.does("member forget m0 --force").await;
    clusters.refuses("member forget m0 --force", &["nothing to forget"]).await;
    let map = clusters.host.get("configmaps", NAMESPACE, "kosmos-csi-members").unwrap();
    assert!(map["data"].as_object().is_none_or(serde_json::Map::is_empty), "{map}");
}

#[tokio::test]
async fn member_with_leaves_that_the_host_does_not_know_is_closed_and_not_removed() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    crate::orphans::leaf(&clusters, "db", "pvc-1");
    clusters
        .refuses(
            "member remove m0",
            &["closed to new volumes and pods now", "one leaf claim of the host (db)", "doctor"],
        )
        .await;
    let secret = clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap();
    assert_eq!(text(&secret, "/metadata/annotations/kosmos.csi.io~1cordon"), "true");
}

#[tokio::test]
async fn account_goes_with_the_member_and_its_namespace_stays() {
    let clusters = Clusters::new(2);
    clusters.join().await;
    clusters.refuses("member remove m0 --member-kubeconfig=$m1", &["leads to cluster", "nothing was removed"]).await;
    let own = format!("kosmos-csi-tokens-{}", identity(&clusters.host));
    assert!(clusters.members[0].get(SECRETS, NAMESPACE, &own).is_some());
    clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    assert!(clusters.members[0].list(ROLES).is_empty());
    assert!(clusters.members[0].get(SECRETS, NAMESPACE, &own).is_none(), "its tokens end");
    assert!(clusters.members[0].list("serviceaccounts").iter().all(|account| account["metadata"]["name"] == "default"));
    assert!(clusters.members[0].get("namespaces", "", NAMESPACE).is_some(), "leaves may be in it");
    clusters.does("member forget m0").await;
}

#[tokio::test]
async fn host_that_leaves_takes_its_accounts_along_and_not_what_other_hosts_use() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let member = &clusters.members[0];
    let other = json!({"metadata": {"name": "kosmos-csi-host-other", "namespace": NAMESPACE, "labels": {"kosmos.csi.io/host": "other"}}});
    member.create("serviceaccounts", other).unwrap();
    let told = clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    assert!(told.contains("left: others use it"), "{told}");
    assert!(member.get(ROLES, "", "kosmos-csi").is_some());
    let own = identity(&clusters.host);
    for kind in [
        "serviceaccounts",
        "clusterrolebindings.rbac.authorization.k8s.io",
        "rolebindings.rbac.authorization.k8s.io",
        SECRETS,
    ] {
        let left = member.list(kind);
        assert!(left.iter().all(|object| !text(object, "/metadata/name").contains(&own)), "{left:?}");
    }
}
