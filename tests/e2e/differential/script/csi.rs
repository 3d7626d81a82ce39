//! What drivers and nodes say of themselves: CSIDriver, CSINode, VolumeAttachment, CSIStorageCapacity and the rest.

use serde_json::json;

use super::objects::*;
use crate::differential::step::{MERGE, Script};

const GROUP: &str = "/apis/storage.k8s.io/v1";

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("csi"));
    drivers(script);
    nodes(script);
    attachments(script);
    let capacities = format!("{GROUP}/namespaces/csi/csistoragecapacities");
    script.post(
        &capacities,
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity",
        "metadata": {"name": "here"}, "storageClassName": "fast", "capacity": "10Gi",
        "nodeTopology": {"matchLabels": {"member": "a"}}}),
    );
    script.patch(MERGE, &format!("{capacities}/here"), json!({"capacity": "5Gi"}));
    script.patch(MERGE, &format!("{capacities}/here"), json!({"storageClassName": "other"}));
    let attributes = format!("{GROUP}/volumeattributesclasses");
    script.post(
        &attributes,
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass",
        "metadata": {"name": "gold"}, "driverName": "csi.example.com", "parameters": {"iops": "100"}}),
    );
    script.patch(MERGE, &format!("{attributes}/gold"), json!({"parameters": {"iops": "200"}}));
}

fn drivers(script: &mut Script) {
    let drivers = format!("{GROUP}/csidrivers");
    let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "csi.example.com"}, "spec": {}});
    script.post(&drivers, &driver);
    script.post(
        &drivers,
        with(
            with(driver.clone(), "/metadata/name", json!("other.example.com")),
            "/spec",
            json!({"attachRequired": false, "podInfoOnMount": true, "fsGroupPolicy": "None", "storageCapacity": true,
            "volumeLifecycleModes": ["Persistent", "Ephemeral"]}),
        ),
    );
    script.post(&drivers, with(driver, "/metadata/name", json!("Bad_Name")));
    script.patch(MERGE, &format!("{drivers}/csi.example.com"), json!({"spec": {"attachRequired": false}}));
    script.patch(MERGE, &format!("{drivers}/csi.example.com"), json!({"spec": {"podInfoOnMount": true}}));
    script.delete(&format!("{drivers}/csi.example.com"));
}

fn nodes(script: &mut Script) {
    let nodes = format!("{GROUP}/csinodes");
    let node = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-1"},
        "spec": {"drivers": [{"name": "csi.example.com", "nodeID": "1", "topologyKeys": ["member"]}]}});
    script.post(&nodes, &node);
    let path = format!("{nodes}/node-1");
    script.patch(
        MERGE,
        &path,
        json!({"spec": {"drivers": [{"name": "csi.example.com", "nodeID": "2", "topologyKeys": ["member"]}]}}),
    );
    script.patch(
        MERGE,
        &path,
        json!({"spec": {"drivers": [
        {"name": "csi.example.com", "nodeID": "1", "topologyKeys": ["member"]},
        {"name": "other.example.com", "nodeID": "1", "topologyKeys": null, "allocatable": {"count": 5}}]}}),
    );
    script.patch(MERGE, &path, json!({"spec": {"drivers": []}}));
    script.post(&nodes, json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-2"}, "spec": {"drivers": null}}));
    script.post(&nodes, with(with(node, "/spec/drivers/0/nodeID", json!("")), "/metadata/name", json!("node-3")));
    script.post(
        "/api/v1/nodes",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-9",
        "labels": {"member": "a"}}, "spec": {"taints": [{"key": "virtual", "effect": "NoSchedule"}]}}),
    );
    script.patch(MERGE, "/api/v1/nodes/node-9", json!({"spec": {"podCIDR": "10.0.0.0/24"}}));
    script.delete("/api/v1/nodes/node-9");
}

fn attachments(script: &mut Script) {
    let attachments = format!("{GROUP}/volumeattachments");
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "one"},
        "spec": {"attacher": "csi.example.com", "nodeName": "node-1", "source": {"persistentVolumeName": "volume"}}});
    script.post(&attachments, &attachment);
    let path = format!("{attachments}/one");
    script.patch(MERGE, &path, json!({"spec": {"nodeName": "node-2"}}));
    script.patch(MERGE, &path, json!({"status": {"attached": true}}));
    script.patch(
        MERGE,
        &format!("{path}/status"),
        json!({"status": {"attached": true, "attachmentMetadata": {"a": "b"}}}),
    );
    script.patch(
        MERGE,
        &format!("{path}/status"),
        json!({"status": {"attachError": {"message": "no", "time": "2026-01-01T00:00:00Z"}}}),
    );
    script.post(
        &attachments,
        with(with(attachment.clone(), "/spec/attacher", json!("")), "/metadata/name", json!("two")),
    );
    script.post(&attachments, with(with(attachment, "/spec/source", json!({})), "/metadata/name", json!("three")));
    script.delete(&path);
}
