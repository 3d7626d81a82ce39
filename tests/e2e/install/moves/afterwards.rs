//! A volume that has moved is one like any other of its member, whatever storage it came from: it grows there, is photographed there, and
//! what was photographed is restored there. With its claim its leaf goes; the source stays until somebody says otherwise.

use anyhow::{Result, ensure};
use domain::volume::moving::Phase;
use serde_json::json;

use super::{
    MOVED, NAMESPACE,
    big::reached,
    discard, kept,
    many::{claim_of, ended, pod},
    object, photograph,
};
use crate::{
    clusters::{Cluster, Fleet, wait_for},
    install::volumes::{GROWING, until},
};

/// Its volumes grow in the second member, and not in the first.
const CLASS: &str = "grows-in-one";
const FROM: &str = "cluster39";
const TO: &str = "cluster38";
const CLAIM: &str = "grown";
const PHOTO: &str = "photo";
const RESTORED: &str = "restored";
const WRITTEN: &str = "before it moved";

pub(super) async fn moved_volume_is_one_like_any_other(fleet: &Fleet) -> Result<()> {
    let (host, from, to) = (fleet.host(), fleet.member(FROM), fleet.member(TO));
    let source = moved(host, from).await?;
    grows(host, to).await?;
    is_photographed_and_restored(host).await?;
    host.kubectl(&["-n", NAMESPACE, "delete", "pvc", CLAIM, RESTORED, "--timeout=90s"]).await?;
    for cluster in [host, to] {
        wait_for(&format!("nothing of it is left in {}", cluster.name()), MOVED, || async {
            let claims = "jsonpath={.items[*].metadata.name} {.items[*].spec.claimRef.name}";
            let left = cluster.kubectl(&["get", "pvc,pv", "--all-namespaces", "-o", claims]).await?;
            ensure!(!left.split_whitespace().any(|name| [CLAIM, RESTORED].contains(&name)), "{left}");
            Ok(Some(()))
        })
        .await?;
    }
    let policy = "jsonpath={.spec.persistentVolumeReclaimPolicy} {.status.phase}";
    let stands = from.kubectl(&["get", "pv", &source, "-o", policy]).await?;
    ensure!(stands == "Retain Released" && kept(from).await?.contains(&source), "the source {source} is {stands:?}");
    discard(fleet, from, &source).await?;
    host.kubectl(&["delete", "storageclass", CLASS]).await.map(drop)
}

/// Which volume its source is.
async fn moved(host: &Cluster, from: &Cluster) -> Result<String> {
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": CLASS},
        "provisioner": "kosmos.csi.io", "volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true,
        "parameters": {"leafStorageClass": "openebs-hostpath", "leafStorageClass.cluster38": GROWING}});
    let write = pod(CLAIM, FROM, &format!("echo {WRITTEN} >/data/file && sync"));
    let items = [class, claim_of(CLAIM, CLASS, "64Mi"), write];
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    ended(host, CLAIM).await?;
    let leaf = ["-n", NAMESPACE, "get", "pvc", CLAIM, "-o", "jsonpath={.spec.volumeName}"];
    let source = from.kubectl(&leaf).await?;
    host.apply(&object(CLAIM, CLAIM, TO).to_string()).await?;
    reached(host, CLAIM, Phase::Succeeded).await.map(|_| source)
}

/// In the host and in the member.
async fn grows(host: &Cluster, to: &Cluster) -> Result<()> {
    let larger = r#"{"spec": {"resources": {"requests": {"storage": "128Mi"}}}}"#;
    host.kubectl(&["-n", NAMESPACE, "patch", "pvc", CLAIM, "--type=merge", "-p", larger]).await?;
    for cluster in [host, to] {
        let pvc = format!("pvc/{CLAIM}");
        until(cluster, NAMESPACE, &pvc, "--for=jsonpath={.status.capacity.storage}=128Mi").await?;
    }
    Ok(())
}

async fn is_photographed_and_restored(host: &Cluster) -> Result<()> {
    photograph(host, CLAIM, PHOTO).await?;
    let mut restored = claim_of(RESTORED, CLASS, "128Mi");
    restored["spec"]["dataSource"] =
        json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": PHOTO});
    let items = [restored, pod(RESTORED, TO, "cat /data/file")];
    host.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).await?;
    let said = ended(host, RESTORED).await?;
    ensure!(said.trim() == WRITTEN, "the restored volume has {said:?}");
    host.kubectl(&["-n", NAMESPACE, "delete", "volumesnapshot", PHOTO, "--timeout=90s"]).await.map(drop)
}
