//! What a call has begun goes on when its caller has been answered, or has given up.

use std::{sync::Arc, time::Duration};

use simulate::{
    faults::{Action, Verb},
    text,
};
use tokio::time::{sleep, timeout};

use crate::{
    bench::{Bench, SHOP},
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

/// Longer than the provisioner waits for an answer.
const SLOW: Duration = Duration::from_secs(20);

async fn slow_bench() -> Arc<Bench> {
    let bench = Bench::new(1, 1, &fixture::steady(SLOW)).await;
    bench.start();
    bench.serves().await;
    sleep(Duration::from_secs(1)).await;
    bench
}

#[test]
fn creation_is_finished_when_its_caller_calls_again() {
    virtual_time::run(1, async {
        let bench = slow_bench().await;
        let mut caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted, "{refused}");
        sleep(SLOW * 2).await;
        let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, "data").unwrap();
        let volume = bench.members[0].get("persistentvolumes", "", text(&leaf, "/spec/volumeName")).unwrap();
        let labelled = |volume: &serde_json::Value| volume.pointer("/metadata/labels/kosmos.csi.io~1volume").is_some();
        assert!(!labelled(&volume), "nobody can have been told of it: {volume}");
        assert!(bench.members[0].list("pods").is_empty(), "the consumer is gone");
        let driver = bench.driver_name().unwrap();
        let before = bench.guard.sent_by(&driver);
        assert_eq!(caller.provision().await, Ending::Provisioned);
        assert_eq!(bench.guard.sent_by(&driver) - before, 1, "the host's claim is read, and the volume labelled");
    });
}

#[test]
fn deletion_is_finished_when_its_caller_calls_again() {
    virtual_time::run(1, async {
        let bench = slow_bench().await;
        let mut caller = Caller::new(&bench, Script::new("data"));
        caller.insist_on_creation().await;
        let handle = caller.handle().unwrap().to_owned();
        caller.delete_claim();
        let refused = caller.delete(&handle).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted, "{refused}");
        sleep(SLOW * 2).await;
        assert!(bench.leaf_objects(caller.volume()).is_empty());
        assert!(bench.controller().unwrap().in_flight.under_way().is_empty());
    });
}

/// A leaf that somebody removes meanwhile is not recreated for nobody.
#[test]
fn nothing_is_made_for_a_caller_who_has_gone() {
    virtual_time::run(1, async {
        let bench = slow_bench().await;
        let caller = Caller::new(&bench, Script::new("data"));
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Aborted, "{refused}");
        bench.members[0].delete("persistentvolumeclaims", SHOP, "data").unwrap();
        sleep(SLOW * 2).await;
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_none());
    });
}

/// It shows at once, and not only when he would have been answered.
#[test]
fn nothing_is_made_for_a_caller_who_hangs_up_early() {
    virtual_time::run(1, async {
        let bench = slow_bench().await;
        bench.guard.set_fate(|_, at, asked| {
            let records = at == 0 && asked.verb == Verb::Patch && asked.resource == "persistentvolumeclaims";
            if records { Action::Delay(Duration::from_secs(3)) } else { Action::Pass }
        });
        let caller = Caller::new(&bench, Script::new("data"));
        assert!(timeout(Duration::from_secs(1), caller.create()).await.is_err(), "he hangs up");
        sleep(SLOW * 2).await;
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, "data").is_none());
    });
}

/// Whether there is one nobody knows from an answer that says nothing.
#[test]
fn consumer_pod_goes_also_where_its_making_was_answered_with_an_error() {
    virtual_time::run(1, async {
        let bench = Bench::new(1, 1, &fixture::steady(SLOW * 3)).await;
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(1)).await;
        let caller = Caller::new(&bench, Script { leaf_class: fixture::LATER, ..Script::new("data") });
        caller.create().await.unwrap_err();
        let member = &bench.members[0];
        let made = member.list("pods");
        assert_eq!(made.len(), 1);
        member.delete_now("pods", SHOP, text(&made[0], "/metadata/name")).unwrap();
        bench.guard.set_fate(|_, _, asked| match (asked.verb, asked.resource.as_str()) {
            (Verb::Create, "pods") => Action::ApplyThenAnswer { code: 504, reason: "Timeout" },
            _ => Action::Pass,
        });
        let mut again = Vec::new();
        while let Err(refused) = caller.create().await {
            again.push(member.list("pods").len());
            assert!(again.len() < 60, "{refused}");
            sleep(Duration::from_secs(5)).await;
        }
        assert!(again.contains(&1), "it was made again: {again:?}");
        assert!(member.list("pods").is_empty(), "the consumer is gone: {again:?}");
    });
}

/// It has a node then, and a pod that has one is nobody's first consumer.
#[test]
fn consumer_pod_that_got_a_node_for_a_former_claim_is_recreated() {
    virtual_time::run(1, async {
        let mut settings = fixture::steady(Duration::from_millis(100));
        settings.pods.goes_by_former_claims = SLOW;
        let bench = Bench::new(1, 1, &settings).await;
        bench.start();
        bench.serves().await;
        sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            let script = Script { leaf_class: fixture::LATER, ..Script::new("data") };
            let mut caller = Caller::new(&bench, script);
            let made = timeout(SLOW * 3, caller.provision()).await;
            assert_eq!(made, Ok(Ending::Provisioned), "{:?}", bench.members[0].list("pods"));
            caller.delete_claim();
            caller.reclaim().await;
        }
        assert!(bench.members[0].list("pods").is_empty(), "the consumer is gone");
    });
}
