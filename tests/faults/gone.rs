//! A member that is gone for good: the host lets go of its volumes once somebody says so, and not before.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP},
    caller::{Change, Script},
    fixture,
    reclaim::{CLAIM, SETTLED, bench, provisioned, until},
    shared::has_alias,
    virtual_time,
};

const NAMESPACE: &str = "kosmos-csi";
const RECORD: &str = "kosmos-csi-members";
const MEMBER: &str = "m0";

/// As `member forget --force` does, once the Secret has gone.
pub fn forget(bench: &Bench, member: &str) {
    let forgotten = |map: &mut Value| {
        map["data"].as_object_mut().unwrap().remove(member);
        let names = &mut map["metadata"]["annotations"]["kosmos.csi.io/forgotten"];
        *names = json!(names.as_str().map_or_else(|| member.to_owned(), |before| format!("{before},{member}")));
    };
    bench.host.change("configmaps", NAMESPACE, RECORD, forgotten).unwrap();
}

#[test]
fn volumes_of_a_member_that_has_gone_are_let_go_once_it_is_forgotten_and_not_before() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        caller.change(Change::Publish).await;
        let handle = caller.handle().unwrap().to_owned();
        bench.host.delete("secrets", NAMESPACE, MEMBER).unwrap();
        sleep(Duration::from_mins(30)).await;
        assert_eq!(caller.unpublish().await.unwrap_err().code(), Code::Unavailable);
        let refusal = caller.delete(&handle).await.unwrap_err();
        assert_eq!(refusal.code(), Code::Unavailable);
        assert!(refusal.message().contains("the host has no kubeconfig of it any more"), "{refusal:?}");
        forget(&bench, MEMBER);
        caller.unpublish().await.unwrap();
        caller.delete(&handle).await.unwrap();
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, CLAIM).is_some(), "what is there is left alone");
    });
}

/// Those that are there are in the new record, and say nothing of the one that is not.
#[test]
fn member_that_has_left_is_not_forgotten_where_the_record_of_members_was_deleted() {
    virtual_time::run(1, async {
        let bench = Bench::serving(2, &fixture::steady(Duration::from_millis(100))).await;
        let mut caller = provisioned(&bench, Script { places: vec![0], ..Script::new(CLAIM) }).await;
        caller.change(Change::Publish).await;
        let handle = caller.handle().unwrap().to_owned();
        bench.host.delete("secrets", NAMESPACE, MEMBER).unwrap();
        bench.host.delete("configmaps", NAMESPACE, RECORD).unwrap();
        bench.start();
        bench.serves().await;
        let is_remade = || bench.host.get("configmaps", NAMESPACE, RECORD).is_some();
        until(&bench, SETTLED, "those that are there are recorded", is_remade).await;
        let record = bench.host.get("configmaps", NAMESPACE, RECORD).unwrap();
        assert_eq!(record["data"].as_object().unwrap().keys().collect::<Vec<_>>(), ["m1"]);
        assert_eq!(caller.unpublish().await.unwrap_err().code(), Code::Unavailable);
        let refusal = caller.delete(&handle).await.unwrap_err();
        assert_eq!(refusal.code(), Code::Unavailable, "{refusal:?}");
        assert!(refusal.message().contains("kosmos-csi member forget m0"), "{refusal:?}");
        forget(&bench, MEMBER);
        caller.unpublish().await.unwrap();
        caller.delete(&handle).await.unwrap();
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, CLAIM).is_some(), "what is there is left alone");
    });
}

/// Or one that somebody deletes would say of it again that nothing is awaited of it.
#[test]
fn member_that_was_forgotten_and_joins_again_is_forgotten_no_more() {
    virtual_time::run(1, async {
        let bench = bench().await;
        bench.host.delete("secrets", NAMESPACE, MEMBER).unwrap();
        sleep(Duration::from_secs(1)).await;
        forget(&bench, MEMBER);
        bench.host.create("secrets", fixture::kubeconfig(MEMBER)).unwrap();
        let record = || bench.host.get("configmaps", NAMESPACE, RECORD).unwrap();
        until(&bench, SETTLED, "it is recorded", || record()["data"].get(MEMBER).is_some()).await;
        assert!(record()["metadata"]["annotations"].get("kosmos.csi.io/forgotten").is_none(), "{}", record());
    });
}

/// Which is on no record, before as after.
#[test]
fn second_name_of_a_member_that_was_forgotten_and_joins_again_is_forgotten_no_more() {
    virtual_time::run(1, async {
        let bench = bench().await;
        forget(&bench, "alias");
        has_alias(&bench).await;
        let record = || bench.host.get("configmaps", NAMESPACE, RECORD).unwrap();
        let is_known = || record()["metadata"]["annotations"].get("kosmos.csi.io/forgotten").is_none();
        until(&bench, SETTLED, "it is forgotten no more", is_known).await;
        assert!(record()["data"].get("alias").is_none(), "{}", record());
    });
}
