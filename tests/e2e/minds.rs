//! People who change their minds while a removal waits, and backups that are restored: what is theirs stays as it was.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    ResourceExt,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    objects::{Place, handle, nothing_of_ours, pod},
    pool::{beside_others, on_fleet},
    reasons::abandoned,
    reclaim::{give, set_policy},
    rig::{MEMBERS, NOW, PATIENCE, Rig},
};

const MEMBER: &str = MEMBERS[0];

/// How a removal that waits for a pod in the member is called off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CalledOff {
    /// The volume becomes `Retain`, and the pod is ended, or ended by force.
    ByHand,
    ByForce,
    /// And it is given to another claim before the pod ends.
    UsedAgain,
}

impl CalledOff {
    fn claim(self) -> &'static str {
        match self {
            Self::ByHand => "by-hand",
            Self::ByForce => "by-force",
            Self::UsedAgain => "used-again",
        }
    }
}

/// Somebody in the member uses the leaf claim.
async fn use_in_member(member: &Place<'_>, claim: &str) -> Result<()> {
    let user = pod(claim, &[claim], "sleep 1000");
    member.pods().create(&PostParams::default(), &serde_json::from_value(user)?).await?;
    wait_for(&format!("{claim}: the member's own pod runs"), PATIENCE, || async {
        let phase = member.pods().get(claim).await?.status.and_then(|status| status.phase);
        Ok((phase.as_deref() == Some("Running")).then_some(()))
    })
    .await
}

async fn call_off(host: &Place<'_>, member: &Place<'_>, class: &str, how: CalledOff) -> Result<()> {
    let (claim, again) = (how.claim(), format!("{}-again", how.claim()));
    host.claim(claim, class).await?;
    let volume = host.bound(claim).await?.name_any();
    let leaf_volume = member.bound(claim).await?.name_any();
    member.run(&format!("{claim}-writer"), &[claim], &format!("echo kept > /{claim}/file && sync")).await?;
    use_in_member(member, claim).await?;
    host.delete_claim(claim).await?;
    wait_for(&format!("{claim}: the removal waits for the pod"), PATIENCE, || async {
        let leaf = member.claims().get(claim).await?;
        Ok(leaf.metadata.deletion_timestamp.map(drop))
    })
    .await?;
    set_policy(host, &volume, "Retain").await?;
    wait_for(&format!("{claim}: the leaf volume is kept"), PATIENCE, || async {
        let policy =
            member.volumes().get(&leaf_volume).await?.spec.and_then(|spec| spec.persistent_volume_reclaim_policy);
        Ok((policy.as_deref() == Some("Retain")).then_some(()))
    })
    .await?;
    if how == CalledOff::UsedAgain {
        give(host, &volume, class, &again).await?;
        host.bound(&again).await?;
    }
    let end = if how == CalledOff::ByForce { DeleteParams::default().grace_period(0) } else { DeleteParams::default() };
    member.pods().delete(claim, &end).await?;
    member.claim_is_gone(claim).await?;
    if how != CalledOff::UsedAgain {
        give(host, &volume, class, &again).await?;
        host.bound(&again).await?;
    }
    let leaf = member_bound(member, &again).await?;
    ensure!(leaf == leaf_volume, "{claim}: its data was in {leaf_volume}, and its leaf volume is {leaf}");
    let read = format!("grep -qx kept /{again}/file");
    member.run(&format!("{claim}-reader"), &[&again], &read).await.context("the data is not there")?;
    set_policy(host, &volume, "Delete").await?;
    host.delete_claim(&again).await?;
    host.volume_is_gone(&volume).await
}

/// The leaf volume of a leaf claim that is recreated.
async fn member_bound(member: &Place<'_>, claim: &str) -> Result<String> {
    wait_for(&format!("leaf claim {claim} is there again"), PATIENCE, || async {
        let leaf = member.claims().get_opt(claim).await?;
        let bound =
            leaf.filter(|leaf| leaf.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"));
        Ok(bound.and_then(|leaf| leaf.spec?.volume_name))
    })
    .await
}

#[test]
fn removal_that_is_called_off_while_it_waits_keeps_the_data_however_the_pod_ends() {
    beside_others("called_off", async |rig| {
        let namespace = "called-off";
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        host.class(namespace, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        let ways = [CalledOff::ByHand, CalledOff::ByForce, CalledOff::UsedAgain];
        try_join_all(ways.map(|how| call_off(&host, &member, namespace, how))).await?;
        nothing_of_ours(member.cluster, namespace).await
    });
}

/// As backup tools make it: labels and annotations come along, finalizers do not.
fn restored(leaf: &PersistentVolumeClaim, name: &str) -> Result<PersistentVolumeClaim> {
    let mut spec = json!(leaf.spec);
    spec.as_object_mut().context("a claim has a spec")?.remove("volumeName");
    let metadata = json!({"name": name, "labels": leaf.labels(), "annotations": notes(leaf)});
    Ok(serde_json::from_value(json!({"metadata": metadata, "spec": spec}))?)
}

/// What says how it was bound goes.
fn notes(leaf: &PersistentVolumeClaim) -> Value {
    let bond = |key: &str| key.starts_with("pv.kubernetes.io/") || key.starts_with("volume.");
    json!(leaf.annotations().iter().filter(|(key, _)| !bond(key)).collect::<std::collections::BTreeMap<_, _>>())
}

/// The leaf claim is deleted by somebody, and there again.
async fn healed(member: &Place<'_>) -> Result<PersistentVolumeClaim> {
    let before = member.claims().get("data").await?;
    member.claims().delete("data", &DeleteParams::default()).await?;
    wait_for("the leaf claim is there again", PATIENCE, || async {
        let now = member.claims().get_opt("data").await?.filter(|now| now.uid() != before.uid());
        Ok(now.filter(|now| now.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")))
    })
    .await
}

async fn copy(place: &Place<'_>, leaf: &PersistentVolumeClaim, name: &str) -> Result<PersistentVolumeClaim> {
    let made = place.claims().create(&PostParams::default(), &restored(leaf, name)?).await?;
    ensure!(made.annotations().contains_key("kosmos.csi.io/former"), "it was not healed: {made:?}");
    place.bound(name).await?;
    Ok(made)
}

#[test]
fn restored_copies_of_a_leaf_that_was_healed_stay_in_the_same_another_namespace_and_another_member() {
    beside_others("restored_copies", async |rig| {
        let namespace = "restored";
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        let elsewhere = Place::new(rig.fleet.member(MEMBER), "restored-elsewhere").await?;
        let other = Place::new(rig.fleet.member(MEMBERS[1]), namespace).await?;
        host.class(namespace, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        host.claim("data", namespace).await?;
        let volume = host.bound("data").await?.name_any();
        member.bound("data").await?;
        let leaf = healed(&member).await?;
        let copies = [(&member, "copy"), (&elsewhere, "data"), (&other, "data")];
        let made = try_join_all(copies.map(|(place, name)| copy(place, &leaf, name))).await?;
        // Whoever heals once more has looked at all of them.
        healed(&member).await?;
        for ((place, name), made) in copies.into_iter().zip(&made) {
            let now = place.claims().get(name).await.with_context(|| format!("copy {name}"))?;
            let same = now.uid() == made.uid() && now.labels() == made.labels();
            ensure!(same && now.metadata.deletion_timestamp.is_none(), "it was {made:?} and is {now:?}");
        }
        for (place, name) in copies {
            place.delete_claim(name).await?;
            place.claim_is_gone(name).await?;
        }
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(member.cluster, namespace).await
    });
}

#[test]
fn claim_that_is_restored_with_our_annotations_after_its_member_is_lost_lands_in_another_member() {
    on_fleet("restored_elsewhere", async |rig| {
        let namespace = "restored-claim";
        let host = Place::new(rig.fleet.host(), namespace).await?;
        host.class(namespace, "Immediate", json!({"leafStorageClass": NOW}), &[]).await?;
        let (lost, left) = (MEMBERS[0], MEMBERS[1]);
        rig.fleet.member(lost).stop_api_server().await?;
        is_down(rig, lost).await?;
        let claim = json!({
            "metadata": {"name": "data", "annotations": {
                "kosmos.csi.io/member": lost, "kosmos.csi.io/member-of": "00000000-0000-4000-8000-000000000000",
            }},
            "spec": {"storageClassName": namespace, "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "64Mi"}}},
        });
        let claim = host.claims().create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        let volume = host.bound("data").await?;
        ensure!(handle(&volume).starts_with(&format!("{left}/")), "it is {}", handle(&volume));
        let record = host.claims().get("data").await?;
        let says = |key: &str| record.annotations().get(key).cloned();
        ensure!(says("kosmos.csi.io/member").as_deref() == Some(left), "{record:?}");
        ensure!(says("kosmos.csi.io/member-of") == claim.uid(), "{record:?}");
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume.name_any()).await?;
        nothing_of_ours(rig.fleet.member(left), namespace).await?;
        rig.return_of(lost).await
    });
}

/// The driver is sure by then that nobody asks any more.
const SURE: Duration = Duration::from_mins(20);

#[test]
#[ignore = "takes a quarter of an hour: make faults-real"]
fn leaf_that_a_killed_provisioner_has_forgotten_goes_by_itself_and_its_name_is_free() {
    on_fleet("forgotten_leaf", async |rig| {
        let (namespace, waits) = ("forgotten-leaf", "forgotten-leaf-waits");
        let host = Place::new(rig.fleet.host(), namespace).await?;
        let member = Place::new(rig.fleet.member(MEMBER), namespace).await?;
        abandoned(rig).await?;
        host.class(waits, "Immediate", json!({"leafStorageClass": "abandoned", "member": MEMBER}), &[]).await?;
        host.class(namespace, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[]).await?;
        host.claim("data", waits).await?;
        let leaf =
            wait_for("the leaf claim is there", PATIENCE, || async { Ok(member.claims().get_opt("data").await?) });
        let uid = leaf.await?.uid();
        rig.fleet.member(MEMBER).stop_api_server().await?;
        // Driver and provisioner share a pod, and the provisioner knows in its memory alone what it was at.
        rig.driver.kill().await?;
        host.delete_claim("data").await?;
        host.claim_is_gone("data").await?;
        rig.driver.ensure(&rig.fleet).await?;
        rig.return_of(MEMBER).await?;
        ensure!(member.claims().get("data").await?.uid() == uid, "it is there still");
        wait_for("the leaf claim goes by itself", SURE, || async {
            Ok(member.claims().get_opt("data").await?.is_none().then_some(()))
        })
        .await?;
        nothing_of_ours(member.cluster, namespace).await?;
        host.claim("data", namespace).await?;
        let volume = host.bound("data").await?.name_any();
        host.delete_claim("data").await?;
        host.volume_is_gone(&volume).await?;
        nothing_of_ours(member.cluster, namespace).await
    });
}

async fn is_down(rig: &Rig, member: &str) -> Result<()> {
    wait_for(&format!("{member} is known to be down"), PATIENCE, || async {
        let line = format!("kosmos_csi_member_up{{member=\"{member}\"}} 0");
        Ok(rig.driver.metrics().await?.contains(&line).then_some(()))
    })
    .await
}
