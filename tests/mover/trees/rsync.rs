//! The copy, as the mover has it made.

use std::{ffi::OsString, path::Path, process::Command};

use mover::attributes::FILTERS;

use super::ground::run;

const OPTIONS: [&str; 8] = [
    "-aHAXXS",
    "--numeric-ids",
    "--super",
    "-x",
    "--delete",
    "--modify-window=-1",
    "--open-noatime",
    "--exclude=/lost+found",
];

fn rsync(more: &[&str], source: &Path, copy: &Path) -> Vec<u8> {
    let within = |folder: &Path| OsString::from_iter([folder.as_os_str(), "/".as_ref()]);
    run(Command::new("rsync").args(OPTIONS).args(FILTERS).args(more).args([within(source), within(copy)]))
}

pub fn copy(source: &Path, copy: &Path, has_hard_links: bool) {
    let in_place = (!has_hard_links).then_some("--inplace");
    rsync(&[&["--whole-file"], in_place.as_slice()].concat(), source, copy);
}

/// With the second run that some access lists take.
pub fn settle(source: &Path, to: &Path) {
    copy(source, to, true);
    copy(source, to, true);
}

/// What it would still do, having read all content.
pub fn left_to_do(source: &Path, copy: &Path) -> String {
    String::from_utf8_lossy(&rsync(&["-n", "-c", "-i"], source, copy)).into_owned()
}
