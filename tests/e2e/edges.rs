//! What stands in the way in a member is told to the user who waits, and left as it is.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    objects::{Place, nothing_of_ours},
    pool::beside_others,
    rig::{NOW, Rig},
};

#[test]
fn claim_of_the_wanted_name_that_is_not_ours_is_refused_and_untouched() {
    beside_others("foreign_claim", async |rig| {
        let host = Place::new(rig.fleet.host(), "foreign").await?;
        let member = Place::new(rig.fleet.member("cluster38"), "foreign").await?;
        let theirs = member.claim("data", NOW).await?;
        host.class("named-38", "Immediate", json!({"leafStorageClass": NOW, "member": "cluster38"}), &[]).await?;
        host.claim("data", "named-38").await?;
        let said = host.warned("data", &["foreign/data", "left untouched"]).await?;
        ensure!(said.contains("cluster38") && said.contains("not by this driver"), "whose it is: {said}");
        host.delete_claim("data").await?;
        host.claim_is_gone("data").await?;
        let still = member.claims().get("data").await?;
        ensure!(still.uid() == theirs.uid() && still.metadata.deletion_timestamp.is_none());
        ensure!(!still.labels().contains_key("kosmos.csi.io/volume"), "it got no label of ours");
        member.delete_claim("data").await?;
        member.claim_is_gone("data").await
    });
}

#[test]
fn leaf_class_that_does_not_exist_is_named_with_those_that_do() {
    beside_others("missing_class", async |rig| {
        let host = Place::new(rig.fleet.host(), "missing-class").await?;
        let parameters = json!({"leafStorageClass": "platinum", "member": "cluster38"});
        host.class("platinum-38", "Immediate", parameters, &[]).await?;
        host.claim("data", "platinum-38").await?;
        host.warned("data", &["cluster38", "platinum", NOW]).await?;
        host.delete_claim("data").await?;
        host.claim_is_gone("data").await?;
        nothing_of_ours(rig.fleet.member("cluster38"), &host.namespace).await
    });
}

#[test]
fn unknown_parameter_is_named() {
    beside_others("unknown_parameter", async |rig| {
        let host = Place::new(rig.fleet.host(), "unknown-parameter").await?;
        host.class("odd", "Immediate", json!({"leafClass": NOW}), &[]).await?;
        host.claim("data", "odd").await?;
        host.warned("data", &["leafClass", "leafStorageClass"]).await?;
        host.delete_claim("data").await
    });
}

/// A bound volume in cluster38 and its leaf claim there.
async fn volume_in_38(rig: &Rig, host: &Place<'_>) -> Result<(String, PersistentVolumeClaim)> {
    let parameters = json!({"leafStorageClass": NOW, "member": "cluster38"});
    host.class("edge-38", "Immediate", parameters, &[]).await?;
    host.claim("data", "edge-38").await?;
    let volume = host.bound("data").await?.name_any();
    let leaf = Place::existing(rig.fleet.member("cluster38"), &host.namespace).await?;
    Ok((volume, leaf.claims().get("data").await?))
}

#[test]
fn copy_of_a_leaf_claim_with_its_labels_is_never_deleted_for_it() {
    beside_others("copied_claim", async |rig| {
        let host = Place::new(rig.fleet.host(), "copied").await?;
        let (volume, leaf) = volume_in_38(rig, &host).await?;
        let member = Place::existing(rig.fleet.member("cluster38"), "copied").await?;
        let mut copy = leaf.clone();
        copy.metadata.name = Some("a-copy".to_owned());
        (copy.metadata.uid, copy.metadata.resource_version, copy.status) = (None, None, None);
        (copy.metadata.creation_timestamp, copy.metadata.managed_fields, copy.metadata.finalizers) = (None, None, None);
        copy.spec.as_mut().unwrap().volume_name = None;
        let copy = member.claims().create(&PostParams::default(), &copy).await?;
        // Listed again, the copy comes first by name.
        rig.driver.kill().await?;
        rig.driver.ensure(&rig.fleet).await?;
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        member.claim_is_gone("data").await?;
        let still = member.claims().get("a-copy").await?;
        ensure!(still.uid() == copy.uid() && still.metadata.deletion_timestamp.is_none(), "the copy was deleted");
        member.delete_claim("a-copy").await?;
        member.claim_is_gone("a-copy").await
    });
}

#[test]
fn leaf_whose_labels_were_stripped_is_kept_until_they_are_back() {
    beside_others("stripped_labels", async |rig| {
        let host = Place::new(rig.fleet.host(), "stripped").await?;
        let (volume, leaf) = volume_in_38(rig, &host).await?;
        let member = Place::existing(rig.fleet.member("cluster38"), "stripped").await?;
        let relabel = async |value: serde_json::Value| {
            let change = json!({"metadata": {"labels": value}});
            member.claims().patch("data", &PatchParams::default(), &Patch::Merge(change)).await
        };
        relabel(
            json!({"app.kubernetes.io/managed-by": null, "kosmos.csi.io/host": null, "kosmos.csi.io/volume": null}),
        )
        .await?;
        host.delete_claim("data").await?;
        rig.event_of_volume(&volume, "labels were removed").await?;
        ensure!(member.claims().get("data").await?.metadata.deletion_timestamp.is_none(), "it was deleted");
        relabel(json!(leaf.labels())).await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(rig.fleet.member("cluster38"), "stripped").await
    });
}
