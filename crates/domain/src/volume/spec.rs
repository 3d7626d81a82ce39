//! What the host asks for, and the comparison that decides whether it asked for the same thing before.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    AccessMode, Attributes, HostId, LeafPlace, Parameters, VolumeHash, VolumeId, VolumeMode, backing::AttachMode,
    id::is_label, id::is_subdomain, parameters::own, quantity,
};
use crate::error::{Error, Result};

/// The host claim a volume is made for, as the provisioner names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for Claim {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// Stands for a claim's namespace and name where only equality counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimDigest(u32);

impl ClaimDigest {
    /// Of namespace and name with a slash between, or of another name or UID.
    pub fn new(claim: &str) -> Self {
        let digest = Sha256::digest(claim);
        Self(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

/// What a volume begins with, by handle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    Snapshot(String),
    Volume(String),
}

impl Source {
    pub fn handle(&self) -> &str {
        match self {
            Self::Snapshot(handle) | Self::Volume(handle) => handle,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(handle) => write!(out, "snapshot {handle}"),
            Self::Volume(handle) => write!(out, "volume {handle}"),
        }
    }
}

/// Everything that must be equal when the same name is asked for again. Kept as JSON on the leaf claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    pub required: u64,
    pub limit: u64,
    pub access: Vec<AccessMode>,
    pub mode: VolumeMode,
    pub parameters: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
}

/// Stands for a request where only equality counts: two that differ have different ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; 16]);

impl Request {
    pub fn fingerprint(&self) -> Fingerprint {
        let digest = Sha256::digest(format!("{self:?}"));
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Fingerprint(first)
    }

    /// The first thing in which an earlier request differs from this one, in words.
    pub fn difference(&self, earlier: &Self) -> Option<String> {
        let size = |bytes: u64| {
            if bytes == 0 { "no size".to_owned() } else { quantity::print(bytes) }
        };
        let source = |source: &Option<Source>| source.as_ref().map_or_else(|| "none".to_owned(), Source::to_string);
        let pairs = [
            ("required size", size(earlier.required), size(self.required)),
            ("size limit", size(earlier.limit), size(self.limit)),
            ("access modes", format!("{:?}", earlier.access), format!("{:?}", self.access)),
            ("volume mode", format!("{:?}", earlier.mode), format!("{:?}", self.mode)),
            ("parameters", format!("{:?}", earlier.parameters), format!("{:?}", self.parameters)),
            ("source", source(&earlier.source), source(&self.source)),
        ];
        pairs
            .into_iter()
            .find(|(_, then, now)| then != now)
            .map(|(what, then, now)| format!("{what} was {then} then and is {now} now"))
    }
}

/// A node of a member, as the topology names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberNode {
    pub member: String,
    pub node: String,
}

/// One volume as the host wants it.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    pub name: String,
    pub request: Request,
    pub parameters: Parameters,
    /// May change later, so no part of the request.
    pub attributes: Attributes,
    /// Absent where the provisioner passes no claim.
    pub claim: Option<Claim>,
    /// Members, in the order of the requirement; empty where there is none.
    pub preferred: Vec<String>,
    pub requisite: Vec<String>,
    /// The members' own nodes that the requirement names, in its order; empty where it names none.
    pub nodes: Vec<MemberNode>,
}

impl VolumeSpec {
    /// The parameters that count for comparison: the administrator's.
    pub fn comparable(raw: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        own(raw).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The leaf claim carries the host claim's own name, so that a mirrored pod finds it; without a host claim, the hash.
    pub fn place(&self, member: &str, host: &HostId, fallback_namespace: &str) -> Result<LeafPlace> {
        if self.attach_mode(member) == AttachMode::VirtualMachine {
            return self.place_beside_machines(member, host);
        }
        let (namespace, claim) = match &self.claim {
            Some(claim) => (claim.namespace.clone(), claim.name.clone()),
            None => (fallback_namespace.to_owned(), hashed_name(VolumeHash::new(host, &self.name))),
        };
        let fill = |parameter: &str, template: Option<&String>, default: String| match template {
            Some(template) => self.fill(parameter, template, host),
            None => Ok(default),
        };
        let place = LeafPlace {
            namespace: fill("leafNamespace", self.parameters.leaf_namespace.at(member), namespace)?,
            claim: fill("leafClaimName", self.parameters.leaf_claim_name.at(member), claim)?,
        };
        if !is_label(&place.namespace, 63) {
            return Err(Error::Invalid(format!("leafNamespace gives {:?}, which is no namespace", place.namespace)));
        }
        if !is_subdomain(&place.claim) {
            return Err(Error::Invalid(format!("leafClaimName gives {:?}, which is no claim's name", place.claim)));
        }
        Ok(place)
    }

    /// A disk's claim lives in the namespace of the machines, which all namespaces of the host share: so the claim cannot have
    /// the host claim's name.
    fn place_beside_machines(&self, member: &str, host: &HostId) -> Result<LeafPlace> {
        let wrong = |why: &str| {
            Error::Invalid(format!(
                "StorageClass parameter attachMode is virtual-machine for member {member}: {why}. Set leafNamespace to the \
                 namespace of the virtual machines, and leave leafClaimName out"
            ))
        };
        if self.parameters.leaf_claim_name.at(member).is_some() {
            return Err(wrong("leafClaimName is set, and the leaf claim is named by the driver"));
        }
        let template = self.parameters.leaf_namespace.at(member).ok_or_else(|| wrong("leafNamespace is missing"))?;
        let namespace = template.replace("${host}", &host.0);
        if !is_label(&namespace, 63) {
            return Err(wrong(&format!("leafNamespace {template:?} is no fixed namespace")));
        }
        Ok(LeafPlace { namespace, claim: hashed_name(VolumeHash::new(host, &self.name)) })
    }

    pub fn attach_mode(&self, member: &str) -> AttachMode {
        self.parameters.attach_mode.at(member).copied().unwrap_or_default()
    }

    /// What the leaf claim asks for where the class says otherwise than the host claim.
    pub fn leaf_access(&self, member: &str) -> Vec<AccessMode> {
        match self.parameters.leaf_access_mode.at(member) {
            Some(mode) => vec![*mode],
            None => self.request.access.clone(),
        }
    }

    pub fn leaf_mode(&self, member: &str) -> VolumeMode {
        self.parameters.leaf_volume_mode.at(member).copied().unwrap_or(self.request.mode)
    }

    /// The nodes of a member that will do, the best first; empty where any will.
    pub fn nodes_of(&self, member: &str) -> Vec<&str> {
        let mut nodes: Vec<&str> = Vec::new();
        for place in self.nodes.iter().filter(|place| place.member == member) {
            if !nodes.contains(&place.node.as_str()) {
                nodes.push(&place.node);
            }
        }
        nodes
    }

    pub fn id(&self, member: &str, host: &HostId, place: &LeafPlace) -> VolumeId {
        VolumeId::new(member, &place.namespace, &place.claim, VolumeHash::new(host, &self.name))
    }

    fn fill(&self, parameter: &str, template: &str, host: &HostId) -> Result<String> {
        let mut text = template.replace("${host}", &host.0);
        if let Some(claim) = &self.claim {
            text = text
                .replace("${pvc.metadata.namespace}", &claim.namespace)
                .replace("${pvc.metadata.name}", &claim.name);
        }
        if text.contains("${") {
            return Err(Error::Invalid(format!(
                "StorageClass parameter {parameter}: {template:?} holds something else than ${{pvc.metadata.namespace}}, \
                 ${{pvc.metadata.name}} and ${{host}}, or the provisioner runs without --extra-create-metadata"
            )));
        }
        Ok(text)
    }
}

/// The name of a leaf claim that cannot have the host claim's.
pub fn hashed_name(hash: VolumeHash) -> String {
    format!("v-{hash}")
}

#[cfg(test)]
mod tests;
