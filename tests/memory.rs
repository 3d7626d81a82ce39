//! What the rows of many volumes take of memory, all included: keys, indexes, the allocator's own rounding. Measured as
//! the process's resident memory, in a process of its own.
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    serde_json::{Value, from_value, json},
};
use kosmos_csi::{
    leaf::Rows,
    volume::{HostId, VolumeHash},
};

const VOLUMES: u32 = 30_000;
const ALLOWED: f64 = 700.0;

fn host() -> HostId {
    HostId("6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a".to_owned())
}

fn uid(kind: u32, number: u32) -> String {
    format!("{kind:08x}-23c1-407e-a8e7-{:012x}", u64::from(number) * 7919)
}

/// As a member of some size has them: many namespaces, StatefulSets' names, a storage with handles of its own kind.
fn claim(number: u32) -> PersistentVolumeClaim {
    let parameters = json!({"leafStorageClass": "ceph-block", "member": "cluster38"});
    let request = json!({"required": 1_u64 << 30, "limit": 0, "access": ["ReadWriteOnce"], "mode": "Filesystem",
        "parameters": parameters});
    let mut metadata = metadata(number, &uid(1, number));
    metadata["namespace"] = json!(format!("team-{}", number % 500));
    metadata["name"] = json!(format!("data-postgres-{}", number / 500));
    metadata["finalizers"] = json!(["kubernetes.io/pvc-protection", "kosmos.csi.io/protect"]);
    metadata["annotations"] = json!({"kosmos.csi.io/request": request.to_string(),
        "kosmos.csi.io/name": format!("pvc-{}", uid(2, number)), "kosmos.csi.io/claim-uid": uid(2, number)});
    from_value(json!({
        "metadata": metadata,
        "spec": {"volumeName": format!("pvc-{}", uid(1, number)), "accessModes": ["ReadWriteOnce"],
            "storageClassName": "ceph-block", "volumeMode": "Filesystem"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    }))
    .unwrap()
}

fn volume(number: u32) -> PersistentVolume {
    let mut metadata = metadata(number, &uid(3, number));
    metadata["name"] = json!(format!("pvc-{}", uid(1, number)));
    let handle = format!("0001-0011-openshift-storage-0000000000000002-{}", uid(4, number));
    from_value(json!({
        "metadata": metadata,
        "spec": {
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": format!("team-{}", number % 500),
                "name": format!("data-postgres-{}", number / 500), "uid": uid(1, number)},
            "csi": {"driver": "openshift-storage.rbd.csi.ceph.com", "volumeHandle": handle},
        },
    }))
    .unwrap()
}

fn metadata(number: u32, uid: &str) -> Value {
    let hash = VolumeHash::new(&host(), &number.to_string()).to_string();
    json!({
        "uid": uid, "resourceVersion": (1_000_000 + number).to_string(), "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app.kubernetes.io/managed-by": "kosmos.csi.io", "kosmos.csi.io/host": host().0,
            "kosmos.csi.io/volume": hash},
    })
}

fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn row_takes_few_bytes() {
    let rows = Rows::new(host());
    // What the first objects cost is not the rows'.
    drop((claim(0), volume(0)));
    let before = resident();
    for number in 0..VOLUMES {
        rows.put_claim(&claim(number));
    }
    for number in 0..VOLUMES {
        rows.put_volume(&volume(number));
    }
    let each = (resident() - before) as f64 / f64::from(VOLUMES);
    println!("{each:.0} bytes per volume");
    assert!(rows.row(VolumeHash::new(&host(), "7")).is_some_and(|row| row.claim.is_some() && row.volume.is_some()));
    assert!(each <= ALLOWED, "{each:.0} bytes per volume: at most {ALLOWED} are allowed");
}
