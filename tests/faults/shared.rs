//! Two volumes of the host with one handle, as people make them: what one gives up the other may want.

use std::time::Duration;

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::Code;

use crate::{
    bench::{Bench, SHOP, lock},
    caller::{Caller, Script, claim_again},
    reclaim::{CLAIM, SETTLED, bench, events, leaf, phase, policy, provisioned, until},
    virtual_time,
};

const VOLUMES: &str = "persistentvolumes";
const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";
const TWIN: &str = "twin";

/// An administrator makes another volume of it, for another claim.
fn make_twin(bench: &Bench, of: &Caller) {
    let mut twin = Value::clone(&bench.host.get(VOLUMES, "", of.volume()).unwrap());
    twin["metadata"] = json!({"name": TWIN});
    twin.as_object_mut().unwrap().remove("status");
    twin["spec"].as_object_mut().unwrap().remove("claimRef");
    bench.host.create(VOLUMES, twin).unwrap();
    claim_again(bench, TWIN, SHOP, TWIN);
}

async fn release(bench: &Bench, caller: &Caller) {
    caller.delete_claim();
    let released = || phase(bench.host.get(VOLUMES, "", caller.volume())) == "Released";
    until(bench, SETTLED, "the host's volume is released", released).await;
}

#[test]
fn data_stays_for_the_other_volume_of_one_handle_and_is_its_own_once_it_is_the_only_one() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        make_twin(&bench, &caller);
        until(&bench, SETTLED, "its data is kept", || policy(&bench, &caller) == "Retain").await;
        let told = || events(&bench).matches("LeafShared: ").count() == 2;
        until(&bench, SETTLED, "both say so", told).await;
        for name in [caller.volume(), TWIN] {
            assert!(events(&bench).contains(name), "{name}: {}", events(&bench));
        }
        release(&bench, &caller).await;
        let refused = caller.delete(caller.handle().unwrap()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted, "{refused}");
        assert!(refused.message().contains("PersistentVolume twin"), "{refused}");
        caller.set_policy("Retain");
        lock(&bench.guard.history).let_go(caller.volume());
        bench.host.delete(VOLUMES, "", caller.volume()).unwrap();
        until(&bench, SETTLED, "it is the other one's", || phase(leaf(&bench, TWIN)) == "Bound").await;
        assert_eq!(text(&leaf(&bench, TWIN).unwrap(), "/spec/volumeName"), caller.leaf_volume().unwrap());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Nobody can tell for which of both it would be made anew.
#[test]
fn leaf_that_somebody_deletes_keeps_its_data_and_waits_until_its_handle_leads_to_one_volume() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        make_twin(&bench, &caller);
        until(&bench, SETTLED, "its data is kept", || policy(&bench, &caller) == "Retain").await;
        let uid = text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid").to_owned();
        lock(&bench.guard.history).deleted_by_people(&uid);
        bench.members[0].delete("persistentvolumeclaims", SHOP, CLAIM).unwrap();
        sleep(SETTLED).await;
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/metadata/uid"), uid, "our finalizer holds it");
        bench.host.delete("persistentvolumeclaims", SHOP, TWIN).unwrap();
        let unhold = |volume: &mut Value| volume["metadata"]["finalizers"] = json!([]);
        bench.host.change(VOLUMES, "", TWIN, unhold).unwrap();
        bench.host.delete(VOLUMES, "", TWIN).unwrap();
        let is_anew = || phase(leaf(&bench, CLAIM)) == "Bound" && events(&bench).contains("LeafHealed: ");
        until(&bench, SETTLED, "it is made anew", is_anew).await;
        assert_eq!(text(&leaf(&bench, CLAIM).unwrap(), "/spec/volumeName"), caller.leaf_volume().unwrap());
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}

/// Kubernetes makes one for all volumes with one handle, by the name of the first.
#[test]
fn attachment_of_a_volume_whose_claim_has_gone_stays_while_another_one_has_its_handle() {
    virtual_time::run(1, async {
        let bench = bench().await;
        let caller = provisioned(&bench, Script::new(CLAIM)).await;
        make_twin(&bench, &caller);
        let attachment = json!({
            "metadata": {"name": "csi-0", "annotations": {"csi.alpha.kubernetes.io/node-id": caller.node()}},
            "spec": {
                "attacher": "kosmos.csi.io", "nodeName": "kosmos-m0",
                "source": {"persistentVolumeName": caller.volume()},
            },
        });
        bench.host.create(ATTACHMENTS, attachment).unwrap();
        release(&bench, &caller).await;
        sleep(Duration::from_mins(15)).await;
        assert!(bench.host.get(ATTACHMENTS, "", "csi-0").is_some(), "{}", bench.guard.trace().join("\n"));
        assert_eq!(bench.guard.wrong(), Vec::<String>::new());
    });
}
