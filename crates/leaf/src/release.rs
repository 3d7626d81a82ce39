//! Lets go of a leaf claim so that its data stays: for people, on claims that no host asks for.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::ownership::FINALIZER;
use cluster::{json_patch, says_what_is_missing, with_causes};
use domain::error::{Error, Result};

/// The volume that a claim is bound to; none where it is bound to none, or that is gone.
pub async fn volume_of(client: &Client, claim: &PersistentVolumeClaim) -> Result<Option<PersistentVolume>> {
    let name = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).unwrap_or_default();
    if name.is_empty() {
        return Ok(None);
    }
    let found = cluster::read(Api::<PersistentVolume>::all(client.clone()).get(name).await, name);
    let found = found.map_err(|error| refused(&format!("get volume {name}"), &error))?;
    let bound_to = |volume: &PersistentVolume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone();
    Ok(found.filter(|volume| bound_to(volume) == claim.uid()))
}

/// The volume stays when its claim goes: not believed before the answer shows it.
pub async fn retain(client: &Client, volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Result<()> {
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": volume.uid()},
        {"op": "test", "path": "/spec/claimRef/uid", "value": claim.uid()},
        {"op": "add", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Retain"},
    ]);
    let name = volume.name_any();
    let patched = json_patch::send(Api::<PersistentVolume>::all(client.clone()), &name, &patch).await;
    let kept = patched.map_err(|error| refused(&format!("retain volume {name}"), &error))?;
    match kept.spec.and_then(|spec| spec.persistent_volume_reclaim_policy).as_deref() {
        Some("Retain") => Ok(()),
        _ => Err(Error::Refused(format!("volume {name} is not retained, although that was asked for"))),
    }
}

/// Takes our finalizer away, if the claim still is as it was seen: bound to this volume, or to none. Gone is good.
pub async fn unprotect(client: &Client, claim: &PersistentVolumeClaim) -> Result<()> {
    let Some(at) = claim.finalizers().iter().position(|finalizer| finalizer == FINALIZER) else { return Ok(()) };
    let place = format!("/metadata/finalizers/{at}");
    let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone());
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": claim.uid()},
        {"op": "test", "path": "/spec/volumeName", "value": volume},
        {"op": "test", "path": place, "value": FINALIZER},
        {"op": "remove", "path": place},
    ]);
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
    match json_patch::send_unread(claims, &name, &patch).await {
        Ok(()) => Ok(()),
        Err(kube::Error::Api(status)) if says_what_is_missing(&status) => Ok(()),
        Err(error) => Err(refused(&format!("let go of claim {namespace}/{name}"), &error)),
    }
}

fn refused(doing: &str, error: &kube::Error) -> Error {
    Error::Refused(format!("{doing}: {}", with_causes(error)))
}
