//! Leaves that somebody in the member deletes, and claims that were there before the driver.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    clusters::wait_for,
    objects::{Place, nothing_of_ours},
    pool::beside_others,
    rig::{DRIVER, NOW, PATIENCE, Rig},
};

const MEMBER: &str = "cluster38";

#[test]
fn leaf_that_somebody_deletes_is_there_again_with_its_data() {
    beside_others("healing", async |rig| {
        let namespace = "healed";
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let host = Place::new(rig.fleet.host(), namespace).await?;
        host.class("healed", "WaitForFirstConsumer", json!({"leafStorageClass": NOW}), &[MEMBER]).await?;
        host.claim("data", "healed").await?;
        host.tolerant_pod("web", &["data"], None).await?;
        let volume = host.bound("data").await?;
        member.run("writer", &["data"], "echo kept > /data/file && sync").await?;
        let before = member.claims().get("data").await?;

        let began = Instant::now();
        member.claims().delete("data", &DeleteParams::default()).await?;
        wait_for("the leaf claim is there again", PATIENCE, || async {
            let now = member.claims().get_opt("data").await?.filter(|now| now.uid() != before.uid());
            let bound = now.and_then(|now| now.status?.phase).as_deref() == Some("Bound");
            Ok(bound.then_some(()))
        })
        .await?;
        // The member's controller looks by itself after 15 s.
        ensure!(began.elapsed() < Duration::from_secs(10), "it was bound after {:?}", began.elapsed());
        println!("bound again after {:?}", began.elapsed());
        member.run("reader", &["data"], "grep -qx kept /data/file").await.context("the data is not there")?;
        let after = member.claims().get("data").await?;
        ensure!(before.spec == after.spec, "it was {:?} and is {:?}", before.spec, after.spec);
        let leaf_volume = member.bound("data").await?;
        wait_for("the policy of before is back", PATIENCE, || async {
            let spec = member.volumes().get(&leaf_volume.name_any()).await?.spec;
            let policy = spec.and_then(|spec| spec.persistent_volume_reclaim_policy);
            Ok((policy.as_deref() == Some("Delete")).then_some(()))
        })
        .await?;
        rig.event_of_volume(&volume.name_any(), "recreates it").await?;

        host.force_delete_pod("web").await?;
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(member.cluster, namespace).await
    });
}

/// A claim of the member's own, and a host volume and claim for it, made by hand.
async fn imported<'a>(rig: &'a Rig, namespace: &str, leaf_policy: &str) -> Result<(Place<'a>, Place<'a>)> {
    let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
    member.claim("ledger", NOW).await?;
    let leaf_volume = member.bound("ledger").await?.name_any();
    let policy = json!({"spec": {"persistentVolumeReclaimPolicy": leaf_policy}});
    member.volumes().patch(&leaf_volume, &PatchParams::default(), &Patch::Merge(policy)).await?;
    let host = import(rig, &member).await?;
    Ok((member, host))
}

/// Consent to the member's claim `ledger`, and a host volume and claim of it, made by hand.
pub async fn import<'a>(rig: &'a Rig, member: &Place<'_>) -> Result<Place<'a>> {
    let host = Place::new(rig.fleet.host(), &member.namespace).await?;
    let namespace = member.namespace.as_str();
    let consent = json!({"metadata": {"annotations": {"kosmos.csi.io/consent": host.host_id().await?}}});
    member.claims().patch("ledger", &PatchParams::default(), &Patch::Merge(consent)).await?;
    let volume = json!({
        "metadata": {"name": namespace, "annotations": {"pv.kubernetes.io/provisioned-by": DRIVER}},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "64Mi"}, "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete",
            "csi": {"driver": DRIVER, "volumeHandle": format!("{MEMBER}/{namespace}/ledger/{}", "0".repeat(16))},
        },
    });
    host.volumes().create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
    let claim = json!({
        "metadata": {"name": "ledger"},
        "spec": {
            "storageClassName": "", "volumeName": namespace, "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}},
        },
    });
    host.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
    host.bound("ledger").await?;
    Ok(host)
}

#[test]
fn imported_claim_goes_with_its_host_volume_where_both_policies_say_so() {
    beside_others("imported_deleted", async |rig| {
        let (member, host) = imported(rig, "imported-deleted", "Delete").await?;
        host.delete_claim("ledger").await?;
        host.volume_is_gone("imported-deleted").await?;
        ensure!(member.claims().get_opt("ledger").await?.is_none(), "the leaf claim is there");
        Ok(())
    });
}

#[test]
fn imported_claim_stays_where_its_own_volume_is_retained() {
    beside_others("imported_kept", async |rig| {
        let (member, host) = imported(rig, "imported-kept", "Retain").await?;
        host.delete_claim("ledger").await?;
        host.volume_is_gone("imported-kept").await?;
        let kept = member.claims().get("ledger").await?;
        let ours = kept.labels().keys().any(|key| key.starts_with("kosmos.csi.io/"));
        ensure!(!ours && kept.metadata.deletion_timestamp.is_none(), "{kept:?}");
        Ok(())
    });
}
