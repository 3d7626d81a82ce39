//! PATCH: merge, JSON, strategic.

use serde_json::{Value, json};

use super::objects::*;
use crate::differential::step::{JSON, MERGE, STRATEGIC, Script};

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "patch");
    let one = format!("{maps}/one");
    script.post(NAMESPACES, namespace("patch"));
    script
        .post(&maps, config_map("one", json!({"a": "b"}), json!({"key": "1", "other": "x"})))
        .keep("first", "/metadata/resourceVersion")
        .keep("uid", "/metadata/uid");
    merge(script, &one, &maps);
    json_patch(script, &one);
    strategic(script);
}

fn merge(script: &mut Script, one: &str, maps: &str) {
    script.patch(MERGE, one, json!({"data": {"key": "2", "new": "y"}}));
    script.patch(MERGE, one, json!({"data": {"other": null}}));
    script.patch(MERGE, one, json!({}));
    script.patch(MERGE, one, json!({"metadata": {"resourceVersion": "<first>"}, "data": {"key": "stale"}}));
    script.patch(MERGE, one, json!({"metadata": {"resourceVersion": null}, "data": {"key": "unconditional"}}));
    script.patch(MERGE, one, json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000001"}}));
    script.patch(MERGE, one, json!({"metadata": {"uid": "<uid>", "labels": {"c": "d"}}}));
    script.patch(MERGE, one, json!({"metadata": {"name": "two"}}));
    script.patch(MERGE, one, json!({"metadata": {"namespace": "default"}}));
    script.patch(MERGE, one, json!({"metadata": {"labels": {"bad value": "x"}}}));
    script.patch(MERGE, one, json!({"metadata": {"labels": {"a": 1}}}));
    script.patch(MERGE, one, json!({"metadata": {"creationTimestamp": null, "selfLink": "x"}}));
    script.patch(MERGE, one, json!({"data": null}));
    script.patch(MERGE, one, json!([]));
    script.patch(MERGE, one, "{");
    script.patch(MERGE, one, "");
    script.patch(MERGE, one, "null");
    script.patch(MERGE, &format!("{maps}/none"), json!({"data": {"a": "b"}}));
    script.patch(MERGE, &format!("{one}?dryRun=All"), json!({"data": {"dry": "yes"}}));
    script.patch(MERGE, &format!("{one}?fieldValidation=Strict"), json!({"nonsense": 1}));
    script.patch(MERGE, &format!("{one}?fieldValidation=Warn"), json!({"nonsense": 1}));
    script.patch(MERGE, one, json!({"nonsense": 1}));
    script.patch(MERGE, &format!("{one}?force=true"), json!({"data": {"a": "b"}}));
    script.patch("application/json", one, json!({"data": {}}));
    script.patch("text/plain", one, json!({"data": {}}));
    script.patch("application/merge-patch+json; charset=utf-8", one, json!({"data": {"charset": "yes"}}));
    script.patch(MERGE, &core("configmaps/one", "nowhere"), json!({}));
    let claims = core("persistentvolumeclaims", "patch");
    script.post(&claims, claim("data", "fast", "1Gi")).keep("claim", "/metadata/uid");
    script.patch(MERGE, &format!("{claims}/data"), json!({"metadata": {"annotations": {"example.com/member": "a"}}}));
    script.patch(MERGE, &format!("{claims}/data"), json!({"metadata": {"annotations": {"example.com/member": null}}}));
    script.patch(MERGE, &format!("{claims}/data"), json!({"metadata": {"finalizers": ["example.com/pin"]}}));
    script.patch(MERGE, &format!("{claims}/data"), json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}));
}

fn json_patch(script: &mut Script, one: &str) {
    let mut patch = |operations: Value| {
        script.patch(JSON, one, operations);
    };
    patch(
        json!([{"op": "test", "path": "/metadata/uid", "value": "<uid>"}, {"op": "add", "path": "/data/x", "value": "1"}]),
    );
    patch(
        json!([{"op": "test", "path": "/metadata/uid", "value": "wrong"}, {"op": "add", "path": "/data/y", "value": "1"}]),
    );
    patch(
        json!([{"op": "test", "path": "/metadata/annotations", "value": null}, {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}}]),
    );
    patch(json!([{"op": "test", "path": "/metadata/annotations", "value": null}]));
    patch(json!([{"op": "test", "path": "/metadata/nonsense", "value": null}]));
    patch(json!([{"op": "test", "path": "/metadata/nonsense", "value": "x"}]));
    patch(json!([{"op": "test", "path": "/spec/claimRef/uid", "value": "x"}]));
    patch(json!([{"op": "test", "path": "/spec/claimRef/uid", "value": null}]));
    patch(json!([{"op": "test", "path": "/data", "value": {"x": "1"}}]));
    patch(json!([{"op": "add", "path": "/metadata/labels/example.com~1owner", "value": "me"}]));
    patch(json!([{"op": "replace", "path": "/data/x", "value": "2"}]));
    patch(json!([{"op": "replace", "path": "/data/missing", "value": "2"}]));
    patch(json!([{"op": "remove", "path": "/data/missing"}]));
    patch(json!([{"op": "remove", "path": "/data/x"}]));
    patch(json!([{"op": "add", "path": "/none/deep", "value": "2"}]));
    patch(json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/a"]}]));
    patch(json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/b"}]));
    patch(json!([{"op": "add", "path": "/metadata/finalizers/0", "value": "example.com/c"}]));
    patch(
        json!([{"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/c"}, {"op": "remove", "path": "/metadata/finalizers/0"}]),
    );
    patch(json!([{"op": "test", "path": "/metadata/finalizers/5", "value": "example.com/c"}]));
    patch(json!([{"op": "remove", "path": "/metadata/finalizers/5"}]));
    patch(json!([{"op": "remove", "path": "/metadata/finalizers"}]));
    patch(json!([{"op": "copy", "from": "/metadata/labels/a", "path": "/metadata/labels/copy"}]));
    patch(json!([{"op": "move", "from": "/metadata/labels/copy", "path": "/metadata/labels/moved"}]));
    patch(json!([{"op": "nonsense", "path": "/data"}]));
    patch(json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": "<first>"}]));
    patch(json!([{"op": "replace", "path": "/metadata/name", "value": "two"}]));
    patch(json!([]));
    patch(json!({"op": "add"}));
    patch(json!("text"));
    patch(json!([{"path": "/data"}]));
    script.patch(JSON, one, "[");
    script.patch(JSON, one.replace("one", "none").as_str(), json!([{"op": "add", "path": "/data", "value": {}}]));
}

fn strategic(script: &mut Script) {
    let pods = core("pods", "patch");
    script.post(&core("serviceaccounts", "patch"), account("default"));
    let two = json!([{"name": "main", "image": "busybox"}, {"name": "side", "image": "busybox", "env": [{"name": "A", "value": "1"}]}]);
    script.post(&pods, with(pod("two"), "/spec/containers", two));
    let pod = format!("{pods}/two");
    script.patch(STRATEGIC, &pod, json!({"spec": {"containers": [{"name": "side", "image": "busybox:2"}]}}));
    script.patch(STRATEGIC, &pod, json!({"metadata": {"labels": {"a": "b"}}}));
    script.patch(STRATEGIC, &pod, json!({"metadata": {"labels": {"$patch": "replace", "c": "d"}}}));
    script.patch(STRATEGIC, &pod, json!({"metadata": {"labels": {"c": null}}}));
    script.patch(STRATEGIC, &pod, json!({"metadata": {"finalizers": ["example.com/a"]}}));
    script.patch(STRATEGIC, &pod, json!({"metadata": {"finalizers": ["example.com/b"]}}));
    script.patch(
        STRATEGIC,
        &pod,
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/a", "example.com/b"]}}),
    );
    script.patch(STRATEGIC, &pod, json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}));
    script.patch(STRATEGIC, &pod, json!({"spec": {"nodeSelector": {"a": "b"}}}));
    script.patch(
        STRATEGIC,
        &format!("{pod}/status"),
        json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "False"}]}}),
    );
    script.patch(
        STRATEGIC,
        &format!("{pod}/status"),
        json!({"status": {
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}]}}),
    );
    templates(script);
}

fn templates(script: &mut Script) {
    let deployments = "/apis/apps/v1/namespaces/patch/deployments";
    script.post(deployments, deployment("web"));
    let web = format!("{deployments}/web");
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "env": [{"name": "A", "value": "1"}]}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "env": [{"name": "B", "value": "2"}]}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "image": "busybox"}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "side", "$patch": "delete"}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"volumes": [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}}}),
    );
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"spec": {"containers": [
        {"name": "main", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}}}}),
    );
    script.patch(MERGE, &web, json!({"spec": {"replicas": 3}}));
    script.patch(
        STRATEGIC,
        &web,
        json!({"spec": {"template": {"metadata": {"labels": {"deletionGracePeriodSeconds": 30}}}}}),
    );
    script.patch(
        MERGE,
        &web,
        json!({"spec": {"template": {"metadata": {"labels": {"deletionGracePeriodSeconds": 30}}}}}),
    );
    script.patch(STRATEGIC, &web, "{");
    script.patch(STRATEGIC, &web, json!([]));
    script.patch(STRATEGIC, &core("configmaps/one", "patch"), json!({"data": {"strategic": "yes"}}));
}
