//! csi-snapshotter with one snapshot, or one group of them, and the user who wants it. It keeps a record in the host, asks until
//! the snapshot can be used, also while the user has deleted it already, and has it removed then. Which codes mean "still at
//! work" is the sidecar's rule; anything else makes it forget the snapshot for good. Every answer is held against the members'
//! own stores.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use csi::v1::{self, controller_server::Controller as _, group_controller_server::GroupController as _};
use domain::volume::{HostId, VolumeHash, snapshot::leaf_name};
use serde_json::{Value, json};
use simulate::{Cluster, storage::definitions, text};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    bench::{Bench, lock, with_deadline},
    history::{label, made_for},
};

pub const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
pub const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
pub const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
pub const GROUPS: &str = "volumegroupsnapshots.groupsnapshot.storage.k8s.io";
pub const GROUP_CONTENTS: &str = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io";
const GROUP_CLASSES: &str = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io";
const DRIVER: &str = "storage.simulated";
/// The members' classes: the second one's snapshots outlive their objects.
pub const USUAL: &str = "usual";
pub const KEPT: &str = "kept";

const AT_WORK: [Code; 5] =
    [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::ResourceExhausted, Code::Aborted];
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The kinds of snapshots, and two classes of each.
fn has_kinds(member: &Cluster) {
    definitions::install(member).unwrap();
    for (resource, group) in [(CLASSES, "snapshot"), (GROUP_CLASSES, "groupsnapshot")] {
        let default = format!("{group}.storage.kubernetes.io/is-default-class");
        member.create(resource, definitions::class(USUAL, DRIVER, "Delete", Some(&default))).unwrap();
        member.create(resource, definitions::class(KEPT, DRIVER, "Retain", None)).unwrap();
    }
}

/// The same everywhere, and the kinds alone in the host.
pub fn have_kinds(bench: &Bench) {
    definitions::install(&bench.host).unwrap();
    bench.members.iter().for_each(has_kinds);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Snapshot,
    Group,
}

impl Kind {
    /// The host's kind of the record.
    fn record(self) -> &'static str {
        if self == Self::Group { GROUP_CONTENTS } else { CONTENTS }
    }
}

/// What the user wants.
#[derive(Clone, Debug)]
pub struct Wish {
    pub kind: Kind,
    pub name: String,
    /// Handles of volumes; one, but for a group.
    pub sources: Vec<String>,
    /// The members' class.
    pub class: &'static str,
    /// The sidecar tells the driver which record of the host it works for.
    pub told: bool,
    /// Every call is made so many times at once.
    pub at_once: usize,
}

impl Wish {
    /// Of one volume, as a sidecar asks for it.
    pub fn photo(kind: Kind, handle: &str, class: &'static str) -> Self {
        Self { kind, name: "photo".to_owned(), sources: vec![handle.to_owned()], class, told: true, at_once: 1 }
    }
}

/// What an answer says.
#[derive(Clone, Debug)]
struct Answer {
    handle: String,
    ready: bool,
    /// The snapshots themselves: one, but for a group.
    parts: Vec<v1::Snapshot>,
}

/// One snapshot or group with all who care for it.
#[derive(Clone)]
pub struct Snapshotter {
    bench: Arc<Bench>,
    wish: Wish,
    handle: Option<String>,
    parts: Vec<String>,
    slip: Arc<AtomicBool>,
}

impl Snapshotter {
    /// The user asks for it.
    pub fn new(bench: &Arc<Bench>, wish: Wish) -> Self {
        let made = Self { bench: Arc::clone(bench), wish, handle: None, parts: Vec::new(), slip: Arc::default() };
        let record = json!({"metadata": {"name": made.record(), "finalizers": ["snapshots/record"]}, "spec": {}});
        made.bench.host.create(made.wish.kind.record(), record).unwrap();
        made
    }

    fn record(&self) -> String {
        format!("content-of-{}", self.wish.name)
    }

    pub fn name(&self) -> &str {
        &self.wish.name
    }

    pub fn handle(&self) -> Option<&str> {
        self.handle.as_deref()
    }

    /// Whether the host's class has a parameter that nobody knows: it may be edited at any time.
    pub fn slip(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.slip)
    }

    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The sidecar begins again, and knows of a snapshot what the host says. False: that is nothing at all.
    pub fn learn_again(&mut self) -> bool {
        let Some(record) = self.bench.host.get(self.wish.kind.record(), "", &self.record()) else { return false };
        self.handle = record["status"]["snapshotHandle"].as_str().map(str::to_owned);
        self.parts = self.handle.iter().cloned().collect();
        true
    }

    /// A sidecar that has not heard yet what has become of the record asks once more.
    pub async fn ask(&self) -> Result<(), Status> {
        self.create().await.map(drop)
    }

    /// The user deletes it.
    pub fn discard(&self) {
        self.bench.guard.note(|| format!("the user deletes {}", self.wish.name));
        let _ = self.bench.host.delete(self.wish.kind.record(), "", &self.record());
    }

    /// The user deletes what has not come yet.
    pub fn discard_unless_made(&self) {
        let record = self.bench.host.get(self.wish.kind.record(), "", &self.record());
        if record.is_some_and(|record| record.get("status").is_none()) {
            self.discard();
        }
    }

    pub fn is_discarded(&self) -> bool {
        let record = self.bench.host.get(self.wish.kind.record(), "", &self.record());
        record.is_none_or(|record| record.pointer("/metadata/deletionTimestamp").is_some())
    }

    /// From the first call until it can be used, or until nothing is left of it and nobody wants it; whether it was handed
    /// out.
    pub async fn make(&mut self) -> bool {
        let (mut pause, mut at_work) = (FIRST_PAUSE, false);
        loop {
            if !at_work && self.is_discarded() {
                if self.handle.is_none() {
                    self.forget();
                }
                return self.handle.is_some();
            }
            match self.create_at_once().await {
                Ok(answer) => {
                    at_work = false;
                    self.hand_out(&answer);
                    if answer.ready {
                        self.ask_again().await;
                        return true;
                    }
                }
                Err(status) => {
                    at_work = AT_WORK.contains(&status.code());
                    if !at_work && self.handle.is_none() {
                        self.nothing_is_left(&format!("I1: {:?} was answered ({})", status.code(), status.message()));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// A sidecar that has forgotten what it did asks for the same once more.
    async fn ask_again(&mut self) {
        if self.wish.at_once == 1 {
            return;
        }
        match self.create().await {
            Ok(again) => self.hand_out(&again),
            Err(status) => self.answered("create again", &status),
        }
    }

    /// From now on it may go.
    pub fn let_go(&self) {
        lock(&self.bench.guard.history).let_go_of_snapshot(&self.wish.name);
    }

    /// Somebody in the member removes the leaf, and what it does not keep goes with it.
    pub fn rob(&self) {
        let Some((handle, member)) = self.handle.as_ref().and_then(|it| Some((it, self.bench.member_of(it)?))) else {
            return;
        };
        let parts: Vec<&str> = handle.split('/').collect();
        let kind = if self.wish.kind == Kind::Group { GROUPS } else { SNAPSHOTS };
        self.bench.guard.note(|| format!("somebody removes {} {} in {}", parts[1], parts[2], member.name()));
        let _ = member.delete(kind, parts[1], parts[2]);
    }

    /// Until it is removed; the second answer must be that of the first.
    pub async fn remove(&mut self) {
        self.let_go();
        for _ in 0..self.wish.at_once {
            let mut pause = FIRST_PAUSE;
            while let Err(status) = self.delete().await {
                self.answered("delete", &status);
                if status.code() == Code::NotFound {
                    self.wrong("I5: what is gone is to be answered with OK");
                }
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            self.nothing_is_left("I5: it was removed");
        }
        self.bench.guard.note(|| format!("{} is removed", self.wish.name));
        self.forget();
    }

    /// What was handed out is found by its handle, whatever else goes wrong.
    pub async fn look(&self) {
        let Some(handle) = self.handle.clone() else { return };
        let found = match self.wish.kind {
            Kind::Snapshot => self.get_snapshot(handle.clone()).await.map(|found| vec![found]),
            Kind::Group => self.get_group(handle.clone()).await,
        };
        match found {
            Ok(parts) => self.check_parts(&parts),
            Err(status) if status.code() == Code::NotFound => {
                self.wrong(&format!("I1: {handle} is not found: {status}"));
            }
            Err(status) => self.answered("get", &status),
        }
        for part in &self.parts {
            let request = v1::ListSnapshotsRequest { snapshot_id: part.clone(), ..Default::default() };
            let listed = self.bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
            match listed.await {
                Ok(listed) if listed.entries.len() > 1 => self.wrong(&format!("I2: the list has {part} twice")),
                Ok(listed) => {
                    let listed = listed.entries.into_iter().filter_map(|entry| entry.snapshot);
                    self.check_parts(&listed.collect::<Vec<_>>());
                }
                Err(status) => self.answered("list", &status),
            }
        }
    }

    fn check_parts(&self, parts: &[v1::Snapshot]) {
        for part in parts {
            if !self.parts.contains(&part.snapshot_id) || !self.wish.sources.contains(&part.source_volume_id) {
                self.wrong(&format!("I4: {:?} was handed out, and there is {part:?}", self.parts));
            }
        }
    }

    async fn get_snapshot(&self, snapshot_id: String) -> Result<v1::Snapshot, Status> {
        let request = v1::GetSnapshotRequest { snapshot_id, ..Default::default() };
        let found = self.bench.call(|driver| async move { driver.get_snapshot(with_deadline(request)).await }).await;
        found.map(|found| found.snapshot.unwrap())
    }

    pub async fn get_group(&self, group_snapshot_id: String) -> Result<Vec<v1::Snapshot>, Status> {
        let snapshot_ids = self.parts.clone();
        let request = v1::GetVolumeGroupSnapshotRequest { group_snapshot_id, snapshot_ids, ..Default::default() };
        let call =
            self.bench.call(|driver| async move { driver.get_volume_group_snapshot(with_deadline(request)).await });
        call.await.map(|found| found.group_snapshot.unwrap().snapshots)
    }

    async fn create_at_once(&self) -> Result<Answer, Status> {
        let twins = (0..self.wish.at_once).map(|_| self.create());
        let answers = futures::future::join_all(twins).await;
        let handles: BTreeSet<&str> = answers.iter().flatten().map(|answer| answer.handle.as_str()).collect();
        if handles.len() > 1 {
            self.wrong(&format!("I2: calls at once were given {handles:?}"));
        }
        for status in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.answered("create", status);
        }
        // The one that goes on is the one that does not merely wait for another.
        let rank = |answer: &Result<Answer, Status>| match answer {
            Ok(_) => 0,
            Err(status) if status.code() != Code::Aborted => 1,
            Err(_) => 2,
        };
        answers.into_iter().min_by_key(rank).expect("at least one call was made")
    }

    async fn create(&self) -> Result<Answer, Status> {
        let parameter = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let (class, record) = match self.wish.kind {
            Kind::Snapshot => ("leafSnapshotClass", "csi.storage.k8s.io/volumesnapshotcontent/name"),
            Kind::Group => ("leafGroupSnapshotClass", "csi.storage.k8s.io/volumegroupsnapshotcontent/name"),
        };
        let told = self.wish.told.then(|| parameter(record, &self.record()));
        let slip = self.slip.load(Ordering::Relaxed).then(|| parameter("leafClass", "slip"));
        let parameters = [parameter(class, self.wish.class)].into_iter().chain(told).chain(slip).collect();
        let name = self.wish.name.clone();
        if self.wish.kind == Kind::Snapshot {
            let source_volume_id = self.wish.sources[0].clone();
            let request = v1::CreateSnapshotRequest { name, source_volume_id, parameters, ..Default::default() };
            let made = self.bench.call(|driver| async move { driver.create_snapshot(with_deadline(request)).await });
            let made = made.await?.snapshot.unwrap();
            return Ok(Answer { handle: made.snapshot_id.clone(), ready: made.ready_to_use, parts: vec![made] });
        }
        let source_volume_ids = self.wish.sources.clone();
        let request =
            v1::CreateVolumeGroupSnapshotRequest { name, source_volume_ids, parameters, ..Default::default() };
        let call =
            self.bench.call(|driver| async move { driver.create_volume_group_snapshot(with_deadline(request)).await });
        let made = call.await?.group_snapshot.unwrap();
        Ok(Answer { handle: made.group_snapshot_id, ready: made.ready_to_use, parts: made.snapshots })
    }

    pub async fn delete(&self) -> Result<(), Status> {
        let handle = self.handle.clone().expect("what was handed out has a handle");
        if self.wish.kind == Kind::Snapshot {
            let request = v1::DeleteSnapshotRequest { snapshot_id: handle, ..Default::default() };
            return self
                .bench
                .call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await })
                .await
                .map(drop);
        }
        let snapshot_ids = self.parts.clone();
        let request =
            v1::DeleteVolumeGroupSnapshotRequest { group_snapshot_id: handle, snapshot_ids, ..Default::default() };
        let call =
            self.bench.call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
        call.await.map(drop)
    }

    /// From now on it must stay. What the answer promises is looked up at once.
    fn hand_out(&mut self, answer: &Answer) {
        self.bench.guard.note(|| format!("{} is {}, ready: {}", self.wish.name, answer.handle, answer.ready));
        let parts: Vec<String> = answer.parts.iter().map(|part| part.snapshot_id.clone()).collect();
        if self.handle.as_ref().is_some_and(|before| *before != answer.handle || self.parts != parts) {
            self.wrong(&format!("I4: the handle was {:?} with {:?}, and is {answer:?}", self.handle, self.parts));
        }
        (self.handle, self.parts) = (Some(answer.handle.clone()), parts);
        let sources: BTreeSet<&str> = answer.parts.iter().map(|part| part.source_volume_id.as_str()).collect();
        if sources != self.wish.sources.iter().map(String::as_str).collect() {
            self.wrong(&format!("I4: it is of {sources:?} and was asked for of {:?}", self.wish.sources));
        }
        self.bench.guard.look();
        for part in &answer.parts {
            self.check(SNAPSHOTS, &part.snapshot_id, part.ready_to_use);
        }
        if self.wish.kind == Kind::Group {
            self.check(GROUPS, &answer.handle, answer.ready);
        }
        let field = if self.wish.kind == Kind::Group { "volumeGroupSnapshotHandle" } else { "snapshotHandle" };
        let tell = |record: &mut Value| record["status"][field] = json!(answer.handle);
        let _ = self.bench.host.change(self.wish.kind.record(), "", &self.record(), tell);
    }

    fn check(&self, kind: &str, handle: &str, ready: bool) {
        let parts: Vec<&str> = handle.split('/').collect();
        let found = self.bench.member_of(handle).and_then(|member| member.get(kind, parts[1], parts[2]));
        let Some(leaf) = found else { return self.wrong(&format!("I4: {handle} was handed out and is not there")) };
        lock(&self.bench.guard.history).rely_on_snapshot(text(&leaf, "/metadata/uid"), &self.wish.name);
        let terminating = leaf.pointer("/metadata/deletionTimestamp").is_some();
        if terminating || (ready && leaf["status"]["readyToUse"] != true) {
            self.wrong(&format!("I4: {handle} was handed out, ready: {ready}, and is {leaf}"));
        }
    }

    /// Nobody keeps anything of it any more.
    fn forget(&self) {
        let release = |record: &mut Value| record["metadata"]["finalizers"] = json!([]);
        let _ = self.bench.host.change(self.wish.kind.record(), "", &self.record(), release);
        let _ = self.bench.host.delete(self.wish.kind.record(), "", &self.record());
    }

    /// After an answer that makes the sidecar forget it there must be nothing to forget.
    fn nothing_is_left(&self, after: &str) {
        for left in self.left() {
            self.wrong(&format!("{after} and {left} is there"));
        }
    }

    /// All that the members have of it, in words.
    fn left(&self) -> Vec<String> {
        let hash = VolumeHash::of_snapshot(&HostId(self.bench.host_id()), &self.wish.name);
        let labelled = hash.to_string();
        let is_of_it = |object: &Value| {
            made_for(object) == self.wish.name
                || label(object, "kosmos.csi.io/snapshot") == labelled
                || text(object, "/spec/volumeSnapshotRef/name") == leaf_name(hash)
                || self.parts.iter().any(|part| part.split('/').nth(2) == Some(text(object, "/metadata/name")))
        };
        let mut left = Vec::new();
        for member in &self.bench.members {
            for kind in [SNAPSHOTS, CONTENTS, GROUPS] {
                let all = member.list(kind).into_iter();
                let mine =
                    all.filter(|object| is_of_it(object) && !lock(&self.bench.guard.history).was_planted(object));
                left.extend(
                    mine.map(|object| format!("{kind} {} in {}", text(&object, "/metadata/name"), member.name())),
                );
            }
        }
        left
    }

    fn answered(&self, what: &str, status: &Status) {
        self.bench.guard.note(|| format!("{what} {}: {:?}: {}", self.wish.name, status.code(), status.message()));
    }

    fn wrong(&self, what: &str) {
        self.bench.guard.report(format!("{}: {what}", self.wish.name));
    }
}
