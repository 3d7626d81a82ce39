//! Binds every claim of the bench's namespaces at once, with the four writes that a member's own controllers need, in
//! their order, and remembers when the last one was done, which says "bound".

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::Result;
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams},
};
use leaf::trimmed::Trimmed;
use serde_json::json;
use tokio::sync::oneshot;

use super::{CLASS, again::answered};

type Claim = Trimmed<PersistentVolumeClaim>;

/// What is known of claims, by name.
#[derive(Clone, Debug, Default)]
pub struct Bound(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    since: HashMap<String, Instant>,
    waiting: HashMap<String, oneshot::Sender<()>>,
    begun: std::collections::HashSet<String>,
}

impl Bound {
    pub fn since(&self, claim: &str) -> Option<Instant> {
        self.lock().since.get(claim).copied()
    }

    /// Told when the harness's own watch shows the claim bound.
    pub fn wait_for(&self, claim: &str) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        self.lock().waiting.insert(claim.to_owned(), sender);
        receiver
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs until it is dropped.
pub async fn run(client: Client, bound: Bound) {
    loop {
        if let Err(error) = follow(&client, &bound).await {
            eprintln!("the binder's watch: {error:#}");
        }
    }
}

async fn follow(client: &Client, bound: &Bound) -> Result<()> {
    let claims = Api::<Claim>::all(client.clone());
    let events = claims.watch(&WatchParams::default(), "0").await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        let (WatchEvent::Added(claim) | WatchEvent::Modified(claim)) = event else { continue };
        let name = claim.name_any();
        let is_bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
        let mut known = bound.lock();
        if is_bound {
            // One who gave up needs no answer.
            let _ = known.waiting.remove(&name).map(|waiting| waiting.send(()));
        } else if known.begun.insert(claim.uid().unwrap_or_default()) {
            tokio::spawn(bind(client.clone(), bound.clone(), claim));
        }
    }
    Ok(())
}

async fn bind(client: Client, bound: Bound, claim: Claim) {
    if let Err(error) = try_bind(&client, &bound, &claim).await {
        eprintln!("claim {} is not bound: {error:#}", claim.name_any());
    }
}

async fn try_bind(client: &Client, bound: &Bound, claim: &Claim) -> Result<()> {
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let uid = claim.uid().unwrap_or_default();
    let claims = Api::<Claim>::namespaced(client.clone(), &namespace);
    let volumes = Api::<Trimmed<PersistentVolume>>::all(client.clone());
    let volume_name = format!("pvc-{uid}");
    let volume: PersistentVolume = serde_json::from_value(json!({
        "metadata": {"name": volume_name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "csi": {"driver": "bench.kosmos-csi.test", "volumeHandle": uid},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid},
        },
    }))?;
    let (volume, create) = (Trimmed(volume), PostParams::default());
    match answered(|| volumes.create(&create, &volume)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        made => drop(made?),
    }
    let patch = PatchParams::default();
    let status = Patch::Merge(json!({"status": {"phase": "Bound"}}));
    answered(|| volumes.patch_status(&volume_name, &patch, &status)).await?;
    let named = Patch::Merge(json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume_name}}));
    answered(|| claims.patch(&name, &patch, &named)).await?;
    let status = Patch::Merge(
        json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}}),
    );
    answered(|| claims.patch_status(&name, &patch, &status)).await?;
    bound.lock().since.insert(name, Instant::now());
    Ok(())
}
