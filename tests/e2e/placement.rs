//! A volume goes to one member, all the way through the real components, and leaves no trace when it goes.

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use serde_json::json;

use crate::{
    clusters::{Cluster, wait_for},
    objects::{Place, attribute, handle, nothing_of_ours, ours},
    pool::beside_others,
    rig::{LATER, LOCAL_PATH, MEMBER_KEY, MEMBERS, NOW, PATIENCE, Rig},
};

/// From a host claim and a pod to data in the member and back to nothing. Returns the member that was chosen.
async fn whole_life(rig: &Rig, namespace: &str, leaf_class: &str, node: Option<&str>) -> Result<String> {
    let host = Place::new(rig.fleet.host(), namespace).await?;
    let class = format!("waits-{leaf_class}");
    host.class(&class, "WaitForFirstConsumer", json!({"leafStorageClass": leaf_class}), &MEMBERS).await?;
    host.claim("data", &class).await?;
    host.tolerant_pod("web", &["data"], node).await?;

    let volume = host.bound("data").await?;
    let chosen = host.node_of("web").await?;
    let member = chosen.strip_prefix("kosmos-").context("the pod is not on a virtual node")?.to_owned();
    let leaf = Place::existing(rig.fleet.member(&member), namespace).await?;
    let leaf_volume = leaf.bound("data").await?;
    let leaf_claim = leaf.claims().get("data").await?;

    let hash = leaf_claim.labels()["kosmos.csi.io/volume"].clone();
    ensure!(handle(&volume) == format!("{member}/{namespace}/data/{}", &hash[..16]), "handle {}", handle(&volume));
    ensure!(leaf_volume.labels()["kosmos.csi.io/volume"] == hash, "the leaf volume carries the label");
    ensure!(attribute(&volume, "leafVolume") == leaf_volume.name_any());
    ensure!(attribute(&volume, "leafClaimUID") == leaf_claim.uid().unwrap());
    ensure!(attribute(&volume, "leafVolumeHandle") == handle(&leaf_volume), "the leaf volume's own handle");
    let affinity = json!(volume.spec.as_ref().unwrap().node_affinity).to_string();
    ensure!(affinity.contains(MEMBER_KEY) && affinity.contains(&member), "affinity {affinity}");
    ensure!(!leaf_claim.labels().contains_key("app"), "labels of the host claim are not copied");
    ensure!(!leaf_claim.annotations().contains_key("note"), "annotations of the host claim are not copied");
    let pods = leaf.pods().list(&kube::api::ListParams::default()).await?;
    ensure!(pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some()), "the consumer pod was removed");
    for other in MEMBERS.iter().filter(|name| **name != member) {
        ensure!(ours(rig.fleet.member(other), namespace).await?.is_empty(), "nothing was made in {other}");
    }

    leaf.run("writer", &["data"], "echo kept > /data/file && sync").await?;
    // The storage knows the volume by its handle, where it has one.
    let storage_name = match handle(&leaf_volume) {
        unset if unset.is_empty() => leaf_volume.name_any(),
        handle => handle,
    };
    ensure!(stored(leaf.cluster, &storage_name, leaf_class)?, "the file is in the member's storage");

    host.force_delete_pod("web").await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    nothing_of_ours(leaf.cluster, namespace).await?;
    leaf.volume_is_gone(&leaf_volume.name_any()).await?;
    wait_for("the data is gone", PATIENCE, || async {
        Ok((!stored(leaf.cluster, &storage_name, leaf_class)?).then_some(()))
    })
    .await?;
    Ok(member)
}

/// Whether the member's storage still has something of a volume.
fn stored(member: &Cluster, volume: &str, leaf_class: &str) -> Result<bool> {
    if leaf_class == LOCAL_PATH {
        let folders = std::fs::read_dir(member.local_path_folder())?;
        let mut folders = folders.flatten().filter(|folder| folder.file_name().to_string_lossy().contains(volume));
        return Ok(folders.any(|folder| folder.path().join("file").exists()));
    }
    let mut folders = vec![member.member_driver_folder().join("state")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)?.flatten() {
            if entry.file_name().to_string_lossy().contains(volume) {
                return Ok(true);
            }
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(false)
}

#[test]
fn node_local_storage_is_provisioned_where_the_stock_scheduler_puts_the_pod() {
    beside_others("node_local_storage", async |rig| whole_life(rig, "local-path", LOCAL_PATH, None).await.map(drop));
}

#[test]
fn csi_storage_that_waits_for_a_pod_is_provisioned_where_the_scheduler_puts_the_pod() {
    beside_others("csi_storage_later", async |rig| whole_life(rig, "csi-later", LATER, None).await.map(drop));
}

#[test]
fn csi_storage_without_delay_is_provisioned_where_the_scheduler_puts_the_pod() {
    beside_others("csi_storage_now", async |rig| whole_life(rig, "csi-now", NOW, None).await.map(drop));
}

#[test]
fn node_affinity_of_the_pod_decides_the_member() {
    beside_others("node_affinity", async |rig| {
        for member in MEMBERS {
            let namespace = format!("affinity-{member}");
            let chosen = whole_life(rig, &namespace, LOCAL_PATH, Some(&format!("kosmos-{member}"))).await?;
            ensure!(chosen == member, "the volume went to {chosen}");
        }
        Ok(())
    });
}

#[test]
fn immediate_class_goes_to_the_member_it_names() {
    beside_others("immediate_named", async |rig| {
        let host = Place::new(rig.fleet.host(), "immediate-named").await?;
        host.class("in-39", "Immediate", json!({"leafStorageClass": NOW, "member": "cluster39"}), &[]).await?;
        host.claim("data", "in-39").await?;
        let volume = host.bound("data").await?;
        ensure!(handle(&volume).starts_with("cluster39/"), "handle {}", handle(&volume));
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(rig.fleet.member("cluster39"), "immediate-named").await
    });
}

#[test]
fn immediate_class_without_a_wish_goes_to_one_member_and_its_pod_follows() {
    beside_others("immediate_anywhere", async |rig| {
        let host = Place::new(rig.fleet.host(), "immediate-anywhere").await?;
        host.class("anywhere-now", "Immediate", json!({"leafStorageClass": NOW}), &[]).await?;
        host.claim("data", "anywhere-now").await?;
        let volume = host.bound("data").await?;
        let member = handle(&volume).split('/').next().unwrap_or_default().to_owned();
        host.tolerant_pod("web", &["data"], None).await?;
        ensure!(host.node_of("web").await? == format!("kosmos-{member}"), "the pod follows its volume");
        host.force_delete_pod("web").await?;
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(rig.fleet.member(&member), "immediate-anywhere").await
    });
}

#[test]
fn missing_namespace_is_made_with_our_labels_and_stays() {
    beside_others("missing_namespace", async |rig| {
        let host = Place::new(rig.fleet.host(), "fresh").await?;
        host.class("in-38", "Immediate", json!({"leafStorageClass": NOW, "member": "cluster38"}), &[]).await?;
        host.claim("data", "in-38").await?;
        let volume = host.bound("data").await?;
        let member = rig.fleet.member("cluster38");
        let labelled = ["get", "namespace", "fresh", "-o", "jsonpath={.metadata.labels}"];
        let labels = member.kubectl(&labelled).await?;
        ensure!(labels.contains("app.kubernetes.io/managed-by") && labels.contains("kosmos.csi.io/host"), "{labels}");
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(member, "fresh").await?;
        ensure!(member.kubectl(&["get", "namespace", "fresh", "-o", "jsonpath={.status.phase}"]).await? == "Active");
        Ok(())
    });
}
