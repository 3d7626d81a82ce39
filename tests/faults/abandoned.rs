//! An attachment that the attach controller has forgotten keeps a volume from being deleted whose claim has gone: it is taken away,
//! where it is to a virtual node.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;

use crate::{
    attach::double::ATTACHMENTS,
    bench::Bench,
    caller::{Caller, Script},
    reclaim::{CLAIM, bench, provisioned},
    virtual_time,
};

const NODE: &str = "kosmos-m0";
const VIRTUAL: &str = "virtual/m0";
/// Longer than two looks, and a moment.
const LOOKED: Duration = Duration::from_secs(190);

const NAME: &str = "csi-17334a8d5274dc6f";

/// Attached, as external-attacher tells it.
fn attach(bench: &Bench, caller: &Caller, attacher: &str, node_id: &str) {
    let attachment = json!({
        "metadata": {"name": NAME, "annotations": {"csi.alpha.kubernetes.io/node-id": node_id}},
        "spec": {"attacher": attacher, "nodeName": NODE, "source": {"persistentVolumeName": caller.volume()}},
        "status": {"attached": true},
    });
    bench.host.create(ATTACHMENTS, attachment).unwrap();
}

fn there(bench: &Bench) -> Vec<String> {
    bench.host.list(ATTACHMENTS).iter().map(|one| text(one, "/metadata/name").to_owned()).collect()
}

async fn volume() -> (Arc<Bench>, Caller) {
    let bench = bench().await;
    let caller = provisioned(&bench, Script::new(CLAIM)).await;
    (bench, caller)
}

#[test]
fn attachment_to_a_virtual_node_goes_once_the_claim_has_gone_and_not_before() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        attach(&bench, &caller, "kosmos.csi.io", VIRTUAL);
        sleep(LOOKED).await;
        assert_eq!(there(&bench), [NAME]);
        caller.delete_claim();
        sleep(LOOKED).await;
        assert!(there(&bench).is_empty(), "{}", bench.guard.trace().join("\n"));
    });
}

#[test]
fn attachment_that_a_kubelet_may_have_mounted_or_that_is_not_ours_stays() {
    for (attacher, node_id) in [("kosmos.csi.io", "real/n1"), ("other.example.com", VIRTUAL), ("kosmos.csi.io", "")] {
        virtual_time::run(1, async {
            let (bench, caller) = volume().await;
            attach(&bench, &caller, attacher, node_id);
            caller.delete_claim();
            sleep(LOOKED).await;
            assert_eq!(there(&bench), [NAME], "{attacher} {node_id}");
        });
    }
}

/// It belongs to another volume, whoever has made it so.
#[test]
fn attachment_of_another_volume_stays() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        attach(&bench, &caller, "kosmos.csi.io", VIRTUAL);
        let other = |one: &mut Value| one["spec"]["source"]["persistentVolumeName"] = json!("another");
        bench.host.change(ATTACHMENTS, "", NAME, other).unwrap();
        caller.delete_claim();
        sleep(LOOKED).await;
        assert_eq!(there(&bench), [NAME]);
    });
}

/// What its administrator keeps is his.
#[test]
fn attachment_of_a_volume_that_stays_without_its_claim_stays() {
    virtual_time::run(1, async {
        let (bench, caller) = volume().await;
        attach(&bench, &caller, "kosmos.csi.io", VIRTUAL);
        let keep = |volume: &mut Value| volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        bench.host.change("persistentvolumes", "", caller.volume(), keep).unwrap();
        caller.delete_claim();
        sleep(LOOKED).await;
        assert_eq!(there(&bench), [NAME]);
    });
}
