//! What is kept of a leaf claim on its volume while it goes, and the claim that is recreated from it.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::core::v1::{
        PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
        VolumeResourceRequirements,
    },
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    MemberClient,
    attachment::{self, LeafAttachment},
    marks::{MEMBER_OF, read_request},
    ownership::{self, MadeFor},
    progress,
};
use domain::{
    error::{Error, Result},
    volume::{
        AccessMode, Claim, LeafPlace, Parameters, VolumeId, VolumeSpec,
        moving::MoveMark,
        published::{Attachment, Publication, Published},
        quantity,
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
    pub(super) policy: String,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    spec: PersistentVolumeClaimSpec,
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
    pub fn of(volume: &PersistentVolume) -> Option<Self> {
        serde_json::from_str(volume.annotations().get(ownership::HEALING)?).ok()
    }

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
        // Kept before, it is retained because of that.
        let before = Self::of(volume).filter(|_| policy_of(volume) == "Retain");
        let policy = before.map_or_else(|| policy_of(volume).to_owned(), |before| before.policy);
        let mut labels = claim.labels().clone();
        labels.retain(|key, _| !key.starts_with(MEMBER_OF));
        Self { uid, policy, labels, annotations, spec }.small_enough()
    }

    /// Of a claim that is gone already: what its volume and the host know of it. A VolumeAttributesClass is known where the volume names it,
    /// as Kubernetes has it write what is in force; one that was only asked for is asked for again by who wanted it.
    fn of_volume(volume: &PersistentVolume, name: &str) -> Option<Self> {
        let is = volume.spec.as_ref()?;
        let spec = PersistentVolumeClaimSpec {
            access_modes: is.access_modes.clone(),
            volume_mode: is.volume_mode.clone(),
            // Never the member's default class, which is what no class would mean.
            storage_class_name: Some(is.storage_class_name.clone().unwrap_or_default()),
            resources: Some(request(capacity_of(volume)?.clone())),
            volume_name: Some(volume.name_any()),
            volume_attributes_class_name: is.volume_attributes_class_name.clone().filter(|name| !name.is_empty()),
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

    /// For whom the claim was made.
    pub(super) fn told(&self) -> Option<MadeFor> {
        MadeFor::told(&self.annotations)
    }

    /// Whether a volume of the host led to the claim.
    pub(super) fn had_volume(&self) -> bool {
        self.annotations.contains_key(ownership::HAD_VOLUME)
    }

    /// What the claim said of a move.
    pub(super) fn mark(&self) -> Option<MoveMark> {
        MoveMark::parse(self.annotations.get(ownership::MOVE)?)
    }

    /// Where it belongs for a claim of the host's: its class says so. One whose class is not known stays where it was.
    pub fn place(&self, leaf: &MemberClient, claim: &Claim, before: &LeafPlace) -> Result<LeafPlace> {
        let annotation = |key| self.annotations.get(key);
        let told = annotation(ownership::CLAIM).is_some_and(|was| *was != claim.to_string());
        let request = annotation(ownership::REQUEST).and_then(|text| read_request(text));
        let (Some(name), Some(request), true) = (annotation(ownership::NAME), request, told) else {
            return Ok(before.clone());
        };
        let parameters = Parameters::parse(&request.parameters)?;
        let spec = VolumeSpec::of_leaf(name, request, parameters, claim);
        spec.place(&leaf.member, &leaf.host, &before.namespace)
    }

    /// The same for another claim of the host's.
    #[must_use]
    pub fn made_for(mut self, claim: &Claim, uid: &str) -> Self {
        if self.annotations.contains_key(ownership::CLAIM) {
            self.annotations.insert(ownership::CLAIM.to_owned(), claim.to_string());
            self.annotations.insert(ownership::CLAIM_UID.to_owned(), uid.to_owned());
        }
        self
    }

    /// The same at a place, which may be another one than the handle's.
    #[must_use]
    pub fn at(mut self, place: &LeafPlace, handle: &str) -> Self {
        self.annotations.remove(ownership::HANDLE);
        if VolumeId::parse(handle).is_some_and(|id| !id.is_of(place)) {
            self.annotations.insert(ownership::HANDLE.to_owned(), handle.to_owned());
        }
        self
    }

    /// On which nodes it is. While the claim goes and comes back, this is what counts.
    pub fn record(&self) -> Published {
        progress::published(self.annotations.get(ownership::PUBLISHED).map(String::as_str))
    }

    /// The same with another record.
    #[must_use]
    pub(super) fn published(mut self, published: &Published) -> Self {
        match progress::record(published) {
            Some(text) => drop(self.annotations.insert(ownership::PUBLISHED.to_owned(), text)),
            None => drop(self.annotations.remove(ownership::PUBLISHED)),
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
    pub(super) fn former(&self) -> String {
        let before = self.annotations.get(ownership::FORMER).map(String::as_str).unwrap_or_default();
        ownership::with_former(before, &self.uid)
    }

    pub(super) fn claim(&self, place: &LeafPlace) -> PersistentVolumeClaim {
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

/// What a leaf volume and the host know of its claim that is gone. The record went with the claim; of that, what is
/// attached still is known.
pub async fn recall(client: &MemberClient, volume: &PersistentVolume, name: &str) -> Result<Option<Saved>> {
    let Some(saved) = Saved::of_volume(volume, name) else { return Ok(None) };
    let attached = match attachment::ours(client).await {
        // Who may not see them has made none.
        Err(Error::Denied(_)) => Vec::new(),
        attached => attached?,
    };
    let modes = volume.spec.as_ref().and_then(|spec| spec.access_modes.as_deref()).unwrap_or_default();
    let access = modes.first().and_then(|mode| AccessMode::parse(mode)).unwrap_or(AccessMode::ReadWriteOnce);
    let of_this = |one: &LeafAttachment| one.hash.is_some() && !one.withdrawn && one.volume == volume.name_any();
    let nodes = attached.into_iter().filter(of_this).map(|one| {
        let attached = Some(Attachment::MemberNode(one.member_node));
        (one.node, Publication { access, readonly: false, attached })
    });
    Ok(Some(saved.published(&Published::new(nodes.collect()))))
}

fn request(size: Quantity) -> VolumeResourceRequirements {
    VolumeResourceRequirements { requests: Some(BTreeMap::from([("storage".to_owned(), size)])), limits: None }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn claim_of_which_nothing_was_kept_comes_back_with_the_class_that_its_volume_names() {
        let place = LeafPlace { namespace: "shop".to_owned(), claim: "data".to_owned() };
        for (named, expected) in [(json!("gold"), Some("gold")), (json!(""), None), (json!(null), None)] {
            let spec =
                json!({"capacity": {"storage": "1Gi"}, "claimRef": {"uid": "u"}, "volumeAttributesClassName": named});
            let volume: PersistentVolume = from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap();
            let again = Saved::of_volume(&volume, "pvc-1").unwrap().claim(&place);
            assert_eq!(again.spec.unwrap().volume_attributes_class_name.as_deref(), expected, "{named}");
        }
    }
}
