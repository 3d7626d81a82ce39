//! The API's rules that everything else stands on, through the same door as a client.

use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{
    Cluster,
    faults::{Action, Verb},
    follow,
};

async fn send(cluster: &Cluster, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request =
        Request::builder().method(method).uri(path).header("content-type", kind).body(Body::from(body)).unwrap();
    let answer = cluster.service("test").oneshot(request).await.unwrap();
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MERGE: &str = "application/merge-patch+json";

fn map(name: &str) -> Value {
    json!({"metadata": {"name": name, "labels": {"app": name}}, "data": {"key": "value"}})
}

#[tokio::test]
async fn object_is_created_once_read_listed_and_removed() {
    let cluster = Cluster::new("test", 1);
    let (code, made) = send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    assert_eq!((code, made["kind"].as_str()), (201, Some("ConfigMap")), "{made}");
    let (code, again) = send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    assert_eq!((code, again["reason"].as_str()), (409, Some("AlreadyExists")), "{again}");
    let (_, read) = send(&cluster, "GET", &format!("{MAPS}/a"), "", &Value::Null).await;
    assert_eq!(read, made);
    send(&cluster, "POST", MAPS, "application/json", &map("b")).await;
    let (_, list) = send(&cluster, "GET", &format!("{MAPS}?labelSelector=app%3Db"), "", &Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list}");
    let (code, _) = send(&cluster, "DELETE", &format!("{MAPS}/a"), "", &Value::Null).await;
    assert_eq!(code, 200);
    let (code, gone) = send(&cluster, "DELETE", &format!("{MAPS}/a"), "", &Value::Null).await;
    assert_eq!((code, gone["details"]["name"].as_str()), (404, Some("a")), "{gone}");
}

#[tokio::test]
async fn list_in_pages_whose_beginning_is_forgotten_goes_on_by_the_token_of_the_refusal_among_what_is_there_now() {
    let cluster = Cluster::new("test", 1);
    for name in ["a", "b", "c"] {
        send(&cluster, "POST", MAPS, "application/json", &map(name)).await;
    }
    let next = |page: &Value| format!("{MAPS}?limit=1&continue={}", page["metadata"]["continue"].as_str().unwrap());
    let (_, first) = send(&cluster, "GET", &format!("{MAPS}?limit=1"), "", &Value::Null).await;
    send(&cluster, "DELETE", &format!("{MAPS}/b"), "", &Value::Null).await;
    cluster.compact();
    let (code, refused) = send(&cluster, "GET", &next(&first), "", &Value::Null).await;
    assert_eq!((code, refused["reason"].as_str()), (410, Some("Expired")), "{refused}");
    let (_, rest) = send(&cluster, "GET", &next(&refused), "", &Value::Null).await;
    assert_eq!(rest["items"][0]["metadata"]["name"], json!("c"), "{rest}");
}

#[tokio::test]
async fn list_in_pages_may_be_given_in_smaller_ones_and_one_without_pages_is_whole() {
    let cluster = Cluster::new("test", 1);
    for name in ["a", "b", "c"] {
        send(&cluster, "POST", MAPS, "application/json", &map(name)).await;
    }
    cluster.faults().set(|_| Action::Pages(2));
    let count = |page: &Value| page["items"].as_array().unwrap().len();
    let (_, first) = send(&cluster, "GET", &format!("{MAPS}?limit=500"), "", &Value::Null).await;
    let next = first["metadata"]["continue"].as_str().unwrap();
    let (_, second) = send(&cluster, "GET", &format!("{MAPS}?limit=500&continue={next}"), "", &Value::Null).await;
    let (_, whole) = send(&cluster, "GET", MAPS, "", &Value::Null).await;
    assert_eq!([&first, &second, &whole].map(count), [2, 1, 3]);
}

#[tokio::test]
async fn write_on_an_old_version_is_a_conflict() {
    let cluster = Cluster::new("test", 1);
    let (_, made) = send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    let path = format!("{MAPS}/a");
    let (code, _) = send(&cluster, "PATCH", &path, MERGE, &json!({"data": {"key": "new"}})).await;
    assert_eq!(code, 200);
    let (code, refused) = send(&cluster, "PUT", &path, "application/json", &made).await;
    assert_eq!((code, refused["reason"].as_str()), (409, Some("Conflict")), "{refused}");
    let uid = json!({"preconditions": {"uid": "another"}});
    let (code, refused) = send(&cluster, "DELETE", &path, "application/json", &uid).await;
    assert_eq!((code, refused["reason"].as_str()), (409, Some("Conflict")), "{refused}");
}

#[tokio::test]
async fn finalizer_keeps_a_deleted_object_until_it_is_taken_away() {
    let cluster = Cluster::new("test", 1);
    let mut object = map("a");
    object["metadata"]["finalizers"] = json!(["example.org/keep"]);
    send(&cluster, "POST", MAPS, "application/json", &object).await;
    let path = format!("{MAPS}/a");
    let (code, kept) = send(&cluster, "DELETE", &path, "", &Value::Null).await;
    assert!(code == 200 && kept["metadata"]["deletionTimestamp"].is_string(), "{kept}");
    let (code, _) = send(&cluster, "PATCH", &path, MERGE, &json!({"metadata": {"finalizers": null}})).await;
    assert_eq!(code, 200);
    assert_eq!(cluster.get("configmaps", "default", "a"), None);
}

#[tokio::test(start_paused = true)]
async fn watch_goes_on_from_a_version_and_ends_at_its_limit() {
    let cluster = Cluster::new("test", 1);
    let (_, made) = send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    send(&cluster, "POST", MAPS, "application/json", &map("b")).await;
    send(&cluster, "DELETE", &format!("{MAPS}/a"), "", &Value::Null).await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=5&resourceVersion={version}");
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let answer = cluster.service("test").oneshot(request).await.unwrap();
    let text = answer.into_body().collect().await.unwrap().to_bytes();
    let events: Vec<Value> =
        text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let told: Vec<_> = events
        .iter()
        .map(|event| (event["type"].as_str().unwrap(), event["object"]["metadata"]["name"].as_str().unwrap()))
        .collect();
    assert_eq!(told, [("ADDED", "b"), ("DELETED", "a")]);
}

#[tokio::test(start_paused = true)]
async fn watch_that_lags_tells_each_change_so_much_later() {
    let cluster = Cluster::new("test", 1);
    let (_, made) = send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    let lag = std::time::Duration::from_secs(20);
    cluster.faults().set(move |asked| if asked.verb == Verb::Watch { Action::Lag(lag) } else { Action::Pass });
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=300&resourceVersion={version}");
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let mut events = cluster.service("test").oneshot(request).await.unwrap().into_body();
    let began = tokio::time::Instant::now();
    let told = tokio::spawn(async move {
        let mut told = Vec::new();
        for _ in 0..2 {
            let line = events.frame().await.unwrap().unwrap().into_data().unwrap();
            let event: Value = serde_json::from_slice(&line).unwrap();
            told.push((began.elapsed().as_secs(), event["object"]["metadata"]["name"].as_str().unwrap().to_owned()));
        }
        told
    });
    for name in ["b", "c"] {
        tokio::time::sleep(lag / 2).await;
        send(&cluster, "POST", MAPS, "application/json", &map(name)).await;
    }
    assert_eq!(told.await.unwrap(), [(30, "b".to_owned()), (40, "c".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn watch_ends_at_the_moment_in_which_its_cluster_is_restored_from_a_backup() {
    let cluster = Cluster::new("test", 1);
    let backup = cluster.backup();
    send(&cluster, "POST", MAPS, "application/json", &map("a")).await;
    let version = cluster.get("configmaps", "default", "a").unwrap()["metadata"]["resourceVersion"].clone();
    let path = format!("{MAPS}?watch=true&timeoutSeconds=300&resourceVersion={}", version.as_str().unwrap());
    let request = Request::builder().uri(path).body(Body::empty()).unwrap();
    let answer = cluster.service("test").oneshot(request).await.unwrap();
    let began = tokio::time::Instant::now();
    let whole = tokio::spawn(async move { answer.into_body().collect().await.map(|_| began.elapsed()) });
    tokio::task::yield_now().await;
    cluster.restore_from(&backup);
    assert_eq!(whole.await.unwrap().unwrap(), std::time::Duration::ZERO);
    assert_eq!(cluster.get("configmaps", "default", "a"), None);
}

#[tokio::test]
async fn followers_see_what_is_there_and_every_change_even_after_compaction() {
    let cluster = Cluster::new("test", 1);
    let mut changes = follow::follow(&cluster, &["configmaps"]);
    for name in ["a", "b"] {
        let object = json!({"metadata": {"name": name, "namespace": "default"}});
        cluster.create("configmaps", object).unwrap();
    }
    assert_eq!(changes.next().await.object["metadata"]["name"], json!("a"));
    assert_eq!(changes.next().await.object["metadata"]["name"], json!("b"));
    cluster.delete("configmaps", "default", "a").unwrap();
    cluster.compact();
    let change = changes.next().await;
    assert_eq!((change.what, change.object["metadata"]["name"].as_str()), (super::What::Deleted, Some("a")));
    for name in ["c", "d"] {
        cluster.create("configmaps", json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
        cluster.compact();
        let change = changes.next().await;
        assert_eq!((change.what, change.object["metadata"]["name"].as_str()), (super::What::Added, Some(name)));
    }
    assert!(changes.try_next().is_none());
}

#[tokio::test]
async fn events_of_both_groups_are_the_same() {
    let cluster = Cluster::new("test", 1);
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p"}, "note": "hello"});
    let (code, made) = send(&cluster, "POST", new, "application/json", &event).await;
    assert_eq!((code, &made["apiVersion"], &made["note"]), (201, &json!("events.k8s.io/v1"), &json!("hello")));
    let (_, old) = send(&cluster, "GET", "/api/v1/namespaces/default/events/e", "", &Value::Null).await;
    assert_eq!((&old["apiVersion"], &old["message"]), (&json!("v1"), &json!("hello")));
    assert_eq!(old["involvedObject"]["name"], json!("p"));
    let (code, _) = send(&cluster, "PATCH", &format!("{new}/e"), MERGE, &json!({"note": "bye"})).await;
    assert_eq!(code, 200);
    assert_eq!(cluster.get("events", "default", "e").unwrap()["message"], json!("bye"));
    let (_, list) = send(&cluster, "GET", new, "", &Value::Null).await;
    assert_eq!((&list["apiVersion"], &list["items"][0]["note"]), (&json!("events.k8s.io/v1"), &json!("bye")));
}

#[tokio::test]
async fn scale_is_patched_and_noted() {
    let cluster = Cluster::new("test", 1);
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({"metadata": {"name": "r"}, "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x"}]}}}});
    let (code, made) = send(&cluster, "POST", sets, "application/json", &set).await;
    assert_eq!(code, 201, "{made}");
    let steps = json!([{"op": "replace", "path": "/spec/replicas", "value": 3}]);
    let path = format!("{sets}/r/scale?fieldManager=me");
    let (code, scale) = send(&cluster, "PATCH", &path, "application/json-patch+json", &steps).await;
    assert_eq!((code, &scale["kind"], &scale["spec"]["replicas"]), (200, &json!("Scale"), &json!(3)), "{scale}");
    let set = cluster.get("replicasets.apps", "default", "r").unwrap();
    let noted = set["metadata"]["managedFields"].as_array().unwrap();
    let mine = noted.iter().find(|entry| entry["manager"] == "me").unwrap();
    assert_eq!((&mine["subresource"], &mine["fieldsV1"]), (&json!("scale"), &json!({"f:spec": {"f:replicas": {}}})));
}

#[tokio::test]
async fn request_that_is_led_elsewhere_is_carried_out_there_and_answered_in_the_words_of_there() {
    let (here, there) = (Cluster::new("here", 1), Cluster::new("there", 2));
    here.faults().lead_to(&there);
    here.faults().set(|_| Action::Elsewhere);
    let (code, _) = send(&here, "POST", MAPS, "application/json", &map("a")).await;
    assert_eq!(code, 201);
    assert!(here.get("configmaps", "default", "a").is_none() && there.get("configmaps", "default", "a").is_some());
    let identity = "/api/v1/namespaces/kube-system";
    let (_, told) = send(&here, "GET", identity, "", &Value::Null).await;
    here.faults().clear();
    assert_eq!(send(&there, "GET", identity, "", &Value::Null).await.1, told);
    assert_ne!(send(&here, "GET", identity, "", &Value::Null).await.1, told);
}
