//! The status subresource, on kinds with and without it.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{APPLY, JSON, MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("status"));
    let claims = core("persistentvolumeclaims", "status");
    let data = format!("{claims}/data");
    script
        .post(&claims, with(claim("data", "fast", "1Gi"), "/status", json!({"phase": "Bound"})))
        .keep("version", "/metadata/resourceVersion");
    script.get(&format!("{data}/status"));
    script.patch(
        MERGE,
        &format!("{data}/status"),
        json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"]}, "spec": {"volumeName": "x"}, "metadata": {"labels": {"a": "b"}}}),
    );
    script.patch(MERGE, &data, json!({"metadata": {"labels": {"c": "d"}}, "status": {"phase": "Lost"}}));
    script.patch(
        MERGE,
        &format!("{data}/status"),
        json!({"metadata": {"resourceVersion": "<version>"}, "status": {"phase": "Lost"}}),
    );
    script.patch(MERGE, &format!("{data}/status"), json!({"metadata": {"finalizers": []}}));
    script.patch(MERGE, &format!("{data}/status"), json!({"status": {"phase": 5}}));
    script.put(
        &format!("{data}/status"),
        with(
            claim("data", "other", "5Gi"),
            "/status",
            json!({"phase": "Pending",
        "conditions": [{"type": "Resizing", "status": "True", "lastProbeTime": null,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}),
        ),
    );
    script.patch(
        JSON,
        &format!("{data}/status"),
        json!([{"op": "replace", "path": "/status/phase", "value": "Bound"}]),
    );
    script.patch(
        APPLY,
        &format!("{data}/status?fieldManager=alice&force=true"),
        json!({"apiVersion": "v1",
        "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "status": {"phase": "Lost"}}),
    );
    script.delete(&format!("{data}/status"));
    script.post(&format!("{data}/status"), json!({}));
    script.patch(MERGE, &format!("{claims}/none/status"), json!({"status": {"phase": "Bound"}}));
    script.post(VOLUMES, with(volume("status-volume", "1Gi"), "/status", json!({"phase": "Available"})));
    script.patch(MERGE, &format!("{VOLUMES}/status-volume/status"), json!({"status": {"phase": "Available"}}));
    script.patch(MERGE, &format!("{VOLUMES}/status-volume/status"), json!({"status": {"phase": "Failed", "message": "no", "reason": "Why"}, "spec": {"capacity": {"storage": "7Gi"}}}));
    others(script);
}

fn others(script: &mut Script) {
    script.patch(MERGE, &core("configmaps/none/status", "status"), json!({}));
    script.patch(MERGE, &format!("{CLASSES}/none/status"), json!({}));
    let web = "/apis/apps/v1/namespaces/status/deployments";
    script.post(web, with(deployment("web"), "/status", json!({"replicas": 7})));
    script.patch(
        MERGE,
        &format!("{web}/web/status"),
        json!({"status": {"replicas": 1, "readyReplicas": 1,
        "updatedReplicas": 1, "availableReplicas": 1, "observedGeneration": 1}, "spec": {"replicas": 9}}),
    );
    script.patch(MERGE, &format!("{web}/web"), json!({"spec": {"replicas": 2}, "status": {"replicas": 8}}));
    script.patch(MERGE, &format!("{web}/web"), json!({"metadata": {"annotations": {"a": "b"}}}));
    script.get(&format!("{web}/web/scale"));
    script.patch(MERGE, &format!("{web}/web/scale"), json!({"spec": {"replicas": 4}}));
    script.patch(MERGE, &format!("{web}/web/scale"), json!({"spec": {"replicas": -4}}));
    script.post(
        "/api/v1/nodes",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "status-node"},
        "status": {"capacity": {"pods": "10"}}}),
    );
    script.patch(
        MERGE,
        "/api/v1/nodes/status-node/status",
        json!({"status": {"conditions": [
        {"type": "Ready", "status": "True", "reason": "Works", "message": "it works"}]}}),
    );
    script.patch(
        MERGE,
        "/api/v1/nodes/status-node",
        json!({"status": {"capacity": {"pods": "20"}}, "spec": {"unschedulable": true}}),
    );
    script.patch(
        MERGE,
        "/api/v1/namespaces/status/status",
        json!({"status": {"conditions": [{"type": "Odd", "status": "True"}]}}),
    );
    script.delete("/api/v1/nodes/status-node");
}
