//! Kubernetes' own end-to-end suites on these clusters: what every node has to do with pods, asked of virtual nodes; and what every
//! storage driver has to do, asked of this one. Each test is begun by its name, or by `make faults-real`, and goes on where it was ended
//! (`docs/development.md`). What is left out stands in `left_out`; the specs that have passed, by their names, in `listed`.

mod left_out;
mod outcome;
mod parts;
mod run;
mod world;

use crate::pool::on_fleet;
use world::hold;

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-pods"]
fn asks_of_pods_holds() {
    on_fleet("suites-of-pods", async |rig| hold(rig, parts::PODS).await);
}

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-probes"]
fn asks_of_probes_holds() {
    on_fleet("suites-of-probes", async |rig| hold(rig, parts::PROBES).await);
}

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-mounts"]
fn asks_of_what_pods_mount_holds() {
    on_fleet("suites-of-mounts", async |rig| hold(rig, parts::MOUNTS).await);
}

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-storage"]
fn asks_of_a_storage_driver_holds_on_a_virtual_node() {
    on_fleet("suites-of-storage", async |rig| hold(rig, parts::STORAGE).await);
}

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-slow-storage"]
fn what_takes_long_of_a_storage_driver_holds() {
    on_fleet("suites-of-slow-storage", async |rig| hold(rig, parts::SLOW_STORAGE).await);
}

#[test]
#[ignore = "twenty minutes: make faults-real PARTS=suites-of-real-storage"]
fn asks_of_a_storage_driver_holds_on_a_real_node() {
    on_fleet("suites-of-real-storage", async |rig| hold(rig, parts::REAL_STORAGE).await);
}
