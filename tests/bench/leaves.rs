//! Leaves as a member of some size has them: many namespaces, StatefulSets' names, a storage with handles of its own kind.

use domain::volume::{HostId, VolumeHash};
use k8s_openapi::serde_json::{Value, json};

fn uid(kind: u32, number: u32) -> String {
    format!("{kind:08x}-23c1-407e-a8e7-{:012x}", u64::from(number) * 7919)
}

pub fn namespace(number: u32) -> String {
    format!("team-{}", number % 500)
}

pub fn claim(host: &HostId, number: u32) -> Value {
    let parameters = json!({"leafStorageClass": "ceph-block", "member": "cluster38"});
    let request = json!({"required": 1_u64 << 30, "limit": 0, "access": ["ReadWriteOnce"], "mode": "Filesystem",
        "parameters": parameters});
    let mut metadata = metadata(host, number, &uid(1, number));
    metadata["namespace"] = json!(namespace(number));
    metadata["name"] = json!(format!("data-postgres-{}", number / 500));
    metadata["finalizers"] = json!(["kubernetes.io/pvc-protection", "kosmos.csi.io/protect"]);
    metadata["annotations"] = json!({"kosmos.csi.io/request": request.to_string(),
        "kosmos.csi.io/name": format!("pvc-{}", uid(2, number)), "kosmos.csi.io/claim-uid": uid(2, number)});
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": {"volumeName": format!("pvc-{}", uid(1, number)), "accessModes": ["ReadWriteOnce"],
            "storageClassName": "ceph-block", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    })
}

pub fn volume(host: &HostId, number: u32) -> Value {
    let mut metadata = metadata(host, number, &uid(3, number));
    metadata["name"] = json!(format!("pvc-{}", uid(1, number)));
    let handle = format!("0001-0011-openshift-storage-0000000000000002-{}", uid(4, number));
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume",
        "metadata": metadata,
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "ceph-block",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "claimRef": {"namespace": namespace(number), "name": format!("data-postgres-{}", number / 500),
                "uid": uid(1, number)},
            "csi": {"driver": "openshift-storage.rbd.csi.ceph.com", "volumeHandle": handle},
        },
        "status": {"phase": "Bound"},
    })
}

fn metadata(host: &HostId, number: u32, uid: &str) -> Value {
    let hash = VolumeHash::new(host, &number.to_string()).to_string();
    json!({
        "uid": uid, "resourceVersion": (1_000_000 + number).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host.0,
            "kosmos.csi.io/volume": hash},
    })
}
