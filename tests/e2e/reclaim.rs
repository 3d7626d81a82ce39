//! The table of `docs/reclaim.md` on real clusters, all cells side by side, and a volume that is released and used again.

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::{member_driver::storage_class, wait_for},
    objects::{Place, nothing_of_ours},
    pool::beside_others,
    reclaim_table::{Cell, cells},
    rig::{DRIVER, NOW, PATIENCE, Rig},
};

const MEMBER: &str = "cluster38";
/// The member's class whose volumes are retained.
const KEPT: &str = "now-kept";
/// The finalizer of external-provisioner.
const PROVISIONER_HOLDS: &str = "external-provisioner.volume.kubernetes.io/finalizer";

fn policy_of(volume: &PersistentVolume) -> &str {
    volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref()).unwrap_or_default()
}

fn phase_of(volume: &PersistentVolume) -> &str {
    if volume.metadata.deletion_timestamp.is_some() {
        return "Terminating";
    }
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub async fn set_policy(place: &Place<'_>, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}});
    place.volumes().patch(volume, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// A released volume becomes that of a claim with this name, in this namespace.
pub async fn give(host: &Place<'_>, volume: &str, class: &str, claim: &str) -> Result<()> {
    let give = json!([{"op": "replace", "path": "/spec/claimRef",
        "value": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": host.namespace, "name": claim}}]);
    let give: Patch<Value> = Patch::Json(serde_json::from_value(give)?);
    host.volumes().patch(volume, &PatchParams::default(), &give).await?;
    let claim = json!({
        "metadata": {"name": claim},
        "spec": {"storageClassName": class, "volumeName": volume, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}}},
    });
    host.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    Ok(())
}

/// Classes of the host for both policies and both leaf classes; nobody's pod is waited for.
async fn classes(rig: &Rig, names: &str) -> Result<()> {
    let mut kept = storage_class(KEPT, "Immediate", &json!({}));
    kept["reclaimPolicy"] = json!("Retain");
    rig.fleet.member(MEMBER).apply(&kept.to_string()).await?;
    for policy in ["Delete", "Retain"] {
        for (leaf_policy, leaf_class) in [("Delete", NOW), ("Retain", KEPT)] {
            let class = json!({
                "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
                "metadata": {"name": format!("{names}-{}-{}", policy.to_lowercase(), leaf_policy.to_lowercase())},
                "provisioner": DRIVER, "volumeBindingMode": "Immediate", "reclaimPolicy": policy,
                "parameters": {"leafStorageClass": leaf_class, "member": MEMBER},
            });
            rig.fleet.host().apply(&class.to_string()).await?;
        }
    }
    Ok(())
}

/// A volume that is deleted before that goes without anybody being asked to remove what is behind it.
async fn provisioner_holds(host: &Place<'_>, volume: &str) -> Result<()> {
    wait_for(&format!("the provisioner's finalizer is on {volume}"), PATIENCE, || async {
        let held = host.volumes().get(volume).await?.finalizers().contains(&PROVISIONER_HOLDS.to_owned());
        Ok(held.then_some(()))
    })
    .await
}

/// One cell from beginning to end; what is not as the page says.
async fn play(rig: &Rig, namespace: &str, names: &str, at: usize, cell: &Cell) -> Result<Option<String>> {
    let host = Place::existing(rig.fleet.host(), namespace).await?;
    let member = Place::existing(rig.fleet.member(MEMBER), namespace).await?;
    let (claim, policies) = (format!("cell-{at}"), (cell.policy.to_lowercase(), cell.leaf_class.to_lowercase()));
    host.claim(&claim, &format!("{names}-{}-{}", policies.0, policies.1)).await?;
    let volume = host.bound(&claim).await?.name_any();
    let leaf = member.claims().get(&claim).await?;
    let leaf_volume = leaf.spec.as_ref().and_then(|spec| spec.volume_name.clone()).context("the leaf is bound")?;
    let mut policy = cell.policy.clone();
    if let Some(patched) = cell.patched.strip_prefix("to ") {
        set_policy(&host, &volume, patched).await?;
        patched.clone_into(&mut policy);
    }
    let retains = if policy == "Retain" { "Retain" } else { &cell.leaf_class };
    wait_for(&format!("{claim}: the leaf volume is {retains}"), PATIENCE, || async {
        let volume = member.volumes().get(&leaf_volume).await?;
        // What it was before is kept there: the driver has seen what the host wants.
        let seen = volume.annotations().contains_key("kosmos.csi.io/policy-before") == (policy == "Retain");
        Ok((seen && policy_of(&volume) == retains).then_some(()))
    })
    .await?;
    if policy == "Delete" {
        provisioner_holds(&host, &volume).await?;
    }
    match cell.first.as_str() {
        "host claim" => host.delete_claim(&claim).await?,
        "host volume, then its claim" => {
            host.volumes().delete(&volume, &DeleteParams::default()).await?;
            host.delete_claim(&claim).await?;
        }
        "leaf claim" => drop(member.claims().delete(&claim, &DeleteParams::default()).await?),
        _ => drop(member.volumes().delete(&leaf_volume, &DeleteParams::default()).await?),
    }
    let before = leaf.uid();
    let mut last = [String::new(), String::new(), String::new(), String::new()];
    let look = async || -> Result<[String; 4]> {
        let host_volume = host.volumes().get_opt(&volume).await?;
        let leaf_claim = member.claims().get_opt(&claim).await?;
        let leaf_volume = member.volumes().get_opt(&leaf_volume).await?;
        let how = |claim: Option<String>| if claim == before { "as it was" } else { "recreated" };
        let is_bound = leaf_claim.as_ref().and_then(|claim| claim.status.as_ref()?.phase.as_deref()) == Some("Bound");
        let told = leaf_claim.map(|claim| if is_bound { how(claim.uid()) } else { "not bound" });
        let data = if leaf_volume.is_some() { "kept" } else { "gone" };
        Ok([
            host_volume.as_ref().map_or("gone", phase_of).to_owned(),
            told.unwrap_or("gone").to_owned(),
            leaf_volume
                .map_or_else(|| "gone".to_owned(), |volume| format!("{}, {}", phase_of(&volume), policy_of(&volume))),
            data.to_owned(),
        ])
    };
    for _ in 0..180 {
        last = look().await?;
        if last == cell.ends {
            return Ok(None);
        }
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    Ok(Some(format!("{cell:?}: seen {last:?}")))
}

#[test]
fn every_cell_of_the_table_is_as_the_page_says() {
    beside_others("reclaim_table", async |rig| {
        let namespace = "reclaim-table";
        Place::new(rig.fleet.host(), namespace).await?;
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        classes(rig, namespace).await?;
        let cells = cells();
        let played =
            try_join_all(cells.iter().enumerate().map(|(at, cell)| play(rig, namespace, namespace, at, cell))).await?;
        let wrong: Vec<String> = played.into_iter().flatten().collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        clean_up(rig, &member).await
    });
}

/// The administrators of both clusters want nothing of it any more.
async fn clean_up(rig: &Rig, member: &Place<'_>) -> Result<()> {
    let host = Place::existing(rig.fleet.host(), &member.namespace).await?;
    let here = |volume: &PersistentVolume| {
        let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        claim.and_then(|claim| claim.namespace.as_deref()) == Some(host.namespace.as_str())
    };
    for volume in host.volumes().list(&ListParams::default()).await?.iter().filter(|volume| here(volume)) {
        set_policy(&host, &volume.name_any(), "Delete").await?;
    }
    for claim in host.claims().list(&ListParams::default()).await? {
        host.delete_claim(&claim.name_any()).await?;
    }
    wait_for("the host has none of them", PATIENCE, || async {
        let left = host.volumes().list(&ListParams::default()).await?;
        Ok((!left.iter().any(here)).then_some(()))
    })
    .await?;
    for volume in member.volumes().list(&ListParams::default()).await?.iter().filter(|volume| here(volume)) {
        set_policy(member, &volume.name_any(), "Delete").await?;
    }
    nothing_of_ours(member.cluster, &member.namespace).await
}

#[test]
fn released_volume_is_used_again_with_its_data_under_another_name() {
    beside_others("reclaim_again", async |rig| {
        let (namespace, other) = ("reclaim-again", "reclaim-elsewhere");
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let host = Place::new(rig.fleet.host(), namespace).await?;
        // The member has no such namespace yet.
        let elsewhere = Place::new(rig.fleet.host(), other).await?;
        classes(rig, namespace).await?;
        let class = format!("{namespace}-retain-delete");
        host.claim("data", &class).await?;
        let volume = host.bound("data").await?.name_any();
        member.run("writer", &["data"], "echo kept > /data/file && sync").await?;
        host.delete_claim("data").await?;
        member.claim_is_gone("data").await?;

        give(&elsewhere, &volume, &class, "again").await?;
        elsewhere.bound("again").await?;
        let member_elsewhere = Place::existing(rig.fleet.member(MEMBER), other).await?;
        wait_for("its leaf claim is there", PATIENCE, || async {
            let leaf = member_elsewhere.claims().get_opt("again").await?;
            Ok((leaf.and_then(|leaf| leaf.status?.phase).as_deref() == Some("Bound")).then_some(()))
        })
        .await?;
        member_elsewhere
            .run("reader", &["again"], "grep -qx kept /again/file")
            .await
            .context("the data is not there")?;

        set_policy(&host, &volume, "Delete").await?;
        elsewhere.delete_claim("again").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(rig.fleet.member(MEMBER), other).await
    });
}
