//! Claims, volumes, classes and what else storage has: defaults, rules, what may change.

use serde_json::{Value, json};

use super::objects::*;
use crate::differential::step::{MERGE, Script};

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("storage"));
    classes(script);
    claims(script);
    expansion(script);
    binding(script);
    volumes(script);
}

fn classes(script: &mut Script) {
    script.post(CLASSES, class("plain"));
    script.post(CLASSES, with(class("full"), "/parameters", json!({"a": "b"})));
    script.post(
        CLASSES,
        with(
            class("full-2"),
            "/allowedTopologies",
            json!([{"matchLabelExpressions": [{"key": "member", "values": ["a"]}]}]),
        ),
    );
    script.post(CLASSES, with(class("unprovisioned"), "/provisioner", Value::Null));
    script.post(CLASSES, with(class("bad-provisioner"), "/provisioner", json!("a b")));
    script.post(CLASSES, with(class("bad-policy"), "/reclaimPolicy", json!("Nonsense")));
    script.post(CLASSES, with(class("bad-mode"), "/volumeBindingMode", json!("Nonsense")));
    script.post(CLASSES, with(class("bad-parameter"), "/parameters", json!({"": "b"})));
    let mut late = with(class("late"), "/volumeBindingMode", json!("WaitForFirstConsumer"));
    late["reclaimPolicy"] = json!("Retain");
    late["allowVolumeExpansion"] = json!(true);
    late["mountOptions"] = json!(["ro"]);
    script.post(CLASSES, late);
    let full = format!("{CLASSES}/full");
    script.patch(MERGE, &full, json!({"parameters": {"a": "c"}}));
    script.patch(MERGE, &full, json!({"provisioner": "other.example.com"}));
    script.patch(MERGE, &full, json!({"reclaimPolicy": "Retain"}));
    script.patch(MERGE, &full, json!({"volumeBindingMode": "WaitForFirstConsumer"}));
    script.patch(MERGE, &full, json!({"allowVolumeExpansion": true}));
    script.patch(
        MERGE,
        &full,
        json!({"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}),
    );
    script.delete(&format!("{CLASSES}/full-2"));
}

#[expect(clippy::too_many_lines, reason = "a script: a request in each line")]
fn claims(script: &mut Script) {
    let claims = core("persistentvolumeclaims", "storage");
    let unclassed = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "unclassed"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    // What the real server adds by itself, it knows from a watch that may be behind.
    let as_if = format!("{claims}?dryRun=All");
    script.post(&as_if, &unclassed).until("/body/spec/storageClassName", "full");
    script.post(&claims, &unclassed);
    script.post(
        &claims,
        with(with(unclassed.clone(), "/metadata/name", json!("empty-class")), "/spec/storageClassName", json!("")),
    );
    script.patch(MERGE, &format!("{CLASSES}/full"), json!({"metadata": {"annotations": null}}));
    let unclassed = with(unclassed, "/metadata/name", json!("without-default"));
    script.post(&as_if, &unclassed).until("/body/spec/storageClassName", Value::Null);
    script.post(&claims, unclassed);
    script.post(&claims, claim("one", "full", "1Gi")).keep("claim", "/metadata/uid");
    for size in ["1024Mi", "1.5Gi", "0.5", "1e9", "1000000000000", "1500m", "100k"] {
        script.post(&as_if, claim("sized", "full", size));
    }
    for size in ["0", "-1Gi", "1GB", "", "big", "1 Gi"] {
        script.post(&claims, claim("bad-size", "full", size));
    }
    script
        .post(&claims, with(claim("number", "full", "1Gi"), "/spec/resources/requests/storage", json!(1_073_741_824)));
    script.post(&claims, with(claim("modeless", "full", "1Gi"), "/spec/accessModes", json!([])));
    script.post(&claims, with(claim("bad-mode", "full", "1Gi"), "/spec/accessModes", json!(["ReadWrite"])));
    script.post(&claims, with(claim("pod-mode", "full", "1Gi"), "/spec/accessModes", json!(["ReadWriteOncePod"])));
    script.post(
        &claims,
        with(claim("two-modes", "full", "1Gi"), "/spec/accessModes", json!(["ReadWriteOncePod", "ReadWriteOnce"])),
    );
    script.post(&claims, with(claim("sizeless", "full", "1Gi"), "/spec/resources", json!({})));
    script
        .post(&claims, json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "specless"}}));
    script.post(&claims, with(claim("block", "full", "1Gi"), "/spec/volumeMode", json!("Block")));
    script.post(&claims, with(claim("bad-volume-mode", "full", "1Gi"), "/spec/volumeMode", json!("Nonsense")));
    script.post(&claims, with(claim("bad-class", "Full Class", "1Gi"), "/metadata/labels", json!({"a": "b"})));
    script.post(
        &claims,
        with(
            claim("source", "full", "1Gi"),
            "/spec/dataSource",
            json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "snap"}),
        ),
    );
    script.post(
        &claims,
        with(
            claim("clone", "full", "1Gi"),
            "/spec/dataSource",
            json!({"kind": "PersistentVolumeClaim", "name": "one"}),
        ),
    );
    script.post(
        &claims,
        with(claim("bad-source", "full", "1Gi"), "/spec/dataSource", json!({"kind": "Pod", "name": "one"})),
    );
    script.post(&claims, with(claim("selecting", "full", "1Gi"), "/spec/selector", json!({"matchLabels": {"a": "b"}})));
    script.post(&claims, with(claim("bound", "full", "1Gi"), "/spec/volumeName", json!("volume-x")));
    let mut finalized = claim("finalized", "full", "1Gi");
    finalized["metadata"]["finalizers"] = json!(["example.com/leaf"]);
    script.post(&claims, finalized);
    script.post(&claims, with(claim("Bad_Name", "full", "1Gi"), "/spec/accessModes", json!(["x"])));
    let one = format!("{claims}/one");
    script.patch(MERGE, &one, json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
    script.patch(MERGE, &one, json!({"spec": {"storageClassName": "plain"}}));
    script.patch(MERGE, &one, json!({"spec": {"volumeMode": "Block"}}));
    script.delete(&one);
    script.get(&one);
    script.patch(MERGE, &one, json!({"metadata": {"finalizers": null}}));
    script.get(&one);
}

fn expansion(script: &mut Script) {
    let claims = core("persistentvolumeclaims", "storage");
    let grow = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}});
    for (name, class) in [("growing", "full"), ("fixed", "plain")] {
        let path = format!("{claims}/{name}");
        script.post(&claims, claim(name, class, "1Gi"));
        script.patch(MERGE, &path, grow("2Gi"));
        script.patch(MERGE, &path, json!({"spec": {"volumeName": format!("volume-{name}")}}));
        script.patch(MERGE, &path, json!({"spec": {"volumeName": "volume-other"}}));
        script.patch(MERGE, &format!("{path}/status"), &bound);
        script.patch(MERGE, &path, grow("2Gi"));
        script.patch(MERGE, &path, grow("512Mi"));
        script.patch(MERGE, &path, grow("3Gi"));
    }
    // Without a change nothing is sent that has quantities: whether it is written depends on the second it is sent in.
    script.patch(MERGE, &format!("{claims}/growing"), grow("1Gi"));
    script.patch(
        MERGE,
        &format!("{claims}/growing/status"),
        json!({"status": {"capacity": {"storage": "3Gi"},
        "conditions": [{"type": "FileSystemResizePending", "status": "True", "message": "waiting"}],
        "allocatedResources": {"storage": "3Gi"}, "allocatedResourceStatuses": {"storage": "NodeResizePending"}}}),
    );
    script.patch(
        MERGE,
        &format!("{claims}/growing/status"),
        json!({"status": {"allocatedResourceStatuses": {"storage": "Nonsense"}}}),
    );
}

/// What the controllers write when a claim is bound to a volume.
fn binding(script: &mut Script) {
    let claims = core("persistentvolumeclaims", "storage");
    script.post(&claims, claim("binding", "full", "1Gi")).keep("claim", "/metadata/uid");
    let mut volume = volume("bound-volume", "1Gi");
    volume["spec"]["claimRef"] = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "storage",
        "name": "binding", "uid": "<claim>"});
    volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    volume["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "csi.example.com"});
    script.post(VOLUMES, volume);
    script.patch(MERGE, &format!("{VOLUMES}/bound-volume/status"), json!({"status": {"phase": "Bound"}}));
    script.patch(
        MERGE,
        &format!("{claims}/binding"),
        json!({"spec": {"volumeName": "bound-volume"},
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}}),
    );
    script.patch(MERGE, &format!("{claims}/binding/status"), json!({"status": {"phase": "Bound"}}));
    script.patch(
        "application/json-patch+json",
        &format!("{VOLUMES}/bound-volume"),
        json!([
        {"op": "test", "path": "/spec/claimRef/uid", "value": "<claim>"},
        {"op": "test", "path": "/metadata/labels", "value": null},
        {"op": "add", "path": "/metadata/labels", "value": {"example.com/host": "a"}}]),
    );
    script.patch(
        "application/json-patch+json",
        &format!("{VOLUMES}/bound-volume"),
        json!([
        {"op": "test", "path": "/metadata/labels", "value": null},
        {"op": "add", "path": "/metadata/labels", "value": {"example.com/host": "b"}}]),
    );
    script.patch(MERGE, &format!("{claims}/binding"), json!({"spec": {"volumeName": "other"}}));
    script.patch(MERGE, &format!("{claims}/binding"), json!({"spec": {"volumeName": null}}));
    script.delete(&format!("{VOLUMES}/bound-volume"));
    script.delete(&format!("{claims}/binding"));
    script.patch(MERGE, &format!("{VOLUMES}/bound-volume/status"), json!({"status": {"phase": "Released"}}));
}

fn volumes(script: &mut Script) {
    script.post(VOLUMES, volume("one", "1Gi"));
    let one = format!("{VOLUMES}/one");
    script.patch(MERGE, &one, json!({"spec": {"csi": {"volumeHandle": "other"}}}));
    script.patch(MERGE, &one, json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}}));
    script.patch(MERGE, &one, json!({"spec": {"persistentVolumeReclaimPolicy": "Nonsense"}}));
    script.patch(MERGE, &one, json!({"spec": {"capacity": {"storage": "2Gi"}}}));
    script.patch(MERGE, &one, json!({"spec": {"volumeMode": "Block"}}));
    script.patch(
        MERGE,
        &one,
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "member", "operator": "In", "values": ["a"]}]}]}}}}),
    );
    script.patch(
        MERGE,
        &one,
        json!({"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "member", "operator": "In", "values": ["b"]}]}]}}}}),
    );
    script.patch(MERGE, &one, json!({"spec": {"claimRef": {"namespace": "storage", "name": "later"}}}));
    script.patch(MERGE, &one, json!({"spec": {"mountOptions": ["ro"], "storageClassName": "other"}}));
    let mut bad = |name: &str, pointer: &str, value: Value| {
        script.post(VOLUMES, with(volume(name, "1Gi"), pointer, value));
    };
    bad("sourceless", "/spec/csi", Value::Null);
    bad("modeless", "/spec/accessModes", json!([]));
    bad("sizeless", "/spec/capacity", json!({}));
    bad("zero", "/spec/capacity/storage", json!("0"));
    bad("driverless", "/spec/csi/driver", json!(""));
    bad("handleless", "/spec/csi/volumeHandle", json!(""));
    bad("two-sources", "/spec/nfs", json!({"server": "a", "path": "/"}));
    bad("bad-reclaim", "/spec/persistentVolumeReclaimPolicy", json!("Nonsense"));
    bad("attributes", "/spec/csi/volumeAttributes", json!({"a": "b"}));
    bad("block", "/spec/volumeMode", json!("Block"));
    let local = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "local"},
        "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/data"}}});
    script.post(VOLUMES, local);
    script.delete(&one);
    script.patch(MERGE, &one, json!({"metadata": {"finalizers": null}}));
}
