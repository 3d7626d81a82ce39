//! What a failed test leaves behind: the logs of every process and what the clusters say, in a folder that is named.

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::fleet::Fleet;
use super::guardian::profile_folder;

/// In bytes, of each log of a test that failed: all of it, where the test took minutes. What ran for hours would fill the disk, its audit
/// logs first.
const MOST: u64 = 128 << 20;
const END: u64 = 8 << 20;

/// Keeps the fleet's logs if the test fails.
#[derive(Debug)]
pub struct TestLogs<'fleet> {
    fleet: &'fleet Fleet,
    test: String,
}

impl Fleet {
    /// Hold this during a test.
    pub fn test(&self, name: &str) -> TestLogs<'_> {
        TestLogs { fleet: self, test: name.to_owned() }
    }
}

impl Drop for TestLogs<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            match keep(self.fleet, &self.test) {
                Ok(folder) => eprintln!("{}: logs are in {}", self.test, folder.display()),
                Err(error) => eprintln!("{}: the logs are lost: {error:#}", self.test),
            }
        }
    }
}

/// Where tests leave what people may want to read.
pub fn folder() -> Result<PathBuf> {
    let profile = profile_folder()?;
    let target = profile.parent().context("cargo's target folder has no parent")?;
    Ok(target.join("test-logs"))
}

/// Copies the logs to `target/test-logs/<name>`.
pub fn keep(fleet: &Fleet, name: &str) -> Result<PathBuf> {
    let kept = folder()?.join(name);
    keep_in(fleet, &kept, MOST)?;
    Ok(kept)
}

/// Of each log no more than its end: what has run for hours has said much.
pub fn keep_ends(fleet: &Fleet, kept: &Path) -> Result<()> {
    keep_in(fleet, kept, END)
}

/// In place of what was kept there before.
fn keep_in(fleet: &Fleet, kept: &Path, most: u64) -> Result<()> {
    if kept.exists() {
        fs::remove_dir_all(kept).with_context(|| format!("remove {}", kept.display()))?;
    }
    copy_logs(fleet.folder(), kept, most)?;
    for cluster in fleet.clusters() {
        let folder = kept.join(cluster.name());
        copy_logs(cluster.folder(), &folder, most)?;
        copy_pod_logs(&cluster.folder().join("log/pods"), &folder.join("pods"), most)?;
        describe(fleet, cluster, &folder)?;
    }
    Ok(())
}

fn copy_logs(from: &Path, to: &Path, most: u64) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            copy_end(&entry.path(), &to.join(entry.file_name()), most).context("copy a log")?;
        }
    }
    Ok(())
}

fn copy_end(from: &Path, to: &Path, most: u64) -> Result<()> {
    let (mut log, mut kept) = (File::open(from)?, File::create(to)?);
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(most)))?;
    io::copy(&mut log, &mut kept)?;
    Ok(())
}

/// `<pod>/<container>/<number>.log` below the kubelet's folder of logs.
fn copy_pod_logs(from: &Path, to: &Path, most: u64) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    copy_logs(from, to, most)?;
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        copy_pod_logs(&entry.path(), &to.join(entry.file_name()), most)?;
    }
    Ok(())
}

const EVENTS: &[&str] = &["get", "events", "-A", "--sort-by=.lastTimestamp"];
const OBJECTS: &str = "pods,pvc,pv,sc,nodes,csinodes,volumeattachments";

fn describe(fleet: &Fleet, cluster: &Cluster, folder: &Path) -> Result<()> {
    let dumps: [(&str, &[&str]); 3] = [
        ("events.txt", EVENTS),
        ("objects.txt", &["get", OBJECTS, "-A", "-o", "wide"]),
        ("objects.yaml", &["get", OBJECTS, "-A", "-o", "yaml"]),
    ];
    for (file, arguments) in dumps {
        let output = Command::new(fleet.tools().path("kubectl"))
            .arg("--kubeconfig")
            .arg(cluster.kubeconfig())
            .arg("--request-timeout=5s")
            .env("HOME", fleet.folder()) // for its cache
            .args(arguments)
            .output()
            .context("run kubectl")?;
        fs::write(folder.join(file), [output.stdout, output.stderr].concat()).context("write a dump")?;
    }
    Ok(())
}
