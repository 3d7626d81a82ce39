use std::{fs, time::Duration};

use serde_json::json;

use super::*;
use crate::{
    Cluster,
    object::{at, has_finalizer},
    storage::{Binding, Class, Settings, Storage, Work},
    testing::{add_snapshots, claim, copy_of, live, snapshot},
};

const PROTECTED: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";

/// A member with a bound claim, and the kinds of snapshots.
async fn member(settings: Settings) -> (Cluster, Storage) {
    let cluster = Cluster::new("a", 1);
    let storage = Storage::new(cluster.clone(), settings);
    cluster.create(CLAIMS, claim("data", "now")).unwrap();
    live(&cluster, &storage, 1).await;
    add_snapshots(&cluster);
    (cluster, storage)
}

impl Cluster {
    fn snapshot(&self, name: &str) -> Arc<Value> {
        self.get(SNAPSHOTS, "default", name).unwrap()
    }

    fn is_bound(&self, claim: &str) -> bool {
        is_bound(&self.claim(claim))
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_ready_after_its_time_and_its_source_is_kept_meanwhile() {
    let snapshotting = Work::takes(Duration::from_secs(20)..=Duration::from_secs(20));
    let (cluster, storage) = member(Settings { snapshotting, ..Settings::default() }).await;
    let check = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        cluster.create(SNAPSHOTS, snapshot("photo", "data", "delete")).unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(has_finalizer(&cluster.claim("data"), PROTECTED) && !objects::is_ready(&cluster.snapshot("photo")));
        tokio::time::sleep(Duration::from_secs(11)).await;
    };
    tokio::select! { () = check => (), () = live(&cluster, &storage, 60) => () }
    let photo = cluster.snapshot("photo");
    let content = cluster.get(CONTENTS, "", objects::content_of(&photo)).unwrap();
    assert!(objects::is_ready(&photo) && objects::is_ready(&content) && objects::is_of(&content, &photo));
    assert_eq!(
        (text(&photo, "/status/restoreSize"), at(&content, "/status/restoreSize")),
        ("1Gi", Some(&json!(1 << 30)))
    );
    assert_eq!(storage.snapshots(), [text(&content, "/status/snapshotHandle")]);
    assert!(!has_finalizer(&cluster.claim("data"), PROTECTED));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_goes_with_its_content_unless_that_is_retained() {
    let (cluster, storage) = member(Settings::default()).await;
    for class in ["delete", "retain"] {
        cluster.create(SNAPSHOTS, snapshot(class, "data", class)).unwrap();
    }
    live(&cluster, &storage, 1).await;
    assert_eq!(storage.snapshots().len(), 2);
    for name in ["delete", "retain"] {
        cluster.delete(SNAPSHOTS, "default", name).unwrap();
    }
    live(&cluster, &storage, 1).await;
    let left = cluster.list(CONTENTS);
    assert_eq!((cluster.list(SNAPSHOTS).len(), left.len(), storage.snapshots().len()), (0, 1, 1));
    cluster.delete(CONTENTS, "", name(&left[0])).unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!((cluster.list(CONTENTS).len(), storage.snapshots().len()), (0, 1), "what is retained stays");
}

#[tokio::test(start_paused = true)]
async fn a_content_outlives_a_snapshot_that_needs_it() {
    let (cluster, storage) = member(Settings::default()).await;
    cluster.create(SNAPSHOTS, snapshot("photo", "data", "delete")).unwrap();
    live(&cluster, &storage, 1).await;
    let content = objects::content_of(&cluster.snapshot("photo")).to_owned();
    cluster.delete(CONTENTS, "", &content).unwrap();
    live(&cluster, &storage, 60).await;
    assert_eq!((cluster.list(CONTENTS).len(), storage.snapshots().len()), (1, 1));
    cluster.delete(SNAPSHOTS, "default", "photo").unwrap();
    live(&cluster, &storage, 1).await;
    assert_eq!((cluster.list(CONTENTS).len(), cluster.list(SNAPSHOTS).len(), storage.snapshots().len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn claims_are_filled_with_a_snapshot_or_with_another_claim() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, storage) = member(Settings { folder: Some(folder.path().to_owned()), ..Settings::default() }).await;
    let file = |claim: &str| {
        let volume = cluster.volume(text(&cluster.claim(claim), "/spec/volumeName"));
        format!("{}/file", text(&volume, "/spec/csi/volumeAttributes/directory"))
    };
    fs::write(file("data"), "before").unwrap();
    cluster.create(SNAPSHOTS, snapshot("photo", "data", "delete")).unwrap();
    live(&cluster, &storage, 1).await;
    fs::write(file("data"), "after").unwrap();
    cluster.create(CLAIMS, copy_of("restored", "VolumeSnapshot", "photo")).unwrap();
    cluster.create(CLAIMS, copy_of("cloned", "PersistentVolumeClaim", "data")).unwrap();
    live(&cluster, &storage, 1).await;
    let read = |claim: &str| fs::read_to_string(file(claim)).unwrap();
    assert_eq!((read("restored"), read("cloned")), ("before".to_owned(), "after".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_waits_for_its_snapshot_and_a_smaller_one_is_refused() {
    let (cluster, storage) = member(Settings::default()).await;
    cluster.create(CLAIMS, copy_of("restored", "VolumeSnapshot", "photo")).unwrap();
    let mut small = copy_of("small", "VolumeSnapshot", "photo");
    small["spec"]["resources"]["requests"]["storage"] = json!("1Mi");
    cluster.create(CLAIMS, small).unwrap();
    live(&cluster, &storage, 5).await;
    assert!(!cluster.is_bound("restored") && cluster.reasons().contains(&"ProvisioningFailed".to_owned()));
    cluster.create(SNAPSHOTS, snapshot("photo", "data", "delete")).unwrap();
    live(&cluster, &storage, 600).await;
    assert!(cluster.is_bound("restored") && !cluster.is_bound("small"));
    assert_eq!(storage.volumes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_waits_for_the_claims_that_are_filled_with_it() {
    let provisioning = Work::takes(Duration::from_secs(20)..=Duration::from_secs(20));
    let (cluster, storage) = member(Settings::default()).await;
    cluster.create(SNAPSHOTS, snapshot("photo", "data", "delete")).unwrap();
    live(&cluster, &storage, 1).await;
    let slow = Storage::new(cluster.clone(), Settings { provisioning, ..Settings::default() });
    cluster.create(CLAIMS, copy_of("restored", "VolumeSnapshot", "photo")).unwrap();
    cluster.delete(SNAPSHOTS, "default", "photo").unwrap();
    live(&cluster, &slow, 10).await;
    assert!(is_terminating(&cluster.snapshot("photo")));
    cluster.delete(CLAIMS, "default", "restored").unwrap();
    live(&cluster, &slow, 60).await;
    assert!(cluster.list(SNAPSHOTS).is_empty() && slow.snapshots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn failures_are_told_and_tried_again() {
    let failing = Work { fails_per_mille: 700, ..Work::default() };
    let settings = Settings { snapshotting: failing.clone(), deleting: failing, ..Settings::default() };
    let (cluster, storage) = member(settings).await;
    let mut early = snapshot("early", "data", "delete");
    early["spec"]["source"]["persistentVolumeClaimName"] = json!("later");
    cluster.create(SNAPSHOTS, early).unwrap();
    for number in 0..9 {
        cluster.create(SNAPSHOTS, snapshot(&format!("photo-{number}"), "data", "delete")).unwrap();
    }
    live(&cluster, &storage, 5).await;
    assert!(text(&cluster.snapshot("early"), "/status/error/message").contains("not there"));
    cluster.create(CLAIMS, claim("later", "now")).unwrap();
    live(&cluster, &storage, 36000).await;
    let snapshots = cluster.list(SNAPSHOTS);
    assert!(snapshots.iter().all(|one| objects::is_ready(one) && at(one, "/status/error").is_none()));
    assert!(cluster.reasons().contains(&"SnapshotCreationFailed".to_owned()));
    for one in snapshots {
        cluster.delete(SNAPSHOTS, "default", name(&one)).unwrap();
    }
    live(&cluster, &storage, 36000).await;
    assert_eq!((cluster.list(SNAPSHOTS).len(), cluster.list(CONTENTS).len(), storage.snapshots().len()), (0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_class_without_snapshots_and_another_driver_make_none() {
    let class = Class { snapshots: false, ..Class::new("now", Binding::Immediate) };
    let (cluster, storage) = member(Settings { classes: vec![class], ..Settings::default() }).await;
    let other = json!({"metadata": {"name": "other"}, "driver": "another", "deletionPolicy": "Delete"});
    cluster.create(SNAPSHOT_CLASSES, other).unwrap();
    cluster.create(SNAPSHOTS, snapshot("refused", "data", "delete")).unwrap();
    cluster.create(SNAPSHOTS, snapshot("ignored", "data", "other")).unwrap();
    live(&cluster, &storage, 60).await;
    assert!(text(&cluster.snapshot("refused"), "/status/error/message").contains("no snapshots"));
    assert!(cluster.snapshot("ignored").get("status").is_none());
    assert!(cluster.list(CONTENTS).is_empty() && storage.snapshots().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_content_that_was_retained_is_taken_by_a_new_snapshot() {
    let (cluster, storage) = member(Settings::default()).await;
    cluster.create(SNAPSHOTS, snapshot("old", "data", "retain")).unwrap();
    live(&cluster, &storage, 1).await;
    cluster.delete(SNAPSHOTS, "default", "old").unwrap();
    live(&cluster, &storage, 1).await;
    let handle = storage.snapshots()[0].clone();
    let content = json!({
        "metadata": {"name": "by-hand"},
        "spec": {
            "driver": "storage.simulated", "deletionPolicy": "Retain", "source": {"snapshotHandle": handle},
            "volumeSnapshotRef": {"namespace": "default", "name": "new"},
        },
    });
    cluster.create(CONTENTS, content).unwrap();
    let mut new = snapshot("new", "data", "");
    new["spec"] = json!({"source": {"volumeSnapshotContentName": "by-hand"}});
    cluster.create(SNAPSHOTS, new).unwrap();
    live(&cluster, &storage, 1).await;
    assert!(objects::is_ready(&cluster.snapshot("new")));
    assert_eq!(
        text(&cluster.get(CONTENTS, "", "by-hand").unwrap(), "/spec/volumeSnapshotRef/uid"),
        uid(&cluster.snapshot("new"))
    );
}
