//! Snapshots, groups and copies while the driver is killed: at every request of each of their calls, before it is carried
//! out, after it, and after its answer. The caller behaves as csi-snapshotter does. What must hold is read in the members'
//! own stores and storage.

mod costs;
mod elsewhere;
mod groups;

use std::{sync::Arc, time::Duration};

use csi::v1::{
    self, controller_server::Controller as _, group_controller_server::GroupController as _, volume_content_source,
};
use serde_json::{Value, json};
use simulate::{
    storage::{Settings, Work},
    text,
};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Script},
    crash::{self, Point},
    extent::{ALL, drawn},
    fixture::{self, Planted, THEIRS},
    invariants,
    shared::has_alias,
    snapshotter::{
        CLASSES, CONTENTS, GROUP_CONTENTS, GROUPS, KEPT, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish, have_kinds,
    },
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
/// So long that the user has changed his mind before it is done.
const SLOW: Duration = Duration::from_secs(20);
const SETTLED: Duration = Duration::from_mins(2);
/// On leaf snapshots and groups: the handles of their volumes.
const SOURCE: &str = "kosmos.csi.io/source";

/// What is under way while the driver dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Create(Kind),
    Delete(Kind),
    /// The user deletes it while it is being made, and the driver is dead.
    Abandon(Kind),
    /// The user has deleted it while it is being made.
    Withdraw(Kind),
    Restore,
    Clone,
}

const BOTH: [Kind; 2] = [Kind::Snapshot, Kind::Group];

/// Each, and the members' class.
fn operations() -> Vec<(Operation, &'static str)> {
    let ends = |operation: fn(Kind) -> Operation| {
        BOTH.into_iter().flat_map(move |kind| [USUAL, KEPT].map(|class| (operation(kind), class)))
    };
    let begins = BOTH.into_iter().map(Operation::Create);
    let usual = begins.chain([Operation::Restore, Operation::Clone]).map(|operation| (operation, USUAL));
    let ended = ends(Operation::Delete).chain(ends(Operation::Abandon)).chain(ends(Operation::Withdraw));
    usual.chain(ended).collect()
}

/// Two volumes of a user, and what is asked about them.
struct Stage {
    bench: Arc<Bench>,
    volumes: Vec<Caller>,
    class: &'static str,
}

impl Stage {
    async fn new(class: &'static str, cutting: Duration) -> Self {
        Self::with(class, Settings { snapshotting: Work::takes(cutting..=cutting), ..fixture::steady(STEP) }).await
    }

    async fn with(class: &'static str, settings: Settings) -> Self {
        let bench = Bench::new(1, 2, &settings).await;
        have_kinds(&bench);
        bench.start();
        bench.serves().await;
        let mut volumes = Vec::new();
        for claim in ["data", "log"] {
            let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(claim) });
            caller.insist_on_creation().await;
            volumes.push(caller);
        }
        sleep(STEP).await;
        Self { bench, volumes, class }
    }

    fn handle(&self, at: usize) -> String {
        self.volumes[at].handle().unwrap().to_owned()
    }

    /// The user asks for a snapshot of the first volume, or for one of both.
    fn asked(&self, kind: Kind) -> Snapshotter {
        let sources = if kind == Kind::Group { vec![self.handle(0), self.handle(1)] } else { vec![self.handle(0)] };
        let name = format!("{}-{}", format!("{kind:?}").to_lowercase(), self.bench.guard.sent());
        Snapshotter::new(&self.bench, Wish { kind, name, sources, class: self.class, told: true, at_once: 1 })
    }

    async fn made(&self, kind: Kind) -> Snapshotter {
        let mut snapshot = self.asked(kind);
        assert!(snapshot.make().await, "{}", self.bench.guard.trace().join("\n"));
        snapshot
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

    /// The driver dies at the points; what the user does meanwhile is his own.
    fn kill(&self, points: &[Point], meanwhile: impl Fn() + Send + 'static) -> Killing {
        let killer = tokio::spawn(crash::kill(Arc::clone(&self.bench), points.to_vec(), meanwhile));
        Killing { killer, sent: self.bench.guard.sent() }
    }
}

struct Killing {
    killer: tokio::task::JoinHandle<()>,
    sent: u64,
}

impl Killing {
    /// It is over; how many requests there were.
    fn end(self, bench: &Bench) -> u64 {
        let requests = bench.guard.sent() - self.sent.max(bench.sent_before_start());
        bench.guard.heal();
        self.killer.abort();
        if !bench.is_up() {
            bench.start();
        }
        requests
    }
}

/// What happens before, and then the part in which the driver is killed.
async fn operate(stage: &Stage, operation: Operation, points: &[Point]) -> u64 {
    let bench = &stage.bench;
    match operation {
        Operation::Create(kind) | Operation::Abandon(kind) => {
            let mut snapshot = stage.asked(kind);
            let user = snapshot.clone();
            let leaves = operation == Operation::Abandon(kind);
            let killing = stage.kill(points, move || {
                if leaves {
                    user.discard();
                }
            });
            let made = snapshot.make().await;
            let requests = killing.end(bench);
            if made {
                snapshot.discard();
                snapshot.remove().await;
            }
            requests
        }
        Operation::Delete(kind) => {
            let mut snapshot = stage.made(kind).await;
            snapshot.discard();
            let killing = stage.kill(points, || {});
            snapshot.remove().await;
            killing.end(bench)
        }
        Operation::Withdraw(kind) => {
            let mut snapshot = stage.asked(kind);
            let user = snapshot.clone();
            let (making, killing) = tokio::join!(snapshot.make(), async {
                sleep(SLOW / 4).await;
                user.discard();
                stage.kill(points, || {})
            });
            if making {
                bench.guard.report("I1: it was handed out, and nobody wanted it any more");
            }
            killing.end(bench)
        }
        Operation::Restore => {
            let mut snapshot = stage.made(Kind::Snapshot).await;
            let snapshot_id = snapshot.handle().unwrap().to_owned();
            let killing = stage.kill(points, || {});
            let source = volume_content_source::SnapshotSource { snapshot_id };
            stage.copy(volume_content_source::Type::Snapshot(source)).await;
            let requests = killing.end(bench);
            snapshot.remove().await;
            requests
        }
        Operation::Clone => {
            let killing = stage.kill(points, || {});
            let source = volume_content_source::VolumeSource { volume_id: stage.handle(0) };
            stage.copy(volume_content_source::Type::Volume(source)).await;
            killing.end(bench)
        }
    }
}

/// How many requests there were, and what was wrong.
fn play(operation: Operation, class: &'static str, points: &[Point]) -> (u64, Vec<String>) {
    virtual_time::run(1, async {
        let slow = matches!(operation, Operation::Withdraw(_));
        let stage = Stage::new(class, if slow { SLOW } else { STEP }).await;
        let planted = Planted::everywhere(&stage.bench);
        let requests = operate(&stage, operation, points).await;
        for volume in &stage.volumes {
            let mut volume = volume.clone();
            volume.delete_claim();
            volume.reclaim().await;
        }
        sleep(SETTLED).await;
        let mut wrong = stage.bench.guard.wrong();
        wrong.extend(invariants::snapshots(&stage.bench));
        wrong.extend(planted.touched(&stage.bench));
        wrong.extend(stage.bench.leftovers());
        if !wrong.is_empty() {
            wrong.push(stage.bench.guard.trace().join("\n"));
        }
        (requests, wrong)
    })
}

#[test]
fn nothing_is_lost_or_left_wherever_the_driver_is_killed() {
    let points = operations().into_iter().flat_map(|(operation, class)| {
        let (requests, wrong) = play(operation, class, &[]);
        assert!(wrong.is_empty(), "{operation:?} without any fault: {}", wrong.join("\n"));
        assert!(requests > 1, "{operation:?} asks for something");
        crash::points(requests).map(move |point| (operation, class, point))
    });
    let runs = drawn(points, ALL);
    let count = runs.len();
    let wrong = virtual_time::each(virtual_time::THREADS, runs, |(operation, class, point)| {
        let (_, wrong) = play(operation, class, &[point]);
        (!wrong.is_empty())
            .then(|| format!("{operation:?} of class {class} killed at {point:?}:\n{}", wrong.join("\n")))
    });
    assert!(wrong.is_empty(), "{} of {count} runs, such as: {}", wrong.len(), wrong[0]);
}

/// Somebody in the member has removed the leaf snapshot or the leaf group, and keeps a copy of it and of what stood behind it.
#[test]
fn what_outlives_its_snapshot_or_group_is_removed_and_a_copy_of_it_is_not() {
    for (kind, objects) in [(Kind::Snapshot, SNAPSHOTS), (Kind::Group, GROUPS)] {
        virtual_time::run(1, async {
            let stage = Stage::new(KEPT, STEP).await;
            let bench = &stage.bench;
            let mut planted = Planted::everywhere(bench);
            let mut made = stage.made(kind).await;
            let is_ours = |leaf: &&Arc<Value>| lock(&bench.guard.history).volume_of(leaf).is_some();
            let cut: Vec<_> = bench.members[0].list(SNAPSHOTS).iter().filter(is_ours).cloned().collect();
            planted.copy_snapshot(bench, 0, &cut[0]);
            made.let_go();
            let name = made.handle().unwrap().split('/').nth(2).unwrap().to_owned();
            bench.members[0].delete(objects, SHOP, &name).unwrap();
            sleep(STEP * 5).await;
            assert_eq!(bench.storages[0].snapshots().len(), cut.len(), "they were retained");
            made.remove().await;
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench), planted.touched(bench)].concat();
            assert!(wrong.is_empty(), "{kind:?}: {wrong:#?}\n{}", bench.guard.trace().join("\n"));
        });
    }
}

/// The member's controller has made the content and not told of it yet, when nobody wants the snapshot or the group any more.
#[test]
fn content_that_its_snapshot_or_group_does_not_name_yet_goes_with_it() {
    for (kind, objects, contents, prefix, reference) in [
        (Kind::Snapshot, SNAPSHOTS, CONTENTS, "snapcontent", "volumeSnapshotRef"),
        (Kind::Group, GROUPS, GROUP_CONTENTS, "groupsnapcontent", "volumeGroupSnapshotRef"),
    ] {
        virtual_time::run(1, async {
            let stage = Stage::new(THEIRS, STEP).await;
            let (bench, member) = (&stage.bench, &stage.bench.members[0]);
            let planted = Planted::everywhere(bench);
            let mut snapshot = stage.asked(kind);
            let user = snapshot.clone();
            let controller = async {
                sleep(STEP * 10).await;
                let ours = |leaf: &Arc<Value>| ["s-", "g-"].contains(&&text(leaf, "/metadata/name")[..2]);
                let uid = text(&member.list(objects).into_iter().find(ours).unwrap(), "/metadata/uid").to_owned();
                let content = json!({
                    "metadata": {"name": format!("{prefix}-{uid}")},
                    "spec": {"deletionPolicy": "Retain", "driver": THEIRS, reference: {"uid": uid}},
                });
                member.create(contents, content).unwrap();
                user.discard();
            };
            let (made, ()) = tokio::join!(snapshot.make(), controller);
            assert!(!made, "nobody wants it");
            let wrong = [bench.guard.wrong(), invariants::snapshots(bench), planted.touched(bench)].concat();
            assert!(wrong.is_empty(), "{kind:?}: {wrong:#?}\n{}", bench.guard.trace().join("\n"));
        });
    }
}

/// As of what was given out while that name served.
#[test]
fn volume_is_filled_from_a_snapshot_or_a_volume_that_has_another_name_of_its_member() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let bench = &stage.bench;
        let snapshot = stage.made(Kind::Snapshot).await;
        has_alias(bench).await;
        let renamed = |handle: &str| handle.replacen("m0/", "alias/", 1);
        let (snapshot_id, volume_id) = (renamed(snapshot.handle().unwrap()), renamed(&stage.handle(0)));
        let snapshot = volume_content_source::Type::Snapshot(volume_content_source::SnapshotSource { snapshot_id });
        let volume = volume_content_source::Type::Volume(volume_content_source::VolumeSource { volume_id });
        let all =
            [(snapshot.clone(), vec![0]), (snapshot, Vec::new()), (volume.clone(), vec![0]), (volume, Vec::new())];
        for (at, (source, places)) in all.into_iter().enumerate() {
            let source = Some(v1::VolumeContentSource { r#type: Some(source) });
            let mut copy = Caller::new(bench, Script { places, source, ..Script::new(&format!("copy-{at}")) });
            let made = timeout(SETTLED, copy.insist_on_creation()).await;
            assert!(made.is_ok(), "{at}: {}", bench.guard.trace().join("\n"));
            assert!(copy.handle().unwrap().starts_with("m0/"), "{:?}", copy.handle());
        }
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Its claim is bound in the host, and its leaf waits for a pod.
#[test]
fn copy_of_a_volume_that_is_not_made_yet_is_refused_with_what_it_waits_for() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let bench = &stage.bench;
        let script =
            Script { leaf_class: fixture::LATER, binding: Some("deferred"), places: vec![0], ..Script::new("later") };
        let mut deferred = Caller::new(bench, script);
        deferred.insist_on_creation().await;
        let source = volume_content_source::VolumeSource { volume_id: deferred.handle().unwrap().to_owned() };
        let source = Some(v1::VolumeContentSource { r#type: Some(volume_content_source::Type::Volume(source)) });
        let copy = Caller::new(bench, Script { source, ..Script::new("copy") });
        let refused = copy.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("shop/later") && refused.message().contains("its first pod"), "{refused}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// As soon as the host's claim is bound its user may delete the source, and the member copies nothing before somebody binds the leaf claim.
#[test]
fn copy_is_made_before_it_is_given_out_also_where_its_class_is_deferred() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let bench = &stage.bench;
        let mut photo = stage.made(Kind::Snapshot).await;
        let source = volume_content_source::SnapshotSource { snapshot_id: photo.handle().unwrap().to_owned() };
        let source = Some(v1::VolumeContentSource { r#type: Some(volume_content_source::Type::Snapshot(source)) });
        let binding = Some("deferred");
        let script = Script { leaf_class: fixture::LATER, binding, source, places: vec![0], ..Script::new("copy") };
        let mut copy = Caller::new(bench, script);
        copy.insist_on_creation().await;
        photo.discard();
        photo.remove().await;
        sleep(SETTLED).await;
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "copy").unwrap();
        assert_eq!(text(&leaf, "/status/phase"), "Bound", "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// By a final answer its sidecar forgets it, and whoever deletes it in the host then has nothing removed.
#[test]
fn snapshot_that_loses_its_labels_before_it_is_cut_is_not_forgotten_and_says_what_to_put_back() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, SLOW).await;
        let (bench, member) = (&stage.bench, &stage.bench.members[0]);
        let mut photo = stage.asked(Kind::Snapshot);
        let takes_them_off = async {
            sleep(STEP * 5).await;
            let was = member.list(SNAPSHOTS).remove(0);
            let strip = |snapshot: &mut Value| snapshot["metadata"]["labels"] = json!({});
            member.change(SNAPSHOTS, SHOP, text(&was, "/metadata/name"), strip).unwrap();
            was
        };
        let (told, was) = tokio::join!(photo.ask(), takes_them_off);
        let told = told.unwrap_err();
        assert_eq!(told.code(), Code::Aborted, "{told}");
        let name = text(&was, "/metadata/name");
        let label = format!("kosmos.csi.io/snapshot={}", name.trim_start_matches("s-"));
        assert!(told.message().contains("put back") && told.message().contains(&label), "{told}");
        let put_back = |snapshot: &mut Value| snapshot["metadata"]["labels"] = was["metadata"]["labels"].clone();
        member.change(SNAPSHOTS, SHOP, name, put_back).unwrap();
        assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
        photo.discard();
        photo.remove().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// As somebody of the member writes it, or takes it off; and the driver is started again.
async fn says_it_is_of(bench: &Bench, objects: &str, source: Option<&str>) {
    let name = text(&bench.members[0].list(objects)[0], "/metadata/name").to_owned();
    let write = |leaf: &mut Value| {
        let notes = leaf["metadata"]["annotations"].as_object_mut().unwrap();
        match source {
            Some(source) => drop(notes.insert(SOURCE.to_owned(), json!(source))),
            None => drop(notes.remove(SOURCE)),
        }
    };
    bench.members[0].change(objects, SHOP, &name, write).unwrap();
    bench.start();
    bench.serves().await;
    sleep(STEP * 10).await;
}

/// By a final answer its sidecar forgets it, and what is marked is withdrawn by nobody.
#[test]
fn snapshot_or_group_of_which_people_change_the_source_is_not_forgotten_and_says_what_to_put_back() {
    for (kind, objects) in [(Kind::Snapshot, SNAPSHOTS), (Kind::Group, GROUPS)] {
        for source in [Some("m0/shop/other/0123456789abcdef"), None] {
            virtual_time::run(1, async {
                let stage = Stage::new(USUAL, STEP).await;
                let (bench, member) = (&stage.bench, &stage.bench.members[0]);
                let mut photo = stage.asked(kind);
                photo.ask().await.unwrap();
                let was = text(&member.list(objects)[0], "/metadata/annotations/kosmos.csi.io~1source").to_owned();
                says_it_is_of(bench, objects, source).await;
                let told = photo.ask().await.unwrap_err();
                assert_eq!(told.code(), Code::Aborted, "{kind:?} {source:?}: {told}");
                let says = |words: &str| told.message().contains(words);
                assert!(says("put back annotation") && says(SOURCE), "{kind:?} {source:?}: {told}");
                says_it_is_of(bench, objects, Some(&was)).await;
                assert!(photo.make().await, "{}", bench.guard.trace().join("\n"));
                photo.discard();
                photo.remove().await;
                assert_eq!(bench.guard.wrong(), Vec::<String>::new());
            });
        }
    }
}

#[test]
fn snapshot_that_does_not_say_its_source_any_more_is_not_called_gone_and_what_stands_behind_it_stays() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (bench, mut photo) = (&stage.bench, stage.made(Kind::Snapshot).await);
        photo.discard();
        says_it_is_of(bench, SNAPSHOTS, None).await;
        let told = photo.delete().await.unwrap_err();
        assert_eq!(told.code(), Code::FailedPrecondition, "{told}");
        assert!(told.message().contains("put back annotation") && told.message().contains(SOURCE), "{told}");
        assert!(bench.members[0].list(CONTENTS)[0].pointer("/metadata/deletionTimestamp").is_none());
        says_it_is_of(bench, SNAPSHOTS, Some(&stage.handle(0))).await;
        photo.remove().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Who is told that there is no such snapshot takes its data for lost.
#[test]
fn who_looks_at_a_snapshot_without_its_marks_or_makes_a_volume_of_it_is_told_what_to_put_back() {
    virtual_time::run(1, async {
        let stage = Stage::new(USUAL, STEP).await;
        let (bench, member) = (&stage.bench, &stage.bench.members[0]);
        let photo = stage.made(Kind::Snapshot).await;
        let snapshot_id = photo.handle().unwrap().to_owned();
        let request = v1::GetSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() };
        let source = volume_content_source::SnapshotSource { snapshot_id };
        let source = Some(v1::VolumeContentSource { r#type: Some(volume_content_source::Type::Snapshot(source)) });
        let mut copy = Caller::new(bench, Script { places: vec![0], source, ..Script::new("copy") });
        let was = member.list(SNAPSHOTS).remove(0);
        let relabel = |labels: Value| {
            let write = move |leaf: &mut Value| leaf["metadata"]["labels"] = labels;
            member.change(SNAPSHOTS, SHOP, text(&was, "/metadata/name"), write).unwrap();
        };
        relabel(json!({}));
        sleep(STEP * 10).await;
        let seen = bench.call(|driver| async move { driver.get_snapshot(with_deadline(request)).await });
        for told in [seen.await.map(drop).unwrap_err(), copy.create().await.map(drop).unwrap_err()] {
            assert_eq!(told.code(), Code::FailedPrecondition, "{told}");
            let says = |words: &str| told.message().contains(words);
            assert!(says("put back label") && says("kosmos.csi.io/snapshot="), "{told}");
        }
        relabel(was["metadata"]["labels"].clone());
        sleep(STEP * 10).await;
        copy.insist_on_creation().await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn what_cannot_be_is_refused_by_its_code() {
    virtual_time::run(1, async {
        let part = Stage::new(USUAL, STEP).await;
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
        part.delete_snapshot(&handle).await;
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
        part.delete_snapshot(&made.snapshot_id).await;
    });
}

impl Stage {
    async fn delete_snapshot(&self, id: &str) {
        let request = v1::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.bench.call(|driver| async move { driver.delete_snapshot(with_deadline(request)).await }).await.unwrap();
    }
}
