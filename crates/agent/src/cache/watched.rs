//! A cache of objects that are listed in pages, and watched from there on.

use std::time::Duration;

use futures::StreamExt;
use kube::runtime::{
    WatchStreamExt,
    watcher::{self, ExponentialBackoff, watcher},
};
use serde_json::Value;
use tokio::time::Instant;

use super::{super::object::Objects, Cached, Change, ObjectCache};
use cluster::{WATCH_SILENCE, newest, pauses, with_causes};

/// Longer than from one try to begin a watch to the next: what is longer apart has a watch in between, which may have told nothing.
const APART: Duration = Duration::from_mins(1);

/// Since when no watch can be begun, and when that was tried last.
#[derive(Debug, Default)]
struct Unbegun(Option<(Instant, Instant)>);

impl Unbegun {
    /// Whether that has lasted for so long that what is known is old.
    fn lasts(&mut self, error: &watcher::Error) -> bool {
        if !matches!(error, watcher::Error::WatchStartFailed(_)) {
            self.0 = None;
            return false;
        }
        let now = Instant::now();
        let since = self.0.filter(|(_, last)| last.elapsed() < APART).map_or(now, |(since, _)| since);
        self.0 = Some((since, now));
        since.elapsed() > WATCH_SILENCE
    }
}

/// Keeps a cache true, until it is dropped, and tells what has changed in it. `keeps` decides what is kept, and may leave out of it
/// what nobody reads.
pub(crate) async fn keep<T: Cached>(
    objects: Objects,
    config: watcher::Config,
    cache: &ObjectCache<T>,
    keeps: fn(&mut Value) -> bool,
    tell: impl Fn(&Change<T>),
) {
    let (kind, client) = (objects.resource_url().to_owned(), objects.clone().into_client());
    loop {
        let mut unbegun = Unbegun::default();
        let events = watcher(objects.clone(), config.clone()).backoff(ExponentialBackoff::from(pauses()));
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    unbegun = Unbegun::default();
                    cache.take(event, keeps).iter().for_each(&tell);
                }
                Err(error) => {
                    // As behind a proxy that passes none on. What lists nothing either is not asked for lists: that would be in circles.
                    if unbegun.lasts(&error) && newest(&client, &kind).await.is_ok() {
                        let error = with_causes(&error);
                        tracing::warn!(
                            kind,
                            error,
                            "no watch of these objects can be begun: the agent lists all again, and hears of changes \
                             minutes late"
                        );
                        break;
                    }
                    cache.obstructed(&kind, with_causes(&error));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc, Mutex,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::Response;
    use kube::{Client, client::Body};
    use serde_json::json;
    use tokio::time::{sleep, timeout};

    use super::{super::super::object::all_pods, *};

    fn failed() -> watcher::Error {
        watcher::Error::WatchStartFailed(kube::Error::Service("no".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn what_no_watch_tells_any_more_is_listed_again() {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let serve = move |request: http::Request<Body>| {
            let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
            let before = lists.fetch_add(usize::from(!is_watch), Ordering::Relaxed);
            let name = if before == 0 { "a" } else { "b" };
            let pod = json!({"metadata": {"namespace": "shop", "name": name, "resourceVersion": "1"}});
            let (code, answer) = if is_watch {
                (503_u16, json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 503}))
            } else {
                let version = json!({"resourceVersion": "7"});
                (200, json!({"kind": "PodList", "apiVersion": "v1", "metadata": version, "items": [pod]}))
            };
            let body = Body::from(answer.to_string().into_bytes());
            async move { Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap()) }
        };
        let (client, cache) = (Client::new(tower::service_fn(serve), "default"), ObjectCache::<Value>::default());
        let told = Mutex::new(Vec::new());
        let tell = |change: &Change| {
            let word = if change.after.is_some() { "has" } else { "has lost" };
            told.lock().unwrap().push(format!("{word} {}", change.place.name));
        };
        let keeping = keep(all_pods(&client), watcher::Config::default(), &cache, |_| true, tell);
        assert!(timeout(WATCH_SILENCE * 3 / 2, keeping).await.is_err());
        assert_eq!(told.into_inner().unwrap(), ["has a", "has b", "has lost a"]);
        assert_eq!(counted.load(Ordering::Relaxed), 3, "two lists, and one of no object before the second");
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_cannot_be_begun_is_a_reason_to_list_only_where_that_lasts() {
        let mut unbegun = Unbegun::default();
        assert!(!unbegun.lasts(&failed()));
        sleep(APART * 2).await;
        for _ in 0..9 {
            assert!(!unbegun.lasts(&failed()), "a watch was there in between");
            sleep(APART / 2).await;
        }
        assert!(!unbegun.lasts(&watcher::Error::NoResourceVersion), "something was heard");
        for _ in 0..10 {
            assert!(!unbegun.lasts(&failed()));
            sleep(APART / 2).await;
        }
        assert!(unbegun.lasts(&failed()));
    }
}
