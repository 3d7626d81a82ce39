//! Server-side apply: who owns which field.

use serde_json::{Value, json};

use super::objects::*;
use crate::differential::step::{APPLY, MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    let maps = core("configmaps", "apply");
    let one = format!("{maps}/one");
    script.post(NAMESPACES, namespace("apply"));
    let map = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": data});
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), map(json!({"a": "1", "b": "1"})));
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), map(json!({"a": "1", "b": "1"})));
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), map(json!({"a": "2"})));
    script.patch(APPLY, &format!("{one}?fieldManager=bob"), map(json!({"c": "3"})));
    script.patch(APPLY, &format!("{one}?fieldManager=bob"), map(json!({"a": "4"})));
    script.patch(APPLY, &format!("{one}?fieldManager=bob"), map(json!({"a": "2"})));
    script.patch(APPLY, &format!("{one}?fieldManager=bob&force=true"), map(json!({"a": "5"})));
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), map(json!({})));
    script.get(&one);
    script.patch(MERGE, &format!("{one}?fieldManager=carol"), json!({"data": {"a": "6"}}));
    script.patch(APPLY, &format!("{one}?fieldManager=bob"), map(json!({"a": "7"})));
    script.patch(APPLY, &one, map(json!({})));
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), json!({"data": {}}));
    script.patch(
        APPLY,
        &format!("{one}?fieldManager=alice"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "two"}}),
    );
    script.patch(
        APPLY,
        &format!("{one}?fieldManager=alice"),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}),
    );
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), with(map(json!({})), "/nonsense", json!(1)));
    script.patch(APPLY, &format!("{one}?fieldManager=alice&dryRun=All"), map(json!({"dry": "yes"})));
    script.patch(
        APPLY,
        &format!("{one}?fieldManager=alice"),
        with(map(json!({})), "/metadata/labels", json!({"x": "y"})),
    );
    script.patch(APPLY, &format!("{one}?fieldManager=alice"), map(json!({})));
    script.patch(
        APPLY,
        &format!("{maps}/made?fieldManager=alice"),
        with(map(json!({"new": "yes"})), "/metadata/name", json!("made")),
    );
    script.patch(APPLY, &core("configmaps/one?fieldManager=alice", "nowhere"), map(json!({})));
    script.patch(APPLY, &format!("{NAMESPACES}/applied?fieldManager=alice"), namespace("applied"));
    script.patch(APPLY, &format!("{CLASSES}/applied?fieldManager=alice"), class("applied"));
    workloads(script);
}

fn workloads(script: &mut Script) {
    let claims = core("persistentvolumeclaims", "apply");
    script.patch(APPLY, &format!("{claims}/data?fieldManager=alice"), claim("data", "fast", "1Gi"));
    let web = "/apis/apps/v1/namespaces/apply/deployments/web?fieldManager=alice";
    script.patch(APPLY, web, deployment("web"));
    script.patch(APPLY, web, deployment("web"));
    script.patch(APPLY, web, with(deployment("web"), "/spec/replicas", json!(2)));
    script.patch(
        APPLY,
        web,
        with(deployment("web"), "/spec/template/spec/containers/0/env", json!([{"name": "A", "value": "1"}])),
    );
    script.patch(APPLY, web, deployment("web"));
    let labels = json!({"app": "web", "deletionGracePeriodSeconds": 30});
    script.patch(APPLY, web, with(deployment("web"), "/spec/template/metadata/labels", labels.clone()));
    let deployments = "/apis/apps/v1/namespaces/apply/deployments";
    script.post(deployments, with(deployment("numbered"), "/spec/template/metadata/labels", labels));
    script.patch(
        APPLY,
        "/apis/apps/v1/namespaces/apply/deployments/web?fieldManager=bob",
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 5}}),
    );
    script.patch(
        APPLY,
        "/apis/apps/v1/namespaces/apply/deployments/web?fieldManager=alice",
        with(deployment("web"), "/spec/replicas", json!(6)),
    );
}
