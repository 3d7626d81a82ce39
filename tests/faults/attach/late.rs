//! VolumeAttachments that arrive when nobody wants them any more, and records that went with their claim.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use domain::volume::{HostId, VolumeHash};
use serde_json::{Value, json};
use simulate::{
    faults::{Action, Asked, Verb},
    text,
};
use tokio::time::{Instant, sleep, timeout};
use tonic::Code;

use super::{
    STEP,
    attachments::{attached, only},
    double::ATTACHMENTS,
    leaf_volume, nothing_is_wrong, publish, record, refused, unpublish,
};
use crate::{
    bench::{Bench, SHOP},
    caller::Caller,
    late::delay_next,
    shared::has_alias,
    virtual_time,
};

const CLAIMS: &str = "persistentvolumeclaims";
/// The driver is sure by then that nobody wants it.
const SURE: Duration = Duration::from_mins(40);

fn makes_an_attachment(asked: &Asked) -> bool {
    asked.verb == Verb::Create && asked.resource == ATTACHMENTS
}

/// It is there, and no record names it.
pub async fn comes_late(bench: &Bench, caller: &Caller) {
    let sent = delay_next(bench, makes_an_attachment);
    let (code, message) = refused(publish(bench, caller, "real/n1").await);
    assert!(code == Code::Unavailable && sent.load(Ordering::Relaxed), "{code:?} {message}");
    unpublish(bench, caller.handle().unwrap(), "real/n1").await.unwrap();
    assert!(bench.members[0].list(ATTACHMENTS).is_empty() && record(bench, "data").is_empty());
    sleep(Duration::from_mins(1)).await;
    assert_eq!(only(bench)["status"]["attached"], true);
}

#[test]
fn attachment_that_comes_late_is_taken_back_and_keeps_nobody_from_the_volume_for_ever() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        comes_late(&bench, &caller).await;
        let (code, message) = refused(publish(&bench, &caller, "real/n2").await);
        assert!(code == Code::FailedPrecondition && message.contains("m0-n1"), "{code:?} {message}");
        sleep(SURE).await;
        assert!(bench.members[0].list(ATTACHMENTS).is_empty(), "{}", bench.guard.trace().join("\n"));
        publish(&bench, &caller, "real/n2").await.unwrap();
        assert_eq!(text(&only(&bench), "/spec/nodeName"), "n2");
        nothing_is_wrong(&bench);
    });
}

/// Whoever has a volume taken from all nodes names none.
#[test]
fn publication_that_goes_on_does_not_outlive_an_unpublish_from_all_nodes() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let slow = |at| if at > 0 { Action::Delay(Duration::from_secs(2)) } else { Action::Pass };
        bench.guard.set_fate(move |_, at, _| slow(at));
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert_eq!(code, Code::Aborted, "{message}");
        while let Err(status) = unpublish(&bench, caller.handle().unwrap(), "").await {
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
        }
        for _ in 0..60 {
            assert!(record(&bench, "data").is_empty(), "{}", bench.guard.trace().join("\n"));
            sleep(STEP).await;
        }
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
        nothing_is_wrong(&bench);
    });
}

/// Another replica has answered the unpublish, and nobody would take the node off the record again.
#[test]
fn publication_that_nobody_waits_for_is_not_decided_anew_where_the_claim_was_written_meanwhile() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let is_record = |asked: &Asked| asked.verb == Verb::Patch && asked.resource == CLAIMS;
        let sent = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&sent);
        bench.guard.set_fate(move |_, at, asked| {
            let is_first = at > 0 && is_record(asked) && !told.swap(true, Ordering::Relaxed);
            if is_first { Action::Delay(Duration::from_secs(2)) } else { Action::Pass }
        });
        let asked = timeout(Duration::from_secs(1), publish(&bench, &caller, "virtual/m0")).await;
        assert!(asked.is_err() && sent.load(Ordering::Relaxed), "{asked:?}");
        let unpublished = |claim: &mut Value| {
            claim["metadata"]["annotations"]["kosmos.csi.io/unpublished"] = json!("by another replica");
        };
        bench.members[0].change(CLAIMS, SHOP, "data", unpublished).unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(record(&bench, "data"), "", "{}", bench.guard.trace().join("\n"));
        publish(&bench, &caller, "virtual/m0").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

/// Somebody else had written on the claim, so it is read again, and that takes its time.
#[test]
fn publication_is_not_decided_on_a_claim_that_was_read_once_its_caller_had_gone() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let sent = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&sent);
        bench.guard.set_fate(move |_, at, asked| match asked.verb {
            _ if at == 0 || asked.resource != CLAIMS => Action::Pass,
            Verb::Patch if !told.swap(true, Ordering::Relaxed) => Action::Delay(STEP * 5),
            Verb::Get if told.load(Ordering::Relaxed) => Action::Delay(STEP * 20),
            _ => Action::Pass,
        });
        let is_written = |by: &str| {
            let write = |claim: &mut Value| claim["metadata"]["annotations"]["kosmos.csi.io/unpublished"] = json!(by);
            bench.members[0].change(CLAIMS, SHOP, "data", write).unwrap();
        };
        let meanwhile = async {
            sleep(STEP * 2).await;
            is_written("for another node");
        };
        let (asked, ()) = tokio::join!(timeout(STEP * 10, publish(&bench, &caller, "virtual/m0")), meanwhile);
        assert!(asked.is_err() && sent.load(Ordering::Relaxed), "{asked:?}");
        is_written("by another replica");
        sleep(Duration::from_mins(1)).await;
        assert_eq!(record(&bench, "data"), "", "{}", bench.guard.trace().join("\n"));
        bench.guard.heal();
        publish(&bench, &caller, "virtual/m0").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

/// It waits until a write of the call before has come to an end, and its own caller hangs up meanwhile.
#[test]
fn publication_that_begins_once_its_caller_has_gone_is_not_recorded() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        let sent = AtomicBool::new(false);
        bench.guard.set_fate(move |_, at, asked| {
            let is_record = at > 0 && asked.verb == Verb::Patch && asked.resource == CLAIMS;
            let is_first = is_record && !sent.swap(true, Ordering::Relaxed);
            if is_first { Action::Delay(STEP * 40) } else { Action::Pass }
        });
        for _ in 0..2 {
            let asked = timeout(STEP * 10, publish(&bench, &caller, "virtual/m0")).await;
            assert!(asked.is_err(), "{asked:?}");
        }
        let unpublished = |claim: &mut Value| {
            claim["metadata"]["annotations"]["kosmos.csi.io/unpublished"] = json!("by another replica");
        };
        bench.members[0].change(CLAIMS, SHOP, "data", unpublished).unwrap();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(record(&bench, "data"), "", "{}", bench.guard.trace().join("\n"));
        publish(&bench, &caller, "virtual/m0").await.unwrap();
        nothing_is_wrong(&bench);
    });
}

#[test]
fn attachment_that_is_in_the_record_stays_for_ever() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let uid = text(&only(&bench), "/metadata/uid").to_owned();
        sleep(SURE * 3).await;
        assert_eq!(text(&only(&bench), "/metadata/uid"), uid);
        nothing_is_wrong(&bench);
    });
}

/// The so many'th request of the taking back takes two seconds to arrive. Whether it has come to that.
fn slows_down(bench: &Bench, which: usize) -> Arc<AtomicBool> {
    let (begun, count, reached) = (AtomicBool::new(false), AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let (told, from) = (Arc::clone(&reached), Instant::now() + Duration::from_mins(10));
    bench.guard.set_fate(move |_, at, asked| {
        let lists = asked.verb == Verb::List && asked.resource == ATTACHMENTS;
        let is_of_others = asked.verb == Verb::List && !lists;
        if at == 0 || is_of_others || Instant::now() < from || !(begun.load(Ordering::Relaxed) || lists) {
            return Action::Pass;
        }
        begun.store(true, Ordering::Relaxed);
        if count.fetch_add(1, Ordering::Relaxed) != which {
            return Action::Pass;
        }
        reached.store(true, Ordering::Relaxed);
        Action::Delay(Duration::from_secs(2))
    });
    told
}

#[test]
fn whoever_publishes_while_a_late_attachment_is_taken_back_keeps_what_he_was_promised() {
    // The list, three looks, the mark, three looks, the end.
    for which in 0..9 {
        virtual_time::run(1, async {
            let (bench, caller, _attacher) = attached().await;
            comes_late(&bench, &caller).await;
            let reached = slows_down(&bench, which);
            while !reached.load(Ordering::Relaxed) {
                sleep(STEP).await;
            }
            let marked = only(&bench)["metadata"]["annotations"].get("kosmos.csi.io/withdrawn").is_some();
            assert_eq!(marked, which > 4, "{which}");
            while let Err(status) = publish(&bench, &caller, "real/n1").await {
                assert_eq!(status.code(), Code::Aborted, "{which}: {status:?}");
            }
            let promised = text(&only(&bench), "/metadata/uid").to_owned();
            sleep(Duration::from_mins(1)).await;
            let there = only(&bench);
            assert_eq!(text(&there, "/metadata/uid"), promised, "{which}: {}", bench.guard.trace().join("\n"));
            assert_eq!(there["metadata"]["annotations"].get("kosmos.csi.io/withdrawn"), None, "{which}");
            assert!(there["status"]["attached"] == true && there["metadata"].get("deletionTimestamp").is_none());
            nothing_is_wrong(&bench);
        });
    }
}

#[test]
fn taking_back_that_was_cut_off_is_ended_by_the_next_process() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        comes_late(&bench, &caller).await;
        // The mark is there, and its end has not come.
        let reached = slows_down(&bench, 7);
        while !reached.load(Ordering::Relaxed) {
            sleep(STEP).await;
        }
        bench.kill();
        sleep(STEP).await;
        assert!(only(&bench)["metadata"]["annotations"].get("kosmos.csi.io/withdrawn").is_some());
        bench.start();
        bench.serves().await;
        sleep(Duration::from_mins(2)).await;
        assert!(bench.members[0].list(ATTACHMENTS).is_empty());
        nothing_is_wrong(&bench);
    });
}

/// Somebody takes the claim's finalizers away and removes it, while a node has the volume, which stays.
fn goes_by_force(bench: &Bench) {
    let (member, volume) = (&bench.members[0], leaf_volume(bench, "data"));
    let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    member.change("persistentvolumes", "", &volume, keep).unwrap();
    member.change("persistentvolumeclaims", SHOP, "data", |one| one["metadata"]["finalizers"] = json!([])).unwrap();
    member.delete("persistentvolumeclaims", SHOP, "data").unwrap();
}

#[test]
fn claim_that_is_recreated_from_its_volume_alone_knows_what_is_attached() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let (member, before) = (&bench.members[0], record(&bench, "data"));
        goes_by_force(&bench);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(record(&bench, "data"), before, "{}", bench.guard.trace().join("\n"));
        let uid = text(&only(&bench), "/metadata/uid").to_owned();
        sleep(SURE).await;
        assert_eq!(text(&only(&bench), "/metadata/uid"), uid);
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        assert!(member.list(ATTACHMENTS).is_empty() && record(&bench, "data").is_empty());
    });
}

/// It takes a while to take away what is attached, and the record goes to the new claim meanwhile.
#[test]
fn claim_that_comes_back_while_its_volume_is_detached_is_published_nowhere() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        let member = &bench.members[0];
        bench.guard.set_fate(|_, at, asked| match (asked.verb, asked.resource.as_str()) {
            (Verb::Create, "persistentvolumeclaims") if at > 0 => Action::Delay(STEP * 10),
            (Verb::Delete, ATTACHMENTS) => Action::Delay(STEP * 30),
            _ => Action::Pass,
        });
        goes_by_force(&bench);
        sleep(STEP * 2).await;
        assert!(member.get("persistentvolumeclaims", SHOP, "data").is_none());
        while let Err(status) = unpublish(&bench, caller.handle().unwrap(), "real/n1").await {
            assert_eq!(status.code(), Code::Aborted, "{status:?}");
        }
        assert!(member.list(ATTACHMENTS).is_empty());
        assert!(record(&bench, "data").is_empty(), "{}", bench.guard.trace().join("\n"));
    });
}

/// The host's volume does not say any more which one it was given.
fn forget_leaf(bench: &Bench, caller: &Caller) {
    let forget = |volume: &mut Value| volume["spec"]["csi"]["volumeAttributes"] = json!({});
    bench.host.change("persistentvolumes", "", caller.volume(), forget).unwrap();
}

/// Nobody can recreate its claim: the host's volume does not say which one it was.
#[test]
fn attachment_of_a_leaf_without_any_record_stays_while_the_host_uses_the_volume() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        forget_leaf(&bench, &caller);
        let member = &bench.members[0];
        goes_by_force(&bench);
        sleep(SURE).await;
        assert!(member.get("persistentvolumeclaims", SHOP, "data").is_none());
        assert_eq!(only(&bench)["metadata"].get("deletionTimestamp"), None);
    });
}

/// Its administrator has made the host's volume again since, and has written what leads there too.
#[test]
fn attachment_of_a_leaf_without_any_record_stays_while_the_host_uses_the_volume_by_another_handle() {
    for is_hashed in [false, true] {
        virtual_time::run(1, async {
            let (bench, caller, _attacher) = attached().await;
            has_alias(&bench).await;
            publish(&bench, &caller, "real/n1").await.unwrap();
            forget_leaf(&bench, &caller);
            let hash = VolumeHash::new(&HostId(bench.host_id()), caller.volume());
            let named = caller.handle().unwrap().replacen("m0/", "alias/", 1);
            let other = if is_hashed { format!("m0///{hash}") } else { named };
            let rename = |volume: &mut Value| volume["spec"]["csi"]["volumeHandle"] = json!(&other);
            bench.host.change("persistentvolumes", "", caller.volume(), rename).unwrap();
            goes_by_force(&bench);
            sleep(SURE).await;
            assert_eq!(only(&bench)["metadata"].get("deletionTimestamp"), None, "{}", bench.guard.trace().join("\n"));
            unpublish(&bench, &other, "real/n1").await.unwrap();
            assert!(bench.members[0].list(ATTACHMENTS).is_empty(), "it was called detached");
        });
    }
}

/// The host's volume stays until its claim, and with that the pod on the node, has gone.
#[test]
fn attachment_of_a_leaf_without_any_record_stays_while_the_volume_has_its_claim_though_somebody_has_deleted_it() {
    virtual_time::run(1, async {
        let (bench, caller, _attacher) = attached().await;
        publish(&bench, &caller, "real/n1").await.unwrap();
        forget_leaf(&bench, &caller);
        let member = &bench.members[0];
        bench.host.delete("persistentvolumes", "", caller.volume()).unwrap();
        goes_by_force(&bench);
        sleep(SURE).await;
        assert!(member.get("persistentvolumeclaims", SHOP, "data").is_none());
        assert!(bench.host.get("persistentvolumes", "", caller.volume()).is_some());
        assert_eq!(only(&bench)["metadata"].get("deletionTimestamp"), None);
    });
}
