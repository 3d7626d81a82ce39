//! A leaf volume that people of the member made free, as many a guide tells: whatever claim waits there may be bound to it next, also
//! the leaf of another volume.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::text;
use tokio::time::{sleep, timeout};
use tonic::{Code, Status};

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending, Script},
    fixture::{self, OTHER_HOST},
    reclaim::{CLAIM, SETTLED, bench, ends_well, events, leaf, leaf_volume, phase, policy, until},
    taken::{give, kept, take_off},
    virtual_time,
};

const OTHER: &str = "other";

/// Somebody's claim comes just then, and its leaf is bound to what is free. What its user is told.
async fn another(bench: &Arc<Bench>, volume: &str) -> (Caller, Status) {
    let other = Caller::new(bench, Script::new(OTHER));
    let told = timeout(SETTLED, async {
        loop {
            match other.create().await {
                Err(status) if status.message().contains("stood free there") => break status,
                answer => assert_eq!(answer.unwrap_err().code(), Code::Aborted),
            }
        }
    });
    let told = told.await.unwrap();
    is_bound_to(bench, OTHER, volume).await;
    assert!(told.code() == Code::Aborted && told.message().contains(volume), "{told}");
    (other, told)
}

/// The user does as he is told.
async fn gives_up(bench: &Bench, mut other: Caller) {
    let ending = timeout(SETTLED * 8, other.provision()).await.unwrap();
    assert_eq!(ending, Ending::Forgotten);
    assert!(leaf(bench, OTHER).is_none());
}

async fn is_bound_to(bench: &Bench, claim: &str, volume: &str) {
    let is_it = || leaf(bench, claim).is_some_and(|leaf| text(&leaf, "/spec/volumeName") == volume);
    until(bench, SETTLED, "the member binds it to what is free", is_it).await;
    until(bench, SETTLED, "it is bound", || phase(leaf(bench, claim)) == "Bound").await;
}

fn labels(bench: &Bench, volume: &str) -> Value {
    bench.members[0].get("persistentvolumes", "", volume).unwrap()["metadata"]["labels"].clone()
}

#[test]
fn volume_that_is_free_in_the_member_is_not_given_out_as_another_volume_and_does_not_go_with_it() {
    for healed in [false, true] {
        virtual_time::run(1, async {
            let (bench, mut caller) = kept(healed).await;
            let was = take_off(&bench, &caller);
            let volume = caller.leaf_volume().unwrap().to_owned();
            let ours = labels(&bench, &volume);
            let (other, told) = another(&bench, &volume).await;
            assert!(told.message().contains("belongs to another volume of this host"), "{told}");
            assert_eq!(labels(&bench, &volume), ours, "{}", bench.guard.trace().join("\n"));
            gives_up(&bench, other).await;
            assert_eq!(policy(&bench, &caller), "Retain");
            give(&bench, &caller, was);
            caller.claim_again(CLAIM);
            until(&bench, SETTLED, "it is used again", || phase(leaf(&bench, CLAIM)) == "Bound").await;
            sleep(SETTLED).await;
            ends_well(&bench, caller).await;
        });
    }
}

/// Whatever its policy: the member removes what goes with its claim.
#[test]
fn claim_stays_whose_end_would_take_the_volume_of_another_along() {
    virtual_time::run(1, async {
        let (bench, caller) = kept(false).await;
        take_off(&bench, &caller);
        let volume = caller.leaf_volume().unwrap().to_owned();
        let (other, _) = another(&bench, &volume).await;
        let worse = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
        bench.members[0].change("persistentvolumes", "", &volume, worse).unwrap();
        other.delete_claim();
        sleep(SETTLED).await;
        let told = other.create().await.unwrap_err();
        assert_eq!(told.code(), Code::Aborted, "{told}");
        assert!(told.message().contains(&volume) && told.message().contains("Retain"), "{told}");
        assert!(leaf(&bench, OTHER).is_some_and(|leaf| leaf.pointer("/metadata/deletionTimestamp").is_none()));
        let better = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        bench.members[0].change("persistentvolumes", "", &volume, better).unwrap();
        let withdrawn = timeout(SETTLED * 4, async {
            while other.create().await.unwrap_err().code() != Code::NotFound {
                sleep(Duration::from_secs(1)).await;
            }
        });
        withdrawn.await.unwrap();
        assert!(leaf(&bench, OTHER).is_none() && leaf_volume(&bench, &caller).is_some());
    });
}

/// Its driver may be one like this, which shares the member.
#[test]
fn volume_of_another_host_that_is_free_in_the_member_stays_that_hosts() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let theirs = fixture::labels(OTHER_HOST, "00000000000000000000000000000003");
        let mut free = fixture::volume("theirs", &theirs);
        free["spec"]["storageClassName"] = json!(fixture::NOW);
        lock(&bench.guard.history).plant(&bench.members[0].create("persistentvolumes", free).unwrap());
        let (other, told) = another(&bench, "theirs").await;
        assert!(told.message().contains("another host") && told.message().contains(OTHER_HOST), "{told}");
        gives_up(&bench, other).await;
        assert_eq!(labels(&bench, "theirs"), theirs);
    });
}

/// The driver dies between the mark of a removal and its end, and nobody asks for it again.
#[test]
fn volume_of_another_outlives_a_removal_that_the_driver_ends_by_itself() {
    virtual_time::run(1, async {
        let (bench, caller) = kept(false).await;
        take_off(&bench, &caller);
        let volume = caller.leaf_volume().unwrap().to_owned();
        let (other, _) = another(&bench, &volume).await;
        let leaf_claim = leaf(&bench, OTHER).unwrap();
        let mark = |leaf: &mut Value| {
            leaf["metadata"]["annotations"]["kosmos.csi.io/withdrawn"] = leaf["metadata"]["uid"].clone();
        };
        bench.members[0].change("persistentvolumeclaims", SHOP, text(&leaf_claim, "/metadata/name"), mark).unwrap();
        other.delete_claim();
        until(&bench, Duration::from_hours(1), "it is withdrawn", || leaf(&bench, OTHER).is_none()).await;
        sleep(SETTLED).await;
        assert_eq!(policy(&bench, &caller), "Retain");
        assert!(bench.storages[0].volumes().contains(&volume), "{:?}", bench.storages[0].volumes());
    });
}

/// The leaf claim is bound by its first pod, long after its handle was given out.
#[test]
fn volume_of_another_outlives_a_leaf_that_was_bound_to_it_later() {
    virtual_time::run(1, async {
        let (bench, caller) = kept(false).await;
        take_off(&bench, &caller);
        let volume = caller.leaf_volume().unwrap().to_owned();
        let ours = labels(&bench, &volume);
        let script = Script { binding: Some("deferred"), ..Script::new(OTHER) };
        let mut other = Caller::new(&bench, script);
        assert_eq!(other.provision().await, Ending::Provisioned);
        is_bound_to(&bench, OTHER, &volume).await;
        sleep(SETTLED).await;
        other.delete_claim();
        timeout(SETTLED * 4, other.reclaim()).await.unwrap();
        assert!(leaf(&bench, OTHER).is_none());
        assert_eq!(labels(&bench, &volume), ours);
        assert_eq!(policy(&bench, &caller), "Retain", "{}", events(&bench));
    });
}
