//! Namespaces: made, filled, terminating. Nothing empties them here: that is a controller's work.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    let namespace_path = format!("{NAMESPACES}/ending");
    script
        .post(NAMESPACES, with(namespace("ending"), "/metadata/labels", json!({"a": "b"})))
        .keep("uid", "/metadata/uid");
    script.patch(MERGE, &namespace_path, json!({"metadata": {"labels": {"kubernetes.io/metadata.name": "other"}}}));
    script.patch(
        MERGE,
        &namespace_path,
        json!({"metadata": {"labels": {"kubernetes.io/metadata.name": null, "c": "d"}}}),
    );
    script.patch(MERGE, &namespace_path, json!({"spec": {"finalizers": []}}));
    script.patch(MERGE, &namespace_path, json!({"status": {"phase": "Terminating"}}));
    let maps = core("configmaps", "ending");
    script.post(&maps, config_map("inside", json!({}), json!({})));
    script.delete_with(&namespace_path, json!({"preconditions": {"uid": "00000000-0000-0000-0000-000000000001"}}));
    script.delete_with(&namespace_path, json!({"preconditions": {"uid": "<uid>"}}));
    script.get(&namespace_path);
    script.delete(&namespace_path);
    script.post(NAMESPACES, namespace("ending"));
    script.post(&maps, config_map("late", json!({}), json!({})));
    script.post(&core("persistentvolumeclaims", "ending"), claim("late", "fast", "1Gi"));
    script.patch(MERGE, &format!("{maps}/inside"), json!({"data": {"still": "writable"}}));
    script.get(&maps);
    script.delete(&format!("{maps}/inside"));
    script.put(
        &format!("{namespace_path}/finalize"),
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "ending"}, "spec": {"finalizers": []}}),
    );
    script.get(&namespace_path);
    script.post(NAMESPACES, namespace("ending"));
    script.post(NAMESPACES, with(namespace("held"), "/metadata/finalizers", json!(["example.com/held"])));
    script.delete(&format!("{NAMESPACES}/held"));
    script.put(
        &format!("{NAMESPACES}/held/finalize"),
        json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "held", "finalizers": ["example.com/held"]}, "spec": {"finalizers": []}}),
    );
    script.patch(MERGE, &format!("{NAMESPACES}/held"), json!({"metadata": {"finalizers": null}}));
    script.get(&format!("{NAMESPACES}/held"));
    script.delete(&format!("{NAMESPACES}/default"));
    script.delete(&format!("{NAMESPACES}/kube-system"));
    script
        .post(NAMESPACES, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "made-"}}))
        .keep("made", "/metadata/name");
    script.get(&format!("{NAMESPACES}/<made>"));
    script.post(NAMESPACES, with(namespace("specified"), "/spec", json!({"finalizers": ["example.com/a"]})));
    script.put(&format!("{NAMESPACES}/specified"), with(namespace("specified"), "/metadata/labels", json!({"x": "y"})));
    script.post(NAMESPACES, with(namespace("spaced"), "/metadata/namespace", json!("default")));
}
