//! What each call asks of the clusters, counted. One request more fails the test. And what a member can have the host asked.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use crate::{
    ask::ask,
    attach::double::ATTACHMENTS,
    bench::{Bench, SHOP, lock},
    caller::Script,
    codes::prepare,
    fixture,
    reclaim::{CLAIM, provisioned, until},
    shared::release,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
/// What somebody in a member writes of one kind.
const WRITTEN: usize = 300;

#[test]
fn calls_for_a_volume_that_lives_cost_what_is_promised() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 2, &fixture::steady(STEP)).await;
        bench.start();
        bench.serves().await;
        sleep(STEP).await;
        let target = prepare(&bench).await;
        sleep(STEP).await;
        for (rpc, cost) in [
            ("ListVolumes", 0),
            ("ControllerGetVolume", 0),
            ("ValidateVolumeCapabilities", 0),
            ("ControllerListVolumeHealth", 0),
            // The events that the member's health monitor writes.
            ("ControllerGetVolumeHealth", 1),
            ("ControllerExpandVolume", 1),
            // Nothing that was asked for before may come later.
            ("ControllerExpandVolume", 1),
            // Whether the class is there, and the claim.
            ("ControllerModifyVolume", 2),
            ("ControllerModifyVolume", 1),
            ("ControllerPublishVolume", 1),
            ("ControllerPublishVolume", 1),
            ("ControllerUnpublishVolume", 1),
            ("ControllerUnpublishVolume", 1),
            ("ListVolumes", 0),
        ] {
            let before = bench.guard.sent_for_work();
            let (code, message) = ask(&bench, rpc, &target).await;
            assert_eq!(code, Code::Ok, "{rpc}: {message}");
            assert_eq!(bench.guard.sent_for_work() - before, cost, "{rpc}:\n{}", bench.guard.trace().join("\n"));
        }
    });
}

/// What the host was asked of its volumes.
#[derive(Default)]
struct Asked {
    /// Of all of them.
    lists: AtomicU64,
    /// Of one.
    looks: AtomicU64,
}

impl Asked {
    fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }
}

/// A driver, and a member that refuses so to write on claims and volumes.
async fn refusing(refused: Verb) -> (Arc<Bench>, Arc<Asked>) {
    let bench = Bench::serving(1, &fixture::steady(STEP)).await;
    sleep(STEP * 50).await;
    let asked = Arc::<Asked>::default();
    let counts = Arc::clone(&asked);
    bench.guard.set_fate(move |_, at, request| {
        let count = match (at, request.verb, request.resource.as_str()) {
            (0, Verb::List, VOLUMES) => &counts.lists,
            (0, Verb::Get, VOLUMES) => &counts.looks,
            (1, verb, CLAIMS | VOLUMES) if verb == refused => return Action::Answer { code: 403, reason: "Forbidden" },
            _ => return Action::Pass,
        };
        count.fetch_add(1, Ordering::Relaxed);
        Action::Pass
    });
    (bench, asked)
}

fn labels(bench: &Bench, at: usize) -> Value {
    fixture::labels(&bench.host_id(), &format!("{at:032x}"))
}

/// With all that the leaf of a volume has which the host has deleted, and was to retain.
fn write_leaf(bench: &Bench, member: usize, at: usize) {
    let (name, labels) = (format!("written-{at}"), labels(bench, at));
    let mut volume = fixture::volume(&name, &labels);
    volume["metadata"]["annotations"] = json!({"kosmos.csi.io/policy-before": "Delete"});
    volume["spec"]["storageClassName"] = json!("");
    volume["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "namespace": SHOP, "name": name});
    bench.members[member].create(VOLUMES, volume).unwrap();
    let notes = json!({"kosmos.csi.io/name": format!("pvc-{at}")});
    let claim = json!({
        "metadata": {"name": name, "namespace": SHOP, "labels": labels, "annotations": notes,
            "finalizers": ["kosmos.csi.io/protect"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "1Gi"}}},
    });
    bench.members[member].create(CLAIMS, claim).unwrap();
}

/// As one that nobody wants any more, of a volume that is not there.
fn write_attachment(bench: &Bench, at: usize) {
    let notes = json!({"kosmos.csi.io/withdrawn": "yes", "kosmos.csi.io/node": "real/n1",
        "kosmos.csi.io/handle": format!("m0/{SHOP}/written-{at}/0000000000000000")});
    let attachment = json!({
        "metadata": {"name": format!("written-{at}"), "labels": labels(bench, at), "annotations": notes},
        "spec": {"attacher": "storage.simulated", "nodeName": "n1",
            "source": {"persistentVolumeName": format!("written-{at}")}},
    });
    bench.members[0].create(ATTACHMENTS, attachment).unwrap();
}

/// Nothing can be done with any of them, and each is looked at again.
#[test]
fn member_has_the_hosts_volumes_listed_no_more_often_for_many_leaves_than_for_few() {
    for refused in [Verb::Patch, Verb::Delete] {
        virtual_time::run(1, async {
            let (bench, asked) = refusing(refused).await;
            for at in 0..WRITTEN {
                write_leaf(&bench, 0, at);
            }
            sleep(Duration::from_secs(10)).await;
            let (looks, lists) = (asked.looks(), asked.lists());
            // Each asks for one volume before each of its steps, and none comes to a third.
            assert!((20..=2 * 130).contains(&looks), "{refused:?}: {looks} looks at one volume in ten seconds");
            assert!((1..=7 + 25).contains(&lists), "{refused:?}: {lists} lists in ten seconds");
            sleep(Duration::from_mins(5)).await;
            let lists = asked.lists() - lists;
            assert!(lists <= 152 + 102, "{refused:?}: {lists} lists in five minutes");
            let claims = bench.members[0].list(CLAIMS);
            let bound = claims.iter().filter(|claim| text(claim, "/status/phase") == "Bound");
            assert_eq!(bound.count(), WRITTEN, "there is something to be done with each");
        });
    }
}

/// As where its storage took longer than the caller waits.
#[test]
fn removal_that_is_asked_for_again_reads_one_volume_of_the_host_and_lists_none() {
    virtual_time::run(1, async {
        // Which the driver never sends.
        let (bench, asked) = refusing(Verb::DeleteCollection).await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        release(&bench, &caller).await;
        let handle = caller.handle().unwrap();
        let removed = async {
            while caller.delete(handle).await.is_err() {
                sleep(STEP).await;
            }
        };
        timeout(Duration::from_mins(1), removed).await.unwrap();
        let (looks, lists) = (asked.looks(), asked.lists());
        caller.delete(handle).await.unwrap();
        let asked = (asked.looks() - looks, asked.lists() - lists);
        assert_eq!(asked, (1, 0), "looks and lists: {}", bench.guard.trace().join("\n"));
    });
}

/// As where somebody clears volumes of a host that has very many, in all its members.
#[test]
fn leaves_of_many_members_that_are_let_go_together_share_the_lists_of_the_hosts_volumes() {
    const MEMBERS: usize = 20;
    const OF_EACH: usize = 3;
    const SLOW: Duration = Duration::from_secs(1);
    virtual_time::run(1, async {
        let bench = Bench::serving(MEMBERS, &fixture::steady(STEP)).await;
        sleep(STEP * 50).await;
        let begun = Arc::<Mutex<Vec<Instant>>>::default();
        let times = Arc::clone(&begun);
        bench.guard.set_fate(move |_, at, request| {
            if (at, request.verb, request.resource.as_str()) != (0, Verb::List, VOLUMES) {
                return Action::Pass;
            }
            lock(&times).push(Instant::now());
            Action::Delay(SLOW)
        });
        for at in 0..MEMBERS * OF_EACH {
            write_leaf(&bench, at % MEMBERS, at);
        }
        let are_gone = || bench.members.iter().all(|member| member.list(CLAIMS).is_empty());
        until(&bench, Duration::from_mins(2), "all are let go", are_gone).await;
        let begun = lock(&begun).clone();
        assert!((1..=OF_EACH * 5).contains(&begun.len()), "{} lists of all volumes", begun.len());
        assert!(begun.windows(2).all(|two| two[1] - two[0] >= SLOW), "beside each other: {begun:?}");
    });
}

#[test]
fn member_has_the_hosts_volumes_listed_for_a_few_attachments_at_once() {
    virtual_time::run(1, async {
        let (bench, asked) = refusing(Verb::Update).await;
        for at in 0..WRITTEN {
            write_attachment(&bench, at);
        }
        sleep(Duration::from_mins(10)).await;
        let left = bench.members[0].list(ATTACHMENTS).len();
        assert!(left > 0 && asked.lists() > 0, "{left} attachments after {} lists", asked.lists());
        assert!(asked.lists() <= 2 * 20, "{} lists", asked.lists());
        sleep(Duration::from_hours(4)).await;
        assert!(bench.members[0].list(ATTACHMENTS).is_empty(), "{}", bench.guard.trace().join("\n"));
    });
}
