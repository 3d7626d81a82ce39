//! What feeds the host's volumes: one list, taken volume by volume as it comes, and a watch of what changes from there on. It resumes after
//! an interruption, and lists again when it has lost its thread.

use std::{convert::Infallible, pin::pin};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{
    Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
    runtime::watcher::ExponentialBackoff,
};
use tokio::{
    sync::watch::Receiver,
    time::{Instant, sleep, timeout},
};

use super::{HostVolumes, YOUNG};
use crate::{Host, volume::OfSpec};
use cluster::{
    Aside, LONGEST_PAUSE, Recent, WATCH_SECONDS, WATCH_SILENCE, field_in, items::Items, metadata_in, pauses, read_list,
    trimmed::Trimmed, with_causes,
};

/// As it is listed and watched.
type Volume = Trimmed<PersistentVolume, OfSpec>;

/// Where a list in one piece has failed before.
const PAGE: u32 = 500;

/// How a watch came to an end without an error.
enum Ended {
    /// It can be resumed.
    Over,
    /// What happened since cannot be told any more.
    Lost,
}

/// Keeps the volumes true, until it is dropped. `restored` changes when the host was restored from a backup, `leads` when this process
/// begins to go by the volumes. By `recent` the watch is seen to be behind.
pub async fn keep(
    host: &Host,
    volumes: &HostVolumes,
    mut restored: Receiver<()>,
    mut leads: Receiver<bool>,
    recent: &Receiver<Recent>,
) {
    loop {
        tokio::select! {
            biased;
            Ok(()) = restored.changed() => volumes.unsync(),
            never = follow(host, volumes, &mut leads, recent) => match never {},
        }
    }
}

/// A host of which every watch has lost its thread at once is not listed in circles.
async fn follow(
    host: &Host,
    volumes: &HostVolumes,
    leads: &mut Receiver<bool>,
    recent: &Receiver<Recent>,
) -> Infallible {
    let mut pauses = ExponentialBackoff::from(cluster::pauses());
    loop {
        let version = list(host, volumes).await;
        let began = Instant::now();
        hold(host, volumes, version, leads, recent).await;
        if began.elapsed() > WATCH_SILENCE {
            pauses = ExponentialBackoff::from(cluster::pauses());
        }
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

/// Reads all there are; the version of the list. A host that has not brought that to an end before is asked for pages: one with many
/// volumes may not have written them all before an answer must have begun.
async fn list(host: &Host, volumes: &HostVolumes) -> String {
    let (mut pauses, mut in_pages) = (ExponentialBackoff::from(pauses()), false);
    loop {
        match read(host, volumes, in_pages).await {
            Ok(version) => return version,
            Err(error) => tracing::debug!(error = with_causes(&error), "the host's volumes cannot be listed"),
        }
        in_pages = true;
        sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    }
}

async fn read(host: &Host, volumes: &HostVolumes, in_pages: bool) -> Result<String, kube::Error> {
    let mut wanted = ListParams { limit: in_pages.then_some(PAGE), ..ListParams::default() };
    volumes.begin();
    loop {
        let mut request = request().list(&wanted).map_err(kube::Error::BuildRequest)?;
        if !in_pages {
            // That it cannot write them all in time says nothing of whether it answers others.
            request.extensions_mut().insert(Aside);
        }
        let head = read_list(&host.client, request, Items::of_list(), |items, piece| -> kube::Result<()> {
            let Ok(()): Result<(), Infallible> = items.feed(piece, &mut |item| {
                match serde_json::from_slice::<Volume>(item) {
                    Ok(volume) => volumes.put(&volume),
                    Err(error) => tell_of_unread(volumes, metadata_in(item).name, &field_in(item, &error), &error),
                }
                Ok(())
            });
            Ok(())
        });
        let head = head.await?;
        if head.next.is_empty() {
            volumes.complete();
            return Ok(head.resource_version);
        }
        wanted.continue_token = Some(head.next);
    }
}

/// Watches from a version on, until it has lost its thread.
async fn hold(
    host: &Host,
    volumes: &HostVolumes,
    mut version: String,
    leads: &mut Receiver<bool>,
    recent: &Receiver<Recent>,
) {
    let mut pauses = ExponentialBackoff::from(cluster::pauses());
    loop {
        let (before, begun) = (version.clone(), Instant::now());
        let ended = {
            let mut watching = pin!(watch(host, volumes, &mut version, recent));
            loop {
                tokio::select! {
                    biased;
                    // A watch whose connection has died says nothing for minutes. Who begins to go by the volumes asks what it has missed.
                    Ok(()) = leads.changed() => {
                        if begun.elapsed() >= YOUNG {
                            break Ok(Ended::Over);
                        }
                    }
                    ended = &mut watching => break ended,
                }
            }
        };
        if ended.is_ok() || version != before {
            pauses = ExponentialBackoff::from(cluster::pauses());
        }
        match ended {
            Ok(Ended::Lost) => return,
            Ok(Ended::Over) if volumes.awaits_list() => return,
            Ok(Ended::Over) => {}
            Err(error) => {
                tracing::debug!(error = with_causes(&error), "the host's volumes cannot be watched");
                sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
}

async fn watch(
    host: &Host,
    volumes: &HostVolumes,
    version: &mut String,
    recent: &Receiver<Recent>,
) -> Result<Ended, kube::Error> {
    let wanted = WatchParams::default().timeout(WATCH_SECONDS);
    let request = request().watch(&wanted, version).map_err(kube::Error::BuildRequest)?;
    let events = match host.client.request_events::<Volume>(request).await {
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Lost),
        begun => begun?,
    };
    let mut events = pin!(events);
    let mut apart = None;
    loop {
        let event = match timeout(WATCH_SILENCE, events.try_next()).await {
            Err(_) | Ok(Ok(None)) => return Ok(Ended::Over),
            // One object that nobody understands does not hide the others.
            Ok(Err(kube::Error::SerdeError(error))) => {
                tell_of_unread(volumes, None, "", &error);
                continue;
            }
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Some(event))) => event,
        };
        // Before it is taken in: who waits for that asks at once whether the watch is to be believed.
        let seen = version_of(&event).filter(|seen| !seen.is_empty());
        if let Some(seen) = &seen {
            let is_bookmark = matches!(event, WatchEvent::Bookmark(_));
            let is_behind = apart != Some(true) && recent.borrow().is_behind(seen);
            volumes.hear(is_behind, is_bookmark);
            if is_behind && !is_bookmark && apart.is_none() {
                let are_apart = are_numbered_apart(host, recent).await;
                if are_apart {
                    volumes.hear(false, false);
                }
                apart = Some(are_apart);
            }
        }
        match event {
            WatchEvent::Added(volume) | WatchEvent::Modified(volume) => {
                volumes.put_readable(&volume.name_any());
                volumes.put(&volume);
            }
            WatchEvent::Deleted(volume) => volumes.drop(&volume.name_any()),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Lost),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
        match seen {
            Some(seen) => *version = seen,
            None => return Ok(Ended::Lost),
        }
    }
}

/// Whether the versions by which the watch would be seen to be behind are of another row, as where the host keeps its Leases in an etcd of their
/// own: what is listed after one of them was read is not older than that else.
async fn are_numbered_apart(host: &Host, recent: &Receiver<Recent>) -> bool {
    let read = recent.borrow().clone();
    let newest = cluster::newest(&host.client, &PersistentVolume::url_path(&(), None)).await;
    newest.is_ok_and(|newest| read.is_ahead_of(&newest))
}

fn version_of(event: &WatchEvent<Volume>) -> Option<String> {
    match event {
        WatchEvent::Added(volume) | WatchEvent::Modified(volume) | WatchEvent::Deleted(volume) => {
            volume.resource_version()
        }
        WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version.clone()),
        WatchEvent::Error(_) => None,
    }
}

/// One that nobody understands hides no other, and is not gone. `name`: none where only the next list tells it.
fn tell_of_unread(volumes: &HostVolumes, name: Option<String>, field: &str, error: &serde_json::Error) {
    let volume = name.unwrap_or_default();
    if volumes.put_unread(&volume, field.to_owned()) {
        tracing::warn!(volume, field, %error, "a volume of the host cannot be read: the driver does not take it for gone");
    }
}

fn request() -> Request {
    Request::new(PersistentVolume::url_path(&(), None))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{from_str, json};

    use super::*;
    use crate::volume::HostVolume;

    #[test]
    fn all_that_is_known_of_a_volume_is_read_and_nothing_of_who_wrote_it() {
        let text = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {
                "name": "pvc-1", "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"app": "db"}, "annotations": {"pv.kubernetes.io/provisioned-by": "kosmos.csi.io"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {}}}],
            },
            "spec": {
                "csi": {"driver": "kosmos.csi.io", "volumeHandle": "m/shop/db/0123456789abcdef",
                    "volumeAttributes": {"leafClaimUID": "c", "leafVolume": "pvc-2"}},
                "claimRef": {"namespace": "shop", "name": "db", "uid": "d"}, "persistentVolumeReclaimPolicy": "Retain",
            },
            "status": {"phase": "Released"},
        })
        .to_string();
        let (whole, trimmed): (PersistentVolume, Volume) = (from_str(&text).unwrap(), from_str(&text).unwrap());
        let known = HostVolume::new(&trimmed);
        assert!(known.as_ref().is_some_and(|volume| volume.terminating && volume.leaf.is_some()));
        assert_eq!(known, HostVolume::new(&whole));
        assert_eq!(trimmed.metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(trimmed.metadata.managed_fields, None);
        assert!(trimmed.annotations().is_empty() && trimmed.labels().is_empty());
    }
}
