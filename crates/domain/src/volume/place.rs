//! Where a leaf claim is: under the host claim's own names, so that a mirrored pod finds it, unless its class says otherwise.

use std::fmt;

use super::{
    HostId, LeafPlace, Parameters, VolumeHash,
    backing::AttachMode,
    id::{is_label, is_subdomain},
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

/// What decides it.
#[derive(Clone, Copy, Debug)]
pub struct Placing<'a> {
    /// Of the class.
    pub parameters: &'a Parameters,
    /// Absent where the provisioner passes no claim.
    pub claim: Option<&'a Claim>,
    /// The volume's name.
    pub volume: &'a str,
}

impl Placing<'_> {
    /// Without a host claim it has the hash for its name.
    pub fn place(&self, member: &str, host: &HostId, fallback_namespace: &str) -> Result<LeafPlace> {
        if self.parameters.attach_mode.at(member) == Some(&AttachMode::VirtualMachine) {
            return self.beside_machines(member, host);
        }
        let (namespace, claim) = match self.claim {
            Some(claim) => (claim.namespace.clone(), claim.name.clone()),
            None => (fallback_namespace.to_owned(), hashed_name(VolumeHash::new(host, self.volume))),
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
            return Err(Error::Invalid(format!(
                "leafNamespace gives {:?}, which is not the name of a namespace",
                place.namespace
            )));
        }
        if !is_subdomain(&place.claim) {
            return Err(Error::Invalid(format!(
                "leafClaimName gives {:?}, which is not the name of a claim",
                place.claim
            )));
        }
        Ok(place)
    }

    /// A disk's claim lives in the namespace of the machines, which all namespaces of the host share: so the claim cannot have
    /// the host claim's name.
    fn beside_machines(&self, member: &str, host: &HostId) -> Result<LeafPlace> {
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
            return Err(wrong(&format!("leafNamespace {template:?} is not the fixed name of a namespace")));
        }
        Ok(LeafPlace { namespace, claim: hashed_name(VolumeHash::new(host, self.volume)) })
    }

    fn fill(&self, parameter: &str, template: &str, host: &HostId) -> Result<String> {
        let mut text = template.replace("${host}", &host.0);
        if let Some(claim) = self.claim {
            text = text
                .replace("${pvc.metadata.namespace}", &claim.namespace)
                .replace("${pvc.metadata.name}", &claim.name);
        }
        if text.contains("${") {
            return Err(Error::Invalid(format!(
                "StorageClass parameter {parameter}: {template:?} may contain only ${{pvc.metadata.namespace}}, \
                 ${{pvc.metadata.name}} and ${{host}}; if it does, run the provisioner with --extra-create-metadata"
            )));
        }
        Ok(text)
    }
}

/// The name of a leaf claim that cannot have the host claim's.
pub fn hashed_name(hash: VolumeHash) -> String {
    format!("v-{hash}")
}
