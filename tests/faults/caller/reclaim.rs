//! What administrators of the host do with the policy of a volume, and who uses a volume again.

use serde_json::{Value, json};
use simulate::text;

use super::Caller;
use crate::bench::{Bench, SHOP};

/// The provisioner keeps a volume until it is removed, where its policy says that it is to be.
pub const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// `kubectl patch pv`, and what the provisioner makes of it.
pub fn set_policy(bench: &Bench, volume: &str, policy: &str) {
    bench.guard.note(|| format!("an administrator makes {volume} {policy}"));
    let change = |volume: &mut Value| {
        volume["spec"]["persistentVolumeReclaimPolicy"] = json!(policy);
        let mut finalizers = volume["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != FINALIZER);
        finalizers.extend((policy == "Delete").then(|| json!(FINALIZER)));
        volume["metadata"]["finalizers"] = json!(finalizers);
    };
    bench.host.change("persistentvolumes", "", volume, change).unwrap();
}

/// The administrator gives a volume that was released to a claim that is made for it. The claim's UID.
pub fn claim_again(bench: &Bench, volume: &str, namespace: &str, name: &str) -> String {
    bench.guard.note(|| format!("{volume} is given to claim {namespace}/{name}"));
    let give = |volume: &mut Value| {
        volume["spec"]["claimRef"] =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name});
    };
    bench.host.change("persistentvolumes", "", volume, give).unwrap();
    let claim = json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "kosmos", "volumeName": volume,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    let claim = bench.host.create("persistentvolumeclaims", claim).unwrap();
    text(&claim, "/metadata/uid").to_owned()
}

impl Caller {
    /// Whether the host has the volume and keeps it without its claim.
    pub fn is_retained(&self) -> bool {
        let volume = self.bench.host.get("persistentvolumes", "", &self.volume);
        volume.is_some_and(|volume| text(&volume, "/spec/persistentVolumeReclaimPolicy") == "Retain")
    }

    /// Whether the host keeps the volume though the claim has gone: its policy says so, or another claim has it by now.
    pub fn is_kept(&self) -> bool {
        let volume = self.bench.host.get("persistentvolumes", "", &self.volume);
        let is_in_use = |volume: &Value| text(volume, "/status/phase") == "Bound" && self.is_used_again(volume);
        self.is_retained() || volume.is_some_and(|volume| is_in_use(&volume))
    }

    pub fn set_policy(&self, policy: &str) {
        set_policy(&self.bench, &self.volume, policy);
    }

    /// What follows is about another claim, which has the volume from now on.
    pub fn claim_again(&mut self, name: &str) {
        self.uid = claim_again(&self.bench, &self.volume, SHOP, name);
        name.clone_into(&mut self.script.claim);
    }

    /// Asked by the provisioner before each call.
    pub(super) fn is_to_be_removed(&self) -> bool {
        let volume = self.bench.host.get("persistentvolumes", "", &self.volume);
        volume.is_some_and(|volume| text(&volume, "/status/phase") == "Released") && !self.is_retained()
    }

    /// Somebody else's claim has the volume by now.
    pub(super) fn is_used_again(&self, volume: &Value) -> bool {
        text(volume, "/spec/claimRef/uid") != self.uid
    }
}
