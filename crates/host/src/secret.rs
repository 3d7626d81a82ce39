//! Secrets of the host that hold, for the kubelets, what a leaf driver wants on a node. They belong to the host volume and go
//! with it. No message says anything of what is in one, so the host's own words about a write are not passed on.

use std::collections::BTreeMap;

use k8s_openapi::{
    ByteString,
    api::core::v1::{CSIPersistentVolumeSource, PersistentVolume, Secret, SecretReference},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::{Host, unread, volume};
use cluster::with_causes;
use domain::{
    error::{Error, Result},
    volume::{
        DRIVER, VolumeHash,
        id::is_subdomain,
        secrets::{SecretData, SecretPlace, SecretRefs},
    },
};

const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const VOLUME: &str = "kosmos.csi.io/volume";

/// The Secrets that a host volume names, and who they are to belong to.
#[derive(Clone, Debug)]
pub struct SecretsOf {
    pub refs: SecretRefs,
    volume: String,
    uid: String,
}

/// The Secrets that a volume names.
fn refs(source: &CSIPersistentVolumeSource) -> SecretRefs {
    let place = |reference: &Option<SecretReference>| {
        let reference = reference.as_ref()?;
        SecretPlace::named(reference.namespace.as_deref(), reference.name.as_deref())
    };
    SecretRefs {
        stage: place(&source.node_stage_secret_ref),
        publish: place(&source.node_publish_secret_ref),
        expand: place(&source.node_expand_secret_ref),
    }
}

fn of_volume(volume: &PersistentVolume, handle: &str) -> Option<SecretsOf> {
    let source = volume.spec.as_ref()?.csi.as_ref()?;
    let ours = source.driver == DRIVER && source.volume_handle == handle;
    ours.then(|| SecretsOf { refs: refs(source), volume: volume.name_any(), uid: volume.uid().unwrap_or_default() })
}

impl SecretsOf {
    fn manifest(&self, place: &SecretPlace, hash: VolumeHash, data: &SecretData) -> Secret {
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "PersistentVolume".to_owned(),
            name: self.volume.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        };
        let labels = [(MANAGED_BY, DRIVER.to_owned()), (VOLUME, hash.to_string())];
        Secret {
            metadata: ObjectMeta {
                name: Some(place.name.clone()),
                namespace: Some(place.namespace.clone()),
                labels: Some(labels.map(|(key, value)| (key.to_owned(), value)).into()),
                owner_references: Some(vec![owner]),
                ..ObjectMeta::default()
            },
            type_: Some("Opaque".to_owned()),
            data: Some(data.0.iter().map(|(key, value)| (key.clone(), ByteString(value.clone()))).collect()),
            ..Secret::default()
        }
    }
}

/// Of the volume with this handle, which most often has this name.
pub async fn of(host: &Host, name: Option<&str>, handle: &str) -> Result<Option<SecretsOf>> {
    if let Some(name) = name.filter(|name| is_subdomain(name)) {
        let found = cluster::read(volume::volumes(host).get(name).await, name);
        let found = found.map_err(|error| unread(&format!("get volume {name}"), &error))?;
        if let Some(found) = found.and_then(|volume| of_volume(&volume, handle)) {
            return Ok(Some(found));
        }
    }
    let found = volume::all(host, |volume| of_volume(&volume, handle)).await?;
    Ok(found.into_iter().next())
}

/// Makes the Secret, or brings what it holds up to date. One that somebody else has made is left alone.
pub async fn keep(host: &Host, place: &SecretPlace, of: &SecretsOf, hash: VolumeHash, data: &SecretData) -> Result<()> {
    let secrets = Api::<Secret>::namespaced(host.client.clone(), &place.namespace);
    let wanted = of.manifest(place, hash, data);
    let there = cluster::read(secrets.get(&place.name).await, &place.name);
    let Some(there) = there.map_err(|error| unread(&format!("get secret {place}"), &error))? else {
        let made = secrets.create(&PostParams::default(), &wanted).await;
        return made.map(drop).map_err(|error| unwritten("create", place, &error));
    };
    if !is_labelled(there.labels(), hash) {
        return Err(Error::Refused(format!(
            "Secret {place} of the host is there already and was not made for this volume, so the driver leaves it \
             untouched. Remove it, or name another Secret in the class"
        )));
    }
    if there.data == wanted.data && there.metadata.owner_references == wanted.metadata.owner_references {
        return Ok(());
    }
    let operations = json!([
        {"op": "test", "path": "/metadata/resourceVersion", "value": there.resource_version()},
        {"op": "add", "path": "/metadata/ownerReferences", "value": wanted.metadata.owner_references},
        {"op": "add", "path": "/data", "value": wanted.data},
    ]);
    let patch = serde_json::from_value(operations).map(Patch::<()>::Json);
    let patch = patch.map_err(|error| Error::Refused(format!("a patch cannot be written: {error}")))?;
    let written = secrets.patch(&place.name, &PatchParams::default(), &patch).await;
    written.map(drop).map_err(|error| unwritten("update", place, &error))
}

fn is_labelled(labels: &BTreeMap<String, String>, hash: VolumeHash) -> bool {
    labels.get(MANAGED_BY).is_some_and(|manager| manager == DRIVER)
        && labels.get(VOLUME).is_some_and(|volume| *volume == hash.to_string())
}

fn unwritten(verb: &str, place: &SecretPlace, error: &kube::Error) -> Error {
    let doing = format!("{verb} secret {place}");
    match error {
        kube::Error::Api(status) if [409, 422].contains(&status.code) => {
            Error::InProgress(format!("{doing}: {}", status.reason))
        }
        kube::Error::Api(status) if cluster::says_what_is_missing(status) => {
            Error::Refused(format!("{doing}: there is no namespace {} in the host: make it", place.namespace))
        }
        kube::Error::Api(status) => Error::HostUnreachable(format!("{doing}: {} {}", status.code, status.reason)),
        other => Error::HostUnreachable(format!("{doing}: {}", with_causes(other))),
    }
}
