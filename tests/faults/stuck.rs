//! Nothing waits for ever without a word on the object that its user looks at.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use simulate::text;
use tokio::time::sleep;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Change, Script},
    reclaim::{CLAIM, SETTLED, bench, events, leaf, phase, provisioned, retained, until},
    virtual_time,
};

const QUOTA: &str = "tight";

fn is_bound(bench: &Bench) -> bool {
    phase(leaf(bench, CLAIM)) == "Bound"
}

async fn deleted_in_the_member(bench: &Arc<Bench>) -> Caller {
    let caller = provisioned(bench, Script::new(CLAIM)).await;
    let uid = text(&leaf(bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
    lock(&bench.guard.history).deleted_by_people(&uid);
    let quota =
        json!({"metadata": {"name": QUOTA, "namespace": SHOP}, "spec": {"hard": {"persistentvolumeclaims": "0"}}});
    bench.members[0].create("resourcequotas", quota).unwrap();
    bench.members[0].delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
    caller
}

#[test]
fn leaf_that_a_quota_keeps_from_coming_back_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let _caller = deleted_in_the_member(&bench).await;
        until(&bench, SETTLED, "it is told", || {
            let told = events(&bench);
            told.contains("LeafStuck: ") && told.contains("exceeded quota") && told.contains("member m0")
        })
        .await;
        bench.members[0].delete("resourcequotas", SHOP, QUOTA).unwrap();
        until(&bench, SETTLED, "it is there again", || is_bound(&bench)).await;
    });
}

#[test]
fn leaf_that_a_dead_node_holds_back_says_so_on_the_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, retained()).await;
        caller.change(Change::Publish).await;
        caller.delete_claim();
        sleep(Duration::from_secs(20)).await;
        assert!(!events(&bench).contains("LeafWaits"), "a node may take a moment: {}", events(&bench));
        until(&bench, SETTLED, "it is told", || events(&bench).contains("LeafWaits: ")).await;
        let told = events(&bench);
        assert!(told.contains("virtual/m0") && told.contains("kosmos.csi.io/published"), "{told}");
        assert!(is_bound(&bench), "it is kept");
    });
}
