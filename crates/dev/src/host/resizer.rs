//! Plays external-resizer: asks the driver for the size that a claim wants beyond what it has, and writes what it got into
//! the host's volume and claim.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Resource;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    all,
    events::{Kind, Speaker},
    ignore_conflict,
    provisioner::{Attempts, PATIENCE, capabilities},
};
use csi::{
    client::{CallError, Client},
    v1::{CapacityRange, ControllerExpandVolumeRequest, ControllerExpandVolumeResponse},
};
use domain::volume::{DRIVER, quantity};
use simulate::{Cluster, text};

const SPEAKER: Speaker = Speaker("dev-resizer");
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";
/// Where nothing is due.
const IDLE: Duration = Duration::from_hours(1);

/// A claim's namespace and name.
type Key = (String, String);

/// The size that a bound claim wants and has not got.
fn wanted(claim: &Value) -> Option<u64> {
    let size = |pointer: &str| quantity::parse(text(claim, pointer));
    let (wants, has) = (size("/spec/resources/requests/storage")?, size("/status/capacity/storage")?);
    let living = text(claim, "/status/phase") == "Bound" && text(claim, "/metadata/deletionTimestamp").is_empty();
    (living && wants > has).then_some(wants)
}

pub(super) async fn run(host: Cluster, driver: Client) {
    let mut changes = simulate::follow::follow(&host, &[CLAIMS]);
    let mut resizer = Resizer { host, driver, work: BTreeMap::new(), calls: JoinSet::new() };
    loop {
        while changes.try_next().is_some() {}
        let now = Instant::now();
        resizer.look(now);
        let due = resizer.work.values().filter(|attempts| attempts.due > now).map(|attempts| attempts.due).min();
        tokio::select! {
            _ = changes.next() => {}
            Some(ended) = resizer.calls.join_next() => match ended {
                Ok((key, answer)) => resizer.answered(&key, answer, Instant::now()),
                Err(error) => tracing::error!(%error, "a call of the driver has failed in itself"),
            },
            () = sleep_until(due.unwrap_or(now + IDLE)) => {}
        }
    }
}

struct Resizer {
    host: Cluster,
    driver: Client,
    work: BTreeMap<Key, Attempts>,
    calls: JoinSet<(Key, Result<ControllerExpandVolumeResponse, CallError>)>,
}

impl Resizer {
    fn look(&mut self, now: Instant) {
        let claims = self.host.list(CLAIMS);
        let mut wanting: Vec<Key> = Vec::new();
        for claim in &claims {
            let volume = self.host.get(VOLUMES, "", text(claim, "/spec/volumeName"));
            let volume = volume.filter(|volume| text(volume, "/spec/csi/driver") == DRIVER);
            let (Some(volume), Some(size)) = (volume, wanted(claim)) else { continue };
            let key = (text(claim, "/metadata/namespace").to_owned(), text(claim, "/metadata/name").to_owned());
            self.ask(&key, &volume, size, now);
            wanting.push(key);
        }
        self.work.retain(|key, attempts| attempts.under_way || wanting.contains(key));
    }

    fn ask(&mut self, key: &Key, volume: &Value, size: u64, now: Instant) {
        let attempts = self.work.entry(key.clone()).or_insert_with(|| Attempts::new(now));
        if attempts.under_way || attempts.due > now {
            return;
        }
        attempts.under_way = true;
        let required_bytes = i64::try_from(size).unwrap_or(i64::MAX);
        let request = ControllerExpandVolumeRequest {
            volume_id: text(volume, "/spec/csi/volumeHandle").to_owned(),
            capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
            volume_capability: capabilities(volume).into_iter().next(),
            ..Default::default()
        };
        let (driver, key) = (self.driver.clone(), key.clone());
        self.calls.spawn(async move { (key, driver.expand_volume(request, PATIENCE).await) });
    }

    fn answered(&mut self, key: &Key, answer: Result<ControllerExpandVolumeResponse, CallError>, now: Instant) {
        match answer {
            Ok(grown) => {
                self.work.remove(key);
                self.write(key, u64::try_from(grown.capacity_bytes).unwrap_or_default());
                self.tell(key, Kind::Normal, "VolumeResizeSuccessful", "the volume is larger");
            }
            Err(refusal) => {
                if let Some(attempts) = self.work.get_mut(key) {
                    attempts.under_way = false;
                    attempts.again(now);
                }
                self.tell(key, Kind::Warning, "VolumeResizeFailed", &refusal.to_string());
            }
        }
    }

    fn write(&self, (namespace, name): &Key, bytes: u64) {
        let size = json!(quantity::print(bytes));
        let Some(claim) = self.host.get(CLAIMS, namespace, name) else { return };
        let volume = |volume: &mut Value| volume["spec"]["capacity"]["storage"] = size.clone();
        ignore_conflict("a size", self.host.change(VOLUMES, "", text(&claim, "/spec/volumeName"), volume));
        let claim = |claim: &mut Value| claim["status"]["capacity"]["storage"] = size.clone();
        ignore_conflict("a size", self.host.change(CLAIMS, namespace, name, claim));
    }

    fn tell(&self, (namespace, name): &Key, kind: Kind, reason: &str, message: &str) {
        let claims: Vec<PersistentVolumeClaim> = all(&self.host, CLAIMS);
        let claim = claims.iter().find(|claim| {
            claim.metadata.namespace.as_ref() == Some(namespace) && claim.metadata.name.as_ref() == Some(name)
        });
        if let Some(claim) = claim {
            SPEAKER.tell(&self.host, claim.object_ref(&()), kind, reason, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bound_claim_wants_what_it_asks_for_beyond_what_it_has() {
        let claim = |asks: &str, has: &str, phase: &str| {
            json!({"spec": {"resources": {"requests": {"storage": asks}}},
                "status": {"phase": phase, "capacity": {"storage": has}}})
        };
        assert_eq!(wanted(&claim("2Gi", "1Gi", "Bound")), Some(2 << 30));
        assert_eq!(wanted(&claim("1Gi", "1Gi", "Bound")), None);
        assert_eq!(wanted(&claim("1Gi", "2Gi", "Bound")), None);
        assert_eq!(wanted(&claim("2Gi", "1Gi", "Pending")), None);
    }
}
