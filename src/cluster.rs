//! How any cluster is spoken to, host or member: every request has a time limit, a place in a limited number of requests
//! under way, and fails at once while the cluster is known to be down. Nothing is retried out of sight.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::{Duration, Instant},
};

use http::{Request, Response};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tokio::sync::{Notify, Semaphore};
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::metrics::Metrics;

const CONNECT: Duration = Duration::from_secs(3);
/// Until the answer's head is there; a watch may then stay open.
const ANSWER: Duration = Duration::from_secs(10);
/// A watch ends by itself before this much silence.
const SILENCE: Duration = Duration::from_secs(310);
const UNDER_WAY: usize = 32;

/// A client for one cluster, and the breaker that knows whether it answers.
pub fn build(cluster: &str, mut config: Config, metrics: &Metrics) -> Result<(Client, Breaker), kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(ANSWER);
    let breaker = Breaker::default();
    let bounds = Bounds {
        cluster: cluster.into(),
        breaker: breaker.clone(),
        places: Arc::new(Semaphore::new(UNDER_WAY)),
        metrics: metrics.clone(),
    };
    Ok((ClientBuilder::try_from(config)?.with_layer(&bounds).build(), breaker))
}

/// Opens when a cluster does not answer; while open, requests fail without being sent.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    state: Arc<Mutex<BreakerState>>,
    failure: Arc<Notify>,
}

#[derive(Debug, Default)]
struct BreakerState {
    failures: u32,
    closed_until_retry: Option<Instant>,
    reason: String,
}

impl Breaker {
    /// Why the cluster is not asked now.
    pub fn open(&self) -> Option<String> {
        let state = self.lock();
        state.closed_until_retry.is_some_and(|until| Instant::now() < until).then(|| state.reason.clone())
    }

    /// Why the last request failed, also when the next one would be let through to try.
    pub fn failing(&self) -> Option<String> {
        let state = self.lock();
        (state.failures > 0).then(|| state.reason.clone())
    }

    pub fn succeeded(&self) {
        *self.lock() = BreakerState::default();
    }

    pub fn failed(&self, reason: &str) {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        let pause = Duration::from_millis(250 << state.failures.min(5));
        state.closed_until_retry = Some(Instant::now() + pause);
        reason.clone_into(&mut state.reason);
        drop(state);
        self.failure.notify_one();
    }

    /// Returns when a request has failed.
    pub async fn failure(&self) {
        self.failure.notified().await;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer that keeps a cluster's requests within bounds.
#[derive(Clone, Debug)]
struct Bounds {
    cluster: Arc<str>,
    breaker: Breaker,
    places: Arc<Semaphore>,
    metrics: Metrics,
}

impl<S> Layer<S> for Bounds {
    type Service = Bounded<S>;

    fn layer(&self, inner: S) -> Bounded<S> {
        Bounded { inner: Arc::new(tokio::sync::Mutex::new(inner)), bounds: self.clone() }
    }
}

/// The service that does so. The inner one is locked only while a request is handed over, never while it is answered.
#[derive(Clone, Debug)]
struct Bounded<S> {
    inner: Arc<tokio::sync::Mutex<S>>,
    bounds: Bounds,
}

type Answer<B> = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

impl<S, B> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Answer<B>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer<B> {
        let (inner, bounds) = (Arc::clone(&self.inner), self.bounds.clone());
        Box::pin(async move { bounds.send(inner, request).await })
    }
}

impl Bounds {
    async fn send<S, B>(
        self,
        inner: Arc<tokio::sync::Mutex<S>>,
        request: Request<Body>,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        if let Some(reason) = self.breaker.open() {
            return Err(reason.into());
        }
        let (verb, kind) = (request.method().clone(), kind_of(request.uri().path()).to_owned());
        let started = Instant::now();
        let answer = tokio::time::timeout(ANSWER, async {
            let _place = self.places.acquire().await.map_err(BoxError::from)?;
            let answering = inner.lock().await.ready().await.map_err(Into::into)?.call(request);
            answering.await.map_err(Into::into)
        });
        let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs()).into()));
        self.metrics.request(&self.cluster, verb.as_str(), &kind, started.elapsed(), answer.is_ok());
        match &answer {
            Ok(_) => self.breaker.succeeded(),
            Err(error) => self.breaker.failed(&with_causes(error.as_ref())),
        }
        answer
    }
}

/// The resource a path is about: `persistentvolumeclaims` of `/api/v1/namespaces/x/persistentvolumeclaims/y`.
fn kind_of(path: &str) -> &str {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group_and_version = if parts.next() == Some("apis") { 2 } else { 1 };
    let rest: Vec<&str> = parts.skip(group_and_version).collect();
    match rest.as_slice() {
        ["namespaces", _, kind, ..] | [kind, ..] => kind,
        [] => "",
    }
}

/// An error and what caused it, each said once.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_is_read_from_the_path() {
        for (path, kind) in [
            ("/api/v1/namespaces/x/persistentvolumeclaims/y", "persistentvolumeclaims"),
            ("/api/v1/persistentvolumes", "persistentvolumes"),
            ("/api/v1/namespaces/x", "namespaces"),
            ("/apis/storage.k8s.io/v1/storageclasses", "storageclasses"),
            ("/version", ""),
        ] {
            assert_eq!(kind_of(path), kind, "{path}");
        }
    }

    #[test]
    fn breaker_opens_on_failure_and_closes_on_success() {
        let breaker = Breaker::default();
        assert_eq!(breaker.open(), None);
        breaker.failed("connection refused");
        assert_eq!(breaker.open().as_deref(), Some("connection refused"));
        breaker.succeeded();
        assert_eq!((breaker.open(), breaker.failing()), (None, None));
    }
}
