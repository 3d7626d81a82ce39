//! `member add` of a member that has joined: what nobody says again stays as it is.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};

use crate::{
    authority::AUTHORITY,
    clusters::{Clusters, NAMESPACE, PODS_NAMESPACE, SECRETS, identity, kubeconfig},
    members::{bound, kubeconfig_in, kubeconfig_of},
};

const ADD: &str = "member add m0 --member-kubeconfig=$m0";
/// Of a load balancer's or a tunnel's.
const ANOTHER_AUTHORITY: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkJCQkIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
const ELSEWHERE: &str = "https://elsewhere:6443";
const NARROW: [&str; 2] = ["kosmos-csi-cluster-scoped ", "kosmos-csi-namespaced shop"];

/// A member that has the namespace shop, and has joined for volumes there.
async fn narrow(server: &str) -> Clusters {
    let clusters = Clusters::new(1);
    clusters.members[0].create("namespaces", json!({"metadata": {"name": "shop"}})).unwrap();
    clusters.does(&format!("{ADD} --volumes-only --namespace=shop --server={server}")).await;
    assert_eq!(bound(&clusters), NARROW);
    clusters
}

fn server(clusters: &Clusters) -> String {
    text(&kubeconfig_of(clusters), "/clusters/0/cluster/server").to_owned()
}

fn namespaces(clusters: &Clusters) -> Value {
    kubeconfig_of(clusters)["contexts"][0]["context"]["extensions"][0]["extension"].clone()
}

#[tokio::test]
async fn member_that_is_added_again_keeps_its_namespaces_its_address_and_to_volumes() {
    let clusters = narrow(ELSEWHERE).await;
    for typed in [&format!("{ADD} --dry-run"), ADD] {
        let told = clusters.does(typed).await;
        assert!(told.contains("volumes in shop alone, as before") && told.contains("--pods"), "{told}");
        assert_eq!((bound(&clusters), server(&clusters)), (NARROW.map(str::to_owned).to_vec(), ELSEWHERE.to_owned()));
        assert_eq!(namespaces(&clusters), json!(["shop"]));
        assert!(clusters.host.get(SECRETS, PODS_NAMESPACE, "m0").is_none());
    }
    clusters
        .refuses(&format!("{ADD} --moves"), &["shop alone", "--volumes-only or --pods", "Nothing was written"])
        .await;
    clusters.does(&format!("{ADD} --server=https://m0")).await;
    assert_eq!((bound(&clusters), server(&clusters)), (NARROW.map(str::to_owned).to_vec(), "https://m0".to_owned()));
}

#[tokio::test]
async fn member_whose_administrator_comes_another_way_keeps_the_address_and_the_authority_that_go_together() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let ways = || [NAMESPACE, PODS_NAMESPACE].map(|of| kubeconfig_in(&clusters, of)["clusters"][0]["cluster"].clone());
    let usual = |authority: &str| json!({"server": "https://m0", "certificate-authority-data": authority});
    assert_eq!(ways(), [usual(AUTHORITY), usual(AUTHORITY)]);
    let tunnel = kubeconfig("https://127.0.0.1:6443");
    let authority = format!("certificate-authority-data: {AUTHORITY}");
    for another in [
        tunnel.replace(AUTHORITY, ANOTHER_AUTHORITY),
        tunnel.replace(&authority, "insecure-skip-tls-verify: true"),
        tunnel.replace(&authority, &format!("tls-server-name: tunnel, {authority}")),
    ] {
        fs::write(clusters.file("another"), another).unwrap();
        let told = clusters.does("member add m0 --member-kubeconfig=$another").await;
        assert!(told.contains("reaches it by https://m0"), "{told}");
        assert_eq!(ways(), [usual(AUTHORITY), usual(AUTHORITY)]);
        clusters.does("member add m0 --member-kubeconfig=$another --server=https://m0/").await;
        assert_eq!(ways(), [usual(AUTHORITY), usual(AUTHORITY)], "it is the address that the host has");
    }
    fs::write(clusters.file("m0"), kubeconfig("https://m0").replace(AUTHORITY, ANOTHER_AUTHORITY)).unwrap();
    clusters.does(ADD).await;
    assert_eq!(ways(), [usual(ANOTHER_AUTHORITY), usual(ANOTHER_AUTHORITY)], "the same address has a new authority");
}

#[tokio::test]
async fn pods_get_an_account_in_a_member_that_joined_without_one_where_that_is_said() {
    let clusters = Clusters::new(1);
    clusters.does(&format!("{ADD} --volumes-only")).await;
    let told = clusters.does(ADD).await;
    assert!(told.contains("for volumes alone, as before. To run this host's pods there too, give --pods"), "{told}");
    assert_eq!(bound(&clusters), ["kosmos-csi "]);
    let told = clusters.does(&format!("{ADD} --pods")).await;
    assert!(!told.contains("as before") && clusters.host.get(SECRETS, PODS_NAMESPACE, "m0").is_some(), "{told}");
    let both = bound(&clusters);
    assert!(both.len() > 1, "{both:?}");
    let told = clusters.does(ADD).await;
    assert!(!told.contains("as before") && bound(&clusters) == both, "{told}");
}

#[tokio::test]
async fn whoever_tells_how_full_volumes_are_is_made_where_pods_run_and_stays_as_he_is_until_that_is_said_again() {
    let clusters = Clusters::new(1);
    let there = || clusters.members[0].list("deployments.apps");
    clusters.does(&format!("{ADD} --volumes-only")).await;
    clusters
        .refuses(&format!("{ADD} --volume-stats"), &["none run in this member", "give --pods", "Nothing was written"])
        .await;
    assert_eq!((there(), bound(&clusters)), (vec![], vec!["kosmos-csi ".to_owned()]));
    clusters.does(&format!("{ADD} --pods --volume-stats --image=registry.example/kosmos-csi:1")).await;
    let before = there();
    assert_eq!(text(&before[0], "/spec/template/spec/containers/0/image"), "registry.example/kosmos-csi:1");
    clusters.does(ADD).await;
    assert_eq!(there(), before);
    clusters.does(&format!("{ADD} --volume-stats --image=registry.example/kosmos-csi:2")).await;
    assert_eq!(text(&there()[0], "/spec/template/spec/containers/0/image"), "registry.example/kosmos-csi:2");
}

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// Somebody with an old program on his machine only wants to renew the tokens.
#[tokio::test]
async fn what_a_newer_program_has_made_is_not_taken_back_by_an_older_one() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (host, member) = (&clusters.host, &clusters.members[0]);
    let role = || member.get(ROLES, "", "kosmos-csi").unwrap();
    let ours = role();
    assert_eq!(ours["metadata"]["labels"]["app.kubernetes.io/version"], env!("CARGO_PKG_VERSION"));
    let made_by = |version: &str, more: bool| {
        let change = |role: &mut Value| {
            role["metadata"]["labels"]["app.kubernetes.io/version"] = json!(version);
            role["rules"] = ours["rules"].clone();
            let another = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]});
            role["rules"].as_array_mut().unwrap().extend(more.then_some(another));
        };
        member.change(ROLES, "", "kosmos-csi", change).unwrap();
    };
    made_by("99.1.0", true);
    let (role_before, secret_before) = (role(), host.get(SECRETS, NAMESPACE, "m0"));
    for typed in [&format!("{ADD} --dry-run"), ADD, &format!("{ADD} --moves")] {
        clusters
            .refuses(
                typed,
                &["ClusterRole kosmos-csi ", "kosmos-csi 99.1.0", "nothing was written", "that version or a newer"],
            )
            .await;
        assert_eq!((role(), host.get(SECRETS, NAMESPACE, "m0")), (role_before.clone(), secret_before.clone()));
    }
    made_by("99.1.0", false);
    clusters.does(ADD).await;
    made_by("0.0.1", true);
    clusters.does(ADD).await;
    let now = role();
    assert_eq!((&now["rules"], &now["metadata"]["labels"]), (&ours["rules"], &ours["metadata"]["labels"]));
}

/// Else who renews the tokens with a new program leaves what he had asked for behind.
#[tokio::test]
async fn roles_for_real_nodes_and_for_moves_that_a_host_has_are_brought_up_to_date_though_nobody_names_them() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (member, roles) = (&clusters.members[0], ["kosmos-csi-attach", "kosmos-csi-movers"]);
    clusters.does(ADD).await;
    assert!(roles.iter().all(|role| member.get(ROLES, "", role).is_none()), "nobody has asked for them");
    clusters.does(&format!("{ADD} --attach --moves")).await;
    let granted = || roles.map(|role| member.get(ROLES, "", role).unwrap()["rules"].clone());
    let wanted = granted();
    for typed in [ADD, &format!("{ADD} --pods")] {
        for role in roles {
            member.change(ROLES, "", role, |role| role["rules"] = json!([])).unwrap();
        }
        let told = clusters.does(typed).await;
        assert!(granted() == wanted && told.matches(" updated\n").count() == 2, "{typed}: {told}");
    }
}

/// Of each namespace nobody but the member's administrator knows what is in it.
#[tokio::test]
async fn rights_on_machines_and_on_secrets_are_given_where_somebody_says_and_taken_back_from_where_credentials_are() {
    let clusters = Clusters::new(1);
    let (member, host) = (&clusters.members[0], identity(&clusters.host));
    let account = format!("kosmos-csi-host-{host}");
    let told = clusters.does(&format!("{ADD} --attach")).await;
    for role in ["kosmos-csi-machines", "kosmos-csi-secrets"] {
        assert!(member.get(ROLES, "", role).is_some());
        let said = format!("--clusterrole={role} --serviceaccount=kosmos-csi:{account} --namespace=");
        assert!(told.contains("kubectl create rolebinding") && told.contains(&said), "{told}");
        let former = json!({
            "metadata": {"name": format!("{role}-host-{host}"), "namespace": NAMESPACE,
                "annotations": {"kosmos.csi.io/made-by": "member-add"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        });
        member.create(WITHIN, former).unwrap();
    }
    let there = || bound(&clusters).iter().filter(|one| one.ends_with(" kosmos-csi")).count();
    let told = clusters.does(ADD).await;
    assert!(there() == 2 && !told.contains("kubectl create rolebinding"), "who renews tokens may need them: {told}");
    clusters.does(&format!("{ADD} --attach")).await;
    assert_eq!(there(), 0);
    clusters.does("member remove m0 --member-kubeconfig=$m0").await;
    assert!(member.list(ROLES).is_empty());
}

const EVERYWHERE: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const WITHIN: &str = "rolebindings.rbac.authorization.k8s.io";

#[tokio::test]
async fn rights_that_somebody_has_taken_away_in_the_member_are_given_again() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let (member, host) = (&clusters.members[0], identity(&clusters.host));
    let all = bound(&clusters);
    for lost in [&["kosmos-csi-virtual-node"][..], &["kosmos-csi"], &["kosmos-csi", "kosmos-csi-virtual-node"]] {
        for name in lost {
            member.delete(EVERYWHERE, "", &format!("{name}-host-{host}")).unwrap();
        }
        let told = clusters.does(ADD).await;
        assert!(!told.contains("as before") && told.matches(" renewed\n").count() == 2, "{lost:?}: {told}");
        assert_eq!(bound(&clusters), all, "{lost:?}");
    }
}

#[tokio::test]
async fn rights_in_a_namespace_that_somebody_has_taken_away_in_the_member_are_given_again() {
    let clusters = narrow("https://m0").await;
    let member = &clusters.members[0];
    member.create("namespaces", json!({"metadata": {"name": "bank"}})).unwrap();
    clusters.does(&format!("{ADD} --volumes-only --namespace=shop --namespace=bank")).await;
    let all = bound(&clusters);
    assert_eq!(all.len(), 3, "{all:?}");
    let own = format!("kosmos-csi-namespaced-host-{}", identity(&clusters.host));
    for lost in [&["shop"][..], &["bank", "shop"]] {
        for namespace in lost {
            member.delete(WITHIN, namespace, &own).unwrap();
        }
        let told = clusters.does(ADD).await;
        assert!(told.contains("volumes in bank, shop alone, as before"), "{told}");
        assert_eq!((bound(&clusters), namespaces(&clusters)), (all.clone(), json!(["bank", "shop"])));
    }
    member.delete(WITHIN, "bank", &own).unwrap();
    member.delete("namespaces", "", "bank").unwrap();
    clusters
        .refuses(
            ADD,
            &["namespace bank, in which this host had rights, is gone", "--volumes-only", "Nothing was written"],
        )
        .await;
    assert_eq!(namespaces(&clusters), json!(["bank", "shop"]));
}

/// As by a slip of who edits it.
#[tokio::test]
async fn secret_that_cannot_be_read_is_written_again_by_the_bindings_and_never_for_more() {
    let clusters = narrow("https://m0").await;
    let writes = |text: &str| {
        let text = ByteString(text.as_bytes().to_vec());
        clusters.host.change(SECRETS, NAMESPACE, "m0", |secret| secret["data"]["kubeconfig"] = json!(text)).unwrap();
    };
    let mut odd = kubeconfig_of(&clusters);
    odd["contexts"][0]["context"]["extensions"][0]["extension"] = json!("shop");
    for damaged in [odd.to_string(), "contexts: [".to_owned()] {
        writes(&damaged);
        let told = clusters.does(ADD).await;
        assert!(told.contains("volumes in shop alone, as before"), "{told}");
        assert_eq!((bound(&clusters), namespaces(&clusters)), (NARROW.map(str::to_owned).to_vec(), json!(["shop"])));
    }
    let member = &clusters.members[0];
    member.delete(WITHIN, "shop", &format!("kosmos-csi-namespaced-host-{}", identity(&clusters.host))).unwrap();
    for binding in member.list(EVERYWHERE) {
        member.delete(EVERYWHERE, "", text(&binding, "/metadata/name")).unwrap();
    }
    writes(&odd.to_string());
    clusters.refuses(ADD, &["no list of namespaces", "--pods", "--volumes-only", "Nothing was written"]).await;
    assert!(bound(&clusters).is_empty());
    clusters.does(&format!("{ADD} --volumes-only --namespace=shop")).await;
    assert_eq!((bound(&clusters), namespaces(&clusters)), (NARROW.map(str::to_owned).to_vec(), json!(["shop"])));
}

/// The bindings there tell of it: no Secret of the former cluster does.
#[tokio::test]
async fn cluster_that_takes_over_gets_no_more_than_the_former_one_had() {
    let mut clusters = narrow("https://m0").await;
    let former = identity(&clusters.host);
    clusters.rebuild_host();
    let by = identity(&clusters.host);
    let said = json!({"kosmos.csi.io/host": former, "kosmos.csi.io/cluster": by});
    let record = json!({"metadata": {"name": "kosmos-csi-members", "namespace": NAMESPACE, "annotations": said}});
    clusters.host.create("configmaps", record).unwrap();
    clusters.does(&format!("{ADD} --take-over")).await;
    assert_eq!((bound(&clusters), namespaces(&clusters)), (NARROW.map(str::to_owned).to_vec(), json!(["shop"])));
    assert!(clusters.host.get(SECRETS, PODS_NAMESPACE, "m0").is_none());
}

/// Who is told of the error alone believes that nothing was done.
#[tokio::test]
async fn what_was_done_before_an_error_is_told_and_the_rest_is_done_by_the_next_one() {
    const REMOVE: &str = "member remove m0 --member-kubeconfig=$m0";
    let clusters = Clusters::new(1);
    let member = &clusters.members[0];
    let refuses = |verb: Verb, kind: &'static str| {
        member.faults().set(move |asked| {
            let is_meant = asked.verb == verb && asked.resource == kind;
            if is_meant { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
    };
    refuses(Verb::Patch, EVERYWHERE);
    let words = ["ClusterRole kosmos-csi ", " made\n", "Not all was done", "type this again: apply ClusterRoleBinding"];
    clusters.refuses(ADD, &words).await;
    assert!(clusters.host.get(SECRETS, NAMESPACE, "m0").is_none());
    member.faults().clear();
    let told = clusters.does(ADD).await;
    assert!(told.contains(" unchanged\n") && told.contains("Secret kosmos-csi/m0 "), "{told}");

    refuses(Verb::Delete, EVERYWHERE);
    let words = ["Secret kosmos-csi/m0 ", " removed\n", "Not all was done", "delete ClusterRoleBinding"];
    clusters.refuses(REMOVE, &words).await;
    member.faults().clear();
    clusters.does(REMOVE).await;
    assert!(member.list(EVERYWHERE).is_empty() && member.get(ROLES, "", "kosmos-csi").is_none());
}

/// Each Secret of a member counts once the one before it is gone.
#[tokio::test]
async fn member_of_two_secrets_is_closed_in_both_once_it_says_so() {
    let clusters = Clusters::new(1);
    clusters.join().await;
    let first = clusters.host.get(SECRETS, NAMESPACE, "m0").unwrap();
    let metadata = json!({"name": "m0-of-now", "namespace": NAMESPACE, "labels": first["metadata"]["labels"]});
    clusters.host.create(SECRETS, json!({"metadata": metadata, "data": first["data"]})).unwrap();
    let written = AtomicUsize::default();
    clusters.host.faults().set(move |asked| {
        let is_second = asked.verb == Verb::Patch && asked.resource == SECRETS && written.fetch_add(1, Relaxed) == 1;
        if is_second { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
    });
    clusters.refuses("member cordon m0", &["change Secret kosmos-csi/m0: HTTP 403"]).await;
    clusters.host.faults().clear();
    clusters.does("member cordon m0").await;
    for name in ["m0", "m0-of-now"] {
        let secret = clusters.host.get(SECRETS, NAMESPACE, name).unwrap();
        assert_eq!(secret["metadata"]["annotations"]["kosmos.csi.io/cordon"], "true", "{name}");
    }
}
