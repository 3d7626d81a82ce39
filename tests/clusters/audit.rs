//! The requests an API server has answered, from its audit log: what tests count.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cluster::Cluster;
use super::wait::wait_for;

const PATIENCE: Duration = Duration::from_secs(10);
/// In the address of the requests by which we learn how far the log is. They are not counted.
const FENCE: &str = "audit-fence";

static FENCES: AtomicU64 = AtomicU64::new(0);

/// One request. A watch is counted when its answer begins, any other request when it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    pub user: String,
    pub user_agent: String,
    pub verb: String,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub uri: String,
    pub code: u64,
    /// The asker lacks the right, or a policy takes it back. A quota, or a namespace that ends, answers with the same code.
    pub forbidden: bool,
    pub stage: String,
}

/// A place in the log.
#[derive(Debug, Clone, Copy)]
pub struct AuditMark(u64);

impl Cluster {
    /// Everything since the cluster's start.
    pub async fn audit(&self) -> Result<Vec<AuditEntry>> {
        self.audit_since(AuditMark(0)).await
    }

    /// The place after all requests that are answered by now.
    pub async fn audit_mark(&self) -> Result<AuditMark> {
        let log = self.folder().join("audit.log");
        // What is there already is not read again: it may be what a cluster was asked in hours.
        let written = fs::metadata(&log).map_or(0, |log| log.len());
        Ok(AuditMark(written + self.audit_log_to_fence(written).await?.len() as u64))
    }

    pub async fn audit_since(&self, mark: AuditMark) -> Result<Vec<AuditEntry>> {
        read(&self.audit_log_to_fence(mark.0).await?)
    }

    /// Everything that its API server has written by now.
    pub fn audit_as_written(&self) -> Result<Vec<AuditEntry>> {
        let log = fs::read_to_string(self.folder().join("audit.log")).context("read the audit log")?;
        read(&log[..log.rfind('\n').map_or(0, |end| end + 1)])
    }

    /// From a place on. An entry is written a moment after its answer is sent: ours, sent last, shows that the earlier ones are there.
    async fn audit_log_to_fence(&self, from: u64) -> Result<String> {
        let number = FENCES.fetch_add(1, Ordering::Relaxed);
        let fence = format!("{FENCE}={}-{number}-", process::id());
        let request = http::Request::get(format!("/version?{fence}")).body(Vec::new())?;
        self.client().await?.request_text(request).await.context("ask the API server its version")?;
        let path = self.folder().join("audit.log");
        let what = format!("the audit log of {} shows our request", self.name());
        wait_for(&what, PATIENCE, || async {
            let log = read_from(&path, from).context("read the audit log")?;
            let end = log.find(&fence).and_then(|place| Some(place + log[place..].find('\n')? + 1));
            Ok(end.map(|end| log[..end].to_owned()))
        })
        .await
    }
}

fn read_from(path: &Path, place: u64) -> Result<String> {
    let mut log = File::open(path)?;
    ensure!(log.metadata()?.len() >= place, "it is shorter than it was");
    log.seek(SeekFrom::Start(place))?;
    let mut text = String::new();
    log.read_to_string(&mut text)?;
    Ok(text)
}

fn read(log: &str) -> Result<Vec<AuditEntry>> {
    let entries = log.lines().map(read_entry).collect::<Result<Vec<_>>>()?;
    let counts = |entry: &AuditEntry| {
        let begins = entry.verb == "watch" && entry.stage == "ResponseStarted";
        let is_complete = entry.verb != "watch" && entry.stage == "ResponseComplete";
        (begins || is_complete) && !entry.uri.contains(FENCE)
    };
    Ok(entries.into_iter().filter(counts).collect())
}

fn read_entry(line: &str) -> Result<AuditEntry> {
    let event: Value = serde_json::from_str(line).context("read an audit event")?;
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(AuditEntry {
        user: text("/user/username"),
        user_agent: text("/userAgent"),
        verb: text("/verb"),
        group: text("/objectRef/apiGroup"),
        resource: text("/objectRef/resource"),
        subresource: text("/objectRef/subresource"),
        namespace: text("/objectRef/namespace"),
        name: text("/objectRef/name"),
        uri: text("/requestURI"),
        code: event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default(),
        forbidden: text("/annotations/authorization.k8s.io~1decision") == "forbid"
            || text("/responseStatus/message").contains("ValidatingAdmissionPolicy"),
        stage: text("/stage"),
    })
}
