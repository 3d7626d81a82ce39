//! What stands in the way in a member is told to the user who waits, and left as it is.

use anyhow::ensure;
use kube::ResourceExt;
use serde_json::json;

use crate::{
    objects::{Place, nothing_of_ours},
    rig::{NOW, on_fleet},
};

#[test]
fn claim_of_the_wanted_name_that_is_not_ours_is_refused_and_untouched() {
    on_fleet("foreign_claim", async |rig| {
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
    on_fleet("missing_class", async |rig| {
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
    on_fleet("unknown_parameter", async |rig| {
        let host = Place::new(rig.fleet.host(), "unknown-parameter").await?;
        host.class("odd", "Immediate", json!({"leafClass": NOW}), &[]).await?;
        host.claim("data", "odd").await?;
        host.warned("data", &["leafClass", "leafStorageClass"]).await?;
        host.delete_claim("data").await
    });
}
