//! The standing watches on one member: claims and volumes with our labels, and the StorageClasses. Each resumes after
//! an interruption and ends only when its future is dropped, or when it has lost its thread.

use std::{fmt::Debug, time::Duration};

use backon::BackoffBuilder;
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, ObjectList, WatchEvent, WatchParams},
    core::{PartialObjectMeta, Request},
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::{Cluster, items::Items, lean::Lean, limits, ownership, row, rows::Kind};
use crate::{
    cluster::{AFTER_TOO_MUCH, LONGEST_PAUSE, Reading, pauses, with_causes},
    volume::VolumeHash,
};

/// Where a list in one piece has failed before.
const PAGE: u32 = 500;
const LIST_PAUSE: Duration = Duration::from_secs(4);
/// How long a watch is asked for, and when it is given up though the member has not ended it.
const WATCH_SECONDS: u32 = 290;
const WATCH_SILENCE: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 5);
/// No object has to be called so.
const ANY_NAME: &str = "kosmos.csi.io";

/// Keeps the rows of a member true. Returns when a watch has lost its thread and would have to list anew: before that is
/// believed, somebody has to ask again which cluster this is.
pub async fn keep(cluster: &Cluster) {
    cluster.rows.unsync();
    let ours = ownership::selector(&cluster.host);
    let known = &cluster.rows;
    let claims = follow(cluster, Kind::Claims, &ours, |change: Change<Lean<PersistentVolumeClaim>>| match change {
        Change::Put { object, listing: true } => known.put_listed_claim(&object),
        Change::Put { object, listing: false } => known.put_claim(&object),
        Change::Drop(object) => {
            drop_row(cluster, &object, |hash, uid| known.drop_claim(hash, uid, row::version(&object)));
        }
    });
    let volumes = follow(cluster, Kind::Volumes, &ours, |change: Change<Lean<PersistentVolume>>| match change {
        Change::Put { object, .. } => known.put_volume(&object),
        Change::Drop(object) => drop_row(cluster, &object, |hash, uid| known.drop_volume(hash, uid)),
    });
    let classes = follow(cluster, Kind::Classes, "", |change: Change<StorageClass>| match change {
        Change::Put { object, listing } => known.put_class(&object, listing),
        Change::Drop(object) => known.drop_class(&object.name_any()),
    });
    tokio::select! {
        biased;
        () = claims => {}
        () = volumes => {}
        () = classes => {}
    }
}

enum Change<K> {
    Put { object: K, listing: bool },
    Drop(K),
}

async fn follow<K>(cluster: &Cluster, kind: Kind, selector: &str, mut take: impl FnMut(Change<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let (mut pauses, mut is_cut) = (pauses().build(), false);
    let mut version = loop {
        match list(cluster, kind, selector, &mut take).await {
            Ok(version) => break version,
            Err(Stopped::TooMuch(reason)) => return too_much(cluster, kind, reason).await,
            Err(Stopped::Broken(error)) => cluster.rows.set_obstacle(kind, interrupted(cluster, kind, &error)),
        }
        tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    };
    cluster.rows.set_obstacle(kind, None);
    cluster.rows.complete(kind);
    loop {
        let (before, began) = (version.clone(), Instant::now());
        let ended = resume(cluster, kind, selector, &mut version, is_cut, &mut take).await;
        let is_early = began.elapsed().as_secs() < u64::from(WATCH_SECONDS);
        is_cut = is_early || is_cut && version == before;
        match ended {
            Ok(Ended::Lost) => return,
            Ok(Ended::TooMuch(reason)) => return too_much(cluster, kind, reason).await,
            Ok(Ended::Over) => pauses = self::pauses().build(),
            // A right that is missing now: a list will say whether it still is.
            Err(error) if interrupted(cluster, kind, &error).is_some() => return,
            Err(_) => {
                if version != before {
                    pauses = self::pauses().build();
                }
                tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
            }
        }
    }
}

/// Why a list was not read to its end.
enum Stopped {
    TooMuch(String),
    Broken(kube::Error),
}

impl From<kube::Error> for Stopped {
    fn from(error: kube::Error) -> Self {
        Self::Broken(error)
    }
}

/// Until it may say less.
async fn too_much(cluster: &Cluster, kind: Kind, reason: String) {
    tracing::error!(member = %cluster.member, kind = ?kind, reason, "says too much and is closed");
    cluster.rows.set_obstacle(kind, Some(reason));
    tokio::time::sleep(AFTER_TOO_MUCH).await;
}

/// Reads everything there is: one list, consistent, taken object by object as it comes. A member that has not brought
/// that to an end before is asked for pages.
async fn list<K>(
    cluster: &Cluster,
    kind: Kind,
    selector: &str,
    take: &mut impl FnMut(Change<K>),
) -> Result<String, Stopped>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let (mut count, mut pages) = (0, 0);
    let mut wanted = ListParams::default().labels(selector);
    if cluster.rows.begin(kind) {
        wanted.limit = Some(PAGE);
    }
    loop {
        let mut request = Request::new(K::url_path(&(), None)).list(&wanted).map_err(kube::Error::BuildRequest)?;
        request.extensions_mut().insert(Reading::InPieces);
        let mut text = std::pin::pin!(cluster.client.request_stream(request).await?);
        let mut items = Items::default();
        loop {
            let piece = timeout(LIST_PAUSE, text.fill_buf()).await.map_err(std::io::Error::from).flatten();
            let piece = piece.map_err(kube::Error::ReadEvents)?;
            if piece.is_empty() {
                break;
            }
            let read = piece.len();
            let decoded = items.feed(piece, &mut |item| {
                count += 1;
                serde_json::from_slice(item).map(|object| take(Change::Put { object, listing: true }))
            });
            decoded.map_err(kube::Error::SerdeError)?;
            text.consume_unpin(read);
            let reason = cluster.rows.too_much().or_else(|| limits::overlong(count, items.unfinished()));
            if let Some(reason) = reason {
                return Err(Stopped::TooMuch(reason));
            }
        }
        let head = items.head().map_err(kube::Error::SerdeError)?;
        if head.next.is_empty() {
            return Ok(head.resource_version);
        }
        // A page that others follow is full, or the member leads in circles.
        pages += 1;
        count = count.max(pages * PAGE as usize);
        wanted.continue_token = Some(head.next);
    }
}

/// How a watch came to an end without an error.
enum Ended {
    /// It can be resumed.
    Over,
    /// What happened since cannot be told any more.
    Lost,
    TooMuch(String),
}

/// A member that was restored from a backup begins with lower versions again, and a watch from one that lies in its future hears
/// nothing until it has come there. It has ended all watches before their time, and the first that was begun after that may have
/// been begun too soon.
async fn resume<K>(
    cluster: &Cluster,
    kind: Kind,
    selector: &str,
    version: &mut String,
    is_cut: bool,
    take: &mut impl FnMut(Change<K>),
) -> Result<Ended, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    if is_cut && is_before(&newest::<K>(cluster, kind).await?, version) {
        tracing::warn!(
            member = %cluster.member, kind = ?kind, known = version.as_str(),
            "has older versions than it had: it was restored from a backup"
        );
        return Ok(Ended::Lost);
    }
    watch(cluster, selector, version, take).await
}

/// The version that a list has now. Of one name in one place, which the member looks up without going by any others.
async fn newest<K>(cluster: &Cluster, kind: Kind) -> Result<String, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone,
{
    let path = K::url_path(&(), (kind == Kind::Claims).then_some("default"));
    let wanted = ListParams::default().fields(&format!("metadata.name={ANY_NAME}"));
    let request = Request::new(path).list(&wanted).map_err(kube::Error::BuildRequest)?;
    let list = cluster.client.request::<ObjectList<PartialObjectMeta<K>>>(request).await?;
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Both are versions of one kind of one cluster, which are numbers that rise.
fn is_before(version: &str, other: &str) -> bool {
    let numbers = (version.parse::<u64>(), other.parse::<u64>());
    matches!(numbers, (Ok(version), Ok(other)) if version < other)
}

async fn watch<K>(
    cluster: &Cluster,
    selector: &str,
    version: &mut String,
    take: &mut impl FnMut(Change<K>),
) -> Result<Ended, kube::Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let wanted = WatchParams::default().labels(selector).timeout(WATCH_SECONDS);
    let objects = Api::<K>::all(cluster.client.clone());
    let events = match objects.watch(&wanted, version).await {
        Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Lost),
        begun => begun?,
    };
    let mut events = std::pin::pin!(events);
    loop {
        let event = match timeout(WATCH_SILENCE, events.try_next()).await {
            Err(_) | Ok(Ok(None)) => return Ok(Ended::Over),
            // One object that nobody understands does not hide the others.
            Ok(Err(kube::Error::SerdeError(error))) => {
                tracing::warn!(member = %cluster.member, %error, "an object cannot be read");
                continue;
            }
            Ok(Err(error)) => return Err(error),
            Ok(Ok(Some(event))) => event,
        };
        let (change, seen) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let seen = object.resource_version();
                (Some(Change::Put { object, listing: false }), seen)
            }
            WatchEvent::Deleted(object) => {
                let seen = object.resource_version();
                (Some(Change::Drop(object)), seen)
            }
            WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
            WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Lost),
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        };
        let Some(seen) = seen.filter(|seen| !seen.is_empty()) else { return Ok(Ended::Lost) };
        *version = seen;
        change.into_iter().for_each(&mut *take);
        if let Some(reason) = cluster.rows.too_much() {
            return Ok(Ended::TooMuch(reason));
        }
    }
}

/// A right that is missing, in the member's words; other interruptions pass.
fn interrupted(cluster: &Cluster, kind: Kind, error: &kube::Error) -> Option<String> {
    tracing::debug!(member = %cluster.member, kind = ?kind, error = with_causes(error), "watch interrupted");
    let kube::Error::Api(status) = error else { return None };
    matches!(status.code, 401 | 403).then(|| status.message.clone())
}

/// The last state of an object that left the watch still carries the labels by which it was ours.
fn drop_row<K: ResourceExt>(cluster: &Cluster, object: &K, remove: impl FnOnce(VolumeHash, &str)) {
    if let (Some(hash), Some(uid)) = (ownership::volume_of(object.meta(), &cluster.host), object.uid()) {
        remove(hash, &uid);
    }
}
