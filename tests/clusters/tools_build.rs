//! Builds the programs that are not in the cache yet, through the Go module proxy.
//!
//! A build happens under a temporary name and gets its own in one rename, so a killed one leaves nothing that
//! could be taken for a tool. A lock lets one process build at a time.
#![expect(clippy::print_stdout, reason = "it speaks to a person")]

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::process;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::packages;
use super::progress;
use super::tools::{Build, cache_folder, go, planned, planned_older, planned_suites, tool};
use super::tools_table::{Layout, SNAPSHOT_CRDS};

const UNFINISHED: &str = ".building-";

/// Builds what is missing, all or for the binaries named, and shows what it does.
pub fn build(binaries: &[String]) -> Result<()> {
    build_all(&wanted(planned()?, binaries)?)
}

/// Likewise, a control plane of the minor version before.
pub fn build_older() -> Result<()> {
    build_all(&[planned_older()?])
}

/// Likewise, Kubernetes' own suites and the programs of their pods.
pub fn build_suites() -> Result<()> {
    build_all(&planned_suites()?)
}

fn build_all(builds: &[Build]) -> Result<()> {
    let lacking = packages::prerequisites();
    if !lacking.is_empty() {
        println!("{}", packages::list(&lacking));
    }
    ensure!(packages::program("go").is_some(), "nothing can be built without go");
    let folder = cache_folder()?.join("tools");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let _lock = lock(&folder)?;
    remove_unfinished(&folder)?;
    let missing: Vec<_> = builds.iter().filter(|build| !build.exists()).collect();
    for (place, build) in missing.iter().enumerate() {
        let label = format!("[{}/{}] {} {}", place + 1, missing.len(), build.tool.name, build.version);
        make(build, &folder, &label)?;
    }
    if !missing.is_empty() {
        print_table(builds)?;
    }
    let count: usize = builds.iter().map(|build| build.tool.binaries.len()).sum();
    println!("all {count} tools are built ({})", folder.display());
    Ok(())
}

/// For scripts.
pub fn tell_where(binary: &str) -> Result<()> {
    println!("{}", tool(binary)?.display());
    Ok(())
}

fn wanted(mut builds: Vec<Build>, binaries: &[String]) -> Result<Vec<Build>> {
    let has = |build: &Build, name: &String| build.tool.binaries.contains(&name.as_str());
    for name in binaries {
        ensure!(builds.iter().any(|build| has(build, name)), "no tool has a binary {name}");
    }
    builds.retain(|build| binaries.is_empty() || binaries.iter().any(|name| has(build, name)));
    Ok(builds)
}

/// Held until the file is dropped; the kernel lets go of it when the process dies.
fn lock(folder: &Path) -> Result<File> {
    let path = folder.join(".lock");
    let file = File::create(&path).with_context(|| format!("create {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("another build is running: waiting for it");
            file.lock().with_context(|| format!("lock {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("lock {}", path.display()));
        }
    }
    Ok(file)
}

/// What killed builds left. The lock is held, so none of it belongs to a living one.
fn remove_unfinished(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn make(build: &Build, folder: &Path, label: &str) -> Result<Duration> {
    // The process is part of the name: a go command that outlived its killed parent writes elsewhere.
    let unfinished = folder.join(format!("{UNFINISHED}{}-{}", build.tool.name, process::id()));
    let binaries = unfinished.join("bin");
    fs::create_dir_all(&binaries).with_context(|| format!("create {}", binaries.display()))?;
    let mut command = go(&build.tool.wrapper_folder());
    command.args(["build", "-o"]).arg(output(build, &binaries)).args(build.tool.arguments(&build.version));
    let log = folder.join(format!("{}.log", build.tool.name));
    let took = progress::run(label, command, &log)?;
    if build.tool.name == SNAPSHOT_CRDS.0 {
        keep_crds(build, &unfinished)?;
    }
    fs::rename(&unfinished, &build.folder).with_context(|| format!("rename to {}", build.folder.display()))?;
    Ok(took)
}

/// One program gets its name here: Go would call etcd `server`. Several are named by Go after their folders.
fn output(build: &Build, binaries: &Path) -> PathBuf {
    match (build.tool.layout, build.tool.binaries) {
        (Layout::Root, [only]) => binaries.join(only),
        _ => binaries.to_owned(),
    }
}

/// The CRDs are taken from the module as published, so that the checkout holds no copy that could age.
fn keep_crds(build: &Build, unfinished: &Path) -> Result<()> {
    let output = go(&build.tool.wrapper_folder())
        .args(["list", "-m", "-f", "{{.Dir}}", SNAPSHOT_CRDS.1])
        .output()
        .context("run go list")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "go list {}: {error}", SNAPSHOT_CRDS.1);
    let module = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let (from, to) = (Path::new(&module).join("config/crd"), unfinished.join("crd"));
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(&from).with_context(|| format!("read {}", from.display()))? {
        let name = entry?.file_name();
        if name.to_string_lossy().contains("snapshot.storage.k8s.io_") {
            fs::copy(from.join(&name), to.join(&name))?;
        }
    }
    Ok(())
}

fn print_table(builds: &[Build]) -> Result<()> {
    println!();
    for build in builds {
        for name in build.tool.binaries {
            let path = build.binary(name);
            let metadata = fs::metadata(&path).with_context(|| format!("find {}", path.display()))?;
            let megabytes = metadata.len().div_ceil(1_000_000);
            println!("{name:<24} {:<8} {megabytes:>4} MB", build.version);
        }
    }
    println!();
    Ok(())
}
