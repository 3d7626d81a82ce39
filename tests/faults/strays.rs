//! What people change in a member without the host: another size is told of at once, a leaf that no volume of the host has is
//! counted.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::{faults::Action, text};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script, claim_again},
    fixture, virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const PROMPT: Duration = Duration::from_secs(1);
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

async fn provisioned() -> (Arc<Bench>, Caller) {
    let bench = Bench::serving(1, &fixture::steady(STEP)).await;
    let caller = provisioned_too(&bench, "data").await;
    (bench, caller)
}

async fn provisioned_too(bench: &Arc<Bench>, claim: &str) -> Caller {
    let mut caller = Caller::new(bench, Script::new(claim));
    assert_eq!(caller.provision().await, Ending::Provisioned);
    sleep(Duration::from_secs(5)).await;
    caller
}

fn grow(bench: &Bench, size: &str) {
    grow_claim(bench, "data", size);
}

fn grow_claim(bench: &Bench, claim: &str, size: &str) {
    let size = |leaf: &mut Value| leaf["status"]["capacity"]["storage"] = json!(size);
    bench.members[0].change(CLAIMS, SHOP, claim, size).unwrap();
}

fn told(bench: &Bench) -> Vec<String> {
    let resized = |event: &Arc<Value>| text(event, "/reason") == "LeafResized";
    let events = bench.host.list("events");
    events.iter().filter(|event| resized(event)).map(|event| text(event, "/message").to_owned()).collect()
}

#[test]
fn size_that_the_host_did_not_ask_for_is_told_within_a_second() {
    virtual_time::run(1, async {
        let (bench, _caller) = provisioned().await;
        grow(&bench, "64Gi");
        let began = Instant::now();
        while told(&bench).is_empty() {
            assert!(began.elapsed() < PROMPT, "{}", bench.guard.trace().join("\n"));
            sleep(STEP / 4).await;
        }
        let said = told(&bench).join("\n");
        assert!(said.contains("member m0: leaf claim shop/data has 64Gi in the member"), "{said}");
        assert!(said.contains("let the claim ask for 64Gi"), "{said}");
    });
}

#[test]
fn size_that_the_host_asked_for_is_not_spoken_of() {
    virtual_time::run(1, async {
        let (bench, _caller) = provisioned().await;
        let wanted = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!("64Gi");
        bench.host.change(CLAIMS, SHOP, "data", wanted).unwrap();
        grow(&bench, "64Gi");
        sleep(Duration::from_secs(10)).await;
        assert_eq!(told(&bench), Vec::<String>::new());
    });
}

/// Claims of the host whose leaves are gone.
fn lose(bench: &Bench, of: &Caller, count: usize) {
    for at in 0..count {
        let mut lost = Value::clone(&bench.host.get(VOLUMES, "", of.volume()).unwrap());
        let name = format!("lost-{at:04}");
        lost["metadata"] = json!({"name": name});
        lost.as_object_mut().unwrap().remove("status");
        lost["spec"]["csi"]["volumeHandle"] = json!(format!("m0/{SHOP}/{name}/{at:016x}"));
        lost["spec"]["csi"]["volumeAttributes"] = json!({});
        lost["spec"].as_object_mut().unwrap().remove("claimRef");
        bench.host.create(VOLUMES, lost).unwrap();
        claim_again(bench, &name, SHOP, &name);
    }
}

fn lost(bench: &Bench) -> usize {
    bench.host.list("events").iter().filter(|event| text(event, "/reason") == "LeafLost").count()
}

#[test]
fn what_stays_wrong_is_told_of_all_also_of_more_than_a_member_may_tell_at_once() {
    virtual_time::run(1, async {
        let (bench, caller) = provisioned().await;
        lose(&bench, &caller, 800);
        let at_once = async {
            while lost(&bench) < 500 {
                sleep(STEP).await;
            }
        };
        timeout(Duration::from_mins(5), at_once).await.unwrap();
        grow(&bench, "64Gi");
        sleep(Duration::from_secs(30)).await;
        assert_eq!(told(&bench).len(), 1, "a size is told of in its turn");
        sleep(Duration::from_mins(4)).await;
        assert_eq!(lost(&bench), 800, "each volume says so");
    });
}

/// Whichever of both comes first.
#[test]
fn size_that_is_changed_all_the_time_keeps_no_other_from_being_told() {
    for (often, once) in [("data", "other"), ("other", "data")] {
        virtual_time::run(1, async {
            let (bench, _caller) = provisioned().await;
            let _other = provisioned_too(&bench, "other").await;
            for size in 100..120 {
                grow_claim(&bench, often, &format!("{size}Gi"));
                sleep(PROMPT).await;
            }
            assert_eq!(told(&bench).len(), 10, "{often}");
            grow_claim(&bench, once, "64Gi");
            sleep(PROMPT).await;
            let of_it = format!("leaf claim shop/{once} has 64Gi in the member");
            assert!(told(&bench).iter().any(|said| said.contains(&of_it)), "{:?}", told(&bench));
            sleep(Duration::from_mins(2)).await;
            let last = format!("leaf claim shop/{often} has 119Gi in the member");
            assert!(told(&bench).iter().any(|said| said.contains(&last)), "{:?}", told(&bench));
        });
    }
}

fn stray(count: u32) -> String {
    format!("kosmos_csi_member_volumes{{member=\"m0\",state=\"stray\"}} {count}")
}

/// Somebody takes away claim and volume of the host with their finalizers: nobody is asked to remove the leaf.
async fn is_forgotten(bench: &Bench, caller: &Caller) {
    bench.kill();
    bench.host.delete(CLAIMS, SHOP, "data").unwrap();
    let bare = |volume: &mut Value| volume["metadata"]["finalizers"] = json!([]);
    bench.host.change("persistentvolumes", "", caller.volume(), bare).unwrap();
    bench.host.delete("persistentvolumes", "", caller.volume()).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(bench.host.get("persistentvolumes", "", caller.volume()).is_none());
}

/// Our finalizer holds it, and nothing takes that off by itself.
#[test]
fn leaf_that_no_volume_of_the_host_has_is_counted_also_when_somebody_has_deleted_it() {
    virtual_time::run(1, async {
        let (bench, caller) = provisioned().await;
        is_forgotten(&bench, &caller).await;
        bench.members[0].delete(CLAIMS, SHOP, "data").unwrap();
        bench.start();
        sleep(Duration::from_mins(25)).await;
        assert!(bench.metrics().contains(&stray(1)), "{}", bench.metrics());
        assert!(bench.members[0].get(CLAIMS, SHOP, "data").is_some(), "it is left to a person");
    });
}

#[test]
fn leaf_that_no_volume_of_the_host_has_is_counted_and_left() {
    virtual_time::run(1, async {
        let (bench, caller) = provisioned().await;
        sleep(Duration::from_mins(25)).await;
        assert!(bench.metrics().contains(&stray(0)), "{}", bench.metrics());
        is_forgotten(&bench, &caller).await;
        bench.start();
        sleep(Duration::from_mins(25)).await;
        assert!(bench.metrics().contains(&stray(1)), "{}", bench.metrics());
        assert!(bench.members[0].get(CLAIMS, SHOP, "data").is_some(), "it is left to a person");
        // Who leads no longer counts no longer, and says nothing of what there once was.
        bench.guard.set_fate(|_, at, _| if at == 0 { Action::Hang } else { Action::Pass });
        sleep(Duration::from_mins(1)).await;
        assert!(bench.metrics().contains(&stray(0)), "{}", bench.metrics());
    });
}
