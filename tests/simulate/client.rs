//! What programs meet through the client that controllers are built on.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps::v1::Deployment, authorization::v1::SelfSubjectAccessReview, core::v1::ConfigMap};
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use simulate::Cluster;

fn client(cluster: &Cluster) -> Client {
    Client::new(cluster.service("program"), "default")
}

fn map(data: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": data}))
}

#[tokio::test]
async fn program_applies_what_it_owns() {
    let cluster = Cluster::new("simulated", 1);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let made = maps.patch("map", &one, &map(&json!({"a": "1", "b": "1"}))).await.unwrap();
    let again = maps.patch("map", &one, &map(&json!({"a": "1", "b": "1"}))).await.unwrap();
    assert_eq!(made, again, "nothing has changed, and so has the version");
    let refused = maps.patch("map", &two, &map(&json!({"a": "2"}))).await.unwrap_err();
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 409);
    assert_eq!(status.message, "Apply failed with 1 conflict: conflict with \"one\": .data.a");
    let forced = maps.patch("map", &two.force(), &map(&json!({"a": "2"}))).await.unwrap();
    assert_eq!(
        forced.data,
        Some(BTreeMap::from([("a", "2"), ("b", "1")].map(|(key, value)| (key.into(), value.into()))))
    );
    let left = maps.patch("map", &one, &map(&json!({}))).await.unwrap();
    assert_eq!(left.data, Some(BTreeMap::from([("a".into(), "2".into())])));
}

#[tokio::test]
async fn program_adds_to_lists_that_others_keep() {
    let cluster = Cluster::new("simulated", 1);
    let deployments: Api<Deployment> = Api::default_namespaced(client(&cluster));
    let deployment = |containers: Value| {
        Patch::Apply(json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}},
            },
        }))
    };
    let (one, two) = (PatchParams::apply("one"), PatchParams::apply("two"));
    let own = json!([{"name": "web", "image": "web:1", "env": [{"name": "A", "value": "1"}]}]);
    deployments.patch("web", &one, &deployment(own.clone())).await.unwrap();
    let beside =
        json!([{"name": "beside", "image": "beside:1"}, {"name": "web", "env": [{"name": "B", "value": "2"}]}]);
    deployments.patch("web", &two, &deployment(beside)).await.unwrap();
    let containers = |deployment: Deployment| deployment.spec.unwrap().template.spec.unwrap().containers;
    let both = containers(deployments.get("web").await.unwrap());
    let told = |container: &k8s_openapi::api::core::v1::Container| {
        let env = container.env.iter().flatten().map(|variable| variable.name.as_str()).collect::<Vec<_>>();
        format!("{} {} {}", container.name, container.image.as_deref().unwrap(), env.join(","))
    };
    assert_eq!(both.iter().map(told).collect::<Vec<_>>(), ["beside beside:1 ", "web web:1 A,B"]);
    let none = deployment(json!([{"name": "web", "image": "web:1"}]));
    let fewer = containers(deployments.patch("web", &two, &none).await.unwrap());
    assert_eq!(fewer.iter().map(told).collect::<Vec<_>>(), ["web web:1 A"]);
}

#[tokio::test]
async fn long_list_says_the_same_in_one_piece_and_in_pages() {
    let cluster = Cluster::new("simulated", 1);
    for number in 0..1203 {
        let labels = json!({"part": if number % 2 == 0 { "even" } else { "odd" }});
        let map = json!({"metadata": {"name": format!("map-{number:04}"), "namespace": "default", "labels": labels}});
        cluster.create("configmaps", map).unwrap();
    }
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&cluster));
    for selector in ["part", "part=odd"] {
        let wanted = ListParams::default().labels(selector);
        let whole = maps.list(&wanted).await.unwrap();
        assert_eq!(whole.items.len(), if selector == "part" { 1203 } else { 601 });
        let (mut paged, mut next) = (Vec::new(), None);
        loop {
            let page = ListParams { limit: Some(600), continue_token: next, ..wanted.clone() };
            let page = maps.list(&page).await.unwrap();
            assert!(page.items.len() <= 600);
            paged.extend(page.items);
            next = page.metadata.continue_.filter(|token| !token.is_empty());
            if next.is_none() {
                break;
            }
        }
        assert_eq!(paged, whole.items, "{selector}");
    }
}

#[tokio::test]
async fn program_that_asks_what_it_may_do_is_told_everything() {
    let cluster = Cluster::new("simulated", 1);
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client(&cluster));
    let wanted = json!({"resource": "pods", "verb": "delete"});
    let question = serde_json::from_value(json!({"metadata": {}, "spec": {"resourceAttributes": wanted}})).unwrap();
    let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
    assert_eq!((answer.spec, answer.status.unwrap().allowed), (question.spec, true));
}
