//! What stands behind the claims of a pod: leaf claims in the member, by the volumes that mount them, once all are bound
//! and attached. No kubelet waits for that on a virtual node, so the agent does.

use std::collections::BTreeMap;

use kube::api::ListParams;
use serde_json::Value;

use super::{
    super::{
        HOST,
        object::{self, Place, is_leaving, items, read, text, whole},
    },
    Pods,
    step::Refusal,
};
use crate::volume::{DRIVER, LeafName, VolumeId};

const VOLUME: &str = "kosmos.csi.io/volume";

/// The claims a pod mounts, by its volumes, and whether one was made for the pod.
fn claims_of(pod: &Value) -> Vec<(String, String, bool)> {
    let volumes = items(pod, "/spec/volumes").filter_map(|volume| {
        let name = text(volume, "/name").to_owned();
        let claim = text(volume, "/persistentVolumeClaim/claimName");
        match volume.get("ephemeral") {
            Some(_) => {
                let claim = format!("{}-{name}", text(pod, "/metadata/name"));
                Some((name, claim, true))
            }
            None if claim.is_empty() => None,
            None => Some((name, claim.to_owned(), false)),
        }
    });
    volumes.collect()
}

/// The host volume of a bound claim, by name.
fn bound<'a>(pod: &Value, name: &str, claim: Option<&'a Value>, for_pod: bool) -> Result<&'a str, Refusal> {
    let waits = |what: &str| Refusal::new("WaitsForClaim", format!("claim {name} {what}"));
    let claim = claim.ok_or_else(|| waits("is not there yet"))?;
    let owned = || items(claim, "/metadata/ownerReferences").any(|owner| owner["uid"] == pod["metadata"]["uid"]);
    if for_pod && !owned() {
        return Err(waits("was not made for this pod: remove it, and one is made that is"));
    }
    if text(claim, "/status/phase") != "Bound" {
        return Err(waits("is not bound yet"));
    }
    if is_leaving(claim) {
        return Err(waits("is being deleted"));
    }
    Ok(text(claim, "/spec/volumeName"))
}

/// The handle of a host volume that is this claim's and this driver's.
fn handle_of<'a>(name: &str, claim_uid: &str, volume: Option<&'a Value>) -> Result<&'a str, Refusal> {
    let volume = volume.filter(|volume| text(volume, "/spec/claimRef/uid") == claim_uid);
    let volume =
        volume.ok_or_else(|| Refusal::new("WaitsForClaim", format!("claim {name} has no volume of its own yet")))?;
    if text(volume, "/spec/csi/driver") != DRIVER {
        let message = format!(
            "claim {name} is bound to volume {}, which is not one of {DRIVER}: a virtual node has no others",
            text(volume, "/metadata/name")
        );
        return Err(Refusal::new("VolumeNotCopied", message));
    }
    Ok(text(volume, "/spec/csi/volumeHandle"))
}

/// The leaf claim that a handle names, where this pod's copy can mount it.
fn leaf(claim: &str, handle: &str, member: &str, namespace: &str) -> Result<Leaf, Refusal> {
    let refused = |why: String| Refusal::new("VolumeNotCopied", format!("claim {claim}: {why}"));
    let id = VolumeId::parse(handle).ok_or_else(|| refused(format!("its volume has no handle of ours ({handle})")))?;
    if id.member != member {
        let why = format!("its volume is in member {}, and this node runs its pods in member {member}", id.member);
        return Err(refused(why));
    }
    match id.leaf {
        LeafName::Hashed(hash) => Ok(Leaf::Labelled(hash.to_string())),
        LeafName::Readable { namespace: there, claim, .. } if there == namespace => Ok(Leaf::Named(claim)),
        LeafName::Readable { namespace: there, .. } => Err(refused(format!(
            "its volume is in namespace {there} of member {member}, and a pod mounts claims of its own namespace: leave \
             leafNamespace out of the class for volumes of pods on virtual nodes"
        ))),
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Leaf {
    Named(String),
    /// Its handle had no room for the name.
    Labelled(String),
}

/// Whether an attachment says that the volume may be used on its node.
fn is_attached(attachment: &Value) -> bool {
    attachment["status"]["attached"] == true && !is_leaving(attachment)
}

impl Pods<'_> {
    /// Leaf claims by the pod's volumes, or what is waited for.
    pub(super) async fn leaf_claims(&self, pod: &Value) -> kube::Result<Result<BTreeMap<String, String>, Refusal>> {
        let (namespace, node) = (text(pod, "/metadata/namespace"), text(pod, "/spec/nodeName"));
        let (claims, volumes) = (object::claims(&self.host.client, namespace), object::volumes(&self.host.client));
        let mut leaves = BTreeMap::new();
        for (volume, name, for_pod) in claims_of(pod) {
            let claim = read(&claims, &name).await?;
            let host_volume = match bound(pod, &name, claim.as_ref(), for_pod) {
                Ok(host_volume) => host_volume,
                Err(why) => return Ok(Err(why)),
            };
            let found = read(&volumes, host_volume).await?;
            let claim_uid = claim.as_ref().map(|claim| text(claim, "/metadata/uid")).unwrap_or_default();
            let leaf = handle_of(&name, claim_uid, found.as_ref())
                .and_then(|handle| leaf(&name, handle, self.member, namespace));
            let leaf = match leaf {
                Ok(leaf) => leaf,
                Err(why) => return Ok(Err(why)),
            };
            if let Err(why) = self.attached(&name, host_volume, node).await? {
                return Ok(Err(why));
            }
            match self.named(leaf, &name, namespace).await? {
                Ok(leaf) => drop(leaves.insert(volume, leaf)),
                Err(why) => return Ok(Err(why)),
            }
        }
        Ok(Ok(leaves))
    }

    async fn named(&self, leaf: Leaf, claim: &str, namespace: &str) -> kube::Result<Result<String, Refusal>> {
        let hash = match leaf {
            Leaf::Named(name) => return Ok(Ok(name)),
            Leaf::Labelled(hash) => hash,
        };
        let labels = format!("{HOST}={},{VOLUME}={hash}", self.host.id);
        let found = object::claims(self.client, namespace).list(&ListParams::default().labels(&labels)).await?;
        let name = found.items.into_iter().map(whole).next().map(|found| text(&found, "/metadata/name").to_owned());
        let missing = format!("claim {claim}: member {} has no leaf claim of it in namespace {namespace}", self.member);
        Ok(name.ok_or_else(|| Refusal::new("VolumeNotCopied", missing)))
    }

    /// What a watch says is where to look; that it is so is read from the object itself.
    async fn attached(&self, claim: &str, volume: &str, node: &str) -> kube::Result<Result<(), Refusal>> {
        let is_it = |attachment: &&std::sync::Arc<Value>| {
            text(attachment, "/spec/nodeName") == node
                && text(attachment, "/spec/source/persistentVolumeName") == volume
        };
        let known = self.view.attachments.all().into_iter().find(|attachment| is_it(&attachment));
        let Some(known) = known else {
            let driver = read(&object::csi_drivers(&self.host.client), DRIVER).await?;
            // Then nothing is attached anywhere, and nobody is kept from anything.
            let needless = driver.is_some_and(|driver| driver["spec"]["attachRequired"] == false);
            let message = format!("claim {claim} is not attached to node {node} yet");
            return Ok(if needless { Ok(()) } else { Err(Refusal::new("WaitsForVolume", message)) });
        };
        let name = Place::of(&known).name;
        let live = if is_attached(&known) { read(&object::attachments(&self.host.client), &name).await? } else { None };
        if live.is_some_and(|live| is_attached(&live) && live["metadata"]["uid"] == known["metadata"]["uid"]) {
            return Ok(Ok(()));
        }
        let why = text(&known, "/status/attachError/message");
        let message =
            format!("claim {claim} is not attached to node {node} yet{}{why}", if why.is_empty() { "" } else { ": " });
        Ok(Err(Refusal::new("WaitsForVolume", message)))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claim_is_waited_for_until_it_is_bound_to_a_volume_of_its_own() {
        let pod = json!({"metadata": {"name": "p", "uid": "u"}});
        let claim = |phase: &str, owner: &str| {
            json!({"metadata": {"uid": "c", "ownerReferences": [{"uid": owner}]}, "spec": {"volumeName": "v"},
                "status": {"phase": phase}})
        };
        assert_eq!(bound(&pod, "a", Some(&claim("Bound", "x")), false), Ok("v"));
        assert_eq!(bound(&pod, "a", Some(&claim("Bound", "u")), true), Ok("v"));
        for (claim, for_pod, words) in [
            (None, false, "is not there yet"),
            (Some(claim("Pending", "u")), false, "is not bound yet"),
            (Some(claim("Lost", "u")), false, "is not bound yet"),
            (Some(claim("Bound", "x")), true, "not made for this pod"),
        ] {
            let why = bound(&pod, "a", claim.as_ref(), for_pod).unwrap_err();
            assert!(why.message.contains(words), "{why:?}");
        }
        let volume = |driver: &str, uid: &str| json!({"spec": {"claimRef": {"uid": uid}, "csi": {"driver": driver, "volumeHandle": "h"}}});
        assert_eq!(handle_of("a", "c", Some(&volume(DRIVER, "c"))), Ok("h"));
        assert_eq!(handle_of("a", "c", Some(&volume(DRIVER, "other"))).unwrap_err().reason, "WaitsForClaim");
        assert_eq!(handle_of("a", "c", Some(&volume("nfs.csi.k8s.io", "c"))).unwrap_err().reason, "VolumeNotCopied");
    }

    #[test]
    fn leaf_is_mounted_only_in_its_own_member_and_namespace() {
        let (named, hashed) = ("m/shop/data/0123456789abcdef", "m///0123456789abcdef0123456789abcdef");
        assert_eq!(leaf("a", named, "m", "shop"), Ok(Leaf::Named("data".to_owned())));
        assert_eq!(leaf("a", hashed, "m", "shop"), Ok(Leaf::Labelled(hashed[4..].to_owned())));
        for (handle, member, namespace, words) in [
            (named, "other", "shop", "in member m"),
            (named, "m", "elsewhere", "leafNamespace"),
            ("what is this", "m", "shop", "no handle of ours"),
        ] {
            let why = leaf("a", handle, member, namespace).unwrap_err();
            assert!(why.message.contains(words), "{why:?}");
        }
    }

    #[test]
    fn claim_made_for_a_pod_is_called_after_it() {
        let volumes = json!([{"name": "a", "persistentVolumeClaim": {"claimName": "x"}}, {"name": "b", "ephemeral": {}}, {"name": "c"}]);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": volumes}});
        let told: Vec<String> =
            claims_of(&pod).into_iter().map(|(volume, claim, own)| format!("{volume} {claim} {own}")).collect();
        assert_eq!(told, ["a x false", "b p-b true"]);
    }

    #[test]
    fn attachment_that_goes_is_none() {
        assert!(is_attached(&json!({"status": {"attached": true}})));
        assert!(!is_attached(&json!({"status": {"attached": false}})));
        assert!(!is_attached(&json!({"metadata": {"deletionTimestamp": "x"}, "status": {"attached": true}})));
    }
}
