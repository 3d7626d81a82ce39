use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    Cluster,
    object::{is_terminating, text},
    testing::{CLAIMS, PODS, VOLUMES, claim, pass, pod, volume},
};

#[tokio::test(start_paused = true)]
async fn a_new_namespace_gets_its_service_account() {
    let cluster = Cluster::new("a", 1);
    cluster.create("namespaces", json!({"metadata": {"name": "new"}})).unwrap();
    pass(&cluster, 1).await;
    assert!(cluster.get("serviceaccounts", "new", "default").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ends_is_emptied_and_goes_with_its_last_object() {
    let cluster = Cluster::new("a", 1);
    cluster.create("namespaces", json!({"metadata": {"name": "old"}, "spec": {"finalizers": ["kubernetes"]}})).unwrap();
    let held = json!({"metadata": {"namespace": "old", "name": "held", "finalizers": ["example.org/held"]}});
    cluster.create("configmaps", held).unwrap();
    cluster.create("secrets", json!({"metadata": {"namespace": "old", "name": "free"}})).unwrap();
    cluster.create("secrets", json!({"metadata": {"namespace": "default", "name": "other"}})).unwrap();
    pass(&cluster, 1).await;
    cluster.delete("namespaces", "", "old").unwrap();
    pass(&cluster, 60).await;
    assert!(
        cluster.get("secrets", "old", "free").is_none() && cluster.get("serviceaccounts", "old", "default").is_none()
    );
    assert!(is_terminating(&cluster.get("configmaps", "old", "held").unwrap()));
    assert!(cluster.get("namespaces", "", "old").is_some());

    let release = |object: &mut Value| object["metadata"]["finalizers"] = json!([]);
    cluster.change("configmaps", "old", "held", release).unwrap();
    pass(&cluster, 60).await;
    assert!(cluster.get("namespaces", "", "old").is_none());
    assert!(cluster.get("secrets", "default", "other").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_claim_outlives_the_pods_that_have_a_node_and_not_the_others() {
    let cluster = Cluster::new("a", 1);
    for name in ["used", "wanted"] {
        cluster.create(CLAIMS, claim(name, "none")).unwrap();
    }
    let mut user = pod("user", &["used"]);
    user["spec"]["nodeName"] = json!("n1");
    cluster.create(PODS, user).unwrap();
    cluster.create(PODS, pod("dreamer", &["wanted"])).unwrap();
    cluster.delete(CLAIMS, "default", "used").unwrap();
    cluster.delete(CLAIMS, "default", "wanted").unwrap();
    cluster.change(PODS, "default", "user", |pod| pod["status"] = json!({"phase": "Succeeded"})).unwrap();
    pass(&cluster, 9).await;
    assert!(is_terminating(&cluster.claim("used")), "a pod that has ended still names it");
    assert!(cluster.get(CLAIMS, "default", "wanted").is_none());

    cluster.delete_now(PODS, "default", "user").unwrap();
    pass(&cluster, 1).await;
    assert!(cluster.get(CLAIMS, "default", "used").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_volume_outlives_its_bond() {
    let cluster = Cluster::new("a", 1);
    cluster.create(VOLUMES, volume("pv", "hand", "1Gi")).unwrap();
    cluster.create(CLAIMS, claim("data", "hand")).unwrap();
    pass(&cluster, 1).await;
    cluster.delete(VOLUMES, "", "pv").unwrap();
    pass(&cluster, 9).await;
    assert_eq!(text(&cluster.volume("pv"), "/status/phase"), "Bound");
    cluster.delete(CLAIMS, "default", "data").unwrap();
    pass(&cluster, 1).await;
    assert!(cluster.get(VOLUMES, "", "pv").is_none());
}

/// An object that belongs to others of its namespace.
fn owned(name: &str, owners: &[&Value]) -> Value {
    let reference = |owner: &&Value| {
        json!({
            "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true,
        })
    };
    let references: Vec<Value> = owners.iter().map(reference).collect();
    json!({"metadata": {"namespace": "default", "name": name, "ownerReferences": references}})
}

fn make(cluster: &Cluster, name: &str, owners: &[&Value]) -> Arc<Value> {
    cluster.create("secrets", owned(name, owners)).unwrap()
}

fn left(cluster: &Cluster) -> Vec<String> {
    cluster.list("secrets").iter().map(|secret| text(secret, "/metadata/name").to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_owned_goes_with_its_last_owner_and_so_on() {
    let cluster = Cluster::new("a", 1);
    let (one, two) = (make(&cluster, "one", &[]), make(&cluster, "two", &[]));
    let both = make(&cluster, "both", &[&one, &two]);
    make(&cluster, "below", &[&both]);
    pass(&cluster, 1).await;
    cluster.delete("secrets", "default", "one").unwrap();
    pass(&cluster, 1).await;
    assert_eq!(left(&cluster), ["below", "both", "two"]);
    assert_eq!(cluster.get("secrets", "default", "both").unwrap()["metadata"]["ownerReferences"][0]["name"], "two");
    cluster.delete("secrets", "default", "two").unwrap();
    pass(&cluster, 1).await;
    assert!(left(&cluster).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_names_an_owner_that_never_was_goes_at_once() {
    let cluster = Cluster::new("a", 1);
    let mut owner = Value::clone(&make(&cluster, "one", &[]));
    owner["metadata"]["uid"] = json!("another");
    make(&cluster, "stray", &[&owner]);
    owner["kind"] = json!("Unknown");
    make(&cluster, "unknown", &[&owner]);
    pass(&cluster, 1).await;
    assert_eq!(left(&cluster), ["one", "unknown"]);
}

#[tokio::test(start_paused = true)]
async fn an_owner_deleted_in_the_foreground_waits_for_what_it_owns() {
    let cluster = Cluster::new("a", 1);
    let owner = make(&cluster, "owner", &[]);
    make(&cluster, "held", &[&owner]);
    let finalizers = |names: Value| move |object: &mut Value| object["metadata"]["finalizers"] = names;
    cluster.change("secrets", "default", "held", finalizers(json!(["example.org/held"]))).unwrap();
    cluster.change("secrets", "default", "owner", finalizers(json!(["foregroundDeletion"]))).unwrap();
    cluster.delete("secrets", "default", "owner").unwrap();
    pass(&cluster, 1).await;
    assert_eq!(left(&cluster), ["held", "owner"]);
    assert!(is_terminating(&cluster.get("secrets", "default", "held").unwrap()));
    cluster.change("secrets", "default", "held", finalizers(json!([]))).unwrap();
    pass(&cluster, 1).await;
    assert!(left(&cluster).is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_orphans_leaves_what_it_owned() {
    let cluster = Cluster::new("a", 1);
    let owner = make(&cluster, "owner", &[]);
    make(&cluster, "orphan", &[&owner]);
    let orphans = |object: &mut Value| object["metadata"]["finalizers"] = json!(["orphan"]);
    cluster.change("secrets", "default", "owner", orphans).unwrap();
    cluster.delete("secrets", "default", "owner").unwrap();
    pass(&cluster, 1).await;
    assert_eq!(left(&cluster), ["orphan"]);
    assert_eq!(cluster.get("secrets", "default", "orphan").unwrap()["metadata"]["ownerReferences"], json!([]));
}
