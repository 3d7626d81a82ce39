//! What is kept of many volumes, in bytes of memory, all included: keys, indexes, the allocator's own rounding. Measured as
//! the process's resident memory, in a process of its own.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

#[path = "bench/leaves.rs"]
mod leaves;
#[path = "memory/resident.rs"]
mod resident;

use domain::volume::{HostId, VolumeHash, VolumeId};
use host::volumes::HostVolumes;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    serde_json::{from_value, json},
};
use leaf::Rows;
use resident::resident;

const VOLUMES: u32 = 30_000;
/// Of a leaf: claim and volume together.
const LEAF: f64 = 700.0;
/// Of a volume of the host.
const HOST_VOLUME: f64 = 500.0;

fn host() -> HostId {
    HostId("6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a".to_owned())
}

fn claim(number: u32) -> PersistentVolumeClaim {
    from_value(leaves::claim(&host(), number)).unwrap()
}

fn volume(number: u32) -> PersistentVolume {
    from_value(leaves::volume(&host(), number)).unwrap()
}

fn handle(number: u32) -> String {
    let claim = format!("data-postgres-{}", number / 500);
    let hash = VolumeHash::new(&host(), &number.to_string());
    VolumeId::new("cluster38", &leaves::namespace(number), &claim, hash).to_string()
}

/// As external-provisioner makes it.
fn host_volume(number: u32) -> PersistentVolume {
    let uid = |kind: u32| format!("{kind:08x}-5b0e-4c1d-9f2a-{:012x}", u64::from(number) * 7919);
    let name = format!("pvc-{}", uid(1));
    let attributes = json!({"leafClaimUID": uid(3), "leafVolume": format!("pvc-{}", uid(3))});
    from_value(json!({
        "metadata": {"name": name, "uid": uid(2)},
        "spec": {
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": handle(number), "volumeAttributes": attributes},
            "claimRef": {"namespace": leaves::namespace(number), "name": format!("data-postgres-{}", number / 500),
                "uid": uid(1)},
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": {"phase": "Bound"},
    }))
    .unwrap()
}

/// Of each, what is taken on the way.
fn taken(on_the_way: impl FnOnce()) -> f64 {
    let before = resident();
    on_the_way();
    (resident() - before) as f64 / f64::from(VOLUMES)
}

/// One after the other: both are of one process.
#[test]
fn what_is_kept_of_a_volume_takes_few_bytes() {
    let (rows, volumes) = (Rows::new(host()), HostVolumes::default());
    // What the first objects cost is not theirs.
    drop((claim(0), volume(0), host_volume(0)));
    let of_leaf = taken(|| {
        for number in 0..VOLUMES {
            rows.put_claim(&claim(number));
        }
        for number in 0..VOLUMES {
            rows.put_volume(&volume(number));
        }
    });
    let of_host = taken(|| {
        for number in 0..VOLUMES {
            volumes.put(&host_volume(number));
        }
    });
    println!("{of_leaf:.0} bytes per leaf, {of_host:.0} per volume of the host");
    assert!(rows.row(VolumeHash::new(&host(), "7")).is_some_and(|row| row.claim.is_some() && row.volume.is_some()));
    assert_eq!(volumes.with(&handle(7)).len(), 1);
    assert!(of_leaf <= LEAF, "{of_leaf:.0} bytes per leaf: at most {LEAF} are allowed");
    assert!(of_host <= HOST_VOLUME, "{of_host:.0} bytes per volume of the host: at most {HOST_VOLUME} are allowed");
}
