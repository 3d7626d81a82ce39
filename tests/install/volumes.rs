//! Volumes of an installed driver: made, attached, grown, photographed, and gone.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::{
    clusters::{Cluster, Fleet, member_driver, wait_for},
    examples,
    helm::checkout,
    release::PATIENCE,
};

/// A class of volumes that grow without being mounted, in the host and in cluster38.
pub const GROWING: &str = "growing";
/// That of the demo.
const DEMO: &str = "test-new";
const GROWTH: &str = "growth";

/// The member's own classes of snapshots and groups of them.
pub fn leaf_snapshot_classes() -> String {
    let class = |group: &str, kind: &str| {
        let default = format!("{group}.storage.kubernetes.io/is-default-class");
        json!({
            "apiVersion": format!("{group}.storage.k8s.io/v1"), "kind": kind,
            "metadata": {"name": "usual", "annotations": {default: "true"}},
            "driver": member_driver::DRIVER, "deletionPolicy": "Delete",
        })
    };
    let items = [class("snapshot", "VolumeSnapshotClass"), class("groupsnapshot", "VolumeGroupSnapshotClass")];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

pub async fn live_and_go(fleet: &Fleet) -> Result<()> {
    for namespace in [DEMO, GROWTH] {
        fleet.host().kubectl(&["create", "namespace", namespace]).await?;
    }
    demo_in_both_members(fleet).await?;
    growth_and_snapshots(fleet).await?;
    examples::stateful_set_is_spread_over_members(fleet).await?;
    examples::claim_of_a_member_is_imported_and_stays(fleet).await?;
    nothing_left(fleet).await
}

pub async fn until(cluster: &Cluster, namespace: &str, object: &str, condition: &str) -> Result<()> {
    let waited = cluster.kubectl(&["-n", namespace, "wait", object, condition, "--timeout=90s"]).await;
    if let Err(error) = waited {
        let told = cluster.kubectl(&["-n", namespace, "describe", object]).await.unwrap_or_default();
        return Err(error.context(told));
    }
    Ok(())
}

/// The example as it stands, and once more for the other member.
async fn demo_in_both_members(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    let file = checkout().join("deploy/examples/nginx.yaml");
    host.kubectl(&["apply", "-f", &file.display().to_string()]).await?;
    let other = std::fs::read_to_string(Path::new(&file)).context("read the demo")?;
    let other = other.replace("nginx-", "other-").replace("app: nginx", "app: other").replace("cluster38", "cluster39");
    host.apply(&other).await?;
    for (claim, member) in [("nginx-pvc", "cluster38"), ("other-pvc", "cluster39")] {
        let claim = format!("pvc/{claim}");
        until(host, DEMO, &claim, "--for=jsonpath={.status.phase}=Bound").await?;
        until(fleet.member(member), DEMO, &claim, "--for=jsonpath={.status.phase}=Bound").await?;
    }
    wait_for("both are attached to their virtual nodes", PATIENCE, || async {
        let attached =
            host.kubectl(&["get", "volumeattachments", "-o", "jsonpath={.items[*].status.attached}"]).await?;
        ensure!(attached == "true true", "attached: {attached:?}");
        Ok(Some(()))
    })
    .await?;
    host.kubectl(&["-n", DEMO, "delete", "deployments", "--all"]).await?;
    // No agent is here, so nobody says that the pods have ended.
    host.kubectl(&["-n", DEMO, "delete", "pods", "--all", "--force"]).await?;
    host.kubectl(&["-n", DEMO, "delete", "pvc", "--all", "--timeout=90s"]).await.map(drop)
}

async fn growth_and_snapshots(fleet: &Fleet) -> Result<()> {
    let host = fleet.host();
    host.apply(&used("data", &json!(null))).await?;
    until(host, GROWTH, "pvc/data", "--for=jsonpath={.status.phase}=Bound").await?;
    let larger = r#"{"spec":{"resources":{"requests":{"storage":"128Mi"}}}}"#;
    host.kubectl(&["-n", GROWTH, "patch", "pvc", "data", "--patch", larger]).await?;
    until(host, GROWTH, "pvc/data", "--for=jsonpath={.status.capacity.storage}=128Mi").await?;
    host.apply(&photos()).await?;
    for object in ["volumesnapshot/photo", "volumegroupsnapshot/album"] {
        until(host, GROWTH, object, "--for=jsonpath={.status.readyToUse}=true").await?;
    }
    let photo = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "photo"});
    host.apply(&used("restored", &photo)).await?;
    host.apply(&used("copied", &json!({"kind": "PersistentVolumeClaim", "name": "data"}))).await?;
    for claim in ["pvc/restored", "pvc/copied"] {
        until(host, GROWTH, claim, "--for=jsonpath={.status.phase}=Bound").await?;
    }
    for object in ["volumegroupsnapshot/album", "volumesnapshot/photo"] {
        host.kubectl(&["-n", GROWTH, "delete", object, "--timeout=90s"]).await?;
    }
    host.kubectl(&["-n", GROWTH, "delete", "pods", "--all", "--force"]).await?;
    host.kubectl(&["-n", GROWTH, "delete", "pvc", "--all", "--timeout=90s"]).await.map(drop)
}

/// A claim and a pod that uses it.
fn used(name: &str, source: &Value) -> String {
    let app = if source.is_null() { "data" } else { "copy" };
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": GROWTH, "labels": {"app": app}},
        "spec": {"storageClassName": GROWING, "accessModes": ["ReadWriteOnce"], "dataSource": source,
            "resources": {"requests": {"storage": if source.is_null() { "64Mi" } else { "128Mi" }}}},
    });
    let container = json!({"name": "main", "image": "none"});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": GROWTH},
        "spec": {"tolerations": [{"key": "kosmos.io/node", "operator": "Exists"}], "containers": [container],
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [claim, pod]}).to_string()
}

/// A snapshot of the claim, and a group of one.
fn photos() -> String {
    let class = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass", "metadata": {"name": "albums"},
        "driver": "kosmos.csi.io", "deletionPolicy": "Delete",
    });
    let photo = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "photo", "namespace": GROWTH},
        "spec": {"volumeSnapshotClassName": "photos", "source": {"persistentVolumeClaimName": "data"}},
    });
    let album = json!({
        "apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshot",
        "metadata": {"name": "album", "namespace": GROWTH},
        "spec": {"volumeGroupSnapshotClassName": "albums", "source": {"selector": {"matchLabels": {"app": "data"}}}},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [class, photo, album]}).to_string()
}

/// Neither in the host nor in a member.
async fn nothing_left(fleet: &Fleet) -> Result<()> {
    for cluster in fleet.clusters() {
        wait_for(&format!("nothing is left in {}", cluster.name()), PATIENCE, || async {
            let kinds = "pv,pvc,volumeattachments,volumesnapshots,volumesnapshotcontents,volumegroupsnapshots,volumegroupsnapshotcontents";
            let kinds = if cluster.name() == "cluster39" { "pv,pvc,volumeattachments" } else { kinds };
            let left = cluster.kubectl(&["get", kinds, "--all-namespaces", "-o", "name"]).await?;
            ensure!(left.is_empty(), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    Ok(())
}
