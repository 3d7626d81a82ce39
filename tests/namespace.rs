//! A test on the real kernel, in a mount namespace of its own that ends with its process.

use std::{env, path::PathBuf, process::Command};

use nix::{
    mount::{MsFlags, mount},
    unistd::geteuid,
};

/// Says to a process which test it is to run inside, and where.
const INSIDE: &str = "KOSMOS_CSI_TEST_INSIDE";
const GROUND: &str = "KOSMOS_CSI_TEST_GROUND";

/// A folder in memory that nobody else sees, of a process that runs inside.
pub fn ground() -> PathBuf {
    env::var_os(GROUND).unwrap().into()
}

/// Runs a test of that name with such a folder. Without root there is none.
pub fn inside(name: &str, test: impl FnOnce(PathBuf)) {
    if !geteuid().is_root() {
        eprintln!("{name} is left out: mounting needs root");
        return;
    }
    if env::var(INSIDE).is_ok_and(|inside| inside == name) {
        mount(Some("tmpfs"), &ground(), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        return test(ground());
    }
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--fork", "--kill-child", "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, name)
        .env(GROUND, folder.path().canonicalize().unwrap())
        .output()
        .unwrap();
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", read(&output.stdout), read(&output.stderr));
    assert!(read(&output.stdout).contains("1 passed"), "{name} is not its name");
    eprint!("{}", read(&output.stderr));
}
