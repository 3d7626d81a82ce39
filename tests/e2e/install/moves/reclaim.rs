//! Volumes that have moved go with their claims, or stay, as the page says of any other whose claim or volume somebody deletes in the host.

use anyhow::{Context, Result, ensure};
use domain::volume::moving::Phase;
use futures::future::try_join_all;
use serde_json::{Value, json};

use super::{MOVED, NAMESPACE, begin, big::reached, discard_all, many::claim_of, object, other_than};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::volumes::until,
    reclaim_table::{Cell, cells},
};

/// What external-provisioner puts on a volume that is to be removed.
const HOLDS: &str = "external-provisioner.volume.kubernetes.io/finalizer";
const POLICIES: [&str; 2] = ["Delete", "Retain"];

/// One that is in another member by now.
struct Moved<'a> {
    cell: &'a Cell,
    claim: String,
    host: &'a Cluster,
    to: &'a Cluster,
    volume: String,
    leaf: String,
}

pub async fn moved_volumes_go_or_stay(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    begin(fleet).await?;
    // The class of both members says Delete.
    let is_meant = |cell: &Cell| cell.leaf_class == "Delete" && cell.first.starts_with("host ");
    let cells: Vec<Cell> = cells().into_iter().filter(is_meant).collect();
    ensure!(cells.len() == 8, "there are {} cells", cells.len());
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    let claims = cells.iter().enumerate().map(|(at, cell)| claim_of(&name(at), &class_of(&cell.policy), "64Mi"));
    let items: Vec<Value> = [namespace].into_iter().chain(POLICIES.map(class)).chain(claims).collect();
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    let moved = try_join_all(cells.iter().enumerate().map(|(at, cell)| moved(fleet, name(at), cell))).await?;
    try_join_all(moved.iter().map(Moved::ends_as_the_page_says)).await?;
    try_join_all(moved.iter().map(Moved::is_removed)).await?;
    discard_all(fleet).await?;
    for policy in POLICIES {
        host.kubectl(&["delete", "storageclass", &class_of(policy)]).await?;
    }
    host.kubectl(&["delete", "namespace", NAMESPACE, "--timeout=90s"]).await.map(drop)
}

fn name(at: usize) -> String {
    format!("cell-{at}")
}

fn class_of(policy: &str) -> String {
    format!("moved-{}", policy.to_lowercase())
}

fn class(policy: &str) -> Value {
    json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": class_of(policy)},
        "provisioner": "kosmos.csi.io", "volumeBindingMode": "Immediate", "reclaimPolicy": policy,
        "parameters": {"leafStorageClass": "openebs-hostpath"}})
}

async fn volume_of(cluster: &Cluster, claim: &str) -> Result<String> {
    cluster.kubectl(&["-n", NAMESPACE, "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}"]).await
}

async fn moved<'a>(fleet: &'a Fleet, claim: String, cell: &'a Cell) -> Result<Moved<'a>> {
    let host = fleet.host();
    until(host, NAMESPACE, &format!("pvc/{claim}"), "--for=jsonpath={.status.phase}=Bound").await?;
    let volume = volume_of(host, &claim).await?;
    let handle = host.kubectl(&["get", "pv", &volume, "-o", "jsonpath={.spec.csi.volumeHandle}"]).await?;
    let to = fleet.member(other_than(handle.split('/').next().unwrap_or_default()));
    host.apply(&object(&claim, &claim, to.name()).to_string()).await?;
    reached(host, &claim, Phase::Succeeded).await?;
    let leaf = volume_of(to, &claim).await?;
    Ok(Moved { cell, claim, host, to, volume, leaf })
}

async fn has_policy(cluster: &Cluster, volume: &str, policy: &str) -> Result<()> {
    let patch = json!({"spec": {"persistentVolumeReclaimPolicy": policy}}).to_string();
    cluster.kubectl(&["patch", "pv", volume, "--type=merge", "-p", &patch]).await.map(drop)
}

/// Empty where there is no such volume.
async fn told_of(cluster: &Cluster, volume: &str, path: &str) -> Result<String> {
    cluster.kubectl(&["get", "pv", volume, "--ignore-not-found", "-o", path]).await
}

fn or_gone(told: String) -> String {
    if told.is_empty() { "gone".to_owned() } else { told }
}

impl Moved<'_> {
    async fn ends_as_the_page_says(&self) -> Result<()> {
        let patched = self.cell.patched.strip_prefix("to ");
        if let Some(policy) = patched {
            has_policy(self.host, &self.volume, policy).await?;
        }
        let policy = patched.unwrap_or(&self.cell.policy);
        self.is_followed(policy).await.with_context(|| format!("{:?}", self.cell))?;
        if self.cell.first != "host claim" {
            self.host.kubectl(&["delete", "pv", &self.volume, "--wait=false"]).await?;
        }
        self.host.kubectl(&["-n", NAMESPACE, "delete", "pvc", &self.claim, "--timeout=90s"]).await?;
        wait_for(&format!("it is as the page says: {:?}", self.cell), MOVED, || async {
            let seen = self.seen().await?;
            ensure!(seen == self.cell.ends, "it is {seen:?}");
            Ok(Some(()))
        })
        .await
    }

    /// By the leaf volume, and by external-provisioner.
    async fn is_followed(&self, policy: &str) -> Result<()> {
        wait_for(&format!("leaf volume {} is {policy}", self.leaf), MOVED, || async {
            let leaf = told_of(self.to, &self.leaf, "jsonpath={.spec.persistentVolumeReclaimPolicy}").await?;
            let held = told_of(self.host, &self.volume, "jsonpath={.metadata.finalizers}").await?;
            let is_held = policy != "Delete" || held.contains(HOLDS);
            ensure!(leaf == policy && is_held, "it is {leaf}, {held}");
            Ok(Some(()))
        })
        .await
    }

    async fn seen(&self) -> Result<[String; 4]> {
        let host_volume = or_gone(told_of(self.host, &self.volume, "jsonpath={.status.phase}").await?);
        let words = "jsonpath={.status.phase}, {.spec.persistentVolumeReclaimPolicy}";
        let leaf_volume = or_gone(told_of(self.to, &self.leaf, words).await?);
        let claim = ["-n", NAMESPACE, "get", "pvc", &self.claim, "--ignore-not-found", "-o", "name"];
        let leaf_claim = or_gone(self.to.kubectl(&claim).await?);
        let data = if leaf_volume == "gone" { "gone" } else { "kept" };
        Ok([host_volume, leaf_claim, leaf_volume, data.to_owned()])
    }

    /// What has stayed: the administrators of both clusters want nothing of it any more.
    async fn is_removed(&self) -> Result<()> {
        for (cluster, volume) in [(self.host, &self.volume), (self.to, &self.leaf)] {
            if told_of(cluster, volume, "name").await?.is_empty() {
                continue;
            }
            has_policy(cluster, volume, "Delete").await?;
            wait_for(&format!("volume {volume} of {} is gone", cluster.name()), MOVED, || async {
                let left = told_of(cluster, volume, "name").await?;
                ensure!(left.is_empty(), "{left} is there");
                Ok(Some(()))
            })
            .await?;
        }
        Ok(())
    }
}
