//! A host that has Kosmos' `Cluster` objects: they are members, and their kind may come while the driver runs.

use anyhow::{Context, Result, ensure};
use k8s_openapi::ByteString;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::{
    clusters::wait_for,
    objects::{Place, handle, nothing_of_ours},
    pool::on_fleet,
    rig::{DRIVER_NAMESPACE, MEMBER_KEY, NOW, PATIENCE, Rig},
};

const DEFINITION: &str = include_str!("../kosmos/clusters.json");
const OWNERS: &str = "kosmos-io/cluster-owners";

pub fn cluster(name: &str, kubeconfig: &str, annotations: &Value) -> String {
    json!({
        "apiVersion": "kosmos.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "kubeconfig": ByteString(kubeconfig.as_bytes().to_vec()),
            "clusterTreeOptions": {"enable": true}, "clusterLinkOptions": {"enable": false},
        },
    })
    .to_string()
}

pub async fn with_kosmos(rig: &Rig) -> Result<()> {
    let host = rig.fleet.host();
    host.apply(DEFINITION).await?;
    let established = ["wait", "--for=condition=Established", "crd/clusters.kosmos.io", "--timeout=30s"];
    host.kubectl(&established).await.map(drop)
}

/// The objects have gone, and the Secret is what names the member again.
pub async fn without_kosmos(rig: &Rig) -> Result<()> {
    let crd = ["delete", "crd", "clusters.kosmos.io", "--ignore-not-found", "--timeout=30s"];
    rig.fleet.host().kubectl(&crd).await?;
    rig.join("cluster39").await
}

#[test]
fn cluster_objects_are_members_also_when_their_kind_comes_later() {
    on_fleet("kosmos_clusters", async |rig| {
        let tested = cluster_objects(rig).await;
        without_kosmos(rig).await?;
        tested
    });
}

async fn cluster_objects(rig: &'static Rig) -> Result<()> {
    let fleet = &rig.fleet;
    let host = Place::new(fleet.host(), "kosmos").await?;
    rig.leave("cluster39").await?;
    with_kosmos(rig).await?;
    let itself = fleet.host().kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi-controller").await?;
    fleet.host().apply(&cluster("itself", &itself, &json!({"kosmos.io/cluster-role": "root"}))).await?;
    let member = fleet.member("cluster39").kubeconfig_for(DRIVER_NAMESPACE, "kosmos-csi").await?;
    fleet.host().apply(&cluster("cluster39", &member, &json!({}))).await?;
    wait_for("the driver knows the member", PATIENCE, || async {
        let metrics = rig.driver.metrics().await?;
        ensure!(!metrics.contains("member=\"itself\""), "the host itself is a member");
        Ok(metrics.contains("kosmos_csi_member_up{member=\"cluster39\"} 1").then_some(()))
    })
    .await?;
    host.class("of-kosmos", "Immediate", json!({"leafStorageClass": NOW}), &["cluster39"]).await?;
    host.claim("data", "of-kosmos").await?;
    let volume = host.bound("data").await?;
    ensure!(handle(&volume).starts_with("cluster39/"), "{MEMBER_KEY} is {}", handle(&volume));
    let claim = host.claims().get("data").await?;
    let owners = claim.annotations().get(OWNERS).context("the claim is not kept from clustertree")?;
    ensure!(owners.starts_with("_kosmos-csi"), "{owners}");
    clustertree_writes_first(&host).await?;
    host.delete_claim("data").await?;
    host.volume_is_gone(&volume.name_any()).await?;
    nothing_of_ours(fleet.member("cluster39"), &host.namespace).await
}

/// Whoever puts a cluster's name before ours is corrected.
async fn clustertree_writes_first(host: &Place<'_>) -> Result<()> {
    let owners = format!("{OWNERS}=cluster39");
    host.cluster.kubectl(&["annotate", "pvc", "data", "-n", &host.namespace, "--overwrite", &owners]).await?;
    wait_for("our name stands first again", PATIENCE, || async {
        let claim = host.claims().get("data").await?;
        let owners = claim.annotations().get(OWNERS).cloned().unwrap_or_default();
        Ok((owners == "_kosmos-csi,cluster39").then_some(()))
    })
    .await
}
