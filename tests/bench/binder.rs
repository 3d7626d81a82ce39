//! What a member's own controllers do about the bench's claims, at once: the four writes that bind one, in their order, and the
//! four by which one goes with its volume. It is a process of its own, so that whoever is measured is not charged for it, and
//! tells when each claim was bound.

use std::{
    collections::HashSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent},
};
use leaf::trimmed::Trimmed;
use serde_json::{Value, json};
use tokio::{sync::Semaphore, time::sleep};

use super::{
    CLASS,
    again::answered,
    clusters::kubernetes,
    seen::{follow, is_bound, place},
    told::Told,
};

type Claim = Trimmed<PersistentVolumeClaim>;
type Volume = Trimmed<PersistentVolume>;

/// An API server puts it on each claim, and its controller-manager takes it off.
const PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Of work that fails, and of a write that is refused because the claim was changed meanwhile.
const TRIES: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// So many claims are at work at the same time, each with a connection: a thousand would be a storm of handshakes.
const HANDS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Work {
    Bind,
    LetGo,
    RemoveVolume,
}

#[derive(Clone)]
struct Binder {
    client: Client,
    told: Told,
    /// What was begun, with the UID of the claim.
    begun: Arc<Mutex<HashSet<(Work, String)>>>,
    hands: Arc<Semaphore>,
}

/// As a process of its own, until it is killed.
pub async fn process(kubeconfig: &Path, told: &Path) -> Result<()> {
    run(kubernetes::client(kubeconfig).await?, Told::to(told)?).await;
    Ok(())
}

/// Runs until it is dropped.
pub async fn run(client: Client, told: Told) {
    let hands = Semaphore::new(HANDS).into();
    let binder = Binder { client: client.clone(), told, begun: Arc::default(), hands };
    follow(client, |event| binder.take(event)).await;
}

impl Binder {
    fn take(&self, event: WatchEvent<Claim>) -> Result<()> {
        match event {
            WatchEvent::Added(claim) | WatchEvent::Modified(claim) => {
                if claim.metadata.deletion_timestamp.is_some() {
                    self.begin(Work::LetGo, claim);
                } else if is_bound(&claim) {
                    self.told.bound(&place(&claim))?;
                } else {
                    self.begin(Work::Bind, claim);
                }
            }
            WatchEvent::Deleted(claim) => self.begin(Work::RemoveVolume, claim),
            _ => {}
        }
        Ok(())
    }

    /// Unless it was begun before.
    fn begin(&self, work: Work, claim: Claim) {
        let uid = claim.uid().unwrap_or_default();
        if !self.begun.lock().unwrap_or_else(PoisonError::into_inner).insert((work, uid)) {
            return;
        }
        let binder = self.clone();
        tokio::spawn(async move {
            let Ok(_hand) = binder.hands.acquire().await else { return };
            for _ in 0..TRIES {
                let Err(error) = binder.work(work, &claim).await else { return };
                eprintln!("the binder, at claim {}: {error:#}", place(&claim));
                sleep(PAUSE).await;
            }
        });
    }

    /// What was done of it before is done again, or met.
    async fn work(&self, work: Work, claim: &Claim) -> Result<()> {
        match work {
            Work::Bind => self.bind_or_remove(claim).await,
            Work::LetGo => self.let_go(claim).await,
            Work::RemoveVolume => self.remove_volume(claim).await,
        }
    }

    /// A claim may go while it is being bound.
    async fn bind_or_remove(&self, claim: &Claim) -> Result<()> {
        match self.bind(claim).await {
            Err(error) if error.downcast_ref().is_some_and(is_not_found) => self.remove_volume(claim).await,
            bound => bound,
        }
    }

    async fn bind(&self, claim: &Claim) -> Result<()> {
        let (claims, volumes) = (self.claims(claim), self.volumes());
        let (name, volume_name) = (claim.name_any(), volume_name(claim));
        let (volume, create) = (Trimmed::of(serde_json::from_value(volume(claim))?), PostParams::default());
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
        self.told.bound(&place(claim))
    }

    /// Nobody uses it: nothing protects it any more. Whoever else has a finalizer on it takes that off at the same time.
    async fn let_go(&self, claim: &Claim) -> Result<()> {
        let (claims, name) = (self.claims(claim), claim.name_any());
        let (mut seen, patch) = (claim.clone(), PatchParams::default());
        for _ in 0..TRIES {
            if !seen.finalizers().iter().any(|finalizer| finalizer == PROTECTION) {
                return Ok(());
            }
            let left: Vec<&String> = seen.finalizers().iter().filter(|finalizer| *finalizer != PROTECTION).collect();
            let version = seen.resource_version().unwrap_or_default();
            let less = Patch::Merge(json!({"metadata": {"resourceVersion": version, "finalizers": left}}));
            match answered(|| claims.patch(&name, &patch, &less)).await {
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                patched => return patched.map(drop).context("take the protection off"),
            }
            match answered(|| claims.get_opt(&name)).await? {
                Some(now) => seen = now,
                None => return Ok(()),
            }
        }
        anyhow::bail!("its protection cannot be taken off: it is changed again and again")
    }

    async fn remove_volume(&self, claim: &Claim) -> Result<()> {
        let (volumes, name) = (self.volumes(), volume_name(claim));
        let patch = PatchParams::default();
        let released = Patch::Merge(json!({"status": {"phase": "Released"}}));
        match answered(|| volumes.patch_status(&name, &patch, &released)).await {
            // It was never bound.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            patched => drop(patched?),
        }
        let delete = DeleteParams::default();
        let deleted = answered(|| volumes.delete(&name, &delete)).await?;
        if deleted.left().is_some_and(|volume| !volume.finalizers().is_empty()) {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            answered(|| volumes.patch(&name, &patch, &free)).await?;
        }
        Ok(())
    }

    fn claims(&self, claim: &Claim) -> Api<Claim> {
        Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default())
    }

    fn volumes(&self) -> Api<Volume> {
        Api::all(self.client.clone())
    }
}

fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

fn volume_name(claim: &Claim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

fn volume(claim: &Claim) -> Value {
    let (namespace, name, uid) = (claim.namespace(), claim.name_any(), claim.uid());
    json!({
        "metadata": {"name": volume_name(claim)},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Delete", "volumeMode": "Filesystem",
            "csi": {"driver": "bench.kosmos-csi.test", "volumeHandle": uid},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name,
                "uid": uid},
        },
    })
}
