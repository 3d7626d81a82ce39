//! What the provisioner makes of an answer, and what the answer must be worth at that moment.

use std::time::Duration;

use csi::v1::{self, controller_server::Controller as _};
use serde_json::json;
use simulate::text;
use tokio::time::sleep;
use tonic::Status;

use super::{Caller, reclaim};
use crate::{
    bench::{SHOP, lock, with_deadline},
    history::made_for,
};

impl Caller {
    /// What an answer promises is looked up at once, with no help of the driver's.
    pub(super) fn check_volume(&mut self, volume: &v1::Volume) {
        self.bench.guard.note(|| format!("CreateVolume {}: {}", self.script.claim, volume.volume_id));
        if self.handle.as_ref().is_some_and(|before| *before != volume.volume_id) {
            self.wrong(&format!("I4: the handle was {:?} and is {}", self.handle, volume.volume_id));
        }
        self.handle = Some(volume.volume_id.clone());
        self.context.clone_from(&volume.volume_context);
        if volume.capacity_bytes.cast_unsigned() < self.bytes() {
            self.wrong(&format!("I4: {} bytes were given", volume.capacity_bytes));
        }
        match self.bench.leaf_behind(&volume.volume_id) {
            Ok(leaf) => {
                let bound = text(&leaf, "/status/phase") == "Bound";
                let terminating = leaf.pointer("/metadata/deletionTimestamp").is_some();
                let uid = text(&leaf, "/metadata/uid");
                let name = made_for(&leaf);
                let told = volume.volume_context.get("leafClaimUID").map(String::as_str);
                if !(bound || self.is_deferred()) || terminating || name != self.volume || told != Some(uid) {
                    self.wrong(&format!("I4: given out while the leaf claim is {leaf}"));
                }
                self.bench.guard.look();
                lock(&self.bench.guard.history).rely_on(uid, &self.volume);
                self.leaf_volume = Some(text(&leaf, "/spec/volumeName").to_owned()).filter(|name| !name.is_empty());
                if let Some(leaf_volume) = &self.leaf_volume {
                    lock(&self.bench.guard.history).give_out(&volume.volume_id, leaf_volume, &self.volume);
                }
            }
            Err(reason) => self.wrong(&format!("I4: {} was given out and {reason}", volume.volume_id)),
        }
    }

    /// The class may have been recreated since a leaf was made for the claim.
    pub(super) fn check_class(&self, volume: &v1::Volume, wanted: &str) {
        // One that attaches says more than the script.
        let Some(leaf) = self.bench.leaf_behind(&volume.volume_id).ok().filter(|_| self.script.parameters.is_empty())
        else {
            return;
        };
        if text(&leaf, "/spec/storageClassName") != wanted {
            self.wrong(&format!("I4: class {wanted} was asked for, and the leaf claim is {leaf}"));
        }
    }

    /// After an answer that makes the provisioner forget the volume there must be nothing to forget.
    pub(super) fn nothing_is_left(&self, status: &Status) {
        // A host that was restored from a backup has forgotten what its claim has had, and that is a stray once the claim is deleted.
        let is_kept = status.message().contains("it has had a volume, which is left untouched");
        if is_kept && lock(&self.bench.guard.history).host_was_restored() {
            return;
        }
        self.bench.guard.look();
        for left in self.bench.leaf_objects_in_time(&self.volume) {
            self.wrong(&format!("I1: {:?} was answered ({}) and {left} is there", status.code(), status.message()));
        }
    }

    pub(super) fn make_host_volume(&self, volume: &v1::Volume) {
        let attributes: serde_json::Map<_, _> =
            volume.volume_context.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let object = json!({
            "metadata": {
                "name": self.volume,
                "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"},
                "finalizers": if self.script.retain { json!([]) } else { json!([reclaim::FINALIZER]) },
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "capacity": {"storage": volume.capacity_bytes.to_string()},
                "storageClassName": "kosmos",
                "persistentVolumeReclaimPolicy": if self.script.retain { "Retain" } else { "Delete" },
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": SHOP,
                    "name": self.script.claim, "uid": self.uid,
                },
                "csi": {"driver": "kosmos.csi.io", "volumeHandle": volume.volume_id, "volumeAttributes": attributes},
            },
        });
        self.bench.host.create("persistentvolumes", object).unwrap();
    }

    /// One that has stood still for a while asks by its old cache for what another one has removed meanwhile, or has just now.
    pub async fn is_asked_for_once_more(&self) {
        if !self.script.told || !self.script.asks_again {
            return;
        }
        sleep(Duration::from_millis(fastrand::u64(..10_000))).await;
        let (request, has_claim) = (self.request(), self.claim_is_there());
        let answer = self.bench.call(|driver| async move { driver.create_volume(with_deadline(request)).await }).await;
        self.bench.guard.note(|| format!("asked once more for {}: {:?}", self.script.claim, answer.as_ref().err()));
        if answer.is_ok() && !has_claim {
            self.wrong("I4: its claim is gone, and it was given out");
        }
    }

    /// A provisioner that has forgotten what it did asks again, perhaps after the claim is gone.
    pub(super) async fn ask_again(&mut self) {
        match self.create_at_once().await {
            Ok(volume) => self.check_volume(&volume),
            Err(status) => self.bench.guard.note(|| format!("asked again for {}: {status}", self.script.claim)),
        }
    }
}
