//! A leaf volume that people of the member make free, as many a guide tells. The member's own controller binds it to the next claim of
//! its class, which is the leaf of another volume.

use anyhow::{Context, Result, ensure};
use kube::{
    ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::{member_driver::storage_class, wait_for},
    objects::{Place, nothing_of_ours},
    pool::beside_others,
    reclaim::{give, set_policy},
    rig::{DRIVER, PATIENCE, Rig},
};

const MEMBER: &str = "cluster38";
/// In both clusters. Claims of others must not be bound to what is free.
const CLASS: &str = "freed";

async fn classes(rig: &Rig) -> Result<()> {
    rig.fleet.member(MEMBER).apply(&storage_class(CLASS, "Immediate", &json!({})).to_string()).await?;
    let class = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": DRIVER, "volumeBindingMode": "Immediate", "reclaimPolicy": "Retain",
        "parameters": {"leafStorageClass": CLASS, "member": MEMBER},
    });
    rig.fleet.host().apply(&class.to_string()).await
}

async fn change(member: &Place<'_>, volume: &str, operation: Value) -> Result<()> {
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(json!([operation]))?);
    member.volumes().patch(volume, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn volume_of(member: &Place<'_>, claim: &str) -> Result<String> {
    wait_for(&format!("leaf claim {claim} names a volume"), PATIENCE, || async {
        let leaf = member.claims().get_opt(claim).await?;
        Ok(leaf.and_then(|leaf| leaf.spec?.volume_name).filter(|name| !name.is_empty()))
    })
    .await
}

#[test]
fn volume_that_is_free_in_the_member_is_not_handed_to_the_next_claim_and_has_its_data_when_it_is_put_back() {
    beside_others("reclaim_freed", async |rig| {
        let namespace = "reclaim-freed";
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let host = Place::new(rig.fleet.host(), namespace).await?;
        classes(rig).await?;
        host.claim("data", CLASS).await?;
        let volume = host.bound("data").await?.name_any();
        let leaf_volume = volume_of(&member, "data").await?;
        member.run("writer", &["data"], "echo kept > /data/file && sync").await?;
        host.delete_claim("data").await?;
        member.claim_is_gone("data").await?;

        let before = member.volumes().get(&leaf_volume).await?;
        let was = before.spec.as_ref().and_then(|spec| spec.claim_ref.clone()).context("it was bound")?;
        change(&member, &leaf_volume, json!({"op": "remove", "path": "/spec/claimRef"})).await?;
        wait_for("the member offers it", PATIENCE, || async {
            let status = member.volumes().get(&leaf_volume).await?.status;
            Ok((status.and_then(|status| status.phase).as_deref() == Some("Available")).then_some(()))
        })
        .await?;
        host.claim("next", CLASS).await?;
        ensure!(volume_of(&member, "next").await? == leaf_volume, "the member has bound it to another volume");
        let told = host.warned("next", &["stood free there", &leaf_volume]).await?;
        ensure!(told.contains("Delete the claim and make it again"), "{told}");
        host.delete_claim("next").await?;
        member.claim_is_gone("next").await?;
        let after = member.volumes().get(&leaf_volume).await?;
        ensure!(after.labels() == before.labels(), "{:?} became {:?}", before.labels(), after.labels());

        let back = json!({"op": "add", "path": "/spec/claimRef", "value": was});
        change(&member, &leaf_volume, back).await?;
        give(&host, &volume, CLASS, "data").await?;
        host.bound("data").await?;
        ensure!(volume_of(&member, "data").await? == leaf_volume, "its leaf claim names another volume");
        member.run("reader", &["data"], "grep -qx kept /data/file").await.context("the data is not there")?;

        set_policy(&host, &volume, "Delete").await?;
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(member.cluster, namespace).await
    });
}
