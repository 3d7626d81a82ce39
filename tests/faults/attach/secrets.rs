//! Secrets that a leaf driver wants on a node: they reach the Secret that the host's volume names, and nothing else.

use std::sync::Arc;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::Code;

use super::{STEP, make_of, nothing_is_wrong, publish, record, refused, unpublish, volume_with};
use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::Caller,
    virtual_time,
};

const HUSH: &str = "aHVzaC1odXNo";
const LATER: &str = "bGF0ZXItb24=";

fn named(name: &str, namespace: &str) -> Value {
    json!({"name": name, "namespace": namespace})
}

/// The leaf volume wants a Secret at staging; the host's names `staged` for that.
async fn wanting() -> (Arc<Bench>, Caller) {
    let (bench, caller) = volume_with(&[]).await;
    make_of(&bench, "data", |spec| spec["csi"]["nodeStageSecretRef"] = named("array", SHOP));
    let secret = |value: &str| json!({"metadata": {"name": "array", "namespace": SHOP}, "data": {"password": value}});
    bench.members[0].create("secrets", secret(HUSH)).unwrap();
    (bench, caller)
}

fn name_in_host(bench: &Bench, caller: &Caller, field: &str, secret: &str) {
    let name = |volume: &mut Value| volume["spec"]["csi"][field] = named(secret, DRIVER_NAMESPACE);
    bench.host.change("persistentvolumes", "", caller.volume(), name).unwrap();
}

fn staged(bench: &Bench) -> Option<Arc<Value>> {
    bench.host.get("secrets", DRIVER_NAMESPACE, "staged")
}

#[test]
fn secret_is_kept_where_the_hosts_volume_names_it_and_goes_with_that() {
    virtual_time::run(1, async {
        let (bench, mut caller) = wanting().await;
        name_in_host(&bench, &caller, "nodeStageSecretRef", "staged");
        let context = publish(&bench, &caller, "real/n1").await.unwrap();
        let kept = staged(&bench).unwrap();
        assert_eq!((text(&kept, "/data/password"), text(&kept, "/type")), (HUSH, "Opaque"));
        assert!(!format!("{context:?}").contains("hush") && !format!("{context:?}").contains(HUSH));
        bench.members[0].change("secrets", SHOP, "array", |secret| secret["data"]["password"] = json!(LATER)).unwrap();
        publish(&bench, &caller, "real/n1").await.unwrap();
        assert_eq!(text(&staged(&bench).unwrap(), "/data/password"), LATER, "renewed in the member");
        let version = text(&staged(&bench).unwrap(), "/metadata/resourceVersion").to_owned();
        publish(&bench, &caller, "real/n1").await.unwrap();
        assert_eq!(
            text(&staged(&bench).unwrap(), "/metadata/resourceVersion"),
            version,
            "written only when it differs"
        );
        unpublish(&bench, caller.handle().unwrap(), "real/n1").await.unwrap();
        caller.delete_claim();
        caller.reclaim().await;
        sleep(STEP * 10).await;
        assert!(staged(&bench).is_none(), "it goes with the host's volume");
        let told = bench.guard.trace().join("\n");
        assert!(!told.contains(HUSH) && !told.contains(LATER));
        nothing_is_wrong(&bench);
    });
}

#[test]
fn volume_without_a_place_for_its_secret_is_refused_with_the_parameters_to_add() {
    virtual_time::run(1, async {
        let (bench, caller) = wanting().await;
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        let says = message.contains("csi.storage.k8s.io/node-stage-secret-name") && message.contains("shop/array");
        assert!(code == Code::FailedPrecondition && says && !message.contains("hush"), "{code:?} {message}");
        assert_eq!(record(&bench, "data"), "");
        nothing_is_wrong(&bench);
    });
}

#[test]
fn secret_of_somebody_else_is_never_overwritten() {
    virtual_time::run(1, async {
        let (bench, caller) = wanting().await;
        name_in_host(&bench, &caller, "nodeStageSecretRef", "staged");
        let theirs =
            json!({"metadata": {"name": "staged", "namespace": DRIVER_NAMESPACE}, "data": {"kubeconfig": LATER}});
        bench.host.create("secrets", theirs).unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::FailedPrecondition && message.contains("kosmos-csi/staged"), "{code:?} {message}");
        let kept = staged(&bench).unwrap();
        assert_eq!((text(&kept, "/data/kubeconfig"), text(&kept, "/data/password")), (LATER, ""));
        bench.host.delete("secrets", DRIVER_NAMESPACE, "staged").unwrap();
        bench.members[0].delete("secrets", SHOP, "array").unwrap();
        let (code, message) = refused(publish(&bench, &caller, "real/n1").await);
        assert!(code == Code::FailedPrecondition && message.contains("shop/array"), "{code:?} {message}");
        nothing_is_wrong(&bench);
    });
}
