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
    ("agent-outage", 330),
    ("real-node-kills", 200),
    ("reasons-many", 185),
    ("reclaim_table", 170),
    ("real-node-machine", 130),
    ("csi_sanity", 110),
    ("faults-by-request", 90),
    ("snapshot_restored", 75),
    ("many", 65),
    ("called_off", 60),
    ("deleted_while_pending", 60),
    ("group_snapshot", 60),
    ("real-node-secret", 55),
    ("reclaim_again", 50),
    ("two_hosts", 50),
    ("real-node-attached", 45),
    ("kubelet-api", 40),
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
