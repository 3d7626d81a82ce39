//! Members in which the host has rights in some namespaces alone: nothing is looked for in others.

use std::time::Duration;

use k8s_openapi::ByteString;
use serde_json::{Value, json};
use simulate::faults::{Action, Asked};
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Ending, Script},
    fixture, virtual_time,
};

/// Longer than a call waits.
const SLOW: Duration = Duration::from_mins(1);

/// The account of m0 has rights in another namespace than the claims'.
async fn bench() -> std::sync::Arc<Bench> {
    let bench = Bench::new(1, 2, &fixture::steady(SLOW)).await;
    let text = fixture::kubeconfig_text("https://m0")
        .replace("user: u}}", "user: u, extensions: [{name: kosmos.csi.io/namespaces, extension: [bank]}]}}");
    let narrow = |secret: &mut Value| secret["data"]["kubeconfig"] = json!(ByteString(text.clone().into_bytes()));
    bench.host.change("secrets", DRIVER_NAMESPACE, "m0", narrow).unwrap();
    let is_closed = |asked: &Asked| {
        asked.namespace == SHOP || asked.namespace.is_empty() && asked.resource == "persistentvolumeclaims"
    };
    bench.guard.set_fate(move |_, at, asked| {
        if at == 1 && is_closed(asked) { Action::Answer { code: 403, reason: "Forbidden" } } else { Action::Pass }
    });
    bench.start();
    bench.serves().await;
    sleep(Duration::from_millis(100)).await;
    bench
}

#[test]
fn claim_that_is_deleted_while_it_waits_is_forgotten_though_a_member_shows_nothing_of_its_namespace() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script { places: vec![0, 1], ..Script::new("data") });
        let waiting = caller.create().await.unwrap_err();
        assert_eq!(waiting.code(), Code::Aborted, "{waiting}");
        assert!(bench.members[1].get("persistentvolumeclaims", SHOP, "data").is_some());
        caller.delete_claim();
        assert_eq!(caller.provision().await, Ending::Forgotten);
        assert!(bench.members[1].get("persistentvolumeclaims", SHOP, "data").is_none());
    });
}

#[test]
fn claim_whose_members_have_all_no_rights_in_its_namespace_says_so_and_goes() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = Caller::new(&bench, Script { places: vec![0], ..Script::new("data") });
        let refused = caller.create().await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        assert!(refused.message().contains("rights in bank alone"), "{refused}");
        caller.delete_claim();
        assert_eq!(caller.provision().await, Ending::Forgotten);
    });
}
