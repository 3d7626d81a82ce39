//! What the host asks for, and the comparison that decides whether it asked for the same thing before.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    AccessMode, Attributes, Claim, HostId, LeafPlace, Parameters, Placing, VolumeHash, VolumeId, VolumeMode,
    backing::AttachMode, parameters::own, quantity,
};
use crate::error::Result;

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
    /// Over all parts, each text after its length and each list after its count: none runs into the next.
    pub fn fingerprint(&self) -> Fingerprint {
        let Self { required, limit, access, mode, parameters, source } = self;
        let mut digest = Sha256::new();
        digest.update(required.to_be_bytes());
        digest.update(limit.to_be_bytes());
        add_length(&mut digest, access.len());
        for mode in access {
            digest.update([*mode as u8]);
        }
        digest.update([*mode as u8]);
        add_length(&mut digest, parameters.len());
        for (key, value) in parameters {
            add_text(&mut digest, key);
            add_text(&mut digest, value);
        }
        let (kind, handle) = match source {
            None => (0_u8, ""),
            Some(Source::Snapshot(handle)) => (1, handle.as_str()),
            Some(Source::Volume(handle)) => (2, handle.as_str()),
        };
        digest.update([kind]);
        add_text(&mut digest, handle);
        let mut first = [0; 16];
        first.copy_from_slice(&digest.finalize()[..16]);
        Fingerprint(first)
    }

    /// The first thing in which an earlier request differs from this one, in words.
    pub fn difference(&self, earlier: &Self) -> Option<String> {
        let size = |bytes: u64| {
            if bytes == 0 { "no size".to_owned() } else { quantity::print(bytes) }
        };
        let source = |source: &Option<Source>| source.as_ref().map_or_else(|| "none".to_owned(), Source::to_string);
        let (before, after) = (&earlier.parameters, &self.parameters);
        let changed = before.keys().chain(after.keys()).find(|key| before.get(*key) != after.get(*key));
        let parameter = changed.map(|key| format!("parameter {key}")).unwrap_or_default();
        let told = |all: &BTreeMap<String, String>| {
            let value = changed.and_then(|key| all.get(key));
            value.map_or_else(|| "none".to_owned(), |value| format!("{value:?}"))
        };
        let pairs = [
            ("required size", size(earlier.required), size(self.required)),
            ("size limit", size(earlier.limit), size(self.limit)),
            ("access modes", format!("{:?}", earlier.access), format!("{:?}", self.access)),
            ("volume mode", format!("{:?}", earlier.mode), format!("{:?}", self.mode)),
            (parameter.as_str(), told(before), told(after)),
            ("source", source(&earlier.source), source(&self.source)),
        ];
        pairs
            .into_iter()
            .find(|(_, then, now)| then != now)
            .map(|(what, then, now)| format!("{what} was {then} at first and is {now} now"))
    }
}

fn add_length(digest: &mut Sha256, length: usize) {
    digest.update((length as u64).to_be_bytes());
}

fn add_text(digest: &mut Sha256, text: &str) {
    add_length(digest, text.len());
    digest.update(text);
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
    /// By what a leaf says that it was made for, for a claim of the host's. Its member is chosen already.
    pub fn of_leaf(name: &str, request: Request, parameters: Parameters, claim: &Claim) -> Self {
        Self {
            name: name.to_owned(),
            request,
            parameters,
            attributes: Attributes::default(),
            claim: Some(claim.clone()),
            preferred: Vec::new(),
            requisite: Vec::new(),
            nodes: Vec::new(),
        }
    }

    /// The parameters that count for comparison: the administrator's.
    pub fn comparable(raw: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        own(raw).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    pub fn place(&self, member: &str, host: &HostId, fallback_namespace: &str) -> Result<LeafPlace> {
        let placing = Placing { parameters: &self.parameters, claim: self.claim.as_ref(), volume: &self.name };
        placing.place(member, host, fallback_namespace)
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
}

#[cfg(test)]
mod tests;
