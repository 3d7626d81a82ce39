//! A host whose cluster is lost, and another cluster that is the same host to its members from then on: by what a backup kept of
//! volumes and claims, which have other UIDs there.

use std::time::Duration;

use operator::backup::{Backup, Seen};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, DRIVER_NAMESPACE, SHOP},
    caller::{Caller, Script},
    reclaim::{CLAIM, SETTLED, bench, events, leaf, leaf_volume, phase, provisioned, retained, until},
    virtual_time,
};

const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
const MAP: &str = "kosmos-csi-members";
/// Clusters that come after the first.
const NOW: &str = "5d1c8c1e-0000-4000-8000-000000000002";
const THIRD: &str = "5d1c8c1e-0000-4000-8000-000000000003";
/// More than anything forgotten is waited for.
const LONG: Duration = Duration::from_mins(40);

/// The driver ends with its cluster, and another one has its address, with nothing but its own namespaces, the driver's settings and
/// the kubeconfigs of the members.
fn lose_cluster(bench: &Bench) -> Backup {
    bench.kill();
    let of = |resource: &str, kind: &str| -> Vec<Value> {
        let kinds = json!({"apiVersion": "v1", "kind": kind});
        let with_kind = |mut object: Value| {
            object.as_object_mut().unwrap().extend(kinds.as_object().unwrap().clone());
            object
        };
        bench.host.list(resource).iter().map(|object| with_kind(Value::clone(object))).collect()
    };
    let (volumes, claims) = (of(VOLUMES, "PersistentVolume"), of(CLAIMS, "PersistentVolumeClaim"));
    for (resource, objects) in [(VOLUMES, &volumes), (CLAIMS, &claims)] {
        for object in objects {
            let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
            bench.host.change(resource, namespace, name, |one| one["metadata"]["finalizers"] = json!([])).unwrap();
            bench.host.delete(resource, namespace, name).unwrap();
        }
    }
    let members = [("m0".to_owned(), "a-cluster".to_owned())].into();
    let seen = Seen { volumes, claims, ..Seen::default() };
    let (backup, left_out) = Backup::new("then".to_owned(), bench.host_id(), members, &seen);
    assert_eq!(left_out, Vec::<String>::new());
    let other = |namespace: &mut Value| namespace["metadata"]["uid"] = json!(NOW);
    bench.host.change("namespaces", "", "kube-system", other).unwrap();
    backup
}

/// As `host adopt` records it.
fn be(bench: &Bench, former: &str) {
    let adopt = |map: &mut Value| {
        map["metadata"]["annotations"] = json!({"kosmos.csi.io/host": former, "kosmos.csi.io/cluster": NOW});
    };
    bench.host.change("configmaps", DRIVER_NAMESPACE, MAP, adopt).unwrap();
}

/// As `host adopt` makes them, and Kubernetes binds them.
fn make(bench: &Bench, backup: &Backup) {
    for kept in &backup.volumes {
        let claim = bench.host.create(CLAIMS, kept.claim.clone().unwrap()).unwrap();
        bench.host.create(VOLUMES, kept.bound_to(text(&claim, "/metadata/uid"))).unwrap();
    }
}

async fn start(bench: &Bench) {
    bench.start();
    bench.serves().await;
}

fn uid(object: Option<std::sync::Arc<Value>>) -> String {
    object.map(|object| text(&object, "/metadata/uid").to_owned()).unwrap_or_default()
}

/// It is used there and removed there, as any volume is.
async fn works(bench: &Bench, caller: &mut Caller) {
    let node = caller.node();
    caller.publish(&node).await.unwrap();
    caller.unpublish().await.unwrap();
    caller.set_policy("Delete");
    bench.host.delete(CLAIMS, SHOP, CLAIM).unwrap();
    bench.host.change(CLAIMS, SHOP, CLAIM, |claim| claim["metadata"]["finalizers"] = json!([])).ok();
    until(bench, SETTLED, "it is released", || phase(bench.host.get(VOLUMES, "", caller.volume())) == "Released").await;
    caller.delete(caller.handle().unwrap()).await.unwrap();
    assert_eq!((leaf(bench, CLAIM), leaf_volume(bench, caller)), (None, None));
}

#[test]
fn leaf_of_a_lost_host_stays_as_it_is_where_its_claim_was_made_before_the_driver_starts() {
    for script in [Script::new(CLAIM), retained()] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, script).await;
            let before = (uid(leaf(&bench, CLAIM)), uid(leaf_volume(&bench, &caller)));
            let backup = lose_cluster(&bench);
            make(&bench, &backup);
            be(&bench, &backup.host);
            start(&bench).await;
            sleep(LONG).await;
            assert_eq!((uid(leaf(&bench, CLAIM)), uid(leaf_volume(&bench, &caller))), before, "{}", events(&bench));
            assert!(!events(&bench).contains("Leaf"), "{}", events(&bench));
            works(&bench, &mut caller).await;
        });
    }
}

#[test]
fn data_of_a_lost_host_stays_where_the_driver_is_there_long_before_its_claims_are() {
    for script in [Script::new(CLAIM), retained()] {
        virtual_time::run(1, async {
            let bench = bench().await;
            let mut caller = provisioned(&bench, script).await;
            let before = uid(leaf_volume(&bench, &caller));
            let backup = lose_cluster(&bench);
            be(&bench, &backup.host);
            start(&bench).await;
            sleep(LONG).await;
            assert_eq!(uid(leaf_volume(&bench, &caller)), before, "{}", events(&bench));
            make(&bench, &backup);
            until(&bench, SETTLED, "its leaf claim is bound", || phase(leaf(&bench, CLAIM)) == "Bound").await;
            sleep(SETTLED).await;
            assert_eq!(uid(leaf_volume(&bench, &caller)), before, "{}", events(&bench));
            works(&bench, &mut caller).await;
        });
    }
}

/// As long as the record is not written, or where it was copied to a third cluster.
#[test]
fn cluster_that_is_not_the_host_touches_nothing_of_it_whatever_volumes_it_was_given() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let mut caller = provisioned(&bench, Script::new(CLAIM)).await;
        let before = (leaf(&bench, CLAIM), leaf_volume(&bench, &caller));
        let backup = lose_cluster(&bench);
        make(&bench, &backup);
        be(&bench, &backup.host);
        let third = |namespace: &mut Value| namespace["metadata"]["uid"] = json!(THIRD);
        bench.host.change("namespaces", "", "kube-system", third).unwrap();
        start(&bench).await;
        sleep(LONG).await;
        assert_eq!((leaf(&bench, CLAIM), leaf_volume(&bench, &caller)), before);
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(&format!("another host cluster ({})", backup.host)), "{refused}");
        assert_eq!((leaf(&bench, CLAIM), leaf_volume(&bench, &caller)), before);
        let fourth = |namespace: &mut Value| namespace["metadata"]["uid"] = json!(NOW);
        bench.host.change("namespaces", "", "kube-system", fourth).unwrap();
        start(&bench).await;
        works(&bench, &mut caller).await;
    });
}
