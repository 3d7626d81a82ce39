//! A cache of objects of which whoever writes some decides how long they are.

use kube::{Client, runtime::watcher::Event};
use serde_json::Value;

use super::{
    super::object::{Object, Objects},
    Cached, Change, ObjectCache,
};
use cluster::{watch_one_by_one, with_causes};

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
    let failed = |error: &kube::Error| cache.obstructed(objects.resource_url(), with_causes(error));
    watch_one_by_one(client, objects, Some(fields), take, failed).await;
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
    use tokio::time::timeout;

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
