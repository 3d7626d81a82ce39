//! Snapshots, groups and their labels that arrive when nobody asks for them any more.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script},
    fixture,
    late::{LATE, delay_next},
    snapshotter::{self, GROUPS, Kind, SNAPSHOTS, Snapshotter, USUAL, Wish},
    virtual_time,
};

const SOON: Duration = Duration::from_secs(2);
/// Nobody can ask for it any more by then, and the driver has looked.
const SURE: Duration = Duration::from_mins(40);

/// A member with snapshots, and a volume in it.
async fn volume() -> (Arc<Bench>, Caller) {
    let bench = Bench::new(1, 1, &fixture::steady(SOON)).await;
    snapshotter::have_kinds(&bench);
    bench.start();
    bench.serves().await;
    let mut caller = Caller::new(&bench, Script::new("data"));
    assert_eq!(caller.provision().await, Ending::Provisioned);
    (bench, caller)
}

/// The user asks for it, and has deleted it before the first write has arrived.
async fn was_asked_for(bench: &Arc<Bench>, caller: &Caller, kind: Kind, first: fn(&Asked) -> bool) {
    let sent = delay_next(bench, first);
    let (name, sources) = ("photo".to_owned(), vec![caller.handle().unwrap().to_owned()]);
    let mut snapshot = Snapshotter::new(bench, Wish { kind, name, sources, class: USUAL, told: true, at_once: 1 });
    let user = snapshot.clone();
    let (made, ()) = tokio::join!(snapshot.make(), async move {
        sleep(SOON).await;
        user.discard();
    });
    assert!(!made && sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
}

async fn nothing_is_left(bench: &Bench, kind: &str) {
    sleep(LATE).await;
    assert_eq!(bench.members[0].list(kind).len(), 1, "the late one has arrived");
    sleep(SURE).await;
    let left = bench.members[0].list(kind);
    assert!(left.is_empty(), "{left:?}\n{}", bench.guard.trace().join("\n"));
    assert!(bench.storages[0].snapshots().is_empty());
    assert_eq!(bench.guard.wrong(), Vec::<String>::new());
}

fn makes_a_snapshot(asked: &Asked) -> bool {
    asked.verb == Verb::Create && asked.resource == SNAPSHOTS
}

fn makes_a_group(asked: &Asked) -> bool {
    asked.verb == Verb::Create && asked.resource == GROUPS
}

fn chooses_a_claim(asked: &Asked) -> bool {
    let mut changes = asked.body.as_array().into_iter().flatten();
    asked.verb == Verb::Patch && changes.any(|change| text(change, "/path").contains("/group.kosmos.csi.io~1"))
}

/// The member takes the group and answers nothing, and then refuses to say which kinds it has.
#[test]
fn group_is_not_refused_for_good_while_it_may_be_there() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        let sent = AtomicBool::new(false);
        bench.guard.set_fate(move |_, at, asked| match asked.verb {
            Verb::Create if asked.resource == GROUPS && !sent.swap(true, Ordering::Relaxed) => Action::ApplyThenLose,
            Verb::List if at > 0 && asked.resource.is_empty() && sent.load(Ordering::Relaxed) => {
                Action::Answer { code: 403, reason: "Forbidden" }
            }
            _ => Action::Pass,
        });
        let (name, sources) = ("photo".to_owned(), vec![caller.handle().unwrap().to_owned()]);
        let wish = Wish { kind: Kind::Group, name, sources, class: USUAL, told: true, at_once: 1 };
        let mut group = Snapshotter::new(&bench, wish);
        let (made, ()) = tokio::join!(group.make(), async {
            sleep(SOON * 5).await;
            bench.guard.heal();
        });
        assert!(made && bench.guard.wrong().is_empty(), "{:#?}", bench.guard.wrong());
    });
}

/// The driver that sent it knew of a snapshot. The next one has never seen any, and nobody asks it for one.
#[test]
fn snapshot_that_comes_late_to_a_driver_that_was_started_anew_is_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Snapshot, makes_a_snapshot).await;
        bench.start();
        nothing_is_left(&bench, SNAPSHOTS).await;
    });
}

#[test]
fn group_that_comes_late_is_taken_back() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Group, makes_a_group).await;
        nothing_is_left(&bench, GROUPS).await;
    });
}

#[test]
fn label_of_a_group_that_comes_late_is_taken_off_the_claim() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        was_asked_for(&bench, &caller, Kind::Group, chooses_a_claim).await;
        let labels = || {
            let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
            let labels = leaf["metadata"]["labels"].as_object().unwrap().clone();
            labels.keys().filter(|key| key.starts_with("group.kosmos.csi.io/")).count()
        };
        assert_eq!(labels(), 0);
        sleep(LATE).await;
        assert_eq!(labels(), 1, "the late one has arrived");
        sleep(SURE).await;
        assert_eq!(labels(), 0, "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}
