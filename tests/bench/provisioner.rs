//! The part of the host's controllers and of external-provisioner around a driver's answer: the claim it is asked for, and the
//! volume that the host has from it. None of this is measured, but that a driver may be at work on it.

use std::{collections::HashMap, path::Path, sync::Arc};

use anyhow::{Context, Result};
use csi::v1::Volume;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{NAMESPACE, again::answered, clusters::kubernetes};

/// Requests to the host at once.
const HANDS: usize = 16;
const HOST_CLASS: &str = "bench";
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

type Texts = HashMap<String, String>;

/// A claim of the host, in the bench's namespace.
#[derive(Clone, Debug)]
pub struct HostClaim {
    pub name: String,
    /// Of those that were made together.
    pub number: usize,
    uid: String,
}

impl HostClaim {
    /// The name of its volume.
    pub fn volume(&self) -> String {
        format!("pvc-{}", self.uid)
    }
}

/// Whoever works in the host. All clones have the same hands.
#[derive(Clone)]
pub struct Host {
    client: Client,
    hands: Arc<Semaphore>,
}

impl Host {
    pub async fn new(kubeconfig: &Path) -> Result<Self> {
        Ok(Self { client: kubernetes::client(kubeconfig).await?, hands: Semaphore::new(HANDS).into() })
    }

    /// So many claims, as the host's controller hands them to the driver of this name.
    pub async fn claims(&self, prefix: &str, count: usize, driver: &str) -> Result<Vec<HostClaim>> {
        let made = (0..count).map(|number| self.claim(prefix, number, driver));
        stream::iter(made).buffer_unordered(HANDS).try_collect().await
    }

    async fn claim(&self, prefix: &str, number: usize, driver: &str) -> Result<HostClaim> {
        let name = format!("{prefix}-{number}");
        let claim = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {
                "volume.beta.kubernetes.io/storage-provisioner": driver,
                "volume.kubernetes.io/storage-provisioner": driver,
            }},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": HOST_CLASS, "volumeMode": "Filesystem",
                "resources": {"requests": {"storage": "1Gi"}}},
        }))?;
        let (claims, create) = (self.of_claims(), PostParams::default());
        let made = match answered(|| claims.create(&create, &claim)).await {
            // The answer to an earlier try was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => answered(|| claims.get(&name)).await,
            made => made,
        };
        let made = made.with_context(|| format!("make claim {name}"))?;
        Ok(HostClaim { name, number, uid: made.uid().context("a claim without a UID")? })
    }

    /// The host's volume, as external-provisioner makes it of the answer, bound.
    pub async fn volume(&self, claim: &HostClaim, driver: &str, made: &Volume) -> Result<()> {
        let _hand = self.hands.acquire().await?;
        let (volumes, name) = (self.of_volumes(), claim.volume());
        let (volume, create) = (serde_json::from_value(manifest(claim, driver, made))?, PostParams::default());
        match answered(|| volumes.create(&create, &volume)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made.with_context(|| format!("make volume {name}"))?),
        }
        self.set_phase(&name, "Bound").await
    }

    /// The claims go, and their volumes are released: now the driver is asked to delete them.
    pub async fn release(&self, claims: &[HostClaim]) -> Result<()> {
        self.each(claims, async |claim| {
            let (claims, delete) = (self.of_claims(), DeleteParams::default());
            let (patch, free) = (PatchParams::default(), Patch::Merge(json!({"metadata": {"finalizers": null}})));
            unless_gone(answered(|| claims.patch(&claim.name, &patch, &free)).await)?;
            unless_gone(answered(|| claims.delete(&claim.name, &delete)).await)?;
            self.set_phase(&claim.volume(), "Released").await
        })
        .await
    }

    /// The volumes go, once the driver has deleted what is behind them.
    pub async fn remove(&self, claims: &[HostClaim]) -> Result<()> {
        self.each(claims, async |claim| {
            let (volumes, name, delete) = (self.of_volumes(), claim.volume(), DeleteParams::default());
            let (patch, free) = (PatchParams::default(), Patch::Merge(json!({"metadata": {"finalizers": null}})));
            unless_gone(answered(|| volumes.delete(&name, &delete)).await)?;
            unless_gone(answered(|| volumes.patch(&name, &patch, &free)).await)
        })
        .await
    }

    /// As the host's controllers do it for volumes that external-provisioner has made: they are bound, and nothing but that holds them.
    pub async fn bind(&self, claims: &[HostClaim]) -> Result<()> {
        self.each(claims, async |claim| {
            let (volumes, name, patch) = (self.of_volumes(), claim.volume(), PatchParams::default());
            let held = Patch::Merge(json!({"metadata": {"finalizers": [FINALIZER]}}));
            answered(|| volumes.patch(&name, &patch, &held)).await?;
            self.set_phase(&name, "Bound").await
        })
        .await
    }

    /// The class of all claims here, for external-provisioner.
    pub async fn class(&self, driver: &str, parameters: &Texts, places: &[Texts]) -> Result<()> {
        let class = serde_json::from_value(json!({
            "metadata": {"name": HOST_CLASS}, "provisioner": driver, "volumeBindingMode": "Immediate",
            "parameters": parameters, "allowedTopologies": allowed(places),
        }))?;
        let (classes, create) = (Api::<StorageClass>::all(self.client.clone()), PostParams::default());
        match answered(|| classes.create(&create, &class)).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
            made => made.map(drop).context("make the host's class"),
        }
    }

    async fn each(&self, claims: &[HostClaim], work: impl AsyncFn(&HostClaim) -> Result<()>) -> Result<()> {
        let all = claims.iter().map(|claim| work(claim));
        stream::iter(all).buffer_unordered(HANDS).try_collect().await
    }

    async fn set_phase(&self, volume: &str, phase: &str) -> Result<()> {
        let (volumes, patch) = (self.of_volumes(), PatchParams::default());
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        let set = answered(|| volumes.patch_status(volume, &patch, &status)).await;
        set.map(drop).with_context(|| format!("say that volume {volume} is {phase}"))
    }

    fn of_claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    pub fn of_volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }
}

fn allowed(places: &[Texts]) -> Option<Vec<Value>> {
    let expression = |(key, value): (&String, &String)| json!({"key": key, "values": [value]});
    let term = |place: &Texts| json!({"matchLabelExpressions": place.iter().map(expression).collect::<Vec<_>>()});
    (!places.is_empty()).then(|| places.iter().map(term).collect())
}

fn unless_gone<T>(answer: kube::Result<T>) -> Result<()> {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

fn manifest(claim: &HostClaim, driver: &str, made: &Volume) -> Value {
    let mut attributes = made.volume_context.clone();
    attributes.insert("storage.kubernetes.io/csiProvisionerIdentity".to_owned(), "1-8081-bench".to_owned());
    let term = |topology: &csi::v1::Topology| {
        let of = |(key, value): (&String, &String)| json!({"key": key, "operator": "In", "values": [value]});
        json!({"matchExpressions": topology.segments.iter().map(of).collect::<Vec<_>>()})
    };
    let terms: Vec<Value> = made.accessible_topology.iter().map(term).collect();
    let affinity = (!terms.is_empty()).then(|| json!({"required": {"nodeSelectorTerms": terms}}));
    json!({
        "metadata": {
            "name": claim.volume(), "annotations": {"pv.kubernetes.io/provisioned-by": driver}, "finalizers": [FINALIZER],
        },
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": HOST_CLASS, "nodeAffinity": affinity,
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": claim.name,
                "uid": claim.uid},
            "csi": {"driver": driver, "volumeHandle": made.volume_id, "volumeAttributes": attributes},
        },
    })
}
