//! What a failed test leaves behind: the logs of every process and what the clusters say, in a folder that is named.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::fleet::Fleet;
use super::guardian::profile_folder;

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
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| format!("remove {}", kept.display()))?;
    }
    copy_logs(fleet.folder(), &kept)?;
    for cluster in fleet.clusters() {
        let folder = kept.join(cluster.name());
        copy_logs(cluster.folder(), &folder)?;
        copy_pod_logs(&cluster.folder().join("log/pods"), &folder.join("pods"))?;
        describe(fleet, cluster, &folder)?;
    }
    Ok(kept)
}

fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            fs::copy(entry.path(), to.join(entry.file_name())).context("copy a log")?;
        }
    }
    Ok(())
}

/// `<pod>/<container>/<number>.log` below the kubelet's folder of logs.
fn copy_pod_logs(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    copy_logs(from, to)?;
    for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
        copy_pod_logs(&entry.path(), &to.join(entry.file_name()))?;
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
