//! A cache of objects of which whoever writes some decides how long they are: a page of the longest would take more memory than there is. They are
//! listed one by one, as they come, and watched from there on.

use std::pin::pin;

use futures::TryStreamExt;
use kube::{
    Client, ResourceExt,
    api::{ListParams, WatchEvent, WatchParams},
    core::Request,
    runtime::watcher::{Event, ExponentialBackoff},
};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    super::object::{Object, Objects},
    Cached, Change, ObjectCache,
};
use cluster::{LONGEST_PAUSE, WATCH_SECONDS, WATCH_SILENCE, items::Items, pauses, read_list, with_causes};

/// An API server writes no more of them at a time.
const PAGE: u32 = 500;

/// Keeps a cache true, until it is dropped, and tells what has changed in it. `fields`: which objects are meant.
pub(crate) async fn keep_one_by_one<T: Cached>(
    client: &Client,
    objects: &Objects,
    fields: &str,
    cache: &ObjectCache<T>,
    keeps: fn(&mut Value) -> bool,
    tell: impl Fn(&Change<T>),
) {
    let take = |event: Event<Object>| cache.take(event, keeps).iter().for_each(&tell);
    let mut waits = ExponentialBackoff::from(pauses());
    // None is known before they are listed.
    let mut version = String::new();
    loop {
        let before = version.clone();
        let ended = if before.is_empty() {
            list(client, objects.resource_url(), fields, &take).await.map(|listed| version = listed)
        } else {
            watch(objects, fields, &mut version, &take).await
        };
        // What is listed again and again is asked for less and less.
        if !before.is_empty() && (ended.is_ok() || !version.is_empty() && version != before) {
            waits = ExponentialBackoff::from(pauses());
        }
        if let Err(error) = ended {
            cache.obstructed(objects.resource_url(), with_causes(&error));
            sleep(waits.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }
}

/// The version of the list.
async fn list(client: &Client, path: &str, fields: &str, take: &impl Fn(Event<Object>)) -> kube::Result<String> {
    let mut wanted = ListParams::default().fields(fields).limit(PAGE);
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
async fn watch(
    objects: &Objects,
    fields: &str,
    version: &mut String,
    take: &impl Fn(Event<Object>),
) -> kube::Result<()> {
    let wanted = WatchParams::default().fields(fields).timeout(WATCH_SECONDS);
    let begun = objects.watch(&wanted, version.as_str()).await;
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

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use futures::{StreamExt, stream};
    use http::Response;
    use http_body_util::StreamBody;
    use hyper::body::{Bytes, Frame};
    use kube::client::Body;

    use super::{
        super::super::object::{Place, all_pods},
        *,
    };

    const BEGINNING: &str = r#"{"metadata": {"resourceVersion": "7"}, "items": ["#;

    fn pod(name: &str) -> String {
        format!(r#"{{"metadata": {{"namespace": "shop", "name": "{name}", "resourceVersion": "1"}}}}"#)
    }

    fn place(name: &str) -> Place {
        Place { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    /// What is told of changes in so long.
    async fn kept(client: &Client, cache: &ObjectCache<Value>, time: Duration) -> Vec<String> {
        let told = Mutex::new(Vec::new());
        let tell = |change: &Change| {
            let word = if change.after.is_some() { "has" } else { "has lost" };
            told.lock().unwrap().push(format!("{word} {}", change.place.name));
        };
        let pods = all_pods(client);
        let keeping = keep_one_by_one(client, &pods, "spec.nodeName!=", cache, |_| true, tell);
        let _ = timeout(time, keeping).await;
        told.into_inner().unwrap()
    }

    /// However many follow, and however long they are.
    #[tokio::test(start_paused = true)]
    async fn object_of_a_list_is_taken_before_the_next_one_has_come() {
        let client = Client::new(
            tower::service_fn(|_: http::Request<Body>| async {
                let come = stream::iter([BEGINNING.to_owned(), pod("a"), format!(", {}", pod("b"))]);
                let come = come.map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
                Ok::<_, Infallible>(Response::new(StreamBody::new(come.chain(stream::pending()))))
            }),
            "default",
        );
        let cache = ObjectCache::<Value>::default();
        assert_eq!(kept(&client, &cache, Duration::from_secs(1)).await, ["has a", "has b"]);
        assert!(cache.has(&place("b")) && !cache.is_synced(), "the list has not ended");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_listed_again_after_a_watch_has_lost_its_thread_is_told_with_what_has_gone() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let serve = move |request: http::Request<Body>| {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let before = lists.fetch_add(usize::from(!is_watch), Ordering::Relaxed);
            async move {
                let (code, text) = match (is_watch, before) {
                    (false, 0) => (200_u16, format!("{BEGINNING}{}, {}]}}", pod("a"), pod("b"))),
                    (false, _) => (200, format!("{BEGINNING}{}]}}", pod("b"))),
                    (true, 1) => (410, r#"{"kind": "Status", "code": 410, "reason": "Expired"}"#.to_owned()),
                    (true, _) => std::future::pending().await,
                };
                Ok::<_, Infallible>(Response::builder().status(code).body(Body::from(text.into_bytes())).unwrap())
            }
        };
        let (client, cache) = (Client::new(tower::service_fn(serve), "default"), ObjectCache::<Value>::default());
        let told = kept(&client, &cache, Duration::from_secs(30)).await;
        assert_eq!(told, ["has a", "has b", "has b", "has lost a"]);
        assert_eq!((cache.is_synced(), counted.load(Ordering::Relaxed)), (true, 2));
    }
}
