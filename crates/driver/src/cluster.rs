//! How any cluster is spoken to, host or member: every request has a time limit, a place in a limited number of requests
//! under way, and fails at once while the cluster is known to be down. Nothing is retried out of sight.

pub mod events;

use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use backon::ExponentialBuilder;
use http::{Method, Request, Response, Uri};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, DynBody},
    core::Status,
};
use tokio::{
    sync::{AcquireError, Notify, Semaphore, SemaphorePermit},
    time::Instant,
};
use tower::{BoxError, Layer, Service, ServiceExt, util::BoxService};

use crate::metrics::Metrics;

const CONNECT: Duration = Duration::from_secs(3);
/// Until the answer's head is there; a watch may then stay open.
const ANSWER: Duration = Duration::from_secs(4);
/// A caller who gave up after this long without an answer has met a cluster that does not answer.
const IMPATIENCE: Duration = Duration::from_secs(2);
/// A watch ends by itself before this much silence.
const SILENCE: Duration = Duration::from_secs(310);
const UNDER_WAY: usize = 32;
/// Of these, how many may begin something. What ends something, or only looks, is not to wait behind all of them.
const BEGINNING: usize = 24;
/// Until there is a place. That a cluster does not answer is noticed sooner, and ends all waiting.
const PLACE: Duration = Duration::from_secs(30);
/// From the beginning of a watch to that of the next one on the same path. One that ends without an error is begun again
/// at once, and a cluster that ends every watch at once would be asked in circles.
const BETWEEN_WATCHES: Duration = Duration::from_secs(1);
pub const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Between tries of what goes on for ever. Not all who ask a cluster that fails ask again at the same time.
pub fn pauses() -> ExponentialBuilder {
    ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(250))
        .with_max_delay(LONGEST_PAUSE)
        .with_jitter()
        .without_max_times()
}

/// The ways to one cluster.
#[derive(Clone)]
pub struct Line {
    /// Fails at once while the cluster is known not to answer.
    pub client: Client,
    /// Asks in any case: for who finds out whether it answers again, and who it is.
    pub probe: Client,
    pub breaker: Breaker,
    places: Arc<Semaphore>,
    dial: Dial,
    config: Config,
}

impl Line {
    /// A way of its own for one long conversation, in which nobody may say anything for hours. What bounds the others would
    /// end it, and take its silence for the cluster's.
    pub fn unbounded(&self) -> Result<Client, kube::Error> {
        let mut config = self.config.clone();
        (config.read_timeout, config.write_timeout) = (None, None);
        Ok(match &self.dial {
            Dial::Network => ClientBuilder::try_from(config)?.build(),
            Dial::Within(open) => ClientBuilder::new(open(&config.cluster_url), config.default_namespace).build(),
        })
    }

    /// How many requests wait for an answer now.
    pub fn under_way(&self) -> usize {
        UNDER_WAY.saturating_sub(self.places.available_permits())
    }
}

impl std::fmt::Debug for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Line").field("breaker", &self.breaker).finish_non_exhaustive()
    }
}

/// What carries requests to a cluster, below their bounds.
pub type Transport = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// How clusters are reached.
#[derive(Clone, Default)]
pub enum Dial {
    #[default]
    Network,
    /// Clusters inside this process, by the address in their kubeconfig.
    Within(Arc<dyn Fn(&Uri) -> Transport + Send + Sync>),
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Network => "Network",
            Self::Within(_) => "Within",
        })
    }
}

impl Dial {
    fn client(&self, config: Config, bounds: &Bounds) -> Result<Client, kube::Error> {
        Ok(match self {
            Self::Network => ClientBuilder::try_from(config)?.with_layer(bounds).build(),
            Self::Within(open) => {
                ClientBuilder::new(open(&config.cluster_url), config.default_namespace).with_layer(bounds).build()
            }
        })
    }
}

pub fn connect(cluster: &str, mut config: Config, dial: &Dial, metrics: &Metrics) -> Result<Line, kube::Error> {
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.write_timeout = Some(ANSWER);
    let breaker = Breaker::default();
    let places = Arc::new(Semaphore::new(UNDER_WAY));
    let bounds = |breaker: Option<Breaker>| Bounds {
        cluster: cluster.into(),
        // Who asks whether it answers must not wait behind those who do not get an answer.
        places: if breaker.is_some() { Arc::clone(&places) } else { Arc::new(Semaphore::new(UNDER_WAY)) },
        beginning: Arc::new(Semaphore::new(BEGINNING)),
        breaker,
        watches: Arc::default(),
        metrics: metrics.of_requests(),
    };
    let probe = dial.client(config.clone(), &bounds(None))?;
    let client = dial.client(config.clone(), &bounds(Some(breaker.clone())))?;
    Ok(Line { client, probe, breaker, places, dial: dial.clone(), config })
}

/// Open from the first request that gets no answer until somebody has asked again, and who answers is who should.
#[derive(Clone, Debug, Default)]
pub struct Breaker {
    reason: Arc<Mutex<Option<String>>>,
    opened: Arc<Notify>,
}

impl Breaker {
    /// Why the cluster is not asked now.
    pub fn open(&self) -> Option<String> {
        self.lock().clone()
    }

    pub fn close(&self) {
        *self.lock() = None;
    }

    pub fn failed(&self, reason: &str) {
        *self.lock() = Some(reason.to_owned());
        self.opened.notify_one();
    }

    /// Returns when a request has failed.
    pub async fn failure(&self) {
        while self.open().is_none() {
            self.opened.notified().await;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The layer that keeps a cluster's requests within bounds.
#[derive(Clone, Debug)]
struct Bounds {
    cluster: Arc<str>,
    breaker: Option<Breaker>,
    places: Arc<Semaphore>,
    beginning: Arc<Semaphore>,
    /// When the last watch on each path, or on a single object, was begun.
    watches: Arc<Mutex<HashMap<String, Instant>>>,
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
    /// When a watch may begin; none for other requests.
    fn turn(&self, address: &Uri) -> Option<Instant> {
        let mut parameters = address.query().unwrap_or_default().split('&');
        parameters.find(|parameter| *parameter == "watch=true")?;
        // Watches on single objects of one kind do not wait for each other.
        let object = address.query().unwrap_or_default().split('&').find(|part| part.starts_with("fieldSelector="));
        let subject = format!("{}?{}", address.path(), object.unwrap_or_default());
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        watches.retain(|_, before| *before + BETWEEN_WATCHES > now);
        let turn = watches.get(&subject).map_or(now, |before| now.max(*before + BETWEEN_WATCHES));
        watches.insert(subject, turn);
        Some(turn)
    }

    /// A place among the requests under way, and for what begins something one among those first.
    async fn place(&self, method: &Method) -> Result<(Option<SemaphorePermit<'_>>, SemaphorePermit<'_>), AcquireError> {
        let beginning = if *method == Method::POST { Some(self.beginning.acquire().await?) } else { None };
        Ok((beginning, self.places.acquire().await?))
    }

    async fn send<S, B>(
        self,
        inner: Arc<tokio::sync::Mutex<S>>,
        request: Request<Body>,
    ) -> Result<Response<B>, BoxError>
    where
        S: Service<Request<Body>, Response = Response<B>>,
        S::Error: Into<BoxError>,
    {
        if let Some(reason) = self.breaker.as_ref().and_then(Breaker::open) {
            return Err(reason.into());
        }
        if let Some(turn) = self.turn(request.uri()) {
            tokio::time::sleep_until(turn).await;
        }
        // Waiting for a place says nothing about the cluster.
        let place = tokio::time::timeout(PLACE, self.place(request.method())).await;
        let _place = place.map_err(|_| format!("{UNDER_WAY} requests to it are under way already"))??;
        if let Some(reason) = self.breaker.as_ref().and_then(Breaker::open) {
            return Err(reason.into());
        }
        let asked = Asked::begin(&self, &request);
        let answer = tokio::time::timeout(ANSWER, async {
            let answering = inner.lock().await.ready().await.map_err(Into::into)?.call(request);
            answering.await.map_err(Into::into)
        });
        let answer = answer.await.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWER.as_secs()).into()));
        asked.told(&answer);
        answer
    }
}

/// A request under way. One that is given up counts like one that failed, if it had waited long.
struct Asked {
    breaker: Option<Breaker>,
    cluster: Arc<str>,
    verb: &'static str,
    resource: String,
    metrics: Metrics,
    since: Instant,
    answered: bool,
}

impl Asked {
    fn begin(bounds: &Bounds, request: &Request<Body>) -> Self {
        Self {
            breaker: bounds.breaker.clone(),
            cluster: Arc::clone(&bounds.cluster),
            verb: verb_of(request.method(), request.uri()),
            resource: route(request.uri().path()).0.to_owned(),
            metrics: bounds.metrics.clone(),
            since: Instant::now(),
            answered: false,
        }
    }

    fn told<B>(mut self, answer: &Result<Response<B>, BoxError>) {
        self.answered = true;
        match answer {
            Ok(response) => {
                let status = response.status();
                // A code that HTTP knows: what stands before a cluster may send any number.
                self.count(if status.canonical_reason().is_some() { status.as_str() } else { "other" });
            }
            Err(error) => {
                self.count("no answer");
                self.metrics.unanswered(&self.cluster);
                if let Some(breaker) = &self.breaker {
                    breaker.failed(&with_causes(error.as_ref()));
                }
            }
        }
    }

    fn count(&self, code: &str) {
        self.metrics.request(&self.cluster, self.verb, &self.resource, code, self.since.elapsed());
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        self.count("given up");
        if let Some(breaker) = &self.breaker
            && self.since.elapsed() > IMPATIENCE
        {
            breaker.failed("no answer while it was waited for");
        }
    }
}

/// An object as it was read, or none where the cluster itself says that there is none of this name. What a proxy on the
/// way calls "not found" proves nothing.
pub fn read<T>(answer: Result<T, kube::Error>, name: &str) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(object) => Ok(Some(object)),
        Err(kube::Error::Api(status)) if is_absence(&status, name) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_absence(status: &Status, name: &str) -> bool {
    says_what_is_missing(status) && status.details.as_ref().is_some_and(|details| details.name == name)
}

/// A "not found" of the cluster's own names the object. One that does not is about the path, or from a proxy.
pub fn says_what_is_missing(status: &Status) -> bool {
    status.code == 404
        && status.reason == "NotFound"
        && status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// The resource a path is about, and whether it names one of them: `persistentvolumeclaims`, true of
/// `/api/v1/namespaces/x/persistentvolumeclaims/y`.
fn route(path: &str) -> (&str, bool) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    let group_and_version = if parts.next() == Some("apis") { 2 } else { 1 };
    let rest: Vec<&str> = parts.skip(group_and_version).collect();
    match rest.as_slice() {
        ["namespaces", _, kind, more @ ..] | [kind, more @ ..] => (kind, !more.is_empty()),
        [] => ("", true),
    }
}

/// The verb in Kubernetes' own words.
fn verb_of(method: &Method, address: &Uri) -> &'static str {
    let watches = address.query().unwrap_or_default().split('&').any(|parameter| parameter == "watch=true");
    match (method.as_str(), route(address.path()).1) {
        ("GET", _) if watches => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PATCH", _) => "patch",
        ("PUT", _) => "update",
        ("DELETE", _) => "delete",
        _ => "other",
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
    fn verb_and_resource_are_read_from_the_request() {
        for (method, address, verb, resource) in [
            (Method::GET, "/api/v1/namespaces/x/persistentvolumeclaims/y", "get", "persistentvolumeclaims"),
            (Method::GET, "/api/v1/persistentvolumes", "list", "persistentvolumes"),
            (Method::GET, "/api/v1/persistentvolumes?watch=true&x=y", "watch", "persistentvolumes"),
            (Method::GET, "/api/v1/namespaces/x", "get", "namespaces"),
            (Method::POST, "/apis/storage.k8s.io/v1/storageclasses?", "create", "storageclasses"),
            (Method::PATCH, "/api/v1/persistentvolumes/y?", "patch", "persistentvolumes"),
            (Method::GET, "/version", "get", ""),
        ] {
            let uri: Uri = address.parse().unwrap();
            assert_eq!((verb_of(&method, &uri), route(uri.path()).0), (verb, resource), "{address}");
        }
    }

    #[tokio::test]
    async fn breaker_stays_open_until_it_is_closed() {
        let breaker = Breaker::default();
        assert_eq!(breaker.open(), None);
        breaker.failed("connection refused");
        breaker.failure().await;
        assert_eq!(breaker.open().as_deref(), Some("connection refused"));
        breaker.close();
        assert_eq!(breaker.open(), None);
    }

    #[test]
    fn absence_is_believed_only_from_the_cluster_itself() {
        let status = |reason: &str, name: &str| -> Status {
            serde_json::from_value(serde_json::json!({"code": 404, "reason": reason, "details": {"name": name}}))
                .unwrap()
        };
        assert!(is_absence(&status("NotFound", "data"), "data"));
        assert!(!is_absence(&status("NotFound", "other"), "data"));
        assert!(!is_absence(&status("Failed to parse error data", "data"), "data"));
        assert!(!is_absence(&Status { code: 404, reason: "NotFound".to_owned(), ..Status::default() }, "data"));
    }

    fn request(method: Method) -> Request<Body> {
        Request::builder().method(method).uri("/api/v1/persistentvolumes").body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_a_place_is_heard_at_the_end_of_something_and_of_the_cluster() {
        let bounds = Bounds {
            cluster: "a".into(),
            breaker: Some(Breaker::default()),
            places: Arc::new(Semaphore::new(UNDER_WAY)),
            beginning: Arc::new(Semaphore::new(BEGINNING)),
            watches: Arc::default(),
            metrics: Metrics::new(),
        };
        let mut cluster = bounds.layer(tower::service_fn(async |request: Request<Body>| {
            if request.method() == Method::POST {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(Response::new(()))
        }));
        let mut creations = tokio::task::JoinSet::new();
        for _ in 0..2 * UNDER_WAY {
            creations.spawn(cluster.call(request(Method::POST)));
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        assert!(cluster.call(request(Method::PATCH)).await.is_ok());
        assert_eq!(begun.elapsed(), Duration::ZERO, "it waited behind those that begin something");
        while let Some(ended) = creations.join_next().await {
            assert!(ended.unwrap().is_err());
        }
        assert!(begun.elapsed() < ANSWER * 2, "what waited for a place asked a cluster that was known to be silent");
    }
}
