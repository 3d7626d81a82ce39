//! The choice of a member, written on the host's claim before that is read: what it costs the host, and what becomes of it where somebody
//! else has chosen meanwhile.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Ending, Script},
    fixture,
    late::LATE,
    virtual_time,
};

const STEP: Duration = Duration::from_millis(100);
const CLAIMS: &str = "persistentvolumeclaims";
const GET: &str = "Get persistentvolumeclaims";
const PATCH: &str = "Patch persistentvolumeclaims";

async fn bench() -> Arc<Bench> {
    Bench::serving(2, &fixture::steady(STEP)).await
}

fn data(places: &[usize]) -> Script {
    Script { places: places.to_vec(), ..Script::new("data") }
}

fn host_claim(bench: &Bench) -> Arc<Value> {
    bench.host.get(CLAIMS, SHOP, "data").unwrap()
}

/// The member on record, and for the claim of which UID.
pub fn record(bench: &Bench) -> [String; 2] {
    let claim = host_claim(bench);
    ["member", "member-of"].map(|key| text(&claim, &format!("/metadata/annotations/kosmos.csi.io~1{key}")).to_owned())
}

/// In which members a leaf claim is.
fn leaves(bench: &Bench) -> Vec<usize> {
    (0..bench.members.len()).filter(|at| bench.members[*at].get(CLAIMS, SHOP, "data").is_some()).collect()
}

fn records(at: usize, asked: &Asked) -> bool {
    at == 0 && asked.verb == Verb::Patch && asked.resource == CLAIMS
}

/// So it goes with the next record. Whether one was sent.
pub fn next_record(bench: &Bench, fate: Action) -> Arc<AtomicBool> {
    let sent = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&sent);
    bench.guard.set_fate(move |_, at, asked| {
        let is_first = records(at, asked) && !told.swap(true, Ordering::Relaxed);
        if is_first { fate.clone() } else { Action::Pass }
    });
    sent
}

/// What the host is asked of claims and volumes by a call.
async fn asked_by(bench: &Bench, caller: &Caller) -> Vec<String> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&asked);
    bench.guard.set_fate(move |_, at, asked| {
        let is_of_one = !matches!(asked.verb, Verb::List | Verb::Watch);
        if at == 0 && is_of_one && [CLAIMS, "persistentvolumes"].contains(&asked.resource.as_str()) {
            lock(&told).push(format!("{:?} {}", asked.verb, asked.resource));
        }
        Action::Pass
    });
    caller.create().await.unwrap();
    bench.guard.heal();
    lock(&asked).clone()
}

#[test]
fn choice_of_a_member_costs_the_host_one_request() {
    let selected = Script { node_selected: true, ..data(&[1, 0]) };
    let restored = Script { was_in: Some(1), ..data(&[0]) };
    for (script, first) in [
        (data(&[0]), &[PATCH][..]),
        (data(&[]), &[PATCH][..]),
        (selected, &[PATCH][..]),
        // What another claim has brought with it is no record of this one, and has to be read.
        (restored, &[PATCH, GET, PATCH][..]),
    ] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let caller = Caller::new(&bench, script);
            assert_eq!(asked_by(&bench, &caller).await, first);
            assert_eq!(asked_by(&bench, &caller).await, [GET], "it is asked for once more");
            assert_eq!(record(&bench)[1], text(&host_claim(&bench), "/metadata/uid"));
        });
    }
}

#[test]
fn choice_that_depends_on_the_claim_is_made_when_that_was_read() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::tight(STEP)).await;
        fixture::fill(&bench, 0);
        sleep(STEP * 2).await;
        // The member is asked for its room when somebody wants a volume there.
        let hears = Caller::new(&bench, Script::new("hears"));
        hears.create().await.unwrap();
        let caller = Caller::new(&bench, data(&[0, 1]));
        let asked = asked_by(&bench, &caller).await;
        assert_eq!(asked, [GET, PATCH]);
        assert_eq!((record(&bench)[0].as_str(), leaves(&bench)), ("m1", vec![1]));
    });
}

/// Another replica, which sees the members as they were a moment before, or later.
#[test]
fn choice_that_another_process_has_made_meanwhile_stays() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, data(&[0, 1]));
        let sent = next_record(&bench, Action::Delay(STEP * 2));
        let (ending, ()) = tokio::join!(caller.provision(), async {
            sleep(STEP).await;
            let uid = host_claim(&bench)["metadata"]["uid"].clone();
            let choose = |claim: &mut Value| {
                let annotations = &mut claim["metadata"]["annotations"];
                (annotations["kosmos.csi.io/member"], annotations["kosmos.csi.io/member-of"]) = (json!("m1"), uid);
            };
            bench.host.change(CLAIMS, SHOP, "data", choose).unwrap();
        });
        assert!(sent.load(Ordering::Relaxed) && ending == Ending::Provisioned);
        assert_eq!((record(&bench)[0].as_str(), leaves(&bench)), ("m1", vec![1]), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

#[test]
fn choice_that_arrives_late_changes_nothing_once_another_one_is_made() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, data(&[0]));
        let sent = next_record(&bench, Action::Late(LATE));
        assert_eq!(caller.create().await.unwrap_err().code(), Code::Unavailable);
        assert!(sent.load(Ordering::Relaxed) && leaves(&bench).is_empty(), "nothing is made before it is on record");
        caller.goes_to(vec![1]);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(LATE).await;
        assert_eq!((record(&bench)[0].as_str(), leaves(&bench)), ("m1", vec![1]), "{}", bench.guard.trace().join("\n"));
        caller.delete_claim();
        caller.reclaim().await;
        assert_eq!((leaves(&bench), bench.guard.wrong()), (Vec::new(), Vec::new()));
    });
}

#[test]
fn choice_that_arrives_late_is_not_written_on_the_claim_that_has_its_name_since() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let before = Caller::new(&bench, data(&[0]));
        let sent = next_record(&bench, Action::Late(LATE));
        assert!(before.create().await.is_err() && sent.load(Ordering::Relaxed));
        before.delete_claim();
        sleep(STEP).await;
        assert_eq!(before.create().await.unwrap_err().code(), Code::NotFound, "it is forgotten");
        let waits = Caller::new(&bench, data(&[1]));
        sleep(LATE).await;
        assert_eq!(record(&bench), ["", ""], "{}", bench.guard.trace().join("\n"));
        assert!(waits.create().await.unwrap().volume_id.starts_with("m1/"));
        assert_eq!((leaves(&bench), bench.guard.wrong()), (vec![1], Vec::new()));
    });
}

/// Somebody binds the claim by hand while the call is on its way.
#[test]
fn choice_that_arrives_late_is_not_written_on_a_claim_that_has_a_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = Caller::new(&bench, data(&[0]));
        let sent = next_record(&bench, Action::Late(LATE));
        assert!(caller.create().await.is_err() && sent.load(Ordering::Relaxed));
        bench.host.change(CLAIMS, SHOP, "data", |claim| claim["spec"]["volumeName"] = json!("by-hand")).unwrap();
        sleep(LATE).await;
        assert_eq!(record(&bench), ["", ""], "{}", bench.guard.trace().join("\n"));
    });
}

/// It has moved, and the member that it has left has its leaf again, as where that was restored from a backup. A provisioner with an old cache
/// asks for it.
#[test]
fn volume_that_the_host_has_is_where_its_handle_leads_and_not_where_else_a_leaf_is_seen() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, data(&[0, 1]));
        assert_eq!(caller.provision().await, Ending::Provisioned);
        sleep(STEP * 100).await;
        let handle = caller.handle().unwrap().replacen("m0", "m1", 1);
        let leads = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = json!(handle);
        bench.host.change("persistentvolumes", "", caller.volume(), leads).unwrap();
        let records = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/member"] = json!("m1");
        bench.host.change(CLAIMS, SHOP, "data", records).unwrap();
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("member m1: leaf claim shop/data is gone, and had a volume"), "{refused}");
        assert_eq!((record(&bench)[0].as_str(), leaves(&bench)), ("m1", vec![0]));
    });
}
