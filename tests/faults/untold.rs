//! Leaves that came late of a provisioner that does not say for which claim it asks: nobody can tell who may still wait for them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use csi::v1::DeleteVolumeRequest;
use serde_json::{Value, json};
use simulate::faults::{Action, Verb};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::{
    bench::Bench,
    caller::{Caller, Ending, Script},
    fixture,
    history::{label, made_for},
    late::{LATE, creates, delay_next},
    reclaim::{SETTLED, events, until},
    virtual_time,
};

const STEP: Duration = Duration::from_secs(1);
/// The driver is sure by then that nobody asks any more, and has counted twice.
const SURE: Duration = Duration::from_mins(40);

fn untold() -> Script {
    Script { told: false, ..Script::new("data") }
}

/// Its claims in a member.
fn leaves(bench: &Bench, at: usize, caller: &Caller) -> Vec<Arc<Value>> {
    let all = bench.members[at].list("persistentvolumeclaims").into_iter();
    all.filter(|leaf| made_for(leaf) == caller.volume()).collect()
}

/// The first POST of the leaf claim arrives when all that follows has happened.
async fn provisioned_late(bench: &Arc<Bench>, script: Script) -> Caller {
    let mut caller = Caller::new(bench, script);
    let sent = delay_next(bench, |asked| asked.verb == Verb::Create && asked.resource == "persistentvolumeclaims");
    assert_eq!(caller.provision().await, Ending::Provisioned);
    assert!(sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
    caller
}

/// It has the name of the one that is being removed, and no volume: that of the other is awaited all the same.
#[test]
fn leaf_that_comes_while_the_volume_of_another_one_is_removed_does_not_hide_that_volume() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(25))).await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        let sent = AtomicBool::new(false);
        bench.guard.set_fate(move |_, at, asked| {
            let first = at > 0 && creates(asked, "persistentvolumeclaims") && !sent.swap(true, Ordering::Relaxed);
            if first { Action::Late(Duration::from_millis(40_500)) } else { Action::Pass }
        });
        assert_eq!(caller.provision().await, Ending::Provisioned);
        caller.delete_claim();
        let mut provisioner = caller.clone();
        let late = async {
            until(&bench, SETTLED, "the leaf claim goes", || leaves(&bench, 0, &caller).is_empty()).await;
            until(&bench, SETTLED, "another one comes", || !leaves(&bench, 0, &caller).is_empty()).await;
            let is_there = bench.members[0].get("persistentvolumes", "", caller.leaf_volume().unwrap()).is_some();
            assert!(is_there, "its volume goes slowly");
        };
        let (removed, ()) = tokio::join!(timeout(SETTLED, provisioner.reclaim()), late);
        removed.unwrap();
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn leaf_that_comes_when_its_volume_is_gone_is_counted_until_a_person_removes_it() {
    for leaf_class in [fixture::NOW, fixture::LATER] {
        virtual_time::run(1, async {
            let bench = Bench::serving(1, &fixture::steady(STEP)).await;
            let mut caller = provisioned_late(&bench, Script { leaf_class, ..untold() }).await;
            caller.delete_claim();
            timeout(SETTLED, caller.reclaim()).await.unwrap();
            sleep(SURE).await;
            assert_eq!(leaves(&bench, 0, &caller).len(), 1, "the late one has arrived");
            let told = "kosmos_csi_member_volumes{member=\"m0\",state=\"stray\"} 1\n";
            assert!(bench.metrics().contains(told), "{leaf_class}: {}", bench.metrics());
            let volume_id = caller.handle().unwrap().to_owned();
            bench.delete(DeleteVolumeRequest { volume_id, ..DeleteVolumeRequest::default() }).await.unwrap();
            assert!(leaves(&bench, 0, &caller).is_empty() && bench.storages[0].volumes().is_empty());
        });
    }
}

#[test]
fn leaf_that_comes_in_the_place_of_one_that_was_let_go_makes_way() {
    for leaf_class in [fixture::NOW, fixture::LATER] {
        virtual_time::run(1, async {
            let bench = Bench::serving(1, &fixture::steady(STEP)).await;
            let mut caller = provisioned_late(&bench, Script { leaf_class, retain: true, ..untold() }).await;
            sleep(STEP * 5).await;
            caller.delete_claim();
            timeout(SETTLED, caller.reclaim()).await.unwrap();
            until(&bench, LATE, "the leaf is let go", || leaves(&bench, 0, &caller).is_empty()).await;
            until(&bench, LATE, "the late one arrives", || !leaves(&bench, 0, &caller).is_empty()).await;
            until(&bench, LATE, "and makes way", || leaves(&bench, 0, &caller).is_empty()).await;
            sleep(SETTLED).await;
            assert_eq!(bench.storages[0].volumes().len(), 1, "{leaf_class}: its data stays");
            assert!(!events(&bench).contains("LeafStuck"), "{leaf_class}: {}", events(&bench));
        });
    }
}

#[test]
fn leaf_that_comes_to_a_member_is_taken_back_where_the_host_has_the_volume_in_another() {
    for released in [false, true] {
        virtual_time::run(1, async {
            let bench = Bench::serving(2, &fixture::steady(STEP)).await;
            let namespace = json!({"metadata": {"name": "kosmos-csi-leaves"}});
            bench.members[0].create("namespaces", namespace).unwrap();
            let script = Script { places: vec![0], retain: released, ..untold() };
            let mut caller = Caller::new(&bench, script);
            delay_next(&bench, |asked| creates(asked, "persistentvolumeclaims"));
            assert!(caller.create().await.is_err());
            caller.goes_to(vec![1]);
            assert_eq!(caller.provision().await, Ending::Provisioned);
            assert!(caller.handle().unwrap().starts_with("m1/"), "{:?}", caller.handle());
            sleep(STEP * 5).await;
            if released {
                caller.delete_claim();
                timeout(SETTLED, caller.reclaim()).await.unwrap();
            }
            sleep(LATE).await;
            assert_eq!(leaves(&bench, 0, &caller).len(), 1, "{released}: {}", bench.guard.trace().join("\n"));
            sleep(SURE).await;
            assert!(leaves(&bench, 0, &caller).is_empty(), "{released}: {}", bench.guard.trace().join("\n"));
            assert_eq!(leaves(&bench, 1, &caller).len(), usize::from(!released));
            let kept = bench.members[1].list("persistentvolumes");
            assert!(kept.iter().any(|volume| !label(volume, "kosmos.csi.io/volume").is_empty()), "{kept:?}");
        });
    }
}

/// A volume that is asked for in the first member, where its leaf comes late, and then in the second.
async fn asked_for_in_two(leaf_is_ready_after: Duration) -> (Arc<Bench>, Caller) {
    let bench = Bench::serving(2, &fixture::steady(leaf_is_ready_after)).await;
    let namespace = json!({"metadata": {"name": "kosmos-csi-leaves"}});
    bench.members[0].create("namespaces", namespace).unwrap();
    let mut caller = Caller::new(&bench, Script { places: vec![0], ..untold() });
    delay_next(&bench, |asked| creates(asked, "persistentvolumeclaims"));
    assert!(caller.create().await.is_err());
    caller.goes_to(vec![1]);
    (bench, caller)
}

#[test]
fn volume_stays_where_it_was_given_out_when_it_is_asked_for_again() {
    virtual_time::run(1, async {
        let (bench, mut caller) = asked_for_in_two(STEP).await;
        assert_eq!(caller.provision().await, Ending::Provisioned);
        until(&bench, LATE, "the late one arrives", || !leaves(&bench, 0, &caller).is_empty()).await;
        sleep(STEP * 5).await;
        let again = caller.create().await.unwrap();
        assert_eq!(Some(again.volume_id.as_str()), caller.handle(), "{}", bench.guard.trace().join("\n"));
        let late = bench.members[0].list("persistentvolumes");
        assert!(late.iter().all(|volume| label(volume, "kosmos.csi.io/volume").is_empty()), "{late:?}");
    });
}

#[test]
fn of_two_leaves_that_were_never_given_out_one_goes_before_the_other_is_given_out() {
    virtual_time::run(1, async {
        let (bench, mut caller) = asked_for_in_two(LATE * 2).await;
        assert!(caller.create().await.is_err());
        until(&bench, LATE, "the late one arrives", || !leaves(&bench, 0, &caller).is_empty()).await;
        caller.goes_to(vec![0]);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        let both: Vec<_> = (0..2).flat_map(|at| leaves(&bench, at, &caller)).collect();
        assert_eq!(both.len(), 1, "{both:?}\n{}", bench.guard.trace().join("\n"));
        assert!(bench.guard.wrong().is_empty(), "{:?}", bench.guard.wrong());
    });
}

/// Its first consumer comes when the driver has removed the second one, and holds it once it is bound.
#[test]
fn forgotten_leaf_is_withdrawn_with_the_consumer_that_came_late() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(30))).await;
        let script = Script { leaf_class: fixture::LATER, ..Script::new("data") };
        let caller = Caller::new(&bench, script);
        let sent = delay_next(&bench, |asked| creates(asked, "pods"));
        assert!(caller.create().await.is_err() && sent.load(Ordering::Relaxed));
        assert!(caller.create().await.is_err());
        assert_eq!(bench.members[0].list("pods").len(), 1);
        caller.delete_claim();
        bench.guard.set_fate(|_, at, asked| {
            let refused = at > 0 && asked.verb == Verb::Delete && asked.resource == "persistentvolumeclaims";
            if refused { Action::Refuse } else { Action::Pass }
        });
        assert!(caller.create().await.is_err());
        assert!(bench.members[0].list("pods").is_empty());
        bench.guard.heal();
        until(&bench, LATE, "the late one arrives", || !bench.members[0].list("pods").is_empty()).await;
        sleep(SURE).await;
        let left = leaves(&bench, 0, &caller);
        assert!(left.is_empty(), "{}", left[0]);
        assert!(bench.members[0].list("pods").is_empty());
    });
}

/// It comes between the end of the second one and that of the claim, of which nothing of ours is left then but the pod.
#[test]
fn leaf_that_was_withdrawn_is_not_held_by_the_consumer_that_came_late() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(20))).await;
        let script = Script { leaf_class: fixture::LATER, ..Script::new("data") };
        let caller = Caller::new(&bench, script);
        let sent = delay_next(&bench, |asked| creates(asked, "pods"));
        let comes = Instant::now() + LATE;
        assert!(caller.create().await.is_err() && sent.load(Ordering::Relaxed));
        assert!(caller.create().await.is_err());
        sleep_until(comes - STEP).await;
        caller.delete_claim();
        bench.guard.set_fate(move |_, at, asked| match asked.resource.as_str() {
            "persistentvolumeclaims" if at > 0 && asked.verb == Verb::Delete => Action::Delay(STEP * 2),
            "pods" if asked.verb == Verb::Delete && Instant::now() > comes => Action::Refuse,
            _ => Action::Pass,
        });
        assert!(caller.create().await.is_err());
        bench.guard.heal();
        let [left] = &leaves(&bench, 0, &caller)[..] else { panic!("{}", bench.guard.trace().join("\n")) };
        assert_eq!(left["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
        sleep(SURE).await;
        let left = leaves(&bench, 0, &caller);
        assert!(left.is_empty(), "{}", left[0]);
        assert!(bench.members[0].list("pods").is_empty());
    });
}
