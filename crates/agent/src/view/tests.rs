use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::time::timeout;

use super::*;
use crate::MANAGED_BY;

const OURS: &str = "kosmos.csi.io/node-id";

/// The host tells this of one of its nodes, or of what is on it.
fn told(view: &HostCache, kind: &str, name: &str, content: &Value) {
    let mut object = json!({"metadata": {"name": name}});
    if kind == "pods" {
        object["metadata"]["namespace"] = json!("shop");
    }
    for (field, value) in content.as_object().unwrap() {
        match field.as_str() {
            "annotations" => object["metadata"]["annotations"] = value.clone(),
            _ => object[field] = value.clone(),
        }
    }
    let event = Event::Apply(object::parsed(object).unwrap());
    let kept = |_: &mut Value| true;
    match kind {
        "nodes" => view.nodes.take(event, kept).iter().for_each(|change| view.node_changed(change)),
        "csinodes" => view.csi_nodes.take(event, kept).iter().for_each(|change| view.csi_node_changed(change)),
        "pods" => view.pods.take(event, kept).iter().for_each(|change| view.pod_changed(change)),
        _ => view.attachments.take(event, kept).iter().for_each(|change| view.attachment_changed(change)),
    }
}

fn removed(view: &HostCache, name: &str) {
    let gone = object::parsed(json!({"metadata": {"namespace": "shop", "name": name}})).unwrap();
    let changes = view.pods.take(Event::Delete(gone), |_| true);
    assert_eq!(changes.len(), 1, "{name}");
    view.pod_changed(&changes[0]);
}

/// What somebody has to look at now, by the members' work that has: pods, nodes with attachments, and whether its own nodes.
async fn woken(members: &[Subscription<'_>]) -> Vec<String> {
    const NOW: Duration = Duration::ZERO;
    let mut woken = Vec::new();
    for member in members {
        let names = |places: Option<std::collections::BTreeSet<Place>>| {
            places.into_iter().flatten().map(|place| place.name).collect::<Vec<_>>().join(",")
        };
        let pods = names(timeout(NOW, member.news.pods.take()).await.ok());
        let attached = names(timeout(NOW, member.news.attached.take()).await.ok());
        let nodes = timeout(NOW, member.news.nodes.notified()).await.is_ok();
        if !pods.is_empty() || !attached.is_empty() || nodes {
            woken.push(format!("{} pods[{pods}] attached[{attached}] nodes[{nodes}]", member.name));
        }
    }
    woken
}

fn for_member(name: &str) -> Value {
    json!({"annotations": {OURS: format!("virtual/{name}")}})
}

fn with_attached(member: &str) -> Value {
    let mut node = for_member(member);
    node["status"] = json!({"volumesAttached": [{"name": "kubernetes.io/csi/kosmos.csi.io^v", "devicePath": ""}]});
    node
}

fn on(node: &str) -> Value {
    json!({"spec": {"nodeName": node}})
}

#[tokio::test(start_paused = true)]
async fn event_of_the_host_wakes_the_work_on_the_one_member_that_it_concerns() {
    let view = HostCache::default();
    let names: Vec<String> = (0..1000).map(|number| format!("m{number}")).collect();
    let members: Vec<Subscription<'_>> = names.iter().map(|name| view.subscribe(name)).collect();
    for name in &names {
        told(&view, "nodes", &format!("kosmos-{name}"), &for_member(name));
    }
    assert_eq!(woken(&members).await.len(), 1000);
    for (kind, name, content, wakes) in [
        ("nodes", "kosmos-m7", for_member("m7"), "m7 pods[] attached[] nodes[true]"),
        ("nodes", "kosmos-m7", with_attached("m7"), "m7 pods[] attached[kosmos-m7] nodes[true]"),
        ("csinodes", "kosmos-m7", json!({}), "m7 pods[] attached[] nodes[true]"),
        ("pods", "p", on("kosmos-m7"), "m7 pods[p] attached[] nodes[false]"),
        ("attachments", "a", on("kosmos-m7"), "m7 pods[] attached[kosmos-m7] nodes[false]"),
    ] {
        told(&view, kind, name, &content);
        assert_eq!(woken(&members).await, [wakes], "{kind}");
    }
    told(&view, "pods", "of-a-real-node", &on("worker"));
    assert!(woken(&members).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pod_concerns_whoever_has_something_of_its_name_also_where_its_node_has_gone() {
    let view = HostCache::default();
    let members = [view.subscribe("a"), view.subscribe("b")];
    told(&view, "pods", "p", &on("kosmos-a"));
    assert!(woken(&members).await.is_empty(), "nobody knows yet whose node that is");
    told(&view, "nodes", "kosmos-a", &for_member("a"));
    assert_eq!(woken(&members).await, ["a pods[p] attached[] nodes[true]"]);
    told(&view, "nodes", "kosmos-a", &json!({}));
    assert_eq!(woken(&members).await, ["a pods[p] attached[] nodes[true]"], "it is no node of ours any more");
    let theirs = |labels: &Value| {
        let pod = json!({"metadata": {"namespace": "shop", "name": "p", "labels": labels}});
        let event = Event::Apply(object::parsed(pod).unwrap());
        members[1].pods.take(event, |_| true).iter().for_each(|change| members[1].pod_changed(change));
    };
    theirs(&json!({MANAGED_BY: DRIVER}));
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"]);
    told(&view, "pods", "p", &on("kosmos-a"));
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"]);
    removed(&view, "p");
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"]);
    theirs(&json!({}));
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"], "it is a copy no more");
    theirs(&json!({"any": "thing"}));
    told(&view, "pods", "p", &on("kosmos-a"));
    assert!(woken(&members).await.is_empty(), "it is the member's own");
    theirs(&json!({}));
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"], "the host has one of its name");
    assert!(view.subscribers().copies.is_empty());
}

/// It may be told of the node after the pod.
#[tokio::test(start_paused = true)]
async fn pod_concerns_whoever_has_a_copy_of_it_once_its_node_stands_for_another_member() {
    let view = HostCache::default();
    let members = [view.subscribe("a"), view.subscribe("b")];
    let copy = json!({"metadata": {"namespace": "shop", "name": "p", "labels": {MANAGED_BY: DRIVER}}});
    let event = Event::Apply(object::parsed(copy).unwrap());
    members[1].pods.take(event, |_| true).iter().for_each(|change| members[1].pod_changed(change));
    told(&view, "pods", "p", &on("kosmos-a"));
    assert_eq!(woken(&members).await, ["b pods[p] attached[] nodes[false]"]);
    told(&view, "nodes", "kosmos-a", &for_member("a"));
    assert_eq!(
        woken(&members).await,
        ["a pods[p] attached[] nodes[true]", "b pods[p] attached[] nodes[false]"],
        "it runs in the wrong member"
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_has_ended_is_told_nothing_and_takes_nothing_from_work_that_began_before_or_after_it() {
    let view = HostCache::default();
    let (first, second, third) = (view.subscribe("a"), view.subscribe("a"), view.subscribe("a"));
    let copy = json!({"metadata": {"namespace": "shop", "name": "p", "labels": {MANAGED_BY: DRIVER}}});
    for entered in [&first, &second, &third] {
        let event = Event::Apply(object::parsed(copy.clone()).unwrap());
        entered.pods.take(event, |_| true).iter().for_each(|change| entered.pod_changed(change));
    }
    let members = [second];
    woken(&members).await;
    drop((first, third));
    told(&view, "nodes", "kosmos-a", &for_member("a"));
    told(&view, "pods", "p", &on("worker"));
    assert_eq!(woken(&members).await, ["a pods[p] attached[] nodes[true]"]);
    drop(members);
    let subscribers = view.subscribers();
    assert!(subscribers.members.is_empty() && subscribers.copies.is_empty());
}

#[test]
fn pod_that_is_being_deleted_does_not_run_any_more() {
    let view = HostCache::default();
    let entered = view.subscribe("m");
    for (name, phase, deleted) in
        [("well", "Running", None), ("going", "Running", Some("2026-01-02T03:04:05Z")), ("new", "Pending", None)]
    {
        let metadata = json!({"namespace": "kosmos-csi", "name": name, "deletionTimestamp": deleted});
        let pod = object::parsed(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap();
        entered.pods.take(Event::Apply(pod), |_| true);
    }
    assert_eq!(view.running_in("m", "kosmos-csi"), ["well"]);
}

#[test]
fn pod_on_a_node_is_found_by_what_it_is_and_none_of_another_node() {
    let view = HostCache::default();
    for (name, node) in [("a", "kosmos-m"), ("b", "kosmos-m"), ("c", "kosmos-n")] {
        told(&view, "pods", name, &json!({"spec": {"nodeName": node}}));
    }
    let has = |node: &str, name: &str| view.has_pod_on(node, |pod| text(pod, "/metadata/name") == name);
    assert!(has("kosmos-m", "b") && has("kosmos-n", "c"));
    assert!(!has("kosmos-m", "c") && !has("kosmos-other", "a"));
}
