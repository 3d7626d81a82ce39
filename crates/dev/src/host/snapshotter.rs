//! Plays snapshot-controller and csi-snapshotter: binds the snapshots of users to contents, asks the driver for what is
//! behind them, and has it removed.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{create, ignore_conflict};
use csi::{
    client::{CallError, Client, Code},
    v1,
};
use domain::volume::DRIVER;
use simulate::{
    Cluster,
    events::{self, About},
    storage::snapshots::objects,
    text,
};

const SPEAKER: &str = "dev-snapshotter";
const CLAIMS: &str = "persistentvolumeclaims";
const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const PATIENCE: Duration = Duration::from_mins(1);
const LONGEST: Duration = Duration::from_secs(10);
const IDLE: Duration = Duration::from_hours(1);

/// What is to be done about a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SnapshotStep {
    Nothing,
    Make,
    Remove,
    /// Nothing is behind it, or what is there stays.
    LetGo,
}

/// A call that has ended, about the content of this name.
enum Answer {
    Made(Result<v1::Snapshot, CallError>),
    Removed(Result<(), CallError>),
}

/// The calls for one content: one at a time, with pauses that grow.
struct Attempts {
    count: u32,
    due: Instant,
    under_way: bool,
    /// The driver may hold something for it.
    open: bool,
}

struct Snapshotter {
    host: Cluster,
    driver: Client,
    work: BTreeMap<String, Attempts>,
    calls: JoinSet<(String, Answer)>,
}

pub(super) async fn run(host: Cluster, driver: Client) {
    let mut changes = simulate::follow::follow(&host, &[SNAPSHOTS, CONTENTS, CLASSES, CLAIMS]);
    let mut part = Snapshotter { host, driver, work: BTreeMap::new(), calls: JoinSet::new() };
    loop {
        while changes.try_next().is_some() {}
        let now = Instant::now();
        part.host.list(SNAPSHOTS).iter().for_each(|snapshot| part.bind(snapshot));
        part.look(now);
        let due = part.work.values().map(|attempts| attempts.due).filter(|due| *due > now).min();
        tokio::select! {
            _ = changes.next() => {}
            Some(ended) = part.calls.join_next() => match ended {
                Ok((name, answer)) => part.answered(&name, answer),
                Err(error) => tracing::error!(%error, "a call of the driver has failed in itself"),
            },
            () = sleep_until(due.unwrap_or(now + IDLE)) => {}
        }
    }
}

fn step(content: &Value, open: bool) -> SnapshotStep {
    let leaving = content.pointer("/metadata/deletionTimestamp").is_some();
    let held = !text(content, "/status/snapshotHandle").is_empty();
    match (leaving, held) {
        (false, _) if objects::is_ready(content) => SnapshotStep::Nothing,
        (false, _) => SnapshotStep::Make,
        (true, true) if objects::deletes(content) => SnapshotStep::Remove,
        // The driver may be at work on it: it is asked until it says otherwise.
        (true, false) if open => SnapshotStep::Make,
        (true, _) => SnapshotStep::LetGo,
    }
}

impl Snapshotter {
    /// The controller's part, for one snapshot.
    fn bind(&self, snapshot: &Value) {
        let (namespace, name) = (text(snapshot, "/metadata/namespace"), text(snapshot, "/metadata/name"));
        let edit = |edit: &dyn Fn(&mut Value)| {
            ignore_conflict("a change of a snapshot", self.host.change(SNAPSHOTS, namespace, name, edit));
        };
        let content = self.host.get(CONTENTS, "", objects::content_of(snapshot));
        let content = content.filter(|content| objects::is_of(content, snapshot));
        let leaving = snapshot.pointer("/metadata/deletionTimestamp").is_some();
        match content {
            Some(content) if leaving && objects::deletes(&content) => {
                ignore_conflict("a deletion", self.host.delete(CONTENTS, "", text(&content, "/metadata/name")));
            }
            _ if leaving => edit(&objects::release),
            Some(content) if objects::is_ready(&content) => {
                let now = self.host.stamp();
                edit(&|snapshot| objects::tell_ready(snapshot, &content, &now));
            }
            None if objects::content_of(snapshot).is_empty() => {
                let Some((class, volume)) = self.class(snapshot).zip(self.source(snapshot)) else { return };
                let made = objects::content(snapshot, &class, &volume);
                let content = text(&made, "/metadata/name").to_owned();
                edit(&|snapshot| objects::begin(snapshot, text(&class, "/metadata/name")));
                ignore_conflict("a content", create(&self.host, CONTENTS, made));
                edit(&|snapshot| objects::bind(snapshot, &content));
            }
            _ => {}
        }
    }

    /// The class that a snapshot names, or the default one, if it is ours.
    fn class(&self, snapshot: &Value) -> Option<Arc<Value>> {
        let named = text(snapshot, "/spec/volumeSnapshotClassName");
        let wanted = |class: &Value| {
            if named.is_empty() { objects::is_default(class) } else { text(class, "/metadata/name") == named }
        };
        self.host.list(CLASSES).into_iter().find(|class| text(class, "/driver") == DRIVER && wanted(class))
    }

    /// The handle of the volume that a snapshot is to be of, once there is one.
    fn source(&self, snapshot: &Value) -> Option<String> {
        let claim = text(snapshot, "/spec/source/persistentVolumeClaimName");
        let claim = self.host.get(CLAIMS, text(snapshot, "/metadata/namespace"), claim)?;
        let volume = self.host.get("persistentvolumes", "", text(&claim, "/spec/volumeName"))?;
        (text(&volume, "/spec/csi/driver") == DRIVER).then(|| text(&volume, "/spec/csi/volumeHandle").to_owned())
    }

    /// The sidecar's part, for all contents.
    fn look(&mut self, now: Instant) {
        let contents = self.host.list(CONTENTS);
        let ours = |content: &&Arc<Value>| text(content, "/spec/driver") == DRIVER;
        let names: Vec<&str> = contents.iter().map(|content| text(content, "/metadata/name")).collect();
        self.work.retain(|name, attempts| attempts.under_way || names.contains(&name.as_str()));
        for content in contents.iter().filter(ours) {
            let name = text(content, "/metadata/name").to_owned();
            // A process that has just begun does not know whether the driver was asked before.
            let new = || Attempts { count: 0, due: now, under_way: false, open: true };
            let attempts = self.work.entry(name.clone()).or_insert_with(new);
            if attempts.under_way || attempts.due > now {
                continue;
            }
            match step(content, attempts.open) {
                SnapshotStep::Nothing => {}
                SnapshotStep::LetGo => {
                    ignore_conflict(
                        "a change of finalizers",
                        self.host.change(CONTENTS, "", &name, objects::release_content),
                    );
                }
                SnapshotStep::Make => {
                    (attempts.under_way, attempts.open) = (true, true);
                    let (driver, request) = (self.driver.clone(), self.request(content));
                    self.calls
                        .spawn(async move { (name, Answer::Made(driver.create_snapshot(request, PATIENCE).await)) });
                }
                SnapshotStep::Remove => {
                    attempts.under_way = true;
                    let (driver, handle) = (self.driver.clone(), text(content, "/status/snapshotHandle").to_owned());
                    self.calls
                        .spawn(async move { (name, Answer::Removed(driver.delete_snapshot(handle, PATIENCE).await)) });
                }
            }
        }
    }

    fn request(&self, content: &Value) -> v1::CreateSnapshotRequest {
        let class = self.host.get(CLASSES, "", text(content, "/spec/volumeSnapshotClassName"));
        let own = class.as_deref().and_then(|class| class["parameters"].as_object()).into_iter().flatten();
        let own = own.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        let metadata =
            ("csi.storage.k8s.io/volumesnapshotcontent/name".to_owned(), text(content, "/metadata/name").to_owned());
        v1::CreateSnapshotRequest {
            name: format!("snapshot-{}", text(content, "/spec/volumeSnapshotRef/uid")),
            source_volume_id: text(content, "/spec/source/volumeHandle").to_owned(),
            parameters: own.chain([metadata]).collect(),
            ..v1::CreateSnapshotRequest::default()
        }
    }

    fn answered(&mut self, name: &str, answer: Answer) {
        let now = Instant::now();
        let Some(attempts) = self.work.get_mut(name) else { return };
        attempts.under_way = false;
        let refusal = match answer {
            Answer::Made(Ok(made)) => {
                (attempts.open, attempts.due) =
                    (false, if made.ready_to_use { now } else { now + Duration::from_secs(1) });
                ignore_conflict(
                    "a content's status",
                    self.host.change(CONTENTS, "", name, |content| tell_made(content, &made)),
                );
                return;
            }
            Answer::Removed(Ok(())) => {
                self.work.remove(name);
                ignore_conflict(
                    "a change of finalizers",
                    self.host.change(CONTENTS, "", name, objects::release_content),
                );
                return;
            }
            Answer::Made(Err(refusal)) => {
                attempts.open = !is_final(refusal.code);
                refusal
            }
            Answer::Removed(Err(refusal)) => refusal,
        };
        attempts.count += 1;
        attempts.due = now + Duration::from_secs(1 << attempts.count.min(10)).min(LONGEST);
        self.tell(name, &refusal.to_string());
    }

    /// The user learns of it from an event on his snapshot.
    fn tell(&self, content: &str, refusal: &str) {
        let Some(content) = self.host.get(CONTENTS, "", content) else { return };
        let told = |field: &str| text(&content, &format!("/spec/volumeSnapshotRef/{field}")).to_owned();
        if let Some(snapshot) = self.host.get(SNAPSHOTS, &told("namespace"), &told("name")) {
            events::tell(&self.host, &About::any(&snapshot), SPEAKER, "Warning", "SnapshotFailed", refusal);
        }
    }
}

/// As csi-snapshotter takes the codes of CreateSnapshot: after these it is not at work.
fn is_final(code: Code) -> bool {
    let at_work = [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];
    !at_work.contains(&code)
}

fn tell_made(content: &mut Value, made: &v1::Snapshot) {
    let cut = made.creation_time.as_ref().map_or(0, |time| time.seconds);
    let cut = if cut == 0 { since_1970(SystemTime::now()) } else { cut.saturating_mul(1_000_000_000) };
    content["status"] = json!({
        "snapshotHandle": made.snapshot_id, "creationTime": cut, "readyToUse": made.ready_to_use, "restoreSize": made.size_bytes,
    });
}

fn since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_says_what_is_to_be_done() {
        let content = |leaving: bool, handle: &str, ready: bool, policy: &str| {
            let mut content = json!({
                "metadata": {}, "spec": {"deletionPolicy": policy}, "status": {"snapshotHandle": handle, "readyToUse": ready},
            });
            if leaving {
                content["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            }
            content
        };
        for (content, open, expected) in [
            (content(false, "", false, "Delete"), false, SnapshotStep::Make),
            (content(false, "h", false, "Delete"), false, SnapshotStep::Make),
            (content(false, "h", true, "Delete"), false, SnapshotStep::Nothing),
            (content(true, "h", true, "Delete"), false, SnapshotStep::Remove),
            (content(true, "h", true, "Retain"), false, SnapshotStep::LetGo),
            (content(true, "", false, "Delete"), true, SnapshotStep::Make),
            (content(true, "", false, "Delete"), false, SnapshotStep::LetGo),
        ] {
            assert_eq!(step(&content, open), expected, "{content} {open}");
        }
    }
}
