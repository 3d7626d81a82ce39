//! What a move is about: a claim of the host and its volume.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim,
    VolumeNodeAffinity,
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};

use crate::{
    Host,
    replacement::{Replacing, Target},
    unread,
    volume::volumes,
};
use domain::{
    error::{Error, Result},
    volume::{AccessMode, Claim, DRIVER, MEMBER_KEY, NODE_KEY, VolumeMode, quantity, replacement::SeenVolume},
};

/// Read just now.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is an observation of its own")]
pub struct Subject {
    pub claim: Claim,
    pub claim_uid: String,
    pub is_bound: bool,
    pub is_leaving: bool,
    /// It was made for a pod, and goes with it.
    pub is_ephemeral: bool,
    /// It asks for another VolumeAttributesClass than it has.
    pub is_modified: bool,
    /// In bytes: what it asks for.
    pub requested: u64,
    volume: Option<PersistentVolume>,
}

/// With its volume, or without where nobody asks for that.
pub async fn read_subject(host: &Host, claim: &Claim, with_volume: bool) -> Result<Option<Subject>> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(host.client.clone(), &claim.namespace);
    let answer = cluster::read(claims.get(&claim.name).await, &claim.name);
    let Some(found) = answer.map_err(|error| unread(&format!("get claim {claim}"), &error))? else { return Ok(None) };
    let name = found.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|_| with_volume);
    let volume = match name.as_deref().unwrap_or_default() {
        "" => None,
        name => cluster::read(volumes(host).get(name).await, name)
            .map_err(|error| unread(&format!("get volume {name}"), &error))?,
    };
    Ok(Some(Subject {
        claim: claim.clone(),
        claim_uid: found.uid().unwrap_or_default(),
        is_bound: found.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound"),
        is_leaving: found.metadata.deletion_timestamp.is_some(),
        is_ephemeral: found.owner_references().iter().any(|owner| owner.kind == "Pod"),
        is_modified: volume.as_ref().is_some_and(|volume| is_modified(&found, volume)),
        requested: requested(&found).unwrap_or_default(),
        volume,
    }))
}

fn requested(claim: &PersistentVolumeClaim) -> Option<u64> {
    quantity::parse(&claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")?.0)
}

fn is_modified(claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
    let asked = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let is_under_way = claim.status.as_ref().is_some_and(|status| status.modify_volume_status.is_some());
    is_under_way || asked.filter(|name| !name.is_empty()) != attributes_class(volume)
}

fn attributes_class(volume: &PersistentVolume) -> Option<&str> {
    let name = volume.spec.as_ref()?.volume_attributes_class_name.as_deref()?;
    Some(name).filter(|name| !name.is_empty())
}

/// The parameters of a VolumeAttributesClass of this driver's. None: there is no such class.
pub async fn read_attributes_class(host: &Host, name: &str) -> Result<Option<BTreeMap<String, String>>> {
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("storage.k8s.io", "v1", "VolumeAttributesClass"),
        "volumeattributesclasses",
    );
    let answer = Api::<DynamicObject>::all_with(host.client.clone(), &kind).get(name).await;
    // Not an answer about this name.
    if let Err(kube::Error::Api(status)) = &answer
        && status.code == 404
        && !cluster::says_what_is_missing(status)
    {
        return Err(Error::Refused(
            "the host does not serve VolumeAttributesClass (storage.k8s.io/v1): it comes with Kubernetes 1.34"
                .to_owned(),
        ));
    }
    let found = cluster::read(answer, name);
    let found = found.map_err(|error| unread(&format!("get volumeattributesclass {name}"), &error))?;
    let parameters = |class: DynamicObject| serde_json::from_value(class.data["parameters"].clone());
    let ours = found.filter(|class| class.data["driverName"] == DRIVER);
    Ok(ours.map(|class| parameters(class).unwrap_or_default()))
}

impl Subject {
    pub fn volume_name(&self) -> Option<String> {
        self.volume.as_ref().map(ResourceExt::name_any)
    }

    pub fn volume_uid(&self) -> Option<String> {
        self.volume.as_ref()?.uid()
    }

    pub fn class(&self) -> Option<&str> {
        self.volume.as_ref()?.spec.as_ref()?.storage_class_name.as_deref()
    }

    /// Where it leads; none where it is no volume of this driver's, or of another claim.
    pub fn handle(&self) -> Option<&str> {
        let spec = self.volume.as_ref()?.spec.as_ref()?;
        let is_its_own = spec.claim_ref.as_ref().and_then(|claim| claim.uid.as_ref()) == Some(&self.claim_uid);
        let source = spec.csi.as_ref().filter(|source| is_its_own && source.driver == DRIVER)?;
        Some(&source.volume_handle)
    }

    pub fn attributes(&self) -> BTreeMap<String, String> {
        let source = self.volume.as_ref().and_then(|volume| volume.spec.as_ref()?.csi.as_ref());
        source.and_then(|source| source.volume_attributes.clone()).unwrap_or_default()
    }

    pub fn capacity(&self) -> u64 {
        let capacity = self.volume.as_ref().and_then(|volume| volume.spec.as_ref()?.capacity.as_ref()?.get("storage"));
        capacity.and_then(|size| quantity::parse(&size.0)).unwrap_or_default()
    }

    pub fn access(&self) -> Vec<AccessMode> {
        let modes = self.volume.as_ref().and_then(|volume| volume.spec.as_ref()?.access_modes.as_deref());
        modes.unwrap_or_default().iter().filter_map(|mode| AccessMode::parse(mode)).collect()
    }

    pub fn mode(&self) -> VolumeMode {
        match self.volume.as_ref().and_then(|volume| volume.spec.as_ref()?.volume_mode.as_deref()) {
            Some("Block") => VolumeMode::Block,
            _ => VolumeMode::Filesystem,
        }
    }

    pub fn attributes_class(&self) -> Option<&str> {
        attributes_class(self.volume.as_ref()?)
    }

    pub fn is_volume_leaving(&self) -> bool {
        self.volume.as_ref().is_some_and(|volume| volume.metadata.deletion_timestamp.is_some())
    }

    /// Somebody counts on the object itself: who, by the finalizer.
    pub fn foreign_finalizer(&self) -> Option<String> {
        let finalizers = self.volume.as_ref()?.finalizers().to_vec();
        let seen = SeenVolume { finalizers, ..SeenVolume::default() };
        seen.foreign_finalizers().first().map(|name| (*name).to_owned())
    }

    /// Its topology is one of nodes within members.
    pub fn names_node(&self) -> bool {
        let spec = self.volume.as_ref().and_then(|volume| volume.spec.as_ref());
        let affinity = spec.and_then(|spec| spec.node_affinity.as_ref()?.required.as_ref());
        let terms = affinity.map(|required| required.node_selector_terms.as_slice()).unwrap_or_default();
        terms.iter().flat_map(|term| term.match_expressions.iter().flatten()).any(|one| one.key == NODE_KEY)
    }

    /// The volume as it is to be, once it leads elsewhere.
    pub fn led_to(
        &self,
        handle: String,
        attributes: BTreeMap<String, String>,
        to: &str,
        node: Option<&str>,
    ) -> Option<Replacing> {
        let term = |key: &str, value: &str| NodeSelectorRequirement {
            key: key.to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![value.to_owned()]),
        };
        let expressions = [Some(term(MEMBER_KEY, to)), node.map(|node| term(NODE_KEY, node))];
        let terms = NodeSelectorTerm {
            match_expressions: Some(expressions.into_iter().flatten().collect()),
            ..NodeSelectorTerm::default()
        };
        let affinity = VolumeNodeAffinity { required: Some(NodeSelector { node_selector_terms: vec![terms] }) };
        Replacing::new(self.volume.as_ref()?, Target { handle, attributes, affinity: Some(affinity) })
    }
}
