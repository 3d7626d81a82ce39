//! The least that anybody has to do who wants a bound claim: a POST, and a watch that all share. And the least of who wants
//! to know the volume again: one PATCH more, which marks it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use leaf::trimmed::Trimmed;
use serde_json::json;

use super::{CLASS, NAMESPACE, again::answered, seen::Seen};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// A claim as long as those that the driver makes; `marked`: and its volume gets labels. How long the last of its writes took.
pub async fn create(client: &Client, seen: &Seen, name: &str, marked: bool) -> Result<Duration> {
    let request = json!({"required": 1_u64 << 30, "limit": 0, "access": ["ReadWriteOnce"], "mode": "Filesystem",
        "parameters": {"leafStorageClass": CLASS}});
    let labels = json!({MANAGED_BY: "bench.kosmos-csi.test", "bench.kosmos-csi.test/volume": name,
        "bench.kosmos-csi.test/host": "6a2f8d1e-5f0c-4f0a-9c57-3f3c0d4c5b1a"});
    let claim: PersistentVolumeClaim = serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": NAMESPACE, "labels": labels, "finalizers": ["bench.kosmos-csi.test/x"],
            "annotations": {"bench.kosmos-csi.test/request": request.to_string(), "bench.kosmos-csi.test/name": name},
        },
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}}},
    }))?;
    let is_bound = seen.bound(&format!("{NAMESPACE}/{name}"));
    let claims = Api::<Trimmed<PersistentVolumeClaim>>::namespaced(client.clone(), NAMESPACE);
    let mut begun = Instant::now();
    let (claim, create) = (Trimmed(claim), PostParams::default());
    let made = match answered(|| claims.create(&create, &claim)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => answered(|| claims.get(name)).await?,
        made => made?,
    };
    let mut took = begun.elapsed();
    is_bound.await.context("wait until it is bound")?;
    if marked {
        let volume = format!("pvc-{}", made.uid().unwrap_or_default());
        let volumes = Api::<Trimmed<PersistentVolume>>::all(client.clone());
        begun = Instant::now();
        let (labels, patch) = (Patch::Merge(json!({"metadata": {"labels": labels}})), PatchParams::default());
        answered(|| volumes.patch(&volume, &patch, &labels)).await?;
        took = begun.elapsed();
    }
    Ok(took)
}
