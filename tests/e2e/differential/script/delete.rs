//! DELETE: preconditions, finalizers, propagation, collections.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{JSON, MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "delete");
    script.post(NAMESPACES, namespace("delete"));
    script.post(&maps, config_map("one", json!({}), json!({})));
    script.delete(&format!("{maps}/one"));
    script.delete(&format!("{maps}/one"));
    script.delete(&core("configmaps/one", "nowhere"));
    preconditions(script, &maps);
    finalizers(script, &maps);
    options(script, &maps);
    collections(script, &maps);
}

fn preconditions(script: &mut Script, maps: &str) {
    let two = format!("{maps}/two");
    script
        .post(maps, config_map("two", json!({}), json!({})))
        .keep("uid", "/metadata/uid")
        .keep("old", "/metadata/resourceVersion");
    script.patch(MERGE, &two, json!({"data": {"a": "b"}})).keep("new", "/metadata/resourceVersion");
    let options = |preconditions| json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    script.delete_with(&two, options(json!({"uid": "00000000-0000-0000-0000-000000000001"})));
    script.delete_with(&two, options(json!({"resourceVersion": "<old>"})));
    script.delete_with(&two, options(json!({"uid": "<uid>", "resourceVersion": "<old>"})));
    script.delete_with(&format!("{two}?dryRun=All"), options(json!({"uid": "<uid>"})));
    script.get(&two);
    script.delete_with(&two, options(json!({"uid": "<uid>", "resourceVersion": "<new>"})));
    script.delete_with(&two, options(json!({"uid": "<uid>"})));
    script.post(maps, config_map("two", json!({}), json!({})));
    script.delete_with(&two, json!({"preconditions": {"uid": "<uid>"}}));
    script.delete_with(&two, json!({"preconditions": {}}));
}

fn finalizers(script: &mut Script, maps: &str) {
    let held = format!("{maps}/held");
    let object = with(
        config_map("held", json!({}), json!({})),
        "/metadata/finalizers",
        json!(["example.com/a", "example.com/b"]),
    );
    script.post(maps, &object).keep("held", "/metadata/uid");
    script.delete(&held);
    script.delete(&held);
    script.delete_with(&held, json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000001"}}));
    script.get(&held);
    script.post(maps, &object);
    script.patch(MERGE, &held, json!({"data": {"still": "writable"}}));
    script.patch(JSON, &held, json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/c"}]));
    script.patch(MERGE, &held, json!({"metadata": {"deletionTimestamp": null}}));
    script.patch(JSON, &held, json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    script.patch(
        JSON,
        &held,
        json!([
        {"op": "test", "path": "/metadata/uid", "value": "<held>"},
        {"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/b"},
        {"op": "remove", "path": "/metadata/finalizers/0"}]),
    );
    script.get(&held);
    script.patch(JSON, &held, json!([{"op": "remove", "path": "/metadata/finalizers/0"}]));
    script.post(maps, with(config_map("put", json!({}), json!({})), "/metadata/finalizers", json!(["example.com/a"])));
    script.delete(&format!("{maps}/put"));
    script.put(&format!("{maps}/put"), config_map("put", json!({}), json!({})));
    script.get(&format!("{maps}/put"));
    script
        .post(maps, with(config_map("unheld", json!({}), json!({})), "/metadata/finalizers", json!(["example.com/a"])));
    script.patch(MERGE, &format!("{maps}/unheld"), json!({"metadata": {"finalizers": []}}));
    script.delete(&format!("{maps}/unheld"));
}

fn options(script: &mut Script, maps: &str) {
    let make = |script: &mut Script, name: &str| {
        script.post(maps, config_map(name, json!({}), json!({})));
    };
    make(script, "a");
    script.delete(&format!("{maps}/a?propagationPolicy=Foreground"));
    script.get(&format!("{maps}/a"));
    script.patch(MERGE, &format!("{maps}/a"), json!({"metadata": {"finalizers": null}}));
    make(script, "b");
    script.delete(&format!("{maps}/b?propagationPolicy=Orphan"));
    script.patch(MERGE, &format!("{maps}/b"), json!({"metadata": {"finalizers": null}}));
    make(script, "c");
    script.delete(&format!("{maps}/c?propagationPolicy=Nonsense"));
    script.delete(&format!("{maps}/c?propagationPolicy=Background&gracePeriodSeconds=0"));
    make(script, "d");
    script.delete_with(&format!("{maps}/d"), json!({"propagationPolicy": "Background", "gracePeriodSeconds": 5}));
    make(script, "e");
    script.delete_with(&format!("{maps}/e"), "{");
    script.delete_with(&format!("{maps}/e"), json!({"kind": "ConfigMap", "apiVersion": "v1"}));
    script.delete_with(&format!("{maps}/e"), json!({"gracePeriodSeconds": -1}));
    make(script, "f");
    script.delete_with(&format!("{maps}/f"), json!({"orphanDependents": true, "propagationPolicy": "Background"}));
    pods(script);
}

/// Pods on a node are given time; others go at once.
fn pods(script: &mut Script) {
    let pods = core("pods", "delete");
    script.post(&core("serviceaccounts", "delete"), account("default"));
    script.post(&pods, pod("waiting"));
    script.delete(&format!("{pods}/waiting"));
    script.get(&format!("{pods}/waiting"));
    script.post(&pods, with(pod("placed"), "/spec/nodeName", json!("node-1")));
    script.delete(&format!("{pods}/placed"));
    script.delete_with(&format!("{pods}/placed"), json!({"gracePeriodSeconds": 10}));
    script.get(&format!("{pods}/placed"));
    script.delete(&format!("{pods}/placed?gracePeriodSeconds=0"));
    script.get(&format!("{pods}/placed"));
    script.post(&pods, with(pod("ended"), "/spec/nodeName", json!("node-1")));
    script.patch(MERGE, &format!("{pods}/ended/status"), json!({"status": {"phase": "Succeeded"}}));
    script.delete(&format!("{pods}/ended"));
}

fn collections(script: &mut Script, maps: &str) {
    for (name, labels) in [("g", json!({"group": "1"})), ("h", json!({"group": "1"})), ("i", json!({"group": "2"}))] {
        script.post(maps, config_map(name, labels, json!({})));
    }
    script.delete(&format!("{maps}?labelSelector=group=1&dryRun=All"));
    script.delete(&format!("{maps}?labelSelector=group=1"));
    script.get(&format!("{maps}?labelSelector=group"));
    script.delete(&format!("{maps}?fieldSelector=metadata.name=i"));
    script.delete(&format!("{maps}?labelSelector=group in ("));
    script.delete(maps);
    script.get(maps);
    script.delete("/api/v1/configmaps");
    script.delete("/api/v1/namespaces");
}
