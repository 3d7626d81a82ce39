//! An operator's commands on real clusters, as processes of the fleet: a member that joins by them serves volumes, what its
//! account lacks is named, and an orphan is found and removed.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    objects::{Place, nothing_of_ours},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, NOW, PATIENCE, PODS_NAMESPACE, Rig},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_kosmos-csi");
const MEMBER: &str = "cluster39";
/// Of the doctor: no leaf is too young.
const AT_ONCE: [&str; 2] = ["--older-than=0s", "--interval=1s"];

/// What a command printed, and its exit code.
struct Said {
    code: Option<i32>,
    text: String,
}

/// Types a command in the fleet, where all clusters are reached by the addresses that pods use.
async fn typed(rig: &Rig, words: &[&str]) -> Result<Said> {
    static COMMANDS: AtomicUsize = AtomicUsize::new(0);
    let host = format!("--kubeconfig={}", rig.fleet.host().kubeconfig_inside().display());
    let arguments = if words[0] == "release" { words.to_vec() } else { [words, &[host.as_str()]].concat() };
    let name = format!("operator-{}", COMMANDS.fetch_add(1, Ordering::Relaxed));
    let process = rig.fleet.spawn(&name, PROGRAM, &arguments, &[])?;
    let ended = process.wait(PATIENCE).await.with_context(|| words.join(" "))?;
    Ok(Said { code: ended.code, text: process.log()? })
}

pub async fn does(rig: &Rig, words: &[&str]) -> Result<String> {
    let said = typed(rig, words).await?;
    ensure!(said.code == Some(0), "{words:?}: {:?}: {}", said.code, said.text);
    Ok(said.text)
}

/// It ends with 1, and says all of this.
pub async fn refuses(rig: &Rig, words: &[&str], expected: &[&str]) -> Result<()> {
    let said = typed(rig, words).await?;
    ensure!(said.code == Some(1), "{words:?}: {:?}: {}", said.code, said.text);
    ensure!(expected.iter().all(|word| said.text.contains(word)), "{expected:?} in: {}", said.text);
    Ok(())
}

pub fn member_kubeconfig(rig: &Rig) -> String {
    format!("--member-kubeconfig={}", rig.fleet.member(MEMBER).kubeconfig_inside().display())
}

async fn secret_of(rig: &Rig) -> Result<Option<Secret>> {
    let secrets: Api<Secret> = Api::namespaced(rig.fleet.host().client().await?, DRIVER_NAMESPACE);
    Ok(secrets.get_opt(MEMBER).await?)
}

/// What in the member is for the fleet's host alone.
async fn of_this_host(rig: &Rig) -> Result<String> {
    Ok(format!("kosmos.csi.io/host={}", rig.fleet.host().identity().await?))
}

/// The member's account and rights, as if they had never been made.
async fn without_account(rig: &Rig) -> Result<()> {
    let member = rig.fleet.member(MEMBER);
    let kinds = "clusterrolebinding,clusterrole,rolebinding,role,serviceaccount,validatingadmissionpolicybinding,\
        validatingadmissionpolicy";
    let names = [
        "kosmos-csi",
        "kosmos-csi-attachments",
        "kosmos-csi-classes",
        "kosmos-csi-token",
        "kosmos-csi-tokens",
        "kosmos-csi-virtual-node",
        "kosmos-csi-virtual-node-secrets",
        "kosmos-csi-virtual-node-token",
    ];
    let delete = ["delete", kinds, "-n", "kosmos-csi", "--ignore-not-found"];
    member.kubectl(&[&delete[..], &names[..]].concat()).await?;
    let own = "clusterrolebinding,rolebinding,role,serviceaccount";
    let of_host = of_this_host(rig).await?;
    member.kubectl(&["delete", own, "-n", "kosmos-csi", "-l", &of_host]).await?;
    member.kubectl(&["delete", "secret", "-n", "kosmos-csi", "-l", &of_host]).await.map(drop)
}

/// A volume is made there, and removed again.
async fn serves(rig: &Rig, name: &str) -> Result<()> {
    let host = Place::new(rig.fleet.host(), name).await?;
    let parameters = json!({"leafStorageClass": NOW, "member": MEMBER});
    host.class(name, "Immediate", parameters, &[MEMBER]).await?;
    host.claim("data", name).await?;
    let volume = host.bound("data").await?.name_any();
    let said = does(rig, &["trace", &format!("{name}/data")]).await?;
    ensure!(said.contains("leaf volume") && said.contains(&volume), "{said}");
    ensure!(does(rig, &["trace", &format!("pv/{volume}"), "-o", "name"]).await?.contains(&volume), "{said}");
    let listed = does(rig, &["get", "volumes", "-n", name, "--member", MEMBER, "-o", "name"]).await?;
    ensure!(listed.trim() == format!("persistentvolume/{volume}"), "{listed}");
    closed_and_opened(rig).await?;
    refuses(rig, &["member", "remove", MEMBER], &["one volume of the host", &volume]).await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume).await?;
    nothing_of_ours(rig.fleet.member(MEMBER), &host.namespace).await
}

async fn closed_and_opened(rig: &Rig) -> Result<()> {
    for (word, cordoned) in [("cordon", true), ("uncordon", false)] {
        does(rig, &["member", word, MEMBER]).await?;
        let members: Value = serde_json::from_str(&does(rig, &["get", "members", "-o", "json"]).await?)?;
        let found = members["items"].as_array().and_then(|all| all.iter().find(|one| one["name"] == MEMBER));
        ensure!(found.is_some_and(|one| one["cordoned"] == cordoned && one["answers"] == true), "{members:#}");
    }
    Ok(())
}

#[test]
fn member_that_an_operator_adds_serves_volumes_until_he_removes_it() {
    on_fleet("operator_member", async |rig| {
        let done = added_and_removed(rig).await;
        rig.fleet.member(MEMBER).apply(include_str!("../../deploy/member.yaml")).await?;
        done
    });
}

async fn added_and_removed(rig: &Rig) -> Result<()> {
    rig.leave(MEMBER).await?;
    without_account(rig).await?;
    // As the chart brings it.
    Place::new(rig.fleet.host(), PODS_NAMESPACE).await?;
    let admin = member_kubeconfig(rig);
    let add = ["member", "add", MEMBER, &admin];
    let first = does(rig, &add).await?;
    ensure!(first.matches(" made\n").count() == 24, "accounts, policies, roles, bindings and Secrets: {first}");
    let again = does(rig, &add).await?;
    ensure!(again.matches(" unchanged\n").count() == 23 && again.contains(" renewed\n"), "{again}");
    ensure!(!first.contains("eyJ") && !again.contains("eyJ"), "a token is printed");
    serves(rig, "operator-member").await?;
    let checked = does(rig, &["member", "check", MEMBER]).await?;
    ensure!(!checked.contains("FAILED"), "{checked}");
    let listed = does(rig, &["member", "list"]).await?;
    ensure!(listed.contains(MEMBER) && listed.contains("cluster38"), "{listed}");
    lacks_a_right(rig, &add).await?;
    let removed = does(rig, &["member", "remove", MEMBER, &admin]).await?;
    ensure!(removed.contains("removed") && secret_of(rig).await?.is_none(), "{removed}");
    let member = rig.fleet.member(MEMBER);
    let own = "clusterrolebinding,rolebinding,role,serviceaccount,secret";
    let left = member.kubectl(&["get", own, "-n", "kosmos-csi", "-l", &of_this_host(rig).await?, "-o", "name"]).await?;
    ensure!(left.is_empty(), "{left}");
    does(rig, &add).await.map(drop)
}

/// A right is taken away: the check names it, and adding the member again gives it back.
async fn lacks_a_right(rig: &Rig, add: &[&str]) -> Result<()> {
    let member = rig.fleet.member(MEMBER);
    let cut = r#"[{"op": "replace", "path": "/rules/1/verbs", "value": ["get", "list", "watch"]}]"#;
    member.kubectl(&["patch", "clusterrole", "kosmos-csi", "--type=json", "-p", cut]).await?;
    let check = ["member", "check", MEMBER];
    wait_for("the right is gone", PATIENCE, || async { Ok((typed(rig, &check).await?.code == Some(1)).then_some(())) })
        .await?;
    refuses(rig, &check, &["FAILED", "patch persistentvolumes"]).await?;
    // Somebody else wrote the rules last: they are his until he gives them back.
    refuses(rig, add, &["ClusterRole kosmos-csi"]).await?;
    let whole = r#"[{"op": "replace", "path": "/rules/1/verbs", "value": ["get", "list", "watch", "patch"]}]"#;
    member.kubectl(&["patch", "clusterrole", "kosmos-csi", "--type=json", "-p", whole]).await?;
    does(rig, add).await.map(drop)
}

#[test]
fn orphan_is_found_by_two_looks_and_removed_with_its_data_kept() {
    on_fleet("operator_doctor", async |rig| {
        let host = Place::new(rig.fleet.host(), "operator-doctor").await?;
        let class = "operator-doctor";
        host.class(class, "Immediate", json!({"leafStorageClass": NOW, "member": MEMBER}), &[MEMBER]).await?;
        let well = [&["doctor"], &AT_ONCE[..]].concat();
        finds_nothing_about(rig, &well, class).await?;
        let orphan = plant(rig, &host, class).await?;
        let name = format!("leaf:{MEMBER}/operator-doctor/planted");
        refuses(rig, &well, &[&name]).await?;
        let remove = [&["doctor", "remove", name.as_str()], &AT_ONCE[..]].concat();
        let member = Place::existing(rig.fleet.member(MEMBER), "operator-doctor").await?;
        let planned = does(rig, &[&remove[..], &["--dry-run"]].concat()).await?;
        ensure!(
            planned.contains("would be removed") && member.claims().get_opt("planted").await?.is_some(),
            "{planned}"
        );
        does(rig, &remove).await?;
        member.claim_is_gone("planted").await?;
        let volume = member.volumes().get(&orphan).await?;
        let spec = volume.spec.context("a volume without a spec")?;
        ensure!(spec.persistent_volume_reclaim_policy.as_deref() == Some("Retain"), "its data is not kept");
        refuses(rig, &well, &[&format!("kept:{MEMBER}/{orphan}")]).await?;
        clear(&member, &orphan).await?;
        finds_nothing_about(rig, &well, class).await?;
        finds_nothing_about(rig, &well, &orphan).await
    });
}

/// Other tests' classes, and tokens of a day, may be told of.
async fn finds_nothing_about(rig: &Rig, doctor: &[&str], what: &str) -> Result<()> {
    let said = typed(rig, doctor).await?.text;
    let found = said.lines().any(|line| line.split(' ').next().is_some_and(|finding| finding.contains(what)));
    ensure!(!found && said.contains("Compared twice"), "{said}");
    Ok(())
}

/// A leaf as the driver makes them, whose host volume and claim are gone: its volume's name.
async fn plant(rig: &Rig, host: &Place<'_>, class: &str) -> Result<String> {
    host.claim("pattern", class).await?;
    let pattern = host.bound("pattern").await?.name_any();
    let member = Place::existing(rig.fleet.member(MEMBER), &host.namespace).await?;
    let mut leaf: Value = serde_json::to_value(member.claims().get("pattern").await?)?;
    let uid = "ad86ef86-23c1-407e-a8e7-0b3e44d36254";
    leaf["metadata"] = json!({
        "name": "planted", "labels": leaf["metadata"]["labels"], "finalizers": ["kosmos.csi.io/protect"],
        "annotations": {"kosmos.csi.io/name": format!("pvc-{uid}"), "kosmos.csi.io/claim-uid": uid},
    });
    leaf["metadata"]["labels"]["kosmos.csi.io/volume"] = json!("0123456789abcdef0123456789abcdef");
    leaf["spec"]["volumeName"] = Value::Null;
    leaf["status"] = Value::Null;
    member.claims().create(&kube::api::PostParams::default(), &serde_json::from_value(leaf)?).await?;
    let volume = wait_for("the planted leaf is bound", PATIENCE, || async {
        let claim = member.claims().get("planted").await?;
        let bound = claim.status.and_then(|status| status.phase).as_deref() == Some("Bound");
        Ok(claim.spec.and_then(|spec| spec.volume_name).filter(|_| bound))
    })
    .await?;
    let labels = json!({"metadata": {"labels": member.claims().get("planted").await?.labels()}});
    member.volumes().patch(&volume, &PatchParams::default(), &Patch::Merge(labels)).await?;
    host.delete_claim("pattern").await?;
    host.volume_is_gone(&pattern).await?;
    Ok(volume)
}

/// As a person does who wants none of it.
async fn clear(member: &Place<'_>, volume: &str) -> Result<()> {
    let delete = json!({"spec": {"persistentVolumeReclaimPolicy": "Delete"}});
    member.volumes().patch(volume, &PatchParams::default(), &Patch::Merge(delete)).await?;
    wait_for("the planted volume is gone", Duration::from_secs(30), || async {
        Ok(member.volumes().get_opt(volume).await?.is_none().then_some(()))
    })
    .await
}
