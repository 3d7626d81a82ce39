//! Writes are carried to their end, also where whoever asked for them has gone: one that is broken off may be carried out all
//! the same, and later than what was decided since.

use std::time::Duration;

use http::{Request, Uri, uri::PathAndQuery};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

tokio::task_local! {
    static WRITES: TaskTracker;
}

/// The writes of some work that may be ended at any await.
#[derive(Clone, Debug)]
pub struct Writes(TaskTracker);

impl Default for Writes {
    fn default() -> Self {
        let tracker = TaskTracker::new();
        // It takes tasks all the same, and can be waited for by several at once.
        tracker.close();
        Self(tracker)
    }
}

impl Writes {
    /// Does the work; what it writes is known here.
    pub async fn of<F: Future>(&self, work: F) -> F::Output {
        WRITES.scope(self.0.clone(), work).await
    }

    /// Part of the work that asks for it, to be done by a task of its own: it counts until it has ended, with what it writes.
    pub fn of_this<F: Future>(part: F) -> impl Future<Output = F::Output> {
        let whole = WRITES.try_with(TaskTracker::clone).ok();
        async move {
            match whole {
                Some(writes) => {
                    let _part = writes.token();
                    WRITES.scope(writes, part).await
                }
                None => part.await,
            }
        }
    }

    /// What other work has begun to write counts as well.
    pub fn include(&self, others: Self) {
        self.0.spawn(async move { others.ended().await });
    }

    /// Until all that was begun has come to an end.
    pub async fn ended(&self) {
        self.0.wait().await;
    }
}

/// Carries out a request whoever drops the handle.
pub(super) fn carry<F>(request: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    match WRITES.try_with(TaskTracker::clone) {
        Ok(writes) => writes.spawn(request),
        Err(_) => tokio::spawn(request),
    }
}

/// The same request, which the cluster is asked to drop when it has not been carried out in time.
pub(super) fn within<B>(mut request: Request<B>, time: Duration) -> Result<Request<B>, http::Error> {
    let address = request.uri();
    let earlier = address.query().map(|query| query.trim_end_matches('&')).filter(|query| !query.is_empty());
    let between = if earlier.is_some() { "&" } else { "" };
    let all = format!("{}?{}{between}timeout={}s", address.path(), earlier.unwrap_or_default(), time.as_secs());
    let mut parts = address.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(all)?);
    *request.uri_mut() = Uri::from_parts(parts)?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[test]
    fn time_is_added_to_what_was_asked() {
        for (address, expected) in [
            ("/api/v1/nodes", "/api/v1/nodes?timeout=4s"),
            ("/api/v1/nodes?", "/api/v1/nodes?timeout=4s"),
            ("/api/v1/nodes?&fieldManager=x", "/api/v1/nodes?&fieldManager=x&timeout=4s"),
            ("https://a:6443/api/v1/nodes?dryRun=All&", "https://a:6443/api/v1/nodes?dryRun=All&timeout=4s"),
        ] {
            let request = Request::builder().uri(address).body(()).unwrap();
            assert_eq!(within(request, Duration::from_secs(4)).unwrap().uri().to_string(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_work_has_begun_to_write_is_waited_for_after_the_work_was_ended() {
        let writes = Writes::default();
        let work = writes.of(async {
            drop(carry(sleep(Duration::from_secs(1))));
            drop(carry(sleep(Duration::from_secs(3))).await);
        });
        let begun = Instant::now();
        assert!(tokio::time::timeout(Duration::from_millis(1), work).await.is_err());
        writes.ended().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        writes.ended().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_task_of_the_work_has_begun_to_write_is_waited_for_as_well() {
        let writes = Writes::default();
        let begun = Instant::now();
        let part = async { drop(carry(sleep(Duration::from_secs(2)))) };
        writes.of(async { tokio::spawn(Writes::of_this(part)).await.unwrap() }).await;
        writes.ended().await;
        assert_eq!(begun.elapsed(), Duration::from_secs(2));
    }
}
