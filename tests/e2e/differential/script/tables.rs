//! The tables that kubectl prints.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{MERGE, Script, TABLE};

#[expect(clippy::too_many_lines, reason = "a script: a request in each line")]
pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("tables"));
    script.post(&core("serviceaccounts", "tables"), account("default"));
    let paths = [
        (core("configmaps", "tables"), config_map("one", json!({}), json!({"a": "b", "c": "d"}))),
        (core("persistentvolumeclaims", "tables"), claim("one", "fast", "1Gi")),
        (core("pods", "tables"), with(pod("one"), "/spec/nodeName", json!("node-1"))),
        (
            core("secrets", "tables"),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}, "stringData": {"a": "b"}}),
        ),
        (core("events", "tables"), event("one", "tables", "one", "Seen")),
        (
            core("services", "tables"),
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one"},
            "spec": {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}]}}),
        ),
        (
            core("resourcequotas", "tables"),
            json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one"},
            "spec": {"hard": {"pods": "5"}}}),
        ),
        ("/apis/apps/v1/namespaces/tables/deployments".to_owned(), deployment("one")),
        (
            "/apis/apps/v1/namespaces/tables/replicasets".to_owned(),
            with(deployment("one"), "/kind", json!("ReplicaSet")),
        ),
        (
            "/apis/coordination.k8s.io/v1/namespaces/tables/leases".to_owned(),
            json!({"apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease", "metadata": {"name": "one"}, "spec": {"holderIdentity": "me"}}),
        ),
    ];
    for (path, object) in paths {
        script.post(&path, object);
        script.get(&path).accept(TABLE);
    }
    bound(script);
    for (path, object) in [
        (VOLUMES, volume("table-volume", "1Gi")),
        (CLASSES, class("table-class")),
        (
            "/apis/storage.k8s.io/v1/csidrivers",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver",
            "metadata": {"name": "table.example.com"}, "spec": {"attachRequired": false}}),
        ),
        (
            "/apis/storage.k8s.io/v1/csinodes",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
            "metadata": {"name": "table-node"}, "spec": {"drivers": []}}),
        ),
        (
            "/apis/storage.k8s.io/v1/volumeattachments",
            json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": "table-attachment"}, "spec": {"attacher": "a", "nodeName": "b", "source": {"persistentVolumeName": "c"}}}),
        ),
        (
            "/api/v1/nodes",
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "table-node",
            "labels": {"node-role.kubernetes.io/worker": ""}}, "status": {"nodeInfo": {"kubeletVersion": "v1", "machineID": "",
            "systemUUID": "", "bootID": "", "kernelVersion": "6", "osImage": "linux", "containerRuntimeVersion": "c",
            "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": "amd64"}}}),
        ),
    ] {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        script.post(path, object);
        script.get(&format!("{path}/{name}")).accept(TABLE);
    }
    script.get(&format!("{NAMESPACES}/tables")).accept(TABLE);
    script.get(&format!("{}/none", core("pods", "tables"))).accept(TABLE);
    let maps = core("configmaps", "tables");
    script.get(&format!("{maps}?includeObject=None")).accept(TABLE);
    script.get(&format!("{maps}?includeObject=Object")).accept(TABLE);
    script.get(&maps).accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json");
    script.get(&maps).accept("application/json;as=Nonsense;v=v1;g=meta.k8s.io");
    script.get(&format!("{maps}?limit=1")).accept(TABLE);
    script.watch(&format!("{maps}?watch=true&timeoutSeconds=1"), "nothing").accept(TABLE);
    script.delete("/api/v1/nodes/table-node");
}

/// The same once there is more to be told.
fn bound(script: &mut Script) {
    let claims = core("persistentvolumeclaims", "tables");
    script.patch(MERGE, &format!("{claims}/one"), json!({"spec": {"volumeName": "volume"}}));
    script.patch(
        MERGE,
        &format!("{claims}/one/status"),
        json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"]}}),
    );
    script.get(&claims).accept(TABLE);
    script.delete(&format!("{claims}/one"));
    script.get(&claims).accept(TABLE);
    let pods = core("pods", "tables");
    script.patch(
        MERGE,
        &format!("{pods}/one/status"),
        json!({"status": {"phase": "Running", "podIP": "10.0.0.1",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": "main", "ready": true, "restartCount": 2, "image": "busybox", "imageID": "",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}}),
    );
    script.get(&pods).accept(TABLE);
    script.delete(&format!("{pods}/one"));
    script.get(&pods).accept(TABLE);
    script.patch(
        MERGE,
        "/apis/apps/v1/namespaces/tables/deployments/one/status",
        json!({"status": {"replicas": 1,
        "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1}}),
    );
    script.get("/apis/apps/v1/namespaces/tables/deployments/one").accept(TABLE);
}
