//! The leaf claim: how it is written, and the few requests that make, read and remove it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::{
    Api, Resource,
    api::{DeleteParams, ListParams, PostParams, Preconditions},
    core::Request,
};
use serde::Deserialize;
use serde_json::json;

use super::{
    MemberClient,
    identity::{Identity, Meant, judge},
    marks::{SELECTED_NODE, path_of},
    ownership,
    row::ClaimRow,
    trimmed::Trimmed,
};
use cluster::json_patch;
use domain::{
    error::{Error, Result},
    volume::{AccessMode, HostId, LeafPlace, VolumeHash, VolumeMode, VolumeSpec},
};

/// What a leaf claim says besides the request.
#[derive(Clone, Debug)]
pub struct LeafSpec<'a> {
    pub spec: &'a VolumeSpec,
    pub hash: VolumeHash,
    pub place: &'a LeafPlace,
    pub class: &'a str,
    pub access: Vec<AccessMode>,
    pub mode: VolumeMode,
    /// The member's VolumeAttributesClass, where one was asked for.
    pub attributes: Option<&'a str>,
    /// The size as the user wrote it.
    pub size: String,
    /// UID of the host claim, where there is one.
    pub claim_uid: Option<&'a str>,
    /// The node that it waits for, where we choose it.
    pub node: Option<&'a str>,
    pub source: Option<&'a LeafSource>,
}

/// What a leaf claim is to be filled with: something in its own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeafSource {
    Snapshot(String),
    Claim(String),
}

impl LeafSource {
    fn reference(&self) -> TypedLocalObjectReference {
        let (api_group, kind, name) = match self {
            Self::Snapshot(name) => (Some("snapshot.storage.k8s.io".to_owned()), "VolumeSnapshot", name),
            Self::Claim(name) => (None, "PersistentVolumeClaim", name),
        };
        TypedLocalObjectReference { api_group, kind: kind.to_owned(), name: name.clone() }
    }
}

/// What became of a POST.
#[derive(Debug)]
pub enum Made {
    Now,
    /// The name was taken already.
    Taken,
}

impl LeafSpec<'_> {
    /// The leaf claim in full. Nothing of the host claim's own metadata is copied.
    pub(super) fn manifest(&self, host: &HostId) -> PersistentVolumeClaim {
        let access = self.access.iter().map(|mode| mode.as_str().to_owned()).collect();
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(self.place.claim.clone()),
                namespace: Some(self.place.namespace.clone()),
                labels: Some(ownership::labels(host, self.hash)),
                annotations: Some(self.annotations()),
                finalizers: Some(vec![ownership::FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeClaimSpec {
                access_modes: Some(access),
                volume_mode: Some(self.mode.as_str().to_owned()),
                storage_class_name: Some(self.class.to_owned()),
                data_source: self.source.map(LeafSource::reference),
                volume_attributes_class_name: self.attributes.map(str::to_owned),
                resources: Some(VolumeResourceRequirements {
                    requests: Some(BTreeMap::from([("storage".to_owned(), Quantity(self.size.clone()))])),
                    limits: None,
                }),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: None,
        }
    }

    fn annotations(&self) -> BTreeMap<String, String> {
        let request = json!(self.spec.request).to_string();
        let mut annotations = BTreeMap::from([
            (ownership::NAME.to_owned(), self.spec.name.clone()),
            (ownership::REQUEST.to_owned(), request),
        ]);
        if let Some(claim) = &self.spec.claim {
            annotations.insert(ownership::CLAIM.to_owned(), format!("{}/{}", claim.namespace, claim.name));
        }
        if let Some(uid) = self.claim_uid {
            annotations.insert(ownership::CLAIM_UID.to_owned(), uid.to_owned());
        }
        if let Some(node) = self.node {
            annotations.insert(SELECTED_NODE.to_owned(), node.to_owned());
        }
        annotations
    }
}

pub(super) fn claims(client: &MemberClient, namespace: &str) -> Api<Trimmed<PersistentVolumeClaim>> {
    Api::namespaced(client.client.clone(), namespace)
}

pub async fn create(client: &MemberClient, wanted: &LeafSpec<'_>) -> Result<Made> {
    post(client, wanted.place, wanted.manifest(&client.host)).await
}

/// POST first: a name that is free costs one request. The namespace is made where it is missing.
pub(super) async fn post(client: &MemberClient, place: &LeafPlace, manifest: PersistentVolumeClaim) -> Result<Made> {
    let manifest = Trimmed::of(manifest);
    let made = post_once(client, place, &manifest).await;
    if !matches!(made, Err(Error::NotFound(_))) {
        return made;
    }
    create_namespace(client, &place.namespace).await?;
    post_once(client, place, &manifest).await
}

async fn post_once(
    client: &MemberClient,
    place: &LeafPlace,
    manifest: &Trimmed<PersistentVolumeClaim>,
) -> Result<Made> {
    let doing = format!("create claim {place}");
    let made = claims(client, &place.namespace).create(&PostParams::default(), manifest).await;
    match made.map_err(|error| client.outcome(&doing, &error)) {
        Ok(claim) => {
            client.rows.put_claim(&claim);
            Ok(Made::Now)
        }
        Err(Error::Exists(_)) => Ok(Made::Taken),
        Err(error) => Err(error),
    }
}

async fn create_namespace(client: &MemberClient, name: &str) -> Result<()> {
    let namespace = ownership::namespace(&client.host, name);
    let made = Api::all(client.client.clone()).create(&PostParams::default(), &namespace).await;
    match made.map_err(|error| client.outcome(&format!("create namespace {name}"), &error)) {
        Ok(_) | Err(Error::Exists(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// A quorum read: the only thing that proves a claim absent. With all of its metadata: it may be somebody else's.
pub async fn read(client: &MemberClient, place: &LeafPlace) -> Result<Option<PersistentVolumeClaim>> {
    // So says a volume from which people took for whom it is bound.
    if place.claim.is_empty() {
        return Ok(None);
    }
    let doing = format!("get claim {place}");
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.client.clone(), &place.namespace);
    let claim = cluster::read(claims.get(&place.claim).await, &place.claim);
    let claim = claim.map_err(|error| client.outcome(&doing, &error))?;
    if let Some(claim) = &claim {
        client.rows.put_claim(claim);
    }
    Ok(claim)
}

/// All claims and volumes that carry the labels of a volume, wherever they are.
pub async fn list_leaf(client: &MemberClient, hash: VolumeHash) -> Result<()> {
    let selector = format!("{},{}={hash}", ownership::selector(&client.host), ownership::VOLUME);
    let ours = ListParams::default().labels(&selector);
    let claims = client.listed(|namespace| client.within::<Trimmed<PersistentVolumeClaim>>(namespace), &ours).await;
    let claims = claims.map_err(|error| client.outcome(&format!("list claims of volume {hash}"), &error))?;
    for claim in claims {
        client.rows.put_claim(&claim);
    }
    let volumes = Api::<Trimmed<PersistentVolume>>::all(client.client.clone()).list(&ours).await;
    let volumes = volumes.map_err(|error| client.outcome(&format!("list volumes of volume {hash}"), &error))?;
    volumes.iter().for_each(|volume| client.rows.put_volume(volume));
    Ok(())
}

/// Deletes the claim as long as it is as it was seen: it may have been bound, or published, since.
pub async fn delete(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<()> {
    let seen = Preconditions { uid: Some(row.uid.to_string()), resource_version: Some(row.version.to_string()) };
    let parameters = DeleteParams { preconditions: Some(seen), ..DeleteParams::default() };
    let doing = format!("delete claim {}", row.place);
    match left_by(client, &row.place, &parameters).await.map_err(|error| client.outcome(&doing, &error)) {
        Ok(left) => {
            if let Some(claim) = left {
                client.rows.put_claim(&claim);
            }
            Ok(())
        }
        Err(Error::NotFound(_)) => {
            client.rows.drop_claim(hash, &row.uid, u64::MAX);
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// What an answer is.
#[derive(Deserialize)]
struct Answer {
    kind: Option<String>,
}

/// Deletes, and tells what is left of the claim; none where nobody holds it. `Api::delete` makes a tree of the whole answer before it is
/// decoded.
async fn left_by(
    client: &MemberClient,
    place: &LeafPlace,
    parameters: &DeleteParams,
) -> Result<Option<Trimmed<PersistentVolumeClaim>>, kube::Error> {
    let all = Request::new(PersistentVolumeClaim::url_path(&(), Some(&place.namespace)));
    let request = all.delete(&place.claim, parameters).map_err(kube::Error::BuildRequest)?;
    let text = client.client.request_text(request).await?;
    let Answer { kind } = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
    if kind.as_deref() == Some("Status") {
        return Ok(None);
    }
    serde_json::from_str(&text).map(Some).map_err(kube::Error::SerdeError)
}

/// Writes on a claim that waits for which node it is, if nobody has done so meanwhile.
pub async fn select_node(client: &MemberClient, row: &ClaimRow, node: &str) -> Result<()> {
    let annotation = path_of(SELECTED_NODE);
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": row.uid},
        {"op": "test", "path": annotation, "value": null},
        {"op": "test", "path": "/spec/volumeName", "value": null},
        {"op": "add", "path": annotation, "value": node},
    ]);
    let doing = format!("select node {node} for claim {}", row.place);
    let patched = json_patch::send(claims(client, &row.place.namespace), &row.place.claim, &patch).await;
    match patched.map_err(|error| client.outcome(&doing, &error)) {
        Ok(claim) => {
            client.rows.put_claim(&claim);
            Ok(())
        }
        // It has changed since it was seen: the next look decides again.
        Err(Error::Refused(_)) => read(client, &row.place).await.map(drop),
        Err(error) => Err(error),
    }
}

/// Takes our finalizer away from the place where it was seen, if it still is there.
pub async fn release(client: &MemberClient, row: &ClaimRow, hash: VolumeHash) -> Result<()> {
    let finalizer = format!("/metadata/finalizers/{}", row.finalizer.unwrap_or_default());
    let patch = json!([
        {"op": "test", "path": "/metadata/uid", "value": row.uid},
        // Bound since it was last seen: its volume would be lost from sight.
        {"op": "test", "path": "/spec/volumeName", "value": row.volume()},
        {"op": "test", "path": finalizer, "value": ownership::FINALIZER},
        {"op": "remove", "path": finalizer},
    ]);
    let doing = format!("release claim {}", row.place);
    let patched = json_patch::send(claims(client, &row.place.namespace), &row.place.claim, &patch).await;
    match patched.map_err(|error| client.outcome(&doing, &error)) {
        Ok(claim) if claim.metadata.finalizers.as_ref().is_none_or(Vec::is_empty) => {
            client.rows.drop_claim(hash, &row.uid, u64::MAX);
            Ok(())
        }
        Ok(claim) => {
            client.rows.put_claim(&claim);
            Ok(())
        }
        Err(Error::NotFound(_)) => {
            client.rows.drop_claim(hash, &row.uid, u64::MAX);
            Ok(())
        }
        // Somebody else changed the list of finalizers: the next look decides again.
        Err(Error::Refused(reason)) => {
            read(client, &row.place).await?;
            Err(Error::InProgress(reason))
        }
        Err(error) => Err(error),
    }
}

/// Whether the leaf that is meant is there, and its volume has not left it. One whose labels somebody took away may be it.
pub async fn is_well(client: &MemberClient, place: &LeafPlace, meant: Meant<'_>) -> Result<bool> {
    let Some(claim) = read(client, place).await? else { return Ok(false) };
    let identity = judge(&claim.metadata, &client.host, meant);
    let known = matches!(identity, Identity::Leaf(_) | Identity::Consents | Identity::Stripped);
    Ok(known && !ClaimRow::new(&claim).is_lost())
}
