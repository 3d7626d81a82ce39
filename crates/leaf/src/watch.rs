//! The standing watches on one member: claims and volumes with our labels, and the StorageClasses. Each resumes after
//! an interruption and ends only when its future is dropped, or when it has lost its thread.

use std::{convert::Infallible, fmt::Debug};

use backon::BackoffBuilder;
use futures::{TryStreamExt, future::select_all};
use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout};

use super::{MemberClient, limits, ownership, row, rows::Kind, trimmed::Trimmed};
use cluster::{
    AFTER_TOO_MUCH, LONGEST_PAUSE, WATCH_SECONDS, WATCH_SILENCE, field_in, is_before, items::Items, metadata_in,
    object_in, pauses, read_list, with_causes,
};
use domain::{printable::short, volume::VolumeHash};

/// Where a list in one piece has failed before.
const PAGE: u32 = 500;
/// Of what is wrong with an object, in bytes.
const LONGEST: usize = 200;

/// Keeps the rows of a member true. Returns when a watch has lost its thread and would have to list again: before that is
/// believed, somebody has to ask again which cluster this is.
pub async fn keep(cluster: &MemberClient) {
    cluster.rows.unsync();
    let ours = ownership::selector(&cluster.host);
    let known = &cluster.rows;
    let claims = follow(cluster, Kind::Claims, &ours, |change: Change<Trimmed<PersistentVolumeClaim>>| match change {
        Change::Put { object, listing: true } => known.put_listed_claim(&object),
        Change::Put { object, listing: false } => known.put_claim(&object),
        Change::Drop(object) => {
            drop_row(cluster, &object, |hash, uid| known.drop_claim(hash, uid, row::version(&object)));
        }
    });
    let volumes = follow(cluster, Kind::Volumes, &ours, |change: Change<Trimmed<PersistentVolume>>| match change {
        Change::Put { object, .. } => known.put_volume(&object),
        Change::Drop(object) => drop_row(cluster, &object, |hash, uid| known.drop_volume(hash, uid)),
    });
    let classes = follow(cluster, Kind::Classes, "", |change: Change<StorageClass>| match change {
        Change::Put { object, .. } => known.put_class(&object),
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

/// What is watched at once: a kind, in one namespace or in all.
#[derive(Clone, Copy)]
struct WatchedKind<'a> {
    cluster: &'a MemberClient,
    kind: Kind,
    namespace: Option<&'a str>,
    selector: &'a str,
}

async fn follow<K>(cluster: &MemberClient, kind: Kind, selector: &str, take: impl Fn(Change<K>))
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let namespaces = if kind == Kind::Claims { cluster.namespaces.each() } else { vec![None] };
    let all: Vec<_> = namespaces.iter().map(|&namespace| WatchedKind { cluster, kind, namespace, selector }).collect();
    let mut pauses = pauses().build();
    let versions = loop {
        match list_all(cluster, kind, &all, &take).await {
            Ok(versions) => break versions,
            Err(Stopped::TooMuch(reason)) => return too_much(cluster, kind, reason).await,
            Err(Stopped::Broken(error)) => cluster.rows.set_obstacle(kind, interrupted(cluster, kind, &error)),
        }
        tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
    };
    cluster.rows.set_obstacle(kind, None);
    cluster.rows.complete(kind);
    // Where one has lost its thread, all are listed again.
    let watches = all.iter().zip(versions).map(|(watched, version)| Box::pin(watched.hold(version, &take)));
    if let Some(reason) = select_all(watches).await.0 {
        too_much(cluster, kind, reason).await;
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
async fn too_much(cluster: &MemberClient, kind: Kind, reason: String) {
    tracing::error!(member = %cluster.member, kind = ?kind, reason, "the member reports more than the driver remembers of one member, and gets no new volumes until it reports less");
    cluster.rows.set_obstacle(kind, Some(reason));
    tokio::time::sleep(AFTER_TOO_MUCH).await;
}

/// Reads everything there is of a kind; the version of each list. A member that has not brought that to an end before is asked for
/// pages.
async fn list_all<K>(
    cluster: &MemberClient,
    kind: Kind,
    all: &[WatchedKind<'_>],
    take: &impl Fn(Change<K>),
) -> Result<Vec<String>, Stopped>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let in_pages = cluster.rows.begin(kind);
    let (mut count, mut versions) = (0, Vec::new());
    for watched in all {
        versions.push(watched.list(in_pages, &mut count, take).await?);
    }
    Ok(versions)
}

/// How a watch came to an end without an error.
enum Ended {
    /// It can be resumed.
    Over,
    /// What happened since cannot be told any more.
    Lost,
    TooMuch(String),
}

impl WatchedKind<'_> {
    /// One list, consistent, taken object by object as it comes.
    async fn list<K>(self, in_pages: bool, count: &mut usize, take: &impl Fn(Change<K>)) -> Result<String, Stopped>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
    {
        let mut pages = 0;
        let mut wanted = ListParams::default().labels(self.selector);
        wanted.limit = in_pages.then_some(PAGE);
        loop {
            let request = self.request::<K>().list(&wanted).map_err(kube::Error::BuildRequest)?;
            let head = read_list(&self.cluster.client, request, Items::of_list(), |items, piece| {
                let Ok(()): Result<(), Infallible> = items.feed(piece, &mut |item| {
                    *count += 1;
                    match serde_json::from_slice(item) {
                        Ok(object) => take(Change::Put { object, listing: true }),
                        Err(error) => self.note_unread(item, &error),
                    }
                    Ok(())
                });
                self.bound(*count, items)
            });
            let head = head.await?;
            if head.next.is_empty() {
                return Ok(head.resource_version);
            }
            // A page that others follow is full, or the member leads in circles.
            pages += 1;
            *count = (*count).max(pages * PAGE as usize);
            wanted.continue_token = Some(head.next);
        }
    }

    /// Ends a list that says too much. `count`: of its objects so far.
    fn bound(self, count: usize, items: &Items) -> Result<(), Stopped> {
        let reason = self.cluster.rows.too_much().or_else(|| limits::overlong(count, items.unfinished()));
        let Some(reason) = reason else { return Ok(()) };
        let (member, object) = (&*self.cluster.member, object_in(items.begun()).unwrap_or_default());
        tracing::error!(
            member,
            kind = ?self.kind,
            object,
            reason,
            "the driver stops reading the list at this object, and uses the member again once the list is shorter"
        );
        Err(Stopped::TooMuch(reason))
    }

    /// Watches from a version on, until it has lost its thread; with a reason, where the member says too much.
    async fn hold<K>(self, mut version: String, take: &impl Fn(Change<K>)) -> Option<String>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let (mut pauses, mut is_cut, mut heard) = (pauses().build(), false, Instant::now());
        loop {
            let (before, began, mut is_begun) = (version.clone(), Instant::now(), false);
            let ended = self.resume(&mut version, &mut is_begun, is_cut, take).await;
            if is_begun {
                heard = Instant::now();
            }
            let is_early = began.elapsed().as_secs() < u64::from(WATCH_SECONDS);
            is_cut = is_early || is_cut && version == before;
            match ended {
                Ok(Ended::Lost) => return None,
                Ok(Ended::Over) if self.cluster.rows.awaits_list(self.kind) => return None,
                Ok(Ended::TooMuch(reason)) => return Some(reason),
                Ok(Ended::Over) => pauses = self::pauses().build(),
                // A right that is missing now: a list will say whether it still is.
                Err(error) if interrupted(self.cluster, self.kind, &error).is_some() => return None,
                Err(error) => {
                    // As behind a proxy that passes none on. What is known gets old, and nothing else would say so. Where nothing is
                    // listed either, to forget it would only close the member.
                    if heard.elapsed() > WATCH_SILENCE && self.newest::<K>().await.is_ok() {
                        let (member, error) = (&*self.cluster.member, with_causes(&error));
                        tracing::warn!(
                            member,
                            kind = ?self.kind,
                            error,
                            "no watch of the member can be begun: the driver lists all again, and hears of changes \
                             minutes late"
                        );
                        return None;
                    }
                    if version != before {
                        pauses = self::pauses().build();
                    }
                    tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
                }
            }
        }
    }

    /// A member that was restored from a backup begins with lower versions again, and a watch from one that lies in its future hears
    /// nothing until it has come there. It has ended all watches before their time, and the first that was begun after that may have
    /// been begun too soon.
    async fn resume<K>(
        self,
        version: &mut String,
        is_begun: &mut bool,
        is_cut: bool,
        take: &impl Fn(Change<K>),
    ) -> Result<Ended, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        if is_cut && is_before(&self.newest::<K>().await?, version) {
            tracing::warn!(
                member = %self.cluster.member, kind = ?self.kind, known = version.as_str(),
                "the member has older versions than it had: it was restored from a backup"
            );
            return Ok(Ended::Lost);
        }
        self.watch(version, is_begun, take).await
    }

    /// The version that a list has now, in one place.
    async fn newest<K: Resource<DynamicType = ()>>(self) -> Result<String, kube::Error> {
        let place = self.namespace.or_else(|| (self.kind == Kind::Claims).then_some("default"));
        cluster::newest(&self.cluster.client, &K::url_path(&(), place)).await
    }

    async fn watch<K>(
        self,
        version: &mut String,
        is_begun: &mut bool,
        take: &impl Fn(Change<K>),
    ) -> Result<Ended, kube::Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let wanted = WatchParams::default().labels(self.selector).timeout(WATCH_SECONDS);
        let request = self.request::<K>().watch(&wanted, version).map_err(kube::Error::BuildRequest)?;
        let events = match self.cluster.client.request_events::<K>(request).await {
            Err(kube::Error::Api(status)) if status.code == 410 => return Ok(Ended::Lost),
            begun => begun?,
        };
        *is_begun = true;
        let mut events = std::pin::pin!(events);
        loop {
            let event = match timeout(WATCH_SILENCE, events.try_next()).await {
                Err(_) | Ok(Ok(None)) => return Ok(Ended::Over),
                // One object that nobody understands does not hide the others. Which one it is, the next list tells.
                Ok(Err(kube::Error::SerdeError(error))) => {
                    self.tell_of_unread(&ObjectMeta::default(), "", &error);
                    continue;
                }
                Ok(Err(error)) => return Err(error),
                Ok(Ok(Some(event))) => event,
            };
            let (change, seen) = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    self.cluster.rows.put_readable(self.kind, || named(object.meta()));
                    let seen = object.resource_version();
                    (Some(Change::Put { object, listing: false }), seen)
                }
                WatchEvent::Deleted(object) => {
                    self.cluster.rows.put_readable(self.kind, || named(object.meta()));
                    let seen = object.resource_version();
                    (Some(Change::Drop(object)), seen)
                }
                WatchEvent::Bookmark(bookmark) => (None, Some(bookmark.metadata.resource_version)),
                WatchEvent::Error(status) if status.code == 410 => return Ok(Ended::Lost),
                WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
            };
            let Some(seen) = seen.filter(|seen| !seen.is_empty()) else { return Ok(Ended::Lost) };
            *version = seen;
            change.into_iter().for_each(take);
            if let Some(reason) = self.cluster.rows.too_much() {
                return Ok(Ended::TooMuch(reason));
            }
        }
    }

    fn request<K: Resource<DynamicType = ()>>(self) -> Request {
        Request::new(K::url_path(&(), self.namespace))
    }

    /// An object of a list that nobody understands hides no other, and is not gone.
    fn note_unread(self, text: &[u8], error: &serde_json::Error) {
        self.tell_of_unread(&metadata_in(text), &field_in(text, error), error);
    }

    fn tell_of_unread(self, metadata: &ObjectMeta, field: &str, error: &serde_json::Error) {
        let (object, whose) = (named(metadata), ownership::volume_of(metadata, &self.cluster.host));
        if self.cluster.rows.put_unread(self.kind, &object, whose, field.to_owned()) {
            let (member, error) = (&*self.cluster.member, short(&error.to_string(), LONGEST));
            tracing::warn!(
                member,
                kind = ?self.kind,
                object,
                field,
                error,
                "an object cannot be read: the driver does not take it for gone, and keeps what it knows of it"
            );
        }
    }
}

/// `NAMESPACE/NAME`, or the name alone; nothing where it is not known.
fn named(metadata: &ObjectMeta) -> String {
    let words: Vec<&str> = [&metadata.namespace, &metadata.name].into_iter().flatten().map(String::as_str).collect();
    words.join("/")
}

/// A right that is missing, in the member's words; other interruptions pass.
fn interrupted(cluster: &MemberClient, kind: Kind, error: &kube::Error) -> Option<String> {
    tracing::debug!(member = %cluster.member, kind = ?kind, error = with_causes(error), "a watch was interrupted");
    let kube::Error::Api(status) = error else { return None };
    matches!(status.code, 401 | 403).then(|| status.message.clone())
}

/// The last state of an object that left the watch still carries the labels by which it was ours.
fn drop_row<K: ResourceExt>(cluster: &MemberClient, object: &K, remove: impl FnOnce(VolumeHash, &str)) {
    if let (Some(hash), Some(uid)) = (ownership::volume_of(object.meta(), &cluster.host), object.uid()) {
        remove(hash, &uid);
    }
}
