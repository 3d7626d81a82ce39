//! A volume of the host with its claim.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::object::{is_a, trimmed};
use crate::objects::{title, word};
use domain::volume::{DRIVER, quantity};
use leaf::ownership::POLICY_BEFORE;

/// A volume, and the claim that is bound to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeptVolume {
    pub volume: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Value>,
}

/// What is to be made of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingVolume {
    pub claim: bool,
    pub volume: bool,
}

impl KeptVolume {
    /// An error where it is on its way out, with its leaf.
    pub(super) fn new(volume: &Value, claims: &BTreeMap<(&str, &str), &Value>) -> Result<Self, &'static str> {
        let spec = &volume["spec"];
        let named = (word(spec, "/claimRef/namespace"), word(spec, "/claimRef/name"));
        let (name, uid) = (word(volume, "/metadata/name"), word(spec, "/claimRef/uid"));
        let is_bound = |claim: &&&Value| word(claim, "/metadata/uid") == uid && word(claim, "/spec/volumeName") == name;
        let claim = claims.get(&named).filter(|_| !uid.is_empty()).filter(is_bound);
        if claim.is_some_and(|claim| is_of_a_pod(claim)) {
            return Err("its claim belongs to a pod, and is deleted with that pod");
        }
        let mut kept = trimmed(volume);
        if let Some(of) = kept["spec"].get_mut("claimRef").and_then(Value::as_object_mut) {
            of.remove("resourceVersion");
        }
        let claim = claim.map(|claim| kept_claim(claim, &kept));
        let kept = Self { volume: kept, claim };
        if kept.is_leaving() || kept.claim.is_none() && !word(volume, "/metadata/deletionTimestamp").is_empty() {
            return Err("it is being deleted");
        }
        Ok(kept)
    }

    /// Without the claim that it names, and to be removed with that.
    fn is_leaving(&self) -> bool {
        let spec = &self.volume["spec"];
        let is_retained = word(spec, "/persistentVolumeReclaimPolicy") == "Retain";
        self.claim.is_none() && !word(spec, "/claimRef/uid").is_empty() && !is_retained
    }

    /// The volume for the claim as the new host has it. Without its UID, for a moment nobody would use the leaf.
    pub fn bound_to(&self, claim_uid: &str) -> Value {
        let mut volume = self.volume.clone();
        volume["spec"]["claimRef"]["uid"] = json!(claim_uid);
        if self.was_to_go() {
            volume["metadata"]["annotations"][POLICY_BEFORE] = volume["spec"]["persistentVolumeReclaimPolicy"].take();
            volume["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
        }
        volume
    }

    /// With its claim. Until that is seen to be the one that it was made for, it is `Retain` all the same.
    fn was_to_go(&self) -> bool {
        word(&self.volume, "/spec/persistentVolumeReclaimPolicy") != "Retain"
    }

    /// What is to be made, by what the new host has under these names; an error where that is something else.
    pub fn missing(&self, claim: Option<&Value>, volume: Option<&Value>) -> Result<MissingVolume, String> {
        let missing = MissingVolume { claim: self.claim.is_some() && claim.is_none(), volume: volume.is_none() };
        let uid = |of: Option<&Value>, path: &str| of.map(|of| word(of, path).to_owned()).unwrap_or_default();
        let bound_to = uid(volume, "/spec/claimRef/uid");
        if let Some(volume) = volume
            && word(volume, "/spec/csi/volumeHandle") != word(&self.volume, "/spec/csi/volumeHandle")
        {
            return Err(format!("{} already exists, and has another volumeHandle", title(volume)));
        }
        match (&self.claim, claim) {
            (Some(_), Some(there))
                if !["", word(&self.volume, "/metadata/name")].contains(&word(there, "/spec/volumeName")) =>
            {
                Err(format!("{} already exists, with another volume", title(there)))
            }
            (Some(_), Some(there)) if word(there, "/spec/volumeName").is_empty() => Err(format!(
                "{} already exists, and does not name {}: delete it, and type this again",
                title(there),
                title(&self.volume)
            )),
            (Some(_), Some(there)) if !word(there, "/metadata/deletionTimestamp").is_empty() => {
                Err(format!("{} is being deleted: type this again once it has gone", title(there)))
            }
            (Some(kept), _) if !bound_to.is_empty() && bound_to != uid(claim, "/metadata/uid") => Err(format!(
                "{} already exists, but the {} that it is bound to has been deleted since",
                title(&self.volume),
                title(kept)
            )),
            _ => Ok(missing),
        }
    }

    pub(super) fn foreign(&self) -> Option<&Value> {
        let is_ours =
            is_a(&self.volume, "v1", "PersistentVolume", "") && word(&self.volume, "/spec/csi/driver") == DRIVER;
        let is_its = |claim: &&Value| {
            is_a(claim, "v1", "PersistentVolumeClaim", word(&self.volume, "/spec/claimRef/namespace"))
                && word(claim, "/metadata/name") == word(&self.volume, "/spec/claimRef/name")
                && word(claim, "/spec/volumeName") == word(&self.volume, "/metadata/name")
        };
        if is_ours && !self.is_leaving() {
            return self.claim.as_ref().filter(|claim| !is_its(claim));
        }
        Some(&self.volume)
    }
}

/// A claim that asks for what its volume has: the new host would not bind it to one that is smaller, or of another class.
fn kept_claim(claim: &Value, volume: &Value) -> Value {
    let mut kept = trimmed(claim);
    let spec = &mut kept["spec"];
    let (has, asks) = (word(volume, "/spec/capacity/storage"), word(spec, "/resources/requests/storage"));
    if quantity::parse(asks) > quantity::parse(has) {
        spec["resources"]["requests"]["storage"] = json!(has);
    }
    if let Some(spec) = spec.as_object_mut() {
        match &volume["spec"]["volumeAttributesClassName"] {
            Value::Null => drop(spec.remove("volumeAttributesClassName")),
            class => drop(spec.insert("volumeAttributesClassName".to_owned(), class.clone())),
        }
    }
    kept
}

/// Kubernetes makes it for one pod alone, and lets no other one of that name have it.
fn is_of_a_pod(claim: &Value) -> bool {
    let owners = claim["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|owner| owner["kind"] == "Pod" && owner["controller"] == true)
}
