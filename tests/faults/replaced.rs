//! A host volume makes way for one of its name with another handle: its claim is bound to it in the end, whoever is killed, late,
//! or in the way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use host::{
    Host,
    replacement::{Replacing, Target},
};
use k8s_openapi::api::core::v1::PersistentVolume;
use serde_json::{Value, from_value, json};
use simulate::{
    Cluster,
    faults::{Action, Asked},
    text,
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{bench::SHOP, virtual_time};

const VOLUME: &str = "pvc-1";
const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const OLD: &str = "m0/shop/data/0123456789abcdef";
const NEW: &str = "m1/shop/data/0123456789abcdef";
/// Longer than the host's controller takes to look at everything again.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any replacement sends.
const REQUESTS: usize = 40;

struct World {
    host: Cluster,
    replacing: Replacing,
    claim_uid: String,
    _inside: JoinSet<()>,
}

impl World {
    /// A claim of the host, bound to a volume in one member that is to lead to another one.
    async fn new() -> Self {
        let (host, mut inside) = (Cluster::new("host", 1), JoinSet::new());
        inside.spawn(simulate::controllers::run(host.clone()));
        host.create("namespaces", json!({"metadata": {"name": SHOP}})).unwrap();
        let claim = host
            .create(
                "persistentvolumeclaims",
                json!({"metadata": {"name": "data", "namespace": SHOP}, "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "class",
                "resources": {"requests": {"storage": "1Gi"}}}}),
            )
            .unwrap();
        let claim_uid = text(&claim, "/metadata/uid").to_owned();
        host.create("persistentvolumes", volume(&claim_uid)).unwrap();
        sleep(Duration::from_secs(1)).await;
        let volume: PersistentVolume =
            from_value(Value::clone(&host.get("persistentvolumes", "", VOLUME).unwrap())).unwrap();
        let target = Target {
            handle: NEW.to_owned(),
            attributes: [("leafClaimUID".to_owned(), "b".to_owned())].into(),
            affinity: None,
        };
        let replacing = Replacing::new(&volume, target).unwrap();
        Self { host, replacing, claim_uid, _inside: inside }
    }

    /// One life of whoever replaces it; false where it was killed, or waited in vain.
    async fn live(&self, name: &str) -> bool {
        let life =
            async { self.replacing.replace(&connected(&self.host, name).await?, Instant::now() + PATIENCE).await };
        matches!(timeout(PATIENCE, life).await, Ok(Ok(())))
    }

    /// As often as it takes.
    async fn goes_on(&self) -> bool {
        for life in 0..10 {
            if self.live(&format!("life-{life}")).await {
                return true;
            }
        }
        false
    }

    /// What becomes of the request of that number that the first life sends.
    fn befalls(&self, number: usize, action: Action) {
        let sent = AtomicUsize::new(0);
        self.host.faults().set(move |asked| {
            let is_hit = asked.client == "first" && sent.fetch_add(1, Ordering::Relaxed) == number;
            if is_hit { action.clone() } else { Action::Pass }
        });
    }

    fn claim(&self) -> Option<Arc<Value>> {
        self.host.get("persistentvolumeclaims", SHOP, "data")
    }

    /// What is wrong at the end.
    fn wrong(&self) -> Option<String> {
        let claim = self.claim()?;
        let volume = self.host.get("persistentvolumes", "", VOLUME);
        let Some(volume) = volume else { return Some("there is no volume".to_owned()) };
        let right = text(&claim, "/metadata/uid") == self.claim_uid
            && text(&claim, "/status/phase") == "Bound"
            && text(&volume, "/status/phase") == "Bound"
            && text(&volume, "/spec/csi/volumeHandle") == NEW
            && text(&volume, "/spec/claimRef/uid") == self.claim_uid
            && text(&volume, "/metadata/labels/who") == "user"
            && text(&volume, "/metadata/annotations/pv.kubernetes.io~1provisioned-by") == "kosmos.csi.io"
            && text(&volume, "/metadata/deletionTimestamp").is_empty()
            && volume["metadata"]["finalizers"].as_array().is_some_and(|all| all.contains(&json!(PROVISIONER)))
            && claim.pointer("/metadata/annotations/kosmos.csi.io~1woken").is_none();
        (!right).then(|| format!("{claim}\n{volume}"))
    }
}

pub async fn connected(host: &Cluster, name: &str) -> domain::error::Result<Host> {
    Host::connect(kube::Client::new(host.service(name), "default"), "kosmos-csi".to_owned()).await
}

fn volume(claim_uid: &str) -> Value {
    json!({
        "metadata": {
            "name": VOLUME, "labels": {"who": "user"}, "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"},
            "finalizers": ["kubernetes.io/pv-protection", PROVISIONER,
                "external-attacher/kosmos-csi-io"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "class",
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "csi": {"driver": "kosmos.csi.io", "volumeHandle": OLD, "volumeAttributes": {"leafClaimUID": "a"}},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP, "name": "data", "uid": claim_uid},
        },
    })
}

fn each_request(action: &Action, after: Duration) {
    let wrong = virtual_time::each(virtual_time::THREADS, (0..REQUESTS).collect(), |number| {
        virtual_time::run(1, async {
            let world = World::new().await;
            world.befalls(number, action.clone());
            let done = world.live("first").await || world.goes_on().await;
            sleep(after).await;
            world
                .wrong()
                .or_else(|| (!done).then(|| "it came to no end".to_owned()))
                .map(|wrong| format!("request {number}: {wrong}"))
        })
    });
    assert!(wrong.is_empty(), "{action:?}\n{}", wrong.join("\n"));
}

#[test]
fn claim_is_bound_to_the_new_volume_whatever_becomes_of_a_request() {
    for action in [
        Action::Hang,
        Action::Refuse,
        Action::ApplyThenHang,
        Action::ApplyThenLose,
        Action::ApplyThenAnswer { code: 504, reason: "Timeout" },
        Action::Answer { code: 409, reason: "Conflict" },
        Action::Answer { code: 404, reason: "NotFound" },
    ] {
        each_request(&action, Duration::ZERO);
    }
}

/// Nobody looks again when it has been carried out.
#[test]
fn write_that_is_carried_out_a_minute_late_changes_nothing() {
    each_request(&Action::Late(Duration::from_mins(1)), Duration::from_mins(3));
}

#[test]
fn two_who_replace_it_at_once_do_it_once() {
    virtual_time::run(1, async {
        let world = World::new().await;
        let (one, other) = tokio::join!(world.live("one"), world.live("other"));
        assert!(one && other);
        assert_eq!(world.wrong(), None);
    });
}

#[test]
fn claim_is_bound_again_within_a_second() {
    virtual_time::run(1, async {
        let world = World::new().await;
        let began = Instant::now();
        assert!(world.live("first").await);
        assert_eq!(world.wrong(), None);
        // The last second of it is for the claim to be lost once more.
        assert!(began.elapsed() <= Duration::from_secs(3), "{:?}", began.elapsed());
    });
}

/// The volume is there then, so that its removal finds where the data is.
#[test]
fn claim_that_is_deleted_meanwhile_leaves_the_new_volume_released() {
    let wrong = virtual_time::each(virtual_time::THREADS, (0..REQUESTS).collect(), |number| {
        virtual_time::run(1, async {
            let world = World::new().await;
            let (host, sent) = (world.host.clone(), AtomicUsize::new(0));
            world.host.faults().set(move |asked: &Asked| {
                if asked.client == "first" && sent.fetch_add(1, Ordering::Relaxed) == number {
                    let host = host.clone();
                    tokio::spawn(async move { host.delete_now("persistentvolumeclaims", SHOP, "data") });
                }
                Action::Pass
            });
            let done = world.live("first").await || world.goes_on().await;
            sleep(PATIENCE).await;
            let volume = world.host.get("persistentvolumes", "", VOLUME)?;
            let released =
                text(&volume, "/spec/csi/volumeHandle") == NEW && text(&volume, "/status/phase") == "Released";
            let right = done && (released || world.claim().is_some());
            (!right).then(|| format!("request {number}: {volume}"))
        })
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn volume_that_somebody_else_makes_under_the_name_is_never_touched() {
    virtual_time::run(1, async {
        let world = World::new().await;
        world.host.delete_now("persistentvolumes", "", VOLUME).unwrap();
        world
            .host
            .change("persistentvolumes", "", VOLUME, |volume| volume["metadata"]["finalizers"] = json!([]))
            .unwrap();
        let mut theirs = volume("of another claim");
        theirs["spec"]["csi"]["volumeHandle"] = json!("theirs");
        let theirs = world.host.create("persistentvolumes", theirs).unwrap();
        assert!(!world.live("first").await);
        let now = world.host.get("persistentvolumes", "", VOLUME).unwrap();
        assert_eq!((&now["metadata"]["uid"], &now["spec"]), (&theirs["metadata"]["uid"], &theirs["spec"]));
    });
}

#[test]
fn attachments_to_nodes_that_do_not_reach_the_new_volume_go_and_no_others() {
    virtual_time::run(1, async {
        let world = World::new().await;
        for (name, node, volume) in [("old", "a", VOLUME), ("new", "b", VOLUME), ("other", "a", "of another")] {
            let attachment = json!({"metadata": {"name": name}, "spec": {"attacher": "kosmos.csi.io", "nodeName": node,
                "source": {"persistentVolumeName": volume}}});
            world.host.create("volumeattachments.storage.k8s.io", attachment).unwrap();
        }
        let host = connected(&world.host, "first").await.unwrap();
        for _ in 0..2 {
            world.replacing.delete_attachments(&host, |node| node == "b").await.unwrap();
            let left = world.host.list("volumeattachments.storage.k8s.io");
            let names: Vec<&str> = left.iter().map(|attachment| text(attachment, "/metadata/name")).collect();
            assert_eq!(names, ["new", "other"]);
        }
    });
}

#[test]
fn volume_that_somebody_holds_by_a_finalizer_waits_for_him() {
    virtual_time::run(1, async {
        let world = World::new().await;
        let backed_up = |volume: &mut Value| volume["metadata"]["finalizers"] = json!(["example.com/backup"]);
        world.host.change("persistentvolumes", "", VOLUME, backed_up).unwrap();
        assert!(!world.live("first").await);
        let held = world.host.get("persistentvolumes", "", VOLUME).unwrap();
        assert_eq!(held["metadata"]["finalizers"], json!(["example.com/backup"]));
        world
            .host
            .change("persistentvolumes", "", VOLUME, |volume| volume["metadata"]["finalizers"] = json!([]))
            .unwrap();
        assert!(world.goes_on().await);
        assert_eq!(world.wrong(), None);
    });
}

/// An administrator has made it stay, and its claim is deleted later.
#[test]
fn volume_on_which_people_have_written_since_stays_until_the_new_one_says_that_too() {
    virtual_time::run(1, async {
        let mut world = World::new().await;
        let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        world.host.change("persistentvolumes", "", VOLUME, keep).unwrap();
        assert!(!world.live("first").await);
        let there = world.host.get("persistentvolumes", "", VOLUME).unwrap();
        assert!(text(&there, "/metadata/deletionTimestamp").is_empty(), "{there}");
        let host = connected(&world.host, "second").await.unwrap();
        world.replacing.volume = world.replacing.changed(&host).await.unwrap().unwrap();
        assert!(world.goes_on().await);
        assert_eq!(world.wrong(), None);
        let new = world.host.get("persistentvolumes", "", VOLUME).unwrap();
        assert_eq!(text(&new, "/spec/persistentVolumeReclaimPolicy"), "Retain", "{new}");
    });
}
