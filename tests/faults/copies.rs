//! Snapshots, groups and copies while the driver is killed: at every request of each of their calls, before it is carried
//! out, after it, and after its answer. The caller behaves as csi-snapshotter does. What must hold is read in the members'
//! own stores and storage.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use kosmos_csi::{
    csi::v1::{
        self, controller_server::Controller as _, group_controller_server::GroupController as _, volume_content_source,
    },
    simulate::{
        Cluster,
        storage::{Settings, Work, definitions},
        text,
    },
};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Script},
    crash::{self, Point},
    fixture::{self, Planted},
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const SETTLED: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const SNAPSHOTS: &str = "volumesnapshots.snapshot.storage.k8s.io";
const CONTENTS: &str = "volumesnapshotcontents.snapshot.storage.k8s.io";
const GROUPS: &str = "volumegroupsnapshots.groupsnapshot.storage.k8s.io";
const GROUP_CONTENTS: &str = "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io";
const CLASSES: &str = "volumesnapshotclasses.snapshot.storage.k8s.io";
const GROUP_CLASSES: &str = "volumegroupsnapshotclasses.groupsnapshot.storage.k8s.io";
const DRIVER: &str = "storage.simulated";

/// What is under way while the driver dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    CreateSnapshot,
    DeleteSnapshot,
    /// Where the member's class retains.
    DeleteRetained,
    CreateGroup,
    DeleteGroup,
    Restore,
    Clone,
}

const OPERATIONS: [Operation; 7] = [
    Operation::CreateSnapshot,
    Operation::DeleteSnapshot,
    Operation::DeleteRetained,
    Operation::CreateGroup,
    Operation::DeleteGroup,
    Operation::Restore,
    Operation::Clone,
];

/// csi-snapshotter with its driver, and the user's two volumes.
struct Snapshotter {
    bench: Arc<Bench>,
    volumes: Vec<Caller>,
    leaf_class: &'static str,
}

/// The kinds of snapshots, and a class of each.
pub fn has_kinds(member: &Cluster) {
    definitions::install(member).unwrap();
    for (resource, group) in [(CLASSES, "snapshot"), (GROUP_CLASSES, "groupsnapshot")] {
        let default = format!("{group}.storage.kubernetes.io/is-default-class");
        member.create(resource, definitions::class("usual", DRIVER, "Delete", Some(&default))).unwrap();
        member.create(resource, definitions::class("kept", DRIVER, "Retain", None)).unwrap();
    }
}

fn settings() -> Settings {
    Settings { snapshotting: Work::takes(STEP..=STEP), ..fixture::steady(STEP) }
}

impl Snapshotter {
    async fn new(leaf_class: &'static str) -> Self {
        let bench = Bench::new(1, 2, &settings()).await;
        bench.members.iter().for_each(has_kinds);
        bench.start();
        bench.serves().await;
        let mut volumes = Vec::new();
        for claim in ["data", "log"] {
            let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(claim) });
            caller.insist_on_creation().await;
            volumes.push(caller);
        }
        sleep(STEP).await;
        Self { bench, volumes, leaf_class }
    }

    fn handle(&self, at: usize) -> String {
        self.volumes[at].handle().unwrap().to_owned()
    }

    fn wrong(&self, what: &str) {
        self.bench.guard.report(what.to_owned());
    }

    /// Calls until it is done, as the sidecar does; the longest pause is shorter.
    async fn insist<T>(&self, what: &str, call: impl AsyncFn() -> Result<T, Status>) -> T {
        let mut pause = STEP;
        loop {
            match call().await {
                Ok(done) => return done,
                Err(status) => {
                    self.bench.guard.note(|| format!("{what}: {:?}: {}", status.code(), status.message()));
                    let at_work = [Code::Cancelled, Code::DeadlineExceeded, Code::Unavailable, Code::Aborted];
                    if !at_work.contains(&status.code()) {
                        self.wrong(&format!("I1: {what} answered {:?}: {}", status.code(), status.message()));
                    }
                }
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Until it can be used. Whatever is called ready must be.
    async fn snapshot(&self) -> v1::Snapshot {
        loop {
            let made = self
                .insist("CreateSnapshot", async || {
                    let request = v1::CreateSnapshotRequest {
                        name: "snapshot-1".to_owned(),
                        source_volume_id: self.handle(0),
                        parameters: [("leafSnapshotClass".to_owned(), self.leaf_class.to_owned())].into(),
                        ..Default::default()
                    };
                    let answer =
                        self.bench.call(|driver| async move { driver.create_snapshot(with_deadline(request)).await });
                    answer.await.map(|answer| answer.snapshot.unwrap())
                })
                .await;
            if made.ready_to_use {
                self.check(&made);
                return made;
            }
            sleep(STEP).await;
        }
    }

    fn check(&self, made: &v1::Snapshot) {
        let parts: Vec<&str> = made.snapshot_id.split('/').collect();
        let leaf = self.bench.members[0].get(SNAPSHOTS, parts[1], parts[2]);
        let ready = leaf.is_some_and(|leaf| leaf["status"]["readyToUse"] == true);
        if !ready {
            self.wrong(&format!("I4: {} is called ready and is not", made.snapshot_id));
        }
    }

    async fn unsnapshot(&self, id: &str) {
        self.insist("DeleteSnapshot", async || {
            let request = v1::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
            self.bench.call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await }).await
        })
        .await;
        self.nothing_is_left("DeleteSnapshot");
    }

    async fn group(&self) -> v1::VolumeGroupSnapshot {
        loop {
            let made = self
                .insist("CreateVolumeGroupSnapshot", async || {
                    let request = v1::CreateVolumeGroupSnapshotRequest {
                        name: "groupsnapshot-1".to_owned(),
                        source_volume_ids: vec![self.handle(0), self.handle(1)],
                        ..Default::default()
                    };
                    let call = self.bench.call(|driver| async move {
                        driver.create_volume_group_snapshot(with_deadline(request)).await
                    });
                    call.await.map(|answer| answer.group_snapshot.unwrap())
                })
                .await;
            let sources: BTreeSet<&str> = made.snapshots.iter().map(|part| part.source_volume_id.as_str()).collect();
            if sources.len() != 2 {
                self.wrong(&format!("I4: a group of two volumes holds {sources:?}"));
            }
            if made.ready_to_use {
                made.snapshots.iter().for_each(|part| self.check(part));
                return made;
            }
            sleep(STEP).await;
        }
    }

    async fn ungroup(&self, group: &v1::VolumeGroupSnapshot) {
        let parts: Vec<String> = group.snapshots.iter().map(|part| part.snapshot_id.clone()).collect();
        self.insist("DeleteVolumeGroupSnapshot", async || {
            let request = v1::DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: group.group_snapshot_id.clone(),
                snapshot_ids: parts.clone(),
                ..Default::default()
            };
            let call = self
                .bench
                .call(|driver| async move { driver.delete_volume_group_snapshot(with_deadline(request)).await });
            call.await
        })
        .await;
        self.nothing_is_left("DeleteVolumeGroupSnapshot");
    }

    /// A volume that begins with something, to its end.
    async fn copy(&self, source: volume_content_source::Type) {
        let source = v1::VolumeContentSource { r#type: Some(source) };
        let script = Script { source: Some(source), ..Script::new("copy") };
        let mut caller = Caller::new(&self.bench, script);
        caller.provision().await;
        caller.delete_claim();
        caller.reclaim().await;
    }

    fn nothing_is_left(&self, after: &str) {
        for left in self.left() {
            self.wrong(&format!("I5: {after} is done and {left} is there"));
        }
    }

    /// Snapshots in any form, but those that were planted.
    fn left(&self) -> Vec<String> {
        let mut left = Vec::new();
        for (member, storage) in self.bench.members.iter().zip(&self.bench.storages) {
            for kind in [SNAPSHOTS, CONTENTS, GROUPS, GROUP_CONTENTS] {
                let all = member.list(kind);
                let names = all.iter().map(|object| text(object, "/metadata/name")).filter(|name| *name != "theirs");
                left.extend(names.map(|name| format!("{kind} {name} in {}", member.name())));
            }
            left.extend(
                storage.snapshots().into_iter().map(|name| format!("{name} in the storage of {}", member.name())),
            );
        }
        left
    }
}

/// What happens before, and then the part in which the driver is killed.
async fn operate(part: &Snapshotter, operation: Operation, points: &[Point]) -> u64 {
    let (snapshot, group) = match operation {
        Operation::DeleteSnapshot | Operation::DeleteRetained | Operation::Restore => {
            (Some(part.snapshot().await), None)
        }
        Operation::DeleteGroup => (None, Some(part.group().await)),
        _ => (None, None),
    };
    let bench = &part.bench;
    let killer = tokio::spawn(crash::kill(Arc::clone(bench), points.to_vec(), || {}));
    let sent = bench.guard.sent();
    let mut made = snapshot.clone();
    match (operation, &snapshot, &group) {
        (Operation::CreateSnapshot, ..) => made = Some(part.snapshot().await),
        (Operation::DeleteSnapshot | Operation::DeleteRetained, Some(snapshot), _) => {
            part.unsnapshot(&snapshot.snapshot_id).await;
        }
        (Operation::CreateGroup, ..) => {
            let group = part.group().await;
            let requests = requests(bench, sent);
            finish(part, &killer);
            part.ungroup(&group).await;
            return requests;
        }
        (Operation::DeleteGroup, _, Some(group)) => part.ungroup(group).await,
        (Operation::Restore, Some(snapshot), _) => {
            let snapshot_id = snapshot.snapshot_id.clone();
            part.copy(volume_content_source::Type::Snapshot(volume_content_source::SnapshotSource { snapshot_id }))
                .await;
        }
        _ => {
            let volume_id = part.handle(0);
            part.copy(volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id })).await;
        }
    }
    let requests = requests(bench, sent);
    finish(part, &killer);
    if let (Operation::CreateSnapshot | Operation::Restore, Some(made)) = (operation, made) {
        part.unsnapshot(&made.snapshot_id).await;
    }
    requests
}

fn requests(bench: &Bench, sent: u64) -> u64 {
    bench.guard.sent() - sent.max(bench.sent_before_start())
}

fn finish(part: &Snapshotter, killer: &tokio::task::JoinHandle<()>) {
    part.bench.guard.heal();
    killer.abort();
    if !part.bench.is_up() {
        part.bench.start();
    }
}

/// How many requests there were, and what was wrong.
fn play(operation: Operation, points: &[Point]) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let class = if operation == Operation::DeleteRetained { "kept" } else { "usual" };
        let part = Snapshotter::new(class).await;
        let planted = Planted::everywhere(&part.bench);
        let requests = operate(&part, operation, points).await;
        for volume in &part.volumes {
            let mut volume = volume.clone();
            volume.delete_claim();
            volume.reclaim().await;
        }
        sleep(SETTLED).await;
        part.nothing_is_left("everything");
        let mut wrong = part.bench.guard.wrong();
        wrong.extend(planted.touched(&part.bench));
        wrong.extend(part.bench.leftovers());
        if !wrong.is_empty() {
            wrong.push(part.bench.guard.trace().join("\n"));
        }
        (requests, wrong)
    })
}

#[test]
fn nothing_is_lost_or_left_wherever_the_driver_is_killed() {
    let runs: Vec<(Operation, Point)> = OPERATIONS
        .into_iter()
        .flat_map(|operation| {
            let (requests, wrong) = play(operation, &[]);
            assert!(wrong.is_empty(), "{operation:?} without any fault: {}", wrong.join("\n"));
            crash::points(requests).map(move |point| (operation, point))
        })
        .collect();
    let count = runs.len();
    let wrong = virtual_time::each(virtual_time::THREADS, runs, |(operation, point)| {
        let (_, wrong) = play(operation, &[point]);
        (!wrong.is_empty()).then(|| format!("{operation:?} killed at {point:?}:\n{}", wrong.join("\n")))
    });
    assert!(wrong.is_empty(), "{} of {count} runs, such as: {}", wrong.len(), wrong[0]);
}

/// Requests to the member for each call; one more fails the test.
#[test]
fn snapshots_cost_what_the_budget_says() {
    virtual_time::run(1, async {
        let part = Snapshotter::new("usual").await;
        let spent: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&spent);
        part.bench.guard.set_fate(move |_, at, asked| {
            if at > 0 && asked.verb != kosmos_csi::simulate::faults::Verb::Watch {
                let kind = asked.resource.split('.').next().unwrap_or_default().to_owned();
                lock(&seen).push(format!("{:?} {kind}", asked.verb));
            }
            kosmos_csi::simulate::faults::Action::Pass
        });
        // The first one begins the watch.
        let first = part.snapshot().await;
        part.unsnapshot(&first.snapshot_id).await;
        lock(&spent).clear();
        let take = || std::mem::take(&mut *lock(&spent));
        let made = part.snapshot().await;
        assert_eq!(take(), ["Create volumesnapshots", "Patch volumesnapshotcontents"]);
        // Where no watch stands, one question tells that there is nothing to watch: in the other member.
        for (id, asked) in [(made.snapshot_id.as_str(), &[][..]), ("", &["List volumesnapshots"])] {
            let request = v1::ListSnapshotsRequest { snapshot_id: id.to_owned(), ..Default::default() };
            let found = part.bench.call(|driver| async move { driver.list_snapshots(with_deadline(request)).await });
            assert_eq!(found.await.unwrap().entries.len(), 1);
            assert_eq!(take(), asked);
        }
        let request = v1::GetSnapshotRequest { snapshot_id: made.snapshot_id.clone(), ..Default::default() };
        part.bench.call(|driver| async move { driver.get_snapshot(with_deadline(request)).await }).await.unwrap();
        assert_eq!(take(), [""; 0]);
        part.unsnapshot(&made.snapshot_id).await;
        assert_eq!(take(), ["Get volumesnapshotcontents", "Delete volumesnapshots", "Get volumesnapshotcontents"]);
    });
}

#[test]
fn what_cannot_be_is_refused_by_its_code() {
    virtual_time::run(1, async {
        let part = Snapshotter::new("usual").await;
        let create = async |name: &str, source: &str| {
            let request = v1::CreateSnapshotRequest {
                name: name.to_owned(),
                source_volume_id: source.to_owned(),
                ..Default::default()
            };
            let call = part.bench.call(|driver| async move { driver.create_snapshot(with_deadline(request)).await });
            call.await.map_err(|status| status.code())
        };
        let handle = part.handle(0);
        assert_eq!(create("a", "fake-vol-id").await.unwrap_err(), Code::NotFound);
        assert_eq!(create("a", "m0/shop/gone/0123456789abcdef").await.unwrap_err(), Code::NotFound);
        let made = create("a", &handle).await.unwrap().snapshot.unwrap();
        assert_eq!(create("a", &part.handle(1)).await.unwrap_err(), Code::AlreadyExists);
        // A volume's handle names no snapshot, and a snapshot's no volume.
        part.unsnapshot_quietly(&handle).await;
        assert!(part.bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_some());
        assert_eq!(create("b", &made.snapshot_id).await.unwrap_err(), Code::NotFound);
        for kind in [SNAPSHOTS, CONTENTS, CLASSES] {
            part.bench.members[1].delete("customresourcedefinitions.apiextensions.k8s.io", "", kind).unwrap();
        }
        let mut other = Caller::new(&part.bench, Script { places: vec![1], ..Script::new("elsewhere") });
        other.insist_on_creation().await;
        assert_eq!(create("c", other.handle().unwrap()).await.unwrap_err(), Code::FailedPrecondition);
        let request = v1::CreateVolumeGroupSnapshotRequest {
            name: "g".to_owned(),
            source_volume_ids: vec![handle, other.handle().unwrap().to_owned()],
            ..Default::default()
        };
        let call =
            part.bench.call(|driver| async move { driver.create_volume_group_snapshot(with_deadline(request)).await });
        let refused = call.await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("m0, m1"), "{refused}");
        part.unsnapshot(&made.snapshot_id).await;
    });
}

impl Snapshotter {
    async fn unsnapshot_quietly(&self, id: &str) {
        let request = v1::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.bench.call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await }).await.unwrap();
    }
}
