//! A watch of objects of which whoever writes some decides how long they are: a page of the longest would take more memory than there is. They are
//! listed one by one, as they come, and watched from there on.

use std::{fmt::Debug, pin::pin};

use futures::TryStreamExt;
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
    runtime::watcher::{Event, ExponentialBackoff},
};
use serde::de::DeserializeOwned;
use tokio::time::{sleep, timeout};

use super::{LONGEST_PAUSE, WATCH_SECONDS, WATCH_SILENCE, items::Items, pauses, read_list};

/// An API server writes no more of them at a time.
const PAGE: u32 = 500;

/// Tells of them until it is dropped, and of what is in the way of that. `fields`: which objects are meant.
pub async fn watch_one_by_one<K>(
    client: &Client,
    objects: &Api<K>,
    fields: Option<&str>,
    mut take: impl FnMut(Event<K>),
    failed: impl Fn(&kube::Error),
) where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let mut waits = ExponentialBackoff::from(pauses());
    // None is known before they are listed.
    let mut version = String::new();
    loop {
        let before = version.clone();
        let ended = if before.is_empty() {
            list(client, objects.resource_url(), fields, &mut take).await.map(|listed| version = listed)
        } else {
            watch(objects, fields, &mut version, &mut take).await
        };
        // What is listed again and again is asked for less and less.
        if !before.is_empty() && (ended.is_ok() || !version.is_empty() && version != before) {
            waits = ExponentialBackoff::from(pauses());
        }
        if let Err(error) = ended {
            failed(&error);
            sleep(waits.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }
}

/// The version of the list.
async fn list<K: DeserializeOwned>(
    client: &Client,
    path: &str,
    fields: Option<&str>,
    take: &mut impl FnMut(Event<K>),
) -> kube::Result<String> {
    let mut wanted =
        ListParams { field_selector: fields.map(str::to_owned), limit: Some(PAGE), ..ListParams::default() };
    take(Event::Init);
    loop {
        let request = Request::new(path).list(&wanted).map_err(kube::Error::BuildRequest)?;
        let head = read_list(client, request, Items::of_list(), |items, piece| -> kube::Result<()> {
            items.feed(piece, &mut |item| {
                let object = serde_json::from_slice(item).map_err(kube::Error::SerdeError);
                object.map(|object| take(Event::InitApply(object)))
            })
        });
        let head = head.await?;
        if !head.next.is_empty() {
            wanted.continue_token = Some(head.next);
        } else if head.resource_version.is_empty() {
            return Err(kube::Error::Service("the list has no version".into()));
        } else {
            take(Event::InitDone);
            return Ok(head.resource_version);
        }
    }
}

/// From a version on, which goes on with what is told. None is left where what happened since cannot be told any more.
async fn watch<K>(
    objects: &Api<K>,
    fields: Option<&str>,
    version: &mut String,
    take: &mut impl FnMut(Event<K>),
) -> kube::Result<()>
where
    K: Resource + Clone + Debug + DeserializeOwned,
{
    let wanted = WatchParams { field_selector: fields.map(str::to_owned), ..WatchParams::default() };
    let begun = objects.watch(&wanted.timeout(WATCH_SECONDS), version.as_str()).await;
    if begun.as_ref().is_err_and(is_lost) {
        version.clear();
    }
    let mut events = pin!(begun?);
    loop {
        let event = match timeout(WATCH_SILENCE, events.try_next()).await {
            Err(_) | Ok(Ok(None)) => return Ok(()),
            Ok(Ok(Some(event))) => event,
            // One object that nobody understands does not hide the others.
            Ok(Err(kube::Error::SerdeError(error))) => {
                tracing::warn!(kind = objects.resource_url(), %error, "an object of which a watch tells cannot be read");
                continue;
            }
            Ok(Err(error)) => return Err(error),
        };
        let seen = match &event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                object.resource_version()
            }
            WatchEvent::Bookmark(bookmark) => Some(bookmark.metadata.resource_version.clone()),
            WatchEvent::Error(_) => None,
        };
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => take(Event::Apply(object)),
            WatchEvent::Deleted(object) => take(Event::Delete(object)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => {
                let error = kube::Error::Api(status);
                if is_lost(&error) {
                    version.clear();
                }
                return Err(error);
            }
        }
        *version = seen.unwrap_or_default();
        if version.is_empty() {
            return Err(kube::Error::Service("what a watch tells has no version".into()));
        }
    }
}

fn is_lost(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 410)
}
