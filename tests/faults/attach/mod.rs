//! Volumes for real nodes of the host: what such a node is told, what is attached for it in the member, and who is refused.

pub mod attachments;
pub mod double;
mod former;
pub mod late;
pub mod machines;
mod plugged;
mod secrets;
mod told;

use std::{collections::HashMap, sync::Arc, time::Duration};

use csi::v1::{self, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::{Cluster, storage::Settings, text};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::{
    ask::capability,
    bench::{Bench, SHOP, lock, with_deadline},
    caller::{Caller, Script},
    fixture,
};

const STEP: Duration = Duration::from_millis(100);
const MEMBER_NODE: &str = "kosmos.node-restriction.kubernetes.io/member-node";
const VIRTUAL_MACHINE: &str = "kosmos.node-restriction.kubernetes.io/virtual-machine";
const CSI_DRIVERS: &str = "csidrivers.storage.k8s.io";
const LEAF_DRIVER: &str = "storage.simulated";

/// The host's nodes `n1` and `n2` are the nodes `m0-n1` and `n2` of the first member.
pub fn real_nodes(bench: &Bench) {
    for (node, member_node, uuid) in [("n1", "m0-n1", "4237AAAA"), ("n2", "n2", "4237bbbb")] {
        let labels = if node == member_node { json!({}) } else { json!({MEMBER_NODE: member_node}) };
        host_node(bench, node, &labels, uuid);
        let _ = bench.members[0].create("nodes", json!({"metadata": {"name": member_node}}));
        bench.members[0]
            .change("nodes", "", member_node, |node| {
                node["status"]["nodeInfo"]["systemUUID"] = json!(uuid.to_lowercase());
            })
            .unwrap();
    }
}

fn host_node(bench: &Bench, name: &str, labels: &Value, uuid: &str) {
    let node = json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"nodeInfo": {"systemUUID": uuid, "machineID": ""}},
    });
    bench.host.create("nodes", node).unwrap();
    let driver = json!({"name": "kosmos.csi.io", "nodeID": format!("real/{name}"), "topologyKeys": null});
    let registered = json!({"metadata": {"name": name}, "spec": {"drivers": [driver]}});
    bench.host.create("csinodes.storage.k8s.io", registered).unwrap();
}

/// The members' storage driver wants its volumes attached.
pub fn attach_is_required(member: &Cluster) {
    member.change(CSI_DRIVERS, "", LEAF_DRIVER, |driver| driver["spec"]["attachRequired"] = json!(true)).unwrap();
}

/// A volume of a class with these parameters besides, on a bench with real nodes.
async fn volume_with(parameters: &'static [(&'static str, &'static str)]) -> (Arc<Bench>, Caller) {
    let bench = started(&fixture::steady(STEP)).await;
    let caller = volume(&bench, "data", parameters).await;
    (bench, caller)
}

async fn started(settings: &Settings) -> Arc<Bench> {
    let bench = Bench::new(1, 2, settings).await;
    real_nodes(&bench);
    bench.start();
    bench.serves().await;
    sleep(STEP).await;
    bench
}

async fn volume(bench: &Arc<Bench>, claim: &str, parameters: &'static [(&'static str, &'static str)]) -> Caller {
    let mut caller = Caller::new(bench, Script { places: vec![0], parameters, ..Script::new(claim) });
    caller.insist_on_creation().await;
    sleep(STEP).await;
    caller
}

async fn publish(bench: &Bench, caller: &Caller, node: &str) -> Result<HashMap<String, String>, Status> {
    let request = v1::ControllerPublishVolumeRequest {
        volume_id: caller.handle().unwrap().to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(capability()),
        volume_context: caller.context().clone(),
        ..Default::default()
    };
    let asked = bench.call(|driver| async move { driver.controller_publish_volume(with_deadline(request)).await });
    Ok(asked.await?.publish_context)
}

async fn unpublish(bench: &Bench, handle: &str, node: &str) -> Result<(), Status> {
    let (volume_id, node_id) = (handle.to_owned(), node.to_owned());
    let request = v1::ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
    let asked = bench.call(|driver| async move { driver.controller_unpublish_volume(with_deadline(request)).await });
    asked.await.map(drop)
}

fn refused<T>(answer: Result<T, Status>) -> (Code, String) {
    match answer {
        Ok(_) => (Code::Ok, String::new()),
        Err(status) => (status.code(), status.message().to_owned()),
    }
}

/// What the context says of what the volume is made of.
fn backing(context: &HashMap<String, String>) -> Value {
    serde_json::from_str(&context["backing"]).unwrap()
}

fn leaf_volume(bench: &Bench, claim: &str) -> String {
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, claim).unwrap();
    text(&leaf, "/spec/volumeName").to_owned()
}

/// The leaf volume is made of something else.
fn make_of(bench: &Bench, claim: &str, change: impl FnOnce(&mut Value)) {
    let name = leaf_volume(bench, claim);
    bench.members[0].change("persistentvolumes", "", &name, |volume| change(&mut volume["spec"])).unwrap();
}

fn record(bench: &Bench, claim: &str) -> String {
    let leaf = bench.members[0].get("persistentvolumeclaims", SHOP, claim).unwrap();
    leaf["metadata"]["annotations"]["kosmos.csi.io/published"].as_str().unwrap_or_default().to_owned()
}

/// All that a class with such parameters needs in the first member; `n1` is the machine there.
pub fn prepare(bench: &Bench, parameters: &[(&str, &str)]) {
    if parameters.contains(&("attachMode", "virtual-machine")) {
        let kind = match parameters.iter().find(|(key, _)| *key == "leafNamespace.m1") {
            Some((_, "kubevirt")) => machines::Kind::KubeVirt(true),
            Some(_) => machines::Kind::KubeVirt(false),
            None => machines::Kind::Operator("v1alpha2"),
        };
        machines::Host::start(&bench.members[0], kind);
        for node in ["n1", "n2"] {
            let labels = if node == "n1" { json!({VIRTUAL_MACHINE: "vm-1"}) } else { json!({}) };
            host_node(bench, node, &labels, machines::UUID);
        }
        return;
    }
    real_nodes(bench);
    attach_is_required(&bench.members[0]);
    double::Attacher::start(&bench.members[0]);
}

/// The disks that the machine is asked to have, and that its status names in some way.
fn plugged_in(bench: &Bench) -> Vec<String> {
    let mut found = Vec::new();
    for resource in [machines::OPERATED, machines::PLUGGED, machines::INSTANCES] {
        let Some(machine) = bench.members[0].get(resource, SHOP, "vm-1") else { continue };
        if resource != machines::INSTANCES {
            found.extend(machines::disks(&machine).0);
        }
        let told =
            ["/status/volumes", "/status/volumeStatus"].iter().find_map(|path| machine.pointer(path)?.as_array());
        let named = told.into_iter().flatten().map(|entry| text(entry, "/name").to_owned());
        found.extend(named.filter(|name| name.starts_with("v-")));
    }
    found
}

/// Of one leaf volume.
fn attachments_of(bench: &Bench, volume: &str) -> Vec<Arc<Value>> {
    let is_of = |one: &Arc<Value>| text(one, "/spec/source/persistentVolumeName") == volume;
    bench.members[0].list(double::ATTACHMENTS).into_iter().filter(is_of).collect()
}

/// What the volume's class wants attached is, and to the machine that is `n1`.
pub fn is_attached(bench: &Bench, volume: &str, context: &HashMap<String, String>) -> bool {
    let attachments = attachments_of(bench, volume);
    match context.get("attachMode").map(String::as_str) {
        Some("volume-attachment") => matches!(attachments.as_slice(), [one]
            if one["status"]["attached"] == true && text(one, "/spec/nodeName") == "m0-n1"),
        Some("virtual-machine") => plugged_in(bench).len() == 2,
        _ => attachments.is_empty(),
    }
}

/// What is on its way for longer than anybody waits may come even then.
pub fn nothing_is_attached(bench: &Bench, volume: &str) -> bool {
    let came_late = |one: &Arc<Value>| lock(&bench.guard.history).may_come_late(&bench.members[0], one);
    attachments_of(bench, volume).iter().all(came_late) && plugged_in(bench).is_empty()
}

/// Attachments that no leaf claim's record names keep other nodes from their volumes.
pub fn unrecorded(bench: &Bench) -> Vec<String> {
    let claims = bench.members[0].list("persistentvolumeclaims");
    let record = |volume: &str| {
        let claim = claims.iter().find(|claim| text(claim, "/spec/volumeName") == volume);
        claim.map(|claim| claim["metadata"]["annotations"]["kosmos.csi.io/published"].to_string())
    };
    let is_recorded = |one: &Arc<Value>| {
        let node = format!("{:?}", text(one, "/spec/nodeName"));
        // Of a claim that is gone it is said elsewhere.
        record(text(one, "/spec/source/persistentVolumeName"))
            .is_none_or(|record| record.replace('\\', "").contains(&node))
    };
    let all = bench.members[0].list(double::ATTACHMENTS).into_iter();
    all.filter(|one| !is_recorded(one)).map(|one| format!("an attachment that no record names: {one}")).collect()
}

fn nothing_is_wrong(bench: &Bench) {
    assert!(bench.guard.wrong().is_empty(), "{:#?}", bench.guard.wrong());
}
