//! From volumes that are released to nothing.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Resource, ResourceExt};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Answer, Attempts, Calls, PATIENCE, SPEAKER,
    answer::Next,
    volume::{FINALIZER, PROVISIONED_BY},
};
use crate::host::{all, attacher::ATTACHMENTS, events::Kind, ignore_conflict};
use csi::client::{CallError, Client};
use domain::volume::DRIVER;
use simulate::{Cluster, text};

#[derive(Clone, Debug, PartialEq, Eq)]
enum RemovalStep {
    Nothing,
    /// Ask the driver to delete what is behind this handle.
    Delete(String),
    /// What is behind it is to stay: nothing keeps the host's object.
    LetGo,
}

fn step(volume: &PersistentVolume) -> RemovalStep {
    let Some(spec) = &volume.spec else { return RemovalStep::Nothing };
    let Some(csi) = spec.csi.as_ref().filter(|csi| csi.driver == DRIVER) else { return RemovalStep::Nothing };
    let ours = volume.annotations().get(PROVISIONED_BY).is_some_and(|by| by == DRIVER);
    let deletes = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    match phase {
        _ if !ours => RemovalStep::Nothing,
        _ if !deletes && volume.finalizers().iter().any(|finalizer| finalizer == FINALIZER) => RemovalStep::LetGo,
        Some("Released" | "Failed") if deletes => RemovalStep::Delete(csi.volume_handle.clone()),
        _ => RemovalStep::Nothing,
    }
}

pub(super) struct Removals {
    host: Cluster,
    driver: Client,
    /// By the volume's name.
    work: BTreeMap<String, Attempts>,
}

impl Removals {
    pub(super) fn new(host: Cluster, driver: Client) -> Self {
        Self { host, driver, work: BTreeMap::new() }
    }

    pub(super) fn attempts(&self) -> impl Iterator<Item = &Attempts> {
        self.work.values()
    }

    pub(super) fn look(&mut self, now: Instant, calls: &mut Calls) {
        let volumes: Vec<PersistentVolume> = all(&self.host, "persistentvolumes");
        let attachments = self.host.list(ATTACHMENTS);
        let attached: HashSet<&str> =
            attachments.iter().map(|one| text(one, "/spec/source/persistentVolumeName")).collect();
        let unattached = volumes.iter().filter(|volume| !attached.contains(volume.name_any().as_str()));
        let steps: BTreeMap<String, RemovalStep> = unattached.map(|volume| (volume.name_any(), step(volume))).collect();
        self.work
            .retain(|name, attempts| attempts.under_way || matches!(steps.get(name), Some(RemovalStep::Delete(_))));
        for (name, step) in steps {
            match step {
                RemovalStep::Nothing => {}
                RemovalStep::LetGo => self.let_go(&name),
                RemovalStep::Delete(handle) => self.ask(name, handle, now, calls),
            }
        }
    }

    fn ask(&mut self, name: String, handle: String, now: Instant, calls: &mut Calls) {
        let attempts = self.work.entry(name.clone()).or_insert_with(|| Attempts::new(now));
        if !attempts.under_way && attempts.due <= now {
            attempts.under_way = true;
            let driver = self.driver.clone();
            calls.spawn(async move { Answer::Removed(name, driver.delete_volume(handle, PATIENCE).await) });
        }
    }

    pub(super) fn answered(&mut self, name: &str, answer: Result<(), CallError>, now: Instant) {
        let Some(attempts) = self.work.get_mut(name) else { return };
        attempts.under_way = false;
        match answer {
            Ok(()) => {
                self.work.remove(name);
                ignore_conflict("a deletion", self.host.delete("persistentvolumes", "", name));
                self.let_go(name);
            }
            Err(refusal) => {
                attempts.failed(Next::KeepAsking, now);
                let volumes: Vec<PersistentVolume> = all(&self.host, "persistentvolumes");
                if let Some(volume) = volumes.iter().find(|volume| volume.name_any() == name) {
                    let about = volume.object_ref(&());
                    SPEAKER.tell(&self.host, about, Kind::Warning, "VolumeFailedDelete", &refusal.to_string());
                }
            }
        }
    }

    fn let_go(&self, name: &str) {
        let edit = |volume: &mut Value| {
            if let Some(list) = volume.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut) {
                list.retain(|finalizer| finalizer != FINALIZER);
            }
        };
        ignore_conflict("a change of finalizers", self.host.change("persistentvolumes", "", name, edit));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn volume_is_deleted_once_it_is_released_and_its_policy_says_so() {
        let volume = |driver: &str, by: &str, policy: &str, phase: &str| -> PersistentVolume {
            let metadata = json!({"name": "pv", "annotations": {PROVISIONED_BY: by}, "finalizers": [FINALIZER]});
            let spec = json!({"csi": {"driver": driver, "volumeHandle": "h"}, "persistentVolumeReclaimPolicy": policy});
            from_value(json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}})).unwrap()
        };
        let delete = RemovalStep::Delete("h".to_owned());
        for (driver, by, policy, phase, expected) in [
            (DRIVER, DRIVER, "Delete", "Released", delete.clone()),
            (DRIVER, DRIVER, "Delete", "Failed", delete),
            (DRIVER, DRIVER, "Delete", "Bound", RemovalStep::Nothing),
            (DRIVER, DRIVER, "Retain", "Released", RemovalStep::LetGo),
            (DRIVER, DRIVER, "Retain", "Bound", RemovalStep::LetGo),
            (DRIVER, "by hand", "Delete", "Released", RemovalStep::Nothing),
            ("another.csi", DRIVER, "Delete", "Released", RemovalStep::Nothing),
        ] {
            assert_eq!(step(&volume(driver, by, policy, phase)), expected, "{driver} {by} {policy} {phase}");
        }
    }
}
