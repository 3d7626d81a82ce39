//! Kinds that are made at run time: a small one of our own, and those of snapshots as their project gives them out.

use serde_json::{Value, json};

use super::objects::*;
use crate::differential::step::{APPLY, MERGE, STRATEGIC, Script, TABLE};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "members.test.example.com"},
        "spec": {"group": "test.example.com", "scope": "Namespaced",
            "names": {"plural": "members", "singular": "member", "kind": "Member", "shortNames": ["mb"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Zone", "type": "string", "jsonPath": ".spec.zone"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["zone"], "properties": {
                        "zone": {"type": "string", "minLength": 2},
                        "size": {"type": "integer", "default": 3, "minimum": 1},
                        "tier": {"type": "string", "enum": ["gold", "silver"]}}},
                    "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}}}}]}})
}

pub(crate) fn steps(script: &mut Script) {
    script.post(NAMESPACES, namespace("crds"));
    script.get("/apis/test.example.com/v1/namespaces/crds/members");
    script.post(DEFINITIONS, definition());
    script.post(DEFINITIONS, definition());
    let established = format!("{DEFINITIONS}/members.test.example.com");
    script.get(&established).until("/body/status/conditions/1/status", "True");
    script.get("/apis/test.example.com/v1").until("/body/kind", "APIResourceList");
    script.post(DEFINITIONS, with(definition(), "/metadata/name", json!("wrong.test.example.com")));
    objects(script);
    snapshots(script);
    script.delete("/apis/test.example.com/v1/namespaces/crds/members/one");
}

fn objects(script: &mut Script) {
    let members = "/apis/test.example.com/v1/namespaces/crds/members";
    let member = |name: &str, spec: Value| json!({"apiVersion": "test.example.com/v1", "kind": "Member", "metadata": {"name": name}, "spec": spec});
    script.get(members).until("/body/kind", "MemberList");
    script.post(members, member("one", json!({"zone": "here"})));
    script.post(members, member("two", json!({"zone": "here", "unknown": "dropped", "size": 5})));
    script.post(members, member("bad", json!({})));
    script.post(members, member("bad", json!({"zone": "x"})));
    script.post(members, member("bad", json!({"zone": "here", "size": 0})));
    script.post(members, member("bad", json!({"zone": "here", "size": "big"})));
    script.post(members, member("bad", json!({"zone": "here", "tier": "lead"})));
    script.post(members, with(member("status", json!({"zone": "here"})), "/status", json!({"ready": true})));
    script.post(members, with(member("kind", json!({"zone": "here"})), "/kind", json!("Other")));
    script.post(members, member("Bad_Name", json!({"zone": "here"})));
    let one = format!("{members}/one");
    script.patch(MERGE, &one, json!({"spec": {"size": 7}}));
    script.patch(MERGE, &one, json!({"metadata": {"labels": {"a": "b"}}}));
    script.patch(MERGE, &one, json!({"status": {"ready": true}}));
    script.patch(MERGE, &format!("{one}/status"), json!({"status": {"ready": true}, "spec": {"size": 9}}));
    script.patch(MERGE, &format!("{one}/status"), json!({"status": {"ready": "yes"}}));
    script.patch(STRATEGIC, &one, json!({"spec": {"size": 8}}));
    script.patch(APPLY, &format!("{members}/three?fieldManager=alice"), member("three", json!({"zone": "there"})));
    script.put(&one, member("one", json!({"zone": "here"})));
    script.get(&format!("{members}?labelSelector=a=b"));
    script.get(&format!("{members}?fieldSelector=spec.zone=here"));
    script.get(members).accept(TABLE);
    script.watch(&format!("{members}?watch=true&resourceVersion=0"), "three");
}

fn snapshots(script: &mut Script) {
    for (resource, group) in [
        ("volumesnapshotclasses", "snapshot.storage.k8s.io"),
        ("volumesnapshotcontents", "snapshot.storage.k8s.io"),
        ("volumesnapshots", "snapshot.storage.k8s.io"),
        ("volumegroupsnapshotclasses", "groupsnapshot.storage.k8s.io"),
        ("volumegroupsnapshots", "groupsnapshot.storage.k8s.io"),
    ] {
        let name = format!("{resource}.{group}");
        script.post(DEFINITIONS, format!("<crd:{name}>"));
    }
    let group = "/apis/snapshot.storage.k8s.io/v1";
    let version = "snapshot.storage.k8s.io/v1";
    script.get(&format!("{group}/namespaces/crds/volumesnapshots")).until("/body/kind", "VolumeSnapshotList");
    script.get(&format!("{group}/volumesnapshotclasses")).until("/body/kind", "VolumeSnapshotClassList");
    script.post(
        &format!("{group}/volumesnapshotclasses"),
        json!({"apiVersion": version, "kind": "VolumeSnapshotClass",
        "metadata": {"name": "snaps"}, "driver": "csi.example.com", "deletionPolicy": "Delete"}),
    );
    script.post(
        &format!("{group}/volumesnapshotclasses"),
        json!({"apiVersion": version, "kind": "VolumeSnapshotClass",
        "metadata": {"name": "bad"}, "driver": "csi.example.com", "deletionPolicy": "Nonsense"}),
    );
    let snapshots = format!("{group}/namespaces/crds/volumesnapshots");
    script.post(
        &snapshots,
        json!({"apiVersion": version, "kind": "VolumeSnapshot", "metadata": {"name": "snap"},
        "spec": {"volumeSnapshotClassName": "snaps", "source": {"persistentVolumeClaimName": "data"}}}),
    );
    script.patch(
        MERGE,
        &format!("{snapshots}/snap/status"),
        json!({"status": {"readyToUse": true, "restoreSize": "1Gi",
        "creationTime": "2026-01-01T00:00:00Z", "boundVolumeSnapshotContentName": "content"}}),
    );
    script.get(&snapshots).accept(TABLE);
    script.delete(&format!("{snapshots}/snap"));
    let groups = "/apis/groupsnapshot.storage.k8s.io/v1/namespaces/crds/volumegroupsnapshots";
    script.get(groups).until("/body/kind", "VolumeGroupSnapshotList");
    script.post(
        groups,
        json!({"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "metadata": {"name": "group"}, "spec": {"volumeGroupSnapshotClassName": "groups",
            "source": {"selector": {"matchLabels": {"a": "b"}}}}}),
    );
}
