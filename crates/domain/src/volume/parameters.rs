//! The parameters of a StorageClass: every key once, each with an optional `.<member>` suffix.

use std::collections::BTreeMap;

use super::{AccessMode, VolumeMode, backing::AttachMode, id::is_member_name};
use crate::error::{Error, Result};

/// Written by the provisioner, not by the administrator.
const RESERVED: &str = "csi.storage.k8s.io/";
/// Each but the first also with the suffix `.<member>`.
pub const NAMES: [&str; 8] = [
    "member",
    "leafStorageClass",
    "leafBinding",
    "leafNamespace",
    "leafClaimName",
    "leafAccessMode",
    "leafVolumeMode",
    "attachMode",
];

/// How a leaf claim whose class waits for a first consumer gets one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LeafBinding {
    /// Where the class waits: a short-lived pod, or a node where the topology names one. Nothing where it does not.
    #[default]
    Auto,
    /// Always a short-lived pod.
    Consumer,
    /// The driver itself writes on the claim for which node it is.
    SelectedNode,
    /// The pod that the host's agent runs in the member; nobody waits for it. A volume with a source is not left to that.
    Deferred,
}

/// A value for all members, and those that differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerMember<T> {
    everywhere: Option<T>,
    exceptions: BTreeMap<String, T>,
}

impl<T> Default for PerMember<T> {
    fn default() -> Self {
        Self { everywhere: None, exceptions: BTreeMap::new() }
    }
}

impl<T> PerMember<T> {
    pub fn at(&self, member: &str) -> Option<&T> {
        self.exceptions.get(member).or(self.everywhere.as_ref())
    }

    pub(super) fn set(&mut self, member: Option<&str>, value: T) {
        match member {
            Some(member) => drop(self.exceptions.insert(member.to_owned(), value)),
            None => self.everywhere = Some(value),
        }
    }
}

/// A class's parameters, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    pub member: Option<String>,
    pub leaf_class: PerMember<String>,
    pub leaf_binding: PerMember<LeafBinding>,
    pub leaf_namespace: PerMember<String>,
    pub leaf_claim_name: PerMember<String>,
    pub leaf_access_mode: PerMember<AccessMode>,
    pub leaf_volume_mode: PerMember<VolumeMode>,
    pub attach_mode: PerMember<AttachMode>,
}

impl Parameters {
    pub fn parse(raw: &BTreeMap<String, String>) -> Result<Self> {
        let mut parameters = Self::default();
        for (key, value) in own(raw) {
            parameters.take(key, value)?;
        }
        Ok(parameters)
    }

    fn take(&mut self, key: &str, value: &str) -> Result<()> {
        if value.is_empty() {
            return Err(Error::Invalid(format!(
                "StorageClass parameter {key} is empty: give it a value or leave it out"
            )));
        }
        if key == "member" {
            self.member = Some(member_name(key, value)?);
            return Ok(());
        }
        let (base, member) = split_suffix(key)?;
        match base {
            "leafStorageClass" => self.leaf_class.set(member, value.to_owned()),
            "leafBinding" => self.leaf_binding.set(member, binding(key, value)?),
            "leafNamespace" => self.leaf_namespace.set(member, value.to_owned()),
            "leafClaimName" => self.leaf_claim_name.set(member, value.to_owned()),
            "leafAccessMode" => self.leaf_access_mode.set(member, access_mode(key, value)?),
            "leafVolumeMode" => self.leaf_volume_mode.set(member, volume_mode(key, value)?),
            "attachMode" => self.attach_mode.set(member, attach_mode(key, value)?),
            _ => return Err(unknown(key)),
        }
        Ok(())
    }
}

/// The administrator's own parameters, without what the provisioner adds.
pub fn own(raw: &BTreeMap<String, String>) -> impl Iterator<Item = (&String, &String)> {
    raw.iter().filter(|(key, _)| !key.starts_with(RESERVED))
}

fn split_suffix(key: &str) -> Result<(&str, Option<&str>)> {
    let Some((base, member)) = key.split_once('.') else {
        return Ok((key, None));
    };
    member_name(key, member)?;
    Ok((base, Some(member)))
}

fn member_name(key: &str, name: &str) -> Result<String> {
    if is_member_name(name) {
        return Ok(name.to_owned());
    }
    Err(Error::Invalid(format!(
        "StorageClass parameter {key}: {name:?} is not the name of a member (a DNS label of at most 40 characters)"
    )))
}

fn unknown(key: &str) -> Error {
    let known = NAMES.join(", ");
    Error::Invalid(format!(
        "unknown StorageClass parameter {key:?}; known are {known} (each but member also with the suffix .<member>)"
    ))
}

fn not_one_of(key: &str, value: &str, allowed: &str) -> Error {
    Error::Invalid(format!("StorageClass parameter {key}: {value:?} is not one of {allowed}"))
}

fn binding(key: &str, value: &str) -> Result<LeafBinding> {
    match value {
        "auto" => Ok(LeafBinding::Auto),
        "consumer" => Ok(LeafBinding::Consumer),
        "selected-node" => Ok(LeafBinding::SelectedNode),
        "deferred" => Ok(LeafBinding::Deferred),
        _ => Err(not_one_of(key, value, "auto, consumer, selected-node, deferred")),
    }
}

fn access_mode(key: &str, value: &str) -> Result<AccessMode> {
    AccessMode::parse(value)
        .ok_or_else(|| not_one_of(key, value, "ReadWriteOnce, ReadOnlyMany, ReadWriteMany, ReadWriteOncePod"))
}

fn volume_mode(key: &str, value: &str) -> Result<VolumeMode> {
    match value {
        "Filesystem" => Ok(VolumeMode::Filesystem),
        "Block" => Ok(VolumeMode::Block),
        _ => Err(not_one_of(key, value, "Filesystem, Block")),
    }
}

fn attach_mode(key: &str, value: &str) -> Result<AttachMode> {
    AttachMode::parse(value).ok_or_else(|| not_one_of(key, value, "none, volume-attachment, virtual-machine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(pairs: &[(&str, &str)]) -> Result<Parameters> {
        Parameters::parse(&pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn suffix_of_a_member_wins_over_the_common_value() {
        let parameters = parse(&[("leafStorageClass", "fast"), ("leafStorageClass.cluster39", "slow")]).unwrap();
        assert_eq!(parameters.leaf_class.at("cluster38").unwrap(), "fast");
        assert_eq!(parameters.leaf_class.at("cluster39").unwrap(), "slow");
        assert_eq!(parse(&[("leafStorageClass.a", "x")]).unwrap().leaf_class.at("b"), None);
    }

    #[test]
    fn what_the_provisioner_adds_is_not_a_parameter() {
        assert_eq!(parse(&[("csi.storage.k8s.io/pvc/name", "data")]).unwrap(), Parameters::default());
    }

    #[test]
    fn unknown_key_is_refused_by_name() {
        for key in ["leafclass", "Member", "leafBindings.cluster38", "leafStorageClass.Not_A_Member", "member.a"] {
            let error = parse(&[(key, "auto")]).unwrap_err();
            assert!(matches!(&error, Error::Invalid(message) if message.contains(key)), "{key}: {error}");
        }
    }

    #[test]
    fn bad_value_is_refused_with_the_allowed_ones() {
        for (key, value, allowed) in [
            ("leafBinding", "now", "auto, consumer, selected-node, deferred"),
            ("leafAccessMode.a", "RWO", "ReadWriteOnce"),
            ("leafVolumeMode", "block", "Block"),
            ("attachMode.a", "ssh", "none, volume-attachment, virtual-machine"),
            ("member", "Not A Label", "DNS label"),
            ("leafNamespace", "", "empty"),
        ] {
            let error = parse(&[(key, value)]).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(allowed), "{error}");
        }
    }
}
