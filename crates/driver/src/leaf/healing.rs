//! A leaf claim that somebody deleted, or that was let go, comes back with its data. The steps: its volume is made to stay,
//! and what is needed to make the claim anew is kept on it; the claim goes; it is made anew and names the volume; the volume
//! is given to it; the volume's policy is put back. Each is one request that tests what it was decided on, and after each
//! the objects say which one is next.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::{
    Api, ResourceExt,
    api::{PatchParams, PostParams},
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Cluster,
    claim::Made,
    json_patch,
    lean::Lean,
    ownership,
    row::{ClaimRow, read_request},
};
use crate::{
    cluster,
    error::{Error, Result},
    volume::{
        Attributes, Claim, Parameters, VolumeHash, VolumeId, VolumeSpec,
        healing::{SeenClaim, SeenVolume},
        plan::Phase,
        quantity,
        spec::LeafPlace,
    },
};

/// An object has room for 256 KiB of annotations, and others write on it too.
const LARGEST: usize = 100 * 1024;
/// Annotations that are about the bond of before, or that only their writer can make.
const NOT_KEPT: [&str; 4] =
    ["pv.kubernetes.io/", "volume.kubernetes.io/", "volume.beta.kubernetes.io/", "kubectl.kubernetes.io/"];

/// What is kept of a claim on its volume while it goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// The UID it had.
    pub uid: String,
    /// The volume's policy of before.
    policy: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: PersistentVolumeClaimSpec,
}

/// A leaf claim and its volume, read just now.
#[derive(Clone, Debug)]
pub struct Patient {
    pub place: LeafPlace,
    pub claim: Option<PersistentVolumeClaim>,
    pub volume: Option<PersistentVolume>,
}

impl Patient {
    pub fn claim_seen(&self, leaf: &Cluster, hash: VolumeHash) -> Option<SeenClaim> {
        let claim = self.claim.as_ref()?;
        let row = ClaimRow::new(claim);
        let seen = row.observed();
        Some(SeenClaim {
            ours: ownership::volume_of(&claim.metadata, &leaf.host) == Some(hash),
            uid: seen.uid,
            terminating: seen.terminating,
            protected: seen.protected,
            bound: seen.phase == Phase::Bound,
            published: row.life.published.is_spoilt() || !row.life.published.is_nowhere(),
            volume: seen.volume,
            former: row.former.split(',').filter(|uid| !uid.is_empty()).map(str::to_owned).collect(),
        })
    }

    pub fn volume_seen(&self) -> Option<SeenVolume> {
        let volume = self.volume.as_ref()?;
        Some(SeenVolume {
            name: volume.name_any(),
            claim_uid: bound_to(volume).unwrap_or_default().to_owned(),
            terminating: volume.metadata.deletion_timestamp.is_some(),
            retained: policy_of(volume) == "Retain",
            follows: volume.annotations().contains_key(ownership::POLICY_BEFORE),
            saved: self.saved().map(|saved| saved.uid),
        })
    }

    /// The name of the volume that the claim was made for.
    pub fn volume_name(&self) -> Option<&str> {
        self.claim.as_ref()?.annotations().get(ownership::NAME).map(String::as_str)
    }

    pub fn saved(&self) -> Option<Saved> {
        let volume = self.volume.as_ref()?;
        serde_json::from_str(volume.annotations().get(ownership::HEALING)?).ok()
    }
}

/// What a volume tells of the claim it is bound to.
pub(super) fn bound_to(volume: &PersistentVolume) -> Option<&str> {
    volume.spec.as_ref()?.claim_ref.as_ref()?.uid.as_deref().filter(|uid| !uid.is_empty())
}

pub(super) fn policy_of(volume: &PersistentVolume) -> &str {
    let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
    policy.unwrap_or_default()
}

fn capacity_of(volume: &PersistentVolume) -> Option<&Quantity> {
    volume.spec.as_ref()?.capacity.as_ref()?.get("storage")
}

impl Saved {
    /// Of a claim that is still there.
    pub fn of_claim(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> Self {
        let mut spec = claim.spec.clone().unwrap_or_default();
        // They say what a volume is to be made from, or found by: it is there.
        (spec.data_source, spec.data_source_ref, spec.selector) = (None::<TypedLocalObjectReference>, None, None);
        spec.volume_name = Some(volume.name_any());
        let asked = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref()?.get("storage"));
        let too_large =
            |capacity: &Quantity| asked.is_none_or(|asked| quantity::parse(&asked.0) > quantity::parse(&capacity.0));
        // A growth that had not happened yet is asked for again by who wanted it; a volume too small is never bound.
        if let Some(capacity) = capacity_of(volume).filter(|capacity| too_large(capacity)) {
            spec.resources = Some(request(capacity.clone()));
        }
        let mut annotations = claim.annotations().clone();
        annotations.retain(|key, _| !NOT_KEPT.iter().any(|prefix| key.starts_with(prefix)));
        let uid = claim.uid().unwrap_or_default();
        let saved =
            Self { uid, policy: policy_of(volume).to_owned(), labels: claim.labels().clone(), annotations, spec };
        saved.small_enough()
    }

    /// Of a claim that is gone already: what its volume and the host know of it.
    pub fn of_volume(volume: &PersistentVolume, name: &str) -> Option<Self> {
        let is = volume.spec.as_ref()?;
        let spec = PersistentVolumeClaimSpec {
            access_modes: is.access_modes.clone(),
            volume_mode: is.volume_mode.clone(),
            // Never the member's default class, which is what no class would mean.
            storage_class_name: Some(is.storage_class_name.clone().unwrap_or_default()),
            resources: Some(request(capacity_of(volume)?.clone())),
            volume_name: Some(volume.name_any()),
            ..PersistentVolumeClaimSpec::default()
        };
        let ours = [ownership::MANAGED_BY, ownership::HOST, ownership::VOLUME];
        let labels = volume.labels().iter().filter(|(key, _)| ours.contains(&key.as_str()));
        let mut annotations = BTreeMap::from([(ownership::NAME.to_owned(), name.to_owned())]);
        if let Some(former) = volume.annotations().get(ownership::FORMER) {
            annotations.insert(ownership::FORMER.to_owned(), former.clone());
        }
        Some(Self {
            uid: bound_to(volume)?.to_owned(),
            policy: policy_of(volume).to_owned(),
            labels: labels.map(|(key, value)| (key.clone(), value.clone())).collect(),
            annotations,
            spec,
        })
    }

    /// Where it belongs for a claim of the host's: its class says so. One whose class is not known stays where it was.
    pub fn place(&self, leaf: &Cluster, claim: &Claim, before: &LeafPlace) -> Result<LeafPlace> {
        let annotation = |key| self.annotations.get(key);
        let told = annotation(ownership::CLAIM).is_some_and(|was| *was != claim.to_string());
        let request = annotation(ownership::REQUEST).and_then(|text| read_request(text));
        let (Some(name), Some(request), true) = (annotation(ownership::NAME), request, told) else {
            return Ok(before.clone());
        };
        let parameters = Parameters::parse(&request.parameters)?;
        let spec = VolumeSpec {
            name: name.clone(),
            request,
            parameters,
            attributes: Attributes::default(),
            claim: Some(claim.clone()),
            preferred: Vec::new(),
            requisite: Vec::new(),
            nodes: Vec::new(),
        };
        spec.place(&leaf.member, &leaf.host, &before.namespace)
    }

    /// The same for another claim of the host's, and for another place than the handle's.
    #[must_use]
    pub fn made_for(mut self, claim: &Claim, uid: &str, handle: &str, place: &LeafPlace) -> Self {
        if self.annotations.contains_key(ownership::CLAIM) {
            self.annotations.insert(ownership::CLAIM.to_owned(), claim.to_string());
            self.annotations.insert(ownership::CLAIM_UID.to_owned(), uid.to_owned());
        }
        self.annotations.remove(ownership::HANDLE);
        if VolumeId::parse(handle).and_then(|id| id.place()).is_some_and(|named| named != *place) {
            self.annotations.insert(ownership::HANDLE.to_owned(), handle.to_owned());
        }
        self
    }

    fn small_enough(mut self) -> Self {
        if json!(self).to_string().len() > LARGEST {
            self.annotations.retain(|key, _| key.starts_with(ownership::OURS));
        }
        self
    }

    /// The UIDs that the claim has had, the first and the latest few.
    fn former(&self) -> String {
        let before = self.annotations.get(ownership::FORMER).map(String::as_str).unwrap_or_default();
        ownership::with_former(before, &self.uid)
    }

    fn claim(&self, place: &LeafPlace) -> PersistentVolumeClaim {
        let mut annotations = self.annotations.clone();
        annotations.insert(ownership::FORMER.to_owned(), self.former());
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(place.claim.clone()),
                namespace: Some(place.namespace.clone()),
                labels: Some(self.labels.clone()),
                annotations: Some(annotations),
                finalizers: Some(vec![ownership::FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(self.spec.clone()),
            status: None,
        }
    }
}

fn request(size: Quantity) -> VolumeResourceRequirements {
    VolumeResourceRequirements { requests: Some(BTreeMap::from([("storage".to_owned(), size)])), limits: None }
}

pub(super) fn path_of(annotation: &str) -> String {
    format!("/metadata/annotations/{}", annotation.replace('/', "~1"))
}

impl Cluster {
    /// Claim and volume as they are now. Which volume, a row says: the claim may be gone, or be somebody else's.
    pub async fn examine(&self, hash: VolumeHash, place: &LeafPlace, volume: Option<&str>) -> Result<Patient> {
        let claim = self.read_claim(place).await?;
        let ours = claim.as_ref().filter(|claim| ownership::volume_of(&claim.metadata, &self.host) == Some(hash));
        let named = ours.and_then(|claim| claim.spec.as_ref()?.volume_name.clone());
        let name = named.as_deref().filter(|name| !name.is_empty()).or(volume);
        let volume = match name {
            Some(name) => self.get_volume(name).await?,
            None => None,
        };
        Ok(Patient { place: place.clone(), claim, volume })
    }

    async fn get_volume(&self, name: &str) -> Result<Option<PersistentVolume>> {
        let answer = Api::<PersistentVolume>::all(self.client.clone()).get(name).await;
        cluster::read(answer, name).map_err(|error| self.outcome(&format!("get volume {name}"), &error))
    }

    /// Whether there is a leaf that its volume has not left. One whose labels somebody took away is one.
    pub async fn is_well(&self, place: &LeafPlace) -> Result<bool> {
        let Some(claim) = self.read_claim(place).await? else { return Ok(false) };
        let ours = ownership::volume_of(&claim.metadata, &self.host).is_some();
        let known = ours
            || ownership::consents(&claim.metadata, &self.host)
            || ownership::was_ours(&claim.metadata, &self.host);
        Ok(known && !ClaimRow::new(&claim).is_lost())
    }

    /// The volume stays whatever becomes of its claim, and keeps what is needed to make that anew. What the answer does
    /// not show was not done.
    pub async fn keep_volume(&self, volume: &PersistentVolume, saved: &Saved) -> Result<()> {
        let text = json!(saved).to_string();
        let mut changes = vec![
            json!({"op": "test", "path": "/spec/persistentVolumeReclaimPolicy", "value": policy_of(volume)}),
            json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": "Retain"}),
        ];
        changes.append(&mut annotate(volume, ownership::HEALING, &text));
        let kept = self.change_volume(volume, &saved.uid, &changes, "keep").await?;
        if policy_of(&kept) == "Retain" && kept.annotations().get(ownership::HEALING) == Some(&text) {
            return Ok(());
        }
        Err(Error::InProgress(format!("member {}: volume {} is not kept yet", self.member, volume.name_any())))
    }

    /// The claim under its former name, or that of another claim of the host's. Somebody else may have taken that: the next
    /// look tells.
    pub async fn make_anew(&self, place: &LeafPlace, saved: &Saved) -> Result<Made> {
        let made = self.post_anew(place, saved).await;
        if !matches!(made, Err(Error::NotFound(_))) {
            return made;
        }
        self.create_namespace(&place.namespace).await?;
        self.post_anew(place, saved).await
    }

    async fn post_anew(&self, place: &LeafPlace, saved: &Saved) -> Result<Made> {
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &place.namespace);
        let made = claims.create(&PostParams::default(), &saved.claim(place)).await;
        match made.map_err(|error| self.outcome(&format!("create claim {place} anew"), &error)) {
            Ok(claim) => {
                self.rows.put_claim(&claim);
                Ok(Made::Now)
            }
            Err(Error::Exists(_)) => Ok(Made::Taken),
            Err(error) => Err(error),
        }
    }

    /// The volume is the new claim's, and says which ones it belonged to.
    pub async fn give_volume(
        &self,
        volume: &PersistentVolume,
        hash: VolumeHash,
        saved: &Saved,
        claim: &ClaimRow,
    ) -> Result<()> {
        let reference = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "namespace": claim.place.namespace, "name": claim.place.claim, "uid": claim.uid,
        });
        let mut changes = vec![json!({"op": "replace", "path": "/spec/claimRef", "value": reference})];
        changes.append(&mut annotate(volume, ownership::FORMER, &saved.former()));
        let known = volume.annotations().contains_key(ownership::HANDLE);
        match claim.handle(&self.member, hash) {
            Some(handle) => changes.append(&mut annotate(volume, ownership::HANDLE, &handle)),
            None if known => changes.push(json!({"op": "remove", "path": path_of(ownership::HANDLE)})),
            None => {}
        }
        self.change_volume(volume, &saved.uid, &changes, "give away").await.map(drop)
    }

    /// All is as it was. A write that arrives late must not end what was begun since: it tests the version.
    pub async fn put_policy_back(&self, volume: &PersistentVolume, saved: &Saved, claim: &ClaimRow) -> Result<()> {
        let changes = [
            unchanged(volume),
            json!({"op": "replace", "path": "/spec/persistentVolumeReclaimPolicy", "value": saved.policy}),
            json!({"op": "remove", "path": path_of(ownership::HEALING)}),
        ];
        self.change_volume(volume, &claim.uid, &changes, "put the policy back of").await.map(drop)
    }

    /// A host volume uses the claim: nobody who comes late may take it back.
    pub async fn mark_used(&self, claim: &ClaimRow, by: &str, hash: VolumeHash) -> Result<()> {
        let patch = json_patch(json!([
            {"op": "test", "path": "/metadata/uid", "value": claim.uid},
            {"op": "add", "path": path_of(ownership::HAD_VOLUME), "value": by},
        ]))?;
        let doing = format!("mark claim {}", claim.place);
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &claim.place.namespace);
        let marked = claims.patch(&claim.place.claim, &PatchParams::default(), &patch).await;
        match marked.map_err(|error| self.outcome(&doing, &error)) {
            Ok(claim) => {
                self.rows.put_claim(&claim);
                Ok(())
            }
            Err(Error::NotFound(_)) => {
                self.rows.drop_claim(hash, &claim.uid, u64::MAX);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn change_volume(
        &self,
        volume: &PersistentVolume,
        claim_uid: &str,
        changes: &[Value],
        what: &str,
    ) -> Result<Lean<PersistentVolume>> {
        let mut operations = vec![
            json!({"op": "test", "path": "/metadata/uid", "value": volume.uid()}),
            json!({"op": "test", "path": "/spec/claimRef/uid", "value": claim_uid}),
        ];
        operations.extend_from_slice(changes);
        self.patch_volume(&volume.name_any(), json!(operations), what).await
    }
}

/// Nobody has written it since it was read.
pub(super) fn unchanged(volume: &PersistentVolume) -> Value {
    json!({"op": "test", "path": "/metadata/resourceVersion", "value": volume.resource_version()})
}

/// A volume without any annotation has no place to add one to.
pub(super) fn annotate(volume: &PersistentVolume, key: &str, value: &str) -> Vec<Value> {
    if volume.metadata.annotations.is_some() {
        return vec![json!({"op": "add", "path": path_of(key), "value": value})];
    }
    vec![
        json!({"op": "test", "path": "/metadata/annotations", "value": null}),
        json!({"op": "add", "path": "/metadata/annotations", "value": {key: value}}),
    ]
}
