//! A leaf claim that the member has bound to a volume which people made there, with what they have on it.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use serde_json::Value;
use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Script},
    crash::{Point, points},
    fixture,
    late::{LATE, delay_next, patches},
    people::hold,
    reclaim::{CLAIM, SETTLED, bench, events, leaf, leaf_volume, phase, provisioned, until},
    virtual_time,
};

/// No provisioner tells of it, and people say what becomes of it.
async fn bound_by_hand(policy: &'static str) -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let caller = provisioned(&bench, Script { leaf_class: fixture::NOW, ..Script::new(CLAIM) }).await;
    let by_hand = |volume: &mut Value| {
        volume["metadata"]["annotations"].as_object_mut().unwrap().remove("pv.kubernetes.io/provisioned-by");
        volume["spec"]["persistentVolumeReclaimPolicy"] = policy.into();
    };
    bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), by_hand).unwrap();
    (bench, caller)
}

/// What is not as it should be once the host has removed its volume.
fn wrong(bench: &Bench, caller: &Caller, policy: &str) -> Option<String> {
    let volume = leaf_volume(bench, caller)?;
    let labels = volume.pointer("/metadata/labels").map(Value::to_string).unwrap_or_default();
    let so = leaf(bench, CLAIM).is_none()
        && text(&volume, "/spec/persistentVolumeReclaimPolicy") == policy
        && !labels.contains("kosmos.csi.io")
        && bench.storages[0].volumes().len() == 1;
    (!so).then(|| volume.to_string())
}

/// For whom it is bound is taken off, as people do who want to use it again.
fn make_available(bench: &Bench, caller: &Caller) {
    let take_off = |volume: &mut Value| drop(volume["spec"]["claimRef"].as_object_mut().unwrap().remove("uid"));
    bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), take_off).unwrap();
}

#[test]
fn volume_that_people_made_stays_as_they_made_it_and_the_user_is_told() {
    for policy in ["Retain", "Delete"] {
        virtual_time::run(1, async {
            let (bench, mut caller) = bound_by_hand(policy).await;
            caller.delete_claim();
            timeout(SETTLED, caller.reclaim()).await.unwrap();
            assert_eq!(wrong(&bench, &caller, policy), None, "{policy}");
            assert!(leaf_volume(&bench, &caller).is_some());
            let told = events(&bench);
            assert!(told.contains("LeafKept: member m0: leaf claim shop/data is gone."), "{told}");
            sleep(SETTLED).await;
            assert_eq!(wrong(&bench, &caller, policy), None, "{policy}, later");
        });
    }
}

/// The host keeps with its volume what is said of the leaf volume.
#[test]
fn member_says_no_more_of_a_leaf_volume_than_a_volume_of_the_host_has_room_for() {
    virtual_time::run(1, async {
        let (bench, caller) = bound_by_hand("Retain").await;
        let say_much = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = "x".repeat(64 << 10).into();
        bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), say_much).unwrap();
        sleep(SETTLED).await;
        let refused = caller.create().await.unwrap_err();
        assert!(refused.message().contains("bytes, and 4096 are allowed"), "{refused}");
    });
}

/// The host's was so for a moment, and nothing came of that in time.
#[test]
fn volume_that_people_made_is_not_made_retain_by_a_late_write_when_it_is_theirs_again() {
    virtual_time::run(1, async {
        let (bench, mut caller) = bound_by_hand("Delete").await;
        let sent = delay_next(&bench, |asked| patches(asked, "persistentVolumeReclaimPolicy"));
        caller.set_policy("Retain");
        until(&bench, SETTLED, "the write is on its way", || sent.load(Ordering::Relaxed)).await;
        caller.set_policy("Delete");
        caller.delete_claim();
        timeout(LATE / 2, caller.reclaim()).await.unwrap();
        sleep(LATE + SETTLED).await;
        assert_eq!(wrong(&bench, &caller, "Delete"), None, "{}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn volume_that_people_have_made_available_meanwhile_is_theirs_again() {
    virtual_time::run(1, async {
        let (bench, caller) = bound_by_hand("Delete").await;
        hold(&bench, CLAIM, "example.com/backup", true);
        caller.delete_claim();
        let mut provisioner = caller.clone();
        let people = async {
            let leaves =
                || leaf(&bench, CLAIM).is_some_and(|leaf| leaf.pointer("/metadata/deletionTimestamp").is_some());
            until(&bench, SETTLED, "the leaf claim is on its way out", leaves).await;
            bench.kill();
            hold(&bench, CLAIM, "example.com/backup", false);
            make_available(&bench, &caller);
            bench.start();
        };
        let (removed, ()) = tokio::join!(timeout(SETTLED * 4, provisioner.reclaim()), people);
        assert!(removed.is_ok(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
        let volume = leaf_volume(&bench, &caller).unwrap();
        let labels = volume.pointer("/metadata/labels").map(Value::to_string).unwrap_or_default();
        assert!(!labels.contains("kosmos.csi.io"), "{labels}");
    });
}

/// Whether its data is to go or to stay only a person can say, and how he says either is told.
#[test]
fn retained_volume_that_nothing_proves_to_be_the_one_is_left_and_both_ways_out_are_told() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script { leaf_class: fixture::NOW, ..Script::new(CLAIM) }).await;
        caller.set_policy("Retain");
        caller.delete_claim();
        until(&bench, SETTLED, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        make_available(&bench, &caller);
        let message = caller.delete(caller.handle().unwrap()).await.unwrap_err().message().to_owned();
        assert!(
            message.contains("if its data is to go") && message.contains("give the host's volume the policy Retain"),
            "{message}"
        );
        assert!(leaf_volume(&bench, &caller).is_some());
    });
}

/// It was released under another name than its handle says, so only that tells where its claim was.
#[test]
fn volume_that_people_took_from_every_claim_is_on_no_node() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script { leaf_class: fixture::NOW, ..Script::new(CLAIM) }).await;
        caller.set_policy("Retain");
        caller.delete_claim();
        until(&bench, SETTLED, "the leaf claim is let go", || leaf(&bench, CLAIM).is_none()).await;
        caller.claim_again("other");
        until(&bench, SETTLED, "it is used again", || leaf(&bench, "other").is_some()).await;
        sleep(SETTLED).await;
        bench.host.delete("persistentvolumeclaims", SHOP, "other").unwrap();
        until(&bench, SETTLED, "it is let go again", || leaf(&bench, "other").is_none()).await;
        let take_off = |volume: &mut Value| drop(volume["spec"].as_object_mut().unwrap().remove("claimRef"));
        bench.members[0].change("persistentvolumes", "", caller.leaf_volume().unwrap(), take_off).unwrap();
        sleep(SETTLED).await;
        caller.unpublish().await.unwrap();
    });
}

/// People do something while what takes our labels off is on its way, and it arrives later.
async fn while_it_is_handed_back(bench: &Bench, caller: &mut Caller, people: impl FnOnce(&mut Caller)) {
    let sent = delay_next(bench, |asked| asked.verb == Verb::Patch && asked.body.to_string().contains("1volume"));
    caller.delete_claim();
    let mut provisioner = caller.clone();
    let mind = async {
        until(bench, SETTLED, "the write is on its way", || sent.load(Ordering::Relaxed)).await;
        people(caller);
    };
    tokio::join!(provisioner.reclaim(), mind);
}

/// The administrator of the host wants the volume back.
#[test]
fn volume_that_people_made_is_still_known_when_what_hands_it_back_arrives_after_a_change_of_mind() {
    virtual_time::run(1, async {
        let (bench, mut caller) = bound_by_hand("Retain").await;
        while_it_is_handed_back(&bench, &mut caller, |caller| caller.set_policy("Retain")).await;
        sleep(LATE + SETTLED).await;
        let volume = leaf_volume(&bench, &caller).unwrap();
        let labels = volume["metadata"]["labels"].to_string();
        assert!(labels.contains("kosmos.csi.io/volume") && !labels.contains("removal"), "{labels}");
        caller.claim_again(CLAIM);
        until(&bench, SETTLED, "it is used again", || leaf(&bench, CLAIM).is_some()).await;
    });
}

/// The member does it, says nothing in time, and its watches say nothing at all.
#[test]
fn volume_that_people_made_is_known_to_be_handed_back_where_that_was_done_late() {
    virtual_time::run(1, async {
        let (bench, caller) = bound_by_hand("Delete").await;
        let (sent, tries) = (AtomicBool::new(false), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&tries);
        bench.guard.set_fate(move |_, at, asked| match asked.verb {
            Verb::Watch if at > 0 => Action::Silence(0),
            Verb::Patch if asked.body.to_string().contains("1volume") => {
                counted.fetch_add(1, Ordering::Relaxed);
                if sent.swap(true, Ordering::Relaxed) { Action::Pass } else { Action::Late(LATE / 9) }
            }
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        caller.delete_claim();
        timeout(SETTLED * 4, caller.clone().reclaim()).await.unwrap();
        assert_eq!(wrong(&bench, &caller, "Delete"), None);
        let tries = tries.load(Ordering::Relaxed);
        assert!((2..5).contains(&tries), "{tries}: {}", bench.guard.trace().join("\n"));
    });
}

/// Its claim had gone when the host wanted it back, so nothing says where that belongs but its handle; another claim of the host's has
/// that name by now.
#[test]
fn volume_that_is_wanted_again_while_another_leaf_has_its_name_says_so_and_comes_back_when_that_has_gone() {
    virtual_time::run(1, async {
        let (bench, mut caller) = bound_by_hand("Retain").await;
        let people = |caller: &mut Caller| {
            bench.kill();
            caller.set_policy("Retain");
            caller.claim_again("back");
            bench.start();
        };
        while_it_is_handed_back(&bench, &mut caller, people).await;
        let mut second = provisioned(&bench, Script { leaf_class: fixture::NOW, ..Script::new(CLAIM) }).await;
        let told =
            format!("and it belongs to another volume or snapshot of this host ({}). Delete that", second.volume());
        until(&bench, SETTLED, "the user is told", || events(&bench).contains(&told)).await;
        second.delete_claim();
        second.reclaim().await;
        until(&bench, LATE + SETTLED, "it is there again", || phase(leaf(&bench, CLAIM)) == "Bound").await;
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

fn killed_at(point: Option<Point>) -> (u64, Option<String>) {
    virtual_time::run(1, async {
        let (bench, mut caller) = bound_by_hand("Retain").await;
        let sent = bench.guard.sent();
        let killer = point.map(|point| tokio::spawn(point.strike(Arc::clone(&bench))));
        caller.delete_claim();
        let removed = timeout(SETTLED * 4, caller.reclaim()).await;
        let requests = bench.guard.sent() - sent;
        bench.guard.heal();
        killer.iter().for_each(tokio::task::JoinHandle::abort);
        sleep(SETTLED).await;
        let stuck = removed.is_err().then(|| bench.guard.trace().join("\n"));
        (requests, stuck.or_else(|| wrong(&bench, &caller, "Retain")))
    })
}

#[test]
fn volume_that_people_made_stays_wherever_the_driver_is_killed() {
    let (requests, wrong) = killed_at(None);
    assert!(wrong.is_none() && requests >= 3, "{requests} {wrong:?}");
    let bad = virtual_time::each(virtual_time::THREADS, points(requests).collect(), |point| {
        killed_at(Some(point)).1.map(|wrong| format!("{point:?}: {wrong}"))
    });
    assert!(bad.is_empty(), "{} of {}, such as {}", bad.len(), requests * 3, bad[0]);
}
