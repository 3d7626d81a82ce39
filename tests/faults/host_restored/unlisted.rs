//! The driver begins again in a host that was restored from a backup: its claim has no volume, and what the member of then has of it is not known
//! yet.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use simulate::{
    Backup,
    faults::{Action, Asked, Verb},
};
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{LOOKED, has_its_data_again, restore};
use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script},
    fixture,
    late::creates,
    placed::record,
    reclaim::{CLAIM, SETTLED, bench, ends_well, leaf, phase, released, retained, until},
    virtual_time,
};

/// What becomes of a request.
type Fate = fn(&Asked) -> Action;

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

/// A volume in the first of two members, and backups of when the host had nothing of it but its claim, and of when it had that member on record.
async fn made_after_backups(script: Script) -> (Arc<Bench>, Caller, [Backup; 2]) {
    let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
    let mut caller = Caller::new(&bench, Script { places: vec![0], ..script });
    let bare = bench.host.backup();
    bench.guard.set_fate(|_, at, asked| {
        let makes_it = at == 1 && creates(asked, CLAIMS);
        if makes_it { Action::Answer { code: 500, reason: "InternalError" } } else { Action::Pass }
    });
    assert!(caller.create().await.is_err());
    bench.guard.heal();
    let on_record = bench.host.backup();
    assert_eq!(record(&bench)[0], "m0");
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(Duration::from_secs(10)).await;
    (bench, caller, [bare, on_record])
}

/// The host goes back, and the driver begins again.
async fn goes_back(bench: &Bench, backup: &Backup, fate: impl Fn(&Asked) -> Action + Send + Sync + 'static) {
    restore(bench, backup);
    bench.guard.set_fate(move |_, at, asked| {
        let is_of_leaves = at == 1 && [CLAIMS, VOLUMES].contains(&asked.resource.as_str());
        if is_of_leaves { fate(asked) } else { Action::Pass }
    });
    bench.start();
    bench.serves().await;
    sleep(Duration::from_millis(500)).await;
}

fn lists_come_late(asked: &Asked) -> Action {
    if asked.verb == Verb::List { Action::Delay(Duration::from_secs(2)) } else { Action::Pass }
}

/// As where the connection of a watch has died before there was a leaf.
fn nothing_is_told(asked: &Asked) -> Action {
    match asked.verb {
        Verb::List => Action::Stale(u64::MAX),
        Verb::Watch => Action::Silence(0),
        _ => Action::Pass,
    }
}

/// As external-provisioner asks again while nothing can be told of the member.
async fn refused_once_it_is_listed(caller: &mut Caller) -> Status {
    loop {
        let refused = caller.create().await.unwrap_err();
        if refused.code() != Code::Unavailable {
            return refused;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// The scheduler sends its pod elsewhere.
#[test]
fn leaf_that_was_used_and_is_not_known_yet_is_not_taken_back() {
    let fates: [(Fate, &str); 2] = [
        (lists_come_late, "still has its data in member m0"),
        (nothing_is_told, "has had a volume of the host, so the driver does not remove it"),
    ];
    for (fate, said) in fates {
        virtual_time::run(1, async {
            let (bench, mut caller, [_, on_record]) = made_after_backups(Script::new(CLAIM)).await;
            let used = caller.leaf_volume().unwrap().to_owned();
            goes_back(&bench, &on_record, fate).await;
            caller.goes_to(vec![1]);
            let refused = refused_once_it_is_listed(&mut caller).await;
            assert!(refused.message().contains(said), "{refused}");
            bench.guard.heal();
            bench.start();
            bench.serves().await;
            assert_eq!(bench.storages[0].volumes(), [used.as_str()], "{}", bench.guard.trace().join("\n"));
            assert!(bench.storages[1].volumes().is_empty(), "{}", bench.guard.trace().join("\n"));
            caller.goes_to(vec![0]);
            has_its_data_again(&bench, &mut caller, &used).await;
            ends_well(&bench, caller).await;
        });
    }
}

/// Its leaf claim was let go.
#[test]
fn volume_that_is_kept_and_not_known_yet_has_no_empty_one_made_in_its_place() {
    for is_on_record in [false, true] {
        virtual_time::run(1, async {
            let (bench, mut caller, backups) = made_after_backups(retained()).await;
            let kept = caller.leaf_volume().unwrap().to_owned();
            caller.delete_claim();
            until(&bench, SETTLED, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
            goes_back(&bench, &backups[usize::from(is_on_record)], lists_come_late).await;
            let refused = refused_once_it_is_listed(&mut caller).await;
            assert!(refused.message().contains("is recreated with the data that it had"), "{is_on_record}: {refused}");
            bench.guard.heal();
            has_its_data_again(&bench, &mut caller, &kept).await;
            ends_well(&bench, caller).await;
        });
    }
}

/// Somebody there makes so many claims with the labels of one leaf that all which is known of the member is forgotten.
fn says_too_much(bench: &Bench) {
    let labels = fixture::labels(&bench.host_id(), &"0".repeat(32));
    for number in 0..=1000 {
        let claim = json!({
            "metadata": {"name": format!("copy-{number}"), "namespace": SHOP, "labels": labels},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "nobody-serves-this",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        bench.members[0].create(CLAIMS, claim).unwrap();
    }
}

/// It was given to another claim since the backup, and let go by that.
#[test]
fn volume_that_is_kept_has_no_empty_one_made_in_its_place_as_its_member_says_too_much() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, retained());
        let backup = bench.host.backup();
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(Duration::from_secs(10)).await;
        let kept = caller.leaf_volume().unwrap().to_owned();
        released(&bench, &mut caller).await;
        caller.clone().claim_again("again");
        until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, "again")) == "Bound").await;
        sleep(LOOKED).await;
        restore(&bench, &backup);
        until(&bench, LOOKED, "its leaf claim is let go", || leaf(&bench, "again").is_none()).await;
        bench.guard.set_fate(|_, at, asked| {
            let is_looked_at = at == 1 && asked.verb == Verb::Get && asked.resource == VOLUMES;
            if is_looked_at { Action::Delay(Duration::from_secs(3)) } else { Action::Pass }
        });
        let flood = async {
            sleep(Duration::from_secs(1)).await;
            says_too_much(&bench);
        };
        let (asked, ()) = tokio::join!(caller.create(), flood);
        let refused = asked.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}\n{}", bench.guard.trace().join("\n"));
        assert!(leaf(&bench, CLAIM).is_none(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.storages[0].volumes(), [kept.as_str()]);
    });
}
