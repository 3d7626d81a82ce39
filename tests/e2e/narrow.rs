//! A member whose administrator gives the host rights in one namespace alone.

use anyhow::{Result, ensure};
use kube::{ResourceExt, api::DeleteParams};
use operator::objects::{ACCOUNT, PODS_ACCOUNT, own_name};
use serde_json::json;

use crate::{
    clusters::wait_for,
    objects::{Place, nothing_of_ours},
    operator_commands::{does, member_kubeconfig},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, LATER, PATIENCE, Rig, STUCK},
    snapshots::{filled, from_snapshot, ready, snapshot, snapshots},
};

const MEMBER: &str = "cluster39";
const NAMESPACE: &str = "narrow";
/// The member has it too, and the account has no rights in it.
const CLOSED: &str = "narrow-closed";

#[test]
fn account_with_rights_in_one_namespace_serves_volumes_and_snapshots_there_and_asks_for_nothing_else() {
    on_fleet("narrow", async |rig| {
        rig.leave(MEMBER).await?;
        let member = rig.fleet.member(MEMBER);
        Place::new(member, NAMESPACE).await?;
        Place::new(member, CLOSED).await?;
        let host = rig.fleet.host().identity().await?;
        // Another test may have added it whole, with an agent.
        let agents = ["delete", "clusterrolebinding", &own_name(PODS_ACCOUNT, &host), "--ignore-not-found"];
        member.kubectl(&agents).await?;
        let since = member.audit_mark().await?;
        let admin = member_kubeconfig(rig);
        does(rig, &["member", "add", MEMBER, &admin, "--volumes-only", "--namespace", NAMESPACE]).await?;
        let served = serves(rig).await;
        does(rig, &["member", "remove", MEMBER, &admin, "--force"]).await?;
        served?;
        let account = own_name(ACCOUNT, &host);
        let user = format!("system:serviceaccount:{DRIVER_NAMESPACE}:{account}");
        let asked = member.audit_since(since).await?;
        let asked: Vec<_> = asked.iter().filter(|entry| entry.user == user).collect();
        // Whether attachments came late is asked after a minute, and then four times an hour: the right may be given to any account at any moment.
        let is_late = |uri: &str| uri.starts_with("/apis/storage.k8s.io/v1/volumeattachments?");
        let wrong = asked.iter().filter(|entry| entry.forbidden && !(entry.verb == "list" && is_late(&entry.uri)));
        let wrong: Vec<_> = wrong.map(|entry| (&entry.verb, &entry.uri)).collect();
        ensure!(asked.len() > 50 && wrong.is_empty(), "denied: {wrong:#?}");
        Ok(())
    });
}

async fn serves(rig: &Rig) -> Result<()> {
    let host = Place::new(rig.fleet.host(), NAMESPACE).await?;
    host.class(NAMESPACE, "Immediate", json!({"leafStorageClass": LATER, "member": MEMBER}), &[]).await?;
    host.claim("data", NAMESPACE).await?;
    host.bound("data").await?;
    let leaf = Place::existing(rig.fleet.member(MEMBER), NAMESPACE).await?;
    leaf.run("writer", &["data"], "echo first > /data/file && sync").await?;
    snapshot(&host, "photo", "data").await?;
    ready(&snapshots(&host), "photo", "boundVolumeSnapshotContentName").await?;
    filled(&host, "restored", NAMESPACE, from_snapshot("photo")).await?;
    host.bound("restored").await?;
    leaf.run("reader", &["restored"], "test \"$(cat /restored/file)\" = first").await?;
    elsewhere(rig).await?;
    waits(&host).await?;
    let checked = does(rig, &["member", "check", MEMBER]).await?;
    ensure!(checked.contains("made in narrow alone") && !checked.contains("FAILED"), "{checked}");
    let traced = does(rig, &["trace", "narrow/data"]).await?;
    ensure!(traced.contains("leaf volume"), "{traced}");
    snapshots(&host).delete("photo", &DeleteParams::default()).await?;
    for name in ["data", "restored"] {
        let volume = host.bound(name).await?.name_any();
        host.delete_claim(name).await?;
        host.volume_is_gone(&volume).await?;
    }
    nothing_of_ours(rig.fleet.member(MEMBER), NAMESPACE).await
}

/// He is told what the member says of it.
async fn waits(host: &Place<'_>) -> Result<()> {
    host.class("narrow-stuck", "Immediate", json!({"leafStorageClass": STUCK, "member": MEMBER}), &[]).await?;
    host.claim("stuck", "narrow-stuck").await?;
    wait_for("what waits in the member is told", PATIENCE, || async {
        Ok((host.told("LeafPending").await? > 0).then_some(()))
    })
    .await?;
    host.delete_claim("stuck").await
}

/// The user is told where the member is open to him, and what its administrator types.
async fn elsewhere(rig: &Rig) -> Result<()> {
    let host = Place::new(rig.fleet.host(), CLOSED).await?;
    host.claim("data", NAMESPACE).await?;
    let words = ["closed to namespace narrow-closed", "rights in narrow alone", "--namespace narrow-closed"];
    host.warned("data", &words).await?;
    let leaf = Place::existing(rig.fleet.member(MEMBER), CLOSED).await?;
    ensure!(leaf.claims().get_opt("data").await?.is_none(), "nothing is made there");
    host.delete_claim("data").await
}
