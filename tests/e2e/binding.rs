//! How a leaf claim comes to be bound: each way, with the real scheduler and provisioner in the member.

use std::{convert::Infallible, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::CSIStorageCapacity,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

use crate::{
    clusters::{Cluster, NodeDriver, member_driver, wait_for},
    objects::{Place, attribute, handle, nothing_of_ours, tolerant},
    pool::{beside_others, on_fleet},
    rig::{DRIVER, LATER, LOCAL_PATH, MEMBER_KEY, PATIENCE, Rig},
};

const NODE_KEY: &str = "topology.kosmos.csi.io/node";
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A claim with a pod in cluster38, by class; the host's volume once it is bound.
async fn volume_in_38(host: &Place<'_>, class: &str, parameters: serde_json::Value) -> Result<PersistentVolume> {
    host.class(class, "WaitForFirstConsumer", parameters, &["cluster38"]).await?;
    host.claim("data", class).await?;
    host.tolerant_pod("web", &["data"], Some("kosmos-cluster38")).await?;
    host.bound("data").await
}

async fn all_goes(rig: &Rig, host: &Place<'_>, volume: &PersistentVolume) -> Result<()> {
    host.force_delete_pod("web").await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    nothing_of_ours(rig.fleet.member("cluster38"), &host.namespace).await
}

#[test]
fn consumer_binds_a_class_that_waits() {
    beside_others("binding_consumer", async |rig| {
        let host = Place::new(rig.fleet.host(), "by-consumer").await?;
        let parameters = json!({"leafStorageClass": LOCAL_PATH, "leafBinding": "consumer"});
        let volume = volume_in_38(&host, "by-consumer", parameters).await?;
        ensure!(!attribute(&volume, "leafVolume").is_empty());
        all_goes(rig, &host, &volume).await
    });
}

/// The member itself adds to the consumer what its RuntimeClass says, as it does to the pod's copy.
#[test]
fn consumer_goes_where_the_members_runtime_class_of_its_pod_is() {
    beside_others("binding_runtime_class", async |rig| {
        let member = rig.fleet.member("cluster38");
        let mut class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "picky"},
            "handler": "runc"});
        rig.fleet.host().apply(&class.to_string()).await?;
        class["scheduling"] = json!({"nodeSelector": {"kosmos-csi.test/runtime": "picky"}});
        member.apply(&class.to_string()).await?;
        let host = Place::new(rig.fleet.host(), "runtime-class").await?;
        let parameters = json!({"leafStorageClass": LOCAL_PATH, "leafBinding": "consumer"});
        host.class("runtime-class", "WaitForFirstConsumer", parameters, &["cluster38"]).await?;
        host.claim("data", "runtime-class").await?;
        let mut pod = tolerant("web", &["data"]);
        pod["spec"]["runtimeClassName"] = json!("picky");
        host.pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        host.warned("data", &["finds no node", "didn't match Pod's node affinity/selector"]).await?;
        member.kubectl(&["label", "node", &member.node_name(), "kosmos-csi.test/runtime=picky"]).await?;
        let volume = host.bound("data").await?;
        all_goes(rig, &host, &volume).await?;
        member.kubectl(&["label", "node", &member.node_name(), "kosmos-csi.test/runtime-"]).await?;
        for cluster in [rig.fleet.host(), member] {
            cluster.kubectl(&["delete", "runtimeclass", "picky"]).await?;
        }
        Ok(())
    });
}

#[test]
fn deferred_claim_is_bound_in_the_member_by_its_first_pod_there() {
    beside_others("binding_deferred", async |rig| {
        let host = Place::new(rig.fleet.host(), "deferred").await?;
        let parameters = json!({"leafStorageClass": LATER, "leafBinding": "deferred"});
        let volume = volume_in_38(&host, "deferred", parameters).await?;
        ensure!(host.node_of("web").await? == "kosmos-cluster38");
        ensure!(attribute(&volume, "leafVolume").is_empty() && !attribute(&volume, "leafClaimUID").is_empty());
        let leaf = Place::existing(rig.fleet.member("cluster38"), "deferred").await?;
        let phase = leaf.claims().get("data").await?.status.and_then(|status| status.phase);
        ensure!(phase.as_deref() == Some("Pending"), "nobody has used it: {phase:?}");
        leaf.run("writer", &["data"], "echo kept > /data/file").await?;
        let leaf_volume = leaf.bound("data").await?;
        all_goes(rig, &host, &volume).await?;
        leaf.volume_is_gone(&leaf_volume.name_any()).await?;
        // And one that nobody ever used.
        let volume =
            volume_in_38(&host, "deferred", json!({"leafStorageClass": LATER, "leafBinding": "deferred"})).await?;
        all_goes(rig, &host, &volume).await
    });
}

#[test]
fn node_is_written_on_the_claim_by_what_the_member_says_of_its_nodes() {
    beside_others("binding_selected_node", async |rig| {
        let member = rig.fleet.member("cluster38");
        let node = member.node_name();
        let host = Place::new(rig.fleet.host(), "selected").await?;
        let parameters = json!({"leafStorageClass": LATER, "leafBinding": "selected-node"});
        host.class("selected", "WaitForFirstConsumer", parameters.clone(), &["cluster38"]).await?;
        let key = format!("{}/node", member_driver::DRIVER);
        let capacity: CSIStorageCapacity = serde_json::from_value(json!({
            "metadata": {"name": "by-hand"}, "storageClassName": LATER, "capacity": "10Gi",
            "nodeTopology": {"matchLabels": {key: node}},
        }))?;
        let there = Api::<CSIStorageCapacity>::namespaced(member.client().await?, "kube-system");
        there.create(&PostParams::default(), &capacity).await?;
        let bound = volume_in_38(&host, "selected", parameters).await;
        there.delete("by-hand", &DeleteParams::default()).await?;
        let volume = bound?;
        let leaf = Place::existing(member, "selected").await?;
        let claim = leaf.claims().get("data").await?;
        ensure!(claim.annotations().get(SELECTED_NODE) == Some(&node), "{:?}", claim.annotations());
        all_goes(rig, &host, &volume).await
    });
}

/// Alone: pods of others that may go anywhere would go to that node too.
#[test]
fn virtual_node_of_one_member_node_gets_a_volume_on_that_node() {
    on_fleet("binding_virtual_member_node", async |rig| {
        let member = rig.fleet.member("cluster38");
        let node = member.node_name();
        let name = format!("kosmos-{node}");
        let labels = [(MEMBER_KEY, "cluster38"), (NODE_KEY, node.as_str()), ("kosmos.io/node", "true")];
        let node_id = format!("virtual/cluster38/{node}");
        let driver = NodeDriver { name: DRIVER, node_id: &node_id, topology_keys: &[MEMBER_KEY, NODE_KEY] };
        let virtual_node = rig.fleet.host().virtual_node(&name, &labels, driver).await?;
        let bound = on_member_node(rig, &name, &node).await;
        virtual_node.delete().await?;
        bound
    });
}

async fn on_member_node(rig: &Rig, virtual_node: &str, node: &str) -> Result<()> {
    let host = Place::new(rig.fleet.host(), "one-node").await?;
    host.class("one-node", "WaitForFirstConsumer", json!({"leafStorageClass": LOCAL_PATH}), &[]).await?;
    host.claim("data", "one-node").await?;
    host.tolerant_pod("web", &["data"], Some(virtual_node)).await?;
    let volume = host.bound("data").await?;
    let affinity = json!(volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref())).to_string();
    ensure!(affinity.contains(MEMBER_KEY) && affinity.contains(NODE_KEY) && affinity.contains(node), "{affinity}");
    ensure!(host.node_of("web").await? == virtual_node);
    let leaf = Place::existing(rig.fleet.member("cluster38"), "one-node").await?;
    let claim = leaf.claims().get("data").await?;
    ensure!(claim.annotations().get(SELECTED_NODE).map(String::as_str) == Some(node), "{:?}", claim.annotations());
    all_goes(rig, &host, &volume).await
}

const TWIN: &str = "twin.kosmos-csi.test";

/// What a node of objects alone lacks: node-local storage, where a volume is an object on the node that the scheduler
/// selected, and a kubelet that confirms the end of pods. A consumer may have been bound before it is deleted.
async fn play_nodes(client: kube::Client, namespace: &str, node: &str) -> Result<Infallible> {
    loop {
        provision_anywhere(&client, namespace).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
        for pod in pods.list(&here).await?.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            gone(pods.delete(&pod.name_any(), &DeleteParams::default().grace_period(0)).await)?;
        }
        sleep(Duration::from_millis(200)).await;
    }
}

async fn provision_anywhere(client: &kube::Client, namespace: &str) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    for claim in
        Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?
    {
        let unbound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_none());
        if let (true, Some(node)) = (unbound, claim.annotations().get(SELECTED_NODE)) {
            let volume = serde_json::from_value(twin_volume(&claim, node))?;
            let made = volumes.create(&PostParams::default(), &volume).await;
            ensure!(matches!(made, Ok(_) | Err(kube::Error::Api(_))), "{made:?}");
        }
    }
    for volume in volumes.list(&ListParams::default()).await? {
        let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
        if released && volume.name_any().starts_with("twin-") {
            gone(volumes.delete(&volume.name_any(), &DeleteParams::default()).await)?;
        }
    }
    Ok(())
}

/// Gone already is what is wanted: it was listed a moment ago.
fn gone<T>(deleted: kube::Result<T>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => Ok(deleted.map(drop)?),
    }
}

fn twin_volume(claim: &PersistentVolumeClaim, node: &str) -> serde_json::Value {
    let uid = claim.uid().unwrap_or_default();
    let expression = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [node]});
    json!({
        "metadata": {"name": format!("twin-{uid}"), "annotations": {"pv.kubernetes.io/provisioned-by": TWIN}},
        "spec": {
            "capacity": {"storage": "64Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "twin",
            "persistentVolumeReclaimPolicy": "Delete", "local": {"path": format!("/var/twin/{uid}")},
            "claimRef": {"namespace": claim.namespace(), "name": claim.name_any(), "uid": uid},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
        },
    })
}

/// The member's real node and one that is made of objects alone; the real scheduler chooses among them, and would do so for
/// anybody's pods.
#[test]
fn claims_of_one_pod_land_on_one_of_two_nodes() {
    on_fleet("binding_two_nodes", async |rig| {
        let member = rig.fleet.member("cluster38");
        let driver = NodeDriver { name: TWIN, node_id: "second", topology_keys: &[] };
        let second = member.virtual_node("cluster38-second", &[], driver).await?;
        let open = Patch::Merge(json!({"spec": {"taints": null}}));
        Api::<Node>::all(member.client().await?).patch(second.name(), &PatchParams::default(), &open).await?;
        let landed = Box::pin(on_two_nodes(rig, member, second.name())).await;
        second.delete().await?;
        landed
    });
}

async fn on_two_nodes(rig: &Rig, member: &Cluster, second: &str) -> Result<()> {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "twin"},
        "provisioner": TWIN, "volumeBindingMode": "WaitForFirstConsumer"});
    member.apply(&class.to_string()).await?;
    let leaf = Place::new(member, "twin").await?;
    let host = Place::new(rig.fleet.host(), "twin").await?;
    host.class("twin", "WaitForFirstConsumer", json!({"leafStorageClass": "twin"}), &["cluster38"]).await?;
    tokio::select! {
        Err(error) = play_nodes(member.client().await?, "twin", second) => Err(error.context("play the second node")),
        landed = land_together(&host, &leaf) => landed,
    }
}

/// Pods with two claims each, one after the other, until nothing of them is left.
async fn land_together(host: &Place<'_>, leaf: &Place<'_>) -> Result<()> {
    for round in 0..4 {
        let claims = ["data", "log"].map(|name| format!("{name}-{round}"));
        for claim in &claims {
            host.claim(claim, "twin").await?;
        }
        let pod = format!("web-{round}");
        host.tolerant_pod(&pod, &claims.each_ref().map(String::as_str), None).await?;
        let mut nodes = Vec::new();
        for claim in &claims {
            let volume = host.bound(claim).await?;
            ensure!(handle(&volume).starts_with("cluster38/"));
            let affinity = leaf.bound(claim).await?.spec.and_then(|spec| spec.node_affinity);
            nodes.push(json!(affinity.context("the leaf volume is on no node")?).to_string());
        }
        eprintln!("round {round}: {}", nodes[0]);
        ensure!(nodes[0] == nodes[1], "two nodes: {nodes:?}");
        host.force_delete_pod(&pod).await?;
        for claim in &claims {
            host.delete_claim(claim).await?;
        }
    }
    wait_for("all volumes are gone", PATIENCE, || async {
        let left = host.volumes().list(&ListParams::default()).await?;
        Ok(left.iter().all(|volume| !handle(volume).contains("/twin/")).then_some(()))
    })
    .await?;
    nothing_of_ours(leaf.cluster, "twin").await
}
