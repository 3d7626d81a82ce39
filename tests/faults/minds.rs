//! People who change their minds while a removal is under way: until the member has removed the data, it is theirs again.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use serde_json::{Value, json};
use simulate::faults::{Action, Verb};
use tokio::time::{sleep, timeout};
use tonic::Code;

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Script},
    fixture,
    late::{LATE, stays},
    people::{delete_leaf_claim, hold},
    reclaim::{CLAIM, SETTLED, bench, ends_well, leaf, policy, provisioned, until, wrong},
    shared::{led_by_another, release},
    taken::kept,
    virtual_time,
};

/// Of somebody in the member whose work with the leaf claim is not done.
const HOLD: &str = "example.com/backup";
/// Requests take so long, and who waits for the leaf volume to be retained sees it so soon.
const ANSWER: Duration = Duration::from_millis(20);
const AT_ONCE: Duration = Duration::from_millis(2);
/// The host's administrators are done, and everybody has heard of it.
const QUIET: Duration = Duration::from_mins(1);

/// What the administrator of the host does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mind {
    Retains,
    UsesAgain,
}

/// What was wrong after a removal that was called off so long after the user had asked for it.
async fn called_off(leaf_class: &'static str, mind: Mind, after: Duration) -> Vec<String> {
    let bench = bench().await;
    let mut caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
    hold(&bench, CLAIM, HOLD, true);
    caller.delete_claim();
    let mut administrator = caller.clone();
    let changes_his_mind = async {
        sleep(after).await;
        administrator.set_policy("Retain");
        if mind == Mind::UsesAgain {
            administrator.claim_again("again");
        }
        sleep(QUIET).await;
        hold(&bench, CLAIM, HOLD, false);
    };
    tokio::join!(caller.reclaim(), changes_his_mind);
    sleep(SETTLED).await;
    let mut bad = wrong(&bench, &administrator, mind == Mind::Retains);
    if policy(&bench, &administrator) != "Retain" || bench.storages[0].volumes().len() != 1 {
        bad.push(format!("the leaf volume is {:?}", policy(&bench, &administrator)));
    }
    if bad.is_empty() {
        ends_well(&bench, administrator).await;
    } else {
        bad.push(bench.guard.trace().join("\n"));
    }
    bad
}

#[test]
fn removal_that_is_called_off_before_the_data_has_gone_keeps_it() {
    let classes = [fixture::NOW, fixture::KEPT].into_iter();
    let minds = classes.flat_map(|class| [Mind::Retains, Mind::UsesAgain].map(|mind| (class, mind)));
    let cases = minds.flat_map(|(class, mind)| [5, 8, 11, 15, 30, 90, 300].map(|after| (class, mind, after)));
    let bad = virtual_time::each(virtual_time::THREADS, cases.collect(), |(class, mind, after)| {
        let bad = virtual_time::run(after, called_off(class, mind, Duration::from_secs(after)));
        (!bad.is_empty()).then(|| format!("{class} {mind:?} after {after} s:\n{}", bad.join("\n")))
    });
    let which: Vec<&str> = bad.iter().filter_map(|bad| bad.lines().next()).collect();
    assert!(bad.is_empty(), "{} of 28, {which:#?} such as {}", bad.len(), bad[0]);
}

/// From the moment on when the leaf volume is retained, its data is kept, whatever was asked for a moment before.
async fn kept_once_it_is_said(leaf_class: &'static str, after: Duration) -> Vec<String> {
    let bench = bench().await;
    let mut caller = provisioned(&bench, Script { leaf_class, ..Script::new(CLAIM) }).await;
    hold(&bench, CLAIM, HOLD, true);
    bench.guard.set_fate(|_, _, _| Action::Delay(ANSWER));
    caller.delete_claim();
    let administrator = caller.clone();
    let follows = || {
        let volume = bench.members[0].get("persistentvolumes", "", administrator.leaf_volume().unwrap()).unwrap();
        let says = |key: &str| volume["metadata"]["annotations"][format!("kosmos.csi.io/{key}")].is_string();
        (says("policy-before") || says("healing")) && policy(&bench, &administrator) == "Retain"
    };
    let changes_his_mind = async {
        sleep(after).await;
        administrator.set_policy("Retain");
        while !follows() {
            sleep(AT_ONCE).await;
        }
        hold(&bench, CLAIM, HOLD, false);
    };
    tokio::join!(caller.reclaim(), changes_his_mind);
    sleep(SETTLED).await;
    let mut bad = wrong(&bench, &administrator, true);
    if bench.storages[0].volumes().is_empty() {
        bad.push("the data is gone".to_owned());
    }
    if !bad.is_empty() {
        bad.push(bench.guard.trace().join("\n"));
    }
    bad
}

#[test]
fn data_is_kept_from_the_moment_on_when_the_leaf_volume_is_retained() {
    let classes = [fixture::NOW, fixture::KEPT].into_iter();
    let cases = classes.flat_map(|class| (1..60).map(move |step| (class, Duration::from_millis(step * 230))));
    let bad = virtual_time::each(virtual_time::THREADS, cases.collect(), |(class, after)| {
        let bad = virtual_time::run(1, kept_once_it_is_said(class, after));
        (!bad.is_empty()).then(|| format!("{class} after {after:?}:\n{}", bad.join("\n")))
    });
    let which: Vec<&str> = bad.iter().filter_map(|bad| bad.lines().next()).collect();
    assert!(bad.is_empty(), "{} of 118, {which:#?} such as {}", bad.len(), bad[0]);
}

/// Somebody has deleted the leaf claim, and whoever holds it is done right after the first write: the next one may take longer.
#[test]
fn removal_is_called_off_by_the_first_write_that_arrives() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        hold(&bench, CLAIM, HOLD, true);
        delete_leaf_claim(&bench, CLAIM);
        let administrator = caller.clone();
        let is = |wanted: &str| policy(&bench, &administrator) == wanted;
        let goes = || {
            let volume = bench.members[0].get("persistentvolumes", "", administrator.leaf_volume().unwrap()).unwrap();
            volume["metadata"]["labels"]["kosmos.csi.io/removal"].is_string()
        };
        until(&bench, SETTLED, "the leaf volume is kept", || is("Retain")).await;
        caller.delete_claim();
        let changes_his_mind = async {
            until(&bench, SETTLED, "it is to go", || is("Delete")).await;
            let called_off = AtomicBool::new(false);
            bench.guard.set_fate(move |_, at, asked| {
                let writes = at > 0 && asked.resource == "persistentvolumes" && asked.verb == Verb::Patch;
                if writes && called_off.swap(true, Ordering::Relaxed) { Action::Late(LATE) } else { Action::Pass }
            });
            administrator.set_policy("Retain");
            until(&bench, SETTLED, "the first write is carried out", || !goes()).await;
            hold(&bench, CLAIM, HOLD, false);
            sleep(QUIET).await;
            bench.guard.heal();
        };
        tokio::join!(caller.reclaim(), changes_his_mind);
        stays(&bench, administrator).await;
    });
}

/// What he had asked for before has begun to write, and that is waited for. The member lets nobody keep the data meanwhile.
#[test]
fn who_asks_for_a_removal_is_believed_from_then_on_and_not_from_when_it_begins() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        release(&bench, &caller).await;
        bench.guard.set_fate(|_, at, asked| match (at, asked.verb, asked.resource.as_str()) {
            (1, Verb::Delete, "persistentvolumeclaims") => Action::Delay(Duration::from_millis(3500)),
            (1, Verb::Patch, "persistentvolumes") => Action::Answer { code: 403, reason: "Forbidden" },
            _ => Action::Pass,
        });
        let handle = caller.handle().unwrap();
        timeout(Duration::from_secs(1), caller.delete(handle)).await.unwrap_err();
        let changes_his_mind = async {
            sleep(Duration::from_secs(1)).await;
            caller.set_policy("Retain");
        };
        let (refused, ()) = tokio::join!(caller.delete(handle), changes_his_mind);
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("is retained or in use again"), "{refused}");
        let claim = leaf(&bench, CLAIM).unwrap();
        assert!(claim["metadata"]["finalizers"].to_string().contains("kosmos.csi.io/protect"), "{claim}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Sidecar and driver have stood still together since the sidecar looked at the host, as they do when their machine is frozen. The member
/// lets nobody keep the data.
#[test]
fn removal_that_comes_when_the_volume_is_wanted_again_long_since_is_not_carried_out() {
    let minds = [Mind::Retains, Mind::UsesAgain].into_iter();
    for (mind, is_leader) in minds.flat_map(|mind| [true, false].map(|is_leader| (mind, is_leader))) {
        virtual_time::run(1, async {
            let bench = if is_leader { bench().await } else { led_by_another().await };
            let caller = provisioned(&bench, Script::new(CLAIM)).await;
            release(&bench, &caller).await;
            bench.guard.set_fate(|_, at, asked| {
                let keeps = at == 1 && asked.verb == Verb::Patch && asked.resource == "persistentvolumes";
                if keeps { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
            });
            let mut administrator = caller.clone();
            administrator.set_policy("Retain");
            if mind == Mind::UsesAgain {
                administrator.claim_again("again");
                administrator.set_policy("Delete");
            }
            sleep(QUIET).await;
            let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
            assert_eq!(refused.code(), Code::Aborted, "{mind:?}, {is_leader}: {refused}");
            assert!(refused.message().contains("is retained or in use again"), "{mind:?}, {is_leader}: {refused}");
            let claim = leaf(&bench, CLAIM).unwrap();
            assert!(claim["metadata"]["deletionTimestamp"].is_null(), "{mind:?}, {is_leader}: {claim}");
            assert_eq!(bench.storages[0].volumes().len(), 1);
            assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        });
    }
}

/// The host's controller has much to do, and says still that its claim has gone.
#[test]
fn volume_that_its_administrator_has_just_given_to_another_claim_is_not_removed() {
    virtual_time::run(1, async {
        let (bench, caller) = kept(false).await;
        caller.set_policy("Delete");
        let (host, member, is_given) = (bench.host.clone(), bench.members[0].clone(), AtomicBool::new(false));
        let (name, leaf_volume) = (caller.volume().to_owned(), caller.leaf_volume().unwrap().to_owned());
        bench.guard.set_fate(move |_, at, asked| {
            let is_asked = at == 0 && asked.verb == Verb::List && asked.resource == "persistentvolumes";
            let leaf_volume = member.get("persistentvolumes", "", &leaf_volume);
            let goes = |volume: &Value| volume["metadata"]["labels"]["kosmos.csi.io/removal"].is_string();
            if is_asked && leaf_volume.is_some_and(|volume| goes(&volume)) && !is_given.swap(true, Ordering::Relaxed) {
                let other =
                    json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": SHOP, "name": "again"});
                host.change("persistentvolumes", "", &name, |volume| volume["spec"]["claimRef"] = other).unwrap();
            }
            Action::Pass
        });
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("is retained or in use again"), "{refused}");
        sleep(SETTLED).await;
        assert_eq!(policy(&bench, &caller), "Retain");
        assert_eq!(bench.storages[0].volumes().len(), 1);
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// csi-provisioner could not save its volume in the host, and has it removed at once: nobody ever retained it there.
#[test]
fn volume_that_never_came_to_the_host_is_removed_also_where_its_class_retains() {
    for leaf_class in [fixture::NOW, fixture::KEPT] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let caller = Caller::new(&bench, Script { leaf_class, ..Script::new(CLAIM) });
            let handle = loop {
                match caller.create().await {
                    Ok(volume) => break volume.volume_id,
                    Err(_) => sleep(QUIET / 60).await,
                }
            };
            while let Err(refused) = caller.delete(&handle).await {
                assert_eq!(refused.code(), Code::Aborted, "{refused}");
                assert!(!refused.message().contains("the driver keeps it"), "{leaf_class}: {refused}");
                sleep(QUIET / 60).await;
            }
            assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
            assert!(bench.storages[0].volumes().is_empty());
        });
    }
}

/// Host and member answer so slowly that nobody is believed any more when its class' `Retain` has to be undone.
#[test]
fn leaf_of_a_class_that_retains_is_withdrawn_also_where_all_is_slow() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(20))).await;
        let caller = Caller::new(&bench, Script { leaf_class: fixture::KEPT, ..Script::new(CLAIM) });
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Aborted);
        // Its volume comes while nobody is there to label it: that is one slow step more.
        bench.kill();
        caller.delete_claim();
        sleep(QUIET).await;
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(5)).await;
        bench.guard.set_fate(|_, _, _| Action::Delay(Duration::from_millis(1100)));
        let mut codes = Vec::new();
        while codes.len() < 20 && codes.last() != Some(&Code::NotFound) {
            codes.push(caller.create().await.unwrap_err().code());
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(codes.last(), Some(&Code::NotFound), "{codes:?}\n{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
    });
}
