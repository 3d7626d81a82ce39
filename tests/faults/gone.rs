//! A member that is gone for good: the host lets go of its volumes once somebody says so, and not before.

use std::time::Duration;

use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP},
    caller::{Change, Script},
    reclaim::{CLAIM, bench, provisioned},
    virtual_time,
};

const NAMESPACE: &str = "kosmos-csi";
const MEMBER: &str = "m0";

/// As `member forget --force` does, once the Secret has gone.
pub fn forget(bench: &Bench, member: &str) {
    let forgotten = |map: &mut serde_json::Value| drop(map["data"].as_object_mut().unwrap().remove(member));
    bench.host.change("configmaps", NAMESPACE, "kosmos-csi-members", forgotten).unwrap();
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
        assert!(refusal.message().contains("nothing of it is forgotten"), "{refusal:?}");
        forget(&bench, MEMBER);
        caller.unpublish().await.unwrap();
        caller.delete(&handle).await.unwrap();
        assert!(bench.members[0].get("persistentvolumeclaims", SHOP, CLAIM).is_some(), "what is there is left alone");
    });
}
