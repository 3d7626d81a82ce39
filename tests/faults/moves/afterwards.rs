//! A volume that has moved is a volume like any other: it grows, gets to nodes, is photographed, and goes or stays as the host's policy says.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use csi::v1::{VolumeContentSource, volume_content_source as content};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};

use super::{CLAIM, CLAIMS, DATA, ENDED, REMOVED, Story, VOLUMES, at_the_end, gone::approves};
use crate::{
    bench::SHOP,
    caller::{Caller, Change, Ending, Script},
    fixture,
    snapshotter::{self, Kind, Snapshotter, Wish},
    virtual_time,
};

/// More than healing takes.
const SETTLED: Duration = Duration::from_secs(30);

async fn moved(story: &mut Story) {
    story.asks(1, &json!({}));
    assert_eq!(at_the_end(story, &[true]).await, [""; 0]);
    let handle = text(&story.host_volume(), "/spec/csi/volumeHandle").to_owned();
    story.caller.stands_for(&handle);
}

/// Of the volume, wherever it is now.
async fn photo(story: &Story, name: &str) -> Snapshotter {
    let of_volume = Wish::photo(Kind::Snapshot, story.caller.handle().unwrap(), snapshotter::USUAL);
    let wish = Wish { name: name.to_owned(), ..of_volume };
    let mut photo = Snapshotter::new(&story.bench, wish);
    assert!(photo.make().await, "{}", story.trace());
    photo
}

/// A claim that begins with what was photographed.
async fn restored(story: &Story, photo: &Snapshotter, claim: &str) -> Caller {
    let snapshot_id = photo.handle().unwrap().to_owned();
    let source = content::Type::Snapshot(content::SnapshotSource { snapshot_id });
    let source = Some(VolumeContentSource { r#type: Some(source) });
    let mut restored = Caller::new(&story.bench, Script { source, gibibytes: 2, ..Script::new(claim) });
    assert_eq!(timeout(ENDED, restored.provision()).await.ok(), Some(Ending::Provisioned), "{}", story.trace());
    restored
}

fn member_of(story: &Story, handle: &str) -> usize {
    let name = handle.split('/').next().unwrap();
    story.bench.members.iter().position(|member| member.name() == name).unwrap()
}

#[test]
fn snapshots_stay_where_they_were_taken_and_are_restored_into_that_member() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        snapshotter::have_kinds(&story.bench);
        let mut before = photo(&story, "before").await;
        moved(&mut story).await;
        before.look().await;
        let mut after = photo(&story, "after").await;
        for (photo, member) in [(&before, 0), (&after, 1)] {
            let handle = photo.handle().unwrap();
            assert_eq!(member_of(&story, handle), member, "{handle}");
            let mut restored = restored(&story, photo, &format!("restored-{member}")).await;
            assert_eq!(member_of(&story, restored.handle().unwrap()), member);
            restored.delete_claim();
            timeout(REMOVED, restored.reclaim()).await.unwrap();
        }
        for photo in [&mut before, &mut after] {
            photo.discard();
            timeout(REMOVED, photo.remove()).await.unwrap();
        }
        assert_eq!((story.found(), story.kept(0)), (Ok((1, DATA.to_owned())), vec![DATA.to_owned()]));
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

#[test]
fn moved_volume_grows_and_gets_to_nodes_where_it_is_now() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        moved(&mut story).await;
        let size = |story: &Story, at: usize| -> Vec<String> {
            let volumes = story.bench.members[at].list(VOLUMES);
            volumes.iter().map(|volume| text(volume, "/spec/capacity/storage").to_owned()).collect()
        };
        for change in [Change::Publish, Change::Expand, Change::Unpublish, Change::Modify] {
            let done = timeout(ENDED, story.caller.change(change)).await;
            assert!(done.is_ok(), "{change:?}: {}", story.trace());
        }
        assert_eq!((size(&story, 0), size(&story, 1)), (vec!["1Gi".to_owned()], vec!["2Gi".to_owned()]));
        assert_eq!(story.bench.guard.wrong(), [""; 0]);
    });
}

/// That of a move that nobody deletes, as its source is to be kept for a year.
#[test]
fn attachments_of_a_volume_that_has_moved_long_ago_are_looked_for_seldom() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], ..Script::new(CLAIM) }).await;
        moved(&mut story).await;
        sleep(Duration::from_hours(1)).await;
        let listed = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&listed);
        story.bench.guard.set_fate(move |_, at, asked| {
            let is_list = asked.verb == Verb::List && asked.resource == "volumeattachments.storage.k8s.io";
            counted.fetch_add(u64::from(at == 0 && is_list), Ordering::Relaxed);
            Action::Pass
        });
        sleep(Duration::from_hours(1)).await;
        let listed = listed.load(Ordering::Relaxed);
        assert!((1..=12).contains(&listed), "{listed} in an hour");
    });
}

/// What is said of a claim or a volume of the host, but for what the driver says, and for where a volume leads.
fn lasting(object: &Value) -> Value {
    let (metadata, mut spec) = (&object["metadata"], object["spec"].clone());
    let notes = metadata["annotations"].as_object().into_iter().flatten();
    let notes: BTreeMap<&String, &Value> = notes.filter(|(key, _)| !key.starts_with("kosmos.csi.io/")).collect();
    let of_place = [
        ("", "nodeAffinity"),
        ("/csi", "volumeHandle"),
        ("/csi", "volumeAttributes"),
        ("/claimRef", "resourceVersion"),
    ];
    for (path, key) in of_place {
        if let Some(part) = spec.pointer_mut(path).and_then(Value::as_object_mut) {
            part.remove(key);
        }
    }
    json!({"name": metadata["name"], "labels": metadata["labels"], "annotations": notes, "spec": spec})
}

/// What people and tools have written there as well.
#[test]
fn claim_and_volume_of_the_host_say_what_they_said_before_but_for_where_the_volume_leads() {
    virtual_time::run(1, async {
        let mut story = Story::new(Script { places: vec![0], retain: true, ..Script::new(CLAIM) }).await;
        let volume = story.caller.volume().to_owned();
        for (kind, namespace, name) in [(CLAIMS, SHOP, CLAIM), (VOLUMES, "", &*volume)] {
            let write = |object: &mut Value| {
                object["metadata"]["labels"]["example.com/team"] = json!("shop");
                object["metadata"]["annotations"]["example.com/backup"] = json!("daily");
            };
            story.bench.host.change(kind, namespace, name, write).unwrap();
        }
        let said = |story: &Story| {
            let claim = story.bench.host.get(CLAIMS, SHOP, CLAIM).unwrap();
            [lasting(&claim), lasting(&story.host_volume())]
        };
        let before = said(&story);
        assert_eq!(before.each_ref().map(|one| text(one, "/annotations/example.com~1backup")), ["daily"; 2]);
        moved(&mut story).await;
        assert_eq!(said(&story), before, "{}", story.trace());
    });
}

/// Whichever policy the host's volume has when its claim goes, whether it was so when it moved, and whatever the class of its member says.
#[test]
fn moved_volume_goes_or_stays_with_its_claim_as_the_hosts_policy_says() {
    for (before, then, stays) in [
        ("Delete", "Delete", false),
        ("Delete", "Retain", true),
        ("Retain", "Retain", true),
        ("Retain", "Delete", false),
    ] {
        for leaf_class in [fixture::NOW, fixture::KEPT] {
            virtual_time::run(1, goes_or_stays(leaf_class, before, then, stays));
        }
    }
}

async fn goes_or_stays(leaf_class: &'static str, before: &str, then: &str, stays: bool) {
    let case = format!("{leaf_class}, {before}, {then}");
    let script = Script { places: vec![0], leaf_class, retain: before == "Retain", ..Script::new(CLAIM) };
    let mut story = Story::new(script).await;
    moved(&mut story).await;
    assert_eq!(text(&story.host_volume(), "/spec/persistentVolumeReclaimPolicy"), before, "{case}");
    story.caller.set_policy(then);
    sleep(SETTLED).await;
    story.caller.delete_claim();
    timeout(REMOVED, story.caller.reclaim()).await.unwrap();
    sleep(SETTLED).await;
    let left: Vec<Arc<Value>> = story.bench.members[1].list(VOLUMES);
    assert_eq!(left.len(), usize::from(stays), "{case}: {left:?}");
    if let Some(volume) = left.first() {
        assert_eq!(story.play.read(1, text(volume, "/metadata/name")), DATA, "{case}");
        assert_eq!(text(volume, "/spec/persistentVolumeReclaimPolicy"), "Retain", "{case}");
    }
    assert!(story.bench.members[1].get(CLAIMS, SHOP, CLAIM).is_none(), "{case}");
    assert_eq!((story.kept(0), story.bench.guard.wrong()), (vec![DATA.to_owned()], vec![]), "{case}");
}

/// The host deletes nothing for a while, when it is decided already what its volume makes way for.
#[test]
fn policy_that_is_changed_while_the_hosts_volume_makes_way_is_that_of_the_one_that_takes_its_place() {
    for (before, then) in [("Delete", "Retain"), ("Retain", "Delete")] {
        virtual_time::run(1, async {
            let script = Script { places: vec![0], retain: before == "Retain", ..Script::new(CLAIM) };
            let story = Story::new(script).await;
            story.asks(1, &json!({"cutover": "Manual"}));
            story.comes_to("Ready").await;
            story.bench.guard.set_fate(|_, at, asked| {
                let is_refused = at == 0 && asked.verb == Verb::Delete && asked.resource == VOLUMES;
                if is_refused { Action::Answer { code: 503, reason: "ServiceUnavailable" } } else { Action::Pass }
            });
            approves(&story);
            story.comes_to("Switching").await;
            story.caller.set_policy(then);
            story.bench.guard.heal();
            story.comes_to("Succeeded").await;
            assert_eq!(text(&story.host_volume(), "/spec/persistentVolumeReclaimPolicy"), then, "{}", story.trace());
            sleep(SETTLED).await;
            assert_eq!((story.found(), story.left()), (Ok((1, DATA.to_owned())), vec![]), "{}", story.trace());
            assert_eq!(story.bench.guard.wrong(), Vec::<String>::new());
        });
    }
}
