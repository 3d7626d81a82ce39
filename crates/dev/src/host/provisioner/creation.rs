//! From claims to volumes.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::{Node, PersistentVolumeClaim},
    storage::v1::{CSINode, StorageClass},
};
use kube::{Resource, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Answer, Attempts, Calls, PATIENCE, SPEAKER,
    answer::{self, Next},
    source,
    topology::{self, Nodes, Trouble},
    volume,
};
use crate::host::{all, create, events::Kind, ignore_conflict, scheduler::SELECTED_NODE};
use csi::{
    client::{CallError, Client},
    v1::{self, CreateVolumeRequest},
};
use domain::volume::DRIVER;
use simulate::Cluster;

/// What a claim wants of the provisioner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    Volume,
    /// A volume once a node is selected.
    Later,
    /// Nothing any more: it is gone, leaving or has its volume.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CreationStep {
    Ask,
    Wait,
    Forget,
}

/// Once the driver may hold something, it is asked until it says otherwise, whatever has become of the claim.
fn step(wish: Wish, open: bool, attempts: &Attempts, now: Instant) -> CreationStep {
    match wish {
        _ if attempts.under_way => CreationStep::Wait,
        Wish::Nothing if !open => CreationStep::Forget,
        Wish::Later if !open => CreationStep::Wait,
        _ if attempts.due > now => CreationStep::Wait,
        _ => CreationStep::Ask,
    }
}

fn wish(claim: &PersistentVolumeClaim, class: &StorageClass) -> Wish {
    let bound = claim.spec.as_ref().is_some_and(|spec| spec.volume_name.is_some());
    let waits = class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer");
    match selected(claim) {
        _ if bound || claim.metadata.deletion_timestamp.is_some() => Wish::Nothing,
        None if waits => Wish::Later,
        _ => Wish::Volume,
    }
}

fn selected(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.annotations().get(SELECTED_NODE).map(String::as_str)
}

/// A claim of ours, as last seen.
struct Work {
    claim: PersistentVolumeClaim,
    class: StorageClass,
    wish: Wish,
    attempts: Attempts,
    /// What was asked for, while the driver may hold something for it.
    open: Option<Box<CreateVolumeRequest>>,
}

pub(super) struct Creations {
    host: Cluster,
    driver: Client,
    /// By the volume's name.
    work: BTreeMap<String, Work>,
}

impl Creations {
    pub(super) fn new(host: Cluster, driver: Client) -> Self {
        Self { host, driver, work: BTreeMap::new() }
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = &Attempts> {
        self.work.values().map(|work| &work.attempts)
    }

    pub(super) fn look(&mut self, now: Instant, calls: &mut Calls) {
        self.see_claims(now);
        let names: Vec<String> = self.work.keys().cloned().collect();
        for name in names {
            let Some(mut work) = self.work.remove(&name) else { continue };
            match step(work.wish, work.open.is_some(), &work.attempts, now) {
                CreationStep::Forget => continue,
                CreationStep::Wait => {}
                CreationStep::Ask => self.ask(&name, &mut work, now, calls),
            }
            self.work.insert(name, work);
        }
    }

    fn see_claims(&mut self, now: Instant) {
        let classes: Vec<StorageClass> = all(&self.host, "storageclasses.storage.k8s.io");
        for work in self.work.values_mut() {
            work.wish = Wish::Nothing;
        }
        for claim in all::<PersistentVolumeClaim>(&self.host, "persistentvolumeclaims") {
            let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
            let mut ours = classes.iter().filter(|class| class.provisioner == DRIVER);
            let Some(class) = ours.find(|one| Some(one.name_any().as_str()) == class) else { continue };
            let name = volume::name(&claim);
            let wish = match self.host.get("persistentvolumes", "", &name) {
                Some(_) => Wish::Nothing,
                None => wish(&claim, class),
            };
            match self.work.get_mut(&name) {
                Some(work) => (work.claim, work.class, work.wish) = (claim, class.clone(), wish),
                None if wish == Wish::Nothing => {}
                None => {
                    let work = Work { claim, class: class.clone(), wish, attempts: Attempts::new(now), open: None };
                    self.work.insert(name, work);
                }
            }
        }
    }

    fn ask(&mut self, name: &str, work: &mut Work, now: Instant, calls: &mut Calls) {
        // By the class as it is now; where nothing can be asked any more, as before.
        let request = match (self.request(work), work.open.take()) {
            (Ok(request), _) => Box::new(request),
            (Err(_), Some(before)) => before,
            (Err((next, reason)), None) => return self.failed(work, next, &reason, now),
        };
        if work.attempts.count == 0 {
            let message = format!("the driver {DRIVER} is asked for volume {name}");
            SPEAKER.tell(&self.host, work.claim.object_ref(&()), Kind::Normal, "Provisioning", &message);
        }
        work.attempts.under_way = true;
        work.open = Some(request.clone());
        let (driver, name) = (self.driver.clone(), name.to_owned());
        calls.spawn(async move { Answer::Created(name, driver.create_volume(*request, PATIENCE).await) });
    }

    fn request(&self, work: &Work) -> Result<CreateVolumeRequest, (Next, String)> {
        let nodes: Vec<Node> = all(&self.host, "nodes");
        let csi_nodes: Vec<CSINode> = all(&self.host, "csinodes.storage.k8s.io");
        let seen = Nodes { nodes: &nodes, csi_nodes: &csi_nodes };
        let places = match selected(&work.claim) {
            Some(node) => topology::with_node(&work.class, node, seen),
            None => topology::without_node(&work.class, &work.claim.name_any(), seen),
        };
        let places = places.map_err(|trouble| match trouble {
            Trouble::Reschedule(reason) => (Next::Reschedule, reason),
            Trouble::Stuck(reason) => (Next::AskAgain, reason),
        })?;
        let source = source::of(&self.host, &work.claim).map_err(|reason| (Next::AskAgain, reason))?;
        volume::request(&work.claim, &work.class, &places, source).map_err(|reason| (Next::AskMuchLater, reason))
    }

    pub(super) fn answered(&mut self, name: &str, answer: Result<v1::Volume, CallError>, now: Instant) {
        let Some(mut work) = self.work.remove(name) else { return };
        work.attempts.under_way = false;
        match answer {
            Ok(made) => {
                let manifest = volume::manifest(&work.claim, &work.class, &made);
                ignore_conflict("a volume", create(&self.host, "persistentvolumes", manifest));
                let message = format!("the driver has made volume {name}: {}", made.volume_id);
                SPEAKER.tell(&self.host, work.claim.object_ref(&()), Kind::Normal, "ProvisioningSucceeded", &message);
            }
            Err(refusal) => {
                let next = answer::next(refusal.code, selected(&work.claim).is_some());
                if next != Next::KeepAsking {
                    work.open = None;
                }
                self.failed(&mut work, next, &refusal.to_string(), now);
                self.work.insert(name.to_owned(), work);
            }
        }
    }

    fn failed(&self, work: &mut Work, next: Next, reason: &str, now: Instant) {
        work.attempts.failed(next, now);
        SPEAKER.tell(&self.host, work.claim.object_ref(&()), Kind::Warning, "ProvisioningFailed", reason);
        if next == Next::Reschedule {
            let (namespace, name) = (work.claim.namespace().unwrap_or_default(), work.claim.name_any());
            let unselect = |claim: &mut Value| {
                if let Some(annotations) = claim.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                    annotations.remove(SELECTED_NODE);
                }
            };
            ignore_conflict(
                "giving the claim back",
                self.host.change("persistentvolumeclaims", &namespace, &name, unselect),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{from_value, json};

    use super::*;

    #[tokio::test]
    async fn driver_is_asked_while_it_may_hold_something() {
        let now = Instant::now();
        let attempts = |due: u64, under_way| Attempts { count: 1, due: now + Duration::from_secs(due), under_way };
        for (wish, open, attempts, expected) in [
            (Wish::Volume, false, attempts(0, false), CreationStep::Ask),
            (Wish::Volume, true, attempts(0, false), CreationStep::Ask),
            (Wish::Volume, true, attempts(1, false), CreationStep::Wait),
            (Wish::Volume, true, attempts(0, true), CreationStep::Wait),
            (Wish::Later, false, attempts(0, false), CreationStep::Wait),
            (Wish::Later, true, attempts(0, false), CreationStep::Ask),
            (Wish::Nothing, false, attempts(1, false), CreationStep::Forget),
            (Wish::Nothing, true, attempts(0, false), CreationStep::Ask),
            (Wish::Nothing, false, attempts(0, true), CreationStep::Wait),
        ] {
            assert_eq!(step(wish, open, &attempts, now), expected, "{wish:?} {open} {attempts:?}");
        }
    }

    #[test]
    fn claim_whose_class_waits_wants_its_volume_once_a_node_is_selected() {
        let class = |mode: &str| -> StorageClass {
            from_value(json!({"metadata": {"name": "c"}, "provisioner": DRIVER, "volumeBindingMode": mode})).unwrap()
        };
        let claim = |metadata: Value, volume: Option<&str>| -> PersistentVolumeClaim {
            from_value(json!({"metadata": metadata, "spec": {"volumeName": volume}})).unwrap()
        };
        let selected = json!({"annotations": {SELECTED_NODE: "n"}});
        let leaving = json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {SELECTED_NODE: "n"}});
        for (metadata, volume, mode, expected) in [
            (json!({}), None, "WaitForFirstConsumer", Wish::Later),
            (json!({}), None, "Immediate", Wish::Volume),
            (selected.clone(), None, "WaitForFirstConsumer", Wish::Volume),
            (selected, Some("pv"), "WaitForFirstConsumer", Wish::Nothing),
            (leaving, None, "WaitForFirstConsumer", Wish::Nothing),
        ] {
            assert_eq!(wish(&claim(metadata.clone(), volume), &class(mode)), expected, "{metadata} {volume:?} {mode}");
        }
    }
}
