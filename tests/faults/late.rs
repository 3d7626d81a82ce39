//! Writes that arrive long after their sender gave up, when others have gone on: nothing is undone by them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script},
    fixture,
    people::delete_leaf_claim,
    reclaim::{CLAIM, SETTLED, bench, ends_well, events, leaf, policy, provisioned, released, retained, until, wrong},
    virtual_time,
};

/// Longer than anybody waits for an answer, and than what is done about it takes.
pub const LATE: Duration = Duration::from_secs(45);
const SOON: Duration = Duration::from_secs(2);

/// It would have the member remove the data with the claim.
fn makes_deletable(asked: &Asked) -> bool {
    let mut changes = asked.body.as_array().into_iter().flatten();
    let policy = |change: &Value| text(change, "/path") == "/spec/persistentVolumeReclaimPolicy";
    asked.verb == Verb::Patch && changes.any(|change| policy(change) && text(change, "/value") == "Delete")
}

pub fn creates(asked: &Asked, resource: &str) -> bool {
    asked.verb == Verb::Create && asked.resource == resource
}

/// Whether it changes a field whose path holds this.
pub fn patches(asked: &Asked, part: &str) -> bool {
    let mut changes = asked.body.as_array().into_iter().flatten();
    asked.verb == Verb::Patch && changes.any(|change| text(change, "/path").contains(part))
}

/// The next one of these in a member arrives late. Whether it was sent.
pub fn delay_next(bench: &Bench, is_it: impl Fn(&Asked) -> bool + Send + Sync + 'static) -> Arc<AtomicBool> {
    let sent = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&sent);
    bench.guard.set_fate(move |_, at, asked| {
        let first = at > 0 && is_it(asked) && !sent.swap(true, Ordering::Relaxed);
        if first { Action::Late(LATE) } else { Action::Pass }
    });
    told
}

async fn was_sent(bench: &Bench, sent: &AtomicBool) {
    until(bench, SETTLED, "the write is on its way", || sent.load(Ordering::Relaxed)).await;
}

/// The administrator wants the data, and it is still there when the write has arrived.
pub async fn stays(bench: &Bench, caller: Caller) {
    sleep(LATE + SETTLED).await;
    let bad = wrong(bench, &caller, true);
    assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
    assert_eq!((policy(bench, &caller).as_str(), bench.storages[0].volumes().len()), ("Retain", 1));
    ends_well(bench, caller).await;
}

#[test]
fn policy_of_before_that_arrives_late_does_not_undo_a_later_retain() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        let sent = delay_next(&bench, makes_deletable);
        caller.set_policy("Delete");
        was_sent(&bench, &sent).await;
        sleep(SOON).await;
        caller.set_policy("Retain");
        released(&bench, &mut caller).await;
        stays(&bench, caller).await;
    });
}

#[test]
fn removal_that_was_called_off_is_not_made_good_by_a_late_write() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script { leaf_class: fixture::KEPT, ..Script::new(CLAIM) }).await;
        let sent = delay_next(&bench, makes_deletable);
        caller.delete_claim();
        let mut provisioner = caller.clone();
        let mind = async {
            was_sent(&bench, &sent).await;
            caller.set_policy("Retain");
        };
        tokio::join!(provisioner.reclaim(), mind);
        stays(&bench, caller).await;
    });
}

/// The leaf claim has gone, and only its policy keeps the volume: nothing else would be written on it when the host wants it back.
#[test]
fn removal_of_a_released_volume_that_was_called_off_is_not_made_good_by_a_late_write() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        released(&bench, &mut caller).await;
        let sent = delay_next(&bench, makes_deletable);
        let mut provisioner = caller.clone();
        let mind = async {
            caller.set_policy("Delete");
            was_sent(&bench, &sent).await;
            sleep(SOON).await;
            caller.set_policy("Retain");
        };
        tokio::join!(mind, async {
            sleep(SOON).await;
            provisioner.reclaim().await;
        });
        stays(&bench, caller).await;
    });
}

#[test]
fn policy_put_back_after_healing_that_arrives_late_does_not_undo_a_later_retain() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let sent = delay_next(&bench, makes_deletable);
        delete_leaf_claim(&bench, CLAIM);
        was_sent(&bench, &sent).await;
        until(&bench, LATE, "the policy is put back by the next one", || policy(&bench, &caller) == "Delete").await;
        caller.set_policy("Retain");
        caller.delete_claim();
        caller.reclaim().await;
        until(&bench, LATE / 2, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        stays(&bench, caller).await;
    });
}

/// Somebody deletes the claim that was recreated as well, and the volume is given to it when the third one is there.
#[test]
fn volume_that_was_given_late_to_a_claim_that_is_gone_is_given_to_the_next_one() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        bench.guard.set_fate(|_, at, asked| {
            let mut changes = asked.body.as_array().into_iter().flatten();
            let gives = at > 0 && changes.any(|change| text(change, "/path") == "/spec/claimRef");
            if gives { Action::Late(LATE) } else { Action::Pass }
        });
        let first = delete_leaf_claim(&bench, CLAIM);
        until(&bench, LATE, "it is recreated", || uid(&bench).is_some_and(|uid| uid != first)).await;
        let second = delete_leaf_claim(&bench, CLAIM);
        until(&bench, LATE, "and again", || uid(&bench).is_some_and(|uid| uid != second)).await;
        sleep(LATE).await;
        bench.guard.heal();
        sleep(LATE + SETTLED).await;
        assert!(uid(&bench).is_some_and(|uid| uid != first && uid != second));
        let bad = wrong(&bench, &caller, false);
        assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// It was sent for the claim before the last one, and the volume can never be its own.
#[test]
fn leaf_that_is_recreated_late_goes_where_its_volume_was_another_ones_since() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let sent = delay_next(&bench, makes_the_claim);
        let first = delete_leaf_claim(&bench, CLAIM);
        was_sent(&bench, &sent).await;
        until(&bench, LATE, "it is recreated", || uid(&bench).is_some_and(|uid| uid != first)).await;
        until(&bench, SETTLED, "and all is as before", || policy(&bench, &caller) == "Delete").await;
        caller.set_policy("Retain");
        caller.delete_claim();
        caller.reclaim().await;
        until(&bench, LATE / 2, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        until(&bench, LATE, "the late one arrives", || leaf(&bench, CLAIM).is_some()).await;
        until(&bench, SETTLED, "and goes", || leaf(&bench, CLAIM).is_none()).await;
        caller.claim_again(CLAIM);
        until(&bench, SETTLED, "it is recreated for the next claim", || leaf(&bench, CLAIM).is_some()).await;
        sleep(SETTLED).await;
        let bad = wrong(&bench, &caller, true);
        assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// It says on which node the volume was when it was sent.
#[test]
fn leaf_that_is_recreated_late_while_its_volume_is_removed_does_not_hold_that_by_its_record() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(SOON * 2)).await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.publish(&caller.node()).await.unwrap();
        let sent = delay_next(&bench, makes_the_claim);
        let first = delete_leaf_claim(&bench, CLAIM);
        was_sent(&bench, &sent).await;
        let began = tokio::time::Instant::now();
        until(&bench, LATE, "it is recreated", || uid(&bench).is_some_and(|uid| uid != first)).await;
        until(&bench, SETTLED, "and all is as before", || policy(&bench, &caller) == "Delete").await;
        caller.unpublish().await.unwrap();
        tokio::time::sleep_until(began + LATE - SOON).await;
        caller.delete_claim();
        let reclaimed = tokio::time::timeout(Duration::from_mins(5), caller.reclaim()).await;
        let trace = bench.guard.trace();
        assert!(reclaimed.is_ok(), "{}", trace.join("\n"));
        let deleted = trace.iter().filter(|line| line.contains("Delete persistentvolumeclaims shop/data")).count();
        assert_eq!(deleted, 2, "the late one as well: {}", trace.join("\n"));
        sleep(SETTLED).await;
        assert!(leaf(&bench, CLAIM).is_none() && bench.storages[0].volumes().is_empty());
        assert_eq!(bench.guard.wrong(), [""; 0]);
    });
}

/// A finalizer of somebody's holds the claim until the node has left it, and then nobody can recreate it for a while.
#[test]
fn node_that_comes_late_into_what_is_kept_of_a_claim_is_not_recorded_again() {
    const HOLD: &str = "example.com/hold";
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        caller.publish(&caller.node()).await.unwrap();
        let hold = |claim: &mut Value| claim["metadata"]["finalizers"].as_array_mut().unwrap().push(HOLD.into());
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, hold).unwrap();
        let sent = AtomicBool::new(false);
        bench.guard.set_fate(move |_, at, asked| match at {
            1 if patches(asked, "kosmos.csi.io~1healing") && !sent.swap(true, Ordering::Relaxed) => Action::Late(LATE),
            1 if makes_the_claim(asked) => Action::Refuse,
            _ => Action::Pass,
        });
        let first = delete_leaf_claim(&bench, CLAIM);
        let volume = || bench.members[0].get("persistentvolumes", "", caller.leaf_volume().unwrap()).unwrap();
        let is_kept = || !volume()["metadata"]["annotations"]["kosmos.csi.io/healing"].is_null();
        until(&bench, LATE / 2, "the volume keeps what the claim was", is_kept).await;
        caller.unpublish().await.unwrap();
        let let_go =
            |claim: &mut Value| claim["metadata"]["finalizers"].as_array_mut().unwrap().retain(|one| one != HOLD);
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, let_go).unwrap();
        until(&bench, LATE / 2, "the claim goes", || leaf(&bench, CLAIM).is_none()).await;
        sleep(LATE).await;
        bench.guard.heal();
        until(&bench, LATE, "it is recreated", || uid(&bench).is_some_and(|uid| uid != first)).await;
        sleep(SOON).await;
        released(&bench, &mut caller).await;
        let bad = wrong(&bench, &caller, true);
        assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

fn uid(bench: &Bench) -> Option<String> {
    leaf(bench, CLAIM).map(|leaf| text(&leaf, "/metadata/uid").to_owned())
}

fn makes_the_claim(asked: &Asked) -> bool {
    creates(asked, "persistentvolumeclaims")
}

/// The leaf is asked for in one member, which answers too late, and then made in another one.
async fn goes_elsewhere(step: Duration) -> (Arc<Bench>, Caller) {
    let bench = Bench::serving(2, &fixture::steady(step)).await;
    let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(CLAIM) });
    let sent = delay_next(&bench, makes_the_claim);
    assert!(caller.create().await.is_err());
    assert!(sent.load(Ordering::Relaxed));
    caller.goes_to(vec![1]);
    while caller.create().await.is_err_and(|status| !status.message().contains("m1: leaf claim")) {
        sleep(SOON).await;
    }
    (bench, caller)
}

fn leaves(bench: &Bench) -> Vec<usize> {
    let there = |at: &usize| bench.members[*at].get("persistentvolumeclaims", SHOP, CLAIM).is_some();
    (0..bench.members.len()).filter(there).collect()
}

/// The late one itself is there beside the other for a while.
fn wrong_besides(bench: &Bench) -> Vec<String> {
    let wrong = bench.guard.wrong().into_iter();
    wrong.filter(|wrong| !(wrong.starts_with("I2: ") && wrong.contains("2 leaf claims at once"))).collect()
}

#[test]
fn leaf_that_comes_late_to_one_member_is_taken_back_once_the_volume_is_in_another() {
    virtual_time::run(1, async {
        let (bench, mut caller) = goes_elsewhere(Duration::from_secs(1)).await;
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(LATE).await;
        assert_eq!(leaves(&bench), [0, 1], "the late one has arrived");
        sleep(Duration::from_mins(20)).await;
        assert_eq!(leaves(&bench), [1]);
        assert!(bench.storages[0].volumes().is_empty());
        assert_eq!(wrong_besides(&bench), Vec::<String>::new());
    });
}

#[test]
fn leaf_that_comes_late_to_one_member_is_taken_back_while_another_is_at_work() {
    virtual_time::run(1, async {
        let (bench, mut caller) = goes_elsewhere(Duration::from_mins(3)).await;
        sleep(LATE).await;
        assert_eq!(leaves(&bench), [0, 1], "the late one has arrived");
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert!(caller.handle().unwrap().starts_with("m1/"), "{:?}", caller.handle());
        assert_eq!(leaves(&bench), [1]);
        assert_eq!(wrong_besides(&bench), Vec::<String>::new());
    });
}

/// The volume was released before the first write arrived, and its name had become free.
#[test]
fn leaf_that_comes_late_in_the_place_of_one_that_was_let_go_makes_way() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(SOON)).await;
        let mut caller = Caller::new(&bench, retained());
        let sent = delay_next(&bench, makes_the_claim);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert!(sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
        sleep(SOON).await;
        released(&bench, &mut caller).await;
        until(&bench, LATE, "the late one arrives", || leaf(&bench, CLAIM).is_some()).await;
        until(&bench, SOON * 2, "it has a volume", || bench.storages[0].volumes().len() == 2).await;
        sleep(SOON).await;
        until(&bench, SOON * 4, "it has gone with that", || {
            leaf(&bench, CLAIM).is_none() && bench.storages[0].volumes().len() == 1
        })
        .await;
        let bad = wrong(&bench, &caller, true);
        assert!(bad.is_empty(), "{}\n{bad:#?}", bench.guard.trace().join("\n"));
        assert!(!events(&bench).contains("LeafLost"), "its data is there: {}", events(&bench));
        caller.claim_again(CLAIM);
        let has_its_data =
            || leaf(&bench, CLAIM).is_some_and(|leaf| text(&leaf, "/spec/volumeName") == caller.leaf_volume().unwrap());
        until(&bench, SETTLED, "it is recreated with its data", has_its_data).await;
        sleep(SETTLED).await;
        ends_well(&bench, caller).await;
    });
}

/// Its volume was made by hand and handed back: the claim waits for it for ever.
#[test]
fn leaf_that_is_recreated_when_its_volume_is_gone_is_counted_until_a_person_removes_it() {
    virtual_time::run(1, async {
        let bench = bench().await;
        fixture::Planted::default().volume_by_hand(&bench, 0, CLAIM);
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let sent = delay_next(&bench, makes_the_claim);
        delete_leaf_claim(&bench, CLAIM);
        was_sent(&bench, &sent).await;
        caller.delete_claim();
        tokio::time::timeout(SETTLED, caller.reclaim()).await.unwrap();
        assert!(leaf(&bench, CLAIM).is_none() && bench.storages[0].volumes().is_empty());
        until(&bench, LATE, "the late one arrives", || leaf(&bench, CLAIM).is_some()).await;
        sleep(Duration::from_mins(40)).await;
        let told = "kosmos_csi_member_volumes{member=\"m0\",state=\"stray\"} 1\n";
        assert!(bench.metrics().contains(told), "{:?}\n{}", leaf(&bench, CLAIM), bench.guard.trace().join("\n"));
        caller.delete(caller.handle().unwrap()).await.unwrap();
        assert!(leaf(&bench, CLAIM).is_none());
    });
}

/// Nobody would take it off again, and the volume could never be removed.
#[test]
fn node_that_comes_late_on_record_after_it_was_unpublished_is_not_recorded() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let sent = delay_next(&bench, |asked| patches(asked, "kosmos.csi.io~1published"));
        assert!(caller.publish(&caller.node()).await.is_err() && sent.load(Ordering::Relaxed));
        caller.unpublish().await.unwrap();
        sleep(LATE).await;
        let leaf = leaf(&bench, CLAIM).unwrap();
        assert_eq!(leaf["metadata"]["annotations"].get("kosmos.csi.io/published"), None, "{leaf}");
        ends_well(&bench, caller).await;
    });
}

#[test]
fn consumer_that_comes_late_does_not_hold_a_leaf_that_is_let_go() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(SOON)).await;
        let mut caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, retain: true, ..Script::new(CLAIM) });
        let sent = delay_next(&bench, |asked| creates(asked, "pods"));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert!(sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
        sleep(LATE).await;
        assert_eq!(bench.members[0].list("pods").len(), 1, "the late one has arrived");
        caller.delete_claim();
        until(&bench, LATE * 2, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        assert!(bench.members[0].list("pods").is_empty());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The claim goes elsewhere and comes back, while the mark of what was to be taken back is on its way.
#[test]
fn leaf_that_was_given_out_after_all_is_not_marked_as_withdrawn_by_a_late_write() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_secs(20))).await;
        let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new(CLAIM) });
        assert!(caller.create().await.is_err());
        sleep(LATE).await;
        let sent = delay_next(&bench, |asked| patches(asked, "kosmos.csi.io~1withdrawn"));
        caller.goes_to(vec![1]);
        assert!(caller.create().await.is_err());
        assert!(sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
        caller.goes_to(vec![0]);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert!(caller.handle().unwrap().starts_with("m0/"), "{:?}", caller.handle());
        sleep(LATE * 2).await;
        let leaf = leaf(&bench, CLAIM).unwrap();
        assert_eq!(leaf["metadata"]["annotations"].get("kosmos.csi.io/withdrawn"), None, "{leaf}");
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// The driver itself ends the work of a call when the next one comes, also while it writes.
#[test]
fn claim_is_not_forgotten_while_its_leaf_is_being_written() {
    virtual_time::run(1, async {
        let bench = Bench::serving(1, &fixture::steady(Duration::from_secs(1))).await;
        let caller = Caller::new(&bench, Script::new(CLAIM));
        bench.guard.set_fate(|_, at, asked| {
            if at > 0 && makes_the_claim(asked) { Action::Delay(Duration::from_secs(3)) } else { Action::Pass }
        });
        let gone = tokio::time::timeout(Duration::from_secs(1), caller.create()).await;
        assert!(gone.is_err(), "the provisioner was killed meanwhile");
        caller.delete_claim();
        while caller.create().await.is_err_and(|status| status.code() != tonic::Code::NotFound) {}
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
        sleep(LATE).await;
        assert_eq!(bench.leaf_objects(caller.volume()), Vec::<String>::new());
    });
}
