//! What the rows of many volumes take of memory, all included: keys, indexes, the allocator's own rounding. Measured as
//! the process's resident memory, in a process of its own.
#![allow(unreachable_pub, reason = "a binary of its own")]
#![expect(clippy::unwrap_used, clippy::cast_precision_loss, reason = "a test")]

#[path = "bench/leaves.rs"]
mod leaves;
#[path = "memory/resident.rs"]
mod resident;

use domain::volume::{HostId, VolumeHash};
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    serde_json::from_value,
};
use leaf::Rows;
use resident::resident;

const VOLUMES: u32 = 30_000;
const ALLOWED: f64 = 700.0;

fn host() -> HostId {
    HostId("6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a".to_owned())
}

fn claim(number: u32) -> PersistentVolumeClaim {
    from_value(leaves::claim(&host(), number)).unwrap()
}

fn volume(number: u32) -> PersistentVolume {
    from_value(leaves::volume(&host(), number)).unwrap()
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
