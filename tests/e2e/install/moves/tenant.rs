//! A user who may move the claims of his namespace reaches nothing else by that: not another namespace's claim, not a member that his class
//! leaves out, not what the driver writes down.

use std::{fs, path::Path};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{CLAIM, FIRST, MOVED, NAMESPACE, USER, object, other_than};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::volumes::GROWING,
};

/// Of somebody else.
const OTHER: &str = "moving-others";
const THEIRS: &str = "theirs";
/// A claim of the user's own, and its class, which is for this member.
const CONFINED: &str = "confined";
const MEMBER: &str = "cluster38";

/// After some moves of his, which are there still. `user` names his kubeconfig.
pub(super) async fn user_reaches_nothing_but_his_own(fleet: &Fleet, user: &str) -> Result<()> {
    let host = fleet.host();
    host.apply(&objects()).await?;
    for (namespace, claim) in [(OTHER, THEIRS), (NAMESPACE, CONFINED)] {
        let claim = format!("pvc/{claim}");
        let bound = ["-n", namespace, "wait", &claim, "--for=jsonpath={.status.phase}=Bound", "--timeout=90s"];
        host.kubectl(&bound).await?;
    }
    let before = volumes(host).await?;
    let folder = tempfile::tempdir()?;
    refused_by_the_api_server(fleet, user, folder.path()).await?;
    refused_by_the_driver(fleet, user, folder.path()).await?;
    let after = volumes(host).await?;
    ensure!(after == before, "the volumes were {before:?}, and are {after:?}");
    for (namespace, claim) in [(OTHER, THEIRS), (NAMESPACE, CONFINED)] {
        host.kubectl(&["-n", namespace, "delete", "pvc", claim, "--timeout=90s"]).await?;
    }
    wait_for("their volumes are gone", MOVED, || async {
        let left = host.kubectl(&["get", "pv", "-o", "jsonpath={.items[*].spec.claimRef.name}"]).await?;
        ensure!(![THEIRS, CONFINED].iter().any(|claim| left.contains(claim)), "{left}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["delete", "storageclass", CONFINED]).await?;
    host.kubectl(&["delete", "namespace", OTHER, "--timeout=90s"]).await.map(drop)
}

/// Claims of both, and the right to change moves, which the command needs for some words.
fn objects() -> String {
    let claim = |namespace: &str, name: &str| {
        json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": namespace}, "spec": {
            "storageClassName": CONFINED, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "64Mi"}}}})
    };
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CONFINED},
        "provisioner": "kosmos.csi.io", "volumeBindingMode": "Immediate", "parameters": {"leafStorageClass": GROWING, "member": MEMBER}});
    let authorization = "rbac.authorization.k8s.io";
    let changes = json!({"name": "changes-moves", "namespace": NAMESPACE});
    // kubectl reads what it patches.
    let rules = json!([
        {"apiGroups": ["kosmos.csi.io"], "resources": ["volumemoves"], "verbs": ["patch"]},
        {"apiGroups": ["kosmos.csi.io"], "resources": ["volumemoves/status"], "verbs": ["get"]},
    ]);
    let items = json!([
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER}},
        class,
        claim(OTHER, THEIRS),
        claim(NAMESPACE, CONFINED),
        {"apiVersion": format!("{authorization}/v1"), "kind": "Role", "metadata": changes, "rules": rules},
        {"apiVersion": format!("{authorization}/v1"), "kind": "RoleBinding", "metadata": changes,
            "roleRef": {"apiGroup": authorization, "kind": "Role", "name": "changes-moves"},
            "subjects": [{"kind": "ServiceAccount", "name": USER, "namespace": NAMESPACE}]},
    ]);
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

/// Of all claims that are about: UIDs, handles and members.
async fn volumes(host: &Cluster) -> Result<Vec<String>> {
    let mut volumes = Vec::new();
    for (namespace, claim) in [(OTHER, THEIRS), (NAMESPACE, CONFINED), (NAMESPACE, CLAIM)] {
        let path = "jsonpath={.metadata.uid} {.status.phase} {.spec.volumeName}";
        let claim = host.kubectl(&["-n", namespace, "get", "pvc", claim, "-o", path]).await?;
        let volume = claim.split_whitespace().nth(2).context("the claim has a volume")?;
        let path = "jsonpath={.metadata.uid} {.status.phase} {.spec.csi.volumeHandle}";
        volumes.push(format!("{claim} {}", host.kubectl(&["get", "pv", volume, "-o", path]).await?));
    }
    Ok(volumes)
}

async fn as_user(fleet: &Fleet, user: &str, words: &[&str]) -> Result<String> {
    let kubectl = fleet.tools().path("kubectl").display().to_string();
    fleet.exec(&kubectl, &[&[user], words].concat()).await
}

/// What kubectl reads.
fn written(folder: &Path, of: &Value) -> Result<String> {
    let file = folder.join("move.json");
    fs::write(&file, of.to_string()).context("write a move")?;
    Ok(file.display().to_string())
}

async fn refused_by_the_api_server(fleet: &Fleet, user: &str, folder: &Path) -> Result<()> {
    let mut elsewhere = object("theirs", THEIRS, "cluster39");
    elsewhere["metadata"]["namespace"] = json!(OTHER);
    let elsewhere = written(folder, &elsewhere)?;
    let merge = |patch: &'static str| ["-n", NAMESPACE, "patch", "volumemove", FIRST, "--type=merge", "-p", patch];
    let switching = merge(r#"{"status":{"phase":"Switching"}}"#);
    let tries: [(&[&str], &str); 6] = [
        (&[&switching[..], &["--subresource=status"]].concat(), r#"cannot patch resource "volumemoves/status""#),
        (&merge(r#"{"spec":{"claimName":"confined"}}"#), "only approved and deleteSourceAfter can be changed"),
        (&["create", "-f", &elsewhere], r#"cannot create resource "volumemoves""#),
        (&["-n", NAMESPACE, "get", "pvc", CLAIM], r#"cannot get resource "persistentvolumeclaims""#),
        (&["-n", OTHER, "get", "pvc", THEIRS], r#"cannot get resource "persistentvolumeclaims""#),
        (&["get", "pv"], r#"cannot list resource "persistentvolumes""#),
    ];
    for (words, why) in tries {
        match as_user(fleet, user, words).await {
            Ok(told) => bail!("{words:?} is not refused: {told}"),
            Err(error) => ensure!(format!("{error:#}").contains(why), "{error:#}"),
        }
    }
    Ok(())
}

async fn refused_by_the_driver(fleet: &Fleet, user: &str, folder: &Path) -> Result<()> {
    let above = format!("../../{OTHER}/persistentvolumeclaims/{THEIRS}");
    let within = format!("{OTHER}/{THEIRS}");
    let no_name = "is not the name of a claim: name one in the namespace of the VolumeMove";
    let tries = [
        (format!("../{THEIRS}"), no_name),
        (above, no_name),
        (within, no_name),
        (THEIRS.to_owned(), "is not there"),
        (CONFINED.to_owned(), "does not let its volumes be in member cluster39"),
    ];
    let host = fleet.host();
    for (number, (claim, why)) in tries.iter().enumerate() {
        let name = format!("not-{number}");
        let file = written(folder, &object(&name, claim, other_than(MEMBER)))?;
        as_user(fleet, user, &["create", "-f", &file]).await?;
        wait_for(&format!("the move of {claim:?} is refused"), MOVED, || async {
            let path = "jsonpath={.status.phase} {.status.conditions[*].message}";
            let told = host.kubectl(&["-n", NAMESPACE, "get", "volumemove", &name, "-o", path]).await?;
            ensure!(told.starts_with("Refused ") && told.contains(why), "{told}");
            Ok(Some(()))
        })
        .await?;
        host.kubectl(&["-n", NAMESPACE, "delete", "volumemove", &name, "--timeout=60s"]).await?;
    }
    Ok(())
}
