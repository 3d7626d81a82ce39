//! Sizes and VolumeAttributesClasses that arrive at a leaf claim when its user has changed his mind: what he asked for last holds.

use std::{fmt::Debug, sync::atomic::Ordering};

use csi::v1::{self, CapacityRange, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::faults::{Action, Verb};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    attributes::{CLASS, SILVER, asks_for, golden, loses_silver, modify},
    bench::{Bench, SHOP, with_deadline},
    caller::{Caller, Script},
    fixture::GOLD,
    late::{LATE, delay_next, patches},
    reclaim::{CLAIM, SETTLED, bench, ends_well, provisioned, until},
    virtual_time,
};

const GIB: i64 = 1 << 30;
const SIZE: &str = "/spec/resources/requests/storage";

/// How many GiB it has then.
async fn expand(bench: &Bench, caller: &Caller, gibibytes: i64) -> Result<i64, Status> {
    let request = v1::ControllerExpandVolumeRequest {
        volume_id: caller.handle().unwrap().to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: gibibytes * GIB, limit_bytes: 0 }),
        ..Default::default()
    };
    let grown =
        bench.call(|driver| async move { driver.controller_expand_volume(with_deadline(request)).await }).await?;
    Ok(grown.capacity_bytes / GIB)
}

/// Who asks is told that it is not known what has become of it.
async fn arrives_late<T: Debug>(bench: &Bench, field: &'static str, asked: impl Future<Output = Result<T, Status>>) {
    let sent = delay_next(bench, move |asked| patches(asked, field));
    asked.await.unwrap_err();
    assert!(sent.load(Ordering::Relaxed), "{}", bench.guard.trace().join("\n"));
}

#[test]
fn size_that_arrives_late_does_not_take_the_place_of_a_smaller_one() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        arrives_late(&bench, SIZE, expand(&bench, &caller, 8)).await;
        assert_eq!(expand(&bench, &caller, 3).await.unwrap(), 3);
        sleep(LATE).await;
        assert_eq!(asks_for(&bench, SIZE), "3Gi", "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// Its user goes by what somebody in the member has made of it, and so nothing is to be asked for.
#[test]
fn size_that_arrives_late_does_not_make_a_leaf_larger_that_has_enough() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        let larger = |claim: &mut Value| claim["spec"]["resources"]["requests"]["storage"] = json!("4Gi");
        bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, larger).unwrap();
        until(&bench, SETTLED, "it is larger", || asks_for(&bench, "/status/capacity/storage") == "4Gi").await;
        arrives_late(&bench, SIZE, expand(&bench, &caller, 8)).await;
        assert_eq!(expand(&bench, &caller, 3).await.unwrap(), 4);
        sleep(LATE).await;
        assert_eq!(asks_for(&bench, SIZE), "4Gi", "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// It may arrive when the member lets writes through again.
#[test]
fn size_that_the_leaf_has_is_not_answered_while_the_member_refuses_what_keeps_a_late_one_out() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        arrives_late(&bench, SIZE, expand(&bench, &caller, 8)).await;
        bench.guard.set_fate(|_, at, asked| {
            let refused = at > 0 && patches(asked, "kosmos.csi.io~1unpublished");
            if refused { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
        });
        let refused = expand(&bench, &caller, 1).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
        assert!(refused.message().contains("is as it is to be, but the member refuses"), "{refused}");
        bench.guard.heal();
        sleep(LATE).await;
        ends_well(&bench, caller).await;
    });
}

/// The claim says again what it said when the late one was sent.
#[test]
fn class_that_arrives_late_does_not_take_the_place_of_the_one_before_it() {
    virtual_time::run(1, async {
        let (bench, caller) = golden().await;
        arrives_late(&bench, CLASS, modify(&bench, &caller, SILVER)).await;
        modify(&bench, &caller, SILVER).await.unwrap();
        modify(&bench, &caller, GOLD).await.unwrap();
        sleep(LATE).await;
        assert_eq!(asks_for(&bench, CLASS), GOLD, "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// Nothing is to be asked for when the user goes back: the leaf has never had another class.
#[test]
fn class_that_arrives_late_is_not_given_to_who_has_gone_back() {
    virtual_time::run(1, async {
        let (bench, caller) = golden().await;
        arrives_late(&bench, CLASS, modify(&bench, &caller, SILVER)).await;
        loses_silver(&bench);
        assert_eq!(modify(&bench, &caller, SILVER).await.unwrap_err().code(), Code::FailedPrecondition);
        modify(&bench, &caller, GOLD).await.unwrap();
        sleep(LATE).await;
        assert_eq!(asks_for(&bench, CLASS), GOLD, "{}", bench.guard.trace().join("\n"));
        ends_well(&bench, caller).await;
    });
}

/// And the watch has not said so.
#[test]
fn claim_on_which_others_have_written_meanwhile_gets_what_is_asked_for_all_the_same() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        bench.guard.set_fate(|_, _, asked| match (asked.verb, asked.resource.as_str()) {
            (Verb::Watch, "persistentvolumeclaims") => Action::Silence(0),
            _ => Action::Pass,
        });
        bench.start();
        bench.serves().await;
        let write = |value: &str| {
            let note = |claim: &mut Value| claim["metadata"]["annotations"]["example.com/note"] = json!(value);
            bench.members[0].change("persistentvolumeclaims", SHOP, CLAIM, note).unwrap();
        };
        write("one");
        assert_eq!(expand(&bench, &caller, 3).await.unwrap(), 3);
        write("two");
        modify(&bench, &caller, GOLD).await.unwrap();
        assert_eq!((asks_for(&bench, SIZE).as_str(), asks_for(&bench, CLASS).as_str()), ("3Gi", GOLD));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}
