//! What happens to a volume while it lives, with the real resizer and attacher in the host, and the member's own behind its
//! driver.

use std::{collections::HashMap, time::Duration};

use anyhow::{Context, Result, ensure};
use csi::{
    client::{Client, Code},
    v1::{
        ControllerPublishVolumeRequest, VolumeCapability,
        volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    },
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    attributes,
    clusters::{Cluster, member_driver, wait_for},
    objects::{Place, handle, nothing_of_ours},
    pool::beside_others,
    rig::{DRIVER, NOW, PATIENCE, Rig},
};

const MEMBER: &str = "cluster38";

/// A claim bound to a volume in the member, used by a pod on its virtual node.
async fn used<'a>(rig: &'a Rig, namespace: &str) -> Result<(Place<'a>, Place<'a>)> {
    let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
    let host = Place::new(rig.fleet.host(), namespace).await?;
    host.class(namespace, "WaitForFirstConsumer", json!({"leafStorageClass": NOW}), &[MEMBER]).await?;
    host.claim("data", namespace).await?;
    host.tolerant_pod("web", &["data"], None).await?;
    host.bound("data").await?;
    Ok((host, member))
}

async fn end(host: &Place<'_>, member: &Cluster) -> Result<()> {
    let volume = host.bound("data").await?.name_any();
    host.force_delete_pod("web").await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume).await?;
    nothing_of_ours(member, &host.namespace).await
}

async fn merge(place: &Place<'_>, change: Value) -> Result<()> {
    place.claims().patch("data", &PatchParams::default(), &Patch::Merge(change)).await?;
    Ok(())
}

/// Waits until the claim's status is as it should be.
async fn status(place: &Place<'_>, what: &str, holds: impl Fn(&Value) -> bool) -> Result<()> {
    let what = format!("the claim in {} {what}", place.cluster.name());
    wait_for(&what, PATIENCE, || async {
        let claim = serde_json::to_value(place.claims().get("data").await?)?;
        ensure!(holds(&claim["status"]), "its status is {}", claim["status"]);
        Ok(Some(()))
    })
    .await
}

#[test]
fn claim_that_asks_for_more_gets_it_with_its_filesystem() {
    beside_others("expansion", async |rig| {
        let (host, member) = used(rig, "expansion").await?;
        merge(&host, json!({"spec": {"resources": {"requests": {"storage": "128Mi"}}}})).await?;
        host.warned("data", &["filesystem grows once a pod there uses it"]).await?;
        let size = |size: &'static str| move |status: &Value| status["capacity"]["storage"] == *size;
        ensure!(size("64Mi")(&serde_json::to_value(host.claims().get("data").await?)?["status"]), "not yet");
        // The copy of the host's pod, which a mount makes the filesystem grow for.
        member.run("copy", &["data"], "test $(df -k /data | awk 'END {print $2}') -gt 100000").await?;
        status(&member, "has grown", size("128Mi")).await?;
        status(&host, "has grown", size("128Mi")).await?;
        let volume = host.bound("data").await?;
        let capacity = volume.spec.and_then(|spec| spec.capacity).context("a volume has a capacity")?;
        ensure!(capacity["storage"].0 == "128Mi", "the host's volume says {capacity:?}");
        end(&host, member.cluster).await
    });
}

#[test]
fn claim_gets_another_volume_attributes_class() {
    beside_others("attributes", async |rig| {
        let (host, member) = used(rig, "attributes").await?;
        member.cluster.apply(&attributes::attributes_class("gold", member_driver::DRIVER).to_string()).await?;
        let class = |name: &str, leaf: &str| {
            json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttributesClass", "metadata": {"name": name},
                "driverName": DRIVER, "parameters": {"leafVolumeAttributesClass": leaf},
            })
        };
        host.cluster.apply(&class("nowhere", "not-there").to_string()).await?;
        host.cluster.apply(&class("quick", "gold").to_string()).await?;
        merge(&host, json!({"spec": {"volumeAttributesClassName": "nowhere"}})).await?;
        host.warned("data", &["has no VolumeAttributesClass", "not-there"]).await?;
        merge(&host, json!({"spec": {"volumeAttributesClassName": "quick"}})).await?;
        let current = |class: &'static str| move |status: &Value| status["currentVolumeAttributesClassName"] == *class;
        status(&host, "has the class", current("quick")).await?;
        status(&member, "has the class", current("gold")).await?;
        host.class("born", "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        let born = json!({
            "metadata": {"name": "born"},
            "spec": {"storageClassName": "born", "accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "quick",
                "resources": {"requests": {"storage": "64Mi"}}},
        });
        host.claims().create(&PostParams::default(), &serde_json::from_value(born)?).await?;
        let volume = host.bound("born").await?.name_any();
        let leaf = member.claims().get("born").await?.spec.and_then(|spec| spec.volume_attributes_class_name);
        ensure!(leaf.as_deref() == Some("gold"), "{leaf:?}");
        host.delete_claim("born").await?;
        host.volume_is_gone(&volume).await?;
        end(&host, member.cluster).await
    });
}

/// More than two looks of the driver.
const FORGOTTEN: Duration = Duration::from_mins(5);

/// As where it has failed to attach it, and the pod has gone before it tried again.
#[test]
fn volume_goes_though_the_attach_controller_does_not_know_that_it_is_attached() {
    beside_others("forgotten", async |rig| {
        let (host, member) = used(rig, "forgotten").await?;
        let volume = host.bound("data").await?.name_any();
        host.force_delete_pod("web").await?;
        let attachments: Api<VolumeAttachment> = Api::all(host.client.clone());
        let forgotten = json!({"metadata": {"name": "forgotten"}, "spec": {
            "attacher": DRIVER, "nodeName": format!("kosmos-{MEMBER}"), "source": {"persistentVolumeName": volume}}});
        attachments.create(&PostParams::default(), &serde_json::from_value(forgotten)?).await?;
        wait_for("it is attached", PATIENCE, || async {
            let is_attached = attachments.get("forgotten").await?.status.is_some_and(|status| status.attached);
            Ok(is_attached.then_some(()))
        })
        .await?;
        host.delete_claim("data").await?;
        wait_for("the volume is gone", FORGOTTEN, || async {
            Ok(host.volumes().get_opt(&volume).await?.is_none().then_some(()))
        })
        .await?;
        ensure!(attachments.get_opt("forgotten").await?.is_none(), "its attachment is there");
        nothing_of_ours(member.cluster, "forgotten").await
    });
}

#[test]
fn volume_is_attached_to_its_virtual_node_and_to_no_other() {
    beside_others("attachment", async |rig| {
        let (host, member) = used(rig, "attachment").await?;
        let volume = host.bound("data").await?;
        let attachments: Api<VolumeAttachment> = Api::all(host.client.clone());
        let of_volume = async || -> Result<Option<VolumeAttachment>> {
            let all = attachments.list(&ListParams::default()).await?;
            let name = Some(volume.name_any());
            Ok(all.into_iter().find(|one| one.spec.source.persistent_volume_name == name))
        };
        wait_for("the volume is attached", PATIENCE, || async {
            let found = of_volume().await?.context("there is no VolumeAttachment")?;
            ensure!(found.spec.node_name == "kosmos-cluster38", "to {}", found.spec.node_name);
            Ok(found.status.is_some_and(|status| status.attached).then_some(()))
        })
        .await?;
        let driver = Client::new(&rig.driver.socket).map_err(anyhow::Error::msg)?;
        let elsewhere = publish(&handle(&volume), "virtual/cluster38/another");
        let refusal = driver.publish_volume(elsewhere, PATIENCE).await.err().context("it was published twice")?;
        ensure!(refusal.code == Code::FailedPrecondition && refusal.message.contains("virtual/cluster38"), "{refusal}");
        let other = driver.publish_volume(publish(&handle(&volume), "virtual/cluster39"), PATIENCE).await;
        ensure!(other.is_err_and(|refusal| refusal.code == Code::FailedPrecondition), "a node of another member");
        host.force_delete_pod("web").await?;
        wait_for("the volume is detached", PATIENCE, || async { Ok(of_volume().await?.is_none().then_some(())) })
            .await?;
        let leaf = member.claims().get("data").await?;
        ensure!(!leaf.annotations().contains_key("kosmos.csi.io/published"), "it is on no node");
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(member.cluster, &host.namespace).await
    });
}

fn publish(volume: &str, node: &str) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: volume.to_owned(),
        node_id: node.to_owned(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
        }),
        volume_context: HashMap::new(),
        ..ControllerPublishVolumeRequest::default()
    }
}
