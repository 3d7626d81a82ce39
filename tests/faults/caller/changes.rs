//! What happens to a volume while it lives, as external-resizer and external-attacher bring it about: they ask until they
//! are told that it is so, and then it is looked up.

use std::{collections::HashMap, sync::Arc, time::Duration};

use csi::v1::{self, CapacityRange, controller_server::Controller as _};
use serde_json::{Value, json};
use simulate::text;
use tokio::time::sleep;
use tonic::{Code, Status};

use super::{Caller, FIRST_PAUSE, LONGEST_PAUSE};
use crate::{
    ask::{Target, ask, capability},
    attach,
    bench::{lock, with_deadline},
    fixture::{BY_HAND, GOLD, NOW},
    people,
};

/// One change of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Twice its size.
    Expand,
    Modify,
    Publish,
    Unpublish,
}

impl Caller {
    /// Asks for the change until it is done, or the claim is deleted.
    pub async fn change(&mut self, change: Change) {
        let mut pause = FIRST_PAUSE;
        loop {
            let asked = match change {
                Change::Expand => self.expand().await,
                Change::Modify => self.modify().await,
                Change::Publish => self.publish(&self.node()).await,
                Change::Unpublish => {
                    people::pod_ends(&self.bench, self.known_handle());
                    self.unpublish().await
                }
            };
            match asked {
                Ok(()) => break,
                Err(status) => self.answered(&format!("{change:?}"), &status),
            }
            if self.claim_was_deleted() && change != Change::Unpublish {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.bench.guard.note(|| format!("{change:?} {} is done", self.script.claim));
        self.check_change(change);
    }

    /// The volume is on no node any more, as external-attacher sees to before it is deleted.
    pub async fn detach(&mut self) {
        if self.attached {
            Box::pin(self.change(Change::Unpublish)).await;
        }
    }

    /// Of a volume whose claim has gone, another sidecar asks within that time for what it has seen to be wanted before.
    pub(super) async fn is_changed_late(&self, within: Duration) {
        sleep(within * fastrand::u32(..100) / 100).await;
        let volume = self.known_handle().to_owned();
        let member = volume.split('/').next().unwrap_or_default().to_owned();
        let target = Target { volume, member, class: NOW.to_owned(), ..Target::default() };
        let is_by_hand = self.leaf_volume().is_some_and(|volume| volume.starts_with(BY_HAND));
        match fastrand::u8(..3) {
            // No driver knows of it, or it is not bound.
            0 | 1 if is_by_hand || self.is_deferred() => {}
            0 => self.asks_late("ControllerExpandVolume", &target).await,
            1 => self.asks_late("ControllerModifyVolume", &target).await,
            _ if self.script.attaches() => {}
            _ => self.is_on_a_node_late(&target).await,
        }
    }

    async fn asks_late(&self, rpc: &str, target: &Target) {
        let (code, why) = ask(&self.bench, rpc, target).await;
        self.bench.guard.note(|| format!("{rpc} {} comes late: {code:?} {why}", self.script.claim));
    }

    /// Whatever is answered, external-attacher sees to it then that the node leaves the volume.
    async fn is_on_a_node_late(&self, target: &Target) {
        self.asks_late("ControllerPublishVolume", target).await;
        let mut pause = FIRST_PAUSE;
        while ask(&self.bench, "ControllerUnpublishVolume", target).await.0 != Code::Ok {
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn check_change(&self, change: Change) {
        let Ok(leaf) = self.bench.leaf_behind(self.known_handle()) else {
            // Nobody has it, so it is let go. Or somebody has deleted it, and it comes back without a node,
            // with the node that it was attached to meanwhile, or for what is as large. Or a host that was restored from a
            // backup has again what it had removed.
            let is_so = match change {
                Change::Unpublish => {
                    self.is_retained()
                        || self.comes_back(|is_kept| !is_kept.contains("kosmos.csi.io/published"))
                        || lock(&self.bench.guard.history).was_to_go(self.known_handle(), &self.volume)
                }
                Change::Expand => self.comes_back(|_| true) && self.leaf_volume_is_large(),
                Change::Publish => {
                    let is_attached = |volume| attach::is_attached(&self.bench, volume, self.context());
                    self.comes_back(|kept| kept.contains(&self.node())) && self.leaf_volume().is_some_and(is_attached)
                }
                Change::Modify => false,
            };
            if is_so {
                return;
            }
            return self.wrong(&format!("I1: {change:?} is done, and the leaf claim is not there"));
        };
        let published = leaf["metadata"]["annotations"]["kosmos.csi.io/published"].as_str().unwrap_or_default();
        let so = match change {
            // Somebody has deleted it since, and the one that is recreated is about to be bound.
            Change::Expand if text(&leaf, "/status/phase") == "Pending" => {
                self.comes_back(|_| true) && self.leaf_volume_is_large()
            }
            Change::Expand => text(&leaf, "/status/capacity/storage") == self.doubled(),
            Change::Modify => text(&leaf, "/status/currentVolumeAttributesClassName") == GOLD,
            Change::Publish => {
                let volume = text(&leaf, "/spec/volumeName");
                published.contains(&self.node()) && attach::is_attached(&self.bench, volume, self.context())
            }
            Change::Unpublish => {
                let nothing_is_attached = attach::nothing_is_attached(&self.bench, text(&leaf, "/spec/volumeName"));
                // Of a claim that is being recreated the volume says it.
                let is_recorded =
                    !published.is_empty() && !self.comes_back(|kept| !kept.contains("kosmos.csi.io/published"));
                !is_recorded && nothing_is_attached
            }
        };
        if !so {
            self.wrong(&format!("I4: {change:?} is done, and the leaf claim is {leaf}"));
        }
    }

    /// A volume keeps what the leaf claim said that is recreated for it.
    fn comes_back(&self, so: impl Fn(&str) -> bool) -> bool {
        let volumes = self.bench.member_of(self.known_handle()).map(|member| member.list("persistentvolumes"));
        let kept = |volume: &Arc<Value>| text(volume, "/metadata/annotations/kosmos.csi.io~1healing").to_owned();
        let mut all = volumes.iter().flatten().map(kept);
        all.any(|kept| kept.contains(&self.volume) && so(&kept))
    }

    fn leaf_volume_is_large(&self) -> bool {
        let member = self.bench.member_of(self.known_handle());
        let volume =
            member.zip(self.leaf_volume()).and_then(|(member, name)| member.get("persistentvolumes", "", name));
        volume.is_some_and(|volume| text(&volume, "/spec/capacity/storage") == self.doubled())
    }

    /// What it is expanded to.
    fn doubled(&self) -> String {
        format!("{}Gi", 2 * self.script.gibibytes)
    }

    fn known_handle(&self) -> &str {
        self.handle.as_deref().expect("a host volume has a handle")
    }

    /// The virtual node of the volume's member; of a class that attaches, a real one.
    pub fn node(&self) -> String {
        if self.context.contains_key("attachMode") {
            return "real/n1".to_owned();
        }
        format!("virtual/{}", self.known_handle().split('/').next().unwrap_or_default())
    }

    fn another_node(&self) -> String {
        if self.context.contains_key("attachMode") { "real/n2".to_owned() } else { format!("{}/other", self.node()) }
    }

    async fn expand(&self) -> Result<(), Status> {
        let wanted = 2 * self.bytes();
        let request = v1::ControllerExpandVolumeRequest {
            volume_id: self.known_handle().to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: wanted.cast_signed(), limit_bytes: 0 }),
            ..Default::default()
        };
        let call =
            self.bench.call(|driver| async move { driver.controller_expand_volume(with_deadline(request)).await });
        let grown = call.await?;
        if grown.capacity_bytes.cast_unsigned() < wanted {
            self.wrong(&format!("I4: {} bytes were asked for, and {} given", wanted, grown.capacity_bytes));
        }
        let size = |volume: &mut serde_json::Value| {
            volume["spec"]["capacity"]["storage"] = json!(grown.capacity_bytes.to_string());
        };
        let _ = self.bench.host.change("persistentvolumes", "", &self.volume, size);
        // A provisioner that has forgotten what it did asks for the size of then.
        match self.create().await {
            Ok(again) if again.volume_id != self.known_handle() => {
                self.wrong(&format!("I4: the handle is {} after an expansion", again.volume_id));
            }
            Err(status) if status.code() == Code::AlreadyExists => {
                self.wrong(&format!("I4: the first request is not known again after an expansion: {status}"));
            }
            _ => {}
        }
        Ok(())
    }

    async fn modify(&self) -> Result<(), Status> {
        let mutable_parameters = HashMap::from([("leafVolumeAttributesClass".to_owned(), GOLD.to_owned())]);
        let volume_id = self.known_handle().to_owned();
        let request = v1::ControllerModifyVolumeRequest { volume_id, mutable_parameters, ..Default::default() };
        let call =
            self.bench.call(|driver| async move { driver.controller_modify_volume(with_deadline(request)).await });
        call.await.map(drop)
    }

    /// A volume for one node is on no second one.
    pub async fn publish(&mut self, node: &str) -> Result<(), Status> {
        // From the first call on it may be attached, whatever is answered.
        self.attached = true;
        let request = |node_id: String| {
            with_deadline(v1::ControllerPublishVolumeRequest {
                volume_id: self.known_handle().to_owned(),
                node_id,
                volume_capability: Some(capability()),
                volume_context: self.context.clone(),
                ..Default::default()
            })
        };
        let (here, there) = (request(node.to_owned()), request(self.another_node()));
        self.bench.call(|driver| async move { driver.controller_publish_volume(here).await }).await?;
        let second = self.bench.call(|driver| async move { driver.controller_publish_volume(there).await }).await;
        if second.is_ok() {
            self.wrong("I9: it is on a node, and was published on another one");
        }
        Ok(())
    }

    pub async fn unpublish(&mut self) -> Result<(), Status> {
        let (volume_id, node_id) = (self.known_handle().to_owned(), String::new());
        let request = v1::ControllerUnpublishVolumeRequest { volume_id, node_id, ..Default::default() };
        let call =
            self.bench.call(|driver| async move { driver.controller_unpublish_volume(with_deadline(request)).await });
        call.await?;
        self.attached = false;
        Ok(())
    }
}
