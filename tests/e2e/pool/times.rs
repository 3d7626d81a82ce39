//! How long tests take: what is known of it, and what is seen. `make test` makes a table of the file.

use std::{
    env,
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::clusters::guardian;

/// What takes longest, in seconds: it begins first. The table at the end of `make test` says which these are.
pub const LONG: &[(&str, u32)] = &[
    ("agent-outage", 245),
    ("real-node-machine", 135),
    // It takes 75, and no worker of the provisioner is free for others meanwhile: it begins with what needs one least.
    ("reasons-many", 130),
    ("forgotten", 125),
    ("csi_sanity", 120),
    ("real-node-kills", 105),
    ("reclaim_table", 80),
    ("snapshot_restored", 75),
    ("volumes-alike", 75),
    ("real-node-secret", 70),
    ("volume-stats", 70),
    ("deleted_while_pending", 60),
    ("faults-by-request", 60),
    ("group_snapshot", 55),
    ("agent-in-use", 50),
    ("called_off", 50),
    ("narrow", 50),
    ("many", 45),
    ("real-node-attached", 45),
    ("real-node-restarts", 45),
    ("pod-debug", 40),
    ("pods-alike", 40),
    ("reclaim_again", 40),
    ("stays_with_its_member", 40),
    ("usage", 40),
    ("capacity_published", 35),
    ("healing", 35),
    ("real-node", 35),
    ("real-node-device", 35),
    ("real-node-growth", 35),
    ("tokens", 35),
    ("two_hosts", 35),
    ("deleted_while_unschedulable", 30),
    ("pod-events", 30),
    ("real-node-ways", 30),
    ("reclaim_freed", 30),
    ("told-again", 30),
    ("agent-node-mode", 25),
    ("quota", 25),
];

/// Of the order in which tests begin; printed, so that an order that fails can be had again.
pub fn seed() -> u64 {
    let given = env::var("KOSMOS_CSI_ORDER").ok().map(|seed| seed.parse().unwrap());
    let seed = given.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::from(now.subsec_nanos())
    });
    // Past the harness, which shows what a test prints only when it fails.
    let _ = writeln!(std::io::stderr(), "order of tests on clusters: KOSMOS_CSI_ORDER={seed}");
    seed
}

/// One line for each test: name, place, seconds waited and taken, result.
fn file() -> Option<PathBuf> {
    Some(guardian::profile_folder().ok()?.parent()?.join("test-times/e2e.tsv"))
}

pub fn write(name: &str, place: &str, waited: Duration, took: Duration, passed: bool) {
    let Some(file) = file() else { return };
    let folder = file.parent().map(fs::create_dir_all);
    let result = if passed { "passed" } else { "failed" };
    let line = format!("{name}\t{place}\t{:.1}\t{:.1}\t{result}\n", waited.as_secs_f64(), took.as_secs_f64());
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    if let (Some(Ok(())), Ok(mut opened)) = (folder, opened) {
        let _ = opened.write_all(line.as_bytes());
    }
}
